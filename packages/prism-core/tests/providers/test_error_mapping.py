"""What vendors and gateways say when they fail, and what it means."""

from __future__ import annotations

import json
from itertools import repeat
from typing import Any

import pytest

from prism.core._wire import ErrorInfo
from prism.core.providers import OpenAIChatProvider
from prism.core.providers._errors_map import TRANSIENT_CODES, ErrorMapper

from .wire import Answer, MemoryTransport, collect, read

WHERE = "https://vendor.test"


def mapped(status: int, body: Any = b"", **headers: str) -> ErrorInfo:
    mapper = ErrorMapper(clock=lambda: 1_000_000.0)
    mapper.headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return mapper.http(status, body if isinstance(body, bytes) else json_of(body), where=WHERE)


def json_of(body: Any) -> bytes:
    return json.dumps(body).encode()


def openai(message: str, *, kind: str | None = None, code: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(kind: str, message: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **more}}


def google(code: int, status: str, message: str = "x", *details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "status": status, "message": message, "details": list(details)}}


INVALID = "invalid_request_error"
TOO_LONG = "context_length_exceeded"
BAD_SIGNATURE = "thinking_signature_invalid"
SPENT = "RESOURCE_EXHAUSTED"
QUOTA = "type.googleapis.com/google.rpc.QuotaFailure"
PER_DAY = {"@type": QUOTA, "violations": [{"quotaId": "RequestsPerDayPerModel-FreeTier"}]}
PER_MINUTE = {"@type": QUOTA, "violations": [{"quotaId": "RequestsPerMinutePerModel"}]}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (301, "invalid_request"),
        (307, "invalid_request"),
        (400, "invalid_request"),
        (401, "auth"),
        (402, "quota_exhausted"),
        (403, "permission"),
        (404, "not_found"),
        (405, "invalid_request"),
        (408, "timeout"),
        (409, "conflict"),
        (413, "request_too_large"),
        (422, "invalid_request"),
        (425, "temporarily_unavailable"),
        (429, "rate_limit"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "temporarily_unavailable"),
        (504, "server_error"),
        (520, "server_error"),
        (524, "server_error"),
        (529, "temporarily_unavailable"),
    ],
)
def test_a_status_alone_has_a_code(status: int, code: str) -> None:
    info = mapped(status)
    assert (info.code, info.status) == (code, status)
    assert str(status) in info.message
    assert WHERE in info.message


