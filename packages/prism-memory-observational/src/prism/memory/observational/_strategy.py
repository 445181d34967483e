"""Compaction from memory that is there already: no model call, nothing to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from secrets import token_hex
from typing import Final, Literal

import msgspec
from anyio.lowlevel import checkpoint

from prism.core import (
    CompactionData,
    CompactionEntry,
    CompactionError,
    MessageEntry,
    Secret,
    SecretRedactor,
    SessionEntry,
    SummaryEntry,
    UsageError,
    error_info,
)
from prism.core.compaction import (
    CompactionContext,
    CompactionPlan,
    CompactionResult,
    CompactionStrategy,
    DefaultCompactionStrategy,
    estimate_message_tokens,
    estimate_text_tokens,
    latest_compaction,
    plan_compaction,
)
from prism.memory.observational._ledger import Ledger, fold_ledger
from prism.memory.observational._lines import one_line
from prism.memory.observational._projection import (
    MAX_FOLDED_BYTES,
    MAX_SUMMARY_BYTES,
    Fold,
    fold_memory,
    folded_details,
    snapshot_of,
)
from prism.memory.observational._render import MEMORY_PREAMBLE, render_memory
from prism.memory.observational._settings import (
    ObservationalMemorySettings,
    checked_settings,
    resolve_settings,
)
from prism.memory.observational._sources import is_source

KEEP_FACTOR: Final = 4
"""To how many times `keep_recent_entries` the kept messages may grow for unobserved ones."""

MAX_INSTRUCTION_CHARS: Final = 4_000
"""How much of a caller's instructions the summary repeats, in characters."""

STRATEGY_NAME: Final = "observational-memory"


