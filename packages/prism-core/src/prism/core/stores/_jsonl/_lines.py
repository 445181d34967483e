"""One line of a session file, also a damaged one."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from prism.core._errors import DecodeError
from prism.core._wire import OpaqueEntry, SessionEntry, decode_entry, encode, opaque_entry

UNREADABLE_KIND: Final = "prism.unreadable"
"""Kind of the entry that stands in for a line of which only the head could be read."""

BOM: Final = b"\xef\xbb\xbf"


class LineProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a session file that is not what it should be.

    Attributes:
        line: From 1.
        reason: What is wrong with it.
        entry_id: Set when the line stays on the path, as an `OpaqueEntry`; else it is no entry.
    """

    line: int
    reason: str
    entry_id: str | None = None


class Head(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What makes a line an entry."""

    id: str
    session_id: str | None = None
    kind: str = ""
    parent_id: str | None = None
    timestamp: str = ""


_head_decoder = msgspec.json.Decoder(Head)
_json_decoder = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def clean(line: bytes, *, first: bool) -> bytes:
    """A line's text without what editors leave around it: a byte order mark, a CR, blanks."""
    return (line.removeprefix(BOM) if first else line).strip(b" \t\r\n")


def read_head(text: bytes, *, torn: bool = False) -> Head | None:
    """What can be read of an entry's head; `None` when its id or its parent cannot.

    Args:
        text: The line.
        torn: Its writer may have been stopped in the middle: then it counts only when it is whole.
    """
    try:
        return _head_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _salvage(text, torn=torn)


def _salvage(text: bytes, *, torn: bool) -> Head | None:
    """Read a broken object member by member, as far as it goes."""
    fields, whole = _members(text.decode("utf-8", "replace"))
    if not whole and (torn or "parentId" not in fields):
        return None  # a parent may have stood in what is lost
    try:
        return msgspec.convert(fields, type=Head)
    except msgspec.ValidationError:
        return None


def _members(text: str) -> tuple[dict[str, Any], bool]:
    fields: dict[str, Any] = {}
    try:
        position = _skip(text, 0)
        if text[position] != "{":
            return {}, False
        while True:
            key, position = _json_decoder.raw_decode(text, _skip(text, position + 1))
            position = _skip(text, position)
            if text[position] != ":":
                return fields, False
            fields[key], position = _json_decoder.raw_decode(text, _skip(text, position + 1))
            position = _skip(text, position)
            if text[position] != ",":
                return fields, text[position:].strip() == "}"
    except (ValueError, IndexError, TypeError, RecursionError):
        return fields, False


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def load_line(text: bytes, session_id: str) -> tuple[SessionEntry, bytes, str | None]:
    """Read a line whose head can be read.

    Returns:
        The entry, its JSON text, and what is wrong with it. A line that is no JSON gives an entry
        of kind `UNREADABLE_KIND` that holds the line as a string, so that copies keep it.
    """
    try:
        return decode_entry(text), text, None
    except DecodeError as error:
        reason = error.message
    try:
        return opaque_entry(text), text, reason
    except DecodeError:
        entry = _stand_in(text, session_id)
        return entry, entry.raw, reason


def _stand_in(text: bytes, session_id: str) -> OpaqueEntry:
    head = read_head(text)
    assert head is not None  # noqa: S101 - only lines with a head come here
    fields = {
        "kind": UNREADABLE_KIND,
        "id": head.id,
        "sessionId": session_id,
        "timestamp": head.timestamp,
        "data": {"line": text.decode("utf-8", "backslashreplace")},
    }
    if head.parent_id is not None:
        fields["parentId"] = head.parent_id
    return opaque_entry(encode(fields))
