"""Where a session's entries live."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from prism.core._wire import SessionEntry


class StoredEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry and its place in its session.

    Attributes:
        position: From 1, in append order.
        raw: The entry's JSON text as it is stored, with fields that this version does not know.
    """

    position: int
    entry: SessionEntry
    raw: bytes


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of sessions shows.

    Attributes:
        entry_count: The session's version.
        message_count: Entries of kind `message`.
        created_at: Timestamp of the first entry.
        last_activity_at: Timestamp of the last entry.
        first_message: Start of the first user text, at most 200 characters.
    """

    session_id: str
    entry_count: int
    message_count: int = 0
    created_at: str | None = None
    last_activity_at: str | None = None
    first_message: str | None = None


@runtime_checkable
class SessionStore(Protocol):
    """Keeps entries in append order; nothing is ever rewritten or deleted.

    A session's version is the number of its stored records.

    A store that can often append without waiting may also have
    `append_nowait(session_id, entries, *, expected_version=None) -> int | None`: the same as
    `append`, but a plain function, which gives `None` and changes nothing when it would have to
    wait.
    """

    async def append(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int:
        """Add a batch; readers see all of it or nothing.

        In this order: the whole batch is there with equal JSON, so the current version is
        returned, even when `expected_version` is stale; a part is there, or an id with other
        content (`id_conflict`); the version moved (`version_conflict`); a parent is neither
        stored nor earlier in the batch (`missing_parent`).

        Returns:
            The new version.

        Raises:
            StoreConflict: `id_conflict` or `version_conflict`.
            StoreError: `missing_parent`, or the medium failed.
        """
        ...

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[StoredEntry]:
        """Entries with a position above *after*, in order; none for an unknown session."""
        ...

    def iter_entries(self, session_id: str, *, after: int = 0) -> AsyncIterator[StoredEntry]:
        """The same as a stream."""
        ...

    async def entry(self, session_id: str, entry_id: str) -> StoredEntry | None:
        """One entry, or `None`."""
        ...

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, the one with the newest activity first."""
        ...

    async def aclose(self) -> None:
        """Release files and threads; using the store afterwards raises `StoreError`."""
        ...
