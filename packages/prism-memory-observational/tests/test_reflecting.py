"""Reflections, and what leaves the pool."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from prism.core.providers import done, error, text_delta
from prism.memory.observational import MemoryHooks, WorkerOutput, fold_ledger

from .workers import (
    STOP,
    Workers,
    call,
    drop,
    entry_ids,
    is_first,
    known_ids,
    memory_of,
    note,
    observe,
    reflect,
    session_of,
)


async def test_the_reflector_runs_when_it_is_due_and_there_is_something_new() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers()
    memory = memory_of(session, provider, reflect_after_tokens=1)
    result = await memory.flush()
    assert result.reflector.status == "recorded"
    ledger = fold_ledger(await session.entries())
    assert [one.content for one in ledger.reflections] == ["sum of 2 facts"]
    assert ledger.reflected == ledger.observed
    assert (await memory.flush()).reflector.status == "not_due"
    assert len(provider.asked("record_reflections")) == 2


async def test_unknown_supports_several_lines_and_repetitions_are_refused() -> None:
    session = session_of()
    await session.run("a")

    def answer(request: Any) -> list[Any]:
        if not is_first(request):
            return STOP
        (first, *_) = known_ids(request, "Known observations")
        return reflect(
            {"content": "good", "supportingObservationIds": [first]},
            {"content": "unknown", "supportingObservationIds": ["aaaaaaaaaaaa"]},
            {"content": "two\nlines", "supportingObservationIds": [first]},
            {"content": "Good", "supportingObservationIds": [first]},
            {"content": "none", "supportingObservationIds": []},
            {"content": "x", "supportingObservationIds": [first], "supersedes": ["bbbbbbbbbbbb"]},
        )

    memory = memory_of(session, Workers(reflector=answer), reflect_after_tokens=1)
    result = await memory.flush()
    assert result.reflector.counts["recorded"] == 1
    assert result.reflector.counts["rejected"] == 4
    assert result.reflector.counts["duplicates"] == 1


async def test_an_empty_reflection_is_stored_and_not_repeated() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers(reflector=[reflect(), STOP])
    memory = memory_of(session, provider, reflect_after_tokens=1)
    assert (await memory.flush()).reflector.status == "empty"
    assert (await memory.flush()).reflector.status == "not_due"
    again = memory_of(session_of(session.agent.store), provider, reflect_after_tokens=1)
    assert (await again.flush()).reflector.status == "not_due"


async def test_a_failing_reflector_is_not_an_empty_one() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers(reflector=[[error("bad", code="auth")]])
    memory = memory_of(session, provider, reflect_after_tokens=1)
    result = await memory.flush()
    assert result.observer.status == "recorded"
    assert result.reflector.status == "failed"
    assert fold_ledger(await session.entries()).reflected.place == -1


async def test_a_reflection_can_supersede_others_and_retire_what_is_no_longer_true() -> None:
    session = session_of()
    await session.run("a")
    turn = [0]

    def answer(request: Any) -> list[Any]:
        if not is_first(request):
            return STOP
        turn[0] += 1
        (first, *_) = known_ids(request, "Known observations")
        if turn[0] == 1:
            return reflect(
                {"content": "old", "supportingObservationIds": [first]},
                {"content": "wrong", "supportingObservationIds": [first]},
            )
        old, wrong = known_ids(request, "Known reflections")
        return reflect(
            {"content": "new", "supportingObservationIds": [first], "supersedes": [old]},
            obsolete=[wrong],
        )

    memory = memory_of(session, Workers(reflector=answer), reflect_after_tokens=1)
    await memory.flush()
    await session.run("b")
    result = await memory.flush()
    assert result.reflector.counts["superseded"] == 2
    ledger = fold_ledger(await session.entries())
    assert [one.content for one in ledger.active_reflections] == ["new"]
    by_content = {one.content: one.id for one in ledger.reflections}
    assert ledger.superseded == {
        by_content["old"]: by_content["new"], by_content["wrong"]: None,
    }  # fmt: skip


async def test_not_every_reflection_can_be_retired_without_something_in_its_place() -> None:
    session = session_of()
    await session.run("a")
    turn = [0]

    def answer(request: Any) -> list[Any]:
        if not is_first(request):
            return STOP
        turn[0] += 1
        if turn[0] == 1:
            ids = known_ids(request, "Known observations")
            return reflect({"content": "only", "supportingObservationIds": ids})
        return reflect(obsolete=known_ids(request, "Known reflections"))

    memory = memory_of(session, Workers(reflector=answer), reflect_after_tokens=1)
    await memory.flush()
    await session.run("b")
    assert (await memory.flush()).reflector.status == "failed"
    assert len(fold_ledger(await session.entries()).active_reflections) == 1


async def test_after_new_reflections_the_dropper_brings_the_pool_to_its_target() -> None:
    session = session_of()
    for _ in range(6):
        await session.run("a")
    memory = memory_of(
        session,
        reflect_after_tokens=1,
        observations_pool_max_tokens=10_000,
        observations_pool_target_tokens=150,
    )
    result = await memory.flush()
    ledger = fold_ledger(await session.entries())
    assert result.dropper.status == "recorded"
    assert len(ledger.dropped_ids) == result.dropper.counts["recorded"] > 0
    assert ledger.pool_tokens <= 150
    assert ledger.dropped.entry_id == ledger.observed.entry_id
    assert len(ledger.observations) == 12


async def test_the_dropper_does_not_start_by_itself_below_the_maximum() -> None:
    session = session_of()
    for _ in range(6):
        await session.run("a")
    memory = memory_of(
        session, observations_pool_max_tokens=10_000, observations_pool_target_tokens=10
    )
    assert (await memory.flush()).dropper.status == "not_due"


async def test_a_pool_over_its_maximum_without_reflections_is_dropped_by_rule() -> None:
    grades = ["critical", "low", "medium", "high"]

    def answer(request: Any) -> list[Any]:
        if not is_first(request):
            return STOP
        return observe(*(
            note(f"fact {n}", key, relevance=grades[n % 4])
            for n, key in enumerate(entry_ids(request))
        ))  # fmt: skip

    session = session_of()
    for _ in range(6):
        await session.run("a")
    provider = Workers(answer)
    memory = memory_of(
        session, provider, observations_pool_max_tokens=100, observations_pool_target_tokens=50
    )
    result = await memory.flush()
    assert result.dropper.status == "recorded"
    assert result.dropper.counts["backstop"] == 9
    assert not provider.asked("drop_observations")
    ledger = fold_ledger(await session.entries())
    assert {one.relevance for one in ledger.active_observations} == {"critical"}
    # What is critical stays, over the maximum too, and nothing is tried again and again.
    records = len(ledger.records)
    await memory.flush()
    assert len(fold_ledger(await session.entries()).records) == records


async def test_by_rule_nothing_is_dropped_while_the_reflector_fails() -> None:
    session = session_of()
    for _ in range(6):
        await session.run("a")
    memory = memory_of(
        session,
        Workers(reflector=[[error("bad", code="auth")]]),
        reflect_after_tokens=1,
        observations_pool_max_tokens=100,
        observations_pool_target_tokens=50,
    )
    result = await memory.flush()
    assert result.reflector.status == "failed"
    assert fold_ledger(await session.entries()).dropped_ids == ()


async def test_errors_are_kept_until_the_next_success() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([[error("bad", code="auth")], observe(), STOP])
    memory = memory_of(session, provider)
    await memory.flush()
    failed = memory.state.workers["observer"].last_error
    assert failed is not None
    assert (failed.code, failed.message) == ("auth", "bad")
    await memory.flush()
    state = memory.state.workers["observer"]
    assert state.last_error is None
    assert state.last_success_at is not None


POOL = {
    "reflect_after_tokens": 1,
    "observations_pool_max_tokens": 10_000,
    "observations_pool_target_tokens": 50,
}


async def test_a_dropper_that_finds_nothing_or_only_unknown_ids_drops_nothing() -> None:
    for script, status, code in (
        ([drop(), STOP], "empty", None),
        ([drop("aaaaaaaaaaaa"), STOP], "failed", "all_rejected"),
        ([call("drop_observations", ids="all"), STOP], "failed", "all_rejected"),
        ([[text_delta("I would keep them."), done()]], "failed", "no_tool_call"),
        ([[error("bad", code="auth")]], "failed", "auth"),
    ):
        session = session_of()
        for _ in range(4):
            await session.run("a")
        result = await memory_of(session, Workers(dropper=script), **POOL).flush()
        assert result.dropper.status == status
        assert (result.dropper.error and result.dropper.error.code) == code
        assert result.reflector.status == "recorded"
        assert fold_ledger(await session.entries()).dropped_ids == ()


async def test_a_pool_over_its_maximum_is_looked_at_again_only_when_something_is_new() -> None:
    session = session_of()
    for _ in range(4):
        await session.run("a")
    provider = Workers(dropper=[drop(), STOP])
    memory = memory_of(session, provider, **POOL)
    await memory.flush()
    over = memory_of(
        session,
        provider,
        observations_pool_max_tokens=60,
        observations_pool_target_tokens=50,
    )
    before = len(provider.asked("drop_observations"))
    result = await over.flush()
    assert result.dropper.counts["backstop"] > 0
    await over.flush()
    assert len(provider.asked("drop_observations")) == before + 2


async def test_a_hook_may_let_nothing_go() -> None:
    session = session_of()
    for _ in range(4):
        await session.run("a")

    def keep_all(output: WorkerOutput) -> WorkerOutput:
        return structs.replace(output, dropped_ids=())

    result = await memory_of(session, hooks=MemoryHooks(after=keep_all), **POOL).flush()
    assert result.dropper.status == "empty"


async def test_an_error_after_a_reflection_was_accepted_keeps_it_and_looks_again() -> None:
    def answer(request: Any) -> list[Any]:
        if not is_first(request):
            return [error("gone", code="not_found")]
        (first, *_) = known_ids(request, "Known observations")
        return reflect({"content": "kept", "supportingObservationIds": [first]})

    session = session_of()
    await session.run("a")
    memory = memory_of(session, Workers(reflector=answer), reflect_after_tokens=1)
    result = await memory.flush()
    assert result.reflector.status == "recorded"
    assert result.reflector.error is not None
    ledger = fold_ledger(await session.entries())
    assert [one.content for one in ledger.active_reflections] == ["kept"]
    assert ledger.reflected.place < ledger.observed.place
    assert (await memory.flush()).reflector.status != "not_due"


async def test_a_reflector_that_says_strange_things_records_nothing() -> None:
    for arguments in (
        {"reflections": "x"},
        {"reflections": [3, {"content": 1}, {"content": "a"}]},
        {"reflections": [], "obsolete": ["aaaaaaaaaaaa", 3]},
        {"reflections": [{"content": "same " * 60, "supportingObservationIds": ["x"]}]},
    ):
        session = session_of()
        await session.run("a")
        provider = Workers(reflector=[call("record_reflections", **arguments), STOP])
        result = await memory_of(session, provider, reflect_after_tokens=1).flush()
        assert result.reflector.error is not None
        assert result.reflector.error.code == "all_rejected"


async def test_records_of_a_hook_must_rest_on_what_was_shown() -> None:
    session = session_of()
    await session.run("a")

    def foreign(output: WorkerOutput) -> WorkerOutput:
        if output.worker == "observer":
            return output
        changed = [
            structs.replace(one, supporting_observation_ids=("aaaaaaaaaaaa",))
            for one in output.reflections
        ]
        return structs.replace(output, reflections=tuple(changed))

    def elsewhere(output: WorkerOutput) -> WorkerOutput:
        changed = [
            structs.replace(one, source_entry_ids=("elsewhere",)) for one in output.observations
        ]
        return structs.replace(output, observations=tuple(changed))

    wrong = memory_of(session, hooks=MemoryHooks(after=elsewhere))
    result = await wrong.flush()
    assert result.observer.error is not None
    assert result.observer.error.code == "hook_failed"
    memory = memory_of(session, hooks=MemoryHooks(after=foreign), reflect_after_tokens=1)
    result = await memory.flush()
    assert result.observer.status == "recorded"
    assert result.reflector.error is not None
    assert result.reflector.error.code == "hook_failed"
