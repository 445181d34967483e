"""Sessions in files of JSON lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from threading import Lock
from typing import Final, TypeAlias, TypeVar

from anyio import CancelScope, sleep, to_thread
from anyio.lowlevel import checkpoint

from prism.core._contracts import SessionInfo, StoredEntry
from prism.core._errors import StoreError
from prism.core._support.limits import positive_int
from prism.core._wire import SessionEntry
from prism.core.stores._jsonl._file import SessionFile
from prism.core.stores._jsonl._handle import Pending
from prism.core.stores._jsonl._index import MAX_PROBLEMS
from prism.core.stores._jsonl._lines import LineProblem, load_line
from prism.core.stores._jsonl._listing import Listed, list_files
from prism.core.stores._jsonl._names import file_name
from prism.core.stores._records import closed, encode_batch, newest_first, os_failure

T = TypeVar("T")

OnWarning: TypeAlias = Callable[[str, str], None]
"""Is given a warning's code and its text; must not raise."""

MAX_OPEN_FILES: Final = 64
"""Descriptors that are kept open: a process may often have only 256."""

MAX_INDEXES: Final = 4_096
"""Sessions whose index stays in memory; another one is indexed again at its next use."""

MAX_LOCK_TIMEOUT_MS: Final = 600_000

_FIRST_WAIT_S: Final = 0.001
_LONGEST_WAIT_S: Final = 0.05


