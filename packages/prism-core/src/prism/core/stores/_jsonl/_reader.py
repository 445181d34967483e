"""Any file of entries, as data."""

from __future__ import annotations

import os
from typing import Final

import msgspec
from anyio.lowlevel import checkpoint

from prism.core._contracts import StoredEntry
from prism.core.stores._jsonl._file import SLICE_BYTES
from prism.core.stores._jsonl._lines import LineProblem, clean, load_line, read_head
from prism.core.stores._records import MAX_ENTRY_BYTES, os_failure, shown

MAX_FILE_PROBLEMS: Final = 10_000
"""Damaged lines that are listed; a file with more is no session file."""


class SessionFileContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of JSON lines holds.

    Attributes:
        sessions: The entries of each session, in file order; positions count per session.
        problems: Lines that are damaged, or were there before.
    """

    sessions: dict[str, list[StoredEntry]]
    problems: list[LineProblem]


async def read_session_file(path: str | os.PathLike[str]) -> SessionFileContent:
    """Read a file of entries, also one with several sessions or of another program.

    Nothing is locked or written. A last line without a line feed counts when it is whole.

    Raises:
        StoreError: `permission_denied` or `io_error`.
    """
    content = SessionFileContent(sessions={}, problems=[])
    seen: set[tuple[str, str]] = set()
    number = 0
    try:
        with open(path, "rb") as file:  # noqa: ASYNC230, PTH123 - in slices, with looks at the loop
            budget = SLICE_BYTES
            while line := file.readline(MAX_ENTRY_BYTES + 1):
                number += 1
                if len(line) > MAX_ENTRY_BYTES and not line.endswith(b"\n"):
                    while (more := file.readline(SLICE_BYTES)) and not more.endswith(b"\n"):
                        await checkpoint()
                    _add_problem(content, number, f"It is longer than {MAX_ENTRY_BYTES} bytes.")
                else:
                    _add_line(content, seen, line, number)
                budget -= len(line)
                if budget < 0:
                    budget = SLICE_BYTES
                    await checkpoint()
    except OSError as error:
        raise os_failure(error, os.fspath(path), "read") from error
    return content


def _add_line(
    content: SessionFileContent, seen: set[tuple[str, str]], line: bytes, number: int
) -> None:
    text = clean(line, first=number == 1)
    if not text:
        return
    head = read_head(text, torn=not line.endswith(b"\n"))
    if head is None or head.session_id is None:
        _add_problem(content, number, "Its id, its session or its parent cannot be read.")
        return
    key = (head.session_id, head.id)
    if key in seen:
        _add_problem(content, number, f"The id {shown(head.id)} was there before.")
        return
    seen.add(key)
    entry, raw, reason = load_line(text, head.session_id)
    if reason is not None:
        _add_problem(content, number, reason, head.id)
    entries = content.sessions.setdefault(head.session_id, [])
    entries.append(StoredEntry(position=len(entries) + 1, entry=entry, raw=raw))


def _add_problem(
    content: SessionFileContent, line: int, reason: str, entry_id: str | None = None
) -> None:
    if len(content.problems) < MAX_FILE_PROBLEMS:
        content.problems.append(LineProblem(line=line, reason=reason, entry_id=entry_id))
