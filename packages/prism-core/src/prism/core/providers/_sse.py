"""Server-sent events from bytes: no I/O, no text decoding, one pass over the input."""

from __future__ import annotations

from typing import Final

import msgspec

from prism.core._errors import ProviderError

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""Largest event that is read by default: some vendors repeat a whole answer in one."""

_BOM = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event.

    Attributes:
        data: The `data` lines, joined by line feeds; not decoded.
        name: The `event` field; empty when the server gave none.
    """

    data: bytes
    name: str = ""


class SseDecoder:
    """Cuts a byte stream into events, wherever the network cut it before.

    Lines end in LF, CRLF or CR. Comments, `id` and `retry` are skipped; an event without a `data`
    line is none.

    Args:
        max_event_bytes: Limit of one event, line ends included.
    """

    __slots__ = (
        "_after_cr",
        "_data",
        "_head",
        "_max_bytes",
        "_name",
        "_size",
        "_tail",
        "_tail_size",
    )

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_event_bytes
        self._head: bytes | None = b""  # the first bytes, until they can no longer be a BOM
        self._after_cr = False
        self._tail: list[bytes] = []  # the unfinished line, joined once when it ends
        self._tail_size = 0
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that *chunk* completes.

        Raises:
            ProviderError: `response_too_large`.
        """
        if self._head is not None:
            chunk = self._without_bom(self._head + chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):  # the second half of a CRLF
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        events: list[SseEvent] = []
        if lines:
            if self._tail:
                self._tail.append(lines[0])
                lines[0] = b"".join(self._tail)
                self._tail.clear()
                self._tail_size = 0
            for line in lines:
                if line:
                    self._field(line)
                elif self._data:
                    events.append(self._dispatch())
                else:
                    self._name = ""
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            if self._size + self._tail_size > self._max_bytes:
                self._refuse()
        return events

    def finish(self) -> list[SseEvent]:
        """The event that the end of the stream cut off before its blank line, if there is one.

        Whether it is whole, only its data can tell.
        """
        if self._tail:
            line = b"".join(self._tail)
            self._tail.clear()
            self._tail_size = 0
            self._field(line)
        return [self._dispatch()] if self._data else []

    def _without_bom(self, head: bytes) -> bytes:
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)

    def _field(self, line: bytes) -> None:
        if line.startswith(b"data: "):
            value = line[6:]
        elif line.startswith(b"data:"):
            value = line[5:]
        elif line == b"data":
            value = b""
        else:
            if line.startswith(b"event:"):
                self._name = line[6:].removeprefix(b" ").decode("utf-8", "replace")
            return
        self._data.append(value)
        self._size += len(line) + 1
        if self._size > self._max_bytes:
            self._refuse()

    def _dispatch(self) -> SseEvent:
        data = self._data
        event = SseEvent(data=data[0] if len(data) == 1 else b"\n".join(data), name=self._name)
        data.clear()
        self._size = 0
        self._name = ""
        return event

    def _refuse(self) -> None:
        raise ProviderError(
            f"The server sent an event of more than {self._max_bytes} bytes.",
            code="response_too_large",
            details={"limit": self._max_bytes},
        )
