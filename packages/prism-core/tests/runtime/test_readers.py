"""Streams and subscriptions: what a reader gets, and what its pace does to a run."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from prism.core import (
    AgentEvent,
    MessageDelta,
    MessageFinished,
    ProviderError,
    RunAborted,
    SessionBusy,
    ToolCallDelta,
    ToolContext,
    ToolExecutionProgress,
    ToolExecutionStarted,
    tool,
)
from prism.core._runtime import HIGH_WATER
from prism.core.providers import (
    delay,
    done,
    error,
    text_delta,
    thinking_delta,
    tool_call,
    tool_call_delta,
)
from prism.core.testing import EventLaws

from .harness import Stage, now, of, read, running_tasks, said, types

END = [text_delta("end"), done()]


async def read_all(session: Any, into: list[AgentEvent], *, pause: int = 0) -> None:
    """Read a session's events until it is closed."""
    async with session.subscribe() as events:
        async for event in events:
            into.append(event)
            for _ in range(pause):
                await checkpoint()


def streamed(events: list[AgentEvent]) -> str:
    """The text of all deltas."""
    return "".join(getattr(event.content, "text", "") for event in of(MessageDelta, events))


async def test_a_reader_that_keeps_up_gets_every_delta(stage: Stage) -> None:
    count = 5_000
    session = stage.session([*(text_delta(f"{n} ") for n in range(count)), done()])
    seen: list[AgentEvent] = []
    async with anyio.create_task_group() as group:
        group.start_soon(read_all, session, seen)
        await checkpoint()
        await session.run("Hi")
        await session.aclose()
    assert len(of(MessageDelta, seen)) == count
    assert seen == stage.events(session)


