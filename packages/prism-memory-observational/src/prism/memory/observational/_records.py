"""What is remembered, as it stands in the session: structs, ids, and the one parser."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping
from hashlib import sha256
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from prism.core import UsageError
from prism.memory.observational._lines import (
    bounded_content,
    line_tokens,
    observation_line,
    reflection_line,
)

OBSERVATIONS: Final = "om.observations.recorded"
REFLECTIONS: Final = "om.reflections.recorded"
DROPS: Final = "om.observations.dropped"
SUPERSESSIONS: Final = "om.reflections.superseded"
FOLDED: Final = "om.folded"

RECORD_TYPES: Final = frozenset({OBSERVATIONS, REFLECTIONS, DROPS, SUPERSESSIONS})
"""`data.type` of the entries that make up the ledger."""

RECORD_VERSION: Final = 1

RELEVANCES: Final = ("low", "medium", "high", "critical")
"""From the least to the most."""

_ID: Final = re.compile(r"[a-f0-9]{12}")

_MemoryId = Annotated[str, Meta(pattern="^[a-f0-9]{12}$")]
_Text = Annotated[str, Meta(min_length=1)]
_Ids = Annotated[tuple[_Text, ...], Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]


class Observation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One fact, and the entries that it comes from.

    Attributes:
        id: 12 lowercase hex digits.
        content: One line of prose, at most 10,000 characters.
        timestamp: ISO-8601 with offset: when the newest of its sources was said.
        relevance: One of `RELEVANCES`.
        source_entry_ids: Entries of the branch, in its order, each once.
        token_count: Estimated tokens of the line that the summary shows.
    """

    id: _MemoryId
    content: _Text
    timestamp: _Text
    relevance: Annotated[str, Meta(pattern="^(?:low|medium|high|critical)$")]
    source_entry_ids: _Ids
    token_count: _Count = 0

    @property
    def line(self) -> str:
        """The observation as the summary shows it."""
        return observation_line(self.id, self.timestamp, self.relevance, self.content)


class Reflection(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One lasting fact, and the observations that it rests on.

    Attributes:
        supporting_observation_ids: In the order of the ledger, each once.
        token_count: Estimated tokens of the line that the summary shows.
        timestamp: ISO-8601 with offset: when it was recorded; others do not write it.
        origin_session_id: The session that it was carried over from; its supporting observations
            are there.
    """

    id: _MemoryId
    content: _Text
    supporting_observation_ids: _Ids
    token_count: _Count = 0
    timestamp: str | None = None
    origin_session_id: str | None = None

    @property
    def line(self) -> str:
        """The reflection as the summary shows it."""
        return reflection_line(self.id, self.content)


def is_memory_id(value: object) -> bool:
    """Whether *value* has the form of a memory id: 12 lowercase hex digits."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def memory_id(
    kind: str,
    content: str,
    timestamp: str,
    sources: Iterable[str],
    *,
    taken: Container[str] = (),
) -> str:
    """The id of a memory, which depends on what it says and where it comes from.

    It is the start of the SHA-256 of the ASCII JSON `[kind, content, timestamp, sortedSources]`
    without spaces. When that is *taken*, a counter is added until it is not.

    Args:
        kind: `observation` or `reflection`.
        content: As it is stored.
        timestamp: As it is stored; empty without one.
        sources: Ids of source entries or supporting observations, in any order.
        taken: Ids that belong to other memories.
    """
    parts: list[Any] = [kind, content, timestamp, sorted(set(sources))]
    counter = 0
    while True:
        tail = [counter] if counter else []
        text = json.dumps([*parts, *tail], ensure_ascii=True, separators=(",", ":"))
        found = sha256(text.encode("ascii")).hexdigest()[:12]
        if found not in taken:
            return found
        counter += 1


