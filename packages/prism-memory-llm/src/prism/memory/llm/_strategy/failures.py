"""What goes wrong outside, as bounded and redacted errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from prism.core import CompactionError, ErrorInfo, PrismError, SecretRedactor

_KEPT_DETAILS: Final = ("used", "limit", "reason", "requestId", "provider", "name")
_MAX_DETAIL_CHARS: Final = 200

T = TypeVar("T")


class Failures:
    """Makes the errors of one compaction.

    Args:
        redactor: Takes the secrets out, before anything is cut.
        max_bytes: Of what somebody else said, as UTF-8.
    """

    __slots__ = ("max_bytes", "redactor")

    def __init__(self, redactor: SecretRedactor, max_bytes: int) -> None:
        self.redactor = redactor
        self.max_bytes = max_bytes

    def provider(self, info: ErrorInfo) -> CompactionError:
        """The error that a provider reported."""
        return self._error(
            "The summary model failed",
            info.message,
            code=info.code or "compaction_failed",
            status=info.status,
            retry_after_ms=info.retry_after_ms,
            details=info.details,
        )

    # What is raised here is raised outside of the handler: chained to it, the original would go
    # along, and its text and its frames may hold a secret.

    def guarded(self, what: str, function: Callable[[], T]) -> T:
        """What *function* of the host's code gives; its exception becomes a `CompactionError`."""
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - the boundary to the host's code
            failure = self._raised(what, error)
        raise failure

    async def guarded_async(self, what: str, function: Callable[[], Awaitable[T]]) -> T:
        """The same for a function that is awaited."""
        try:
            return await function()
        except Exception as error:  # noqa: BLE001 - the boundary to the host's code
            failure = self._raised(what, error)
        raise failure

    def _raised(self, what: str, error: Exception) -> CompactionError:
        if not isinstance(error, PrismError):
            name, said = type(error).__name__, _said(error)
            return self._error(what, f"{name}: {said}" if said else name)
        return self._error(
            what,
            str(error),
            code=error.code,
            status=error.status,
            retry_after_ms=error.retry_after_ms,
            details=error.details,
        )

    def _error(
        self,
        what: str,
        detail: str,
        *,
        code: str | int = "compaction_failed",
        status: int | None = None,
        retry_after_ms: int | float | None = None,
        details: dict[str, Any] | None = None,
    ) -> CompactionError:
        if isinstance(code, str):
            code = self.redactor.redact_text(code)[:_MAX_DETAIL_CHARS]
        return CompactionError(
            f"{what}: {self.redactor.redact_and_truncate(detail, self.max_bytes)}",
            code=code,
            status=status,
            retry_after_ms=retry_after_ms,
            details=self._bounded(details),
        )

    def _bounded(self, details: dict[str, Any] | None) -> dict[str, Any] | None:
        kept: dict[str, Any] = {}
        for name in _KEPT_DETAILS:
            value = (details or {}).get(name)
            if isinstance(value, str):
                kept[name] = self.redactor.redact_text(value)[:_MAX_DETAIL_CHARS]
            elif isinstance(value, int | float):
                kept[name] = value
        return kept or None


def _said(error: Exception) -> str:
    """The text of an exception; not as `repr` writes it, in which no secret would be found."""
    if type(error).__str__ in {BaseException.__str__, KeyError.__str__}:
        return ", ".join(map(str, error.args))
    return str(error)


class Unusable(Exception):  # noqa: N818
    """Carries an error of ours past a guard against others; never leaves the package."""

    def __init__(self, message: str, *, code: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.error = CompactionError(message, code=code, details=details)


def not_a_summary(reason: str, message: str) -> Unusable:
    """An answer that is no summary: `invalid_summary`, with the reason in its details."""
    return Unusable(message, code="invalid_summary", details={"reason": reason})
