"""Compaction without a model call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anyio.lowlevel import checkpoint

from prism.core._contracts import CompactionContext, CompactionResult, Secret
from prism.core._errors import UsageError
from prism.core._support.ids import Clock, IdMaker, format_timestamp, random_id, system_clock
from prism.core._support.limits import positive_int
from prism.core._support.redaction import SecretRedactor
from prism.core._support.tokens import estimate_message_tokens, estimate_text_tokens
from prism.core._wire import (
    CompactionData,
    CompactionEntry,
    MessageEntry,
    SummaryEntry,
    to_plain,
)
from prism.core.compaction._digest import digest
from prism.core.compaction._plan import plan_compaction

MAX_KEEP_RECENT_ENTRIES: Final = 10_000
"""Most messages that can be asked to stay raw."""

MAX_SUMMARY_CHARS: Final = 1_000_000
"""Longest summary that can be asked for, in characters."""


class DefaultCompactionStrategy:
    """Summarises what leaves the context by its newest lines, without a model.

    The summary holds the previous one, the text of users and of the model, summaries, model
    changes, labels, and the names of tools that were called and of tools that answered. It never
    holds thinking, arguments, results, metadata or known secrets.

    Args:
        name: Stands in the compaction entry and in events.
        keep_recent_entries: Messages that stay raw, 1 to `MAX_KEEP_RECENT_ENTRIES`; more stay
            where a call would be parted from its result.
        max_summary_chars: 1 to `MAX_SUMMARY_CHARS`. When more was said, the oldest lines go first,
            and the previous summary gets at most half of it.
        secrets: Exact strings that must not be in the summary.
        clock: Where the entry's timestamp comes from.
        new_id: Makes the entry's id.

    Raises:
        UsageError: `invalid_limit` for a number out of range, `invalid_secret` for a secret that
            is no string.
    """

    __slots__ = (
        "_clock",
        "_new_id",
        "_redactor",
        "keep_recent_entries",
        "max_summary_chars",
        "name",
    )

    def __init__(
        self,
        *,
        name: str = "default-compaction",
        keep_recent_entries: int = 8,
        max_summary_chars: int = 4_000,
        secrets: Sequence[str | Secret] = (),
        clock: Clock = system_clock,
        new_id: IdMaker = random_id,
    ) -> None:
        if not name:
            raise UsageError("A compaction strategy needs a name.", code="invalid_name")
        self.name: str = name
        self.keep_recent_entries: int = _keep(keep_recent_entries)
        self.max_summary_chars: int = _chars(max_summary_chars)
        self._redactor = SecretRedactor(secrets)
        self._clock = clock
        self._new_id = new_id

    def __repr__(self) -> str:
        return f"DefaultCompactionStrategy({self.name!r})"

    async def compact(self, context: CompactionContext) -> CompactionResult | None:
        """The summary entry under the leaf, or `None` when nothing newly leaves the context.

        Raises:
            UsageError: `invalid_limit` or `invalid_secret`, for an override in *context*.
        """
        await checkpoint()
        keep_recent = _keep(context.keep_recent_entries, self.keep_recent_entries)
        max_chars = _chars(context.max_summary_chars, self.max_summary_chars)
        redactor = self._redactor.extended(context.secrets)
        plan = plan_compaction(
            context.entries,
            keep_recent_entries=keep_recent,
            protected_entry_ids=context.protected_entry_ids,
        )
        if plan is None:
            return None
        summary = digest(
            plan.previous_summary,
            plan.leaving,
            max_chars=max_chars,
            redact=redactor.redact_text,
        )
        data = CompactionData(
            through_entry_id=plan.through_entry_id,
            keep_entry_ids=[entry.id for entry in plan.kept],
            strategy=self.name,
            trigger=context.trigger,
        )
        entry = CompactionEntry(
            id=self._new_id("entry"),
            session_id=context.session_id,
            timestamp=format_timestamp(self._clock()),
            parent_id=context.leaf_id,
            run_id=context.run_id,
            summary=summary,
            data=to_plain(data),
        )
        stay = sum(estimate_message_tokens(kept.message) for kept in plan.kept)
        stay += sum(estimate_text_tokens(later.summary) for later in plan.later)
        leave = sum(
            estimate_message_tokens(gone.message)
            if isinstance(gone, MessageEntry)
            else estimate_text_tokens(gone.summary)
            for gone in plan.leaving
            if isinstance(gone, MessageEntry | SummaryEntry)
        )
        leave += estimate_text_tokens(plan.previous_summary or "")
        return CompactionResult(
            summary=summary,
            entries=[entry],
            tokens_before=stay + leave,
            tokens_after=stay + estimate_text_tokens(summary),
        )


def _keep(value: int | None, default: int = 0) -> int:
    asked = default if value is None else value
    return positive_int("keep_recent_entries", asked, cap=MAX_KEEP_RECENT_ENTRIES)


def _chars(value: int | None, default: int = 0) -> int:
    asked = default if value is None else value
    return positive_int("max_summary_chars", asked, cap=MAX_SUMMARY_CHARS)
