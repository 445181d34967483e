"""What the summary model may answer, and what is made of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any

import anyio
import pytest
from hypothesis import given, settings, strategies as st

from prism.core import (
    CompactionEntry,
    CompactionError,
    ErrorInfo,
    NativeBlock,
    ProviderError,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from prism.core.providers import (
    MockProvider,
    ProviderEvent,
    ProviderRequest,
    block_finished,
    done,
    error,
    notice,
    text_delta,
    thinking_delta,
    tool_call,
    tool_call_delta,
    usage,
)
from prism.memory.llm._tokens import utf16_length

from .branches import Log, strategy


class Streaming:
    """A provider whose stream is a generator, and that knows when it was closed."""

    id = "streaming"

    def __init__(self, events: Iterable[ProviderEvent]) -> None:
        self._events = events
        self.sent = 0
        self.closed = 0

    async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        try:
            for event in self._events:
                self.sent += 1
                yield event
        finally:
            self.closed += 1


async def compacted(*events: Any, **options: Any) -> CompactionEntry:
    log = Log().turns(6, size=4_000)
    options = {"keep_recent_tokens": 4_000, **options}
    return log.compacted(await strategy(MockProvider(events), **options).compact(log.context()))


async def failure(*events: Any, **options: Any) -> CompactionError:
    with pytest.raises(CompactionError) as caught:
        await compacted(*events, **options)
    return caught.value


async def test_deltas_are_joined_and_thinking_is_left_out() -> None:
    entry = await compacted(
        thinking_delta("hm"),
        text_delta("one "),
        notice("x", "y"),
        text_delta("two "),
        thinking_delta("hm"),
        text_delta("three\n"),
        usage(Usage(output_tokens=3)),
        done(),
    )
    assert entry.summary == "one two three"


async def test_the_usage_of_the_end_wins_over_what_came_before() -> None:
    log = Log().turns(6)
    events = [text_delta("a"), usage(Usage(output_tokens=1)), done(usage=Usage(output_tokens=2))]
    result = await strategy(MockProvider(events)).compact(log.context())
    assert result is not None
    assert result.usage == Usage(output_tokens=2)


@pytest.mark.parametrize(
    "events",
    [
        [block_finished(index=0, block=TextBlock(text="all of it"))],
        [text_delta("all "), block_finished(index=0, block=TextBlock(text="all of it"))],
        [
            text_delta("all of it", index=3),
            block_finished(index=3, block=TextBlock(text="all of it")),
        ],
        [
            block_finished(index=0, block=ThinkingBlock(text="hm")),
            text_delta("all "),
            text_delta("of it"),
            block_finished(index=1, block=TextBlock(text="all of it")),
            block_finished(index=1, block=TextBlock(text="all of it")),
        ],
        [
            block_finished(index=0, block=NativeBlock(api="x", kind="item", data="{}")),
            text_delta("all of it"),
            block_finished(index=1, block=TextBlock(text="something else")),
        ],
        [text_delta("all ", index=0), text_delta("of it", index=1)],
    ],
)
async def test_finished_blocks_complete_the_deltas_and_repeat_nothing(events: list[Any]) -> None:
    assert (await compacted(*events, done())).summary == "all of it"


async def test_halves_of_a_character_in_two_deltas_are_joined() -> None:
    entry = await compacted(text_delta("a \ud83d"), text_delta("\ude00 b \ud83d"), done())
    assert entry.summary == "a 😀 b \ufffd"


@given(
    text=st.text(st.sampled_from("ab😀é\u0301👩\u200d👧"), min_size=40, max_size=90),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=90),
)
@settings(max_examples=25)
async def test_a_summary_stops_at_its_limit_without_halving_a_character(
    text: str, sizes: list[int]
) -> None:
    deltas: list[Any] = []
    rest = text
    for size in sizes * 90:
        if not rest:
            break
        deltas.append(text_delta(rest[:size]))
        rest = rest[size:]
    entry = await compacted(*deltas, done(), max_summary_tokens=8)
    assert utf16_length(entry.summary) <= 32
    entry.summary.encode()
    assert text.startswith(entry.summary.removesuffix("\n[…]").rstrip()) or "[…]" in entry.summary
    assert (entry.data or {}).get("truncated", False) is (utf16_length(text) > 32)


async def test_the_stream_is_closed_when_the_summary_is_full() -> None:
    provider = Streaming(text_delta("word ") for _ in range(10_000_000))
    log = Log().turns(6, size=4_000)
    entry = log.compacted(
        await strategy(provider, max_summary_tokens=100, keep_recent_tokens=4_000).compact(
            log.context()
        )
    )
    assert len(entry.summary) <= 400
    assert provider.sent == 81
    assert provider.closed == 1


@pytest.mark.parametrize(
    "event",
    [
        text_delta(""),
        thinking_delta("hm"),
        usage(Usage()),
        notice("a", "b"),
        block_finished(index=0, block=ThinkingBlock(text="hm")),
    ],
)
async def test_a_stream_without_text_or_end_is_left_after_a_bounded_number_of_events(
    event: Any,
) -> None:
    provider = Streaming(event for _ in range(10_000_000))
    with pytest.raises(CompactionError) as caught:
        await strategy(provider, max_summary_tokens=100).compact(Log().turns(6).context())
    assert caught.value.code == "event_limit"
    assert provider.sent == 4 * 100 + 1_024
    assert provider.closed == 1


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([done()], "empty"),
        ([text_delta(" \n "), done()], "empty"),
        ([block_finished(index=0, block=TextBlock(text="")), done()], "empty"),
        ([thinking_delta("hm"), done(stop_reason="length")], "only_thinking"),
        ([text_delta("a"), tool_call_delta(index=1, id="x", name="read")], "tool_call"),
        ([tool_call(id="x", name="read", arguments={}), done()], "tool_call"),
        (
            [block_finished(index=0, block=ToolCallBlock(id="x", name="y", arguments={})), done()],
            "tool_call",
        ),
        ([text_delta("a"), done(stop_reason="tool_use")], "tool_call"),
        ([text_delta("I cannot"), done(stop_reason="refusal")], "refusal"),
        ([text_delta("a"), done(stop_reason="pause")], "pause"),
        ([text_delta("a"), done(stop_reason="aborted")], "aborted"),
    ],
)
async def test_an_answer_that_is_no_summary_raises(events: list[Any], reason: str) -> None:
    raised = await failure(*events)
    assert raised.code == "invalid_summary"
    assert raised.details == {"reason": reason}


async def test_a_stream_that_ends_too_early_raises() -> None:
    assert (await failure(text_delta("half a summ"))).code == "stream_truncated"


@pytest.mark.parametrize("reason", ["length", "context_limit"])
async def test_a_summary_that_the_model_had_to_cut_is_kept_and_marked(reason: str) -> None:
    entry = await compacted(text_delta("half a summ"), done(stop_reason=reason))
    assert entry.summary == "half a summ"
    assert entry.data is not None
    assert entry.data["truncated"] is True


async def test_what_follows_the_end_is_not_read() -> None:
    provider = Streaming([text_delta("a"), done(), text_delta("b")])
    log = Log().turns(6)
    assert log.compacted(await strategy(provider).compact(log.context())).summary == "a"
    assert provider.sent == 2
    assert provider.closed == 1


async def test_a_failure_of_the_provider_keeps_its_code() -> None:
    raised = await failure(
        text_delta("a"),
        error(
            ErrorInfo(
                message="slow down",
                code="rate_limit",
                status=429,
                retry_after_ms=1_500,
                details={"requestId": "r1", "limit": 5, "headers": {"x": "y"}},
            )
        ),
    )
    assert str(raised) == "The summary model failed: slow down"
    assert (raised.code, raised.status, raised.retry_after_ms) == ("rate_limit", 429, 1_500)
    assert raised.details == {"requestId": "r1", "limit": 5}


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (RuntimeError("boom"), "compaction_failed", "RuntimeError: boom"),
        (KeyError(), "compaction_failed", "KeyError"),
        (ProviderError("bad key", code="auth", status=401), "auth", "bad key"),
        (CompactionError("not ours", code="odd"), "odd", "not ours"),
    ],
)
async def test_what_a_provider_raises_becomes_one_kind_of_error(
    raised: Exception, code: str, message: str
) -> None:
    seen = await failure(raised)
    assert str(seen) == f"The summary model's provider failed: {message}"
    assert seen.code == code
    assert seen.__cause__ is None
    assert seen.__context__ is None


@pytest.mark.parametrize("limit", [1, 10, 64, 8_192])
async def test_the_text_of_an_error_is_bounded_in_bytes(limit: int) -> None:
    raised = await failure(error(ErrorInfo(message="ü😀" * 5_000)), max_error_bytes=limit)
    detail = str(raised).removeprefix("The summary model failed: ")
    assert len(detail.encode()) <= max(limit, 3)
    detail.encode()


# Abort


class Waiting:
    """Never answers; on an abort it may answer with a failure of its own."""

    id = "waiting"

    def __init__(self, *, hides_abort: bool = False) -> None:
        self._hides_abort = hides_abort
        self.asked = anyio.Event()
        self.closed = False

    async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        yield text_delta("a part")
        self.asked.set()
        try:
            await anyio.sleep_forever()
        except BaseException as cancelled:
            self.closed = True
            if self._hides_abort:
                raise RuntimeError("connection lost") from cancelled
            raise


@pytest.mark.parametrize("hides_abort", [False, True])
async def test_an_abort_closes_the_stream_and_is_not_hidden(hides_abort: bool) -> None:  # noqa: FBT001
    provider = Waiting(hides_abort=hides_abort)
    outcome: list[object] = []

    async def compact() -> None:
        outcome.append(await strategy(provider).compact(Log().turns(6).context()))

    async with anyio.create_task_group() as group:
        group.start_soon(compact)
        await provider.asked.wait()
        group.cancel_scope.cancel()
    assert outcome == []
    assert provider.closed


async def test_an_abort_reaches_a_provider_that_never_suspends() -> None:
    scope = anyio.CancelScope()

    def events() -> Iterable[ProviderEvent]:
        for number in range(100_000):
            if number == 100:
                scope.cancel()
            yield thinking_delta("hm")

    provider = Streaming(events())
    with scope:
        await strategy(provider).compact(Log().turns(6).context())
    assert scope.cancelled_caught
    assert provider.sent <= 200
    assert provider.closed == 1


async def test_an_abort_before_the_compaction_asks_nobody() -> None:
    provider = Streaming([text_delta("a"), done()])
    with anyio.CancelScope() as scope:
        scope.cancel()
        await strategy(provider).compact(Log().turns(6).context())
    assert provider.sent == 0
