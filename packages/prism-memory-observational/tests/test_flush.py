"""What `flush()` does, and what it says of it."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any

import anyio

from prism.core import (
    Secret,
    Usage,
    UsageReported,
    WorkerFinished,
)
from prism.core.host import ExplicitCredentialResolver
from prism.core.providers import CredentialRequest, delay, done, error, text_delta
from prism.memory.observational import (
    FlushResult,
    ObservationalMemory,
    ObservationalMemorySettings,
    WorkerRole,
    fold_ledger,
    memory_status,
)

from .workers import (
    MODEL,
    STOP,
    Heard,
    Workers,
    call,
    entry_ids,
    is_first,
    memory_of,
    note,
    note_each,
    observe,
    prompt_of,
    session_of,
    talker,
)

SECRET = "hunter2-" + "x" * 12


async def contents(memory: ObservationalMemory) -> list[str]:
    ledger = fold_ledger(await memory.session.entries())
    return [one.content for one in ledger.observations]


async def test_the_observer_records_what_the_model_noted_with_its_sources_and_time() -> None:
    session = session_of()
    await session.run("The port is 8080.")
    memory = memory_of(session)
    result = await memory.flush()
    assert result.ran
    assert result.observer.status == "recorded"
    assert result.observer.counts == {"recorded": 2, "runs": 1, "turns": 2, "calls": 1}
    assert result.reflector.status == result.dropper.status == "not_due"
    entries = await session.entries()
    said = [entry.id for entry in entries if entry.id in entry_ids_of(entries)]
    ledger = fold_ledger(entries)
    assert [one.source_entry_ids for one in ledger.observations] == [(key,) for key in said]
    assert ledger.observed.entry_id == said[-1] == result.observer.covers_up_to
    assert all("T" in one.timestamp for one in ledger.observations)


def entry_ids_of(entries: list[Any]) -> set[str]:
    return {entry.id for entry in entries if type(entry).__name__ == "MessageEntry"}


async def test_below_the_threshold_nothing_is_due_and_at_it_the_observer_is() -> None:
    session = session_of()
    await session.run("a")
    tokens = memory_status(await session.entries()).tokens_to_observe
    above = memory_of(session, observe_after_tokens=tokens + 1)
    assert await above.flush() == FlushResult(ran=True)
    equal = memory_of(session, observe_after_tokens=tokens)
    assert (await equal.flush()).observer.status == "recorded"


async def test_ledger_and_compaction_entries_behind_the_frontier_add_nothing() -> None:
    session = session_of()
    await session.run("a")
    memory = memory_of(session)
    await memory.flush()
    await session.append_custom({"type": "host.note", "text": "x" * 10_000})
    assert memory_status(await session.entries()).tokens_to_observe == 0
    assert (await memory.flush()).observer.status == "not_due"


async def test_an_item_that_names_an_entry_outside_the_chunk_is_refused_and_others_stay() -> None:
    receipts: list[str] = []

    def answer(request: Any) -> list[Any]:
        if is_first(request):
            first, second = entry_ids(request)
            return observe(
                note("good", first), note("bad", "entry_elsewhere"), note("half", second, "gone")
            )
        receipts.append(str(request.messages[-1].content[0]))
        return STOP

    session = session_of()
    await session.run("a")
    memory = memory_of(session, Workers(answer))
    result = await memory.flush()
    assert await contents(memory) == ["good"]
    assert result.observer.counts["rejected"] == 2
    assert "These entries were not shown: entry_elsewhere." in receipts[0]
    # What was refused may have been in what follows: it is looked at again.
    assert result.observer.covers_up_to == (await session.entries())[0].id


async def test_a_clean_nothing_is_stored_and_survives_a_restart() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([observe(), STOP, observe(), STOP])
    memory = memory_of(session, provider)
    result = await memory.flush()
    assert result.observer.status == "empty"
    assert (await memory.flush()).observer.status == "not_due"
    again = session_of(session.agent.store)
    assert (await memory_of(again, provider).flush()).observer.status == "not_due"
    assert len(provider.requests) == 2
    await again.run("more")
    assert (await memory_of(again, provider).flush()).observer.status == "empty"


async def test_prose_instead_of_a_call_is_asked_for_once_more_and_is_no_coverage() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([[text_delta("Nothing much happened."), done()]])
    memory = memory_of(session, provider)
    result = await memory.flush()
    assert result.observer.status == "failed"
    assert result.observer.error is not None
    assert result.observer.error.code == "no_tool_call"
    assert len(provider.requests) == 2
    assert "Call `record_observations`" in prompt_of(provider.requests[1])
    assert fold_ledger(await session.entries()).observed.place == -1


async def test_only_bad_items_are_a_failure_and_no_coverage() -> None:
    session = session_of()
    await session.run("a")
    items: list[Any] = [
        None,
        {},
        {"content": " "},
        note("x", "m"),
        {**note("x", "m"), "relevance": 1},
    ]
    for arguments in ({"observations": items}, {"observations": "x"}, {}):
        provider = Workers([call("record_observations", **arguments), STOP])
        result = await memory_of(session, provider).flush()
        assert result.observer.error is not None
        assert result.observer.error.code == "all_rejected"
    assert fold_ledger(await session.entries()).observed.place == -1


async def test_a_provider_error_moves_no_frontier_and_stops_the_pipeline() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([[error("no such model", code="not_found")]])
    heard = Heard()
    memory = memory_of(session, provider, on_event=heard, reflect_after_tokens=1)
    result = await memory.flush()
    assert result.observer.status == "failed"
    assert result.failed
    assert result.reflector.status == "not_due"
    assert not provider.asked("record_reflections")
    assert heard.kinds == ["WorkerStarted", "WorkerFinished"]
    assert fold_ledger(await session.entries()).observed.place == -1
    last = memory.state.workers["observer"].last_error
    assert last is not None
    assert last.code == "not_found"


async def test_an_error_after_something_was_accepted_covers_only_what_was_named() -> None:
    def answer(request: Any) -> list[Any]:
        if is_first(request):
            return observe(note("first", entry_ids(request)[0]))
        return [error("gone", code="not_found")]

    session = session_of()
    await session.run("a")
    memory = memory_of(session, Workers(answer))
    result = await memory.flush()
    assert result.observer.status == "recorded"
    assert result.observer.error is not None
    ledger = fold_ledger(await session.entries())
    assert ledger.observed.place == 0


async def test_a_backlog_is_drained_oldest_first_in_chunks_of_the_cap() -> None:
    session = session_of(provider=talker("word " * 160))
    await session.run("word " * 160)
    await session.run("word " * 160)
    provider = Workers()
    heard = Heard()
    memory = memory_of(session, provider, observer_chunk_max_tokens=256, on_event=heard)
    result = await memory.flush()
    entries = await session.entries()
    messages = [entry.id for entry in entries if entry.id in entry_ids_of(entries)]
    first = [request for request in provider.requests if is_first(request)]
    assert [entry_ids(request) for request in first] == [[key] for key in messages]
    ledger = fold_ledger(entries)
    assert [record.covers_up_to_id for record in ledger.records] == messages
    assert result.observer.counts["runs"] == 4
    assert heard.kinds.count("WorkerStarted") == heard.kinds.count("WorkerFinished") == 4


async def test_a_message_larger_than_a_chunk_is_shown_by_its_head_and_tail_and_is_covered() -> None:
    session = session_of()
    await session.run("BEGIN " + "middle " * 2_000 + "END")
    provider = Workers()
    memory = memory_of(session, provider, observer_chunk_max_tokens=300)
    await memory.flush()
    shown = provider.requests[0].messages[0].text
    assert "BEGIN" in shown
    assert "END" in shown
    assert "characters are not shown" in shown
    assert len(shown) < 3_000
    assert memory_status(await session.entries()).tokens_to_observe == 0


async def test_a_model_that_always_calls_gets_exactly_its_turns_and_the_last_calls_count() -> None:
    count = [0]

    def answer(request: Any) -> list[Any]:
        count[0] += 1
        return observe(note(f"note {count[0]}", entry_ids(request)[0]))

    session = session_of()
    await session.run("a")
    memory = memory_of(session, Workers(answer), agent_max_turns=2)
    result = await memory.flush()
    assert count == [2]
    assert await contents(memory) == ["note 1", "note 2"]
    assert result.observer.error is not None
    assert result.observer.error.code == "turn_limit"
    assert result.observer.covers_up_to == (await session.entries())[0].id


async def test_a_model_that_ends_with_its_last_turn_has_come_to_its_own_end() -> None:
    session = session_of()
    await session.run("a")
    result = await memory_of(session, Workers(), agent_max_turns=2).flush()
    assert result.observer.status == "recorded"
    assert result.observer.error is None


async def test_two_flushes_at_once_are_one() -> None:
    session = session_of()
    await session.run("a")

    def answer(request: Any) -> list[Any]:
        return [delay(50), *note_each(request)]

    memory = memory_of(session, Workers(answer))
    results: list[FlushResult] = []

    async def flush() -> None:
        results.append(await memory.flush())

    async with anyio.create_task_group() as group:
        group.start_soon(flush)
        group.start_soon(flush)
    reasons = {result.reason for result in results}
    assert reasons == {None, "in_flight"}
    assert len(await contents(memory)) == 2
    await memory.wait_idle()


async def test_passive_skips_flushes_while_status_and_force_work() -> None:
    session = session_of()
    await session.run("a")
    memory = memory_of(session, passive=True)
    assert await memory.flush() == FlushResult(ran=False, reason="passive")
    assert (await memory.status()).passive
    assert (await memory.flush(force=True)).observer.status == "recorded"


async def test_without_a_model_the_worker_is_skipped_says_so_once_and_shows_it() -> None:
    session = session_of()
    await session.run("a")
    heard = Heard()
    memory = memory_of(session, model=None, on_event=heard)
    for _ in range(2):
        result = await memory.flush()
        assert not result.ran
        assert result.reason == "missing_model"
        assert result.observer.status == "skipped"
    assert heard.kinds == ["WorkerStarted", "WorkerFinished"]
    assert memory.state.workers["observer"].last_skip_reason == "missing_model"


async def test_a_missing_credential_skips_the_worker_with_its_reason() -> None:
    session = session_of()
    await session.run("a")
    wanted = CredentialRequest(provider="memory")
    memory = memory_of(session, credential=wanted)
    assert (await memory.flush()).reason == "missing_credential"
    empty = memory_of(session, credential=wanted, credentials=ExplicitCredentialResolver({}))
    assert (await empty.flush()).reason == "missing_credential"
    assert (await empty.status()).runtime is not None


async def test_a_factory_gets_the_credential_for_each_run_and_what_it_made_is_closed() -> None:
    session = session_of()
    await session.run("a")
    made: list[Any] = []

    class Closing(Workers):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    async def make(secret: Secret | None) -> Closing:
        assert secret is not None
        made.append((secret.reveal(), Closing()))
        return made[-1][1]

    class Resolver:
        async def resolve(self, request: CredentialRequest) -> Secret | None:
            return Secret(SECRET) if request.provider == "memory" else None

    memory = memory_of(
        session, make, credential=CredentialRequest(provider="memory"), credentials=Resolver()
    )
    assert (await memory.flush()).observer.status == "recorded"
    assert made[0][0] == SECRET
    assert made[0][1].closed


async def test_each_worker_can_have_its_own_model_prompt_and_limits() -> None:
    session = session_of()
    await session.run("a")
    own = Workers()
    shared = Workers()
    memory = memory_of(
        session,
        shared,
        observer=WorkerRole(
            model=MODEL.__class__(provider="mock", model="small"),
            provider=own,
            prompt="Note everything.",
            limits={"agent_max_turns": 1},
        ),
        reflect_after_tokens=1,
    )
    result = await memory.flush()
    assert own.requests[0].model.model == "small"
    assert own.requests[0].system == ("Note everything.",)
    assert len(own.requests) == 1
    assert result.observer.error is not None
    assert shared.asked("record_observations") == []
    assert memory.state.workers["observer"].model == "mock/small"
    assert memory.state.workers["reflector"].model == "mock/memory"


async def test_usage_is_told_as_memorys_and_not_as_the_turns() -> None:
    session = session_of()
    await session.run("a")

    def answer(request: Any) -> list[Any]:
        *events, _ = note_each(request)
        return [*events, done(usage=Usage(input_tokens=10, output_tokens=2))]

    heard = Heard()
    result = await memory_of(session, Workers(answer), on_event=heard).flush()
    usages = [event for event in heard.events if isinstance(event, UsageReported)]
    assert [(one.source, one.usage.input_tokens) for one in usages] == [("memory", 20)]
    finished = [event for event in heard.events if isinstance(event, WorkerFinished)]
    assert finished[0].usage == usages[0].usage == result.observer.usage
    assert finished[0].counts["recorded"] == 2
    assert (await session.state()).usage == Usage() or (await session.state()).usage is None


async def test_the_sessions_own_readers_hear_of_the_workers() -> None:
    session = session_of()
    await session.run("a")
    async with session.subscribe() as events:
        await memory_of(session).flush()
        await session.aclose()
        kinds = [type(event).__name__ async for event in events]
    assert kinds[:2] == ["WorkerStarted", "WorkerFinished"]


async def test_a_record_shows_the_minute_of_the_zone_that_the_host_names() -> None:
    session = session_of(clock=lambda: 1_772_357_400.0)
    await session.run("a")
    memory = ObservationalMemory(
        session,
        model=MODEL,
        provider=Workers(),
        settings=ObservationalMemorySettings(observe_after_tokens=1),
        zone=timezone(timedelta(hours=5, minutes=30)),
    )
    await memory.flush()
    (one, _) = fold_ledger(await session.entries()).observations
    assert one.timestamp == "2026-03-01T15:00:00+05:30"
    assert "] 2026-03-01 15:00 [" in one.line
