"""Reading records and snapshots: one parser for everything that asks what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from prism.core import CustomEntry, SessionEntry
from prism.memory.observational._lines import (
    bounded_content,
    line_tokens,
    observation_line,
    one_line,
    reflection_line,
)
from prism.memory.observational._records import (
    FOLDED,
    RECORD_TYPES,
    RECORD_VERSION,
    Observation,
    Reflection,
)
from prism.memory.observational._shapes import as_ids, is_mapping, is_series

T = TypeVar("T", Observation, Reflection)


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One ledger entry as it was understood.

    Attributes:
        entry_id: The entry.
        type: One of `RECORD_TYPES`.
        covers_up_to_id: The last entry that the worker had handled; `None` when it does not say.
        observations: The good ones of its batch.
        reflections: The good ones of its batch.
        ids: What it drops or supersedes.
        by_reflection_id: What stands for the superseded ones.
        malformed: Items, or the whole record, that could not be understood.
        lost_sources: Sources of observations that could not be understood; `None` when even these
            could not be read.
        unsupported: Whether a newer version wrote it; then nothing of it is read.
    """

    entry_id: str
    type: str
    covers_up_to_id: str | None = None
    observations: tuple[Observation, ...] = ()
    reflections: tuple[Reflection, ...] = ()
    ids: tuple[str, ...] = ()
    by_reflection_id: str | None = None
    malformed: int = 0
    lost_sources: tuple[str, ...] | None = ()
    unsupported: bool = False


def parse_record(entry: SessionEntry) -> LedgerRecord | None:
    """Read a ledger entry; `None` for any other. It never raises on bad data.

    A bad item is dropped and counted, and the good ones of its batch stay.
    """
    if not isinstance(entry, CustomEntry):
        return None
    data = entry.data
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in RECORD_TYPES:
        return None
    version = data.get("version", RECORD_VERSION)
    if type(version) is not int or version < 1:
        return LedgerRecord(entry_id=entry.id, type=kind, malformed=1, lost_sources=None)
    if version > RECORD_VERSION:
        return LedgerRecord(entry_id=entry.id, type=kind, unsupported=True, lost_sources=None)
    covers = data.get("coversUpToId")
    bad_marker = covers is not None and not (isinstance(covers, str) and covers)
    marker = covers if isinstance(covers, str) and covers else None
    match kind:
        case "om.observations.recorded":
            observations, bad, lost = _observations(data.get("observations"))
            return LedgerRecord(
                entry_id=entry.id,
                type=kind,
                covers_up_to_id=marker,
                observations=observations,
                malformed=bad + bad_marker,
                lost_sources=lost,
            )
        case "om.reflections.recorded":
            reflections, bad = _reflections(data.get("reflections"))
            return LedgerRecord(
                entry_id=entry.id,
                type=kind,
                covers_up_to_id=marker,
                reflections=reflections,
                malformed=bad + bad_marker,
            )
        case "om.observations.dropped":
            ids, bad = _id_list(data.get("observationIds"))
        case _:
            ids, bad = _id_list(data.get("reflectionIds"))
    by = data.get("byReflectionId")
    return LedgerRecord(
        entry_id=entry.id,
        type=kind,
        covers_up_to_id=marker,
        ids=ids,
        by_reflection_id=by if isinstance(by, str) else None,
        malformed=bad + bad_marker,
    )


def _items(
    found: Any, kind: type[T], many: type[list[T]], tidy: Callable[[T], T | None]
) -> tuple[tuple[T, ...], int]:
    """The good items of a list, and how many were bad."""
    if not is_series(found):
        return (), 1
    raw = found
    try:
        converted: list[T | None] = list(msgspec.convert(raw, type=many))
    except (msgspec.ValidationError, UnicodeError, RecursionError):
        converted = [_item(one, kind) for one in raw]
    good = [done for one in converted if one is not None and (done := tidy(one)) is not None]
    return tuple(good), len(raw) - len(good)


def _item(found: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(found, type=kind)
    except (msgspec.ValidationError, UnicodeError, RecursionError):
        return None


def _reflections(found: Any) -> tuple[tuple[Reflection, ...], int]:
    return _items(found, Reflection, list[Reflection], _tidy_reflection)


def _observations(found: Any) -> tuple[tuple[Observation, ...], int, tuple[str, ...] | None]:
    good, bad = _items(found, Observation, list[Observation], _tidy_observation)
    if not bad:
        return good, 0, ()
    lost: list[str] = []
    raw = found if is_series(found) else ()
    known = {one.id for one in good}
    readable = is_series(found)
    for one in raw:
        if is_mapping(one):
            if one.get("id") in known:
                continue
            sources = as_ids(one.get("sourceEntryIds"))
            if sources:
                lost.extend(sources)
                continue
        readable = False
    return good, bad, tuple(lost) if readable else None


def _id_list(found: Any) -> tuple[tuple[str, ...], int]:
    if not is_series(found):
        return (), 1
    raw = found
    good = tuple(dict.fromkeys(one for one in raw if isinstance(one, str) and one))
    bad = sum(not (isinstance(one, str) and one) for one in raw)
    return good, bad or int(not good)


def _tidy_observation(found: Observation) -> Observation | None:
    content = bounded_content(found.content)
    timestamp = one_line(found.timestamp)
    if not content or not timestamp:
        return None
    tokens = line_tokens(observation_line(found.id, timestamp, found.relevance, content))
    same = content == found.content and timestamp == found.timestamp
    if same and tokens == found.token_count:
        return found
    return structs.replace(found, content=content, timestamp=timestamp, token_count=tokens)


def _tidy_reflection(found: Reflection) -> Reflection | None:
    content = bounded_content(found.content)
    if not content:
        return None
    tokens = line_tokens(reflection_line(found.id, content))
    if content == found.content and tokens == found.token_count:
        return found
    return structs.replace(found, content=content, token_count=tokens)


class FoldedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction showed: the snapshot in its entry.

    Attributes:
        full_fold: Whether it was rendered afresh.
        through_entry_id: The last entry that the compaction covers.
        entry_id: The compaction entry.
    """

    full_fold: bool
    observations: tuple[Observation, ...]
    reflections: tuple[Reflection, ...]
    dropped_observation_ids: tuple[str, ...] = ()
    through_entry_id: str | None = None
    entry_id: str | None = None


def parse_folded(
    memory: Any, *, through_entry_id: str | None = None, entry_id: str | None = None
) -> FoldedMemory | None:
    """Read the `memory` of a compaction's data; `None` for anything but `om.folded` version 1."""
    if not is_mapping(memory):
        return None
    found = memory
    if found.get("type") != FOLDED or found.get("version") != RECORD_VERSION:
        return None
    if type(found.get("fullFold")) is not bool:
        return None
    observations, bad, _ = _observations(found.get("observations"))
    reflections, more_bad = _reflections(found.get("reflections"))
    if bad or more_bad:
        return None
    dropped = found.get("droppedObservationIds")
    return FoldedMemory(
        full_fold=found["fullFold"],
        observations=observations,
        reflections=reflections,
        dropped_observation_ids=_id_list(dropped)[0],
        through_entry_id=through_entry_id,
        entry_id=entry_id,
    )
