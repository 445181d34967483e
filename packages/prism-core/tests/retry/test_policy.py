"""How often, and after how long."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest
import trio
from hypothesis import given, strategies as st
from trio.testing import MockClock

from prism.core import DefaultRetryPolicy, RetryOptions, wait_for_retry
from prism.core._contracts import RetryContext, RetryDecision, RetryPolicy
from prism.core._errors import UsageError
from prism.core._wire import ErrorInfo

BUSY = ErrorInfo(message="busy", code="temporarily_unavailable")


def failed(attempt: int = 1, error: ErrorInfo = BUSY) -> RetryContext:
    return RetryContext(session_id="s1", run_id="r1", attempt=attempt, max_attempts=3, error=error)


def asking(retry_after_ms: Any) -> ErrorInfo:
    return ErrorInfo(message="busy", code="rate_limit", retry_after_ms=retry_after_ms)


def test_it_is_a_retry_policy():
    assert isinstance(DefaultRetryPolicy(), RetryPolicy)


def test_three_attempts_in_all_by_default():
    policy = DefaultRetryPolicy()
    assert [policy.decide(failed(attempt)).retry for attempt in (1, 2, 3, 4)] == [
        True, True, False, False,
    ]  # fmt: skip
    reason = policy.decide(failed(3)).reason
    assert reason is not None
    assert "max_attempts" in reason


def test_one_attempt_is_no_retry():
    assert not DefaultRetryPolicy(max_attempts=1).decide(failed()).retry


def test_the_wait_doubles_up_to_its_cap():
    policy = DefaultRetryPolicy(max_attempts=9)
    delays = [policy.decide(failed(attempt)).delay_ms for attempt in range(1, 7)]
    assert delays == [100, 200, 400, 800, 1_000, 1_000]


def test_the_numbers_can_be_given_as_options_and_overridden():
    options = RetryOptions(max_attempts=5, base_delay_ms=10, max_delay_ms=15, jitter=False)
    policy = DefaultRetryPolicy(options)
    assert [policy.decide(failed(attempt)).delay_ms for attempt in (1, 2)] == [10, 15]
    assert policy.decide(failed(4)).retry
    assert DefaultRetryPolicy(options, max_attempts=2).max_attempts == 2
    assert DefaultRetryPolicy(options, max_attempts=2).base_delay_ms == 10


def test_without_jitter_the_wait_is_always_the_same():
    policy = DefaultRetryPolicy()
    assert len({policy.decide(failed()).delay_ms for _ in range(20)}) == 1


def test_with_jitter_the_wait_is_between_half_and_all_of_it():
    numbers = iter([0.0, 0.5, 0.999_999])
    policy = DefaultRetryPolicy(jitter=True, random=lambda: next(numbers))
    delays = [policy.decide(failed()).delay_ms for _ in range(3)]
    assert delays == pytest.approx([50, 75, 100], abs=0.001)
    spread = DefaultRetryPolicy(jitter=True)
    assert len({spread.decide(failed()).delay_ms for _ in range(20)}) > 1


def test_a_servers_retry_after_raises_the_wait_and_never_shortens_it():
    policy = DefaultRetryPolicy()
    assert policy.decide(failed(error=asking(5_000))).delay_ms == 5_000
    assert policy.decide(failed(error=asking(1_234.5))).delay_ms == 1_234.5
    assert policy.decide(failed(error=asking(3))).delay_ms == 100


@pytest.mark.parametrize("nonsense", [0, -1, float("nan"), None])
def test_a_retry_after_that_says_nothing_is_passed_over(nonsense: Any):
    decision = DefaultRetryPolicy().decide(failed(error=asking(nonsense)))
    assert (decision.retry, decision.delay_ms) == (True, 100)


def test_a_retry_after_above_the_limit_fails_now_and_says_so():
    policy = DefaultRetryPolicy()
    assert policy.decide(failed(error=asking(60_000))).retry
    for asked_ms in (60_001, float("inf")):
        decision = policy.decide(failed(error=asking(asked_ms)))
        assert not decision.retry
        assert decision.reason is not None
        assert "max_retry_after_ms (60000)" in decision.reason
    assert "60001 ms" in str(policy.decide(failed(error=asking(60_001))).reason)
    patient = DefaultRetryPolicy(max_retry_after_ms=120_000)
    assert patient.decide(failed(error=asking(90_000))).delay_ms == 90_000


def test_what_is_not_transient_is_not_retried():
    decision = DefaultRetryPolicy().decide(failed(error=ErrorInfo(message="no", code="auth")))
    assert decision == RetryDecision(retry=False)


def test_malformed_output_is_retried_once():
    policy = DefaultRetryPolicy(max_attempts=5)
    garbled = ErrorInfo(message="?", code="malformed_output")
    assert policy.decide(failed(1, garbled)).retry
    decision = policy.decide(failed(2, garbled))
    assert not decision.retry
    assert "only once" in str(decision.reason)


@given(
    max_attempts=st.integers(1, 100),
    attempt=st.integers(1, 120),
    base_ms=st.integers(0, 10_000),
    cap_ms=st.integers(0, 10_000),
    asked_ms=st.none() | st.floats(min_value=-10, max_value=100_000),
    jitter=st.booleans(),
)
def test_a_wait_is_never_longer_than_the_cap_or_what_the_server_asked(
    *,
    max_attempts: int,
    attempt: int,
    base_ms: int,
    cap_ms: int,
    asked_ms: float | None,
    jitter: bool,
):
    policy = DefaultRetryPolicy(
        max_attempts=max_attempts, base_delay_ms=base_ms, max_delay_ms=cap_ms, jitter=jitter
    )
    decision = policy.decide(failed(attempt, asking(asked_ms)))
    assert decision.retry == (attempt < max_attempts and (asked_ms or 0) <= 60_000)
    assert 0 <= decision.delay_ms <= max(cap_ms, asked_ms or 0)
    if decision.retry:
        assert decision.delay_ms >= (asked_ms or 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", -1),
        ("max_attempts", 101),
        ("max_attempts", 2.0),
        ("max_attempts", True),
        ("max_attempts", "3"),
        ("base_delay_ms", -1),
        ("base_delay_ms", float("nan")),
        ("base_delay_ms", "100"),
        ("max_delay_ms", -0.5),
        ("max_delay_ms", float("inf")),
        ("max_delay_ms", 86_400_001),
        ("max_retry_after_ms", -1),
        ("max_retry_after_ms", True),
        ("jitter", 1),
    ],
)
def test_numbers_out_of_range_are_refused(field: str, value: Any):
    with pytest.raises(UsageError, match=field) as caught:
        DefaultRetryPolicy(**{field: value})
    assert caught.value.code == "invalid_limit"
    with pytest.raises(UsageError, match=field):
        DefaultRetryPolicy(RetryOptions(**{field: value}))


# Waiting


def test_waiting_takes_as_long_as_the_decision_says():
    async def wait() -> float:
        started = trio.current_time()
        await wait_for_retry(RetryDecision(retry=True, delay_ms=90_500))
        return trio.current_time() - started

    before = time.monotonic()
    assert trio.run(wait, clock=MockClock(autojump_threshold=0)) == pytest.approx(90.5)
    assert time.monotonic() - before < 30


def test_a_decision_against_a_retry_is_not_waited_for():
    async def wait() -> float:
        started = trio.current_time()
        await wait_for_retry(RetryDecision(retry=False, delay_ms=90_500))
        return trio.current_time() - started

    assert trio.run(wait, clock=MockClock(autojump_threshold=0)) == 0


def test_the_wait_ends_when_it_is_cancelled():
    async def wait() -> float:
        started = trio.current_time()
        with anyio.move_on_after(2) as scope:
            await wait_for_retry(RetryDecision(retry=True, delay_ms=60_000))
        assert scope.cancelled_caught
        return trio.current_time() - started

    assert trio.run(wait, clock=MockClock(autojump_threshold=0)) == pytest.approx(2)


async def test_the_wait_is_a_checkpoint_even_without_a_delay():
    with anyio.CancelScope() as scope:
        scope.cancel()
        await wait_for_retry(RetryDecision(retry=True, delay_ms=0))
        pytest.fail("it was no checkpoint")


@pytest.mark.parametrize("delay_ms", [-1, float("nan"), float("inf"), 86_400_001, True, "5"])
async def test_a_delay_out_of_range_is_refused(delay_ms: Any):
    with pytest.raises(UsageError, match="delay_ms"):
        await wait_for_retry(RetryDecision(retry=True, delay_ms=delay_ms))
