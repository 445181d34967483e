"""One session's file: indexed, read and appended to. Nothing here suspends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final, TypeVar

from prism.core._contracts import SessionInfo
from prism.core._errors import StoreError
from prism.core._wire import SessionEntry
from prism.core.stores._jsonl._handle import Handle, Pending
from prism.core.stores._jsonl._index import MAX_PROBLEMS, Index
from prism.core.stores._jsonl._lines import LineProblem, clean
from prism.core.stores._records import MAX_ENTRY_BYTES, already_stored, os_failure

T = TypeVar("T")

SLICE_BYTES: Final = 256 * 1024
"""How much of a file is read and indexed between two looks at the event loop."""

MAX_WARNINGS: Final = 100
"""Damaged lines of one file that are warned of; `problems()` tells all."""

_MAX_LINE: Final = MAX_ENTRY_BYTES + SLICE_BYTES


class SessionFile:
    """The file of one session, and the index of what it holds.

    Every method may be called from any thread. What the path names at the moment is the truth: a
    file that was removed or replaced is noticed at the next use, by its inode.

    Attributes:
        session_id: Whose file it is.
        warnings: Codes and texts that the host has not been told yet.
        dirty: Bytes were written that no fsync has confirmed.
    """

    def __init__(self, path: str, session_id: str) -> None:
        self.path = path
        self.warnings: list[tuple[str, str]] = []
        self.dirty = False
        self.session_id = session_id
        self._mutex = Lock()
        self._handle = Handle(path)
        self._identity: tuple[int, int] | None = None  # of what the index describes
        self._opening = 0
        self._torn_size = -1  # of a file whose unindexed rest holds no line feed
        self._generation = 0
        self._index = Index(session_id)
        self._ids_before: list[str] | None = None
        self._told = 0
        self._told_places: set[int] = set()

    # What the store calls

    def append(
        self, entries: Sequence[SessionEntry], raws: Sequence[bytes], expected_version: int | None
    ) -> tuple[int, int, int] | Pending:
        """Add a batch with one write.

        Returns:
            The new version, and where the batch begins and ends (0 and 0: it was there).

        Raises:
            StoreConflict: As `SessionStore.append`.
            StoreError: Also `entries_lost`, once, when the file was removed, replaced or cut.
        """
        return self._guarded(lambda: self._append(entries, raws, expected_version), "write")

    def catch_up(self) -> tuple[int, int] | Pending:
        """Index what the file holds by now.

        Returns:
            The version and the generation, which `texts` wants back.
        """
        return self._guarded(self._catch_up, "read")

    def texts(self, generation: int, place: int, stop: int) -> list[bytes]:
        """JSON texts from *place* on, about a slice of them, none from *stop* on.

        Raises:
            StoreError: `file_changed` when the file was replaced since `catch_up`.
        """
        return self._guarded(lambda: self._texts(generation, place, stop), "read")

    def place_of(self, entry_id: str) -> int | None:
        """Where an entry is."""
        return self._index.ids.get(entry_id)

    def info(self) -> SessionInfo:
        """The session as a list shows it."""
        with self._mutex:
            return self._index.info()

    def problems(self) -> list[LineProblem]:
        """The lines that are no entries."""
        with self._mutex:
            found = list(self._index.problems)
            if self._index.torn:
                reason = "It is torn; the next append moves it aside."
                found.append(LineProblem(line=self._index.next_line(), reason=reason))
            return found

    def damaged(self, place: int, entry_id: str, reason: str) -> LineProblem:
        """Note that an entry could only be read in part; the host is told once."""
        with self._mutex:
            # A reader may still hold what it read of a file that was cut since.
            line = self._index.line_of(place) if place < self._index.count else place + 1
            problem = LineProblem(line=line, reason=reason, entry_id=entry_id)
            if place not in self._told_places and len(self._told_places) < MAX_PROBLEMS:
                self._told_places.add(place)
                self._tell(problem)
            return problem

    def take_back(self, start: int, end: int) -> None:
        """Cut off a batch that could not be made durable, unless something follows it."""

        def cut() -> None:
            size = self._enter(write=True)
            if not isinstance(size, int):
                return
            try:
                if size == end:
                    self._handle.truncate(start)
            finally:
                self._handle.leave()
            self._forget()

        self._guarded(cut, "truncate")

    def to_sync(self) -> tuple[int, bool] | None:
        """A descriptor that outlives `close`, and whether the file's name is new."""
        with self._mutex:
            fd = self._handle.duplicate()
            return None if fd is None else (fd, self._handle.created)

    def synced(self) -> None:
        """The file's name is durable."""
        self._handle.created = False

    def close(self) -> None:
        """Close the descriptor; the next use opens the file again."""
        with self._mutex:
            self._handle.close()

    def _guarded(self, step: Callable[[], T], doing: str) -> T:
        try:
            with self._mutex:
                return step()
        except OSError as error:
            raise os_failure(error, self.path, doing) from error

    # Reading

    def _catch_up(self) -> tuple[int, int] | Pending:
        size = self._enter(write=False)
        if isinstance(size, Pending):
            return size
        if size is not None:
            try:
                behind = self._is_behind(size)
                if not behind:
                    self._take_rest(size)
            finally:
                self._handle.leave()
            if behind:
                self._advance(size)
                return Pending.BEHIND
        lost = self._lost_entries()
        if lost:
            self.warnings.append(("entries_lost", lost))
        self._tell_new_problems()
        return self._index.count, self._generation

    def _texts(self, generation: int, place: int, stop: int) -> list[bytes]:
        if self._handle.open(write=False):
            self._compare()
        if generation != self._generation or self._handle.identity is None:
            raise StoreError(
                f"{self.path} was replaced while it was read: read again.", code="file_changed"
            )
        count, bounds = self._index.span(place, SLICE_BYTES if stop - place > 1 else 1)
        begin = bounds[0]
        data = self._handle.read(begin, bounds[-1] - begin)
        if len(data) < bounds[-1] - begin:
            self._changed()
            raise StoreError(
                f"{self.path} was cut while it was read: read again.", code="file_changed"
            )
        texts: list[bytes] = []
        for at in range(min(count, stop - place)):
            line = data[bounds[at] - begin : bounds[at + 1] - begin]
            feed = line.find(b"\n")  # what follows it up to the next entry is damaged or blank
            texts.append(clean(line[:feed] if feed >= 0 else line, first=bounds[at] == 0))
        return texts

    def _text_at(self, place: int) -> bytes:
        return self._texts(self._generation, place, place + 1)[0]

    # Indexing

    def _is_behind(self, size: int) -> bool:
        return size - self._index.end > SLICE_BYTES and size != self._torn_size

    def _take_rest(self, size: int) -> None:
        rest = size - self._index.end
        if rest > _MAX_LINE:
            self._index.torn = True
        elif rest:
            self._index.take(self._handle.read(self._index.end, rest), final=True)
        else:
            self._index.torn = False

    def _advance(self, size: int) -> None:
        """Index a slice, or one line that is longer."""
        begin = self._index.end
        length = SLICE_BYTES
        while True:
            asked = min(length, size - begin)
            data = self._handle.read(begin, asked)
            if len(data) < asked:
                self._changed()
                return
            if self._index.take(data, final=False):
                return
            if begin + asked >= size:
                self._torn_size = size
                return
            if asked > _MAX_LINE:
                self._skip_line(begin + asked, size)
                return
            length *= 4

    def _skip_line(self, position: int, size: int) -> None:
        while position < size:
            data = self._handle.read(position, SLICE_BYTES)
            feed = data.find(b"\n")
            if feed >= 0:
                reason = f"It is longer than {MAX_ENTRY_BYTES} bytes."
                self._index.skip(position + feed + 1, reason)
                return
            position += len(data) or size
        self._torn_size = size

    def _lost_entries(self) -> str | None:
        """What to say when a changed file lacks entries that this store knew, in their order."""
        before, self._ids_before = self._ids_before, None
        if before is None:
            return None
        kept = sum(1 for old, new in zip(before, self._index.ids, strict=False) if old == new)
        if kept == len(before):
            return None
        return (
            f"{self.path} was removed, replaced or cut by somebody else: {len(before) - kept} of"
            f" {len(before)} entries that were stored are gone or moved. The session now is what"
            " the file holds."
        )

    def _tell_new_problems(self) -> None:
        problems = self._index.problems
        while self._told < len(problems):
            self._tell(problems[self._told])
            self._told += 1

    def _tell(self, problem: LineProblem) -> None:
        if self._told + len(self._told_places) <= MAX_WARNINGS:
            self.warnings.append(
                ("bad_line", f"{self.path}, line {problem.line}: {problem.reason}")
            )

    # Writing

    def _append(
        self, entries: Sequence[SessionEntry], raws: Sequence[bytes], expected_version: int | None
    ) -> tuple[int, int, int] | Pending:
        size = self._enter(write=True)
        if isinstance(size, Pending):
            return size
        if size is None:
            self._refuse_lost()
            if self._already_stored(entries, raws, expected_version):
                return 0, 0, 0
            self._handle.create()
            return self._append(entries, raws, expected_version)
        try:
            behind = self._is_behind(size)
            if not behind:
                self._take_rest(size)
                self._refuse_lost()
                self._tell_new_problems()
                if self._already_stored(entries, raws, expected_version):
                    return self._index.count, 0, 0
                start, end = self._write(entries, raws, size)
                return self._index.count, start, end
        finally:
            self._handle.leave()
        self._advance(size)
        return Pending.BEHIND

    def _already_stored(
        self, entries: Sequence[SessionEntry], raws: Sequence[bytes], expected_version: int | None
    ) -> bool:
        return already_stored(
            entries,
            raws,
            known=self._index.ids,
            text_at=self._text_at,
            version=self._index.count,
            expected_version=expected_version,
        )

    def _refuse_lost(self) -> None:
        lost = self._lost_entries()
        if lost:
            raise StoreError(f"{lost} Nothing was added: reload it.", code="entries_lost")

    def _write(
        self, entries: Sequence[SessionEntry], raws: Sequence[bytes], size: int
    ) -> tuple[int, int]:
        if size > self._index.end:
            self._quarantine(size)
            size = self._index.end
        lines = [raw.replace(b"\n", b" ") if b"\n" in raw else raw for raw in raws]
        lead = b"\n" if self._index.unterminated else b""
        data = lead + b"\n".join(lines) + b"\n"
        self.dirty = True
        self._handle.append(data, size)
        indexed = False
        try:
            self._index.added(entries, lines, size + len(lead), size + len(data))
            indexed = True
        finally:
            if not indexed:  # interrupted: the file tells what it holds
                self._forget()
        return size, size + len(data)

    def _quarantine(self, size: int) -> None:
        """Move the torn last line aside: first copied and made durable, then cut off."""
        path = f"{self.path}.quarantine"
        end = self._index.end
        self._handle.copy_aside(path, end, size, SLICE_BYTES)
        self._handle.truncate(end)
        text = (
            f"{self.path}, line {self._index.next_line()}: a torn line of {size - end} bytes, left"
            f" by a crash, was moved to {path}."
        )
        self.warnings.append(("torn_line_quarantined", text))

    # Whether the file is still the one that was indexed

    def _enter(self, *, write: bool) -> int | Pending | None:
        """Lock the file and drop the index if it describes another; see `Handle.enter`."""
        size = self._handle.enter(write=write)
        if isinstance(size, int):
            compared = False
            try:
                self._compare()
                if not self._is_intact(size):
                    self._changed()
                compared = True
            finally:
                if not compared:
                    self._handle.leave()
        elif size is None:
            self._compare()
        return size

    def _compare(self) -> None:
        handle = self._handle
        if handle.openings == self._opening:
            return
        # An inode number may be used again once its file was closed: the last entry must match.
        if handle.identity != self._identity or not self._has_last_entry():
            self._changed()
        self._identity, self._opening = handle.identity, handle.openings

    def _has_last_entry(self) -> bool:
        index = self._index
        if not index.count:
            return True
        _, bounds = index.span(index.count - 1, 1)
        probe = Index(self.session_id)
        probe.take(self._handle.read(bounds[0], bounds[1] - bounds[0]), final=True)
        return list(probe.ids) == [next(reversed(index.ids))]

    def _is_intact(self, size: int) -> bool:
        """Whether the indexed part can still be what it was, as far as one byte tells."""
        end = self._index.end
        if size == end or not end:
            return True
        if size < end:
            return False
        return self._handle.read(end if self._index.unterminated else end - 1, 1) == b"\n"

    def _changed(self) -> None:
        """The index no longer describes the file: keep its ids, to see what is missing."""
        if self._index.count and self._ids_before is None:
            self._ids_before = list(self._index.ids)
        self._forget()

    def _forget(self) -> None:
        self._index = Index(self.session_id)
        self._generation += 1
        self._torn_size = -1
        self._told = 0
        self._told_places = set()
