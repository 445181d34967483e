"""Lines out of bytes: only a line feed ends one, whatever the characters inside are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Longest request, its line feed not counted."""

_BOM: Final = b"\xef\xbb\xbf"


class LineTooLong:
    """Stands for a line above the limit; its bytes were thrown away as they came."""


LINE_TOO_LONG: Final = LineTooLong()


class Framer:
    """Cuts a stream of bytes into lines, at any chunking.

    A carriage return before the line feed goes, so do blank lines and a byte order mark before the
    first line. A line above the limit becomes `LINE_TOO_LONG` as soon as that is known, and the
    next line is read as if nothing had happened.

    Args:
        max_line_bytes: Default 16 MiB.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._partial = bytearray()
        self._skipping = False
        self._first = True

    def feed(self, data: bytes) -> Iterator[bytes | LineTooLong]:
        """The lines that end in *data*."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = self._end(data[start:end])
            if line is not None:
                yield line
            start = end + 1
        rest = data[start:] if start else data
        if rest and not self._skipping:
            self._partial += rest
            # One byte more may be the carriage return of a line that just fits.
            if len(self._partial) > self._max + len(_BOM) + 1:
                self._partial.clear()
                self._skipping = True
                yield LINE_TOO_LONG

    def end(self) -> Iterator[bytes | LineTooLong]:
        """The last line, if the stream did not end in a line feed."""
        line = self._end(b"")
        if line is not None:
            yield line

    def _end(self, tail: bytes) -> bytes | LineTooLong | None:
        if self._skipping:
            self._skipping = False
            return None
        line = tail
        if self._partial:
            self._partial += tail
            line = bytes(self._partial)
            self._partial.clear()
        if self._first:
            line = line.removeprefix(_BOM)
            self._first = False
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > self._max:
            return LINE_TOO_LONG
        return None if not line or line.isspace() else line
