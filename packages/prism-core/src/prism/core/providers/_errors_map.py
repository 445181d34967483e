"""From what a vendor or the network said to an `ErrorInfo` with a stable code.

A structured code decides first, then the overflow check, then the HTTP status, then words in the
text. Status 429 is never an overflow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from prism.core._errors import PrismError
from prism.core._support.ids import Clock, system_clock
from prism.core._support.redaction import SecretRedactor
from prism.core._wire import ErrorInfo
from prism.core.providers._overflow import Overflow, find_overflow
from prism.core.providers._retry_hints import retry_after_ms
from prism.core.providers._vendor_error import VendorError, parse_error_body

MAX_MESSAGE_BYTES: Final = 1_024
"""Longest message of a provider's `ErrorInfo`, in UTF-8."""

TRANSIENT_CODES: Final = frozenset({
    "rate_limit", "temporarily_unavailable", "server_error", "timeout", "connection",
    "stream_truncated", "malformed_output", "conflict",
})  # fmt: skip
"""The provider codes after which the same request may work; all others fail again."""

_CODES: Final[dict[str, str]] = {
    vendor: code
    for code, vendors in {
        "rate_limit": (
            "rate_limit", "rate_limit_error", "rate_limit_exceeded", "rate_limited",
            "rate_limit_reached_error", "too_many_requests", "resource_exhausted",
            "ramp_limit_exceeded",
            "throttlingexception", "throttling",
        ),
        "temporarily_unavailable": (
            "overloaded_error", "overloaded", "server_is_overloaded", "slow_down", "unavailable",
            "service_unavailable", "engine_overloaded", "engine_overloaded_error",
            "model_overloaded", "no_capacity", "temporarily_unavailable",
        ),
        "server_error": (
            "api_error", "server_error", "internal", "internal_error", "internal_server_error",
            "internalservererror",
        ),
        "timeout": ("timeout_error", "timeout", "request_timeout", "deadline_exceeded"),
        "conflict": ("conflict", "conflict_error"),
        "quota_exhausted": (
            "billing_error", "insufficient_quota", "insufficient_balance", "insufficient_credits",
            "billing_hard_limit_reached", "billing_not_active", "exceeded_current_quota_error",
            "spend_limit_exceeded", "spend_limit_reached", "payment_required", "quota_exhausted",
            "enforced_spend_limit_reached", "contract_spend_limit_reached",
            "linked_organization_spend_limit_reached", "linked_organization_billing_unavailable",
            "user_profile_billing_not_authorized",
        ),
        "auth": (
            "authentication_error", "invalid_api_key", "incorrect_api_key", "api_key_invalid",
            "unauthenticated", "unauthorized", "invalid_authentication_error", "token_expired",
        ),
        "permission": (
            "permission_error", "permission_denied", "permission_denied_error", "forbidden",
            "access_denied", "unsupported_country_region_territory", "organization_restricted",
            "organization_on_hold",
        ),
        "not_found": (
            "not_found", "not_found_error", "model_not_found", "deploymentnotfound",
            "resource_not_found_error", "notfounderror",
        ),
        "replay_invalid": (
            "invalid_encrypted_content", "previous_response_not_found",
            "thinking_signature_invalid", "missing_thought_signature",
        ),
        "context_overflow": (
            "context_length_exceeded", "exceed_context_size_error", "context_window_exceeded",
            "model_context_window_exceeded",
        ),
        "request_too_large": (
            "request_too_large", "payload_too_large", "request_body_too_large_after_decoding",
        ),
        "content_blocked": (
            "invalid_prompt", "bio_policy", "content_policy", "content_policy_violation",
            "content_filter", "responsibleaipolicyviolation", "data_inspection_failed",
            "moderation_blocked",
        ),
        # The model wrote a call or a JSON answer that the vendor itself could not take.
        "malformed_output": (
            "tool_use_failed", "json_validate_failed", "output_parse_failed", "malformed_output",
        ),
    }.items()
    for vendor in vendors
}  # fmt: skip

# These types say only that the request was at fault: the text knows better.
_VAGUE: Final = frozenset({
    "invalid_request_error", "invalid_request", "invalid_argument", "failed_precondition",
    "bad_request", "badrequesterror", "unsupported_value", "unsupported_parameter",
    "invalid_value", "missing_required_parameter", "validation_error", "wrong_api_format",
})  # fmt: skip

