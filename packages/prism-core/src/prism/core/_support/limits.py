"""Checks of numbers and sizes that a caller gives."""

from __future__ import annotations

from typing import Final

from prism.core._errors import UsageError


def positive_int(name: str, value: object, *, cap: int) -> int:
    """*value*, when it is an int from 1 to *cap*.

    Raises:
        UsageError: `invalid_limit`; booleans, floats and strings are refused too.
    """
    if type(value) is not int or not 0 < value <= cap:
        raise UsageError(
            f"{name} must be an integer from 1 to {cap}, not {_shown(value)}.",
            code="invalid_limit",
            details={"name": name, "limit": cap},
        )
    return value


def non_negative_number(name: str, value: object, *, cap: float) -> int | float:
    """*value*, when it is a finite number from 0 to *cap*.

    Raises:
        UsageError: `invalid_limit`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= cap:
        raise UsageError(
            f"{name} must be a number from 0 to {cap}, not {_shown(value)}.",
            code="invalid_limit",
            details={"name": name, "limit": cap},
        )
    return value


_SHOWN_BITS: Final = 128


def _shown(value: object) -> str:
    """A number as it is; of huge integers and of anything else only what it is."""
    if value is None or isinstance(value, float | bool):
        return repr(value)
    if isinstance(value, int):
        bits = value.bit_length()
        return repr(value) if bits <= _SHOWN_BITS else f"an integer of {bits} bits"
    return f"a value of type {type(value).__name__}"


def truncate_utf8(text: str, max_bytes: int, *, marker: str = "…") -> str:
    """*text*, cut to at most *max_bytes* of UTF-8 with *marker* at its end when it was longer.

    A character is never cut in two. A marker that does not fit is left out.
    """
    # A character has at least one byte, so no more of them can be needed.
    data = text[: max_bytes + 1].encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return text
    end = marker.encode("utf-8", "surrogatepass")
    if len(end) > max_bytes:
        end = b""
    room = max_bytes - len(end)
    while room > 0 and data[room] & 0xC0 == 0x80:
        room -= 1
    return (data[:room] + end).decode("utf-8", "surrogatepass")
