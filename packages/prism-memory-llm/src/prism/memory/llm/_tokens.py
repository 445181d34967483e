"""Sizes: estimated tokens, UTF-16 units as other languages count them, and checked limits."""

from __future__ import annotations

import unicodedata
from typing import Final, TypeGuard

from prism.core import CompactionEntry, MessageEntry, SessionEntry, SummaryEntry, UsageError
from prism.core.compaction import estimate_message_tokens, estimate_text_tokens

__all__ = [
    "checked_limit",
    "clean_text",
    "cut_utf16",
    "estimate_entry_tokens",
    "estimate_message_tokens",
    "estimate_text_tokens",
    "is_limit",
    "utf16_length",
]

_MAX_CLUSTER: Final = 32
"""Longest run of joined characters that is kept whole at a cut."""

_JOINER: Final = "\u200d"
_TO_REPLACE: Final = "\x00"
_REPLACEMENT: Final = "\ufffd"


def estimate_entry_tokens(entry: SessionEntry) -> int:
    """Tokens that an entry costs where it is sent: a message or a summary; other kinds are 0."""
    if isinstance(entry, MessageEntry):
        return estimate_message_tokens(entry.message)
    if isinstance(entry, SummaryEntry | CompactionEntry):
        return estimate_text_tokens(entry.summary)
    return 0


def utf16_length(text: str) -> int:
    """How many UTF-16 code units *text* takes; a character beyond U+FFFF takes two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut_utf16(text: str, max_units: int) -> str:
    """The longest start of *text* within *max_units* UTF-16 code units.

    No character is halved, and characters that are drawn as one (a letter and its accents, an
    emoji sequence) stay together unless there are more than 32 of them.
    """
    if max_units <= 0:
        return ""
    if text.isascii():
        return text[:max_units]
    data = text.encode("utf-16-le", "surrogatepass")
    if len(data) <= 2 * max_units:
        return text
    start = data[: 2 * max_units].decode("utf-16-le", "surrogatepass")
    end = len(start)
    if start[-1] != text[end - 1]:  # the first half of a pair
        end -= 1
    for at in range(end, max(end - _MAX_CLUSTER, 0), -1):
        if not _is_joined(text, at):
            return text[:at]
    return text[:end]


def _is_joined(text: str, at: int) -> bool:
    """Whether the characters on both sides of *at* are drawn as one."""
    following = text[at]
    return (
        following == _JOINER
        or text[at - 1] == _JOINER
        or unicodedata.category(following) in {"Mn", "Me", "Mc"}
        or "\U0001f3fb" <= following <= "\U0001f3ff"  # skin tones
    )


def clean_text(text: str) -> str:
    """*text* as every server takes it: halves of a pair joined, stray ones and NUL as U+FFFD."""
    if text.isascii():
        return text.replace(_TO_REPLACE, _REPLACEMENT)
    data = text.encode("utf-16-le", "surrogatepass")
    return data.decode("utf-16-le", "replace").replace(_TO_REPLACE, _REPLACEMENT)


def is_limit(value: object, *, cap: int) -> TypeGuard[int]:
    """Whether *value* is an int from 1 to *cap*; a bool is none."""
    return type(value) is int and 0 < value <= cap


def checked_limit(name: str, value: object, *, cap: int) -> int:
    """*value*, when it is an int from 1 to *cap*.

    Raises:
        UsageError: `invalid_limit`; booleans, floats and strings are refused too.
    """
    if not is_limit(value, cap=cap):
        raise UsageError(
            f"{name} must be an integer from 1 to {cap}, not {value!r}.",
            code="invalid_limit",
            details={"name": name, "limit": cap},
        )
    return value
