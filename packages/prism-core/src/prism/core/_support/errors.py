"""Exceptions as data, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, Final, cast

from prism.core._errors import EncodeError, PrismError, ProviderError
from prism.core._support.limits import truncate_utf8
from prism.core._wire import ErrorInfo, encode, has_non_finite, to_plain
from prism.core._wire.text import is_dict, is_series

MAX_ERROR_BYTES: Final = 4096
"""Longest message of an `ErrorInfo` that Prism makes."""

MAX_DETAILS_BYTES: Final = 16_384
"""Longest JSON text of the details of an `ErrorInfo` that Prism makes."""

_MAX_DETAILS_DEPTH: Final = 16


def error_info(error: BaseException, *, redact: Callable[[str], str] | None = None) -> ErrorInfo:
    """Describe an exception for events, results and replies; redacted first, then cut.

    Args:
        error: Any exception. One that is not Prism's gets its class as name and no code. A group
            of one is described as the exception that it holds.
        redact: Applied to the message before it is cut to `MAX_ERROR_BYTES`, and to the texts in
            the details. A detail that is not JSON, or for which `MAX_DETAILS_BYTES` leaves no
            room, is left out.
    """
    error = _alone(error)
    message = error_text(error)
    if redact is not None:
        message = redact(message)
    message = truncate_utf8(message, MAX_ERROR_BYTES)
    if not isinstance(error, PrismError):
        return ErrorInfo(message=message, name=type(error).__name__)
    wait = error.retry_after_ms
    return ErrorInfo(
        message=message,
        name=type(error).__name__,
        code=error.code,
        status=error.status,
        retry_after_ms=wait if wait is None or isfinite(wait) else None,
        details=_safe_details(error.details, redact) if error.details else None,
    )


def error_text(error: BaseException) -> str:
    """What an exception says, or its class when it says nothing."""
    text = ""
    # The text of a stranger's exception is made by a stranger's code.
    with suppress(Exception):
        text = str(error)
        if type(error).__str__ is KeyError.__str__ and len(error.args) == 1:
            # Its own text is a `repr`, in which a secret may be written in another way.
            text = str(error.args[0])
    return text or type(error).__name__


def _alone(error: BaseException) -> BaseException:
    while len(held := _held(error)) == 1:
        error = held[0]
    return error


def _held(error: BaseException) -> tuple[BaseException, ...]:
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).exceptions
    return ()


def _safe_details(
    details: Mapping[str, Any], redact: Callable[[str], str] | None
) -> dict[str, Any] | None:
    safe: dict[str, Any] = {}
    room = MAX_DETAILS_BYTES
    for key, value in details.items():
        try:
            plain = to_plain(value)
            if redact is not None:
                plain = _redacted(plain, redact, _MAX_DETAILS_DEPTH)
            size = len(encode({key: plain}))
        except EncodeError:
            continue
        if size <= room and not has_non_finite(plain):
            room -= size
            safe[key] = plain
    return safe or None


def _redacted(value: Any, redact: Callable[[str], str], depth: int) -> Any:
    """*value* with every text redacted, keys too; what lies deeper than *depth* is dropped."""
    if isinstance(value, str):
        return redact(value)
    if is_dict(value):
        if depth == 0:
            return None
        return {redact(str(key)): _redacted(item, redact, depth - 1) for key, item in value.items()}
    if is_series(value):
        return [_redacted(item, redact, depth - 1) for item in value] if depth else None
    return value


def provider_error(info: ErrorInfo) -> ProviderError:
    """The exception that `run()` raises for a provider's `ErrorInfo`."""
    return ProviderError(
        info.message,
        code=info.code,
        details=info.details,
        status=info.status,
        retry_after_ms=info.retry_after_ms,
    )
