"""Memory out of one session and into another, by the host's hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from prism.core import DecodeError, Session, SessionEntry, UsageError, encode, parse_json
from prism.memory.observational._ledger import fold_ledger
from prism.memory.observational._projection import full_memory
from prism.memory.observational._records import (
    Observation,
    Reflection,
    make_reflection,
    reflections_record,
)

DOCUMENT_TYPE: Final = "om.document"
DOCUMENT_VERSION: Final = 1
MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024


class MemoryDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a branch remembers, as a file can hold it.

    Attributes:
        session_id: Where it comes from.
        observations: In use there.
        reflections: In use there.
        dropped_observation_ids: Recorded there, and out of the pool.
        superseded_reflection_ids: Recorded there, and out of use.
    """

    session_id: str
    observations: tuple[Observation, ...] = ()
    reflections: tuple[Reflection, ...] = ()
    dropped_observation_ids: tuple[str, ...] = ()
    superseded_reflection_ids: tuple[str, ...] = ()
    type: str = DOCUMENT_TYPE
    version: int = DOCUMENT_VERSION

    def encode(self) -> bytes:
        """The document as JSON."""
        return encode(msgspec.to_builtins(self))


def export_memory(entries: Iterable[SessionEntry]) -> MemoryDocument:
    """What is in use on a branch, for keeping outside of its session.

    Args:
        entries: One path, from the root to the leaf.
    """
    path = entries if isinstance(entries, list) else list(entries)
    ledger = fold_ledger(path)
    observations, reflections = full_memory(ledger)
    return MemoryDocument(
        session_id=path[0].session_id if path else "",
        observations=observations,
        reflections=reflections,
        dropped_observation_ids=ledger.dropped_ids,
        superseded_reflection_ids=tuple(ledger.superseded),
    )


def import_memory(data: bytes | str) -> MemoryDocument:
    """Read a document that `MemoryDocument.encode` wrote.

    Raises:
        DecodeError: It is none, or of a newer version, or longer than 16 MiB.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise DecodeError(
            f"A memory document has at most {MAX_DOCUMENT_BYTES} bytes.",
            details={"limit": MAX_DOCUMENT_BYTES},
        )
    tree: Any = parse_json(data)
    try:
        document = msgspec.convert(tree, type=MemoryDocument)
    except msgspec.ValidationError as error:
        raise DecodeError(f"This is no memory document: {error}.") from None
    if document.type != DOCUMENT_TYPE or document.version != DOCUMENT_VERSION:
        raise DecodeError(
            f"This is no memory document of version {DOCUMENT_VERSION}: "
            f"{document.type[:40]!r}, version {document.version}."
        )
    return document


async def seed_memory(
    session: Session,
    document: MemoryDocument,
    *,
    ids: Sequence[str] | None = None,
) -> tuple[Reflection, ...]:
    """Carry reflections into a session, as records of its own.

    They are shown by its compactions from the first one on, count as in use, and can be superseded
    there; recall names the session that holds what supports them. Doing it again adds nothing.

    Args:
        session: Where to.
        document: Where from.
        ids: Which reflections; default: all of the document.

    Returns:
        What was recorded.

    Raises:
        UsageError: `unknown_memory`, for an id that the document has not.
    """
    known = {one.id: one for one in document.reflections}
    wanted = list(known) if ids is None else list(dict.fromkeys(ids))
    missing = [key for key in wanted if key not in known]
    if missing:
        raise UsageError(
            f"The memory document has no reflection {missing[0]!r}.", code="unknown_memory"
        )
    path = await session.entries()
    ledger = fold_ledger(path)
    have = {(one.origin_session_id, one.content) for one in ledger.reflections}
    found: list[Reflection] = []
    taken = dict(ledger.reflections_by_id)
    for key in wanted:
        one = known[key]
        origin = one.origin_session_id or document.session_id
        if (origin, one.content) in have:
            continue
        made = make_reflection(
            content=one.content,
            supporting_observation_ids=one.supporting_observation_ids,
            timestamp=one.timestamp or "",
            origin_session_id=origin,
            taken=taken,
        )
        taken[made.id] = made
        found.append(made)
    if found:
        data = reflections_record(found, "")
        del data["coversUpToId"]  # it covers nothing of this session
        await session.append_custom(data)
    return tuple(found)
