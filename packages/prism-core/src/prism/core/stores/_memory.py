"""Sessions in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from threading import Lock

from prism.core._contracts import SessionInfo, StoredEntry
from prism.core._wire import SessionEntry
from prism.core.stores._records import (
    Activity,
    already_stored,
    closed,
    encode_batch,
    kind_of,
    load_entry,
    newest_first,
)


class _Kept:
    """One session: the JSON texts are the store, so that no host can change what was stored."""

    __slots__ = ("activity", "places", "texts")

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.places: dict[str, int] = {}
        self.activity = Activity()


class MemorySessionStore:
    """Keeps sessions in this process's memory, as JSON text, until it is closed.

    Entries are decoded afresh on each read: changing a dictionary that was passed in or read
    changes nothing that is stored. No method suspends; an instance may be used from several
    tasks and threads.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, _Kept] = {}
        self._lock = Lock()
        self._closed = False

    async def append(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int:
        """Add a batch; see `SessionStore.append`.

        Returns:
            The new version.

        Raises:
            EncodeError: An entry holds what JSON cannot.
            StoreConflict: `id_conflict` or `version_conflict`.
            StoreError: `missing_parent`, `wrong_session`, `invalid_entry`, `entry_too_large`,
                `invalid_session_id` or `closed`.
        """
        return self.append_nowait(session_id, entries, expected_version=expected_version)

    def append_nowait(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int:
        """Add a batch at once; the same as `append`."""
        raws = encode_batch(session_id, entries)
        with self._lock:
            if self._closed:
                raise closed()
            kept = self._sessions.get(session_id)
            if kept is None:
                kept = _Kept()
            version = len(kept.texts)
            if already_stored(
                entries,
                raws,
                known=kept.places,
                text_at=kept.texts.__getitem__,
                version=version,
                expected_version=expected_version,
            ):
                return version
            for position, (entry, raw) in enumerate(zip(entries, raws, strict=True), version):
                kept.places[entry.id] = position
                kept.activity.add(kind_of(entry), entry.timestamp, raw, entry)
            kept.texts += raws
            self._sessions[session_id] = kept
            return len(kept.texts)

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[StoredEntry]:
        """Entries with a position above *after*, in order; none for an unknown session.

        Raises:
            StoreError: `closed`.
        """
        texts = self._texts(session_id, after, limit)
        return [_stored(place, raw) for place, raw in enumerate(texts, max(after, 0))]

    async def iter_entries(self, session_id: str, *, after: int = 0) -> AsyncIterator[StoredEntry]:
        """The same as a stream.

        Raises:
            StoreError: `closed`.
        """
        texts = self._texts(session_id, after, None)
        for place, raw in enumerate(texts, max(after, 0)):
            yield _stored(place, raw)

    async def entry(self, session_id: str, entry_id: str) -> StoredEntry | None:
        """One entry, or `None`.

        Raises:
            StoreError: `closed`.
        """
        with self._lock:
            if self._closed:
                raise closed()
            kept = self._sessions.get(session_id)
            place = None if kept is None else kept.places.get(entry_id)
        if kept is None or place is None:
            return None
        return _stored(place, kept.texts[place])

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, the one with the newest activity first.

        Raises:
            StoreError: `closed`.
        """
        with self._lock:
            if self._closed:
                raise closed()
            infos = [
                kept.activity.info(session_id, len(kept.texts))
                for session_id, kept in self._sessions.items()
            ]
        return newest_first(infos)

    async def aclose(self) -> None:
        """Forget everything; using the store afterwards raises `StoreError`."""
        with self._lock:
            self._closed = True
            self._sessions = {}

    def _texts(self, session_id: str, after: int, limit: int | None) -> list[bytes]:
        start = max(after, 0)
        stop = None if limit is None else start + max(limit, 0)
        with self._lock:
            if self._closed:
                raise closed()
            kept = self._sessions.get(session_id)
            return [] if kept is None else kept.texts[start:stop]


def _stored(place: int, raw: bytes) -> StoredEntry:
    return StoredEntry(position=place + 1, entry=load_entry(raw), raw=raw)
