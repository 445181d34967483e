"""What a worker may use, and what happens when it fails."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from prism.core import ModelConfig, Secret, UsageError
from prism.core.providers import (
    ProviderRegistry,
    delay,
    done,
    error,
    text_delta,
    tool_call,
    tool_call_delta,
)
from prism.memory.observational import (
    FlushResult,
    ObservationalMemory,
    WorkerRole,
    fold_ledger,
)
from prism.memory.observational._runtime.breaker import Breaker

from .workers import (
    STOP,
    Workers,
    entry_ids,
    is_first,
    memory_of,
    note,
    observe,
    session_of,
)


async def contents(memory: ObservationalMemory) -> list[str]:
    ledger = fold_ledger(await memory.session.entries())
    return [one.content for one in ledger.observations]


async def test_a_transient_failure_is_tried_twice_more_within_fifteen_seconds() -> None:
    session = session_of()
    await session.run("a")
    busy = [error("busy", code="overloaded", status=529)]
    provider = Workers([busy, busy, observe(), STOP])
    sleeps: list[float] = []
    original = anyio.sleep

    async def quick(seconds: float) -> None:
        sleeps.append(seconds)
        await original(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio, "sleep", quick)
        result = await memory_of(session, provider).flush()
    assert result.observer.status == "empty"
    assert sleeps == [1.0, 2.0]
    assert len(provider.requests) == 4


async def test_three_failures_of_one_request_or_a_long_wait_fail_the_worker() -> None:
    session = session_of()
    await session.run("a")
    busy = [error("busy", code="overloaded", status=529)]

    async def quick(_seconds: float) -> None:
        return

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio, "sleep", quick)
        provider = Workers([busy])
        assert (await memory_of(session, provider).flush()).observer.status == "failed"
        assert len(provider.requests) == 3
        provider = Workers([[error("later", code="rate_limit", retry_after_ms=15_001)]])
        assert (await memory_of(session, provider).flush()).observer.status == "failed"
        assert len(provider.requests) == 1
        provider = Workers([busy])
        assert (await memory_of(session, provider, max_retries=0).flush()).failed
        assert len(provider.requests) == 1


async def test_the_breaker_opens_after_failures_in_a_row_and_force_goes_through_it() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([[error("wrong key", code="auth")]])
    memory = memory_of(session, provider, breaker_failures=2)
    assert (await memory.flush()).observer.status == "failed"
    assert not memory.state.breaker_open
    assert (await memory.flush()).observer.status == "failed"
    assert memory.state.breaker_open
    assert await memory.flush() == FlushResult(ran=False, reason="breaker_open")
    assert len(provider.requests) == 2
    assert (await memory.flush(force=True)).observer.status == "failed"
    assert len(provider.requests) == 3


async def test_a_loop_of_one_line_is_stopped_and_stores_nothing() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([[*[text_delta("again and again\n")] * 500, done()]])
    result = await memory_of(session, provider).flush()
    assert result.observer.status == "failed"
    assert result.observer.error is not None
    assert result.observer.error.code == "degenerate_output"
    assert len(provider.requests) == 1


async def test_a_note_that_repeats_itself_is_refused_and_an_honest_long_one_is_not() -> None:
    honest = " ".join(f"step {n} wrote file_{n}.py" for n in range(60))

    def answer(request: Any) -> list[Any]:
        if not is_first(request):
            return STOP
        key = entry_ids(request)[0]
        return observe(note("the same " * 60, key), note(honest, key))

    session = session_of()
    await session.run("a")
    memory = memory_of(session, Workers(answer), max_chunks_per_flush=1)
    assert (await memory.flush()).observer.counts["rejected"] == 1
    assert await contents(memory) == [honest]


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"max_calls_per_turn": 2}, "too_many_calls"),
        ({"max_calls_per_run": 2}, "too_many_calls"),
        ({"max_payload_bytes": 200}, "all_rejected_or_large"),
        ({"max_transcript_bytes": 1_000}, "transcript_too_large"),
    ],
)
async def test_a_worker_stays_within_its_limits(limits: dict[str, int], code: str) -> None:
    def answer(request: Any) -> list[Any]:
        key = entry_ids(request)[0]
        calls = [
            tool_call(
                id=f"c{n}_{len(request.messages)}",
                name="record_observations",
                arguments={"observations": [note(f"{n} " + "x" * 300, key)]},
            )
            for n in range(5)
        ]
        return [text_delta("thinking aloud. " * 20), *calls, done()]

    session = session_of()
    await session.run("a")
    memory = memory_of(session, Workers(answer), agent_max_turns=4, **limits)
    result = await memory.flush()
    assert result.observer.error is not None
    if code == "all_rejected_or_large":
        assert await contents(memory) == []
        assert result.observer.status == "failed"
    else:
        assert result.observer.error.code == code
        assert len(await contents(memory)) <= 5


async def test_an_answer_cut_at_its_length_is_not_a_clean_end() -> None:
    session = session_of()
    await session.run("a")

    def answer(request: Any) -> list[Any]:
        if is_first(request):
            return observe(note("first", entry_ids(request)[0]))
        return [text_delta("and th"), done(stop_reason="length")]

    result = await memory_of(session, Workers(answer)).flush()
    assert result.observer.covers_up_to == (await session.entries())[0].id
    assert result.observer.error is not None
    assert result.observer.error.code == "length"


async def test_a_worker_that_never_ends_is_stopped_by_time() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([[delay(60_000), done()]])
    result = await memory_of(session, provider, worker_timeout_ms=5).flush()
    assert result.observer.error is not None
    assert result.observer.error.code == "timeout"


async def test_a_provider_that_raises_is_a_failure_and_not_a_crash() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([[ValueError("a bug in the adapter")]])
    result = await memory_of(session, provider).flush()
    assert result.observer.status == "failed"


async def test_a_factory_that_fails_is_a_failure_and_not_a_crash() -> None:
    session = session_of()
    await session.run("a")

    def make(_secret: Secret | None) -> Any:
        raise OSError("no route")

    memory = memory_of(session, make)
    result = await memory.flush()
    assert result.observer.status == "failed"
    assert result.observer.error is not None
    assert "no route" in result.observer.error.message

    def make_three(_secret: Secret | None) -> int:
        return 3

    wrong = memory_of(session, make_three)
    assert (await wrong.flush()).observer.status == "failed"


def test_the_breaker_stays_open_longer_with_each_further_failure_up_to_sixteen_times() -> None:
    breaker = Breaker()
    opened: list[float] = []
    now = 0.0
    for _ in range(9):
        breaker.failed(now, after=3, cooldown_ms=1_000)
        start = now
        while breaker.is_open(now):
            now += 1.0
        opened.append(now - start)
    assert opened == [0, 0, 1, 2, 4, 8, 16, 16, 16]
    breaker.succeeded()
    breaker.failed(now, after=3, cooldown_ms=1_000)
    assert not breaker.is_open(now)


async def test_arguments_that_never_end_are_stopped_as_they_come() -> None:
    session = session_of()
    await session.run("a")
    pieces = [
        tool_call_delta(index=0, id="c", name="record_observations", arguments_text="{"),
        *[tool_call_delta(index=0, arguments_text="x" * 100)] * 500,
        done(),
    ]
    result = await memory_of(session, Workers([pieces]), max_payload_bytes=1_000).flush()
    assert result.observer.error is not None
    assert result.observer.error.code == "arguments_too_large"


async def test_a_refusal_is_a_failure() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([[text_delta("I cannot."), done(stop_reason="refusal")]])
    result = await memory_of(session, provider).flush()
    assert result.observer.error is not None
    assert result.observer.error.code == "refusal"


async def test_what_an_error_says_is_bounded() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([[error("x" * 50_000, code="auth")]])
    result = await memory_of(session, provider).flush()
    assert result.observer.error is not None
    assert len(result.observer.error.message) <= 1_024


@pytest.mark.parametrize(
    "role",
    [
        WorkerRole(thinking_level="enormous"),
        WorkerRole(provider=3),
        WorkerRole(limits={"passive": 1}),
        WorkerRole(limits={"agent_max_turns": 0}),
    ],
)
def test_a_role_that_cannot_be_is_refused(role: WorkerRole) -> None:
    with pytest.raises(UsageError):
        memory_of(session_of(), observer=role)


async def test_a_registry_finds_the_provider_of_each_role() -> None:
    session = session_of()
    await session.run("a")
    registry = ProviderRegistry([Workers()])
    model = ModelConfig(provider="memory", model="small")
    result = await memory_of(session, registry, model=model).flush()
    assert result.observer.status == "recorded"
    unknown = memory_of(session, registry, model=ModelConfig(provider="none", model="small"))
    await session.run("b")
    assert (await unknown.flush()).observer.status == "failed"
