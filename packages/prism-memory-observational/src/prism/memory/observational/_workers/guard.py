"""Telling output that a model repeats without end from output that is merely long."""

from __future__ import annotations

from typing import Final

MAX_REPEATED_LINES: Final = 20
"""One line so many times in a row is no answer any more."""

MAX_LINE_CHARS: Final = 20_000
"""No line of prose is as long."""

_MIN_WORDS: Final = 40
_MIN_DISTINCT: Final = 0.15


def is_repetitive(content: str) -> bool:
    """Whether a text says the same few words over and over."""
    words = content.split()
    return len(words) >= _MIN_WORDS and len(set(words)) < _MIN_DISTINCT * len(words)


class RepetitionWatch:
    """Reads text as it comes, and says when it has turned into a loop."""

    __slots__ = ("_count", "_last", "_open")

    def __init__(self) -> None:
        self._open = ""
        self._last = ""
        self._count = 0

    def feed(self, text: str) -> bool:
        """Take more text; whether it is a loop by now."""
        lines = (self._open + text).split("\n")
        self._open = lines.pop()
        for line in lines:
            shown = line.strip()
            if not shown:
                continue
            self._count = self._count + 1 if shown == self._last else 1
            self._last = shown
            if self._count >= MAX_REPEATED_LINES:
                return True
        return len(self._open) > MAX_LINE_CHARS or any(len(line) > MAX_LINE_CHARS for line in lines)
