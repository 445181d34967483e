"""Where ids and timestamps come from; a host can replace both."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from os import urandom
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]
"""Seconds since the epoch."""

IdMaker: TypeAlias = Callable[[str], str]
"""Makes an id that begins with the given prefix, such as `entry`."""


def random_id(prefix: str) -> str:
    """`prefix_` and 80 random bits in hex."""
    return f"{prefix}_{urandom(10).hex()}"


def system_clock() -> float:
    """The machine's clock."""
    return time.time()


def format_timestamp(seconds: float) -> str:
    """ISO-8601 UTC with milliseconds and `Z`, to the nearest millisecond.

    Args:
        seconds: Since the epoch, in the years 1 to 9999.
    """
    whole, ms = divmod(round(seconds * 1000), 1000)
    return f"{_second(whole)}.{ms:03d}Z"


@lru_cache(maxsize=4)
def _second(whole: int) -> str:
    at = time.gmtime(whole)
    return (
        f"{at.tm_year:04d}-{at.tm_mon:02d}-{at.tm_mday:02d}"
        f"T{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}"
    )