async def test_a_slow_reader_never_slows_a_run_and_loses_no_text(stage: Stage) -> None:
    count = 20_000
    script: list[Any] = [
        *(thinking_delta(f"t{n} ") for n in range(count // 2)),
        *(text_delta(f"{n} ") for n in range(count)),
        tool_call_delta(index=9),
        *[tool_call_delta(index=9, id="c1", name="nosuch", arguments_text="x")] * count,
        done(),
    ]
    session = stage.session([script, END])
    seen: list[AgentEvent] = []
    async with session.subscribe() as events:
        await session.run("Hi")
        await session.aclose()
        seen = [event async for event in events]
    assert len(seen) < HIGH_WATER + 100
    laws = EventLaws()
    laws.feed_all(seen)
    everything = stage.events(session)
    assert of(MessageFinished, seen) == of(MessageFinished, everything)
    assert streamed(seen) == streamed(everything)
    assert "".join(event.arguments_text for event in of(ToolCallDelta, seen)) == "x" * count
    assert of(ToolCallDelta, seen)[-1].tool_call_id == "c1"
    others = [kind for kind in types(seen) if not kind.endswith("_delta")]
    assert others == [kind for kind in types(everything) if not kind.endswith("_delta")]


async def test_of_progress_only_the_newest_per_call_is_kept_for_a_slow_reader(
    stage: Stage,
) -> None:
    @tool
    async def work(n: int, context: ToolContext) -> None:
        """Report a lot."""
        for step in range(2_000):
            context.progress([n, step])
            if step % 100 == 0:
                await checkpoint()

    calls = [tool_call(id=f"c{n}", name="work", arguments={"n": n}) for n in range(2)]
    session = stage.session([[*calls, done()], END], tools=[work])
    async with session.subscribe() as events:
        await session.run("Hi")
        await session.aclose()
        seen = [event async for event in events]
    EventLaws().feed_all(seen)
    progress = of(ToolExecutionProgress, seen)
    assert len(progress) <= HIGH_WATER + 2
    for n in range(2):
        assert [event.progress for event in progress if event.progress[0] == n][-1] == [n, 1_999]


async def test_two_readers_do_not_share_their_pace(stage: Stage) -> None:
    session = stage.session([*(text_delta("x") for _ in range(3_000)), done()])
    fast: list[AgentEvent] = []
    slow: list[AgentEvent] = []
    async with anyio.create_task_group() as group:
        group.start_soon(read_all, session, fast)

        async def read_slowly() -> None:
            await read_all(session, slow, pause=20)

        group.start_soon(read_slowly)
        await checkpoint()
        await session.run("Hi")
        await session.aclose()
    assert len(of(MessageDelta, fast)) == 3_000
    assert len(of(MessageDelta, slow)) < 3_000
    assert streamed(slow) == "x" * 3_000


async def test_a_subscription_spans_runs_and_ends_with_its_context(stage: Stage) -> None:
    session = stage.session(END)
    await session.run("before")
    async with session.subscribe() as events:
        await session.run("one")
        await session.run("two")
        seen: list[AgentEvent] = []
        while types(seen).count("session_settled") != 2:
            seen.append(await anext(events))
    await session.run("after")
    assert types(seen).count("agent_started") == 2
    assert [event async for event in events] == []


async def test_closing_the_session_ends_a_reader_that_waits(stage: Stage) -> None:
    session = stage.session(END)
    seen: list[AgentEvent] = []
    async with anyio.create_task_group() as group:
        group.start_soon(read_all, session, seen)
        await checkpoint()
        await session.run("Hi")
        await session.aclose()
    assert types(seen)[-1] == "session_settled"


async def test_a_run_without_any_reader_completes() -> None:
    session = Stage().agent([*(text_delta("x") for _ in range(500)), done()]).session("s1")
    assert len((await session.run("Hi")).text) == 500


# Streams


async def test_leaving_a_stream_early_aborts_the_run_and_waits_for_its_bookkeeping(
    stage: Stage,
) -> None:
    session = stage.session([[text_delta("a"), delay(1_000), text_delta("b"), done()], END])
    before = running_tasks()
    async with session.stream("Hi") as events:
        async for event in events:
            if isinstance(event, MessageDelta):
                break
        with pytest.raises(SessionBusy):
            await session.run("too early")
    assert events.result is not None
    assert events.result.status == "aborted"
    assert said(await session.entries()) == ["user: Hi", "assistant: a"]
    assert running_tasks() == before
    assert (await session.run("And?")).text == "end"


async def test_a_body_that_raises_is_raised_as_it_is(stage: Stage) -> None:
    session = stage.session([text_delta("a"), delay(1_000), done()])

    def fail(event: AgentEvent) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match=r"^mine$"):
        await read(session, [], on_event=fail)
    assert types(stage.events(session))[-1] == "session_settled"
    assert (await session.state()).status == "idle"


async def test_a_body_that_raises_a_group_is_raised_as_it_is(stage: Stage) -> None:
    session = stage.session([text_delta("a"), delay(1_000), done()])
    group = ExceptionGroup("mine", [ValueError("x")])
    with pytest.raises(ExceptionGroup) as caught:
        async with session.stream("Hi"):
            raise group
    assert caught.value is group


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_a_body_may_end_the_program(stage: Stage, kind: type[BaseException]) -> None:
    session = stage.session([text_delta("a"), delay(1_000), done()])

    def end(event: AgentEvent) -> None:
        raise kind

    caught: BaseException | None = None
    try:
        await read(session, [], on_event=end)
    except BaseException as error:  # noqa: BLE001
        caught = error
    assert type(caught) is kind
    assert (await session.state()).status == "idle"


async def test_a_reader_slower_than_the_run_still_gets_it_all_and_the_outcome(
    stage: Stage,
) -> None:
    session = stage.session([text_delta("a"), error("no", code="auth")])
    seen: list[AgentEvent] = []
    with pytest.raises(ProviderError):
        await read(session, seen, before=session.wait_settled, pause=1)
    assert seen == stage.events(session)


async def test_a_stream_that_is_not_read_is_aborted_when_it_is_left(stage: Stage) -> None:
    session = stage.session([text_delta("a"), delay(1_000), done()])
    async with session.stream("Hi"):
        await checkpoint()
    assert (await session.state()).status == "idle"


async def test_leaving_after_the_end_changes_nothing(stage: Stage) -> None:
    session = stage.session(END)
    async with session.stream("Hi") as events:
        await session.wait_settled()
    assert events.result is not None
    assert events.result.status == "completed"
    assert said(await session.entries()) == ["user: Hi", "assistant: end"]


async def test_an_abort_is_raised_at_the_end_of_the_iteration(stage: Stage) -> None:
    session = stage.session([text_delta("a"), delay(1_000), done()])
    seen: list[AgentEvent] = []

    def abort(event: AgentEvent) -> None:
        if isinstance(event, MessageDelta):
            session.abort("enough")

    with pytest.raises(RunAborted, match="enough"):
        await read(session, seen, on_event=abort)
    assert types(seen)[-2:] == ["agent_finished", "session_settled"]


async def test_a_cancelled_body_is_a_cancelled_run(stage: Stage) -> None:
    session = stage.session([text_delta("a"), delay(1_000), done()])
    with anyio.move_on_after(0.1) as scope:
        async with session.stream("Hi") as events:
            async for _ in events:
                pass
    assert scope.cancelled_caught
    assert said(await session.entries()) == ["user: Hi", "assistant: a"]


async def test_a_stream_ends_although_a_tool_of_its_run_goes_on(stage: Stage) -> None:
    @tool
    async def stubborn() -> None:
        """Ignore a cancellation."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(100)

    session = stage.session([[tool_call(id="c1", name="stubborn"), done()], END], tools=[stubborn])
    told_at: list[float] = []

    def abort(event: AgentEvent) -> None:
        told_at.append(now())
        if isinstance(event, ToolExecutionStarted):
            session.abort()

    with pytest.raises(RunAborted):
        await read(session, [], on_event=abort)
    assert now() - told_at[-1] == pytest.approx(98)
