"""The session files of a directory."""

from __future__ import annotations

import os

from prism.core.stores._jsonl._file import SLICE_BYTES
from prism.core.stores._jsonl._lines import BOM, read_head
from prism.core.stores._jsonl._names import SUFFIX, file_name, session_id_of
from prism.core.stores._records import os_failure


class Listed:
    """A file that looks like a session's.

    Attributes:
        stamp: Changes when the file does.
    """

    __slots__ = ("name", "path", "stamp")

    def __init__(self, name: str, path: str, status: os.stat_result) -> None:
        self.name = name
        self.path = path
        self.stamp = (status.st_ino, status.st_size, status.st_mtime_ns)

    def session_id(self) -> str | None:
        """Whose it is: told by its name, or, where that is cut, by its first readable line."""
        session_id = session_id_of(self.name)
        if session_id is None:
            session_id = _peek(self.path)
            if session_id is not None and file_name(session_id) != self.name:
                return None
        return session_id


def list_files(directory: str) -> list[Listed]:
    """What the directory holds; nothing when there is none.

    Raises:
        StoreError: `permission_denied` or `io_error`.
    """
    found: list[Listed] = []
    try:
        with os.scandir(directory) as entries:
            names = [one.name for one in entries if one.name.endswith(SUFFIX) and one.is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise os_failure(error, directory, "list") from error
    for name in names:
        path = os.path.join(directory, name)  # noqa: PTH118
        try:
            found.append(Listed(name, path, os.stat(path)))  # noqa: PTH116
        except OSError:  # removed meanwhile
            continue
    return found


def _peek(path: str) -> str | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            data = file.read(SLICE_BYTES)
    except OSError:
        return None
    for line in data.removeprefix(BOM).splitlines():
        head = read_head(line)
        if head is not None and head.session_id:
            return head.session_id
    return None
