"""Which entries a compaction keeps raw, and which newly leave the context."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from prism.core._support.branch import latest_compaction, whole_groups
from prism.core._wire import CompactionEntry, MessageEntry, SessionEntry, SummaryEntry


class CompactionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one compaction of a branch does.

    Attributes:
        previous_summary: Summary of the compaction that is in force; a new one has to carry it on.
        leaving: What the new summary has to cover, in path order: messages that are sent now and
            will not be, and all entries of other kinds up to the new `throughEntryId`.
        kept: Message entries that stay raw, in path order.
        later: Summary entries that stay raw, in path order.
        through_entry_id: The last entry that the new summary covers.
    """

    previous_summary: str | None
    leaving: list[SessionEntry]
    kept: list[MessageEntry]
    later: list[SummaryEntry]
    through_entry_id: str


def plan_compaction(
    path: Sequence[SessionEntry],
    *,
    keep_recent_entries: int,
    protected_entry_ids: Collection[str] = (),
) -> CompactionPlan | None:
    """Plan a compaction that keeps the newest messages; linear in the entries.

    Args:
        path: From the root to the leaf.
        keep_recent_entries: How many of the messages in the context stay raw; more do where a
            call would be parted from its result.
        protected_entry_ids: Messages that stay raw whatever their place.

    Returns:
        `None` when nothing newly leaves the context.
    """
    previous = latest_compaction(path)
    covered = -1 if previous is None else previous.through
    raw: Collection[int] = () if previous is None else previous.keep
    sent = [
        place
        for place, entry in enumerate(path)
        if isinstance(entry, MessageEntry) and (place > covered or place in raw)
    ]
    if not sent:
        return None
    recent = set(sent[-keep_recent_entries:])
    if protected_entry_ids:
        protected = frozenset(protected_entry_ids)
        recent.update(place for place in sent if path[place].id in protected)
    keep = whole_groups(path, recent, through=len(path) - 1)
    gone = {place for place in sent if place not in keep}
    # The boundary only moves on: what the previous compaction covered stays covered.
    boundary = max(gone, default=-1)
    boundary = next((place for place in sent if place > max(boundary, covered)), len(path))
    leaving = [
        path[place]
        for place in range(boundary)
        if place in gone or (place > covered and not isinstance(path[place], _NOT_SUMMARISED))
    ]
    if not gone and not any(_is_sent_summary(entry) for entry in leaving):
        return None
    return CompactionPlan(
        previous_summary=None if previous is None else previous.entry.summary,
        leaving=leaving,
        kept=[
            entry
            for place in sent
            if place in keep and isinstance(entry := path[place], MessageEntry)
        ],
        later=[
            entry
            for entry in path[boundary:]
            if isinstance(entry, SummaryEntry) and _is_sent_summary(entry)
        ],
        through_entry_id=path[boundary - 1].id,
    )


# Messages leave by themselves; an older compaction's content is in the previous summary.
_NOT_SUMMARISED = (MessageEntry, CompactionEntry)


def _is_sent_summary(entry: SessionEntry) -> bool:
    return isinstance(entry, SummaryEntry) and bool(entry.summary.strip())
