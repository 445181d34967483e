"""Tools within a run: what is checked first, what runs beside what, and who answers."""

from __future__ import annotations

import asyncio  # noqa: TID251 - a native cancellation is what is tested
import math
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from prism.core import (
    ErrorInfo,
    Message,
    MessageEntry,
    ModelConfig,
    PermissionDenied,
    RunAborted,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolContext,
    ToolError,
    ToolExecutionBlocked,
    ToolExecutionError,
    ToolExecutionFinished,
    ToolExecutionProgress,
    ToolExecutionStarted,
    ToolOutput,
    ToolResultBlock,
    UsageError,
    tool,
)
from prism.core._contracts import PermissionDecision, PermissionRequest
from prism.core.host import PermissionRule, StaticPermissionPolicy
from prism.core.providers import done, text_delta, tool_call, tool_call_delta

from .harness import Stage, in_asyncio, now, of, provider_of, results, said, sent, ticks, types


@tool
async def look(n: int = 0) -> int:
    """Look."""
    return n


@tool
async def nap(ms: int) -> int:
    """Sleep."""
    await anyio.sleep(ms / 1000)
    return ms


@tool(sequential=True)
async def alone(ms: int) -> int:
    """Sleep alone."""
    await anyio.sleep(ms / 1000)
    return ms


def asks(*calls: tuple[str, str, dict[str, Any]]) -> list[list[Any]]:
    """A turn with these calls, then an answer."""
    return [
        [*(tool_call(id=key, name=name, arguments=given) for key, name, given in calls), done()],
        [text_delta("end"), done()],
    ]


def codes(path: list[Any]) -> dict[str, Any]:
    """The error code of each result, or its value."""
    return {
        key: block.result if block.error is None else block.error.code
        for key, block in results(path).items()
    }


# Preflight


async def test_a_call_that_may_not_run_gets_an_error_result_and_the_others_run(
    stage: Stage,
) -> None:
    policy = StaticPermissionPolicy(
        [PermissionRule(verdict="deny", name="nap", reason="too slow")], default="allow"
    )
    session = stage.session(
        [
            [
                tool_call(id="c1", name="nosuch"),
                tool_call(id="c2", name="alone", arguments={"ms": 1}),
                tool_call(id="c3", name="look", arguments={"n": "x"}),
                tool_call_delta(index=9, id="c4", name="look", arguments_text="{"),
                tool_call(id="c5", name="nap", arguments={"ms": 1}),
                tool_call(id="c6", name="look", arguments={"n": 6}),
                done(),
            ],
            [text_delta("end"), done()],
        ],
        tools=[look, nap, alone],
        permissions=policy,
    )
    await session.run("Go", tools=["look", "nap"])
    assert codes(await session.entries()) == {
        "c1": "unknown_tool",
        "c2": "tool_denied",
        "c3": "invalid_arguments",
        "c4": "invalid_arguments",
        "c5": "permission_denied",
        "c6": 6,
    }
    events = stage.events(session)
    assert [event.reason for event in of(ToolExecutionBlocked, events)] == [
        "unknown_tool",
        "tool_denied",
        "invalid_arguments",
        "invalid_arguments",
        "permission_denied",
    ]
    assert [event.call.id for event in of(ToolExecutionStarted, events)] == ["c6"]
    texts = {event.tool_call_id: event.error.message for event in of(ToolExecutionBlocked, events)}
    assert "Known tools: look, nap" in texts["c1"]
    assert "too slow" in texts["c5"]
    assert {spec.name for spec in provider_of(session).requests[0].tools} == {"look", "nap"}


async def test_the_policy_is_asked_before_the_arguments_are_looked_at(stage: Stage) -> None:
    session = stage.session(
        asks(("c1", "look", {"n": "x"})), tools=[look], permissions=StaticPermissionPolicy()
    )
    await session.run("Go")
    assert codes(await session.entries()) == {"c1": "permission_denied"}


async def test_a_policy_may_say_no_by_raising_permission_denied(stage: Stage) -> None:
    class Policy:
        async def decide(self, request: PermissionRequest) -> PermissionDecision:
            raise PermissionDenied(f"not {request.name}")

    session = stage.session(asks(("c1", "look", {})), tools=[look], permissions=Policy())
    assert (await session.run("Go")).status == "completed"
    block = results(await session.entries())["c1"]
    assert block.error is not None
    assert "not look" in block.error.message


