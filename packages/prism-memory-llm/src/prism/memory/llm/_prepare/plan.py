"""A compaction before a model is asked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, cast

import msgspec

from prism.core import (
    CompactionData,
    CompactionEntry,
    LabelEntry,
    Message,
    MessageEntry,
    SessionEntry,
    SummaryEntry,
)
from prism.core.compaction import MAX_KEEP_RECENT_ENTRIES, whole_groups
from prism.memory.llm._file_ops import FileOperations, collect_file_operations
from prism.memory.llm._prepare.cut import choose_cut, turn_start
from prism.memory.llm._prepare.sent import Sent
from prism.memory.llm._tokens import checked_limit, estimate_entry_tokens, estimate_text_tokens

DEFAULT_KEEP_RECENT_TOKENS: Final = 20_000
"""About how much of the newest conversation stays raw, in estimated tokens."""

MAX_KEEP_RECENT_TOKENS: Final = 10_000_000
"""Above the window of any model."""


class CutPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a branch is cut.

    Attributes:
        through_entry_id: The last entry that is covered by a summary.
        first_kept_entry_id: The first message that stays raw; `None` when none does.
        turn_start_entry_id: The message that began the turn in which the cut falls; `None` for a
            cut between turns.
    """

    through_entry_id: str
    first_kept_entry_id: str | None = None
    turn_start_entry_id: str | None = None


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction before a model was asked.

    What is sent now is `history`, `turn_prefix`, `kept` and `later`, each entry in exactly one of
    them (labels come on top), and what the previous summary stands for.

    Attributes:
        history: What the summary has to cover, in path order.
        turn_prefix: The first part of the turn in which the cut falls; it is covered too.
        turn_request: The message that began that turn, where it stays raw.
        kept: Messages that stay raw, in path order.
        later: Summary entries that stay raw, in path order.
        previous_summary: Summary of the compaction that is in force; the new one carries it on.
        files: What the covered messages and earlier compactions read and changed.
        cut: Where the branch is cut.
        tokens_before: Estimate of what is sent now.
        tokens_leaving: Estimate of `history` and `turn_prefix`.
        tokens_kept: Estimate of `kept` and `later`.
    """

    history: list[SessionEntry]
    turn_prefix: list[SessionEntry]
    kept: list[MessageEntry]
    later: list[SummaryEntry]
    files: FileOperations
    cut: CutPoint
    tokens_before: int
    tokens_leaving: int
    tokens_kept: int
    turn_request: MessageEntry | None = None
    previous_summary: str | None = None

    @property
    def is_split_turn(self) -> bool:
        """Whether the cut falls inside a turn."""
        return bool(self.turn_prefix)

    def data(
        self, *, strategy: str, trigger: str, summary: str, files: FileOperations | None = None
    ) -> CompactionData:
        """What the compaction entry says about itself.

        Args:
            strategy: Name of the strategy.
            trigger: Why the branch is compacted.
            summary: The finished summary.
            files: Instead of the preparation's own, such as redacted ones.
        """
        files = self.files if files is None else files
        return CompactionData(
            through_entry_id=self.cut.through_entry_id,
            keep_entry_ids=[entry.id for entry in self.kept],
            strategy=strategy,
            trigger=trigger,
            first_kept_entry_id=self.cut.first_kept_entry_id,
            estimated_tokens_before=self.tokens_before,
            estimated_tokens_after=self.tokens_kept + estimate_text_tokens(summary),
            split_turn=True if self.is_split_turn else None,
            read_files=files.read_files or None,
            modified_files=files.modified_files or None,
        )


def prepare(
    entries: Sequence[SessionEntry],
    *,
    keep_recent_tokens: int = DEFAULT_KEEP_RECENT_TOKENS,
    keep_recent_entries: int | None = None,
    protected_entry_ids: Collection[str] = (),
    track_file_operations: bool = True,
    must_shrink: bool = False,
) -> Preparation | None:
    """Plan a compaction.

    Args:
        entries: The branch, from the root to the leaf.
        keep_recent_tokens: About how much stays raw. The cut never parts a call from its result;
            within a quarter of the budget it prefers the start of a turn. A single message or
            batch of calls that is more than the budget by itself does not stay.
        keep_recent_entries: Instead: how many messages stay raw at least.
        protected_entry_ids: Messages that stay raw whatever their place.
        track_file_operations: Collect the paths of file tools.
        must_shrink: Cover at least half of what is sent, whatever the budget.

    Returns:
        `None` when nothing newly leaves the context.

    Raises:
        UsageError: `invalid_limit`.
    """
    checked_limit("keep_recent_tokens", keep_recent_tokens, cap=MAX_KEEP_RECENT_TOKENS)
    if keep_recent_entries is not None:
        checked_limit("keep_recent_entries", keep_recent_entries, cap=MAX_KEEP_RECENT_ENTRIES)
    sent = Sent(entries)
    cut = choose_cut(
        sent,
        keep_recent_tokens=keep_recent_tokens,
        keep_recent_entries=keep_recent_entries,
        must_shrink=must_shrink,
    )
    if cut is None:
        return None
    keep = set(sent.places[cut:])
    if protected_entry_ids:
        protected = frozenset(protected_entry_ids)
        named = {
            place
            for place in sent.places[:cut]
            if entries[place].id in protected and isinstance(entries[place], MessageEntry)
        }
        if named:
            keep |= whole_groups(entries, named, through=len(entries) - 1) & set(sent.places)
    gone = [place for place in sent.places[:cut] if place not in keep]
    if not gone:
        return None
    # The boundary only moves on: what the previous compaction covered stays covered.
    last = max(gone[-1], sent.covered)
    boundary = next((place for place in sent.places if place > last), len(entries))
    turn = turn_start(sent, cut, keep)
    covers = frozenset(gone)
    history: list[SessionEntry] = []
    prefix: list[SessionEntry] = []
    for place in range(min(gone[0], sent.covered + 1), boundary):
        entry = entries[place]
        if place in covers or (place > sent.covered and isinstance(entry, LabelEntry)):
            (history if turn is None or place < turn else prefix).append(entry)
    if not any(isinstance(entry, MessageEntry | SummaryEntry) for entry in prefix):
        history += prefix
        prefix, turn = [], None
    kept = [
        entry
        for place in sent.places
        if place in keep and isinstance(entry := entries[place], MessageEntry)
    ]
    later = [
        entry
        for place in sent.places
        if place in keep and isinstance(entry := entries[place], SummaryEntry)
    ]
    stay: list[SessionEntry] = [*kept, *later]
    start = None if turn is None else entries[turn]
    files = FileOperations()
    if track_file_operations:
        messages = _messages([*history, *prefix])
        files = collect_file_operations(messages, earlier=_earlier_files(entries))
    return Preparation(
        history=history,
        turn_prefix=prefix,
        turn_request=start if isinstance(start, MessageEntry) and turn in keep else None,
        kept=kept,
        later=later,
        previous_summary=sent.previous_summary,
        files=files,
        cut=CutPoint(
            through_entry_id=entries[boundary - 1].id,
            first_kept_entry_id=kept[0].id if kept else None,
            turn_start_entry_id=None if start is None else start.id,
        ),
        tokens_before=sent.tokens_before,
        tokens_leaving=sum(map(estimate_entry_tokens, [*history, *prefix])),
        tokens_kept=sum(map(estimate_entry_tokens, stay)),
    )


def find_cut_point(
    entries: Sequence[SessionEntry], *, keep_recent_tokens: int = DEFAULT_KEEP_RECENT_TOKENS
) -> CutPoint | None:
    """Where `prepare` would cut the branch; `None` when nothing newly leaves the context.

    Args:
        entries: The branch, from the root to the leaf.
        keep_recent_tokens: About how much stays raw.

    Raises:
        UsageError: `invalid_limit`.
    """
    preparation = prepare(
        entries, keep_recent_tokens=keep_recent_tokens, track_file_operations=False
    )
    return None if preparation is None else preparation.cut


def _messages(entries: Sequence[SessionEntry]) -> Iterator[Message]:
    return (entry.message for entry in entries if isinstance(entry, MessageEntry))


def _earlier_files(entries: Sequence[SessionEntry]) -> FileOperations:
    """The files of all compactions on the path, whichever strategy made the latest one."""
    read: dict[str, None] = {}
    modified: dict[str, None] = {}
    for entry in entries:
        if isinstance(entry, CompactionEntry) and entry.data:
            read.update(dict.fromkeys(_strings(entry.data.get("readFiles"))))
            modified.update(dict.fromkeys(_strings(entry.data.get("modifiedFiles"))))
    return FileOperations(read_files=list(read), modified_files=list(modified))


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list):
        return []
    items = cast("list[object]", value)
    return [item for item in items if isinstance(item, str)]
