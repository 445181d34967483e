"""What of a ledger is shown: now, in full, and by the next compaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from prism.core import CompactionEntry, CompactionError, MessageEntry, SessionEntry, encode
from prism.core.compaction import latest_compaction
from prism.memory.observational._ledger import Ledger, fold_ledger
from prism.memory.observational._parse import FoldedMemory, parse_folded
from prism.memory.observational._records import (
    FOLDED,
    RECORD_VERSION,
    RELEVANCES,
    Observation,
    Reflection,
)
from prism.memory.observational._render import render_memory

MAX_SUMMARY_BYTES: Final = 256 * 1024
"""Longest memory text, in bytes of UTF-8."""

MAX_FOLDED_BYTES: Final = 512 * 1024
"""Longest snapshot in a compaction entry, in bytes of JSON."""

_SPARE_BYTES: Final = 512
"""For the snapshot's own fields, and for the line about records that had no room."""

_RANK: Final = {relevance: rank for rank, relevance in enumerate(RELEVANCES)}


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """Several looks at the memory of one branch.

    Attributes:
        ledger: All that was recorded.
        observations: In full: recorded, not dropped, by a record whose marker is on the branch.
        reflections: In full: recorded, not superseded, likewise.
        visible: What the model sees now: the snapshot of the compaction in force; `None` without
            one, and when another strategy has compacted since.
        stale: The newest snapshot, when another strategy has compacted since.
        added_observations: In full but not visible.
        added_reflections: In full but not visible.
        removed_observations: Visible, but dropped meanwhile.
    """

    ledger: Ledger
    observations: tuple[Observation, ...]
    reflections: tuple[Reflection, ...]
    visible: FoldedMemory | None
    stale: FoldedMemory | None
    added_observations: int
    added_reflections: int
    removed_observations: int


def build_projection(
    entries: Iterable[SessionEntry], *, through_entry_id: str | None = None
) -> Projection:
    """Fold a branch and look at it.

    Args:
        entries: One path, from the root to the leaf.
        through_entry_id: The last entry that is looked at; default: all are.

    Raises:
        UsageError: `entry_not_found`.
    """
    path = entries if isinstance(entries, list) else list(entries)
    ledger = fold_ledger(path, through_entry_id=through_entry_id)
    path = path[: ledger.size]
    observations, reflections = full_memory(ledger)
    newest = latest_snapshot(path, ledger)
    visible = visible_memory(path)
    shown = frozenset(one.id for one in visible.observations) if visible else frozenset[str]()
    shown_too = frozenset(one.id for one in visible.reflections) if visible else frozenset[str]()
    full = {one.id for one in observations}
    return Projection(
        ledger=ledger,
        observations=observations,
        reflections=reflections,
        visible=visible,
        stale=newest if visible is None else None,
        added_observations=sum(one.id not in shown for one in observations),
        added_reflections=sum(one.id not in shown_too for one in reflections),
        removed_observations=len(shown - full),
    )


def full_memory(ledger: Ledger) -> tuple[tuple[Observation, ...], tuple[Reflection, ...]]:
    """What is in use, without records whose marker names no entry of the branch."""
    placed = ledger.placed_ids
    return (
        tuple(one for one in ledger.active_observations if one.id in placed),
        tuple(one for one in ledger.active_reflections if one.id in placed),
    )


def snapshot_of(entry: SessionEntry) -> FoldedMemory | None:
    """The snapshot in a compaction entry."""
    if not isinstance(entry, CompactionEntry):
        return None
    data = entry.data or {}
    through = data.get("throughEntryId")
    return parse_folded(
        data.get("memory"),
        through_entry_id=through if isinstance(through, str) else None,
        entry_id=entry.id,
    )


def latest_snapshot(path: Sequence[SessionEntry], ledger: Ledger) -> FoldedMemory | None:
    """The newest snapshot on the path whose boundary is still on it."""
    for entry in reversed(path):
        found = snapshot_of(entry)
        if found is not None and found.through_entry_id in ledger.places:
            return found
    return None