@pytest.mark.parametrize("given", ["raises", "nothing", "nonsense"])
async def test_a_failing_policy_lets_nothing_run_and_fails_the_run(
    stage: Stage, given: str
) -> None:
    class Policy:
        async def decide(self, request: PermissionRequest) -> Any:
            if request.call is not None and request.call.id == "c2":
                if given == "raises":
                    raise LookupError("policy broke")
                return None if given == "nothing" else "allow"
            return PermissionDecision(verdict="allow")

    session = stage.session(
        asks(("c1", "look", {}), ("c2", "look", {})), tools=[look], permissions=Policy()
    )
    with pytest.raises(LookupError if given == "raises" else UsageError):
        await session.run("Go")
    assert codes(await session.entries()) == {"c1": "interrupted", "c2": "interrupted"}
    assert of(ToolExecutionStarted, stage.events(session)) == []


async def test_a_verdict_that_is_none_denies(stage: Stage) -> None:
    class Policy:
        async def decide(self, request: PermissionRequest) -> PermissionDecision:
            return PermissionDecision(verdict="maybe")  # type: ignore[arg-type]

    session = stage.session(asks(("c1", "look", {})), tools=[look], permissions=Policy())
    await session.run("Go")
    assert codes(await session.entries()) == {"c1": "permission_denied"}


async def test_a_policy_sees_the_call_the_run_and_the_hosts_metadata(stage: Stage) -> None:
    seen: list[PermissionRequest] = []

    class Policy:
        async def decide(self, request: PermissionRequest) -> PermissionDecision:
            seen.append(request)
            return PermissionDecision(verdict="allow")

    session = stage.session(asks(("c1", "look", {"n": 3})), tools=[look], permissions=Policy())
    result = await session.run("Go", metadata={"user": "u"})
    (request,) = seen
    assert (request.action, request.name) == ("tool", "look")
    assert (request.session_id, request.run_id) == ("s1", result.run_id)
    assert request.call == ToolCallBlock(id="c1", name="look", arguments={"n": 3})
    assert request.metadata == {"user": "u"}


# Running


async def test_calls_run_side_by_side_and_are_answered_in_call_order(stage: Stage) -> None:
    session = stage.session(
        asks(("c1", "nap", {"ms": 300}), ("c2", "nap", {"ms": 100}), ("c3", "nap", {"ms": 200})),
        tools=[nap],
    )
    start = now()
    await session.run("Go")
    assert now() - start == pytest.approx(0.3)
    events = stage.events(session)
    assert [event.call.id for event in of(ToolExecutionStarted, events)] == ["c1", "c2", "c3"]
    ended = [event.result.tool_call_id for event in of(ToolExecutionFinished, events)]
    assert ended == ["c2", "c3", "c1"]
    assert said(await session.entries())[2:5] == ["tool: c1 300", "tool: c2 100", "tool: c3 200"]
    assert sent(provider_of(session).requests[1])[2:] == [
        "tool: c1 300",
        "tool: c2 100",
        "tool: c3 200",
    ]


async def test_results_are_stored_as_soon_as_nothing_before_them_is_missing(stage: Stage) -> None:
    session = stage.session(
        asks(("c1", "nap", {"ms": 100}), ("c2", "nap", {"ms": 500})), tools=[nap]
    )
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await anyio.sleep(0.2)
        assert said(await session.entries())[-1] == "tool: c1 100"


@pytest.mark.parametrize("count", range(1, 6))
async def test_no_result_is_lost_when_tools_end_while_a_result_is_stored(count: int) -> None:
    gate = anyio.Event()

    @tool
    async def together(n: int) -> int:
        """End some steps after the others."""
        await gate.wait()
        await ticks(n)
        return n

    stage = Stage(suspend=True)
    calls = [tool_call(id=f"c{n}", name="together", arguments={"n": n}) for n in range(count)]
    session = stage.session([[*calls, done()], [done()]], tools=[together])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await ticks(30)
        gate.set()
    assert codes(await session.entries()) == {f"c{n}": n for n in range(count)}
    stage.finish()


