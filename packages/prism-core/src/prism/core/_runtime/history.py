"""The branch on which a session stands, kept up to date entry by entry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from prism.core._support.branch import (
    UNCOUNTED_KINDS,
    Compacted,
    Problem,
    context_of_path,
    count_context_entries,
    entry_kind,
    is_leaf_marker,
    latest_compaction,
    normalize_thinking,
    walk_path,
)
from prism.core._support.pairs import PairRepairer
from prism.core._wire import (
    CompactionEntry,
    CustomEntry,
    Message,
    MessageEntry,
    MetadataEntry,
    ModelChangeEntry,
    ModelConfig,
    SessionEntry,
    SummaryEntry,
    ToolCallBlock,
    ToolResultBlock,
)

APPROVAL_TYPE: Final = "prism.approval"
"""`type` of the custom entries that record approvals."""


class History:
    """A path and what follows from it; adding an entry costs one, not the path.

    Attributes:
        path: From the root to the leaf.
        summaries: What stands for compacted entries, oldest first.
        counted: Entries that auto-compaction counts.
        call_ids: Ids of all calls on the path.
        approvals: Approval records whose last state is `requested`, by call id.
        problems: What the path's walk met.
    """

    __slots__ = (
        "_hidden_calls",
        "approvals",
        "call_ids",
        "counted",
        "ends_in_compaction",
        "last_message",
        "leaf_id",
        "model",
        "on_path",
        "pairs",
        "path",
        "problems",
        "summaries",
        "thinking_level",
    )

    def __init__(self) -> None:
        self.path: list[SessionEntry] = []
        self.on_path: set[str] = set()
        self.leaf_id: str | None = None
        self.pairs: PairRepairer = PairRepairer()
        self.summaries: list[str] = []
        self.model: ModelConfig | None = None
        self.thinking_level: str | None = None
        self.counted: int = 0
        self.ends_in_compaction: bool = False
        self.last_message: Message | None = None
        self.call_ids: set[str] = set()
        self.approvals: dict[str, dict[str, Any]] = {}
        self.problems: list[Problem] = []
        self._hidden_calls: set[str] = set()

    @classmethod
    def load(cls, entries: Iterable[SessionEntry], leaf_id: str | None) -> History:
        """Walk to *leaf_id*; a hole ends the path there and is reported in `problems`."""
        history = cls()
        by_id = {entry.id: entry for entry in entries}
        path, problem = walk_path(by_id, leaf_id)
        if problem is not None:
            history.problems.append(problem)
        history._rebuild(path)
        return history

    def _rebuild(self, path: list[SessionEntry]) -> None:
        context = context_of_path(path, warnings=self.problems)
        self.path = path
        self.on_path = {entry.id for entry in path}
        self.leaf_id = context.leaf_id
        self.summaries = context.summaries
        self.model = context.model
        self.thinking_level = context.thinking_level
        self.pairs = PairRepairer()
        for message in context.messages:
            self.pairs.push(message)
        compacted: Compacted | None = latest_compaction(path)
        self.counted = count_context_entries(path, compacted)
        self.ends_in_compaction = False
        self.last_message = None
        self.call_ids = set()
        self.approvals = {}
        for entry in path:
            self._note(entry)
        shown = {call.id for message in context.messages for call in message.tool_calls}
        self._hidden_calls = self.call_ids - shown

    def append(self, entry: SessionEntry) -> None:
        """Take an entry that was just stored under the leaf."""
        if is_leaf_marker(entry):
            return
        if isinstance(entry, CompactionEntry) or self._brings_back(entry):
            self._rebuild([*self.path, entry])
            return
        self.path.append(entry)
        self.on_path.add(entry.id)
        self.leaf_id = entry.id
        if isinstance(entry, MessageEntry):
            self.pairs.push(entry.message)
            self.counted += 1
        elif isinstance(entry, SummaryEntry):
            if entry.summary.strip():
                self.summaries = [*self.summaries, entry.summary]
            self.counted += 1
        elif isinstance(entry, ModelChangeEntry):
            self.model = entry.model or self.model
            self.thinking_level = normalize_thinking(entry.thinking_level) or self.thinking_level
            self.counted += 1
        elif not isinstance(entry, CustomEntry | MetadataEntry):
            self.counted += entry_kind(entry) not in UNCOUNTED_KINDS
        self._note(entry)

    def _brings_back(self, entry: SessionEntry) -> bool:
        """Whether a late result makes a call visible that a compaction had put away."""
        if not self._hidden_calls or not isinstance(entry, MessageEntry):
            return False
        return any(
            isinstance(block, ToolResultBlock) and block.tool_call_id in self._hidden_calls
            for block in entry.message.content
        )

    def _note(self, entry: SessionEntry) -> None:
        """What is kept beside the context."""
        if isinstance(entry, MessageEntry):
            self.last_message = entry.message
            self.ends_in_compaction = False
            for block in entry.message.content:
                if isinstance(block, ToolCallBlock):
                    self.call_ids.add(block.id)
        elif isinstance(entry, CustomEntry):
            if entry.data.get("type") == APPROVAL_TYPE:
                self._note_approval(entry.data)
        else:
            kind = entry_kind(entry)
            if kind not in UNCOUNTED_KINDS:
                self.ends_in_compaction = kind == "compaction"

    def _note_approval(self, data: dict[str, Any]) -> None:
        call_id = data.get("toolCallId")
        if isinstance(call_id, str):
            self.approvals[call_id] = data
