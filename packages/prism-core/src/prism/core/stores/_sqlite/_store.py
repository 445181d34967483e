"""Sessions in one SQLite file."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anyio import CancelScope, CapacityLimiter, Event, to_thread
from anyio.lowlevel import current_token

from prism.core._contracts import SessionInfo, StoredEntry
from prism.core._errors import StoreError
from prism.core._support.limits import positive_int
from prism.core._wire import SessionEntry
from prism.core.stores._records import closed, encode_batch, load_entry, newest_first

if TYPE_CHECKING:
    from prism.core.stores._sqlite._database import Append, Database

T = TypeVar("T")

MAX_BUSY_TIMEOUT_MS: Final = 600_000

_MAX_GROUP: Final = 256
"""Appends in one commit."""


class _Job:
    """Something for the writer thread to do."""

    __slots__ = ("append", "done", "dropped", "error", "result", "run", "woken")

    def __init__(self, run: Callable[[Database], Any] | None, append: Append | None) -> None:
        self.run = run
        self.append = append
        self.woken: Event | None = None
        self.done = False
        self.dropped = False
        self.result: Any = None
        self.error: StoreError | None = None


class _Loop:
    """The jobs of one event loop, one of whose tasks leads a thread to them."""

    __slots__ = ("jobs", "leading", "limiter")

    def __init__(self) -> None:
        self.jobs: list[_Job] = []
        self.leading = False
        # Not the loop's common limiter: tools in threads must not keep the store waiting.
        self.limiter = CapacityLimiter(1)


class SqliteSessionStore:
    """Keeps all sessions in one SQLite file with a write-ahead log.

    One connection, used by one thread at a time: whatever appends are waiting when it comes by
    share a commit. A batch is there whole or not at all, also after a crash; several tasks,
    threads and processes may share the file, and an instance too. The file is made with mode 0600
    by the first append. JSON texts are kept with escapes for all that is not ASCII.

    A file that somebody removed or replaced is noticed: the next use raises `file_changed` once,
    and from then on the store is what the path names.

    A cancelled append waits for its commit all the same. An asyncio task that is cancelled from
    outside anyio cannot wait: its batch is then stored or not, and appending it again is safe.

    Args:
        path: The file.
        fsync: Each commit waits until it is on the disk. When off, a crash of the process loses
            nothing, and a crash of the machine may lose the last appends, never the file.
        busy_timeout_ms: How long to wait for another connection's lock; from 1 to
            `MAX_BUSY_TIMEOUT_MS`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, fsync: bool = False, busy_timeout_ms: int = 10_000
    ) -> None:
        self._path = os.path.abspath(path)  # noqa: PTH100 - text is all that is needed
        self._fsync = fsync
        self._busy_timeout_ms = positive_int(
            "busy_timeout_ms", busy_timeout_ms, cap=MAX_BUSY_TIMEOUT_MS
        )
        self._closed = False
        self._inherited: list[Database] = []
        self._database: Database | None = None
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._mutex = Lock()  # held by the thread that uses the connection
        self._queue: deque[_Job] = deque()
        self._loops: dict[object, _Loop] = {}

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
                `invalid_session_id`, `locked`, `disk_full`, `permission_denied`, `io_error`,
                `file_changed`, `newer_schema`, `invalid_database` or `closed`. Nothing of the
                batch is stored.
        """
        from prism.core.stores._sqlite._database import Append

        raws = encode_batch(session_id, entries)
        batch = Append(session_id, tuple(entries), raws, expected_version)
        await self._do(_Job(None, batch))
        return batch.version

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[StoredEntry]:
        """Entries with a position above *after*, in order; none for an unknown session.

        Raises:
            StoreError: `locked`, `permission_denied`, `io_error`, `file_changed`, `newer_schema`,
                `invalid_database` or `closed`.
        """
        found: list[StoredEntry] = []
        async for stored in self._iterate(session_id, after, limit):
            found.append(stored)  # noqa: PERF401 - a comprehension hides the waiting
        return found

    def iter_entries(self, session_id: str, *, after: int = 0) -> AsyncIterator[StoredEntry]:
        """The same as a stream, in bounded memory; what is added meanwhile comes too.

        Raises:
            StoreError: As `entries`.
        """
        return self._iterate(session_id, after, None)

    async def entry(self, session_id: str, entry_id: str) -> StoredEntry | None:
        """One entry, or `None`.

        Raises:
            StoreError: As `entries`.
        """
        row = await self._call(lambda database: database.entry(session_id, entry_id))
        return None if row is None else _stored(*row)

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, the one with the newest activity first.

        Raises:
            StoreError: As `entries`.
        """
        return newest_first(await self._call(lambda database: database.sessions()))

    async def aclose(self) -> None:
        """Finish what was asked for and close the file; later use raises `StoreError`.

        Raises:
            StoreError: `io_error`.
        """
        if self._closed:
            return
        self._closed = True
        if self._pid == os.getpid():
            with CancelScope(shield=True):
                await to_thread.run_sync(self._close)

    async def _iterate(
        self, session_id: str, after: int, limit: int | None
    ) -> AsyncIterator[StoredEntry]:
        position = max(after, 0)
        left = None if limit is None else max(limit, 0)
        while left is None or left > 0:
            page, more = await self._page(session_id, position, left)
            for position, text in page:
                yield _stored(position, text)
            if not more:
                return
            if left is not None:
                left -= len(page)

    async def _page(
        self, session_id: str, after: int, limit: int | None
    ) -> tuple[list[tuple[int, str]], bool]:
        return await self._call(lambda database: database.entries(session_id, after, limit))

    # Handing jobs to the thread

    async def _call(self, run: Callable[[Database], T]) -> T:
        job = _Job(run, None)
        await self._do(job)
        result: T = job.result
        return result

    async def _do(self, job: _Job) -> None:
        """Have *job* done: by the thread that is on its way, or lead one there."""
        if self._closed:
            raise closed()
        if self._pid != os.getpid():  # forked: SQLite forbids to use the parent's connection
            if self._database is not None:
                self._inherited.append(self._database)  # nor may it be closed here
                self._database = None
            self._reset()
        token = current_token()
        loop = self._loops.get(token)
        if loop is None:
            loop = self._loops[token] = _Loop()
        loop.jobs.append(job)
        self._queue.append(job)
        try:
            with CancelScope(shield=True):
                while not job.done:
                    if loop.leading:
                        job.woken = Event()
                        await job.woken.wait()
                    else:
                        await self._lead(loop)
        finally:
            job.dropped = True  # not begun yet when cancelled: then it never is
            if job in loop.jobs:
                loop.jobs.remove(job)
            if not loop.jobs and not loop.leading:
                self._loops.pop(token, None)
        if job.error is not None:
            raise job.error

    async def _lead(self, loop: _Loop) -> None:
        loop.leading = True
        try:
            await to_thread.run_sync(self._drain, limiter=loop.limiter)
        finally:
            # Also when cancelled on the way: one that is not done leads the next thread.
            loop.leading = False
            for job in loop.jobs:
                if job.woken is not None:
                    job.woken.set()

    # In the thread

    def _drain(self) -> None:
        with self._mutex:
            while self._queue:
                self._work(self._next_jobs())

    def _next_jobs(self) -> list[_Job]:
        """The next job, with the appends behind it when it is one."""
        jobs: list[_Job] = []
        while self._queue and len(jobs) < _MAX_GROUP:
            job = self._queue[0]
            if jobs and (job.append is None or jobs[0].append is None):
                break
            self._queue.popleft()
            if not job.dropped:
                jobs.append(job)
        return jobs

    def _work(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        failure = StoreError("The store's thread failed; nothing is known to be stored.")
        worked = False
        try:
            database = self._opened()
            appends = [job.append for job in jobs if job.append is not None]
            if appends:
                database.append(appends)
            for job in jobs:
                if job.append is not None:
                    job.error = job.append.error
                elif job.run is not None:
                    job.result = job.run(database)
            worked = True
        except StoreError as error:
            failure = error
        finally:
            for job in jobs:
                if not worked:
                    job.error = failure
                job.done = True

    def _opened(self) -> Database:
        if self._database is None:
            from prism.core.stores._sqlite._database import Database

            self._database = Database(
                self._path, durable=self._fsync, busy_timeout_ms=self._busy_timeout_ms
            )
        return self._database

    def _close(self) -> None:
        with self._mutex:
            while self._queue:
                self._work(self._next_jobs())
            if self._database is not None:
                self._database.close()
                self._database = None


def _stored(position: int, text: str) -> StoredEntry:
    raw = text.encode("ascii")
    return StoredEntry(position=position, entry=load_entry(raw), raw=raw)
