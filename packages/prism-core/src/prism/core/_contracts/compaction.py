"""Shrinking what the model sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from prism.core._wire import CompactionEntry, SessionEntry, Usage


class CompactionContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy is given: the branch and explicit options, nothing else.

    Attributes:
        entries: The branch from the root to the leaf.
        trigger: `manual`, `auto`, `overflow` or the host's own.
        protected_entry_ids: Message entries that must stay raw (the input of the run under way).
        keep_recent_entries: Overrides the strategy's own.
        max_summary_chars: Overrides the strategy's own.
        secrets: Exact strings that must not be in the summary; added to the strategy's own.
        instructions: What the summary should look at.
        metadata: The host's own facts, for the strategy only.
    """

    session_id: str
    entries: Sequence[SessionEntry]
    trigger: str = "manual"
    run_id: str | None = None
    protected_entry_ids: Sequence[str] = ()
    keep_recent_entries: int | None = None
    max_summary_chars: int | None = None
    secrets: Sequence[str] = ()
    instructions: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def leaf_id(self) -> str | None:
        """The last entry of the branch."""
        return self.entries[-1].id if self.entries else None


class CompactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy made.

    Attributes:
        entries: Exactly one compaction entry, whose parent is the leaf.
        usage: What a model charged for it.
    """

    summary: str
    entries: list[CompactionEntry]
    tokens_before: int | None = None
    tokens_after: int | None = None
    usage: Usage | None = None


@runtime_checkable
class CompactionStrategy(Protocol):
    """Turns older entries of a branch into a summary."""

    @property
    def name(self) -> str:
        """Stands in the compaction entry and in events."""
        ...

    async def compact(self, context: CompactionContext) -> CompactionResult | None:
        """The summary entry, or `None` when there is nothing to fold."""
        ...


class CompactionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a session compacts.

    Attributes:
        strategy: Default `DefaultCompactionStrategy()`.
        threshold_entries: Compact before a run when the context holds more entries than this;
            `None`: never by itself.
        on_overflow: `"compact"`: compact once and try again when the provider says that the
            context is too long.
    """

    strategy: CompactionStrategy | None = None
    threshold_entries: int | None = None
    keep_recent_entries: int | None = None
    max_summary_chars: int | None = None
    secrets: Sequence[str] = ()
    instructions: str | None = None
    metadata: dict[str, Any] | None = None
    on_overflow: str | None = None
