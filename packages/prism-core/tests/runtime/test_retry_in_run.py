"""Trying a turn again while nothing of it was seen; overflow and replay repair."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from prism.core import (
    AgentFinished,
    CompactionEntry,
    CompactionFailed,
    CompactionFinished,
    CompactionOptions,
    CompactionStarted,
    ErrorInfo,
    MiddlewareRegistry,
    ProviderError,
    RetryOptions,
    RetryScheduled,
    RunAborted,
    SecretRedactor,
    UsageError,
    Warned,
    tool,
)
from prism.core._contracts import (
    CompactionContext,
    CompactionResult,
    RetryContext,
    RetryDecision,
    RetryPayload,
)
from prism.core._wire import NativeBlock, TextBlock, ThinkingBlock
from prism.core.compaction import DefaultCompactionStrategy
from prism.core.providers import block_finished, done, error, text_delta, thinking_delta, tool_call

from .harness import Stage, now, of, provider_of, said, sent, types

BUSY = error("busy", code="overloaded", status=529)
OVERFLOW = error("too long", code="context_overflow")
END = [text_delta("end"), done()]


@tool
async def look() -> int:
    """Look."""
    return 1


async def test_a_transient_failure_is_tried_again_after_a_doubling_wait(stage: Stage) -> None:
    session = stage.session([[BUSY], [BUSY], END])
    start = now()
    assert (await session.run("Hi")).text == "end"
    assert now() - start == pytest.approx(0.3)
    events = of(RetryScheduled, stage.events(session))
    assert [(event.attempt, event.delay_ms) for event in events] == [(2, 100), (3, 200)]
    assert events[0].error.code == "overloaded"
    assert types(stage.events(session)) == [
        "agent_started",
        "turn_started",
        "retry_scheduled",
        "retry_scheduled",
        "message_started",
        "message_delta",
        "message_finished",
        "turn_finished",
        "agent_finished",
        "session_settled",
    ]


async def test_three_attempts_in_all_then_the_error_says_so(stage: Stage) -> None:
    session = stage.session([BUSY])
    with pytest.raises(ProviderError) as caught:
        await session.run("Hi")
    assert len(provider_of(session).requests) == 3
    assert caught.value.code == "overloaded"
    assert caught.value.details is not None
    assert "max_attempts" in caught.value.details["retry"]


async def test_the_event_comes_before_the_wait_and_the_wait_can_be_cancelled(stage: Stage) -> None:
    session = stage.session([BUSY], retry=RetryOptions(base_delay_ms=60_000, max_delay_ms=60_000))

    async def run() -> None:
        with pytest.raises(RunAborted):
            await session.run("Hi")

    start = now()
    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(1)
        assert types(stage.events(session))[-1] == "retry_scheduled"
        session.abort()
    assert now() - start == pytest.approx(1)
    assert said(await session.entries()) == ["user: Hi"]


@pytest.mark.parametrize("where", ["agent", "run"])
async def test_retry_false_turns_it_off(stage: Stage, where: str) -> None:
    session = stage.session([BUSY], retry=False if where == "agent" else None)
    with pytest.raises(ProviderError):
        await session.run("Hi", **({"retry": False} if where == "run" else {}))
    assert len(provider_of(session).requests) == 1
    assert of(RetryScheduled, stage.events(session)) == []


@pytest.mark.parametrize("seen", ["text", "thinking", "call"])
async def test_a_turn_that_has_shown_something_is_not_tried_again(stage: Stage, seen: str) -> None:
    first: Any = {
        "text": text_delta("a"),
        "thinking": thinking_delta("a"),
        "call": tool_call(id="c1", name="look"),
    }[seen]
    session = stage.session([first, BUSY], tools=[look])
    with pytest.raises(ProviderError):
        await session.run("Hi")
    assert len(provider_of(session).requests) == 1


async def test_an_empty_truncated_stream_is_tried_again(stage: Stage) -> None:
    session = stage.session([[], END])
    assert (await session.run("Hi")).text == "end"
    assert of(RetryScheduled, stage.events(session))[0].error.code == "stream_truncated"


@pytest.mark.parametrize(
    "failure",
    [
        error("no", code="auth", status=401),
        error("no", code="quota_exhausted", status=429),
        error("no", code="invalid_request", status=400),
        error("timeout_ms must be positive"),
        error("the answer has 1500 tokens"),
    ],
)
async def test_what_will_not_pass_is_not_tried_again(stage: Stage, failure: Any) -> None:
    session = stage.session([failure])
    with pytest.raises(ProviderError):
        await session.run("Hi")
    assert len(provider_of(session).requests) == 1


async def test_a_providers_retry_after_raises_the_delay(stage: Stage) -> None:
    session = stage.session([[error("slow", code="rate_limit", retry_after_ms=5_000)], END])
    start = now()
    await session.run("Hi")
    assert now() - start == pytest.approx(5)


async def test_a_retry_after_that_is_too_long_fails_now_and_says_so(stage: Stage) -> None:
    session = stage.session([error("slow", code="rate_limit", retry_after_ms=61_000)])
    start = now()
    with pytest.raises(ProviderError) as caught:
        await session.run("Hi")
    assert now() == start
    assert caught.value.retry_after_ms == 61_000
    assert caught.value.details is not None
    assert "61000 ms" in caught.value.details["retry"]


async def test_each_turn_has_its_own_attempts(stage: Stage) -> None:
    session = stage.session(
        [[BUSY], [BUSY], [tool_call(id="c1", name="look"), done()], [BUSY], [BUSY], END],
        tools=[look],
    )
    assert (await session.run("Hi")).text == "end"


async def test_the_context_names_the_attempt_that_failed(stage: Stage) -> None:
    seen: list[RetryContext] = []

    class Policy:
        def decide(self, context: RetryContext) -> RetryDecision:
            seen.append(context)
            return RetryDecision(retry=context.attempt < 2, delay_ms=0, reason="enough")

    session = stage.session(
        [error("it is hunter2", code="overloaded")],
        retry=RetryOptions(policy=Policy(), secrets=["hunter2"], metadata={"k": 1}),
        secrets=["hunter2"],
    )
    with pytest.raises(ProviderError, match=r"it is .REDACTED.") as caught:
        await session.run("Hi")
    assert [context.attempt for context in seen] == [1, 2]
    assert (seen[0].max_attempts, seen[0].metadata) == (3, {"k": 1})
    assert seen[0].error.message == "it is [REDACTED]"
    assert caught.value.details == {"retry": "enough"}
    assert [event.attempt for event in of(RetryScheduled, stage.events(session))] == [2]


@pytest.mark.parametrize("given", [None, True, RetryDecision(retry=True, delay_ms=-1)])
async def test_a_policy_that_decides_nothing_fails_the_run(stage: Stage, given: Any) -> None:
    class Policy:
        def decide(self, context: RetryContext) -> Any:
            return given

    session = stage.session([BUSY], retry=RetryOptions(policy=Policy()))
    with pytest.raises(UsageError):
        await session.run("Hi")
    assert of(AgentFinished, stage.events(session))[0].status == "failed"


async def test_middleware_may_stop_or_shorten_a_retry_and_never_lengthen_it(stage: Stage) -> None:
    answers: list[RetryDecision] = [
        RetryDecision(retry=True, delay_ms=10),
        RetryDecision(retry=True, delay_ms=99_999),
        RetryDecision(retry=False, reason="stop it"),
    ]
    hooks = MiddlewareRegistry()

    def change(payload: RetryPayload) -> RetryPayload:
        return RetryPayload(context=payload.context, decision=answers.pop(0))

    hooks.use("retry", change)
    session = stage.session([BUSY], middleware=hooks, retry=RetryOptions(max_attempts=9))
    start = now()
    with pytest.raises(ProviderError) as caught:
        await session.run("Hi")
    assert now() - start == pytest.approx(0.01 + 0.2)
    assert caught.value.details == {"retry": "stop it"}


async def test_middleware_cannot_start_a_retry(stage: Stage) -> None:
    hooks = MiddlewareRegistry()
    hooks.use(
        "retry",
        lambda payload: RetryPayload(
            context=payload.context, decision=RetryDecision(retry=True, delay_ms=0)
        ),
    )
    session = stage.session([error("no", code="auth")], middleware=hooks)
    with pytest.raises(ProviderError):
        await session.run("Hi")
    assert len(provider_of(session).requests) == 1


async def test_a_secret_in_a_failure_is_in_no_event(stage: Stage) -> None:
    session = stage.session(
        [[error("key hunter2 is busy", code="overloaded")], END],
        redactor=SecretRedactor(["hunter2"]),
        secrets=["hunter2"],
    )
    await session.run("Hi")
    assert of(RetryScheduled, stage.events(session))[0].error.message == "key [REDACTED] is busy"


# Overflow


async def test_an_overflow_is_compacted_once_and_tried_once_more(stage: Stage) -> None:
    session = stage.session(
        [END, END, [OVERFLOW], END],
        compaction=CompactionOptions(on_overflow="compact", keep_recent_entries=1),
    )
    await session.run("one")
    await session.run("two")
    assert (await session.run("three")).text == "end"
    (started,) = of(CompactionStarted, stage.events(session))
    assert started.trigger == "overflow"
    assert sent(provider_of(session).requests[3])[1:] == ["user: three"]
    assert of(RetryScheduled, stage.events(session)) == []


async def test_a_second_overflow_in_a_run_is_raised(stage: Stage) -> None:
    session = stage.session(
        [END, END, [OVERFLOW], [OVERFLOW]],
        compaction=CompactionOptions(on_overflow="compact", keep_recent_entries=1),
    )
    await session.run("one")
    await session.run("two")
    with pytest.raises(ProviderError) as caught:
        await session.run("three")
    assert caught.value.code == "context_overflow"
    assert len(of(CompactionStarted, stage.events(session))) == 1


async def test_an_overflow_that_cannot_be_shrunk_is_raised_as_it_came(stage: Stage) -> None:
    session = stage.session([OVERFLOW], compaction=CompactionOptions(on_overflow="compact"))
    with pytest.raises(ProviderError) as caught:
        await session.run("one")
    assert (caught.value.code, caught.value.message) == ("context_overflow", "too long")
    (failed,) = of(CompactionFailed, stage.events(session))
    assert (failed.trigger, failed.error.code) == ("overflow", "nothing_to_compact")
    assert len(provider_of(session).requests) == 1


async def test_a_compaction_that_shrank_nothing_is_no_reason_to_try_again(stage: Stage) -> None:
    class KeepsAll:
        name = "keeps-all"

        async def compact(self, context: CompactionContext) -> CompactionResult:
            entry = CompactionEntry(
                id="c1",
                session_id=context.session_id,
                timestamp="2026-01-01T00:00:00.000Z",
                parent_id=context.leaf_id,
                summary="All of it.",
            )
            return CompactionResult(summary=entry.summary, entries=[entry])

    session = stage.session(
        [END, [OVERFLOW], END],
        compaction=CompactionOptions(on_overflow="compact", strategy=KeepsAll()),
    )
    await session.run("one")
    with pytest.raises(ProviderError) as caught:
        await session.run("two")
    assert (caught.value.code, caught.value.message) == ("context_overflow", "too long")
    assert len(of(CompactionFinished, stage.events(session))) == 1
    assert len(provider_of(session).requests) == 2


async def test_reasoning_that_was_left_out_stays_out_after_an_overflow(stage: Stage) -> None:
    refused = ErrorInfo(message="bad signature", code="replay_invalid")
    signed = [
        block_finished(index=0, block=ThinkingBlock(text="hm", signature="sig")),
        text_delta("a", index=1),
        done(),
    ]
    session = stage.session(
        [END, signed, [error(refused)], [OVERFLOW], END],
        compaction=CompactionOptions(on_overflow="compact", keep_recent_entries=3),
    )
    for text in ("one", "two", "three"):
        await session.run(text)
    asked = provider_of(session).requests[2:]
    assert [sent(request)[-2:] for request in asked] == [
        ["assistant: <ThinkingBlock> a", "user: three"],
        ["assistant: a", "user: three"],
        ["assistant: a", "user: three"],
    ]


@pytest.mark.parametrize("options", [{}, {"compaction": False}])
async def test_without_being_asked_to_an_overflow_is_not_compacted(
    stage: Stage, options: dict[str, Any]
) -> None:
    chosen = CompactionOptions(on_overflow="compact") if options else None
    session = stage.session([END, [OVERFLOW]], compaction=chosen)
    await session.run("one")
    with pytest.raises(ProviderError):
        await session.run("two", **options)
    assert of(CompactionStarted, stage.events(session)) == []


async def test_an_overflow_after_output_is_not_compacted(stage: Stage) -> None:
    session = stage.session(
        [END, [text_delta("a"), OVERFLOW]],
        compaction=CompactionOptions(
            on_overflow="compact", strategy=DefaultCompactionStrategy(keep_recent_entries=1)
        ),
    )
    await session.run("one")
    with pytest.raises(ProviderError):
        await session.run("two")
    assert of(CompactionStarted, stage.events(session)) == []


# Replay


async def test_replayed_reasoning_that_is_refused_is_left_out_once(stage: Stage) -> None:
    refused = ErrorInfo(message="bad signature", code="replay_invalid")
    signed = ThinkingBlock(text="hm", signature="sig")
    searched = NativeBlock(api="a", kind="web_search_call", data="{}")
    compacted = NativeBlock(api="a", kind="compaction", data="{}")
    session = stage.session(
        [
            [
                block_finished(index=0, block=signed),
                block_finished(index=1, block=searched),
                block_finished(index=2, block=compacted),
                text_delta("a", index=3),
                done(),
            ],
            [error(refused)],
            END,
            [error(refused)],
            [error(refused)],
        ]
    )
    await session.run("one")
    assert (await session.run("two")).text == "end"
    requests = provider_of(session).requests
    answer = TextBlock(text="a")
    assert requests[1].messages[1].content == [signed, searched, compacted, answer]
    assert requests[2].messages[1].content == [compacted, answer]
    assert [event.code for event in of(Warned, stage.events(session))] == ["reasoning_dropped"]
    with pytest.raises(ProviderError) as caught:
        await session.run("three")
    assert caught.value.code == "replay_invalid"
    assert len(requests) == 5
