"""The strategy at work in sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from prism.core import (
    Agent,
    CompactionEntry,
    CompactionError,
    CompactionFailed,
    CompactionFinished,
    CompactionOptions,
    ErrorInfo,
    MessageEntry,
    ModelConfig,
    NothingToCompact,
    ProviderError,
    RunAborted,
    SecretRedactor,
    Usage,
    UsageReported,
    tool,
)
from prism.core.extensions import ExtensionKernel
from prism.core.providers import (
    MockProvider,
    ProviderEvent,
    ProviderRequest,
    delay,
    done,
    error,
    text_delta,
    tool_call,
)
from prism.core.stores import JsonlSessionStore, MemorySessionStore
from prism.core.testing import check_event_laws
from prism.memory.llm import (
    SUMMARY_SYSTEM_PROMPT,
    CodingCompactionStrategy,
    LlmCompactionStrategy,
    llm_compaction_extension,
)

from .branches import MODEL, request_text

CHAT = ModelConfig(provider="mock", model="chat")
Reply = Callable[[ProviderRequest], Iterable[Any]]


def chat_text(request: ProviderRequest) -> str:
    return "\n".join(message.text for message in request.messages)


class Model(MockProvider):
    """Chats, and writes summaries.

    Attributes:
        chats: Requests of the conversation.
        summaries: Requests for summaries.
    """

    def __init__(self, chat: Reply | None = None, summary: Reply | None = None) -> None:
        self.chats: list[ProviderRequest] = []
        self.summaries: list[ProviderRequest] = []

        def play(request: ProviderRequest) -> Iterable[ProviderEvent]:
            if SUMMARY_SYSTEM_PROMPT in request.system:
                self.summaries.append(request)
                if summary is not None:
                    return summary(request)
                usage = Usage(input_tokens=50, output_tokens=5)
                number = len(self.summaries)
                return [text_delta(f"summary {number} of the past"), done(usage=usage)]
            self.chats.append(request)
            if chat is not None:
                return chat(request)
            return [text_delta("answer " + "a" * 400), done()]

        super().__init__(play)


def agent_of(model: Model, **options: Any) -> Agent:
    strategy = LlmCompactionStrategy(provider=model, model=CHAT, keep_recent_tokens=420)
    options.setdefault("compaction", CompactionOptions(strategy=strategy))
    return Agent(model=CHAT, provider=model, **options)


def question(number: int) -> str:
    return f"question-{number} " + "q" * 400


async def test_a_session_is_compacted_and_goes_on_from_the_summary() -> None:
    model = Model()
    session = agent_of(model).session("s1")
    events: list[Any] = []
    async with session.subscribe() as subscription:
        for number in range(1, 6):
            await session.run(question(number))
        result = await session.compact()
        await session.run("and now?")
        await session.aclose()
        events += [event async for event in subscription]
    check_event_laws(events)
    (finished,) = [event for event in events if isinstance(event, CompactionFinished)]
    assert finished.summary == "summary 1 of the past"
    assert finished.strategy == "llm-compaction"
    assert (finished.tokens_before, finished.tokens_after) == (
        result.tokens_before,
        result.tokens_after,
    )
    reported = [event for event in events if isinstance(event, UsageReported)]
    assert [event.source for event in reported].count("compaction") == 1
    last = chat_text(model.chats[-1])
    assert "summary 1 of the past" in last
    assert "question-1" not in last
    assert "question-5" in last
    # The summary request and the chat share a cache.
    (request,) = model.summaries
    assert request.options.cache_key == model.chats[-1].options.cache_key == "s1"
    assert request.options.session_id == "s1"


async def test_each_compaction_carries_on_the_last_one_also_after_a_restart(
    tmp_path: Path,
) -> None:
    model = Model()
    for reopened in range(4):
        store = JsonlSessionStore(tmp_path)
        session = agent_of(model, store=store).session("s1")
        for number in range(1, 5):
            await session.run(question(10 * reopened + number))
        await session.compact()
        await session.aclose()
        await store.aclose()
        if reopened:
            assert f"<summary>\nsummary {len(model.summaries) - 1} of the past\n</summary>" in (
                request_text(model.summaries[-1])
            )
    store = JsonlSessionStore(tmp_path)
    stored = [item.entry for item in await store.entries("s1")]
    await store.aclose()
    compactions = [entry for entry in stored if isinstance(entry, CompactionEntry)]
    assert len(compactions) == 4
    assert len([entry for entry in stored if isinstance(entry, MessageEntry)]) == 32


async def test_a_summary_that_fails_appends_nothing_and_the_session_goes_on() -> None:
    failing: list[Any] = [error(ErrorInfo(message="no", code="overloaded"))]
    model = Model(summary=lambda _: failing)
    session = agent_of(model).session("s1")
    for number in range(1, 6):
        await session.run(question(number))
    before = await session.entries()
    with pytest.raises(CompactionError) as caught:
        await session.compact()
    assert caught.value.code == "overloaded"
    assert await session.entries() == before
    failing[:] = [text_delta("now it works"), done()]
    assert (await session.compact()).summary == "now it works"
    await session.run("on we go")


async def test_a_run_goes_on_when_its_own_compaction_fails() -> None:
    model = Model(summary=lambda _: [done()])
    strategy = LlmCompactionStrategy(provider=model, model=CHAT, keep_recent_tokens=420)
    options = CompactionOptions(strategy=strategy, threshold_entries=4)
    session = agent_of(model, compaction=options).session("s1")
    events: list[Any] = []
    for number in range(1, 6):
        async with session.stream(question(number)) as stream:
            events += [event async for event in stream]
    failed = [event for event in events if isinstance(event, CompactionFailed)]
    assert {event.error.code for event in failed} == {"invalid_summary"}
    assert len(model.chats) == 5


async def test_a_long_session_compacts_itself_and_keeps_the_input_of_its_run() -> None:
    model = Model()
    strategy = LlmCompactionStrategy(provider=model, model=CHAT, keep_recent_tokens=420)
    options = CompactionOptions(strategy=strategy, threshold_entries=6)
    session = agent_of(model, compaction=options).session("s1")
    for number in range(1, 31):
        await session.run(question(number))
        assert f"question-{number} " in chat_text(model.chats[-1])
        assert len(model.chats[-1].messages) <= 9
    assert len(model.summaries) >= 5
    assert all(not request.tools for request in model.summaries)


async def test_nothing_to_compact_is_said() -> None:
    session = agent_of(Model()).session("s1")
    await session.run("Hi")
    with pytest.raises(NothingToCompact):
        await session.compact()


async def test_instructions_and_secrets_of_the_caller_reach_the_summary_request() -> None:
    model = Model()
    session = agent_of(model, redactor=SecretRedactor(["known-to-agent"])).session("s1")
    for number in range(1, 6):
        await session.run(question(number) + " known-to-agent known-to-caller")
    await session.compact(instructions="Look at numbers.", secrets=["known-to-caller"])
    text = request_text(model.summaries[0])
    assert text.endswith("Look at numbers.")
    assert "known-to" not in text


class Refusing(Model):
    """Refuses conversations of more than *limit* characters."""

    def __init__(self, limit: int, *, always: bool = False) -> None:
        def chat(request: ProviderRequest) -> Iterable[Any]:
            size = sum(len(str(message.content)) for message in request.messages)
            if always or size > limit:
                self.refused += 1
                return [error(ErrorInfo(message="too long", code="context_overflow"))]
            if "read it" in chat_text(request) and not any(
                message.role == "tool" for message in request.messages
            ):
                return [tool_call(id=f"c{len(self.chats)}", name="read", arguments={"path": "x"})]
            return [text_delta("fine " + "a" * 400), done()]

        super().__init__(chat)
        self.refused = 0


async def test_a_session_too_long_for_its_window_is_compacted_by_the_same_model() -> None:
    model = Refusing(6_000)
    strategy = LlmCompactionStrategy(provider=model, model=CHAT)
    options = CompactionOptions(strategy=strategy, on_overflow="compact")
    session = agent_of(model, compaction=options).session("s1")
    for number in range(1, 21):
        result = await session.run(question(number))
        assert result.status == "completed"
        assert f"question-{number} " in chat_text(model.chats[-1])
    assert 1 <= model.refused <= 6
    assert len(model.summaries) >= model.refused


async def test_an_overflow_that_compaction_does_not_help_is_the_original_error() -> None:
    model = Refusing(0, always=True)
    strategy = LlmCompactionStrategy(provider=model, model=CHAT)
    options = CompactionOptions(strategy=strategy, on_overflow="compact")
    session = agent_of(model, compaction=options, retry=False).session("s1")
    for _ in range(3):
        with pytest.raises(ProviderError, match="too long") as caught:
            await session.run(question(1))
        assert caught.value.code == "context_overflow"
    assert len(model.chats) <= 6


async def test_a_huge_tool_result_in_the_turn_under_way_is_summarised_away() -> None:
    @tool
    async def read(path: str) -> str:
        """Read a file."""
        return "line of the file\n" * 4_000

    asked = 0

    def chat(request: ProviderRequest) -> Iterable[Any]:
        nonlocal asked
        size = sum(len(str(message.content)) for message in request.messages)
        if size > 20_000:
            return [error(ErrorInfo(message="too long", code="context_overflow"))]
        asked += 1
        if asked == 1:
            return [tool_call(id="c1", name="read", arguments={"path": "x"}), done()]
        return [text_delta("it has lines"), done()]

    model = Model(chat)
    strategy = LlmCompactionStrategy(provider=model, model=CHAT)
    options = CompactionOptions(strategy=strategy, on_overflow="compact")
    session = agent_of(model, compaction=options, tools=[read]).session("s1")
    result = await session.run("please read it")
    assert result.text == "it has lines"
    last = chat_text(model.chats[-1])
    assert "please read it" in last
    assert "summary 1 of the past" in last
    entry = (await session.entries())[-2]
    assert isinstance(entry, CompactionEntry)
    assert entry.data is not None
    assert entry.data["readFiles"] == ["x"]
    assert entry.data["splitTurn"] is True
    assert "please read it" in request_text(model.summaries[0])


async def test_an_abort_of_the_compaction_appends_nothing() -> None:
    model = Model(summary=lambda _: [text_delta("a part"), delay(3_000_000), done()])
    session = agent_of(model, store=MemorySessionStore()).session("s1")
    for number in range(1, 6):
        await session.run(question(number))
    before = await session.entries()
    raised: list[BaseException] = []

    async def compact() -> None:
        try:
            await session.compact()
        except RunAborted as aborted:
            raised.append(aborted)

    async with anyio.create_task_group() as group:
        group.start_soon(compact)
        while not model.summaries:
            await anyio.lowlevel.checkpoint()
        assert session.abort("enough")
    assert len(raised) == 1
    assert await session.entries() == before
    assert (await session.run("on we go")).status == "completed"


# As an extension


async def test_the_extension_contributes_its_strategy_and_starts_nothing() -> None:
    model = Model()
    kernel = ExtensionKernel()
    await kernel.load(
        [
            llm_compaction_extension(provider=model, summary_model=MODEL, keep_recent_tokens=420),
            llm_compaction_extension(coding=True, provider=model, summary_model=MODEL),
        ]
    )
    assert model.requests == []
    assert kernel.loaded == ("prism.memory.llm/llm-compaction", "prism.memory.llm/coding")
    strategies = kernel.registries.compaction_strategies
    assert isinstance(strategies.resolve("coding"), CodingCompactionStrategy)
    strategy = strategies.resolve("llm-compaction")
    session = Agent(
        model=CHAT, provider=model, compaction=CompactionOptions(strategy=strategy)
    ).session("s1")
    for number in range(1, 6):
        await session.run(question(number))
    assert model.summaries == []
    assert (await session.compact()).summary == "summary 1 of the past"