def visible_memory(path: Sequence[SessionEntry]) -> FoldedMemory | None:
    """The snapshot of the compaction that is in force, if it holds one."""
    compacted = latest_compaction(path)
    return None if compacted is None else snapshot_of(compacted.entry)


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction will show.

    Attributes:
        full: Whether it is rendered afresh.
        left_out: Observations that had no room.
        pool_tokens: Tokens of the active observations, by which a full fold is decided.
    """

    full: bool
    observations: tuple[Observation, ...]
    reflections: tuple[Reflection, ...]
    dropped_ids: tuple[str, ...]
    pool_tokens: int
    left_out: int = 0


def fold_memory(
    path: Sequence[SessionEntry],
    ledger: Ledger,
    raw_ids: Collection[str],
    *,
    pool_max_tokens: int,
    max_summary_bytes: int = MAX_SUMMARY_BYTES,
    max_folded_bytes: int = MAX_FOLDED_BYTES,
) -> Fold:
    """Choose what the summary of a compaction shows.

    Between full folds everything that was shown stays as it is, and what newly leaves the raw
    context is added at the end. A full fold shows the memory afresh: what was dropped or
    superseded is gone, and new reflections are in.

    Args:
        path: From the root to the leaf.
        ledger: Of that path.
        raw_ids: Entries that the model will still see raw.
        pool_max_tokens: A pool of this size, or a text of it, makes the fold a full one.
        max_summary_bytes: Longest text; the least relevant and oldest observations go first.
        max_folded_bytes: Longest snapshot, likewise.

    Raises:
        CompactionError: `memory_too_large`: not even the reflections fit.
    """
    previous = latest_snapshot(path, ledger)
    shown = previous.observations if previous else ()
    # What the last full fold left out for good does not come back.
    settled = {one.id for one in shown}
    settled.update(previous.dropped_observation_ids if previous else ())
    leaves = _Leaving(path, ledger, raw_ids)
    newcomers = tuple(
        one
        for one in ledger.observations
        if one.id not in settled and one.id in ledger.placed_ids and leaves(one)
    )
    if previous is not None:
        reflections = previous.reflections
    else:
        # What a host carried over is known before anything is compacted.
        reflections = tuple(
            one for one in full_memory(ledger)[1] if one.origin_session_id is not None
        )
    fold = Fold(
        full=False,
        observations=(*shown, *newcomers),
        reflections=reflections,
        dropped_ids=previous.dropped_observation_ids if previous else (),
        pool_tokens=ledger.pool_tokens,
    )
    text_tokens = sum(one.token_count for one in fold.observations)
    small = max(ledger.pool_tokens, text_tokens) < pool_max_tokens
    if small and _fits(fold, max_summary_bytes, max_folded_bytes):
        return fold
    active, lasting = full_memory(ledger)
    full = Fold(
        full=True,
        observations=tuple(one for one in active if leaves(one)),
        reflections=lasting,
        dropped_ids=ledger.dropped_ids,
        pool_tokens=ledger.pool_tokens,
    )
    return _trimmed(full, max_summary_bytes, max_folded_bytes)


class _Leaving:
    """Whether an observation has a source that the model will not see raw."""

    __slots__ = ("_gone", "_places")

    def __init__(
        self, path: Sequence[SessionEntry], ledger: Ledger, raw_ids: Collection[str]
    ) -> None:
        self._places = ledger.places
        raw = raw_ids if isinstance(raw_ids, set | frozenset) else set(raw_ids)
        self._gone = {
            entry.id for entry in path if isinstance(entry, MessageEntry) and entry.id not in raw
        }

    def __call__(self, one: Observation) -> bool:
        known = [key for key in one.source_entry_ids if key in self._places]
        return not known or any(key in self._gone for key in known)


_MAX_BYTES_PER_TOKEN: Final = 8
"""A token is estimated from four ASCII characters, each of which JSON may escape, or from two
others of up to four bytes."""

_FIELD_BYTES: Final = 200
"""Names and punctuation of one record as JSON."""


def _fits(fold: Fold, max_summary_bytes: int, max_folded_bytes: int) -> bool:
    """Whether neither the text nor the snapshot is too large."""
    most = _SPARE_BYTES + len(render_memory((), fold.observations[:1]))
    for one in fold.observations:
        most += _most_bytes(one.token_count, one.source_entry_ids)
    for two in fold.reflections:
        most += _most_bytes(two.token_count, two.supporting_observation_ids)
    if most <= min(max_summary_bytes, max_folded_bytes):
        return True  # without writing all of it to count it
    text = render_memory(fold.reflections, fold.observations)
    text_bytes = len(text.encode("utf-8", "surrogatepass"))
    folded_bytes = len(encode(folded_details(fold)))
    return (
        text_bytes + _SPARE_BYTES <= max_summary_bytes
        and folded_bytes + _SPARE_BYTES <= max_folded_bytes
    )


def _most_bytes(tokens: float, ids: Sequence[str]) -> int:
    return int(tokens) * _MAX_BYTES_PER_TOKEN + _FIELD_BYTES + sum(4 * len(key) + 3 for key in ids)


def _trimmed(fold: Fold, max_summary_bytes: int, max_folded_bytes: int) -> Fold:
    if _fits(fold, max_summary_bytes, max_folded_bytes):
        return fold
    bare = msgspec.structs.replace(fold, observations=())
    text = render_memory(fold.reflections, ()) or render_memory((), fold.observations[:1])
    text_room = max_summary_bytes - _SPARE_BYTES - len(text.encode("utf-8", "surrogatepass"))
    folded_room = max_folded_bytes - _SPARE_BYTES - len(encode(folded_details(bare)))
    if text_room < 0 or folded_room < 0:
        raise CompactionError(
            f"The memory does not fit into {max_summary_bytes} bytes of text and "
            f"{max_folded_bytes} bytes of snapshot, even without observations.",
            code="memory_too_large",
            details={"maxSummaryBytes": max_summary_bytes, "maxFoldedBytes": max_folded_bytes},
        )
    newest_best = sorted(
        range(len(fold.observations)),
        key=lambda at: (-_RANK[fold.observations[at].relevance], -at),
    )
    kept: set[int] = set()
    for at in newest_best:
        one = fold.observations[at]
        text_room -= len(one.line.encode("utf-8", "surrogatepass")) + 1
        folded_room -= len(encode(one)) + 1
        if text_room < 0 or folded_room < 0:
            break
        kept.add(at)
    observations = tuple(one for at, one in enumerate(fold.observations) if at in kept)
    return msgspec.structs.replace(
        fold, observations=observations, left_out=len(fold.observations) - len(kept)
    )


def folded_details(fold: Fold) -> dict[str, Any]:
    """The snapshot of a fold, as `data.memory` of its compaction entry."""
    return {
        "type": FOLDED,
        "version": RECORD_VERSION,
        "fullFold": fold.full,
        "observations": [msgspec.to_builtins(one) for one in fold.observations],
        "reflections": [msgspec.to_builtins(one) for one in fold.reflections],
        "droppedObservationIds": list(fold.dropped_ids),
    }
