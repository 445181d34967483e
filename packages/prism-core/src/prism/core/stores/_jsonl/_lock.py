"""The advisory lock of a session file."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import os

    class FileLock:
        """An exclusive lock on a file beside the session's, because Windows locks hinder readers.

        Args:
            path: The session file.
        """

        def __init__(self, path: str) -> None:
            import filelock

            self._lock = filelock.FileLock(f"{path}.lock", mode=0o600, thread_local=False)
            self._timeout = filelock.Timeout

        def acquire(self, fd: int, *, exclusive: bool) -> bool:
            """Take the lock if it is free, without waiting."""
            try:
                self._lock.acquire(timeout=0)
            except self._timeout:
                return False
            return True

        def release(self, fd: int) -> None:
            """Give it back."""
            self._lock.release()

    def read_at(fd: int, size: int, offset: int) -> bytes:
        """Read like `os.pread`; the caller holds the file's mutex."""
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)

else:
    import fcntl
    from os import pread as read_at

    class FileLock:
        """`flock` on the session file itself: it ends with the process, whatever kills that.

        Args:
            path: The session file.
        """

        def __init__(self, path: str) -> None:
            pass

        def acquire(self, fd: int, *, exclusive: bool) -> bool:
            """Take the lock if it is free, without waiting; readers share it."""
            mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            try:
                fcntl.flock(fd, mode | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        def release(self, fd: int) -> None:
            """Give it back."""
            fcntl.flock(fd, fcntl.LOCK_UN)


__all__ = ["FileLock", "read_at"]