async def test_at_most_max_parallel_tools_run_at_once(stage: Stage) -> None:
    running = most = 0

    @tool
    async def count() -> None:
        """Count who is here."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.1)
        running -= 1

    calls = [tool_call(id=f"c{n}", name="count") for n in range(7)]
    session = stage.session([[*calls, done()], [done()]], tools=[count], max_parallel_tools=3)
    start = now()
    await session.run("Go")
    assert most == 3
    assert now() - start == pytest.approx(0.3)


async def test_a_sequential_tool_runs_alone(stage: Stage) -> None:
    session = stage.session(
        asks(
            ("c1", "nap", {"ms": 100}),
            ("c2", "alone", {"ms": 50}),
            ("c3", "nap", {"ms": 100}),
            ("c4", "nap", {"ms": 100}),
        ),
        tools=[nap, alone],
    )
    start = now()
    await session.run("Go")
    assert now() - start == pytest.approx(0.25)
    kinds = [kind for kind in types(stage.events(session)) if kind.startswith("tool_")]
    started, finished = "tool_execution_started", "tool_execution_finished"
    assert kinds == [started, finished] * 2 + [started] * 2 + [finished] * 2


async def test_tools_begin_in_source_order(stage: Stage) -> None:
    begun: list[int] = []

    @tool
    async def begin(n: int) -> None:
        """Say when it begins."""
        begun.append(n)
        await checkpoint()

    session = stage.session(asks(*((f"c{n}", "begin", {"n": n}) for n in range(8))), tools=[begin])
    await session.run("Go")
    assert begun == list(range(8))


async def test_what_a_tool_raises_is_an_error_result(stage: Stage) -> None:
    @tool
    async def fails(how: str) -> Any:
        """Fail."""
        if how == "tool_error":
            raise ToolError("no disk", code="disk_full")
        if how == "group":
            async with anyio.create_task_group():
                raise ValueError("in a group")
        if how == "slow":
            await anyio.sleep(10)
        if how == "nan":
            return math.nan
        if how == "output":
            return ToolOutput(
                content=[TextBlock(text="half")], error=ErrorInfo(message="bad", code="bad")
            )
        raise KeyError(how)

    fail = Tool(name="fail", execute=fails.execute, parameters=fails.parameters, timeout_ms=1_000)
    hows = ["tool_error", "group", "slow", "nan", "output", "other"]
    session = stage.session(asks(*((how, "fail", {"how": how}) for how in hows)), tools=[fail])
    await session.run("Go")
    assert codes(await session.entries()) == {
        "tool_error": "disk_full",
        "group": "tool_error",
        "slow": "timeout",
        "nan": "invalid_result",
        "output": "bad",
        "other": "tool_error",
    }
    events = stage.events(session)
    raised = {event.call.id for event in of(ToolExecutionError, events)}
    returned = {event.result.tool_call_id for event in of(ToolExecutionFinished, events)}
    assert raised == {"tool_error", "group", "slow", "other"}
    assert returned == {"nan", "output"}


async def test_a_tools_own_cancellation_is_an_error_result(stage: Stage) -> None:
    @tool
    async def scoped() -> str:
        """Cancel a scope of its own."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep(1)
        return "went on"

    @tool
    async def native() -> str:
        """Cancel the task in which it runs, where that can be done."""
        if not in_asyncio():
            return "cannot"
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.sleep(1)
        return "never"

    @tool
    async def raising() -> str:
        """Raise a cancellation, where that can be done."""
        if not in_asyncio():
            return "cannot"
        raise asyncio.CancelledError

    session = stage.session(
        asks(("c1", "scoped", {}), ("c2", "native", {}), ("c3", "raising", {}), ("c4", "look", {})),
        tools=[scoped, native, raising, look],
    )
    assert (await session.run("Go")).status == "completed"
    own = "cancelled" if in_asyncio() else "cannot"
    assert said(await session.entries())[2:6] == [
        "tool: c1 went on",
        f"tool: c2 {own}",
        f"tool: c3 {own}",
        "tool: c4 0",
    ]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_what_is_meant_to_end_the_program_leaves_ungrouped_and_nothing_is_lost(
    stage: Stage, kind: type[BaseException]
) -> None:
    @tool
    async def end() -> None:
        """End the program."""
        raise kind("bye")

    session = stage.session(
        asks(("c1", "nap", {"ms": 50}), ("c2", "end", {}), ("c3", "alone", {"ms": 1})),
        tools=[nap, end, alone],
    )
    caught: BaseException | None = None
    try:
        await session.run("Go")
    except BaseException as error:  # noqa: BLE001
        caught = error
    assert type(caught) is kind
    assert codes(await session.entries()) == {
        "c1": "aborted",
        "c2": "tool_error",
        "c3": "interrupted",
    }
    assert types(stage.events(session))[-2:] == ["agent_finished", "session_settled"]
    assert (await session.run("And?")).status == "completed"


async def test_progress_is_told_while_the_tool_runs_and_is_a_copy(stage: Stage) -> None:
    kept: list[ToolContext] = []

    @tool
    async def work(context: ToolContext) -> str:
        """Report."""
        value = {"done": [1]}
        context.progress(value)
        value["done"].append(2)
        context.progress(value)
        kept.append(context)
        with pytest.raises(Exception, match="JSON"):
            context.progress(object())
        with pytest.raises(Exception, match="NaN"):
            context.progress(math.nan)
        return context.tool_call_id

    session = stage.session(asks(("c1", "work", {})), tools=[work])
    result = await session.run("Go", metadata={"k": 1})
    events = of(ToolExecutionProgress, stage.events(session))
    assert [event.progress for event in events] == [{"done": [1]}, {"done": [1, 2]}]
    assert {(event.tool_call_id, event.name) for event in events} == {("c1", "work")}
    assert (kept[0].session_id, kept[0].run_id) == ("s1", result.run_id)
    assert dict(kept[0].metadata) == {"k": 1}
    kept[0].progress("late")
    assert len(of(ToolExecutionProgress, stage.events(session))) == 2


