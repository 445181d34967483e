"""Stops trying for a while after failures in a row."""

from __future__ import annotations

from typing import Final

MAX_DOUBLINGS: Final = 4


class Breaker:
    """Counts failures in a row. Times are seconds of one monotonic clock."""

    __slots__ = ("_failures", "_until")

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0

    def is_open(self, now: float) -> bool:
        """Whether nothing should be tried yet."""
        return now < self._until

    def failed(self, now: float, *, after: int, cooldown_ms: int) -> None:
        """Note a failure; from the one numbered *after* on, each opens the breaker."""
        self._failures += 1
        over = self._failures - after
        if over >= 0:
            self._until = now + cooldown_ms / 1000 * (1 << min(over, MAX_DOUBLINGS))

    def succeeded(self) -> None:
        """Note a success: all is forgotten."""
        self._failures = 0
        self._until = 0.0