_STATUSES: Final = {
    401: "auth", 402: "quota_exhausted", 403: "permission", 404: "not_found", 408: "timeout",
    409: "conflict", 410: "not_found", 413: "request_too_large", 425: "temporarily_unavailable",
    429: "rate_limit", 503: "temporarily_unavailable", 529: "temporarily_unavailable",
}  # fmt: skip

_QUOTA_TEXT: Final = re.compile(
    r"credit balance is too low|spend(?:ing)? limit|insufficient (?:balance|credits?|quota|funds)"
    r"|exceeded your current quota|billing (?:hard )?limit|check your plan and billing",
    re.IGNORECASE,
)
# Google's free tiers: a quota of a day, or of nothing, does not come back within a retry.
_GOOGLE_QUOTA: Final = re.compile(r"per_?day|limit: 0\b", re.IGNORECASE)
_RETRY_TEXT: Final = re.compile(r"(?:retry|try again) (?:in|after)", re.IGNORECASE)
_REPLAY_TEXT: Final = re.compile(
    r"invalid [`'\"]?signature|bound to a different conversation|thinking[`'\"]* blocks?\b"
    r"|expected [`'\"]?(?:thinking|redacted_thinking)\b|without its required \S*.{0,40}item"
    r"|thought_?signature|encrypted content .{0,60}could not be"
    r"|reasoning_content.{0,80}(?:missing|must|required)"
    r"|(?:missing|must).{0,80}reasoning_content",
    re.IGNORECASE | re.DOTALL,
)
_BLOCKED_TEXT: Final = re.compile(
    r"content (?:management )?policy|safety (?:system|policy)|flagged (?:by|as|for)", re.IGNORECASE
)

# For errors inside a stream that name neither a code nor a status.
_TEXTS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (code, re.compile(pattern, re.IGNORECASE))
    for code, pattern in (
        ("rate_limit", r"rate.?limit|too many requests|throttl"),
        ("temporarily_unavailable", r"overloaded|at capacity|temporarily unavailable"),
        ("timeout", r"timed? ?out|deadline"),
        ("auth", r"api key|unauthori[sz]ed|authentication"),
    )
)

_RATE_LIMIT_HEADER: Final = re.compile(r"^[a-z-]{0,40}ratelimit-[a-z-]{0,40}(?:remaining|reset)")
_MAX_RATE_LIMITS: Final = 16
_REQUEST_ID_HEADERS: Final = ("request-id", "x-request-id", "x-goog-request-id")


