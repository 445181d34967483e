"""Which failures are worth another attempt."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from prism.core import is_transient
from prism.core._wire import ErrorInfo

# Every provider code, and whether it may be gone at the next attempt.
CODES = {
    "rate_limit": True,
    "temporarily_unavailable": True,
    "server_error": True,
    "timeout": True,
    "connection": True,
    "stream_truncated": True,
    "malformed_output": True,
    "conflict": True,
    "overloaded": True,
    "ETIMEDOUT": True,
    "ECONNRESET": True,
    "aborted": False,
    "quota_exhausted": False,
    "auth": False,
    "permission": False,
    "not_found": False,
    "invalid_request": False,
    "replay_invalid": False,
    "context_overflow": False,
    "request_too_large": False,
    "unsupported": False,
    "content_blocked": False,
    "response_too_large": False,
}
TRANSIENT_STATUSES = [408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529]


@pytest.mark.parametrize(("code", "transient"), CODES.items())
def test_each_code(code: str, *, transient: bool):
    assert is_transient(ErrorInfo(message="something", code=code)) is transient


@pytest.mark.parametrize(("code", "transient"), CODES.items())
def test_a_known_code_outranks_the_status_and_the_words(code: str, *, transient: bool):
    status, message = (400, "invalid request") if transient else (503, "timeout, try again")
    assert is_transient(ErrorInfo(message=message, code=code, status=status)) is transient


@pytest.mark.parametrize("status", TRANSIENT_STATUSES)
def test_each_transient_status_also_as_a_code(status: int):
    assert is_transient(ErrorInfo(message="", status=status))
    assert is_transient(ErrorInfo(message="", code=status))
    assert is_transient(ErrorInfo(message="", code=str(status)))


@given(st.integers(400, 499).filter(lambda status: status not in TRANSIENT_STATUSES))
def test_no_other_4xx_is_transient_whatever_the_message_says(status: int):
    message = "timeout: 503 service unavailable"
    assert not is_transient(ErrorInfo(message=message, status=status))
    assert not is_transient(ErrorInfo(message=message, code=status))


@pytest.mark.parametrize("status", [200, 301, 400, 401, 402, 403, 404, 413, 422, 501, 505, 1500])
def test_other_statuses_say_nothing_or_no(status: int):
    assert not is_transient(ErrorInfo(message="failed", status=status))


@pytest.mark.parametrize(
    "message",
    [
        "ETIMEDOUT",
        "connect ECONNRESET 10.0.0.1:443",
        "429",
        "HTTP 500",
        "Request failed with status code 502",
        "got 503 from upstream",
        "504 Gateway Timeout",
        "status=529",
        "error: 500.",
        "(500) Internal Server Error",
        "timeout",
        "Read timeout after 30 s",
        "the request timed out",
        "rate_limit",
        "Rate limit reached, try again in 2s",
        "rate-limited",
        "Too Many Requests",
        "temporarily_unavailable",
        "The model is temporarily unavailable.",
        "Overloaded",
        "the server is at capacity",
        "Connection reset by peer",
        "Bad gateway",
        "stream_truncated",
    ],
)
def test_words_of_the_message_count_last(message: str):
    assert is_transient(ErrorInfo(message=message))
    assert is_transient(ErrorInfo(message=message, code="something_unknown"))


@pytest.mark.parametrize(
    "message",
    [
        "",
        "failed",
        "1500 tokens",
        "the prompt has 500 tokens",
        "at most 500 tokens",
        "maximum of 500",
        "max_tokens=500",
        "the limit is 500",
        "more than 429",
        "n <= 503",
        "took 500 ms",
        "500ms",
        "500 characters were sent",
        "$500",
        "500.25",
        "1,500",
        "v1.500.2",
        "item-500",
        "a500",
        "500px",
        "timeout_ms must be a positive integer",
        "timeout must be positive",
        "my_timeout is odd",
        "timeouts",
        "reconnections",
        "rate_limits",
        "overloadedness",
        "invalid request: timeout",
        "the request was aborted: connection closed",
        "401 Unauthorized, then 503",
        "Incorrect API key provided (timeout)",
        "You exceeded your current quota: 429",
        "insufficient_quota, rate limit",
        "context_length_exceeded: 500",
        "This model's maximum context length is exceeded; timeout",
        "prompt is too long (429)",
    ],
)
def test_other_words_do_not(message: str):
    assert not is_transient(ErrorInfo(message=message))


@pytest.mark.parametrize(
    ("code", "status", "transient"),
    [
        ("rate_limit_exceeded", None, True),
        ("overloaded_error", None, True),
        ("insufficient_quota", 429, False),
        ("billing_error", 500, False),
        ("authentication_error", 500, False),
        ("invalid_request_error", 500, False),
        ("context_length_exceeded", 500, False),
        ("model_not_found", 503, False),
        ("permission_denied", None, False),
        ("something_unknown", 503, True),
        ("something_unknown", 403, False),
        ("something_unknown", None, False),
    ],
)
def test_codes_of_others_are_read_by_their_words(code: str, status: int | None, *, transient: bool):
    error = ErrorInfo(message="failed", code=code, status=status)
    assert is_transient(error) is transient


@pytest.mark.parametrize("name", ["AbortError", "CancelledError", "Cancelled", "RunAborted"])
def test_an_abort_is_never_transient(name: str):
    assert not is_transient(ErrorInfo(message="timeout", name=name, status=503))


@given(st.text(max_size=200), st.none() | st.text(max_size=20) | st.integers())
def test_every_error_is_decided(message: str, code: str | int | None):
    assert is_transient(ErrorInfo(message=message, code=code)) in {True, False}


def test_a_very_long_message_is_decided_by_its_beginning():
    assert not is_transient(ErrorInfo(message="x " * 1_000_000 + "timeout"))
    assert is_transient(ErrorInfo(message="timeout " + "x " * 1_000_000))


@pytest.mark.parametrize("status", [400, 404, 409, 429, 500, None])
def test_a_vendor_that_wants_no_retry_gets_none(status: int | None):
    error = ErrorInfo(
        message="overloaded", code="overloaded", status=status, details={"shouldRetry": False}
    )
    assert not is_transient(error)


@pytest.mark.parametrize("code", ["invalid_request", "not_found", "unsupported", "strange"])
def test_a_vendor_that_wants_a_retry_gets_one(code: str):
    error = ErrorInfo(message="no", code=code, status=400, details={"shouldRetry": True})
    assert is_transient(error)


@pytest.mark.parametrize(
    "code",
    ["aborted", "quota_exhausted", "auth", "permission", "replay_invalid", "context_overflow"],
)
def test_what_comes_again_for_sure_is_not_tried_again_whatever_the_vendor_wants(code: str):
    error = ErrorInfo(message="no", code=code, status=429, details={"shouldRetry": True})
    assert not is_transient(error)


@pytest.mark.parametrize("value", ["true", 1, None])
def test_a_word_that_is_no_word_is_passed_over(value: object):
    error = ErrorInfo(message="no", status=400, details={"shouldRetry": value})
    assert not is_transient(error)
