"""An open session file: found by its path, locked, read and written. Nothing here suspends."""

from __future__ import annotations

import os
import stat
from enum import Enum
from typing import Final

from prism.core._errors import StoreError
from prism.core.stores._jsonl._lock import FileLock, read_at

_BASE_FLAGS: Final = (
    # O_BINARY is Windows'; O_NONBLOCK keeps a named pipe from blocking the loop.
    getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
)


class Pending(Enum):
    """Why an attempt did nothing yet."""

    LOCKED = "locked"
    """Another process or thread holds the file's lock."""

    BEHIND = "behind"
    """A slice of the file was indexed, and there is more."""


class Handle:
    """A descriptor on what a path names at the moment, however often that changes.

    Attributes:
        path: The file.
        created: This handle made the file, and nobody has made its name durable.
        identity: Device and inode of what is open, or was last.
        openings: How often the path was looked up; another number may mean another file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.created = False
        self.identity: tuple[int, int] | None = None
        self.openings = 0
        self._lock = FileLock(path)
        self._fd = -1
        self._writable = False

    def enter(self, *, write: bool) -> int | Pending | None:
        """Lock what the path names now; `leave` follows when a size is returned.

        Returns:
            The file's size; `None` when there is no file.
        """
        while True:
            if not self.open(write=write):
                return None
            if not self._lock.acquire(self._fd, exclusive=write):
                return Pending.LOCKED
            entered = False
            try:
                status = os.stat(self.path)  # noqa: PTH116 - once per append
                if (status.st_dev, status.st_ino) == self.identity:
                    entered = True
                    return status.st_size
            except FileNotFoundError:
                pass
            finally:
                if not entered:  # replaced between the two calls
                    self.leave()
                    self.close()

    def leave(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            self._lock.release(self._fd)

    def open(self, *, write: bool) -> bool:
        """Have a descriptor; `False` when the path names nothing."""
        if self._fd >= 0 and (self._writable or not write):
            return True
        flags = (os.O_RDWR | os.O_APPEND if write else os.O_RDONLY) | _BASE_FLAGS
        try:
            fd = os.open(self.path, flags)
        except FileNotFoundError:
            self.close()
            self.identity = None
            self.openings += 1
            return False
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise StoreError(f"{self.path} is not a regular file.", code="io_error")
        self.close()
        self._fd, self._writable = fd, write
        self.identity = (status.st_dev, status.st_ino)
        self.openings += 1
        return True

    def create(self) -> None:
        """Make the file, and its directory, unless they are there."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _BASE_FLAGS
        try:
            fd = os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
            fd = os.open(self.path, flags, 0o600)
        os.close(fd)
        self.created = True

    def read(self, offset: int, size: int) -> bytes:
        """Up to *size* bytes; fewer only where the file ends."""
        data = read_at(self._fd, size, offset)
        while len(data) < size:
            more = read_at(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def append(self, data: bytes, size: int) -> None:
        """Write behind the file's *size* bytes: all of *data*, or nothing."""
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            # Should the cut fail too, what stays is read like what a writer that crashed left.
            self.truncate(size)
            raise

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self._fd, size)

    def copy_aside(self, path: str, start: int, end: int, slice_bytes: int) -> None:
        """Append a part of the file, and a line feed, to another one, and make that durable."""
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BASE_FLAGS, 0o600)
        try:
            while start < end:
                data = self.read(start, min(slice_bytes, end - start))
                if not data:
                    break
                start += len(data)
                while data:
                    data = data[os.write(target, data) :]
            os.write(target, b"\n")
            os.fsync(target)
        finally:
            os.close(target)

    def duplicate(self) -> int | None:
        """A descriptor that outlives `close`."""
        return os.dup(self._fd) if self._fd >= 0 else None

    def close(self) -> None:
        """Close the descriptor; the next use opens the path again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._writable = False
