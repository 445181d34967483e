"""Exceptions as data, and back."""

import math
from typing import Any

import pytest

from prism.core import SecretRedactor
from prism.core._errors import PrismError, ProviderError, StoreConflict
from prism.core._support.errors import (
    MAX_DETAILS_BYTES,
    MAX_ERROR_BYTES,
    error_info,
    provider_error,
)
from prism.core._wire import ErrorInfo, encode


def hide(text: str) -> str:
    return text.replace("sk-secret", "[REDACTED]")


def test_an_error_of_prism_keeps_its_code_and_facts():
    error = ProviderError(
        "slow down", code="rate_limit", details={"limit": 3}, status=429, retry_after_ms=1500
    )
    assert error_info(error) == ErrorInfo(
        message="slow down",
        name="ProviderError",
        code="rate_limit",
        status=429,
        retry_after_ms=1500,
        details={"limit": 3},
    )
    assert error_info(StoreConflict("m")).code == "version_conflict"


def test_a_strangers_exception_has_its_class_as_name_and_no_code():
    assert error_info(KeyError("k")) == ErrorInfo(message="k", name="KeyError")
    assert error_info(ValueError()) == ErrorInfo(message="ValueError", name="ValueError")


def test_a_secret_in_the_key_of_a_key_error_is_found():
    secret = "it's\n\x00secret"  # noqa: S105
    redact = SecretRedactor([secret]).redact_text
    assert error_info(KeyError(secret), redact=redact).message == "[REDACTED]"
    assert error_info(KeyError(), redact=redact).message == "KeyError"
    assert error_info(KeyError(("a", 1)), redact=redact).message == "('a', 1)"


def test_an_exception_that_cannot_say_its_text_is_named_by_its_class():
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_info(BrokenError()) == ErrorInfo(message="BrokenError", name="BrokenError")


def test_a_group_of_one_is_described_as_what_it_holds():
    inner = ExceptionGroup("inner", [PrismError("deep", code="c")])
    assert error_info(ExceptionGroup("outer", [inner])).message == "deep"
    two = ExceptionGroup("outer", [ValueError("a"), ValueError("b")])
    assert error_info(two).name == "ExceptionGroup"


def test_a_message_is_redacted_before_it_is_cut():
    text = "x" * (MAX_ERROR_BYTES - 4) + "sk-secret"
    info = error_info(ValueError(text), redact=hide)
    assert "sk-" not in info.message
    assert len(info.message.encode()) <= MAX_ERROR_BYTES
    assert info.message.endswith("…")


def test_details_are_redacted_in_keys_and_values():
    details = {"a": ["sk-secret", {"sk-secret": 1}, 2.5, None], "b": "ok"}
    info = error_info(PrismError("m", details=details), redact=hide)
    assert info.details == {"a": ["[REDACTED]", {"[REDACTED]": 1}, 2.5, None], "b": "ok"}


@pytest.mark.parametrize("redact", [None, hide])
def test_details_that_are_no_json_or_too_large_are_left_out(redact: Any):
    ring: list[Any] = []
    ring.append(ring)
    details = {
        "object": object(),
        "nan": [math.nan],
        "ring": ring,
        "huge": "x" * MAX_DETAILS_BYTES,
        "half": "x" * (MAX_DETAILS_BYTES // 2),
        "other half": "x" * (MAX_DETAILS_BYTES // 2),
        "small": 1,
    }
    info = error_info(PrismError("m", details=details), redact=redact)
    assert info.details is not None
    assert set(info.details) == {"half", "small"}
    assert len(encode(info)) < MAX_DETAILS_BYTES + 200
    assert error_info(PrismError("m", details={"object": object()})).details is None


def test_details_that_nest_deeply_are_cut_off_when_they_are_redacted():
    deep: Any = "sk-secret"
    for _ in range(300):
        deep = [deep]
    info = error_info(PrismError("m", details={"deep": deep}), redact=hide)
    assert b"sk-" not in encode(info)


def test_a_wait_that_is_no_number_is_left_out():
    assert error_info(ProviderError("m", retry_after_ms=math.inf)).retry_after_ms is None


def test_a_providers_error_comes_back_as_the_exception_of_the_same_facts():
    info = ErrorInfo(
        message="m", code="quota_exhausted", status=402, retry_after_ms=5, details={"a": 1}
    )
    error = provider_error(info)
    assert (error.message, error.code, error.status) == ("m", "quota_exhausted", 402)
    assert (error.retry_after_ms, error.details) == (5, {"a": 1})
    assert provider_error(ErrorInfo(message="m")).code == "unknown"
