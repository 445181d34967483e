"""All records of a branch, folded into what is known. Pure, and linear in the entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from prism.core import CustomEntry, SessionEntry, UsageError
from prism.memory.observational._parse import LedgerRecord, parse_record
from prism.memory.observational._records import (
    DROPS,
    OBSERVATIONS,
    REFLECTIONS,
    Observation,
    Reflection,
)
from prism.memory.observational._sources import is_source


class Frontier(msgspec.Struct, frozen=True, kw_only=True):
    """How far the workers of one kind have come.

    Attributes:
        place: Of the last entry that was handled; -1 when none was.
        entry_id: That entry.
    """

    place: int = -1
    entry_id: str | None = None


NO_FRONTIER: Final = Frontier()

NO_COVERAGE: Final = -1
"""A marker that names no entry of the branch."""


class Ledger:
    """What a branch remembers, up to one of its entries.

    Attributes:
        observations: All that were recorded, dropped ones too, in the order of the ledger; of two
            with one id the first.
        reflections: All that were recorded, superseded ones too.
        dropped_ids: Observations that were taken out of the pool, also ids that nothing recorded.
        superseded: Reflections that are out of use, and what stands for each, if anything.
        records: The ledger entries in order.
        covers: For each of *records* the place of the entry that its marker names;
            `NO_COVERAGE` for one that is not on the branch, `None` without a marker.
        places: Place of each entry on the branch.
        observed: Up to where sources were observed.
        reflected: Up to where reflections were looked for.
        dropped: Up to where drops were decided.
        malformed: Items and records that could not be understood.
        unsupported: Records of a newer version.
        dangling: Ledger entries whose marker names no entry of the branch.
        placed_ids: Memories that at least one record with a resolvable marker holds.
    """

    def __init__(
        self,
        *,
        entries: Sequence[SessionEntry],
        records: tuple[LedgerRecord, ...],
        places: Mapping[str, int],
    ) -> None:
        self.records = records
        self.places = places
        self.size: int = len(entries)
        observations: dict[str, Observation] = {}
        reflections: dict[str, Reflection] = {}
        dropped: dict[str, None] = {}
        superseded: dict[str, str | None] = {}
        placed: set[str] = set()
        covers: list[int | None] = []
        dangling: list[str] = []
        frontiers = {OBSERVATIONS: -1, REFLECTIONS: -1, DROPS: -1}
        malformed = 0
        unsupported = 0
        for record in records:
            malformed += record.malformed
            unsupported += record.unsupported
            place: int | None = None
            if record.covers_up_to_id is not None:
                place = places.get(record.covers_up_to_id, NO_COVERAGE)
                if place == NO_COVERAGE:
                    dangling.append(record.entry_id)
                elif record.type in frontiers:
                    reached = place if record.type != OBSERVATIONS else _reached(record, places)
                    frontiers[record.type] = max(frontiers[record.type], reached)
            covers.append(place)
            for one in record.observations:
                observations.setdefault(one.id, one)
                if place != NO_COVERAGE:
                    placed.add(one.id)
            for two in record.reflections:
                reflections.setdefault(two.id, two)
                if place != NO_COVERAGE:
                    placed.add(two.id)
            if record.ids:
                if record.type == DROPS:
                    dropped.update(dict.fromkeys(record.ids))
                else:
                    for key in record.ids:
                        superseded.setdefault(key, record.by_reflection_id)
        self.observations: tuple[Observation, ...] = tuple(observations.values())
        self.reflections: tuple[Reflection, ...] = tuple(reflections.values())
        self.dropped_ids: tuple[str, ...] = tuple(dropped)
        self.superseded: Mapping[str, str | None] = MappingProxyType(superseded)
        self.covers: tuple[int | None, ...] = tuple(covers)
        self.dangling: tuple[str, ...] = tuple(dangling)
        self.malformed = malformed
        self.unsupported = unsupported
        self.placed_ids: frozenset[str] = frozenset(placed)
        self.observed: Frontier = _frontier(frontiers[OBSERVATIONS], entries)
        self.reflected: Frontier = _frontier(frontiers[REFLECTIONS], entries)
        self.dropped: Frontier = _frontier(frontiers[DROPS], entries)

    def __repr__(self) -> str:
        return (
            f"Ledger(observations={len(self.observations)}, reflections={len(self.reflections)}, "
            f"dropped={len(self.dropped_ids)})"
        )

    @cached_property
    def observations_by_id(self) -> Mapping[str, Observation]:
        """All observations by id."""
        return {one.id: one for one in self.observations}

    @cached_property
    def reflections_by_id(self) -> Mapping[str, Reflection]:
        """All reflections by id."""
        return {one.id: one for one in self.reflections}

    @cached_property
    def active_observations(self) -> tuple[Observation, ...]:
        """Those that were not dropped."""
        gone = frozenset(self.dropped_ids)
        return tuple(one for one in self.observations if one.id not in gone)

    @cached_property
    def active_reflections(self) -> tuple[Reflection, ...]:
        """Those that were not superseded."""
        return tuple(one for one in self.reflections if one.id not in self.superseded)

    @cached_property
    def pool_tokens(self) -> int:
        """Estimated tokens of the active observations, as the summary would show them."""
        return int(sum(one.token_count for one in self.active_observations))

    @cached_property
    def citations(self) -> Mapping[str, int]:
        """How many active reflections rest on each observation."""
        counts: dict[str, int] = {}
        for reflection in self.active_reflections:
            for key in reflection.supporting_observation_ids:
                counts[key] = counts.get(key, 0) + 1
        return counts


def coverage_tier(citations: int) -> str:
    """How well reflections keep an observation's meaning: `none`, `partial` or `strong`."""
    return "none" if citations == 0 else "partial" if citations == 1 else "strong"


