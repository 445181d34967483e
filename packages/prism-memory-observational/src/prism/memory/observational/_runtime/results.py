"""What a flush did."""

from __future__ import annotations

import msgspec

from prism.core import ErrorInfo, Usage


class WorkerResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What one worker did in a flush.

    Attributes:
        status: `not_due`, `recorded`, `empty` (it looked and found nothing), `failed` or
            `skipped`.
        counts: Such as `recorded`, `rejected`, `duplicates`, `runs`, `turns`, `calls`.
        covers_up_to: Up to which entry it has come.
        error: Why it failed, or broke off after it had recorded something.
        reason: Why it was skipped.
        usage: What its model calls cost.
    """

    status: str = "not_due"
    counts: dict[str, int] = {}
    covers_up_to: str | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    usage: Usage | None = None


NOT_DUE = WorkerResult()


class FlushResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a flush did, and why not when it did nothing.

    Attributes:
        ran: Whether the workers were looked at; they may all have been `not_due`.
        reason: Why it did not run, or not to its end: `passive`, `in_flight`, `run_active`,
            `missing_model`, `missing_credential`, `breaker_open` or `aborted`.
    """

    ran: bool
    reason: str | None = None
    observer: WorkerResult = NOT_DUE
    reflector: WorkerResult = NOT_DUE
    dropper: WorkerResult = NOT_DUE

    @property
    def failed(self) -> bool:
        """Whether a worker failed or broke off."""
        return any(one.error is not None for one in (self.observer, self.reflector, self.dropper))
