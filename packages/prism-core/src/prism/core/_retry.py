"""Which failures of a provider turn are worth another attempt, and after how long."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final

import anyio

from prism.core._contracts import RetryContext, RetryDecision, RetryOptions
from prism.core._errors import UsageError
from prism.core._support.limits import non_negative_number, positive_int
from prism.core._wire import ErrorInfo

MAX_ATTEMPTS: Final = 100
"""Most attempts that a policy may be given."""

MAX_DELAY_MS: Final = 86_400_000
"""Longest wait that a policy may be given, and that `wait_for_retry` takes: one day."""

TRANSIENT_CODES: Final = frozenset({
    "ETIMEDOUT", "ECONNRESET", "timeout", "connection", "rate_limit", "overloaded", "server_error",
    "temporarily_unavailable", "stream_truncated", "malformed_output", "conflict",
})  # fmt: skip
"""Codes of failures that may be gone at the next attempt."""

PERMANENT_CODES: Final = frozenset({
    "aborted", "quota_exhausted", "auth", "permission", "not_found", "invalid_request",
    "replay_invalid", "context_overflow", "request_too_large", "unsupported", "content_blocked",
    "response_too_large",
})  # fmt: skip
"""Provider codes of failures that come again; each is decided without a look at the status."""

NEVER_CODES: Final = frozenset({
    "aborted", "quota_exhausted", "auth", "permission", "replay_invalid", "context_overflow",
})  # fmt: skip
"""Permanent codes of failures that are not tried again even when the vendor would have it."""

TRANSIENT_STATUSES: Final = frozenset({
    408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529,
})  # fmt: skip
"""HTTP statuses of failures that may be gone at the next attempt."""

ONCE_CODES: Final = frozenset({"malformed_output"})
"""Worth a second attempt, but not a third: a model that garbles twice garbles again."""

_ABORT_NAMES: Final = frozenset({"AbortError", "CancelledError", "Cancelled", "RunAborted"})

_MAX_MESSAGE_CHARS: Final = 4_096
_CLIENT_ERRORS: Final = range(400, 500)

_TRANSIENT_WORDS: Final = r"""
    (?<![\w-])(?:
        etimedout | econnreset | timeout | timed[ ]out | connection
        | rate[ _-]?limit(?:ed)? | too[ ]many[ ]requests | overloaded | at[ ]capacity
        | server[ _]error | internal[ ]server[ ]error | bad[ ]gateway | gateway[ ]timeout
        | service[ ]unavailable | temporarily[ _]unavailable
        | stream_truncated | malformed_output
    )(?![\w-])"""

# A number alone is a status only where it is not an amount of something.
_STATUS_WORD: Final = r"""
    (?<![\w.,/\#$€+-])(?:408|409|425|429|50[0234]|52[0-4]|529)(?![\w%/+-]|[.,:]\d)
        (?!\s*(?:tokens?|char(?:acter)?s?|bytes?|[kmg]i?b|m?s|seconds?|minutes?|hours?|days?
            |messages?|items?|images?|requests?|times?|words?|lines?|entries|tools?|credits?)
            (?!\w))"""
_AMOUNT_BEFORE: Final = r"""
    (?:\b(?:than|most|least|exceed(?:s|ed)?|(?:max|maximum|min|minimum|limit)(?:\s+(?:of|is))?
        |between|over|under|above|below)
        |[<>≤≥]=?|(?<!status)(?<!code)(?<!error)\s*=):?\s*$"""
_MAX_AMOUNT_CHARS: Final = 40

# Texts of aborts, bad credentials, wrong requests, spent quotas and full contexts: never again,
# whatever else the message says.
_PERMANENT_WORDS: Final = r"""
    (?<![a-z])(?:
        (?:request|operation|run|call)[ ](?:was[ ])?(?:aborted|cancell?ed) | aborted[ ]by
        | user[ ]aborted
        | unauthori[sz]ed | forbidden | api[ _-]?key | authentication
        | (?:permission|access)[ _]denied
        | quota | billing | insufficient | credit[ ]balance | payment
        | must[ ](?:be|have|not|match|contain) | is[ ]required
        | is[ ]not[ ](?:supported|allowed|valid)
        | validation | bad[ ]request
        | invalid[ _](?:request|value|argument|parameter|type|input|model)
        | not[ _]found | does[ ]not[ ]exist
        | context[ _](?:length|window|size|overflow) | maximum[ ]context
        | prompt[ ]is[ ]too[ ]long | too[ ]many[ ]tokens
    )(?![a-z])"""


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compiled when the first foreign error comes: that takes longer than importing the rest."""
    return re.compile(text, re.IGNORECASE | re.VERBOSE)


def is_transient(error: ErrorInfo) -> bool:
    """Whether the failure may be gone at the next attempt.

    The vendor's own word (`details["shouldRetry"]`) decides first, then the code when it is known,
    then the status; the words of the message only when none of them says anything.

    Args:
        error: As a provider reports it; `code` may also be a status.
    """
    if error.name in _ABORT_NAMES:
        return False
    wanted = (error.details or {}).get("shouldRetry")
    if wanted is False:
        return False
    if wanted is True and error.status is not None and error.code not in NEVER_CODES:
        return True
    said = ""
    if isinstance(error.code, str) and not error.code.isdecimal():
        said = error.code.replace("_", " ")
        if error.code in TRANSIENT_CODES:
            return True
        if error.code in PERMANENT_CODES or _pattern(_PERMANENT_WORDS).search(said):
            return False
    for status in (error.code, error.status):
        number = _status(status)
        if number in TRANSIENT_STATUSES:
            return True
        if number in _CLIENT_ERRORS:
            return False
    return _says_transient(f"{said}: {error.message[:_MAX_MESSAGE_CHARS]}")


def _status(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{3}", value) else None


def _says_transient(message: str) -> bool:
    if _pattern(_PERMANENT_WORDS).search(message):
        return False
    if _pattern(_TRANSIENT_WORDS).search(message):
        return True
    return any(
        not _pattern(_AMOUNT_BEFORE).search(message[max(0, at - _MAX_AMOUNT_CHARS) : at])
        for at in (found.start() for found in _pattern(_STATUS_WORD).finditer(message))
    )


class DefaultRetryPolicy:
    """Retries transient failures, doubling the wait.

    The wait before attempt *n* is `base_delay_ms` · 2^(n-2), at most `max_delay_ms`; a server's
    `retry_after_ms` raises it. A server that asks for more than `max_retry_after_ms` ends the
    retrying, and the decision's reason says so.

    For hosted models `base_delay_ms=500, max_delay_ms=8_000, jitter=True` is what their own
    clients do.

    Args:
        options: Where numbers come from that are not given here.
        max_attempts: In all, the first one included; default 3, at most `MAX_ATTEMPTS`.
        base_delay_ms: Before the second attempt; default 100.
        max_delay_ms: Cap of the doubling; default 1,000.
        jitter: Take between half and all of the wait, at random; default no.
        max_retry_after_ms: Longest wait that a server may ask for; default 60,000.
        random: Gives the numbers from 0 to 1 for the jitter; default `random.random`.

    Raises:
        UsageError: `invalid_limit`, for a number out of range; delays are at most `MAX_DELAY_MS`.
    """

    __slots__ = (
        "_random",
        "base_delay_ms",
        "jitter",
        "max_attempts",
        "max_delay_ms",
        "max_retry_after_ms",
    )

    def __init__(
        self,
        options: RetryOptions | None = None,
        *,
        max_attempts: int | None = None,
        base_delay_ms: int | None = None,
        max_delay_ms: int | None = None,
        jitter: bool | None = None,
        max_retry_after_ms: int | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        given = options or RetryOptions()

        def delay(name: str, value: int | None) -> int | float:
            number = getattr(given, name) if value is None else value
            return non_negative_number(name, number, cap=MAX_DELAY_MS)

        self.max_attempts: int = positive_int(
            "max_attempts",
            given.max_attempts if max_attempts is None else max_attempts,
            cap=MAX_ATTEMPTS,
        )
        self.base_delay_ms: int | float = delay("base_delay_ms", base_delay_ms)
        self.max_delay_ms: int | float = delay("max_delay_ms", max_delay_ms)
        self.max_retry_after_ms: int | float = delay("max_retry_after_ms", max_retry_after_ms)
        self.jitter: bool = given.jitter if jitter is None else jitter
        if type(self.jitter) is not bool:
            raise UsageError(
                f"jitter must be True or False, not {self.jitter!r}.", code="invalid_limit"
            )
        if random is None and self.jitter:
            from random import random  # not for everyone who imports this
        self._random = random  # noqa: S311 - spreads waits, hides nothing

    def __repr__(self) -> str:
        return (
            f"DefaultRetryPolicy(max_attempts={self.max_attempts}, "
            f"base_delay_ms={self.base_delay_ms}, max_delay_ms={self.max_delay_ms})"
        )

    def decide(self, context: RetryContext) -> RetryDecision:
        """Whether to try again and after how long; why not, when a transient failure is not."""
        error = context.error
        if not is_transient(error):
            return RetryDecision(retry=False)
        if context.attempt >= self.max_attempts:
            return RetryDecision(
                retry=False, reason=f"All {self.max_attempts} attempts were used (max_attempts)."
            )
        if error.code in ONCE_CODES and context.attempt > 1:
            return RetryDecision(
                retry=False, reason=f"A failure with code {error.code!r} is retried only once."
            )
        asked_ms = error.retry_after_ms
        if asked_ms is None or not asked_ms > 0:
            asked_ms = 0
        if asked_ms > self.max_retry_after_ms:
            return RetryDecision(
                retry=False,
                reason=(
                    f"The server asks to wait {asked_ms:.0f} ms, which is more than "
                    f"max_retry_after_ms ({self.max_retry_after_ms})."
                ),
            )
        return RetryDecision(retry=True, delay_ms=max(self._backoff_ms(context.attempt), asked_ms))

    def _backoff_ms(self, attempt: int) -> int | float:
        delay_ms = min(self.max_delay_ms, self.base_delay_ms * (1 << max(0, attempt - 1)))
        if self.jitter and self._random is not None:
            return delay_ms * (0.5 + self._random() / 2)
        return delay_ms


async def wait_for_retry(decision: RetryDecision) -> None:
    """Wait as long as *decision* says; cancelling the caller ends the wait at once.

    A decision against a retry is not waited for.

    Raises:
        UsageError: `invalid_limit`, for a delay that is no number from 0 to `MAX_DELAY_MS`.
    """
    delay_ms = non_negative_number("delay_ms", decision.delay_ms, cap=MAX_DELAY_MS)
    await anyio.sleep(delay_ms / 1000 if decision.retry else 0)
