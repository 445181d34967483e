"""Stopping a run: by `abort`, by cancellation from outside, and tools that will not stop."""

from __future__ import annotations

import asyncio  # noqa: TID251 - its own cancellation is what is tested
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from prism.core import (
    AgentFinished,
    ContentBlock,
    ErrorEvent,
    MessageFinished,
    RunAborted,
    SecretRedactor,
    Session,
    ToolContext,
    ToolExecutionBlocked,
    ToolExecutionError,
    ToolExecutionStarted,
    TurnFinished,
    tool,
)
from prism.core._contracts import ContextRequest
from prism.core.providers import delay, done, text_delta, thinking_delta, tool_call, tool_call_delta

from .harness import (
    Stage,
    VirtualLoop,
    now,
    of,
    provider_of,
    results,
    running_tasks,
    said,
    sent,
    ticks,
    types,
)


@tool
async def nap(ms: int) -> int:
    """Sleep."""
    await anyio.sleep(ms / 1000)
    return ms


@tool
async def stubborn(ms: int) -> str:
    """Ignore a cancellation."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(ms / 1000)
    return "too late"


def asks(*calls: tuple[str, str, dict[str, Any]]) -> list[list[Any]]:
    return [
        [*(tool_call(id=key, name=name, arguments=given) for key, name, given in calls), done()],
        [text_delta("end"), done()],
        [text_delta("again"), done()],
    ]


async def aborted(session: Session, after: float, reason: str | None = "enough") -> RunAborted:
    """Run the session and abort it some virtual seconds later; what `run` raised."""
    caught: list[RunAborted] = []

    async def run() -> None:
        with pytest.raises(RunAborted) as raised:
            await session.run("Go")
        caught.append(raised.value)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(after)
        assert session.abort(reason) is True
    return caught[0]


async def test_an_abort_stores_the_partial_answer_and_raises_run_aborted(stage: Stage) -> None:
    session = stage.session(
        [
            [
                thinking_delta("hm"),
                text_delta("I th"),
                tool_call_delta(index=5, id="c1", name="nap", arguments_text='{"ms'),
                delay(1_000),
                text_delta("ink"),
                done(),
            ],
            [text_delta("again"), done()],
        ]
    )
    error = await aborted(session, 0.1)
    assert str(error) == "Agent run aborted: enough"
    assert (error.code, error.details) == ("aborted", {"reason": "enough"})
    assert said(await session.entries()) == ["user: Go", "assistant: <ThinkingBlock> I th"]
    events = stage.events(session)
    (finished,) = of(MessageFinished, events)
    assert (finished.partial, finished.message.stop_reason) == (True, "aborted")
    (ended,) = of(AgentFinished, events)
    assert ended.status == "aborted"
    assert ended.error is not None
    assert ended.error.code == "aborted"
    assert types(events)[-5:] == [
        "error",
        "message_finished",
        "turn_finished",
        "agent_finished",
        "session_settled",
    ]
    assert (await session.run("And?")).text == "again"
    assert sent(provider_of(session).requests[1]) == [
        "user: Go",
        "assistant: I th",
        "user: And?",
    ]


async def test_abort_says_so_before_it_returns(stage: Stage) -> None:
    session = stage.session([text_delta("a"), delay(1_000), done()])
    async with anyio.create_task_group() as group:

        async def run() -> None:
            with pytest.raises(RunAborted):
                await session.run("Go")

        group.start_soon(run)
        await anyio.sleep(0.1)
        session.abort("now")
        event = stage.events(session)[-1]
        assert isinstance(event, ErrorEvent)
        assert event.fatal is True
        assert (event.error.code, event.error.message) == ("aborted", "Agent run aborted")
        assert event.error.details == {"reason": "now"}


async def test_an_abort_without_a_reason_has_none(stage: Stage) -> None:
    session = stage.session([text_delta("a"), delay(1_000), done()])
    error = await aborted(session, 0.1, None)
    assert (str(error), error.details) == ("Agent run aborted", None)


async def test_a_secret_in_the_reason_is_not_shown(stage: Stage) -> None:
    session = stage.session(
        [text_delta("a"), delay(1_000), done()],
        secrets=["hunter2"],
        redactor=SecretRedactor(["hunter2"]),
    )
    error = await aborted(session, 0.1, "it was hunter2")
    assert "hunter2" not in repr(error)


async def test_abort_says_whether_there_was_something_to_stop(stage: Stage) -> None:
    session = stage.session([text_delta("a"), delay(1_000), done()])
    assert session.abort() is False
    async with anyio.create_task_group() as group:

        async def run() -> None:
            with pytest.raises(RunAborted, match="first"):
                await session.run("Go")

        group.start_soon(run)
        await anyio.sleep(0.1)
        assert session.abort("first") is True
        assert session.abort("second") is False
    assert session.abort() is False
    assert len(of(ErrorEvent, stage.events(session))) == 1


async def test_an_abort_before_the_run_has_begun_ends_it_without_its_input(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()])

    async def run() -> None:
        with pytest.raises(RunAborted):
            await session.run("Go")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        while not session.abort("early"):
            await checkpoint()
    assert types(stage.events(session)) == [
        "agent_started",
        "error",
        "agent_finished",
        "session_settled",
    ]
    assert await session.entries() == []
    assert provider_of(session).requests == []


async def test_an_abort_lands_within_64_deltas_of_a_provider_that_never_waits(
    stage: Stage,
) -> None:
    given = at = 0

    class Endless:
        id = "mock"

        async def generate(self, request: Any) -> Any:
            nonlocal given
            while True:
                given += 1
                if given == at:
                    session.abort()
                yield text_delta("a")

    session = stage.session(Endless())
    for at in range(1, 130):
        given = 0
        with pytest.raises(RunAborted):
            await session.run("Go")
        assert at <= given <= at + 64


async def test_an_abort_from_inside_the_provider_or_a_tool_works(stage: Stage) -> None:
    @tool
    async def stop() -> str:
        """Abort the run that calls."""
        assert session.abort("by the tool") is True
        return "done"

    session = stage.session(asks(("c1", "stop", {}), ("c2", "nap", {"ms": 500})), tools=[stop, nap])
    with pytest.raises(RunAborted, match="by the tool"):
        await session.run("Go")
    assert said(await session.entries()) == [
        "user: Go",
        "assistant: [c1] [c2]",
        "tool: c1 done",
        "tool: c2 aborted",
    ]


async def test_no_tool_starts_after_an_abort(stage: Stage) -> None:
    @tool(sequential=True)
    async def stop() -> str:
        """Abort the run that calls."""
        session.abort()
        return "done"

    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("c1", "stop", {}),
        ("c2", "stop", {}),
        ("c3", "nap", {"ms": 1}),
    ]
    session = stage.session(asks(*calls), tools=[stop, nap])
    with pytest.raises(RunAborted):
        await session.run("Go")
    events = stage.events(session)
    assert [event.call.id for event in of(ToolExecutionStarted, events)] == ["c1"]
    assert [event.reason for event in of(ToolExecutionBlocked, events)] == ["aborted"] * 2
    assert list(results(await session.entries())) == ["c1", "c2", "c3"]


async def test_no_tool_starts_after_an_abort_that_came_with_the_last_event(stage: Stage) -> None:
    class Provider:
        id = "mock"

        async def generate(self, request: Any) -> Any:
            yield tool_call(id="c1", name="nap", arguments={"ms": 1})
            session.abort()
            yield done()

    session = stage.session(Provider(), tools=[nap])
    with pytest.raises(RunAborted):
        await session.run("Go")
    assert of(ToolExecutionStarted, stage.events(session)) == []
    block = results(await session.entries())["c1"]
    assert block.error is not None
    assert block.error.code == "aborted"


async def test_running_tools_are_cancelled_and_each_call_has_a_result(stage: Stage) -> None:
    calls = [("c1", "nap", {"ms": 50}), ("c2", "nap", {"ms": 5_000}), ("c3", "nap", {"ms": 9_000})]
    session = stage.session(asks(*calls), tools=[nap], max_parallel_tools=2)
    await aborted(session, 1)
    assert said(await session.entries())[2:] == [
        "tool: c1 50",
        "tool: c2 aborted",
        "tool: c3 aborted",
    ]
    events = stage.events(session)
    assert [event.call.id for event in of(ToolExecutionError, events)] == ["c2", "c3"]
    assert of(TurnFinished, events)[0].stop_reason == "tool_use"
    assert (await session.run("And?")).text == "end"


async def test_an_outside_cancellation_is_raised_again_as_it_came(stage: Stage) -> None:
    session = stage.session([text_delta("I"), delay(9_000), done()])
    with anyio.move_on_after(1) as scope:
        await session.run("Go")
    assert scope.cancelled_caught
    assert said(await session.entries()) == ["user: Go", "assistant: I"]
    (ended,) = of(AgentFinished, stage.events(session))
    assert ended.status == "aborted"
    (told,) = of(ErrorEvent, stage.events(session))
    assert told.error.details == {"reason": "cancelled"}


async def test_a_cancellation_before_the_run_has_begun_emits_nothing(stage: Stage) -> None:
    session = stage.session([text_delta("I"), done()])
    with anyio.CancelScope() as scope:
        scope.cancel()
        await session.run("Go")
    assert scope.cancelled_caught
    assert stage.events(session) == []
    assert await session.entries() == []
    assert (await session.state()).status == "idle"


async def test_cancellation_wins_over_an_abort(stage: Stage) -> None:
    session = stage.session([text_delta("I"), delay(9_000), done()])
    outcome = "nothing"
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await anyio.sleep(0.1)
                session.abort("both")
                scope.cancel()

            group.start_soon(stop)
            try:
                await session.run("Go")
            except RunAborted:
                outcome = "aborted"
            except anyio.get_cancelled_exc_class():
                outcome = "cancelled"
                raise
    assert outcome == "cancelled"
    assert [event.status for event in of(AgentFinished, stage.events(session))] == ["aborted"]


@pytest.mark.parametrize("first", ["abort", "failure"])
async def test_a_cancellation_wins_also_while_the_run_is_ending(stage: Stage, first: str) -> None:
    @tool
    async def end() -> None:
        """Abort the run, or end the program."""
        if first == "abort":
            session.abort()
        else:
            raise SystemExit(1)

    session = stage.session(
        asks(("c1", "stubborn", {"ms": 1_000}), ("c2", "end", {})), tools=[stubborn, end]
    )
    with anyio.move_on_after(0.5) as scope:
        await session.run("Go")
    assert scope.cancelled_caught
    assert said(await session.entries())[2] == "tool: c1 too late"


async def test_a_provider_that_makes_an_error_of_its_cancellation_changes_nothing(
    stage: Stage,
) -> None:
    class Provider:
        id = "mock"

        async def generate(self, request: Any) -> Any:
            if len(request.messages) > 1:
                yield text_delta("again")
                yield done()
            try:
                await anyio.sleep(100)
            finally:
                raise ConnectionError("connection lost")

    for by in ("abort", "scope"):
        session = stage.session(Provider(), id=by)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def run(session: Session = session) -> None:
                    with pytest.raises((RunAborted, anyio.get_cancelled_exc_class())):
                        await session.run("Go")

                group.start_soon(run)
                await anyio.sleep(0.1)
                if by == "abort":
                    session.abort()
                else:
                    scope.cancel()
        assert [event.status for event in of(AgentFinished, stage.events(session))] == ["aborted"]
        assert "retry_scheduled" not in types(stage.events(session))
        assert (await session.run("And?")).text == "again"


async def test_other_code_that_makes_an_error_of_its_cancellation_changes_nothing(
    stage: Stage,
) -> None:
    class Context:
        name = "context"

        async def provide(self, request: ContextRequest) -> list[ContentBlock]:
            try:
                await anyio.sleep(100)
            finally:
                raise ConnectionError("connection lost")

    session = stage.session([done()], context=[Context()])
    with anyio.move_on_after(0.1) as scope:
        await session.run("Go")
    assert scope.cancelled_caught
    assert [event.status for event in of(AgentFinished, stage.events(session))] == ["aborted"]


# Tools that will not stop


async def test_a_tool_that_stops_within_the_grace_period_gives_its_result(stage: Stage) -> None:
    session = stage.session(asks(("c1", "stubborn", {"ms": 1_500})), tools=[stubborn])
    start = now()
    await aborted(session, 0.1)
    assert now() - start == pytest.approx(1.5)
    assert said(await session.entries())[2:] == ["tool: c1 too late"]


async def test_a_tool_that_ignores_cancellation_has_an_unknown_outcome_after_the_grace_period(
    stage: Stage,
) -> None:
    session = stage.session(
        asks(("c1", "stubborn", {"ms": 60_000}), ("c2", "nap", {"ms": 60_000})),
        tools=[stubborn, nap],
    )
    ended: list[float] = []
    count = 0
    start = now()

    async def run() -> None:
        with pytest.raises(RunAborted):
            await session.run("Go")
        ended.append(now() - start)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(1)
        session.abort()
        await session.wait_settled()
        assert now() - start == pytest.approx(3)
        assert said(await session.entries())[2:] == [
            "tool: c1 outcome_unknown",
            "tool: c2 aborted",
        ]
        # The session takes a new prompt while the old run() still waits for its tool.
        assert (await session.run("And?")).text == "end"
        assert ended == []
        count = len(stage.events(session))
    assert ended == [pytest.approx(60)]
    assert len(stage.events(session)) == count
    assert said(await session.entries())[4:] == ["user: And?", "assistant: end"]


async def test_the_grace_period_can_be_set(stage: Stage) -> None:
    session = stage.session(
        asks(("c1", "stubborn", {"ms": 60_000})), tools=[stubborn], tool_cancel_grace_ms=10
    )
    async with anyio.create_task_group() as group:

        async def run() -> None:
            with pytest.raises(RunAborted):
                await session.run("Go")

        group.start_soon(run)
        await anyio.sleep(1)
        start = now()
        session.abort()
        await session.wait_settled()
        assert now() - start == pytest.approx(0.01)


async def test_progress_of_an_abandoned_tool_is_not_told(stage: Stage) -> None:
    @tool
    async def talk(context: ToolContext) -> None:
        """Report although nobody waits any more."""
        with anyio.CancelScope(shield=True):
            for step in range(10):
                context.progress(step)
                await anyio.sleep(1)

    session = stage.session(asks(("c1", "talk", {})), tools=[talk])
    await aborted(session, 1.5)
    assert types(stage.events(session)).count("tool_execution_progress") <= 4


async def test_nothing_is_left_running(stage: Stage) -> None:
    before = running_tasks()
    session = stage.session(
        asks(("c1", "nap", {"ms": 9_000}), ("c2", "stubborn", {"ms": 500})), tools=[nap, stubborn]
    )
    await aborted(session, 0.1)
    await ticks()
    assert running_tasks() == before


async def test_a_tool_that_ends_while_the_run_is_aborted_keeps_its_result(stage: Stage) -> None:
    @tool
    async def tidy() -> str:
        """Clean up when it is cancelled."""
        try:
            await anyio.sleep(100)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.1)
            return "tidied"
        return "never"

    session = stage.session(asks(("c1", "tidy", {})), tools=[tidy])
    await aborted(session, 0.1)
    assert said(await session.entries())[2:] == ["tool: c1 tidied"]


@pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"loop_factory": VirtualLoop})], ids=["asyncio"]
)
async def test_asyncios_own_timeouts_work_as_with_any_other_coroutine(stage: Stage) -> None:
    session = stage.session([[text_delta("I"), delay(9_000), done()]] * 2 + [[done()]])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await session.run("one")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.run("two"), 1)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert said(await session.entries()) == [
        "user: one",
        "assistant: I",
        "user: two",
        "assistant: I",
    ]
    assert (await session.run("three")).status == "completed"
