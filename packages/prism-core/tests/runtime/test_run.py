"""The session's API and one run, sentence by sentence of `runtime.md`."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from prism.core import (
    AgentEvent,
    AgentFinished,
    ErrorInfo,
    Message,
    MessageEntry,
    MessageFinished,
    ModelChanged,
    ModelChangeEntry,
    ModelConfig,
    NothingToContinue,
    ProviderError,
    RegistryError,
    RunAborted,
    SessionBusy,
    TextBlock,
    ToolExecutionBlocked,
    TurnFinished,
    Usage,
    UsageError,
    UsageLimits,
    UsageReported,
    Warned,
    tool,
)
from prism.core.providers import (
    MockProvider,
    ProviderRegistry,
    delay,
    done,
    error,
    text_delta,
    thinking_delta,
    tool_call,
    tool_call_delta,
    usage,
)

from .harness import MODEL, Stage, now, of, provider_of, read, results, said, sent, types


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def wait(ms: int) -> str:
    """Wait."""
    await anyio.sleep(ms / 1000)
    return "waited"


def one(key: str = "c1", **arguments: Any) -> Any:
    return tool_call(id=key, name="add", arguments=arguments or {"a": 1, "b": 2})


# The session's API


async def test_a_run_emits_its_events_in_order(stage: Stage) -> None:
    session = stage.session(
        [[text_delta("Let me "), text_delta("add."), one(), done()], [text_delta("3"), done()]],
        tools=[add],
    )
    result = await session.run("1 + 2?")
    assert (result.status, result.text, result.stop_reason) == ("completed", "3", "stop")
    assert said(await session.entries()) == [
        "user: 1 + 2?",
        "assistant: Let me add. [c1]",
        "tool: c1 3",
        "assistant: 3",
    ]
    assert types(stage.events(session)) == [
        "agent_started",
        "turn_started",
        "message_started",
        "message_delta",
        "message_delta",
        "message_delta",
        "message_finished",
        "tool_execution_started",
        "tool_execution_finished",
        "turn_finished",
        "turn_started",
        "message_started",
        "message_delta",
        "message_finished",
        "turn_finished",
        "agent_finished",
        "session_settled",
    ]


async def test_the_results_of_a_turn_are_stored_before_the_turn_ends(stage: Stage) -> None:
    session = stage.session([[one(), done()], [text_delta("3"), done()]], tools=[add])
    async with session.stream("Go") as events:
        stored_at = [
            len(stage.store.entries_of["s1"])
            async for event in events
            if isinstance(event, TurnFinished)
        ]
    assert stored_at[0] >= 3


async def test_the_result_names_the_run_its_entries_and_the_leaf(stage: Stage) -> None:
    session = stage.session([text_delta("Hello"), done(usage=Usage(output_tokens=2))])
    result = await session.run("Hi")
    entries = await session.entries()
    assert result.session_id == "s1"
    assert list(result.entry_ids) == [entry.id for entry in entries]
    assert result.leaf_id == entries[-1].id == session.leaf_id
    assert {entry.run_id for entry in entries} == {result.run_id}
    assert result.message is not None
    assert result.message.text == "Hello"
    assert result.usage == Usage(output_tokens=2)
    assert entries[0].timestamp.endswith("Z")


async def test_a_stream_is_the_same_run_and_holds_its_result(stage: Stage) -> None:
    session = stage.session([text_delta("Hello"), done()])
    async with session.stream("Hi") as events:
        seen = [event async for event in events]
        assert events.result is not None
        assert events.result.text == "Hello"
        assert events.run_id == events.result.run_id
    assert seen == stage.events(session)


async def test_a_stream_raises_what_run_would_raise(stage: Stage) -> None:
    session = stage.session([error("no", code="auth")])
    seen: list[AgentEvent] = []
    with pytest.raises(ProviderError) as caught:
        await read(session, seen)
    assert caught.value.code == "auth"
    assert seen == stage.events(session)
    assert types(seen)[-1] == "session_settled"


async def test_a_refused_run_emits_nothing(stage: Stage) -> None:
    registry = ProviderRegistry()
    session = stage.session(registry)
    with pytest.raises(RegistryError):
        await session.run("Hi")
    for empty in ("", "  \n", [], None, [TextBlock(text=" ")]):
        other = stage.session([text_delta("x"), done()], id="s2")
        with pytest.raises(UsageError):
            await other.run(empty)
        assert stage.events(other) == []
        assert await other.entries() == []
    assert stage.events(session) == []
    assert (await session.state()).status == "idle"


async def test_a_second_run_is_refused_at_once(stage: Stage) -> None:
    session = stage.session([text_delta("a"), delay(50), done()])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "one")
        await anyio.sleep(0.01)
        with pytest.raises(SessionBusy):
            await session.run("two")
        with pytest.raises(SessionBusy):
            async with session.stream("two"):
                pass
        with pytest.raises(SessionBusy):
            await session.continue_()
        with pytest.raises(SessionBusy):
            await session.reload()
        with pytest.raises(SessionBusy):
            await session.checkout(None)
        assert (await session.state()).status == "running"
    assert said(await session.entries()) == ["user: one", "assistant: a"]


async def test_two_runs_started_in_one_step_are_one_run_and_one_refusal(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()])
    outcomes: list[str] = []

    async def run() -> None:
        try:
            outcomes.append((await session.run("Hi")).status)
        except SessionBusy:
            outcomes.append("busy")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(run)
    assert sorted(outcomes) == ["busy", "completed"]


async def test_sessions_of_one_agent_run_side_by_side(stage: Stage) -> None:
    agent = stage.agent([text_delta("a"), delay(100), done()])
    sessions = [stage.watch(agent.session(f"s{number}")) for number in range(20)]
    start = now()
    async with anyio.create_task_group() as group:
        for session in sessions:
            group.start_soon(session.run, "Hi")
    assert now() - start == pytest.approx(0.1)
    for session in sessions:
        assert said(await session.entries()) == ["user: Hi", "assistant: a"]


async def test_wait_settled_is_true_at_once_when_nothing_runs_and_for_late_waiters(
    stage: Stage,
) -> None:
    session = stage.session([text_delta("a"), delay(50), done()])
    await session.wait_settled()
    waited: list[float] = []

    async def waiter() -> None:
        await session.wait_settled()
        waited.append(now())

    start = now()
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Hi")
        await anyio.sleep(0.01)
        group.start_soon(waiter)
        group.start_soon(waiter)
    await session.wait_settled()
    assert waited == [pytest.approx(start + 0.05)] * 2


async def test_the_state_is_true_when_session_settled_is_heard(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done(usage=Usage(output_tokens=1))])
    statuses: list[str] = []
    async with session.subscribe() as events, anyio.create_task_group() as group:

        async def read() -> None:
            async for event in events:
                if types([event]) == ["session_settled"]:
                    statuses.append((await session.state()).status)
                    return

        group.start_soon(read)
        await session.run("Hi")
    assert statuses == ["idle"]
    state = await session.state()
    assert (state.session_id, state.run_id, state.usage) == ("s1", None, Usage(output_tokens=1))


# 1 and 2: input and model


async def test_a_first_run_with_the_agents_own_model_writes_no_model_change(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()])
    await session.run("Hi")
    assert of(ModelChangeEntry, await session.entries()) == []


async def test_another_model_is_stored_before_the_input_and_holds_for_later_runs(
    stage: Stage,
) -> None:
    other = ModelConfig(provider="mock", model="big")
    session = stage.session([text_delta("a"), done()])
    await session.run("one", model=other, thinking_level="high")
    await session.run("two")
    change, message, *_ = await session.entries()
    assert isinstance(change, ModelChangeEntry)
    assert (change.model, change.previous_model, change.thinking_level) == (other, MODEL, "high")
    assert isinstance(message, MessageEntry)
    assert len(of(ModelChangeEntry, await session.entries())) == 1
    assert [request.model for request in provider_of(session).requests] == [other, other]
    (event,) = of(ModelChanged, stage.events(session))
    assert (event.model, event.previous_model, event.thinking_level) == (other, MODEL, "high")
    state = await session.state()
    assert (state.model, state.thinking_level) == (other, "high")

    reopened = stage.session([text_delta("a"), done()])
    await reopened.run("three")
    assert provider_of(reopened).requests[0].model == other
    await reopened.run("four", model=MODEL)
    assert (await reopened.state()).model == MODEL


async def test_a_thinking_level_alone_changes_no_model(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()])
    await session.run("one", thinking_level="low")
    await session.run("two", thinking_level="low")
    (change,) = of(ModelChangeEntry, await session.entries())
    assert (change.model, change.previous_model, change.thinking_level) == (None, None, "low")


async def test_none_is_read_as_off_and_an_unknown_level_is_refused(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()], thinking_level="none")
    assert (await session.state()).thinking_level == "off"
    await session.run("one", thinking_level="none")
    assert of(ModelChangeEntry, await session.entries()) == []
    for wrong in ("huge", "", 3, ["low"]):
        with pytest.raises(UsageError, match="thinking_level"):
            await session.run("two", thinking_level=wrong)
        with pytest.raises(UsageError, match="thinking_level"):
            stage.agent(thinking_level=wrong)


async def test_the_branchs_model_decides_who_is_asked_also_when_it_is_read_first(
    stage: Stage,
) -> None:
    first, second = MockProvider(id="a"), MockProvider(id="b")
    both = ProviderRegistry([first, second])
    session = stage.session(both, model=ModelConfig(provider="a", model="m"))
    await session.run("one", model=ModelConfig(provider="b", model="n"))
    # An agent whose own provider is gone can still go on with the branch's.
    again = stage.session(ProviderRegistry([second]), model=ModelConfig(provider="a", model="m"))
    await again.run("two")
    assert len(second.requests) == 2
    with pytest.raises(RegistryError):
        await again.run("three", model=ModelConfig(provider="a", model="m"))


async def test_input_may_be_text_blocks_a_message_or_several(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()])
    await session.run([TextBlock(text="x"), TextBlock(text="y")])
    await session.run(Message(role="user", content=[TextBlock(text="z")]))
    await session.run("t", attachments=[TextBlock(text="doc")])
    users = [line for line in said(await session.entries()) if line.startswith("user")]
    assert users == ["user: x y", "user: z", "user: t doc"]


async def test_context_is_seen_in_the_run_and_not_stored(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()])
    await session.run("Hi", context=[TextBlock(text="It is noon.")], system="Be brief.")
    (request,) = provider_of(session).requests
    assert "It is noon." in sent(request)[0]
    assert list(request.system) == ["Be brief."]
    assert said(await session.entries()) == ["user: Hi", "assistant: a"]


# 4: the turn


async def test_a_turn_without_content_has_no_message(stage: Stage) -> None:
    session = stage.session([done(usage=Usage(input_tokens=4))])
    result = await session.run("Hi")
    assert (result.status, result.text, result.message) == ("completed", "", None)
    assert result.stop_reason == "stop"
    assert said(await session.entries()) == ["user: Hi"]
    assert types(stage.events(session)) == [
        "agent_started",
        "turn_started",
        "usage",
        "turn_finished",
        "agent_finished",
        "session_settled",
    ]


async def test_a_failure_after_output_stores_the_partial_message(stage: Stage) -> None:
    session = stage.session(
        [
            [
                text_delta("I th"),
                tool_call_delta(index=4, id="c1", name="add", arguments_text='{"a'),
                error("broken", code="server_error"),
            ],
            [text_delta("again"), done()],
        ]
    )
    with pytest.raises(ProviderError) as caught:
        await session.run("Hi")
    assert caught.value.code == "server_error"
    (finished,) = of(MessageFinished, stage.events(session))
    assert finished.partial is True
    assert finished.message.stop_reason == "error"
    assert said(await session.entries()) == ["user: Hi", "assistant: I th"]
    (ended,) = of(AgentFinished, stage.events(session))
    assert ended.status == "failed"
    assert ended.error is not None
    assert ended.error.code == "server_error"
    await session.run("And?")
    assert sent(provider_of(session).requests[1]) == ["user: Hi", "assistant: I th", "user: And?"]


async def test_complete_calls_of_a_failed_turn_get_a_result_each(stage: Stage) -> None:
    session = stage.session([one("c1"), one("c2"), error("broken", code="auth")], tools=[add])
    with pytest.raises(ProviderError):
        await session.run("Hi")
    found = results(await session.entries())
    assert [block.error.code for block in found.values() if block.error] == ["interrupted"] * 2
    assert of(ToolExecutionBlocked, stage.events(session))[0].reason == "skipped"


async def test_a_stream_that_does_not_end_is_truncated(stage: Stage) -> None:
    session = stage.session([text_delta("I")], retry=False)
    with pytest.raises(ProviderError) as caught:
        await session.run("Hi")
    assert caught.value.code == "stream_truncated"


async def test_a_providers_programming_error_fails_the_run_with_its_name(stage: Stage) -> None:
    session = stage.session([text_delta("I"), KeyError("nope")])
    with pytest.raises(ProviderError, match="nope"):
        await session.run("Hi")
    result = of(AgentFinished, stage.events(session))[0]
    assert result.error is not None
    assert result.error.name == "KeyError"


async def test_an_exception_group_of_a_provider_is_told_by_what_is_in_it(stage: Stage) -> None:
    class Grouping:
        id = "mock"

        async def generate(self, request: Any) -> Any:
            async with anyio.create_task_group():
                raise ValueError("inside")
            yield done()

    session = stage.session(Grouping())
    with pytest.raises(ProviderError, match="inside"):
        await session.run("Hi")


@pytest.mark.parametrize("reason", ["refusal", "length", "context_limit"])
async def test_other_stop_reasons_complete_the_run(stage: Stage, reason: str) -> None:
    session = stage.session([text_delta("I"), done(stop_reason=reason)])
    result = await session.run("Hi")
    assert (result.status, result.stop_reason) == ("completed", reason)


async def test_a_pause_sends_the_message_back_as_it_is_and_counts_as_a_round(stage: Stage) -> None:
    paused = [text_delta("part"), done(stop_reason="pause")]
    session = stage.session([paused, paused, [text_delta("end"), done()]])
    result = await session.run("Hi", max_tool_rounds=2)
    assert (result.status, result.text) == ("completed", "end")
    requests = provider_of(session).requests
    assert sent(requests[2]) == ["user: Hi", "assistant: part", "assistant: part"]

    session = stage.session([paused, paused, [text_delta("end"), done()]], id="s2")
    result = await session.run("Hi", max_tool_rounds=1)
    assert (result.status, result.stop_reason) == ("max_tool_rounds", "pause")
    result = await session.continue_()
    assert result.text == "end"


async def test_steering_does_not_come_between_a_pause_and_what_follows_it(stage: Stage) -> None:
    session = stage.session(
        [
            [text_delta("part"), delay(100), done(stop_reason="pause")],
            [text_delta("rest"), done()],
            [text_delta("end"), done()],
        ]
    )
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Hi")
        await anyio.sleep(0.05)
        session.steer("But")
    assert said(await session.entries()) == [
        "user: Hi",
        "assistant: part",
        "assistant: rest",
        "user: But",
        "assistant: end",
    ]


# 7: rounds


@pytest.mark.parametrize("rounds", [0, 1, 3])
async def test_n_rounds_are_executed_and_the_calls_of_the_next_answer_are_refused(
    stage: Stage, rounds: int
) -> None:
    def script(request: Any) -> list[Any]:
        return [
            tool_call(id=f"c{len(request.messages)}", name="add", arguments={"a": 1, "b": 1}),
            done(),
        ]

    session = stage.session(script, tools=[add])
    result = await session.run("Go", max_tool_rounds=rounds)
    assert result.status == "max_tool_rounds"
    found = list(results(await session.entries()).values())
    assert len(found) == rounds + 1
    assert [block.error is None for block in found] == [True] * rounds + [False]
    assert found[-1].error is not None
    assert found[-1].error.code == "max_tool_rounds"
    assert len(provider_of(session).requests) == rounds + 1
    (blocked,) = of(ToolExecutionBlocked, stage.events(session))
    assert blocked.reason == "max_tool_rounds"


async def test_the_default_is_32_rounds(stage: Stage) -> None:
    def script(request: Any) -> list[Any]:
        return [
            tool_call(id=f"c{len(request.messages)}", name="add", arguments={"a": 1, "b": 1}),
            done(),
        ]

    session = stage.session(script, tools=[add])
    result = await session.run("Go")
    assert result.status == "max_tool_rounds"
    assert len(provider_of(session).requests) == 33


# Usage and limits


async def test_usage_is_summed_over_turns_and_attempts(stage: Stage) -> None:
    session = stage.session(
        [
            [usage(Usage(input_tokens=1)), error("busy", code="overloaded")],
            [
                usage(Usage(input_tokens=5)),
                one(),
                done(usage=Usage(input_tokens=10, output_tokens=2)),
            ],
            [text_delta("3"), done(usage=Usage(input_tokens=20, output_tokens=3, cost=0.5))],
        ],
        tools=[add],
    )
    result = await session.run("Hi")
    assert result.usage == Usage(input_tokens=31, output_tokens=5, cost=0.5)
    events = stage.events(session)
    assert [event.usage for event in of(TurnFinished, events)] == [
        Usage(input_tokens=11, output_tokens=2),
        Usage(input_tokens=20, output_tokens=3, cost=0.5),
    ]
    assert {event.source for event in of(UsageReported, events)} == {"turn"}
    assert of(AgentFinished, events)[0].usage == result.usage
    assert (await session.state()).usage == result.usage
    messages = [entry.message for entry in of(MessageEntry, await session.entries())]
    assert messages[1].usage == Usage(input_tokens=10, output_tokens=2)


async def test_usage_of_a_turn_that_fails_is_kept(stage: Stage) -> None:
    session = stage.session(
        [text_delta("a"), usage(Usage(output_tokens=7)), error("no", code="auth")]
    )
    with pytest.raises(ProviderError):
        await session.run("Hi")
    assert of(AgentFinished, stage.events(session))[0].usage == Usage(output_tokens=7)


@pytest.mark.parametrize(
    ("limits", "requests"),
    [
        (UsageLimits(max_requests=2), 2),
        (UsageLimits(max_tool_calls=1), 1),
        (UsageLimits(max_input_tokens=15), 2),
        (UsageLimits(max_output_tokens=4), 2),
        (UsageLimits(max_total_tokens=12), 1),
        (UsageLimits(max_cost=0.3), 2),
    ],
)
async def test_a_limit_ends_a_run_that_would_go_on(
    stage: Stage, limits: UsageLimits, requests: int
) -> None:
    def script(request: Any) -> list[Any]:
        call = tool_call(id=f"c{len(request.messages)}", name="add", arguments={"a": 1, "b": 1})
        return [call, done(usage=Usage(input_tokens=10, output_tokens=2, cost=0.2))]

    session = stage.session(script, tools=[add])
    result = await session.run("Go", limits=limits)
    assert result.status == "limit_reached"
    assert len(provider_of(session).requests) == requests
    assert [event.code for event in of(Warned, stage.events(session))] == ["limit_reached"]


async def test_a_limit_does_not_change_how_a_finished_answer_is_called(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()], limits=UsageLimits(max_requests=1))
    assert (await session.run("Hi")).status == "completed"


# Going on without input


async def test_continue_goes_on_from_an_answer_that_was_cut_short(stage: Stage) -> None:
    session = stage.session(
        [
            [text_delta("I th"), error("broken", code="server_error")],
            [text_delta("ink"), done()],
        ]
    )
    with pytest.raises(ProviderError):
        await session.run("Hi")
    result = await session.continue_()
    assert result.text == "ink"
    assert sent(provider_of(session).requests[1]) == ["user: Hi", "assistant: I th"]


async def test_nothing_to_continue_emits_nothing(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()])
    with pytest.raises(NothingToContinue):
        await session.continue_()
    assert stage.events(session) == []
    await session.run("Hi")
    before = len(stage.events(session))
    with pytest.raises(NothingToContinue) as caught:
        await session.continue_()
    assert caught.value.code == "nothing_to_continue"
    assert len(stage.events(session)) == before


async def test_continue_can_change_the_model(stage: Stage) -> None:
    other = ModelConfig(provider="mock", model="big")
    session = stage.session([[error("no", code="auth")], [text_delta("a"), done()]])
    with pytest.raises(ProviderError):
        await session.run("Hi")
    await session.continue_(model=other)
    assert provider_of(session).requests[1].model == other
    assert (await session.state()).model == other


# Close


async def test_a_closed_session_refuses_to_do_anything(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done()])
    await session.run("Hi")
    await session.aclose()
    await session.aclose()
    calls: list[Any] = [
        lambda: session.run("x"),
        lambda: session.continue_(),
        lambda: session.follow_up("x"),
        lambda: session.compact(),
        lambda: session.checkout(None),
        lambda: session.label("x"),
        lambda: session.append_custom({"type": "x"}),
        lambda: session.reload(),
        lambda: session.answer_approval("a", "allowed"),
    ]
    for call in calls:
        with pytest.raises(UsageError) as caught:
            await call()
        assert caught.value.code == "session_closed"
    with pytest.raises(UsageError, match="closed"):
        session.steer("x")
    assert session.abort() is False
    async with session.subscribe() as events:
        assert [event async for event in events] == []
    assert len(await session.entries()) == 2


async def test_closing_aborts_the_run_and_ends_the_subscriptions(stage: Stage) -> None:
    session = stage.session([text_delta("a"), delay(1_000), done()])
    heard: list[str] = []

    async def read() -> None:
        async with session.subscribe() as events:
            heard.extend(types([event async for event in events]))

    async def run() -> None:
        with pytest.raises(RunAborted, match="closed"):
            await session.run("Hi")

    async def close() -> None:
        await session.aclose()
        assert (await session.state()).status == "idle"

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await checkpoint()
        group.start_soon(run)
        await anyio.sleep(0.1)
        group.start_soon(close)
        group.start_soon(close)
    assert heard[-2:] == ["agent_finished", "session_settled"]


async def test_a_follow_up_that_waits_is_refused_when_the_session_closes(stage: Stage) -> None:
    @tool
    async def close() -> str:
        """Close the session that calls."""
        await session.aclose()
        return "never"

    session = stage.session([tool_call(id="c1", name="close"), done()], tools=[close])
    with pytest.raises(RunAborted):
        await session.run("Hi")
    found = results(await session.entries())["c1"]
    assert found.error is not None
    assert found.error.code == "aborted"
    await session.aclose()
    with pytest.raises(UsageError):
        await session.follow_up("x")


async def test_an_error_of_the_provider_keeps_what_the_vendor_said(stage: Stage) -> None:
    info = ErrorInfo(
        message="slow down", code="rate_limit", status=429, retry_after_ms=5.0, details={"x": 1}
    )
    session = stage.session([error(info)], retry=False)
    with pytest.raises(ProviderError) as caught:
        await session.run("Hi")
    assert (caught.value.code, caught.value.status) == ("rate_limit", 429)
    assert (caught.value.retry_after_ms, caught.value.details) == (5.0, {"x": 1})


async def test_thinking_is_stored_and_sent_again(stage: Stage) -> None:
    session = stage.session([thinking_delta("hm"), text_delta("a"), done()])
    await session.run("Hi")
    await session.run("And?")
    assert sent(provider_of(session).requests[1])[1] == "assistant: <ThinkingBlock> a"
