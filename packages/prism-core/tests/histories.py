"""Session trees for tests: a writer of entries, and random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from prism.core._support.branch import current_leaf
from prism.core._wire import (
    CompactionEntry,
    ContentBlock,
    CustomEntry,
    ErrorInfo,
    EventEntry,
    LabelEntry,
    Message,
    MessageEntry,
    MetadataEntry,
    ModelChangeEntry,
    ModelConfig,
    OpaqueEntry,
    SessionEntry,
    SummaryEntry,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    encode,
)

WHEN = "2026-01-01T00:00:00.000Z"


def say(role: str, *blocks: str | ContentBlock, **fields: Any) -> Message:
    """A message; strings become text blocks."""
    content: list[ContentBlock] = [
        TextBlock(text=block) if isinstance(block, str) else block for block in blocks
    ]
    return Message(role=role, content=content, **fields)


def call(call_id: str, name: str = "work", **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name=name, arguments=arguments)


def answer(call_id: str, value: Any = "done", *, code: str | None = None) -> Message:
    """A tool message; with *code*, one that no tool gave."""
    error = None if code is None else ErrorInfo(message=code, code=code)
    block = ToolResultBlock(
        tool_call_id=call_id, name="work", result=None if error else value, error=error
    )
    return Message(role="tool", content=[block])


class Log:
    """Appends entries under the current leaf, as a session does."""

    def __init__(self, session_id: str = "s1") -> None:
        self.session_id = session_id
        self.entries: list[SessionEntry] = []

    @property
    def leaf(self) -> str | None:
        return current_leaf(self.entries)

    def _head(self, **fields: Any) -> dict[str, Any]:
        head = {
            "id": f"e{len(self.entries) + 1}",
            "session_id": self.session_id,
            "timestamp": WHEN,
            "parent_id": self.leaf,
        }
        return {**head, **fields}

    def add(self, entry: SessionEntry) -> str:
        self.entries.append(entry)
        return entry.id

    def message(self, message: Message, **fields: Any) -> str:
        return self.add(MessageEntry(message=message, **self._head(**fields)))

    def messages(self, messages: Iterable[Message]) -> list[str]:
        return [self.message(message) for message in messages]

    def user(self, text: str) -> str:
        return self.message(say("user", text))

    def assistant(self, *blocks: str | ContentBlock, **fields: Any) -> str:
        return self.message(say("assistant", *blocks, **fields))

    def result(self, call_id: str, value: Any = "done", *, code: str | None = None) -> str:
        return self.message(answer(call_id, value, code=code))

    def turn(self, number: int) -> list[str]:
        """A question and its answer."""
        return [self.user(f"question-{number}"), self.assistant(f"answer-{number}")]

    def summary(self, text: str) -> str:
        return self.add(SummaryEntry(summary=text, **self._head()))

    def compaction(
        self,
        summary: str = "what was",
        *,
        through: object = None,
        keep: object = None,
        **data: object,
    ) -> str:
        if through is not None:
            data["throughEntryId"] = through
        if keep is not None:
            data["keepEntryIds"] = keep
        return self.add(CompactionEntry(summary=summary, data=data or None, **self._head()))

    def model(self, model: str | None = None, *, thinking: str | None = None) -> str:
        config = None if model is None else ModelConfig(provider="mock", model=model)
        return self.add(ModelChangeEntry(model=config, thinking_level=thinking, **self._head()))

    def label(self, label: str | None, target: str) -> str:
        return self.add(LabelEntry(label=label, data={"targetId": target}, **self._head()))

    def custom(self, **data: Any) -> str:
        return self.add(CustomEntry(data={"type": "note", **data}, **self._head()))

    def metadata(self, **data: Any) -> str:
        return self.add(MetadataEntry(data=data, **self._head()))

    def event(self) -> str:
        return self.add(EventEntry(event={"type": "agent_started"}, **self._head()))

    def opaque(self) -> str:
        head = self._head()
        fields = {
            "kind": "of_the_future",
            "id": head["id"],
            "sessionId": self.session_id,
            "timestamp": WHEN,
        }
        if head["parent_id"] is not None:
            fields["parentId"] = head["parent_id"]
        return self.add(
            OpaqueEntry(
                id=head["id"],
                session_id=self.session_id,
                parent_id=head["parent_id"],
                kind="of_the_future",
                raw=encode(fields),
            )
        )

    def checkout(self, leaf_id: str | None) -> str:
        data = {"type": "leaf", "leafId": leaf_id}
        return self.add(MetadataEntry(data=data, **self._head(parent_id=leaf_id)))


CALL_IDS = st.sampled_from(["c1", "c2", "c3", "c1_2", ""])


WORDS = st.sampled_from(["", " ", "word", "other word"])
STOP_REASONS = st.sampled_from(["stop", "tool_use", "aborted", "error"])
RESULT_CODES = st.sampled_from([None, None, "interrupted", "skipped", "boom"])
SHAPES = st.sampled_from(["assistant", "calls", "result", "results", "misplaced", "user"])


@st.composite
def any_messages(draw: st.DrawFn) -> Message:
    """A message of any role: with and without text, calls and results, also where none belong."""
    shape = draw(SHAPES)
    if shape == "user":
        return say("user", draw(WORDS))
    if shape == "result":
        return answer(draw(CALL_IDS), code=draw(RESULT_CODES))
    if shape == "results":
        ids = draw(st.lists(CALL_IDS, max_size=2))
        return say("tool", *(answer(key).content[0] for key in ids), draw(WORDS))
    if shape == "misplaced":
        role, key = draw(st.sampled_from(["user", "assistant"])), draw(CALL_IDS)
        return say(role, answer(key).content[0], call(key), draw(WORDS))
    calls = [call(key) for key in draw(st.lists(CALL_IDS, max_size=3))]
    if shape == "calls":
        return say("assistant", *calls)
    return say("assistant", draw(WORDS), *calls, stop_reason=draw(STOP_REASONS))


def conversations(*, max_size: int = 25) -> st.SearchStrategy[list[Message]]:
    """Messages in any order: orphans, double results, equal ids, empty and broken ones."""
    return st.lists(any_messages(), max_size=max_size)


def assert_pairs_are_whole(messages: Sequence[Message], *, waiting: Sequence[str] = ()) -> None:
    """What every vendor demands of a conversation."""
    seen: set[str] = set()
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        assert message.content, "an empty message"
        assert message.role != "tool", "a result without a call before it"
        asked = [block.id for block in message.content if isinstance(block, ToolCallBlock)]
        assert not any(isinstance(block, ToolResultBlock) for block in message.content)
        assert message.role == "assistant" or not asked
        assert "" not in asked
        assert not seen & set(asked), "a call id is used twice"
        assert len(set(asked)) == len(asked)
        seen.update(asked)
        answered: list[str] = []
        while at < len(messages) and messages[at].role == "tool":
            (block,) = messages[at].content
            assert isinstance(block, ToolResultBlock)
            answered.append(block.tool_call_id)
            at += 1
        if at == len(messages):
            asked = [key for key in asked if key not in waiting or key in answered]
        assert answered == asked, "results do not follow their calls, in call order"


COMMON_KINDS = ["user", "assistant", "any"]
RARE_KINDS = [
    "calls", "summary", "compaction", "broken", "model", "label", "custom", "metadata", "event",
    "opaque", "checkout",
]  # fmt: skip
KINDS = [*COMMON_KINDS, *COMMON_KINDS, *RARE_KINDS]


@st.composite
def trees(draw: st.DrawFn, *, max_size: int = 40) -> Log:
    """A random tree with every kind of entry, and compactions good and bad."""
    log = Log()
    for kind in draw(st.lists(st.sampled_from(KINDS), max_size=max_size)):
        _grow(draw, log, kind)
    return log


def _grow(draw: st.DrawFn, log: Log, kind: str) -> None:
    number = len(log.entries)
    known = [entry.id for entry in log.entries]
    some_id = st.sampled_from([*known, "nowhere"])
    words: dict[str, Callable[[], object]] = {
        "user": lambda: log.user(f"word{number}"),
        "assistant": lambda: log.assistant(f"word{number}"),
        "any": lambda: log.message(draw(any_messages())),
        "calls": lambda: _grow_calls(draw, log),
        "summary": lambda: log.summary(draw(st.sampled_from(["", f"sum{number}"]))),
        "compaction": lambda: log.compaction(
            f"compacted{number}",
            through=draw(st.none() | some_id),
            keep=draw(st.none() | st.lists(some_id, max_size=4)),
        ),
        "broken": lambda: log.compaction(
            draw(st.sampled_from(["", "  ", "fine"])),
            through=draw(st.sampled_from(["nowhere", 7, ["e1"], f"e{number + 5}"])),
            keep=draw(st.sampled_from([None, "e1", [1], ["e1"]])),
        ),
        "model": lambda: log.model(
            draw(st.none() | st.sampled_from(["m1", "m2"])),
            thinking=draw(st.none() | st.sampled_from(["none", "high"])),
        ),
        "label": lambda: log.label(draw(st.none() | st.just("name")), draw(some_id)),
        "custom": log.custom,
        "metadata": log.metadata,
        "event": log.event,
        "opaque": log.opaque,
        "checkout": lambda: log.checkout(draw(st.sampled_from([*known, None]))),
    }
    words[kind]()


def _grow_calls(draw: st.DrawFn, log: Log) -> None:
    number = len(log.entries)
    count = draw(st.integers(1, 3))
    log.assistant(*(call(f"k{number}_{index}") for index in range(count)))
    for index in draw(st.permutations(range(count))):
        if draw(st.booleans()):
            log.result(f"k{number}_{index}")
        if draw(st.integers(0, 3)) == 0:
            log.custom(between=True)
