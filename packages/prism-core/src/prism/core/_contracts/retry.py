"""Trying a provider turn again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from prism.core._wire import ErrorInfo


class RetryContext(msgspec.Struct, frozen=True, kw_only=True):
    """What failed.

    Attributes:
        attempt: The attempt that failed, from 1.
        max_attempts: As configured, the first one included.
    """

    session_id: str
    run_id: str
    attempt: int
    max_attempts: int
    error: ErrorInfo
    metadata: dict[str, Any] | None = None


class RetryDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to try again, and after how long."""

    retry: bool
    delay_ms: int | float = 0
    reason: str | None = None


@runtime_checkable
class RetryPolicy(Protocol):
    """Decides after each failed attempt that had produced nothing."""

    def decide(self, context: RetryContext) -> RetryDecision:
        """Whether to try again."""
        ...


class RetryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How provider turns are retried.

    Attributes:
        policy: Default: `DefaultRetryPolicy` with the numbers below.
        max_attempts: In all, the first one included.
        base_delay_ms: Before the second attempt; it doubles.
        max_delay_ms: Cap of the doubling.
        jitter: Spread the delay at random between half and all of it.
        max_retry_after_ms: Longest wait that a server may ask for; above it the run fails now.
        secrets: Exact strings that must not be in errors and events.
    """

    policy: RetryPolicy | None = None
    max_attempts: int = 3
    base_delay_ms: int = 100
    max_delay_ms: int = 1_000
    jitter: bool = False
    max_retry_after_ms: int = 60_000
    secrets: Sequence[str] = ()
    metadata: dict[str, Any] | None = None