def random_id(prefix: str) -> str:
    """`prefix_` and 80 random bits in hex."""
    return f"{prefix}_{token_hex(10)}"


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the strategy decided: a result, nothing, or that another one should.

    Attributes:
        result: The compaction, when it made one.
        why_other: Why the fallback should do it; `None` when it should not.
    """

    result: CompactionResult | None = None
    why_other: str | None = None


class ObservationalCompactionStrategy:
    """Compacts a branch by the memory that its workers recorded.

    It makes no model call, waits for nothing and appends no record; it is linear in the entries.
    Making it has no effect, and it holds nothing between compactions, so that sessions can share
    it.

    What the observer has not reached yet is not cut off: the raw messages grow back to the first
    unobserved one, up to `KEEP_FACTOR` times `keep_recent_entries`. What lies before that is
    listed in the entry's `uncoveredEntryIds`.

    Args:
        name: Stands in the compaction entry and in events.
        settings: For `keep_recent_entries` and `observations_pool_max_tokens`; default: the
            defaults.
        keep_recent_entries: Messages that stay raw, 1 to 10,000; overrides the settings' own.
        observations_pool_max_tokens: Overrides the settings' own.
        fallback: Compacts while there is no memory to show, and when this strategy fails; `None`:
            nothing does. Default: a `DefaultCompactionStrategy` that keeps as many messages.
        max_summary_bytes: Longest memory text, at most the default, 256 KiB.
        max_folded_bytes: Longest snapshot in the entry, at most the default, 512 KiB.
        preamble: What stands before the records.
        secrets: Exact strings that must not be in the summary.
        clock: Seconds since the epoch; where the entry's timestamp comes from.
        new_id: Makes the entry's id from a prefix.

    Raises:
        UsageError: `invalid_setting`, `invalid_limit` or `invalid_secret`.
    """

    __slots__ = (
        "_clock", "_new_id", "_redactor", "fallback", "keep_recent_entries", "max_folded_bytes",
        "max_summary_bytes", "name", "observations_pool_max_tokens", "preamble",
    )  # fmt: skip

    def __init__(
        self,
        *,
        name: str = STRATEGY_NAME,
        settings: ObservationalMemorySettings | None = None,
        keep_recent_entries: int | None = None,
        observations_pool_max_tokens: int | None = None,
        fallback: CompactionStrategy | Literal["default"] | None = "default",
        max_summary_bytes: int = MAX_SUMMARY_BYTES,
        max_folded_bytes: int = MAX_FOLDED_BYTES,
        preamble: str = MEMORY_PREAMBLE,
        secrets: Sequence[str | Secret] = (),
        clock: Callable[[], float] = time.time,
        new_id: Callable[[str], str] = random_id,
    ) -> None:
        if not name:
            raise UsageError("A compaction strategy needs a name.", code="invalid_name")
        base = checked_settings(settings or ObservationalMemorySettings())
        given = resolve_settings(
            keep_recent_entries=keep_recent_entries,
            observations_pool_max_tokens=observations_pool_max_tokens,
        ).values
        self.name: str = name
        self.keep_recent_entries: int = (
            base.keep_recent_entries if keep_recent_entries is None else given.keep_recent_entries
        )
        self.observations_pool_max_tokens: int = (
            base.observations_pool_max_tokens
            if observations_pool_max_tokens is None
            else given.observations_pool_max_tokens
        )
        self.fallback: CompactionStrategy | None = (
            DefaultCompactionStrategy(keep_recent_entries=self.keep_recent_entries)
            if fallback == "default"
            else fallback
        )
        self.max_summary_bytes: int = _bytes(
            "max_summary_bytes", max_summary_bytes, MAX_SUMMARY_BYTES
        )
        self.max_folded_bytes: int = _bytes("max_folded_bytes", max_folded_bytes, MAX_FOLDED_BYTES)
        self.preamble: str = preamble
        self._redactor = SecretRedactor(secrets)
        self._clock = clock
        self._new_id = new_id

    def __repr__(self) -> str:
        return f"ObservationalCompactionStrategy({self.name!r})"

    async def compact(self, context: CompactionContext) -> CompactionResult | None:
        """The summary entry under the leaf, or `None` when nothing newly leaves the context.

        Raises:
            UsageError: `invalid_setting` or `invalid_secret`, for an override in *context*.
            CompactionError: This strategy failed, and there is no fallback.
        """
        await checkpoint()
        keep = self._keep(context)
        redactor = self._redactor.extended(context.secrets)
        failure: Exception | None = None
        try:
            outcome = self._decide(context, keep, redactor)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the compaction
            failure = error
            outcome = _Outcome(why_other="failed")
        if outcome.why_other is None:
            return outcome.result
        if self.fallback is not None:
            return await self.fallback.compact(context)
        if isinstance(failure, CompactionError):
            raise failure
        if failure is not None:
            info = error_info(failure, redact=redactor.redact_text)
            raise CompactionError(f"The memory could not be folded: {info.message}")
        return None

    def _keep(self, context: CompactionContext) -> int:
        asked = context.keep_recent_entries
        if asked is None:
            return self.keep_recent_entries
        return resolve_settings(keep_recent_entries=asked).values.keep_recent_entries

    def _decide(self, context: CompactionContext, keep: int, redactor: SecretRedactor) -> _Outcome:
        path = context.entries if isinstance(context.entries, list) else list(context.entries)
        ledger = fold_ledger(path)
        if not ledger.observations and not ledger.reflections:
            return _Outcome(why_other="no_memory")
        if _only_in_other_summary(path, ledger):
            return _Outcome(why_other="other_summary")
        plan = plan_compaction(
            path,
            keep_recent_entries=_kept_messages(path, ledger, keep),
            protected_entry_ids=context.protected_entry_ids,
        )
        if plan is None:
            # The provider cannot take what there is, so the unobserved messages cannot all stay.
            return _Outcome(why_other="overflow" if context.trigger == "overflow" else None)
        raw = {entry.id for entry in plan.kept}
        fold = fold_memory(
            path,
            ledger,
            raw,
            pool_max_tokens=self.observations_pool_max_tokens,
            max_summary_bytes=self._summary_bytes(context),
            max_folded_bytes=self.max_folded_bytes,
        )
        summary = render_memory(
            fold.reflections,
            fold.observations,
            left_out=fold.left_out,
            preamble=self.preamble,
        )
        if not summary:
            return _Outcome(why_other="nothing_to_show")
        summary = redactor.redact_text(summary + _focus(context.instructions))
        uncovered = _uncovered(path, ledger, plan, raw)
        return _Outcome(result=self._result(context, plan, fold, summary, uncovered))

    def _summary_bytes(self, context: CompactionContext) -> int:
        asked = context.max_summary_chars
        return self.max_summary_bytes if asked is None else min(asked, self.max_summary_bytes)

    def _result(
        self,
        context: CompactionContext,
        plan: CompactionPlan,
        fold: Fold,
        summary: str,
        uncovered: list[str],
    ) -> CompactionResult:
        data = CompactionData(
            through_entry_id=plan.through_entry_id,
            keep_entry_ids=[entry.id for entry in plan.kept],
            strategy=self.name,
            trigger=context.trigger,
            memory=folded_details(fold),
            uncovered_entry_ids=uncovered or None,
        )
        entry = CompactionEntry(
            id=self._new_id("entry"),
            session_id=context.session_id,
            timestamp=_timestamp(self._clock()),
            parent_id=context.leaf_id,
            run_id=context.run_id,
            summary=summary,
            data=msgspec.to_builtins(data),
        )
        stay = sum(estimate_message_tokens(kept.message) for kept in plan.kept)
        stay += sum(estimate_text_tokens(later.summary) for later in plan.later)
        leave = sum(_tokens(gone) for gone in plan.leaving)
        leave += estimate_text_tokens(plan.previous_summary or "")
        return CompactionResult(
            summary=summary,
            entries=[entry],
            tokens_before=stay + leave,
            tokens_after=stay + estimate_text_tokens(summary),
        )


def _bytes(name: str, value: object, cap: int) -> int:
    if type(value) is not int or not 0 < value <= cap:
        raise UsageError(f"{name} must be an integer from 1 to {cap}.", code="invalid_limit")
    return value


def _timestamp(seconds: float) -> str:
    at = datetime.fromtimestamp(seconds, tz=UTC)
    return f"{at.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def _tokens(entry: SessionEntry) -> int:
    if isinstance(entry, MessageEntry):
        return estimate_message_tokens(entry.message)
    return estimate_text_tokens(entry.summary) if isinstance(entry, SummaryEntry) else 0


def _focus(instructions: str | None) -> str:
    """What the caller asked the summary to look at, as a block of its own at the end."""
    text = one_line(instructions or "")
    if not text:
        return ""
    if len(text) > MAX_INSTRUCTION_CHARS:
        text = text[: MAX_INSTRUCTION_CHARS - 1] + "…"
    return f"\n\n## What matters now, as asked for at this compaction\n{text}"


def _only_in_other_summary(path: list[SessionEntry], ledger: Ledger) -> bool:
    """Whether another strategy's summary alone stands for messages that nobody observed."""
    compacted = latest_compaction(path)
    if compacted is None or snapshot_of(compacted.entry) is not None:
        return False
    return any(
        is_source(path[place]) and place not in compacted.keep
        for place in range(ledger.observed.place + 1, compacted.through + 1)
    )


