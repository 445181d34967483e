"""How long a server asked to wait, from every place where servers say it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from prism.core.providers._json import is_object

MAX_HINT_MS: Final = 7 * 86_400_000
"""A longer wait is reported as a week."""

_DURATION_PART: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|d|h|m(?!s)|s)", re.IGNORECASE
)
_UNIT_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_IN_TEXT: Final = re.compile(
    r"(?:try again in|retry (?:in|after)|reset(?:s)? (?:after|in)|wait(?: for)?)\s+"
    r"((?:\d+(?:\.\d+)?\s*(?:ms|milliseconds?|seconds?|secs?|minutes?|mins?|hours?|[dhms])\s*)+)",
    re.IGNORECASE,
)
# Below this a number is seconds from now, above it a time since the epoch, in seconds or in ms.
_EPOCH_SECONDS: Final = 1_000_000_000
_EPOCH_MS: Final = 1_000_000_000_000


def retry_after_ms(
    headers: Mapping[str, str],
    *,
    details: Sequence[Any] = (),
    text: str = "",
    rate_limited: bool = False,
    now: float,
) -> int | None:
    """The first hint of: `retry-after-ms`, `retry-after`, Google's `retryDelay`, the text, resets.

    Args:
        headers: Names in lower case.
        details: `error.details` of a Google error.
        text: The vendor's message.
        rate_limited: Whether the reset times of rate-limit headers are about this error.
        now: Seconds since the epoch, for times of day.

    Returns:
        Whole milliseconds from 0 to `MAX_HINT_MS`, or `None`.
    """
    for delay_ms in _hints(headers, details, text, rate_limited=rate_limited, now=now):
        if delay_ms is not None and math.isfinite(delay_ms):
            return min(MAX_HINT_MS, max(0, math.ceil(delay_ms)))
    return None


def _hints(
    headers: Mapping[str, str],
    details: Sequence[Any],
    text: str,
    *,
    rate_limited: bool,
    now: float,
) -> Iterator[float | None]:
    yield _number(headers.get("retry-after-ms"))
    after = headers.get("retry-after")
    if after is not None:
        seconds = _number(after)
        yield seconds * 1_000 if seconds is not None else _date_ms(after, headers, now)
    for detail in details:
        if is_object(detail) and isinstance(detail.get("retryDelay"), str):
            yield _duration_ms(detail["retryDelay"])
    match = _IN_TEXT.search(text)
    if match is not None:
        yield _duration_ms(match.group(1))
    if rate_limited:
        yield _reset_ms(headers, now)


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text.strip())
    except ValueError:
        return None


def _date_ms(text: str, headers: Mapping[str, str], now: float) -> float | None:
    """Until an HTTP date, by the server's own clock when it told its time."""
    then = _date(text)
    if then is None:
        return None
    server_now = _date(headers.get("date", ""))
    return (then - (now if server_now is None else server_now)) * 1_000


def _date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def _duration_ms(text: str) -> float | None:
    """`34.07s`, `900ms`, `1h2m3s`, `6m0s`, `2 minutes`."""
    total = 0.0
    found = False
    for number, unit in _DURATION_PART.findall(text):
        found = True
        unit = unit.lower()
        total += float(number) * (1 if unit.startswith(("ms", "mil")) else _UNIT_MS[unit])
    return total if found else None


def _reset_ms(headers: Mapping[str, str], now: float) -> float | None:
    """The latest reset among the buckets that are empty."""
    waits: list[float] = []
    for name, value in headers.items():
        if name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
            remaining = headers.get(name.removesuffix("reset") + "remaining")
        elif name.startswith(("x-ratelimit-reset", "ratelimit-reset")):
            remaining = headers.get(name.replace("reset", "remaining"))
        else:
            continue
        if remaining is not None and _number(remaining) != 0:
            continue
        wait_ms = _moment_ms(value, now)
        if wait_ms is not None:
            waits.append(wait_ms)
    return max(waits, default=None)


def _moment_ms(text: str, now: float) -> float | None:
    number = _number(text)
    if number is not None:
        if number >= _EPOCH_MS:
            return number - now * 1_000
        if number >= _EPOCH_SECONDS:
            return (number - now) * 1_000
        return number * 1_000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _duration_ms(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment.timestamp() - now) * 1_000