def make_observation(
    *,
    content: str,
    timestamp: str,
    relevance: str,
    source_entry_ids: Iterable[str],
    taken: Mapping[str, Observation] | None = None,
) -> Observation:
    """An observation with its id and size.

    Args:
        content: Brought onto one line and cut to 10,000 characters.
        timestamp: ISO-8601 with offset.
        relevance: One of `RELEVANCES`.
        source_entry_ids: In the order of the branch.
        taken: Observations whose ids are in use; one that says the same is returned as it is.

    Raises:
        UsageError: The content is blank, there are no sources, or the relevance is unknown.
    """
    line = bounded_content(content)
    sources = tuple(dict.fromkeys(source_entry_ids))
    if not line or not sources or not timestamp:
        raise UsageError("An observation needs content, a timestamp and at least one source.")
    if relevance not in RELEVANCES:
        raise UsageError(f"A relevance is one of {', '.join(RELEVANCES)}, not {relevance[:40]!r}.")
    known = taken or {}

    def build(memory: str) -> Observation:
        tokens = line_tokens(observation_line(memory, timestamp, relevance, line))
        return Observation(
            id=memory,
            content=line,
            timestamp=timestamp,
            relevance=relevance,
            source_entry_ids=sources,
            token_count=tokens,
        )

    def same(other: Observation) -> bool:
        return (other.content, other.timestamp, set(other.source_entry_ids)) == (
            line,
            timestamp,
            set(sources),
        )

    plain = memory_id("observation", line, timestamp, sources)
    existing = known.get(plain)
    if existing is not None and same(existing):
        return existing
    return build(memory_id("observation", line, timestamp, sources, taken=known))


def make_reflection(
    *,
    content: str,
    supporting_observation_ids: Iterable[str],
    timestamp: str,
    origin_session_id: str | None = None,
    taken: Mapping[str, Reflection] | None = None,
) -> Reflection:
    """A reflection with its id and size.

    Args:
        content: Brought onto one line and cut to 10,000 characters.
        supporting_observation_ids: In the order of the ledger.
        timestamp: ISO-8601 with offset: now.
        origin_session_id: The session that it was carried over from.
        taken: Reflections whose ids are in use.

    Raises:
        UsageError: The content is blank, or nothing supports it.
    """
    line = bounded_content(content)
    supports = tuple(dict.fromkeys(supporting_observation_ids))
    if not line or not supports:
        raise UsageError("A reflection needs content and at least one supporting observation.")
    found = memory_id("reflection", line, timestamp, supports, taken=taken or ())
    return Reflection(
        id=found,
        content=line,
        supporting_observation_ids=supports,
        token_count=line_tokens(reflection_line(found, line)),
        timestamp=timestamp,
        origin_session_id=origin_session_id,
    )


def observations_record(
    observations: Iterable[Observation], covers_up_to_id: str
) -> dict[str, Any]:
    """The data of the entry that records a batch; an empty one says that nothing was found."""
    return {
        "type": OBSERVATIONS,
        "version": RECORD_VERSION,
        "observations": [msgspec.to_builtins(one) for one in observations],
        "coversUpToId": covers_up_to_id,
    }


def reflections_record(reflections: Iterable[Reflection], covers_up_to_id: str) -> dict[str, Any]:
    """The data of the entry that records reflections; an empty batch says that none was found."""
    return {
        "type": REFLECTIONS,
        "version": RECORD_VERSION,
        "reflections": [msgspec.to_builtins(one) for one in reflections],
        "coversUpToId": covers_up_to_id,
    }


def drops_record(observation_ids: Iterable[str], covers_up_to_id: str) -> dict[str, Any]:
    """The data of the entry that takes observations out of the pool; recall still finds them."""
    return {
        "type": DROPS,
        "version": RECORD_VERSION,
        "observationIds": list(observation_ids),
        "coversUpToId": covers_up_to_id,
    }


def supersession_record(
    reflection_ids: Iterable[str], covers_up_to_id: str, *, by_reflection_id: str | None = None
) -> dict[str, Any]:
    """The data of the entry that takes reflections out of use; recall still finds them."""
    data: dict[str, Any] = {
        "type": SUPERSESSIONS,
        "version": RECORD_VERSION,
        "reflectionIds": list(reflection_ids),
        "coversUpToId": covers_up_to_id,
    }
    if by_reflection_id is not None:
        data["byReflectionId"] = by_reflection_id
    return data