def _kept_messages(path: list[SessionEntry], ledger: Ledger, keep: int) -> int:
    """How many messages stay raw, so that none is cut off that nobody observed."""
    compacted = latest_compaction(path)
    through = -1 if compacted is None else compacted.through
    raw = frozenset[int]() if compacted is None else compacted.keep
    count = 0
    wanted = keep
    for place in range(len(path) - 1, -1, -1):
        entry = path[place]
        if not isinstance(entry, MessageEntry) or (place <= through and place not in raw):
            continue
        count += 1
        if place > ledger.observed.place and is_source(entry):
            wanted = max(wanted, count)
        if count >= keep * KEEP_FACTOR:
            break
    return wanted


def _uncovered(
    path: list[SessionEntry], ledger: Ledger, plan: CompactionPlan, raw: set[str]
) -> list[str]:
    """What the model will see neither raw nor through memory, in the order of the branch."""
    missing = {
        entry.id
        for entry in path[ledger.observed.place + 1 :]
        if is_source(entry) and entry.id not in raw
    }
    # A host's own summaries are not observed.
    missing |= {
        entry.id
        for entry in plan.leaving
        if isinstance(entry, SummaryEntry) and entry.summary.strip()
    }
    return [entry.id for entry in path if entry.id in missing] if missing else []