@pytest.mark.parametrize(
    ("code", "status", "body"),
    [
        ("rate_limit", 429, openai("slow", code="rate_limit_exceeded", kind="tokens")),
        ("quota_exhausted", 429, openai("no money", code="insufficient_quota")),
        ("quota_exhausted", 429, openai("You exceeded your current quota, check your plan.")),
        ("auth", 401, openai("bad key", code="invalid_api_key")),
        ("permission", 403, openai("region", code="unsupported_country_region_territory")),
        ("not_found", 404, openai("no model", code="model_not_found")),
        ("content_blocked", 400, openai("no", code="content_policy_violation")),
        ("content_blocked", 400, openai("no", code="invalid_prompt")),
        ("replay_invalid", 400, openai("broken", code="invalid_encrypted_content")),
        ("replay_invalid", 400, openai("Item 'rs_1' came without its required following item.")),
        ("replay_invalid", 400, openai("Missing `reasoning_content` in assistant message 2")),
        ("invalid_request", 400, openai("`temperature` is not supported", kind=INVALID)),
        ("temporarily_unavailable", 503, openai("busy", code="server_is_overloaded")),
        ("server_error", 500, openai("oops", kind="server_error")),
        ("context_overflow", 500, {"detail": json.dumps(openai("x", code=TOO_LONG))}),
        ("temporarily_unavailable", 529, anthropic("overloaded_error")),
        ("server_error", 500, anthropic("api_error")),
        ("timeout", 504, anthropic("timeout_error")),
        ("quota_exhausted", 400, anthropic(INVALID, "Your credit balance is too low")),
        ("replay_invalid", 400, anthropic(INVALID, "Invalid `signature` in `thinking` block")),
        ("replay_invalid", 400, anthropic(INVALID, details={"error_code": BAD_SIGNATURE})),
        ("invalid_request", 400, anthropic(INVALID, "max_tokens: too small")),
        ("request_too_large", 413, anthropic("request_too_large")),
        ("rate_limit", 429, google(429, SPENT, "You exceeded your current quota", PER_MINUTE)),
        ("quota_exhausted", 429, google(429, SPENT, "x", PER_DAY)),
        ("quota_exhausted", 429, google(429, SPENT, "Quota exceeded, limit: 0", PER_MINUTE)),
        ("auth", 400, google(400, "INVALID_ARGUMENT", "x", {"reason": "API_KEY_INVALID"})),
        ("replay_invalid", 400, google(400, "INVALID_ARGUMENT", "no thought_signature")),
        ("temporarily_unavailable", 503, google(503, "UNAVAILABLE")),
        ("timeout", 504, google(504, "DEADLINE_EXCEEDED")),
        ("permission", 403, google(403, "PERMISSION_DENIED")),
        ("not_found", 404, [google(404, "NOT_FOUND")]),
        ("invalid_request", 400, {"object": "error", "message": "bad", "code": 400}),
    ],
)
def test_a_structured_code_wins_over_the_status_and_words_refine_it(
    code: str, status: int, body: Any
) -> None:
    assert mapped(status, body).code == code


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (openai("words"), "words"),
        ({"error": "words"}, "words"),
        ({"message": "words"}, "words"),
        ([{"error": {"message": "words"}}], "words"),
        ({"errors": [{"message": "words"}]}, "words"),
        ({"detail": "words"}, "words"),
        ({"detail": json.dumps(openai("words"))}, "words"),
        (
            {"detail": [{"loc": ["body", "model"], "msg": "Field required"}]},
            "body.model: Field required",
        ),
        (
            {"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": "no"}]}},
            "body.n: no",
        ),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": "upstream"}}},
            "Provider returned error: upstream",
        ),
        (
            {"error": {"message": "Failed", "metadata": {"raw": json.dumps(openai("deep"))}}},
            "Failed: deep",
        ),
        (b"plain words", "plain words"),
        (b"<html><head><title>502 Bad\n Gateway</title></head><h1>x</h1>", "502 Bad Gateway"),
        (b"<h1>Just</h1><p>words</p><script>no</script>", "Just words"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_the_message_is_found_in_every_form_of_body(body: Any, message: str) -> None:
    assert mapped(400, body).message == message


@pytest.mark.parametrize("body", [b"", b" \n", b"null", b"[]", b"{}", b'{"a":1}', b"[" * 9_000])
def test_a_body_that_says_nothing_leaves_the_status(body: bytes) -> None:
    info = mapped(500, body)
    assert info.code == "server_error"
    assert info.message.startswith(("https://vendor.test answered", "["))


def test_facts_go_along() -> None:
    body = openai("bad", kind="invalid_request_error", code="unsupported_value")
    info = mapped(400, body, x_request_id="req_1")
    assert info.name == "invalid_request_error"
    assert info.details == {"vendorCode": "unsupported_value", "requestId": "req_1"}
    inside = mapped(400, {**anthropic("invalid_request_error"), "request_id": "req_2"})
    assert inside.details is not None
    assert inside.details["requestId"] == "req_2"


def test_what_is_left_of_a_rate_limit_goes_along() -> None:
    headers = {
        "x_ratelimit_remaining_tokens": "0",
        "x_ratelimit_reset_tokens": "6m0s",
        "anthropic_ratelimit_requests_remaining": "9",
        "x_ratelimit_limit_tokens": "100",
    }
    info = mapped(429, openai("slow", code="rate_limit_exceeded"), **headers)
    assert info.details is not None
    assert info.details["rateLimits"] == {
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
        "anthropic-ratelimit-requests-remaining": "9",
    }
    assert "rateLimits" not in (mapped(429, openai("slow")).details or {})
    assert "rateLimits" not in (mapped(500, openai("x"), **headers).details or {})


@pytest.mark.parametrize(("value", "wanted"), [("true", True), ("false", False)])
def test_the_vendors_own_word_on_retrying_goes_along(value: str, wanted: bool) -> None:  # noqa: FBT001
    details = mapped(500, x_should_retry=value).details
    assert details is not None
    assert details["shouldRetry"] is wanted


def test_a_flagged_input_at_a_gateway_is_no_missing_permission() -> None:
    body = {"error": {"code": 403, "message": "no", "metadata": {"flagged_input": "…"}}}
    assert mapped(403, body).code == "content_blocked"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (openai("slow", code=429), "rate_limit"),
        (openai("gone", code="502"), "server_error"),
        (openai("bad", kind="invalid_request_error"), "invalid_request"),
        (openai("The engine is overloaded"), "temporarily_unavailable"),
        (openai("Request timed out"), "timeout"),
        (openai("Too many requests"), "rate_limit"),
        (openai("Something else"), "server_error"),
        (anthropic("overloaded_error"), "temporarily_unavailable"),
        ({"error": {}}, "server_error"),
    ],
)
def test_an_error_inside_a_stream_is_read_the_same_way(data: Any, code: str) -> None:
    assert ErrorMapper().event(json_of(data)).code == code


def test_a_redirect_is_refused_with_the_reason() -> None:
    info = mapped(302)
    assert "redirect" in info.message
    assert "base_url" in info.message


def test_only_transient_codes_carry_a_wait() -> None:
    assert mapped(503, retry_after="2").retry_after_ms == 2_000
    assert mapped(400, retry_after="2").retry_after_ms is None
    assert "auth" not in TRANSIENT_CODES


async def test_a_long_message_is_redacted_first_and_then_cut() -> None:
    key = "sk-secret-0123456789"
    text = "ä" * 506 + f" {key} " + "x" * 10_000
    answer = Answer([json_of(openai(text))], status=401, headers={})
    provider = OpenAIChatProvider(
        base_url="https://vendor.test/v1", credential=key, transport=MemoryTransport(answer)
    )
    (event,) = await collect(provider)
    info = read([event]).error
    assert info is not None
    assert info.code == "auth"
    assert len(info.message.encode()) <= 1_024
    assert "sk-" not in repr(event)
    assert "[RED" in info.message


async def test_a_secret_in_a_header_of_the_host_comes_back_in_no_error() -> None:
    answer = Answer([b"no such key: proxy-password-1"], status=401, headers={})
    provider = OpenAIChatProvider(
        base_url="https://vendor.test/v1",
        headers={"X-Proxy-Token": "Basic proxy-password-1"},
        transport=MemoryTransport(answer),
    )
    assert "proxy-password" not in repr(await collect(provider))


async def test_no_more_than_64_kib_of_an_error_are_read() -> None:
    answer = Answer(repeat(b"x" * 1_000), status=500)
    provider = OpenAIChatProvider(
        base_url="https://vendor.test/v1", transport=MemoryTransport(answer)
    )
    reading = read(await collect(provider))
    assert reading.code == "server_error"
    assert answer.taken < 70_000
    assert answer.closed
