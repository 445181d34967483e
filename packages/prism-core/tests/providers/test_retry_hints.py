"""How long a server asks to wait."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from prism.core.providers._retry_hints import MAX_HINT_MS, retry_after_ms

NOW = 1_790_000_000.0  # 2026-09-21T14:13:20Z


def hint(
    headers: dict[str, str] | None = None,
    text: str = "",
    *details: Any,
    rate_limited: bool = True,
) -> int | None:
    return retry_after_ms(
        headers or {}, details=details, text=text, rate_limited=rate_limited, now=NOW
    )


@pytest.mark.parametrize(
    ("headers", "ms"),
    [
        ({"retry-after-ms": "1500"}, 1_500),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1_500),
        ({"retry-after": "2"}, 2_000),
        ({"retry-after": "0.25"}, 250),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "Mon, 21 Sep 2026 14:13:50 GMT"}, 30_000),
        ({"retry-after": "Mon, 21 Sep 2026 14:13:00 GMT"}, 0),
        (
            {
                "retry-after": "Mon, 21 Sep 2026 15:00:10 GMT",
                "date": "Mon, 21 Sep 2026 15:00:00 GMT",
            },
            10_000,
        ),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e300"}, MAX_HINT_MS),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, 360_000),
        (
            {
                "x-ratelimit-reset-requests": "6m0s",
                "x-ratelimit-remaining-requests": "12",
                "x-ratelimit-reset-tokens": "1s",
                "x-ratelimit-remaining-tokens": "0",
            },
            1_000,
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-09-21T14:13:25Z",
                "anthropic-ratelimit-requests-remaining": "40",
                "anthropic-ratelimit-requests-reset": "2026-09-21T15:00:00Z",
            },
            5_000,
        ),
        ({"x-ratelimit-reset": "1790000003000", "x-ratelimit-remaining": "0"}, 3_000),
        ({"x-ratelimit-reset": "1790000003"}, 3_000),
        ({"ratelimit-reset": "7"}, 7_000),
        ({}, None),
    ],
)
def test_headers(headers: dict[str, str], ms: int | None) -> None:
    assert hint(headers) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("Please try again in 11.05s. Visit", 11_050),
        ("try again in 900ms", 900),
        ("Please retry in 39s.", 39_000),
        ("Your quota will reset after 1h2m3s.", 3_723_000),
        ("Retry after 2 minutes", 120_000),
        ("please wait 5 seconds", 5_000),
        ("try again in 1 day", 86_400_000),
        ("it took 5s", None),
        ("try again in a moment", None),
    ],
)
def test_words(text: str, ms: int | None) -> None:
    assert hint(text=text) == ms


def test_googles_retry_info_comes_before_its_words() -> None:
    retry_info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
    assert hint(None, "Please retry in 99s", {"other": 1}, retry_info) == 34_070


def test_reset_times_count_only_when_a_rate_limit_was_hit() -> None:
    headers = {"x-ratelimit-reset-tokens": "9s", "x-ratelimit-remaining-tokens": "0"}
    assert hint(headers) == 9_000
    assert hint(headers, rate_limited=False) is None


@given(
    st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset"]), st.text()
    ),
    st.text(),
)
def test_nonsense_gives_a_bounded_wait_or_none(headers: dict[str, str], text: str) -> None:
    found = hint(headers, text)
    assert found is None or 0 <= found <= MAX_HINT_MS
