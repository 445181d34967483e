"""Branches for tests: a writer of entries, random ones, and summary models that play a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from prism.core import (
    CompactionEntry,
    ContentBlock,
    CustomEntry,
    ErrorInfo,
    LabelEntry,
    Message,
    MessageEntry,
    ModelChangeEntry,
    ModelConfig,
    SessionEntry,
    SummaryEntry,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
)
from prism.core.compaction import (
    CompactionContext,
    CompactionResult,
    estimate_message_tokens,
    estimate_text_tokens,
    latest_compaction,
    rebuild_session_context,
    validate_compaction,
)
from prism.core.providers import MockProvider, ProviderEvent, ProviderRequest, done, text_delta
from prism.memory.llm import LlmCompactionStrategy

WHEN = "2026-01-01T00:00:00.000Z"
MODEL = ModelConfig(provider="mock", model="summariser")


def call(call_id: str, name: str = "work", **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name=name, arguments=arguments)


def say(role: str, *blocks: str | ContentBlock, **fields: Any) -> Message:
    """A message; strings become text blocks."""
    content: list[ContentBlock] = [
        TextBlock(text=block) if isinstance(block, str) else block for block in blocks
    ]
    return Message(role=role, content=content, **fields)


def answer(call_id: str, value: Any = "done", *, error: str | None = None) -> Message:
    """A tool message."""
    info = None if error is None else ErrorInfo(message=error)
    block = ToolResultBlock(
        tool_call_id=call_id, name="work", result=None if info else value, error=info
    )
    return Message(role="tool", content=[block])


class Log:
    """A branch that grows under its leaf."""

    def __init__(self, session_id: str = "s1") -> None:
        self.session_id = session_id
        self.entries: list[SessionEntry] = []

    def head(self) -> dict[str, Any]:
        return {
            "id": f"e{len(self.entries) + 1}",
            "session_id": self.session_id,
            "timestamp": WHEN,
            "parent_id": self.entries[-1].id if self.entries else None,
        }

    def add(self, entry: SessionEntry) -> str:
        self.entries.append(entry)
        return entry.id

    def message(self, message: Message) -> str:
        return self.add(MessageEntry(message=message, **self.head()))

    def user(self, text: str) -> str:
        return self.message(say("user", text))

    def assistant(self, *blocks: str | ContentBlock, **fields: Any) -> str:
        return self.message(say("assistant", *blocks, **fields))

    def result(self, call_id: str, value: Any = "done", *, error: str | None = None) -> str:
        return self.message(answer(call_id, value, error=error))

    def turn(self, number: int, *, size: int = 400) -> list[str]:
        """A question and its answer, of about *size* characters each."""
        return [
            self.user(f"question-{number} " + "q" * size),
            self.assistant(f"answer-{number} " + "a" * size),
        ]

    def turns(self, count: int, *, size: int = 400) -> Log:
        for number in range(1, count + 1):
            self.turn(number, size=size)
        return self

    def step(self, number: int, *, size: int = 400, name: str = "work", **arguments: Any) -> str:
        """A call and its result."""
        self.assistant(f"step-{number}", call(f"c{number}", name, **arguments))
        return self.result(f"c{number}", f"found-{number} " + "r" * size)

    def summary(self, text: str) -> str:
        return self.add(SummaryEntry(summary=text, **self.head()))

    def label(self, text: str, target: str) -> str:
        return self.add(LabelEntry(label=text, data={"targetId": target}, **self.head()))

    def custom(self) -> str:
        return self.add(CustomEntry(data={"type": "note"}, **self.head()))

    def model(self, name: str) -> str:
        model = ModelConfig(provider="mock", model=name)
        return self.add(ModelChangeEntry(model=model, **self.head()))

    def compaction(self, summary: str, **data: Any) -> str:
        return self.add(CompactionEntry(summary=summary, data=data, **self.head()))

    def compacted(self, result: CompactionResult | None) -> CompactionEntry:
        """Append what a strategy made, checked as a session checks it."""
        assert result is not None
        entry = validate_compaction(self.context(), result)
        self.add(entry)
        return entry

    def context(self, **fields: Any) -> CompactionContext:
        return CompactionContext(session_id=self.session_id, entries=list(self.entries), **fields)


class Summariser(MockProvider):
    """A summary model that answers each request with what a function makes of its text.

    Attributes:
        texts: What each request asked, in order.
    """

    def __init__(self, reply: Callable[[str], str] | str = "A short summary.") -> None:
        def play(request: ProviderRequest) -> Iterable[ProviderEvent]:
            text = request_text(request)
            self.texts.append(text)
            words = reply if isinstance(reply, str) else reply(text)
            usage = Usage(input_tokens=100, output_tokens=10)
            return [text_delta(words), done(usage=usage)]

        super().__init__(play)
        self.texts: list[str] = []


def request_text(request: ProviderRequest) -> str:
    (message,) = request.messages
    assert message.role == "user"
    return message.text


def strategy(provider: Any = None, **options: Any) -> LlmCompactionStrategy:
    """A strategy with small budgets, so that short branches are long ones."""
    options = {"summary_model": MODEL, "keep_recent_tokens": 420, **options}
    return LlmCompactionStrategy(
        provider=Summariser() if provider is None else provider,
        clock=lambda: 1_767_225_600,
        **options,
    )


def sent_tokens(entries: Sequence[SessionEntry]) -> int:
    """Estimate of what the model is sent of a branch."""
    context = rebuild_session_context(entries)
    return sum(map(estimate_message_tokens, context.messages)) + sum(
        map(estimate_text_tokens, context.summaries)
    )


def sent_ids(entries: Sequence[SessionEntry]) -> list[str]:
    """Messages and summaries that are sent raw, in path order."""
    compacted = latest_compaction(entries)
    through = -1 if compacted is None else compacted.through
    keep: frozenset[int] = frozenset() if compacted is None else compacted.keep
    return [
        entry.id
        for place, entry in enumerate(entries)
        if (isinstance(entry, MessageEntry) and (place > through or place in keep))
        or (isinstance(entry, SummaryEntry) and place > through and entry.summary.strip())
    ]


KINDS = [
    "turn", "turn", "step", "step", "steps", "failed", "open", "orphan", "big", "summary", "label",
    "custom", "model", "file",
]  # fmt: skip


def grow(log: Log, kind: str, size: int) -> None:
    """Add something of *kind*, of about *size* characters."""
    number = len(log.entries)
    match kind:
        case "turn":
            log.turn(number, size=size)
        case "step":
            log.step(number, size=size)
        case "steps":
            log.assistant(*(call(f"m{number}_{index}") for index in range(3)))
            for index in (2, 0, 1):
                log.result(f"m{number}_{index}", "r" * size)
        case "failed":
            log.assistant(call(f"f{number}", "write", path=f"failed-{number}"))
            log.result(f"f{number}", error="no")
        case "open":
            log.assistant(f"asks-{number}", call(f"o{number}"))
        case "orphan":
            log.result(f"nobody-{number}", "x" * size)
        case "big":
            log.step(number, size=size * 20)
        case "summary":
            log.summary(f"host-summary-{number} " + "s" * size)
        case "label":
            log.label(f"label-{number}", "e1")
        case "custom":
            log.custom()
        case "model":
            log.model(f"m{number}")
        case _:
            name = ("read", "write", "edit")[number % 3]
            log.step(number, size=size, name=name, path=f"file-{number % 7}.py")


@st.composite
def branches(draw: st.DrawFn, *, max_size: int = 30) -> Log:
    """A random branch: turns, batches of calls, unanswered and orphaned ones, other entries."""
    log = Log()
    log.user("the first question")
    steps = draw(
        st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1_500)), max_size=max_size)
    )
    for kind, size in steps:
        grow(log, kind, size)
    return log
