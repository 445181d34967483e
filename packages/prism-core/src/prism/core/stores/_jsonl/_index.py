"""What is remembered of a session file: which entries it holds, and where."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from prism.core._contracts import SessionInfo
from prism.core._wire import SessionEntry
from prism.core.stores._jsonl._lines import LineProblem, clean, read_head
from prism.core.stores._records import Activity, kind_of, shown

MAX_PROBLEMS: Final = 1_000
"""Damaged lines of one file that are remembered; a file with more is no session file."""


class Index:
    """Places of a session's entries in its file, without their content.

    Attributes:
        ids: Place of each entry, from 0, in file order.
        end: How much of the file is indexed.
        unterminated: The line before `end` is an entry whose line feed is missing.
        torn: What follows `end` is the beginning of a line.
    """

    __slots__ = (
        "_others",
        "_session_id",
        "_starts",
        "activity",
        "end",
        "ids",
        "problems",
        "torn",
        "unterminated",
    )

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._starts = array("Q")
        self._others = array("Q")  # lines that are no entry
        self.ids: dict[str, int] = {}
        self.end = 0
        self.unterminated = False
        self.torn = False
        self.activity = Activity()
        self.problems: list[LineProblem] = []

    @property
    def count(self) -> int:
        """The session's version."""
        return len(self._starts)

    def info(self) -> SessionInfo:
        """The session as a list shows it."""
        return self.activity.info(self._session_id, self.count)

    def take(self, data: bytes, *, final: bool) -> int:
        """Index the bytes that follow `end`.

        Args:
            data: Lines; the last one may be cut.
            final: The file ends with *data*, so a last line without a line feed is judged too.

        Returns:
            How many bytes are indexed.
        """
        begin = self.end
        position = 0
        if self.unterminated and data:  # its line feed came meanwhile
            position = 1
            self.unterminated = False
        while (feed := data.find(b"\n", position)) >= 0:
            self._line(data[position:feed], begin + position)
            position = feed + 1
        self.end = begin + position
        rest = data[position:]
        self.torn = final and bool(rest)
        if self.torn and self._last_line(rest):
            self.torn = False
            self.unterminated = True
            position = len(data)
            self.end = begin + position
        return position

    def skip(self, end: int, reason: str) -> None:
        """Pass over a line that is not read, up to *end*."""
        self._problem(self.end, reason)
        self.end = end

    def added(
        self, entries: Sequence[SessionEntry], raws: Sequence[bytes], start: int, end: int
    ) -> None:
        """Index a batch that was written as one line each from *start* to *end*."""
        for entry, raw in zip(entries, raws, strict=True):
            self.ids[entry.id] = len(self._starts)
            self._starts.append(start)
            self.activity.add(kind_of(entry), entry.timestamp, raw, entry)
            start += len(raw) + 1
        self.end = end
        self.unterminated = False
        self.torn = False

    def span(self, place: int, max_bytes: int) -> tuple[int, list[int]]:
        """The entries from *place* on that begin within *max_bytes*, at least one.

        Returns:
            How many, and where each begins, followed by where the last one's bytes end.
        """
        stop = bisect_left(self._starts, self._starts[place] + max_bytes, place + 1)
        bounds = self._starts[place:stop].tolist()
        bounds.append(self._starts[stop] if stop < len(self._starts) else self.end)
        return stop - place, bounds

    def line_of(self, place: int) -> int:
        """The number of an entry's line, from 1."""
        return place + bisect_left(self._others, self._starts[place]) + 1

    def next_line(self) -> int:
        """The number of the line after the last one that is indexed."""
        return len(self._starts) + len(self._others) + 1

    def _line(self, line: bytes, start: int) -> None:
        text = clean(line, first=start == 0)
        if not text:
            self._others.append(start)
        elif not self._entry(text, start):
            self._problem(start, self._reason(text))

    def _last_line(self, line: bytes) -> bool:
        start = self.end
        text = clean(line, first=start == 0)
        if text:
            return self._entry(text, start, torn=True)
        self._others.append(start)
        return True

    def _entry(self, text: bytes, start: int, *, torn: bool = False) -> bool:
        head = read_head(text, torn=torn)
        if head is None or head.session_id not in {None, self._session_id} or head.id in self.ids:
            return False
        self.ids[head.id] = len(self._starts)
        self._starts.append(start)
        self.activity.add(head.kind, head.timestamp, text)
        return True

    def _reason(self, text: bytes) -> str:
        head = read_head(text)
        if head is None:
            return "Its id or its parent cannot be read."
        if head.session_id not in {None, self._session_id}:
            return f"It belongs to session {shown(str(head.session_id))}."
        return f"The id {shown(head.id)} was there before."

    def _problem(self, start: int, reason: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(LineProblem(line=self.next_line(), reason=reason))
        self._others.append(start)
