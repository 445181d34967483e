"""Whole sessions out of a store and into one, as JSON lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from typing import Final

from anyio.lowlevel import checkpoint

from prism.core._contracts import SessionStore
from prism.core._errors import DecodeError, SessionExists, SessionNotFound, StoreConflict
from prism.core._wire import OpaqueEntry, entry_with_session, opaque_entry
from prism.core.stores._records import shown

_LINES_PER_LOOK: Final = 200


async def export_session(store: SessionStore, session_id: str) -> AsyncIterator[bytes]:
    """Give a session's entries as they are stored, one line of JSON each, with its line feed.

    The lines are what `import_session` and `read_session_file` read. Fields and kinds that this
    version does not know are in them.

    Raises:
        SessionNotFound: The store holds no such session.
        StoreError: The store failed.
    """
    found = False
    stream = store.iter_entries(session_id)
    try:
        async for stored in stream:
            found = True
            # A line feed can stand only between tokens, where a blank means the same.
            yield stored.raw.replace(b"\n", b" ") + b"\n"
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
    if not found:
        raise SessionNotFound(f"There is no session {shown(session_id)} to export.")


async def import_session(
    store: SessionStore,
    lines: Iterable[bytes | str] | AsyncIterable[bytes | str],
    session_id: str | None = None,
) -> str:
    """Add a whole session to a store: all of it, or nothing.

    Entries keep their ids and their text; only `sessionId` changes, when another is asked for.

    Args:
        store: Where to.
        lines: One entry each, as `export_session` gives them or as an open file does; blank ones
            do not count. The session is held in memory until it is stored.
        session_id: The new session's id; the lines' own by default.

    Returns:
        The id of the new session.

    Raises:
        DecodeError: A line is no entry, belongs to another session than the first, or there is
            none; the message names the line.
        SessionExists: The store already holds a session of that id.
        StoreError: The store refused the entries, such as for a `missing_parent`.
    """
    session = _Incoming()
    if isinstance(lines, AsyncIterable):
        try:
            async for line in lines:
                session.add(line)
        finally:
            if isinstance(lines, AsyncGenerator):
                await lines.aclose()
    else:
        for number, line in enumerate(lines, 1):
            session.add(line)
            if number % _LINES_PER_LOOK == 0:
                await checkpoint()
    entries, source = session.entries, session.session_id
    if source is None:
        raise DecodeError("There is no entry to import.")
    target = source if session_id is None else session_id
    if target != source:
        entries = [entry_with_session(entry.raw, target) for entry in entries]
    if await store.entries(target, limit=1):
        raise _exists(target)
    try:
        await store.append(target, entries, expected_version=0)
    except StoreConflict as error:
        if error.code != "version_conflict":
            raise
        raise _exists(target) from error
    return target


class _Incoming:
    """The lines so far."""

    def __init__(self) -> None:
        self.entries: list[OpaqueEntry] = []
        self.session_id: str | None = None
        self._number = 0

    def add(self, line: bytes | str) -> None:
        self._number += 1
        text = (line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line).strip()
        if not text:
            return
        try:
            entry = opaque_entry(text)
        except DecodeError as error:
            raise DecodeError(f"Line {self._number}: {error.message}", code=error.code) from None
        if self.session_id is None:
            self.session_id = entry.session_id
        if entry.session_id != self.session_id:
            raise DecodeError(
                f"Line {self._number} belongs to session {shown(entry.session_id)}, the lines"
                f" before it to {shown(self.session_id)}: import one session at a time."
            )
        self.entries.append(entry)


def _exists(session_id: str) -> SessionExists:
    return SessionExists(
        f"The store already holds a session {shown(session_id)}: import under another id."
    )
