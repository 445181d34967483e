"""Reading one file, bounded and confined."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Hard cap of every limit on a file's size."""


class FileRefused(Exception):  # noqa: N818 - turned into an error of the caller's own kind
    """A file that is not read: `not_found`, `denied`, `too_large` or `unreadable`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def read_file(path: Path, *, roots: Sequence[Path] | None, max_bytes: int) -> bytes:
    """The bytes of a regular file.

    Args:
        path: Symbolic links are followed before it is compared with *roots*.
        roots: Folders that the file must lie in; `None`: anywhere.
        max_bytes: Most bytes that it may have.

    Raises:
        FileRefused: See there.
    """
    shown = str(path)
    try:
        real = path.resolve(strict=True)
        inside = roots is None or any(real.is_relative_to(root.resolve()) for root in roots)
    except (FileNotFoundError, NotADirectoryError):
        raise FileRefused("not_found", f"There is no file {shown!r}.") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise FileRefused("unreadable", f"The path {shown!r} cannot be used: {error}.") from None
    if not inside:
        folders = ", ".join(repr(str(root)) for root in roots or ())
        raise FileRefused("denied", f"{shown!r} leads out of {folders}.")
    try:
        # No waiting for the other end of a pipe, and no link that was put there meanwhile.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(real, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise FileRefused("not_found", f"There is no file {shown!r}.") from None
    except OSError as error:
        raise FileRefused("unreadable", f"{shown!r} cannot be opened: {error.strerror}.") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileRefused("denied", f"{shown!r} is not a regular file.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # The size that the system tells may be wrong by the time it is read.
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise FileRefused("unreadable", f"{shown!r} cannot be read: {error.strerror}.") from None
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        raise FileRefused("too_large", f"{shown!r} has more than {max_bytes} bytes.")
    return data
