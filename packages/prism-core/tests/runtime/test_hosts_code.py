"""Code of the host that is wrong or fails: options, builders, policies, middleware."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio
import pytest
from msgspec import structs

from prism.core import (
    AgentFinished,
    CompactionOptions,
    ContentBlock,
    ExtensionFailed,
    Message,
    MiddlewareError,
    MiddlewareRegistry,
    RetryOptions,
    RunAborted,
    Session,
    TextBlock,
    ToolCallBlock,
    ToolExecutionBlocked,
    ToolExecutionStarted,
    ToolResult,
    UsageError,
    UsageLimits,
    tool,
)
from prism.core._contracts import (
    HOOKS,
    BuiltPrompt,
    ContextRequest,
    InputPayload,
    InputRequest,
    PermissionDecision,
    PermissionRequest,
    PolicyContext,
    PromptInput,
    PromptPayload,
    ProviderRequest,
    ProviderRequestPayload,
    SessionPayload,
    ToolCallPayload,
    ToolResultPayload,
    ToolSpec,
)
from prism.core.prompt import DefaultPromptBuilder
from prism.core.providers import delay, done, text_delta, tool_call

from .harness import Stage, of, provider_of, results, said, sent, types

END = [text_delta("end"), done()]


@tool
async def look(n: int = 0) -> int:
    """Look."""
    return n


@tool
async def other() -> str:
    """Do something else."""
    return "other"


def asks(**arguments: Any) -> list[list[Any]]:
    return [[tool_call(id="c1", name="look", arguments=arguments), done()], END, END]


# Options


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"model": "gpt"}, "model"),
        ({"thinking_level": "huge"}, "thinking_level"),
        ({"tools": "look"}, "tools"),
        ({"tools": [look]}, "tools"),
        ({"system": 3}, "system"),
        ({"system": [3]}, "system"),
        ({"attachments": "text"}, "attachments"),
        ({"attachments": ["text"]}, "attachments"),
        ({"context": [{"type": "text", "text": "x"}]}, "context"),
        ({"context": [ToolCallBlock(id="c", name="n", arguments={})]}, "context"),
        ({"max_tool_rounds": -1}, "max_tool_rounds"),
        ({"max_tool_rounds": True}, "max_tool_rounds"),
        ({"max_tool_rounds": 10_001}, "max_tool_rounds"),
        ({"max_tool_rounds": "3"}, "max_tool_rounds"),
        ({"compaction": True}, "compaction"),
        ({"compaction": {}}, "compaction"),
        ({"compaction": CompactionOptions(threshold_entries=0)}, "threshold_entries"),
        ({"compaction": CompactionOptions(on_overflow="yes")}, "on_overflow"),
        ({"retry": True}, "retry"),
        ({"retry": RetryOptions(max_attempts=0)}, "max_attempts"),
        ({"retry": RetryOptions(policy=object())}, "policy"),  # type: ignore[arg-type]
        ({"redactor": ["secret"]}, "redactor"),
        ({"limits": {"max_requests": 1}}, "limits"),
        ({"limits": UsageLimits(max_requests=0)}, "max_requests"),
        ({"limits": UsageLimits(max_cost=-1)}, "max_cost"),
        ({"approvals": "maybe"}, "approvals"),
        ({"approvals": []}, "approvals"),
        ({"options": {"timeout_ms": 3}}, "options"),
        ({"metadata": [1]}, "metadata"),
    ],
    ids=range(30),
)
async def test_a_wrong_option_is_refused_by_name_and_nothing_happens(
    stage: Stage, wrong: dict[str, Any], named: str
) -> None:
    session = stage.session(END)
    with pytest.raises(UsageError, match=named):
        await session.run("Hi", **wrong)
    with pytest.raises(UsageError, match=named):
        await session.continue_(**wrong)
    with pytest.raises(UsageError, match=named):
        await session.follow_up("Hi", **wrong)
    with pytest.raises(UsageError, match=named):
        async with session.stream("Hi", **wrong):
            pass
    assert stage.events(session) == []
    assert await session.entries() == []
    assert (await session.run("Hi")).text == "end"


async def test_none_leaves_an_option_as_the_agent_has_it(stage: Stage) -> None:
    session = stage.session(END)
    names = [
        "model", "thinking_level", "tools", "system", "attachments", "context", "max_tool_rounds",
        "compaction", "retry", "redactor", "limits", "approvals", "options", "metadata",
    ]  # fmt: skip
    result = await session.run("Hi", **dict.fromkeys(names))
    assert result.status == "completed"


async def test_a_tool_that_is_unknown_in_a_filter_is_refused_before_anything_happens(
    stage: Stage,
) -> None:
    session = stage.session(END, tools=[look])
    with pytest.raises(UsageError, match="nosuch"):
        await session.run("Hi", tools=["nosuch"])
    assert stage.events(session) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tool_rounds": -1},
        {"max_parallel_tools": 0},
        {"tool_cancel_grace_ms": 0},
        {"thinking_level": "huge"},
        {"retry": RetryOptions(base_delay_ms=-1)},
        {"compaction": CompactionOptions(threshold_entries=-3)},
        {"limits": UsageLimits(max_tool_calls=0)},
    ],
    ids=range(7),
)
def test_an_agent_refuses_wrong_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Stage().agent(END, **wrong)


@pytest.mark.parametrize("wrong", ["", 3, b"s1"])
def test_a_session_id_is_a_string(wrong: Any) -> None:
    with pytest.raises(UsageError, match="session id"):
        Stage().agent(END).session(wrong)


# Builders, providers of context, policies, ids


class Fails:
    """Fails wherever it is asked."""

    name = "fails"

    async def build(self, request: InputRequest) -> Any:
        raise LookupError("broke")

    async def provide(self, request: ContextRequest) -> Any:
        raise LookupError("broke")

    def apply(self, request: ProviderRequest, context: PolicyContext) -> Any:
        raise LookupError("broke")


class FailingPrompt:
    def build(self, prompt: PromptInput) -> Any:
        raise LookupError("broke")


async def test_a_failing_input_builder_refuses_the_input(stage: Stage) -> None:
    session = stage.session(END, input_builder=Fails())
    with pytest.raises(LookupError, match="broke"):
        await session.run("Hi")
    assert stage.events(session) == []
    assert await session.entries() == []
    assert (await session.state()).status == "idle"


@pytest.mark.parametrize("given", [None, [], "text", [TextBlock(text="x")], [None]], ids=range(5))
async def test_an_input_builder_must_give_messages(stage: Stage, given: Any) -> None:
    class Builder:
        async def build(self, request: InputRequest) -> Any:
            return given

    session = stage.session(END, input_builder=Builder())
    with pytest.raises(UsageError):
        await session.run("Hi")
    assert await session.entries() == []


@pytest.mark.parametrize(
    "options",
    [{"context": [Fails()]}, {"prompt_builder": FailingPrompt()}, {"request_policies": [Fails()]}],
    ids=["context", "prompt", "policy"],
)
async def test_what_fails_within_a_run_fails_the_run_as_it_came(
    stage: Stage, options: dict[str, Any]
) -> None:
    session = stage.session(END, **options)
    with pytest.raises(LookupError, match="broke"):
        await session.run("Hi")
    assert types(stage.events(session))[-3:] == ["error", "agent_finished", "session_settled"] or (
        types(stage.events(session))[-4:]
        == ["error", "turn_finished", "agent_finished", "session_settled"]
    )
    (ended,) = of(AgentFinished, stage.events(session))
    assert ended.status == "failed"
    assert ended.error is not None
    assert ended.error.name == "LookupError"
    assert said(await session.entries()) == ["user: Hi"]
    assert (await session.state()).status == "idle"


async def test_a_prompt_builder_or_a_policy_that_gives_something_else_fails_the_run(
    stage: Stage,
) -> None:
    class Prompt:
        def build(self, prompt: PromptInput) -> Any:
            return None

    class Policy:
        name = "policy"

        def __init__(self, given: Callable[[ProviderRequest], Any]) -> None:
            self._given = given

        def apply(self, request: ProviderRequest, context: PolicyContext) -> Any:
            return self._given(request)

    def add(request: ProviderRequest) -> ProviderRequest:
        return ProviderRequest(
            model=request.model,
            messages=request.messages,
            tools=[ToolSpec(name="rm", description="", parameters={})],
        )

    def lose(request: ProviderRequest) -> None:
        return None

    wrong: list[dict[str, Any]] = [
        {"prompt_builder": Prompt()},
        {"request_policies": [Policy(lose)]},
        {"request_policies": [Policy(add)]},
    ]
    for number, options in enumerate(wrong):
        session = stage.session(END, id=f"s{number}", **options)
        with pytest.raises(UsageError):
            await session.run("Hi")
        assert provider_of(session).requests == []


async def test_request_policies_run_in_order_before_the_middleware(stage: Stage) -> None:
    class Policy:
        def __init__(self, name: str) -> None:
            self.name = name

        def apply(self, request: ProviderRequest, context: PolicyContext) -> ProviderRequest:
            order.append((self.name, context.session_id, context.use_case))
            return request

    order: list[Any] = []
    hooks = MiddlewareRegistry()
    hooks.use("provider_request", lambda payload: order.append("hook"))
    session = stage.session(END, request_policies=[Policy("a"), Policy("b")], middleware=hooks)
    await session.run("Hi")
    assert order == [("a", "s1", "chat"), ("b", "s1", "chat"), "hook"]


async def test_an_id_maker_that_fails_fails_the_run_and_its_events_still_end(
    stage: Stage,
) -> None:
    calls = 0

    def make(prefix: str) -> str:
        nonlocal calls
        calls += 1
        if broken and prefix == "entry" and calls > 3:
            raise LookupError("no ids left")
        return f"{prefix}_{calls}"

    broken = True
    stage.may_stay_open("s1")
    session = stage.session([*asks()[:1], END, END], tools=[look], id_maker=make)
    with pytest.raises(LookupError, match="no ids left"):
        await session.run("Hi")
    assert types(stage.events(session))[-2:] == ["agent_finished", "session_settled"]
    broken = False
    assert (await session.run("And?")).status == "completed"


async def test_an_id_maker_that_fails_for_the_run_refuses_it(stage: Stage) -> None:
    def make(prefix: str) -> str:
        raise LookupError("no ids")

    session = stage.session(END, id_maker=make)
    with pytest.raises(LookupError):
        await session.run("Hi")
    assert stage.events(session) == []
    assert (await session.state()).status == "idle"


async def test_call_ids_that_are_always_taken_fail_the_run(stage: Stage) -> None:
    def make(prefix: str) -> str:
        return "call_1" if prefix == "call" else stage.ids(prefix)

    session = stage.session(
        [[tool_call(id="", name="look"), tool_call(id="", name="look"), done()], END],
        tools=[look],
        id_maker=make,
    )
    with pytest.raises(Exception, match="taken"):
        await session.run("Hi")


async def test_context_is_asked_for_once_a_run(stage: Stage) -> None:
    class Context:
        name = "time"
        asked = 0

        async def provide(self, request: ContextRequest) -> Sequence[ContentBlock]:
            self.asked += 1
            return [TextBlock(text=f"time {self.asked}")]

    context = Context()
    session = stage.session(asks(), tools=[look], context=[context])
    await session.run("Hi")
    first, second = provider_of(session).requests
    assert "time 1" in sent(first)[0]
    assert sent(first)[0] == sent(second)[0]
    assert context.asked == 1


# Middleware


async def test_a_failing_middleware_is_told_and_the_run_goes_on(stage: Stage) -> None:
    hooks = MiddlewareRegistry()

    def fail(payload: Any) -> None:
        raise LookupError("broke")

    for hook in HOOKS:
        hooks.use(hook, fail, name=f"on {hook}")
    session = stage.session(asks(), tools=[look], middleware=hooks)
    assert (await session.run("Hi")).text == "end"
    told = [event.phase for event in of(ExtensionFailed, stage.events(session))]
    assert set(told) == {
        "session_start",
        "input_assembly",
        "context",
        "prompt_build",
        "provider_request",
        "tool_call",
        "tool_result",
    }
    assert types(stage.events(session))[0] == "agent_started"
    event = of(ExtensionFailed, stage.events(session))[0]
    assert (event.extension, event.error.name) == ("on session_start", "LookupError")
    await session.aclose()
    assert of(ExtensionFailed, stage.events(session))[-1].phase == "session_shutdown"


@pytest.mark.parametrize(
    "hook",
    [
        "session_start",
        "input_assembly",
        "context",
        "prompt_build",
        "provider_request",
        "tool_call",
        "tool_result",
    ],
)
async def test_a_guard_that_fails_fails_the_run_and_nothing_gets_by_it(
    stage: Stage, hook: str
) -> None:
    hooks = MiddlewareRegistry()

    def fail(payload: Any) -> None:
        raise LookupError("broke")

    hooks.use(hook, fail, policy="throw")
    session = stage.session(asks(n=42), tools=[look], middleware=hooks)
    with pytest.raises(MiddlewareError, match="broke"):
        await session.run("Hi")
    texts = " ".join(said(await session.entries()))
    if hook == "tool_result":
        assert "c1 interrupted" in texts
        assert "42" not in texts
    elif hook == "tool_call":
        assert of(ToolExecutionStarted, stage.events(session)) == []
    elif hook in {"session_start", "input_assembly"}:
        assert stage.events(session) == []
        assert texts == ""
    assert provider_of(session).requests == [] or hook.startswith("tool_")


async def test_a_result_that_no_guard_has_passed_is_not_stored_when_the_run_is_aborted(
    stage: Stage,
) -> None:
    hooks = MiddlewareRegistry()

    async def slowly(payload: ToolResultPayload) -> None:
        await anyio.sleep(1)

    hooks.use("tool_result", slowly)
    session = stage.session(asks(n=42), tools=[look], middleware=hooks)

    async def run() -> None:
        with pytest.raises(RunAborted):
            await session.run("Hi")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.5)
        session.abort()
    assert said(await session.entries())[-1] == "tool: c1 interrupted"


async def test_session_start_comes_once_and_shutdown_when_it_is_closed(stage: Stage) -> None:
    order: list[str] = []
    hooks = MiddlewareRegistry()

    def note(hook: str) -> Callable[[Any], None]:
        def handle(payload: Any) -> None:
            order.append(hook)

        return handle

    for hook in HOOKS:
        hooks.use(hook, note(hook))
    session = stage.session(END, middleware=hooks)
    await session.run("one")
    await session.run("two")
    await session.aclose()
    first = ["session_start", "input_assembly", "context", "prompt_build", "provider_request"]
    assert order == [*first, *first[1:], "session_shutdown"]
    unused = stage.session(END, id="unused", middleware=hooks)
    await unused.aclose()
    assert order[-1:] == ["session_shutdown"]
    assert len(order) == 10


async def test_a_guard_at_the_start_guards_the_next_run_too(stage: Stage) -> None:
    hooks = MiddlewareRegistry(policy="throw")

    def fail(payload: SessionPayload) -> None:
        raise LookupError("not yet")

    remove = hooks.use("session_start", fail)
    session = stage.session(END, middleware=hooks)
    for _ in range(2):
        with pytest.raises(MiddlewareError):
            await session.run("Hi")
    remove()
    await session.run("Hi")


async def test_payloads_are_copies(stage: Stage) -> None:
    hooks = MiddlewareRegistry()
    kept: list[Any] = []

    def spoil_call(payload: ToolCallPayload) -> None:
        payload.call.arguments["n"] = 99

    def spoil_input(payload: InputPayload) -> None:
        kept.append(payload.messages)
        payload.messages[0].content.append(TextBlock(text="spoiled"))

    def spoil_prompt(payload: PromptPayload) -> None:
        payload.messages[0].content.clear()

    hooks.use("tool_call", spoil_call)
    hooks.use("input_assembly", spoil_input)
    hooks.use("prompt_build", spoil_prompt)
    session = stage.session(asks(n=1), tools=[look], middleware=hooks)
    await session.run("Hi")
    assert said(await session.entries()) == [
        "user: Hi",
        "assistant: [c1]",
        "tool: c1 1",
        "assistant: end",
    ]
    assert sent(provider_of(session).requests[0]) == ["user: Hi"]


async def test_middleware_may_change_arguments_but_not_the_call(stage: Stage) -> None:
    hooks = MiddlewareRegistry()

    def change(payload: ToolCallPayload) -> ToolCallPayload:
        return ToolCallPayload(
            session_id=payload.session_id,
            run_id=payload.run_id,
            call=ToolCallBlock(id="other", name="other", arguments={"n": 7}),
        )

    hooks.use("tool_call", change)
    session = stage.session(asks(n=1), tools=[look, other], middleware=hooks)
    await session.run("Hi")
    assert said(await session.entries())[1:3] == ["assistant: [c1]", "tool: c1 7"]
    (started,) = of(ToolExecutionStarted, stage.events(session))
    assert started.call == ToolCallBlock(id="c1", name="look", arguments={"n": 7})


async def test_changed_arguments_are_checked_again(stage: Stage) -> None:
    class Policy:
        async def decide(self, request: PermissionRequest) -> PermissionDecision:
            assert request.call is not None
            seen.append(request.call.arguments)
            verdict: Any = "deny" if request.call.arguments == {"n": 13} else "allow"
            return PermissionDecision(verdict=verdict)

    for number, (given, reason) in enumerate(
        (({"n": "x"}, "invalid_arguments"), ({"n": 13}, "permission_denied"))
    ):
        seen: list[Any] = []
        hooks = MiddlewareRegistry()

        def change(payload: ToolCallPayload, given: dict[str, Any] = given) -> ToolCallPayload:
            return ToolCallPayload(
                session_id=payload.session_id,
                run_id=payload.run_id,
                call=ToolCallBlock(id="c1", name="look", arguments=given),
            )

        hooks.use("tool_call", change)
        session = stage.session(
            asks(n=1), id=f"s{number}", tools=[look], middleware=hooks, permissions=Policy()
        )
        await session.run("Hi")
        (blocked,) = of(ToolExecutionBlocked, stage.events(session))
        assert blocked.reason == reason
        assert seen[0] == {"n": 1}


async def test_middleware_may_block_a_call(stage: Stage) -> None:
    hooks = MiddlewareRegistry()
    hooks.use(
        "tool_call",
        lambda payload: ToolCallPayload(
            session_id=payload.session_id,
            run_id=payload.run_id,
            call=payload.call,
            blocked_reason="not today",
        ),
    )
    session = stage.session(asks(), tools=[look], middleware=hooks)
    await session.run("Hi")
    (blocked,) = of(ToolExecutionBlocked, stage.events(session))
    assert (blocked.reason, blocked.error.message) == ("validation_failed", "not today")


async def test_middleware_may_change_a_result_but_not_whose_it_is(stage: Stage) -> None:
    hooks = MiddlewareRegistry()

    def change(payload: ToolResultPayload) -> ToolResultPayload:
        return ToolResultPayload(
            session_id=payload.session_id,
            run_id=payload.run_id,
            call=payload.call,
            result=ToolResult(
                tool_call_id="other", name="other", value="changed", metadata={"k": 1}
            ),
        )

    hooks.use("tool_result", change)
    session = stage.session(asks(), tools=[look], middleware=hooks)
    await session.run("Hi")
    block = results(await session.entries())["c1"]
    assert (block.name, block.result) == ("look", "changed")


@pytest.mark.parametrize("value", [float("nan"), object(), {"x": float("inf")}], ids=range(3))
async def test_a_changed_result_that_is_no_json_is_an_error_result(
    stage: Stage, value: Any
) -> None:
    hooks = MiddlewareRegistry()
    hooks.use(
        "tool_result",
        lambda payload: ToolResultPayload(
            session_id=payload.session_id,
            run_id=payload.run_id,
            call=payload.call,
            result=ToolResult(tool_call_id="c1", name="look", value=value),
        ),
    )
    session = stage.session(asks(), tools=[look], middleware=hooks)
    assert (await session.run("Hi")).text == "end"
    block = results(await session.entries())["c1"]
    assert block.error is not None
    assert block.error.code == "invalid_result"


async def test_middleware_may_take_tools_away_and_never_add_one(stage: Stage) -> None:
    def change(tools: Sequence[ToolSpec]) -> Any:
        def handle(payload: ProviderRequestPayload) -> ProviderRequestPayload:
            request = payload.request
            return ProviderRequestPayload(
                session_id=payload.session_id,
                run_id=payload.run_id,
                turn=payload.turn,
                request=ProviderRequest(
                    model=request.model, messages=request.messages, tools=tools
                ),
            )

        return handle

    hooks = MiddlewareRegistry()
    remove = hooks.use("provider_request", change([]))
    session = stage.session(END, tools=[look], middleware=hooks)
    await session.run("Hi")
    assert provider_of(session).requests[0].tools == []
    remove()
    hooks.use("provider_request", change([ToolSpec(name="rm", description="", parameters={})]))
    with pytest.raises(MiddlewareError, match="rm"):
        await session.run("Hi")


def _garbage(hook: str, payload: Any) -> Any:
    """A payload of the right class whose field is not what it has to be."""
    field, value = {
        "input_assembly": ("messages", ["text"]),
        "context": ("blocks", "text"),
        "prompt_build": ("system", "text"),
        "provider_request": ("request", None),
        "tool_call": ("call", {"id": "c1"}),
        "tool_result": ("result", "text"),
    }[hook]
    return structs.replace(payload, **{field: value})


@pytest.mark.parametrize(
    "hook",
    ["input_assembly", "context", "prompt_build", "provider_request", "tool_call", "tool_result"],
)
async def test_middleware_that_gives_something_else_fails_the_run(stage: Stage, hook: str) -> None:
    hooks = MiddlewareRegistry()
    hooks.use(hook, partial(_garbage, hook))
    session = stage.session(asks(), tools=[look], middleware=hooks)
    with pytest.raises(MiddlewareError, match=hook):
        await session.run("Hi")
    assert (await session.state()).status == "idle"


async def test_middleware_that_empties_the_input_refuses_it(stage: Stage) -> None:
    hooks = MiddlewareRegistry()
    hooks.use("input_assembly", lambda p: InputPayload(session_id="", run_id="", messages=[]))
    session = stage.session(END, middleware=hooks)
    with pytest.raises(UsageError, match="no message"):
        await session.run("Hi")
    assert stage.events(session) == []


async def test_a_middleware_that_aborts_the_run_is_heard(stage: Stage) -> None:
    hooks = MiddlewareRegistry()
    holder: list[Session] = []
    hooks.use("tool_call", lambda payload: holder[0].abort("by a hook") and None)
    session = stage.session(asks(), tools=[look], middleware=hooks)
    holder.append(session)
    with pytest.raises(RunAborted, match="by a hook"):
        await session.run("Hi")
    assert of(ToolExecutionStarted, stage.events(session)) == []


async def test_the_prompt_builders_layout_is_what_is_sent(stage: Stage) -> None:
    class Prompt(DefaultPromptBuilder):
        def build(self, prompt: PromptInput) -> BuiltPrompt:
            built = super().build(prompt)
            first = Message(role="user", content=[TextBlock(text="first")])
            return BuiltPrompt(system=["sys"], messages=[first, *built.messages])

    session = stage.session([text_delta("a"), delay(1), done()], prompt_builder=Prompt())
    await session.run("Hi")
    (request,) = provider_of(session).requests
    assert (list(request.system), sent(request)) == (["sys"], ["user: first", "user: Hi"])
