"""The entries of one session: read once, then appended to, in step with the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import anyio
from anyio import CancelScope

from prism.core._contracts import SessionStore
from prism.core._errors import LeafMoved, UsageError
from prism.core._runtime.history import History
from prism.core._support.branch import Problem, current_leaf
from prism.core._support.ids import Clock, IdMaker, format_timestamp
from prism.core._wire import MetadataEntry, SessionEntry

Draft: TypeAlias = tuple[type[Any], dict[str, Any]]
"""An entry to be appended: its kind, and the fields that only it has."""


def _always() -> None:
    """No condition."""


class SessionLog:
    """What a session has written, and where it stands.

    Attributes:
        history: The branch, as of the last load or append.
    """

    __slots__ = (
        "_append_nowait",
        "_clock",
        "_id_maker",
        "_loaded",
        "_lock",
        "_repairs_told",
        "_session_id",
        "_store",
        "_told",
        "_version",
        "history",
    )

    def __init__(
        self, store: SessionStore, session_id: str, *, clock: Clock, id_maker: IdMaker
    ) -> None:
        self.history: History = History()
        self._store = store
        self._session_id = session_id
        self._clock = clock
        self._id_maker = id_maker
        self._lock: anyio.Lock | None = None
        self._version = 0
        # A store that need not wait is not made to: no lock, no shield, no task switch.
        self._append_nowait = getattr(store, "append_nowait", None)
        self._loaded = False
        self._told = 0
        self._repairs_told = 0

    @property
    def loaded(self) -> bool:
        """Whether the session has been read."""
        return self._loaded

    def now(self) -> str:
        """The timestamp of an entry that is made now."""
        return format_timestamp(self._clock())

    async def ensure_loaded(self) -> None:
        """Read the session once."""
        if not self._loaded:
            async with self._locked():
                if not self._loaded:
                    await self._load()
            if not self._is_busy():
                self._lock = None  # most sessions never need it again

    async def reload(self, *, only_if: Callable[[], None] = _always) -> None:
        """Read the session again, unless *only_if* raises when its turn comes."""
        async with self._locked():
            only_if()
            await self._load()

    async def _load(self) -> None:
        entries: list[SessionEntry] = []
        version = 0
        async for stored in self._store.iter_entries(self._session_id):
            entries.append(stored.entry)
            version = stored.position
        self._version = version
        if entries or self._loaded:  # what a new session stands on is there already
            self._stand(History.load(entries, current_leaf(entries)))
        self._loaded = True

    def _stand(self, history: History) -> None:
        self.history = history
        self._told = 0
        self._repairs_told = 0

    async def all_entries(self) -> list[SessionEntry]:
        """Every entry of the session, in append order."""
        return [stored.entry for stored in await self._store.entries(self._session_id)]

    def _locked(self) -> anyio.Lock:
        if self._lock is None:
            # A lock that is free costs no task switch.
            self._lock = anyio.Lock(fast_acquire=True)
        return self._lock

    async def append(
        self,
        drafts: Iterable[Draft],
        *,
        run_id: str | None = None,
        require_on_path: Sequence[str] = (),
    ) -> list[SessionEntry]:
        """Store new entries under the leaf, each under the one before it.

        Nothing interrupts it: what a store has begun to write is also known to the session.

        Args:
            drafts: What to append.
            run_id: The run that it belongs to.
            require_on_path: Entry ids that must still be on the path.

        Raises:
            LeafMoved: The path is another one by now.
            StoreError: The store could not; nothing of it is known to the session.
        """
        drafts = list(drafts)
        if self._append_nowait is not None and not self._is_busy():
            entries = self._under_leaf(drafts, run_id, require_on_path)
            version = self._append_nowait(self._session_id, entries, expected_version=self._version)
            if version is not None:
                self._take(entries, version)
                return entries
        entries = []
        with CancelScope(shield=True):
            async with self._locked():
                entries = self._under_leaf(drafts, run_id, require_on_path)
                version = await self._store.append(
                    self._session_id, entries, expected_version=self._version
                )
                self._take(entries, version)
        return entries

    def _is_busy(self) -> bool:
        """Whether somebody reads or writes, so that what comes now has to wait for its turn."""
        return self._lock is not None and self._lock.locked()

    def _under_leaf(
        self,
        drafts: Sequence[Draft],
        run_id: str | None,
        require_on_path: Sequence[str],
    ) -> list[SessionEntry]:
        """The entries, each under the one before it, the first under the leaf."""
        history = self.history
        for required in require_on_path:
            if required not in history.on_path:
                raise LeafMoved(f"Entry {required!r} is no longer on the current path.")
        parent = history.leaf_id
        timestamp = self.now()
        entries: list[SessionEntry] = []
        for kind, fields in drafts:
            entry = kind(
                id=self._id_maker("entry"),
                session_id=self._session_id,
                timestamp=timestamp,
                parent_id=parent,
                run_id=run_id,
                **fields,
            )
            parent = entry.id
            entries.append(entry)
        return entries

    def _take(self, entries: Sequence[SessionEntry], version: int) -> None:
        """What is stored is part of the history."""
        self._version = version
        for entry in entries:
            self.history.append(entry)

    async def checkout(self, leaf_id: str | None, *, only_if: Callable[[], None] = _always) -> None:
        """Stand at another entry, unless *only_if* raises when its turn comes.

        Raises:
            UsageError: `entry_not_found`.
        """
        with CancelScope(shield=True):
            async with self._locked():
                only_if()
                entries = await self.all_entries()
                if leaf_id is not None and all(entry.id != leaf_id for entry in entries):
                    raise UsageError(
                        f"Session {self._session_id!r} has no entry {leaf_id!r}.",
                        code="entry_not_found",
                    )
                data = {"type": "leaf"} if leaf_id is None else {"type": "leaf", "leafId": leaf_id}
                marker = MetadataEntry(
                    id=self._id_maker("entry"),
                    session_id=self._session_id,
                    timestamp=self.now(),
                    # A reader that does not know the marker stands at the same place.
                    parent_id=leaf_id,
                    data=data,
                )
                self._version = await self._store.append(
                    self._session_id, [marker], expected_version=self._version
                )
                self._stand(History.load(entries, leaf_id))

    async def has(self, entry_id: str) -> bool:
        """Whether the session has the entry, on its path or off it."""
        if entry_id in self.history.on_path:
            return True
        return await self._store.entry(self._session_id, entry_id) is not None

    def take_problems(self) -> list[Problem]:
        """What was found or mended since this was last asked."""
        history = self.history
        problems = history.problems[self._told :]
        self._told = len(history.problems)
        repairs = history.pairs.repairs
        mended = repairs - self._repairs_told
        if mended > 0:
            problems.append(
                Problem(
                    code="history_repaired",
                    message=f"{mended} calls or results of the history were mended on the copy "
                    "that is sent.",
                )
            )
            self._repairs_told = repairs
        return problems
