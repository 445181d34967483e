"""Conversations that are longer than the summary model's window."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from prism.core import CompactionError, ErrorInfo, ModelLimits, Usage
from prism.core.providers import (
    MockProvider,
    ProviderEvent,
    ProviderRequest,
    done,
    error,
    text_delta,
)
from prism.memory.llm import MAX_SUMMARY_CALLS, SUMMARY_PROMPT, UPDATE_PROMPT, LlmCompactionStrategy

from .branches import MODEL, Log, request_text, strategy

FACT = re.compile(r"fact-\d+")


class Windowed(MockProvider):
    """Refuses what does not fit into its window, and repeats the facts that it was shown.

    Attributes:
        texts: Of requests that it answered.
        refused: How many it refused.
    """

    def __init__(
        self,
        window: int,
        *,
        chars_per_token: float = 4,
        numbers: bool = True,
        counts_output: bool = False,
    ) -> None:
        def play(request: ProviderRequest) -> Iterable[ProviderEvent]:
            text = request_text(request)
            used = int(sum(map(len, [*request.system, text])) / chars_per_token)
            room: int = (request.model.parameters or {})["maxTokens"]
            if used + room > window:
                self.refused += 1
                counted = used + room if counts_output else used
                details = {"used": counted, "limit": window} if numbers else None
                info = ErrorInfo(message="too long", code="context_overflow", details=details)
                return [error(info)]
            self.texts.append(text)
            facts = " ".join(dict.fromkeys(FACT.findall(text)))
            return [text_delta(facts or "nothing"), done(usage=Usage(output_tokens=1))]

        super().__init__(play)
        self.texts: list[str] = []
        self.refused = 0


def long_log(facts: int, *, size: int = 600) -> Log:
    log = Log()
    for number in range(facts):
        log.user(f"fact-{number} " + "x" * size)
        log.assistant("noted " + "y" * size)
    return log


def one_turn_kept(provider: Any, **options: Any) -> LlmCompactionStrategy:
    """A strategy that keeps the last turn of `long_log`."""
    return strategy(provider, keep_recent_tokens=310, **options)


@pytest.mark.parametrize("chars_per_token", [4, 2.5])
@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize("known", [True, False])
async def test_a_long_history_is_summarised_in_parts_the_oldest_first(
    chars_per_token: float,
    numbers: bool,  # noqa: FBT001
    known: bool,  # noqa: FBT001
) -> None:
    window = 4_000
    log = long_log(60)
    provider = Windowed(window, chars_per_token=chars_per_token, numbers=numbers)
    model = replace(MODEL, limits=ModelLimits(context_window=window)) if known else MODEL
    result = await one_turn_kept(provider, summary_model=model).compact(log.context())
    entry = log.compacted(result)
    covered = [f"fact-{number}" for number in range(59)]
    assert [fact for fact in covered if fact in entry.summary] == covered
    assert len(provider.texts) > 2
    assert provider.texts[0].endswith(SUMMARY_PROMPT)
    assert all(text.endswith(UPDATE_PROMPT) for text in provider.texts[1:])
    firsts = [int(FACT.findall(text)[0][5:]) for text in provider.texts]
    assert firsts == sorted(firsts)
    if known and chars_per_token == 4:
        assert provider.refused == 0
    assert provider.refused <= 8
    assert result is not None
    assert result.usage == Usage(output_tokens=len(provider.texts))


async def test_numbers_that_include_the_output_cost_no_more_calls() -> None:
    calls: list[int] = []
    for counts_output in (False, True):
        provider = Windowed(4_000, counts_output=counts_output)
        await one_turn_kept(provider).compact(long_log(60).context())
        calls.append(len(provider.requests))
    assert calls[0] == calls[1]


async def test_a_short_history_takes_one_call_also_where_the_window_is_known() -> None:
    provider = Windowed(100_000)
    model = replace(MODEL, limits=ModelLimits(context_window=100_000))
    await one_turn_kept(provider, summary_model=model).compact(long_log(20).context())
    assert len(provider.texts) == 1
    assert provider.refused == 0


async def test_one_message_that_is_longer_than_the_window_is_read_in_parts() -> None:
    log = Log()
    log.user(" ".join(f"fact-{number} {'word ' * 50}\n" for number in range(200)))
    log.assistant("so much")
    log.turns(4)
    provider = Windowed(4_000)
    entry = log.compacted(await one_turn_kept(provider).compact(log.context()))
    # A fact at a seam may be halved; all others are there.
    found = set(FACT.findall(entry.summary))
    assert len({f"fact-{number}" for number in range(200)} - found) <= len(provider.texts)
    assert "[continued]" in provider.texts[1]


async def test_an_earlier_summary_that_is_longer_than_the_window_is_read_in_parts() -> None:
    log = Log()
    log.user("hello")
    facts = [f"fact-{number}" for number in range(300)]
    log.compaction(("\n" + "filler words " * 6).join(facts), throughEntryId="e1")
    log.turns(5)
    provider = Windowed(4_000)
    entry = log.compacted(await one_turn_kept(provider).compact(log.context()))
    found = set(FACT.findall(entry.summary))
    assert len(set(facts) - found) <= len(provider.texts)
    assert any("question-1" in text for text in provider.texts)


async def test_a_split_turn_is_read_in_parts_too() -> None:
    log = long_log(3)
    log.user("the task")
    for number in range(100, 160):
        log.step(number, size=10, query=f"fact-{number} " + "z" * 500)
    provider = Windowed(4_000)
    entry = log.compacted(await one_turn_kept(provider).compact(log.context()))
    assert "fact-0" in entry.summary
    assert "fact-100" in entry.summary
    assert "fact-150" in entry.summary


@pytest.mark.parametrize("numbers", [True, False])
async def test_a_provider_that_always_refuses_is_asked_a_bounded_number_of_times(
    numbers: bool,  # noqa: FBT001
) -> None:
    provider = Windowed(50, numbers=numbers)
    with pytest.raises(CompactionError) as caught:
        await one_turn_kept(provider).compact(long_log(40).context())
    assert caught.value.code == "context_overflow"
    assert provider.texts == []
    assert provider.refused <= 9


async def test_a_window_that_holds_nothing_is_refused_without_a_call() -> None:
    provider = Windowed(100)
    model = replace(MODEL, limits=ModelLimits(context_window=100))
    with pytest.raises(CompactionError) as caught:
        await one_turn_kept(provider, summary_model=model).compact(long_log(40).context())
    assert caught.value.code == "context_overflow"
    assert provider.requests == []


async def test_a_conversation_beyond_the_bound_of_calls_fails_with_the_bound() -> None:
    provider = Windowed(2_000)
    with pytest.raises(CompactionError, match="too long for the summary model") as caught:
        await one_turn_kept(provider).compact(long_log(400).context())
    assert caught.value.code == "context_overflow"
    assert (caught.value.details or {})["limit"] == MAX_SUMMARY_CALLS
    assert len(provider.requests) == MAX_SUMMARY_CALLS


async def test_a_model_that_ignores_its_limit_of_output_cannot_make_it_go_on_forever() -> None:
    def play(request: ProviderRequest) -> Iterable[ProviderEvent]:
        return [text_delta("word " * 2_000), done()]

    provider = MockProvider(play)
    model = replace(MODEL, limits=ModelLimits(context_window=3_000))
    with pytest.raises(CompactionError) as caught:
        await one_turn_kept(provider, summary_model=model).compact(long_log(40).context())
    assert caught.value.code == "context_overflow"
    assert len(provider.requests) <= MAX_SUMMARY_CALLS


async def test_a_failure_in_the_middle_fails_the_whole() -> None:
    window = Windowed(4_000)

    def play(request: ProviderRequest) -> Iterable[Any]:
        if len(window.texts) == 2:
            return [error(ErrorInfo(message="gone", code="server_error"))]
        return window._answer(request, 0)  # pyright: ignore[reportPrivateUsage]

    with pytest.raises(CompactionError) as caught:
        await one_turn_kept(MockProvider(play)).compact(long_log(60).context())
    assert caught.value.code == "server_error"


@given(
    window=st.integers(1_500, 20_000),
    chars_per_token=st.floats(2, 5),
    numbers=st.booleans(),
    known=st.booleans(),
    sizes=st.lists(st.integers(0, 4_000), min_size=2, max_size=20),
)
@settings(max_examples=40)
async def test_whatever_the_window_it_ends_in_a_summary_or_in_an_overflow(
    window: int,
    chars_per_token: float,
    numbers: bool,  # noqa: FBT001
    known: bool,  # noqa: FBT001
    sizes: list[int],
) -> None:
    log = Log()
    for number, size in enumerate(sizes):
        log.user(f"fact-{number} " + "x" * size)
        log.assistant("noted " + "y" * size)
    provider = Windowed(window, chars_per_token=chars_per_token, numbers=numbers)
    model = replace(MODEL, limits=ModelLimits(context_window=window)) if known else MODEL
    try:
        result = await one_turn_kept(provider, summary_model=model).compact(log.context())
    except CompactionError as failed:
        if failed.code != "context_overflow":
            raise
    else:
        if result is not None:
            assert "fact-0" in result.summary
    assert len(provider.requests) <= MAX_SUMMARY_CALLS