class JsonlSessionStore:
    """Keeps each session in a file of its own, one line of JSON per entry.

    A batch is one write under an advisory lock, so that several tasks, threads and processes may
    share the directory, and an instance too. Files are made with mode 0600, the directory at the
    first append; opening and reading write nothing.

    The file is the truth. A file that somebody removed, replaced or cut is noticed at the next use.
    When it no longer holds what this store knew, an append raises `entries_lost` once (a read
    warns with that code), and from then on the session is what the file holds.

    After a crash, a torn last line is completed when it is a whole entry; else the next append
    moves it to `<name>.quarantine`. Damaged lines never hide what follows them: see `problems`.

    Args:
        directory: Where the files are.
        fsync: Wait until each append is on the disk. When off, `aclose` does that once for all:
            a crash of the process loses nothing, a crash of the machine may.
        lock_timeout_ms: How long to wait for another process that holds a file's lock; from 1 to
            `MAX_LOCK_TIMEOUT_MS`.
        on_warning: Is told of `bad_line`, `torn_line_quarantined`, `entries_lost` and
            `unknown_file`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        fsync: bool = False,
        lock_timeout_ms: int = 10_000,
        on_warning: OnWarning | None = None,
    ) -> None:
        self._directory = os.path.abspath(directory)  # noqa: PTH100 - text is all that is needed
        self._fsync = fsync
        self._lock_timeout_ms = positive_int(
            "lock_timeout_ms", lock_timeout_ms, cap=MAX_LOCK_TIMEOUT_MS
        )
        self._on_warning = on_warning
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._files: dict[str, SessionFile] = {}  # the least recently used first
        self._open: dict[SessionFile, None] = {}
        self._recent: SessionFile | None = None  # the last one of `_files`
        self._recently_used: SessionFile | None = None  # the last one of `_open`
        self._dirty: set[str] = set()
        self._summaries: dict[str, tuple[tuple[int, int, int], SessionInfo | None]] = {}

    async def append(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int:
        """Add a batch; see `SessionStore.append`.

        Suspends only to wait for another process's lock, to index a large file that it sees for
        the first time, or for `fsync`.

        Returns:
            The new version.

        Raises:
            EncodeError: An entry holds what JSON cannot.
            StoreConflict: `id_conflict` or `version_conflict`.
            StoreError: `missing_parent`, `wrong_session`, `invalid_entry`, `entry_too_large`,
                `invalid_session_id`, `entries_lost`, `locked`, `disk_full`, `permission_denied`,
                `io_error` or `closed`. The file then is as it was.
        """
        raws = encode_batch(session_id, entries)
        file = self._file(session_id)
        try:
            outcome = file.append(entries, raws, expected_version)
            if isinstance(outcome, Pending):
                outcome = await self._retry(
                    outcome, lambda: file.append(entries, raws, expected_version), file
                )
        finally:
            self._used(file)
        version, start, end = outcome
        if file.dirty:
            if self._fsync:
                await self._make_durable(file, start, end)
            else:
                self._dirty.add(file.path)
        return version

    def append_nowait(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int | None:
        """The same as `append`, at once; `None`, and nothing is done, when it had to wait."""
        if self._fsync:
            return None
        raws = encode_batch(session_id, entries)
        file = self._file(session_id)
        try:
            outcome = file.append(entries, raws, expected_version)
        finally:
            self._used(file)
        if isinstance(outcome, Pending):
            return None
        if file.dirty:
            self._dirty.add(file.path)
        return outcome[0]

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[StoredEntry]:
        """Entries with a position above *after*, in order; none for an unknown session.

        Raises:
            StoreError: `locked`, `file_changed` (read again), `permission_denied`, `io_error` or
                `closed`.
        """
        found: list[StoredEntry] = []
        if limit is None or limit > 0:
            async for stored in self._iterate(session_id, after, limit):
                found.append(stored)  # noqa: PERF401 - a comprehension hides the checkpoints
        return found

    def iter_entries(self, session_id: str, *, after: int = 0) -> AsyncIterator[StoredEntry]:
        """The same as a stream: what is stored when it starts, in bounded memory.

        Raises:
            StoreError: As `entries`.
        """
        return self._iterate(session_id, after, None)

    async def entry(self, session_id: str, entry_id: str) -> StoredEntry | None:
        """One entry, or `None`.

        Raises:
            StoreError: As `entries`.
        """
        file = self._file(session_id)
        try:
            _, generation = await self._catch_up(file)
            place = file.place_of(entry_id)
            if place is None:
                return None
            (text,) = file.texts(generation, place, place + 1)
            return self._stored(file, session_id, place, text, None)
        finally:
            self._used(file)

    async def problems(self, session_id: str) -> list[LineProblem]:
        """The lines of a session's file that are damaged, in their order, at most 1,000.

        Raises:
            StoreError: As `entries`.
        """
        damaged: list[LineProblem] = []
        async for _ in self._iterate(session_id, 0, None, damaged):
            pass
        found = self._file(session_id).problems() + damaged
        return sorted(found, key=lambda problem: problem.line)[:MAX_PROBLEMS]

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, the one with the newest activity first.

        Reads only what was added since the last call, and decodes only the entries' heads.

        Raises:
            StoreError: As `entries`.
        """
        self._check_open()
        infos: list[SessionInfo] = []
        for listed in list_files(self._directory):
            await checkpoint()
            info = await self._summary(listed)
            if info is not None and info.entry_count:
                infos.append(info)
        return newest_first(infos)

    async def aclose(self) -> None:
        """Make what was written durable and close the files; later use raises `StoreError`.

        Raises:
            StoreError: `io_error`: what was appended may not survive a crash of the machine.
        """
        if self._closed:
            return
        self._closed = True
        with self._lock:
            files, dirty = list(self._files.values()), list(self._dirty)
            self._reset()
        for file in files:
            file.close()
        if dirty:
            with CancelScope(shield=True):
                await to_thread.run_sync(self._sync_paths, dirty)

    # The table of files

    def _check_open(self) -> None:
        if self._closed:
            raise closed()
        if self._pid != os.getpid():  # forked: locks and descriptors are shared with the parent
            self._reset()

    def _file(self, session_id: str) -> SessionFile:
        self._check_open()
        recent = self._recent
        if recent is not None and recent.session_id == session_id:
            return recent
        retired: SessionFile | None = None
        with self._lock:
            file = self._files.pop(session_id, None)
            if file is None:
                file = self._new_file(session_id)
                if len(self._files) >= MAX_INDEXES:
                    oldest = next(iter(self._files))
                    retired = self._files.pop(oldest)
            self._files[session_id] = self._recent = file
        if retired is not None:
            self._open.pop(retired, None)
            retired.close()
        return file

    def _new_file(self, session_id: str) -> SessionFile:
        name = file_name(session_id)
        return SessionFile(os.path.join(self._directory, name), session_id)  # noqa: PTH118

    def _used(self, file: SessionFile) -> None:
        """Bound the open descriptors, and pass on what the file has to say."""
        if file is not self._recently_used:
            oldest: SessionFile | None = None
            with self._lock:
                self._open.pop(file, None)
                self._open[file] = None
                self._recently_used = file
                if len(self._open) > MAX_OPEN_FILES:
                    oldest = next(iter(self._open))
                    del self._open[oldest]
            if oldest is not None:
                oldest.close()
        if self._closed:
            file.close()
        self._pass_on(file)

    def _pass_on(self, file: SessionFile) -> None:
        if file.warnings:
            warnings, file.warnings = file.warnings, []
            for code, text in warnings:
                self._warn(code, text)

    def _warn(self, code: str, text: str) -> None:
        if self._on_warning is not None:
            self._on_warning(code, text)

    # Waiting

    async def _retry(
        self, why: Pending, attempt: Callable[[], T | Pending], file: SessionFile
    ) -> T:
        # Real time even under a test's virtual clock: the other process lives in real time.
        deadline = time.monotonic() + self._lock_timeout_ms / 1000
        wait = _FIRST_WAIT_S
        while True:
            if why is Pending.BEHIND:
                await checkpoint()
            elif time.monotonic() > deadline:
                raise StoreError(
                    f"{file.path} was locked by another process for {self._lock_timeout_ms} ms"
                    " (lock_timeout_ms). Nothing was done: try again.",
                    code="locked",
                    details={"limit": self._lock_timeout_ms},
                )
            else:
                await sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT_S)
            self._check_open()
            outcome = attempt()
            if not isinstance(outcome, Pending):
                return outcome
            why = outcome

    async def _catch_up(self, file: SessionFile) -> tuple[int, int]:
        outcome = file.catch_up()
        if isinstance(outcome, Pending):
            outcome = await self._retry(outcome, file.catch_up, file)
        return outcome

    # Reading

    async def _iterate(
        self,
        session_id: str,
        after: int,
        limit: int | None,
        damaged: list[LineProblem] | None = None,
    ) -> AsyncIterator[StoredEntry]:
        file = self._file(session_id)
        try:
            version, generation = await self._catch_up(file)
        finally:
            self._used(file)
        place = max(after, 0)
        stop = version if limit is None else min(version, place + limit)
        while place < stop:
            self._check_open()
            texts = file.texts(generation, place, stop)
            self._used(file)
            for text in texts:
                yield self._stored(file, session_id, place, text, damaged)
                place += 1
            self._pass_on(file)
            if place < stop:
                await checkpoint()

    def _stored(
        self,
        file: SessionFile,
        session_id: str,
        place: int,
        text: bytes,
        damaged: list[LineProblem] | None,
    ) -> StoredEntry:
        entry, raw, reason = load_line(text, session_id)
        if reason is not None:
            problem = file.damaged(place, entry.id, reason)
            if damaged is not None and len(damaged) < MAX_PROBLEMS:
                damaged.append(problem)
        return StoredEntry(position=place + 1, entry=entry, raw=raw)

    # The list of sessions

    async def _summary(self, listed: Listed) -> SessionInfo | None:
        cached = self._summaries.get(listed.name)
        if cached is not None and cached[0] == listed.stamp:
            return cached[1]
        session_id = listed.session_id()
        info: SessionInfo | None = None
        if session_id is None:
            self._warn("unknown_file", f"{listed.path} is not a session file of this store.")
        else:
            info = await self._info(session_id)
        self._summaries[listed.name] = (listed.stamp, info)
        return info

    async def _info(self, session_id: str) -> SessionInfo:
        with self._lock:
            file = self._files.get(session_id)
        if file is not None:
            try:
                await self._catch_up(file)
            finally:
                self._used(file)
        else:  # its index is not kept: a directory may hold any number of files
            file = self._new_file(session_id)
            try:
                await self._catch_up(file)
            finally:
                file.close()
                self._pass_on(file)
        return file.info()

    # Durability

    async def _make_durable(self, file: SessionFile, start: int, end: int) -> None:
        target = file.to_sync()
        file.dirty = False
        durable = False
        try:
            with CancelScope(shield=True):
                if target is None:  # closed meanwhile, to keep few files open
                    await to_thread.run_sync(self._sync_paths, [file.path])
                else:
                    await to_thread.run_sync(self._sync_fd, *target, file.path)
            durable = True
            file.synced()
        except StoreError:
            if end > start:
                file.take_back(start, end)
            raise
        finally:
            if not durable:  # appending the batch again tries again, and so does closing
                file.dirty = True
                self._dirty.add(file.path)

    def _sync_fd(self, fd: int, created: bool, path: str) -> None:  # noqa: FBT001
        try:
            os.fsync(fd)
            if created:
                self._sync_directory()
        except OSError as error:
            raise os_failure(error, path, "make durable") from error
        finally:
            os.close(fd)

    def _sync_paths(self, paths: list[str]) -> None:
        for path in paths:
            try:
                fd = os.open(path, os.O_RDWR)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise os_failure(error, path, "make durable") from error
            self._sync_fd(fd, False, path)  # noqa: FBT003
        try:
            self._sync_directory()
        except OSError as error:
            raise os_failure(error, self._directory, "make durable") from error

    def _sync_directory(self) -> None:
        if sys.platform == "win32":  # which cannot sync a directory, and needs not
            return
        fd = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