def _reached(record: LedgerRecord, places: Mapping[str, int]) -> int:
    """The place up to which a batch really recorded what it saw."""
    covered = places.get(record.covers_up_to_id or "", NO_COVERAGE)
    if record.lost_sources is None:
        return NO_COVERAGE
    lost = [places[key] for key in record.lost_sources if key in places]
    if record.lost_sources and not lost:
        return NO_COVERAGE
    return min([covered, *(place - 1 for place in lost)])


def _frontier(place: int, entries: Sequence[SessionEntry]) -> Frontier:
    return NO_FRONTIER if place < 0 else Frontier(place=place, entry_id=entries[place].id)


Parse: TypeAlias = Callable[[SessionEntry], LedgerRecord | None]
"""Reads an entry as `parse_record` does."""


def fold_ledger(
    entries: Iterable[SessionEntry],
    *,
    through_entry_id: str | None = None,
    parse: Parse = parse_record,
) -> Ledger:
    """Fold the memory records of a branch.

    Args:
        entries: One path, from the root to the leaf, as `session.entries()` gives it.
        through_entry_id: The last entry that is looked at; default: all are. What is behind it
            changes nothing.
        parse: Reads a record; for those who fold a growing branch and remember what they read.

    Raises:
        UsageError: `entry_not_found`.
    """
    path = entries if isinstance(entries, list) else list(entries)
    places = {entry.id: place for place, entry in enumerate(path)}
    if through_entry_id is not None:
        end = places.get(through_entry_id)
        if end is None:
            raise UsageError(
                f"Entry {through_entry_id!r} is not on the branch that was given.",
                code="entry_not_found",
            )
        path = path[: end + 1]
        places = {entry.id: place for place, entry in enumerate(path)}
    records = tuple(
        record
        for entry in path
        if isinstance(entry, CustomEntry) and (record := parse(entry)) is not None
    )
    return Ledger(entries=path, records=records, places=places)


def earlier_marker(places: Mapping[str, int], *markers: str | None) -> str | None:
    """Of several markers the one that is first on the branch; those that are not on it are out."""
    found = [(places[one], one) for one in markers if one is not None and one in places]
    return min(found)[1] if found else None


def unobserved(entries: Sequence[SessionEntry], ledger: Ledger) -> list[SessionEntry]:
    """The sources that no observation pass has covered yet, in the order of the branch."""
    return [entry for entry in entries[ledger.observed.place + 1 :] if is_source(entry)]