async def test_a_run_inside_a_tool_of_the_same_session_is_busy_and_does_not_hang(
    stage: Stage,
) -> None:
    @tool
    async def again() -> str:
        """Run the session that runs."""
        return (await session.run("inner")).text

    session = stage.session(asks(("c1", "again", {})), tools=[again])
    assert (await session.run("Go")).text == "end"
    block = results(await session.entries())["c1"]
    assert block.error is not None
    assert block.error.name == "SessionBusy"


async def test_a_follow_up_from_inside_a_tool_joins_the_run(stage: Stage) -> None:
    @tool
    async def more() -> None:
        """Ask for more."""
        assert await session.follow_up("and then?") is None

    session = stage.session([*asks(("c1", "more", {})), [text_delta("then"), done()]], tools=[more])
    assert (await session.run("Go")).text == "then"


async def test_an_abort_reaches_the_session_that_a_tool_runs(stage: Stage) -> None:
    class Hanging:
        id = "mock"

        async def generate(self, request: Any) -> Any:
            yield text_delta("thinking")
            await anyio.sleep(1_000)
            yield done()

    inner = stage.watch(stage.agent(Hanging()).session("inner"))

    @tool
    async def delegate() -> str:
        """Ask another session."""
        return (await inner.run("inner")).text

    session = stage.session(asks(("c1", "delegate", {})), tools=[delegate])
    async with anyio.create_task_group() as group:

        async def run() -> None:
            with pytest.raises(RunAborted):
                await session.run("Go")

        group.start_soon(run)
        await anyio.sleep(0.1)
        session.abort("enough")
    assert said(await inner.entries()) == ["user: inner", "assistant: thinking"]
    assert types(stage.events(inner))[-2:] == ["agent_finished", "session_settled"]
    assert codes(await session.entries()) == {"c1": "aborted"}
    assert (await inner.state()).status == "idle"


async def test_results_in_the_input_answer_open_calls_and_no_others(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()])
    with pytest.raises(UsageError) as caught:
        await session.run([ToolResultBlock(tool_call_id="c9", name="look", result=1)])
    assert caught.value.details == {"reason": "unknown_call"}
    assert stage.events(session) == []
    assert await session.entries() == []


async def test_results_that_the_host_brings_stand_next_to_their_calls(stage: Stage) -> None:
    """As of a process that died while the host ran the calls itself."""
    calls = [ToolCallBlock(id=key, name="look", arguments={}) for key in ("c1", "c2")]
    when = "2026-01-01T00:00:00.000Z"
    question = Message(role="user", content=[TextBlock(text="Hi")])
    asked = Message(role="assistant", content=[*calls], stop_reason="tool_use")
    await stage.store.append(
        "s1",
        [
            MessageEntry(id="e1", session_id="s1", timestamp=when, message=question),
            MessageEntry(id="e2", session_id="s1", timestamp=when, parent_id="e1", message=asked),
        ],
    )
    session = stage.session([text_delta("end"), done()])
    given = [ToolResultBlock(tool_call_id=key, name="look", result=1) for key in ("c1", "c2")]
    other = ModelConfig(provider="mock", model="big")
    await session.run([*given, TextBlock(text="there")], model=other)
    kinds = [type(entry).__name__ for entry in await session.entries()]
    assert kinds == ["MessageEntry"] * 4 + ["ModelChangeEntry"] + ["MessageEntry"] * 2
    assert sent(provider_of(session).requests[0]) == [
        "user: Hi",
        "assistant: [c1] [c2]",
        "tool: c1 1",
        "tool: c2 1",
        "user: there",
    ]
    assert "warning" not in types(stage.events(session))


async def test_a_message_with_calls_is_followed_by_records_at_most(stage: Stage) -> None:
    @tool
    async def record() -> None:
        """Append a record and a label."""
        await session.append_custom({"type": "note"})
        await session.label("here")

    session = stage.session(asks(("c1", "record", {}), ("c2", "record", {})), tools=[record])
    await session.run("Go")
    assert len(await session.entries()) == 9
    assert len(of(MessageEntry, await session.entries())) == 5