class ErrorMapper:
    """Makes the `ErrorInfo`s of one call; it knows the call's secrets and the answer's headers.

    Args:
        secrets: Exact strings that no message may hold.
        empty_body_overflow: Whether this vendor answers an overflow with 400 or 413 and no body.
        clock: For hints that name a time of day.
    """

    def __init__(
        self,
        *,
        secrets: Sequence[str] = (),
        empty_body_overflow: bool = False,
        clock: Clock = system_clock,
    ) -> None:
        self._secrets = tuple(secrets)
        self._empty_body_overflow = empty_body_overflow
        self._clock = clock
        self.headers: Mapping[str, str] = {}

    def http(self, status: int, body: bytes, *, where: str) -> ErrorInfo:
        """An answer with an HTTP status that is no success; *body* may be cut."""
        error = parse_error_body(body)
        if 300 <= status < 400:
            return self._info(
                "invalid_request",
                f"{where} answered with a redirect (status {status}), which is not followed "
                "because it would carry the credential along: set base_url to the final address.",
                error,
                status=status,
            )
        if self._empty_body_overflow and status in {400, 413} and not body.strip():
            return self._info(
                "context_overflow",
                f"{where} answered with status {status} and no body, which means that the "
                "conversation does not fit into the model's context window.",
                error,
                status=status,
            )
        return self._vendor(error, status, fallback=f"{where} answered with status {status}.")

    def event(self, data: bytes) -> ErrorInfo:
        """An error inside a stream: the data of the event that holds it."""
        error = parse_error_body(data)
        return self._vendor(error, error.status, fallback="The vendor reported an error.")

    def failure(
        self, code: str, message: str, *, details: Mapping[str, Any] | None = None
    ) -> ErrorInfo:
        """Something that Prism itself found wrong with the answer."""
        return self._info(code, message, VendorError(), details=details)

    def exception(self, error: PrismError, *, code: str | None = None) -> ErrorInfo:
        """An exception of ours, under another *code* if one is given."""
        details = dict(error.details or {})
        if code is not None and code != error.code:
            details["reason"] = error.code
        return self._info(
            str(error.code) if code is None else code, error.message, VendorError(), details=details
        )

    def _vendor(self, error: VendorError, status: int | None, *, fallback: str) -> ErrorInfo:
        text = " ".join((error.message, *error.codes))
        code, overflow = _classify(error, status, text)
        return self._info(
            code, error.message or fallback, error, status=status, overflow=overflow, text=text
        )

    def _info(
        self,
        code: str,
        message: str,
        error: VendorError,
        *,
        status: int | None = None,
        overflow: Overflow | None = None,
        text: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> ErrorInfo:
        facts: dict[str, Any] = dict(details or {})
        if overflow is not None:
            facts |= {"used": overflow.used, "limit": overflow.limit}
        facts["vendorCode"] = self._clean(error.codes[0]) if error.codes else None
        request_id = error.request_id or next(
            (self.headers[name] for name in _REQUEST_ID_HEADERS if name in self.headers), None
        )
        facts["requestId"] = self._clean(request_id) if request_id else None
        if code == "rate_limit":
            facts["rateLimits"] = self._rate_limits() or None
        should_retry = self.headers.get("x-should-retry")
        if should_retry in {"true", "false"}:
            facts["shouldRetry"] = should_retry == "true"
        delay_ms = None
        if code in TRANSIENT_CODES:
            delay_ms = retry_after_ms(
                self.headers,
                details=error.details,
                text=text,
                rate_limited=code == "rate_limit",
                now=self._clock(),
            )
        return ErrorInfo(
            message=self._clean(message, MAX_MESSAGE_BYTES),
            name=self._clean(error.kind) if error.kind else None,
            code=code,
            status=status,
            retry_after_ms=delay_ms,
            details={key: value for key, value in facts.items() if value is not None} or None,
        )

    def _rate_limits(self) -> dict[str, str]:
        """What the vendor said of the buckets that ran empty, by the names of its headers."""
        found = [name for name in self.headers if _RATE_LIMIT_HEADER.search(name)]
        return {name: self._clean(self.headers[name], 100) for name in found[:_MAX_RATE_LIMITS]}

    def _clean(self, text: str, max_bytes: int = 200) -> str:
        return SecretRedactor(self._secrets).redact_and_truncate(text, max_bytes)


def _classify(error: VendorError, status: int | None, text: str) -> tuple[str, Overflow | None]:
    overflow = None if status == 429 else _overflow(error, status, text)
    for vendor in error.codes:
        code = _CODES.get(vendor.lower())
        if code is None or (code == "context_overflow" and status == 429):
            continue
        if code == "rate_limit" and _is_quota(error, text):
            return "quota_exhausted", None
        if code == "context_overflow":
            return code, overflow or Overflow(error.used, error.limit)
        return code, None
    if overflow is not None:
        return "context_overflow", overflow
    return _by_status(error, status, text), None


def _overflow(error: VendorError, status: int | None, text: str) -> Overflow | None:
    found = None if status is not None and status >= 500 else find_overflow(text)
    if found is not None and (error.used, error.limit) != (None, None):
        return Overflow(error.used, error.limit)
    return found


def _by_status(error: VendorError, status: int | None, text: str) -> str:
    if status == 429:
        return "quota_exhausted" if _is_quota(error, text) else "rate_limit"
    if status in _STATUSES:
        return _STATUSES[status]
    if status is not None and status >= 500:
        return "server_error"
    for code, pattern in (
        ("quota_exhausted", _QUOTA_TEXT),
        ("replay_invalid", _REPLAY_TEXT),
        ("content_blocked", _BLOCKED_TEXT),
    ):
        if pattern.search(text):
            return code
    if status is not None or any(vendor.lower() in _VAGUE for vendor in error.codes):
        return "invalid_request"
    return next((code for code, pattern in _TEXTS if pattern.search(text)), "server_error")


def _is_quota(error: VendorError, text: str) -> bool:
    if error.details:  # Google uses the same words for the quota of a minute
        return any(_GOOGLE_QUOTA.search(str(part)) for part in (*error.details, error.message))
    return _QUOTA_TEXT.search(text) is not None and not _RETRY_TEXT.search(text)
