"""A record as one line of text, and its size: the same everywhere."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from typing import Final

from prism.core.compaction import estimate_text_tokens

MAX_CONTENT_CHARS: Final = 10_000
"""Longest content of a record, in characters."""

_BREAKS: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_MINUTES: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_NO_TIME: Final = "unknown time"


def one_line(text: str) -> str:
    """*text* with each run of white space and control characters as one space.

    Characters that turn the direction of writing go too, so that a line reads as it is stored.
    """
    if text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " ":
        return text
    return _BREAKS.sub(" ", text).strip()


def bounded_content(text: str) -> str:
    """*text* on one line, cut to `MAX_CONTENT_CHARS` with a note of how much is missing."""
    line = one_line(text)
    if len(line) <= MAX_CONTENT_CHARS:
        return line
    note = f"… [{len(line) - MAX_CONTENT_CHARS} more characters]"
    return line[: MAX_CONTENT_CHARS - len(note)] + note


def minutes(timestamp: str) -> str:
    """The date and minute that *timestamp* shows, in the offset that it was written with."""
    if _MINUTES.match(timestamp):
        return f"{timestamp[:10]} {timestamp[11:16]}"
    return one_line(timestamp)[:16] or _NO_TIME


def parse_time(timestamp: str) -> float | None:
    """Seconds since the epoch, or `None`; without an offset it is taken as UTC."""
    try:
        at = datetime.fromisoformat(timestamp)
        return at.timestamp() if at.tzinfo else datetime.fromisoformat(f"{at}+00:00").timestamp()
    except (ValueError, OverflowError):
        return None


def local_time(timestamp: str, zone: tzinfo | None) -> str:
    """*timestamp* with the offset of *zone*; `None` is the machine's zone at that time.

    What is no ISO-8601 time comes back as it is.
    """
    try:
        at = datetime.fromisoformat(timestamp)
        if at.tzinfo is None:
            at = datetime.fromisoformat(f"{at}+00:00")
        return at.astimezone(zone).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return timestamp


def observation_line(memory_id: str, timestamp: str, relevance: str, content: str) -> str:
    """An observation as the summary shows it."""
    return f"[{memory_id}] {minutes(timestamp)} [{relevance}] {one_line(content)}"


def reflection_line(memory_id: str, content: str) -> str:
    """A reflection as the summary shows it."""
    return f"[{memory_id}] {one_line(content)}"


def line_tokens(line: str) -> int:
    """Tokens of one line of the summary, its line feed included."""
    return estimate_text_tokens(line) + 1
