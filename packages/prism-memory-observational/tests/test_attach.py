"""Following a session, and compacting it from memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from prism.core import (
    CompactionEntry,
    CompactionError,
    CompactionFinished,
    MessageEntry,
    ModelConfig,
    NothingToCompact,
    Session,
    SessionBusy,
    Warned,
    WorkerFinished,
    rebuild_session_context,
)
from prism.core.providers import delay, done, error, text_delta
from prism.core.testing import check_event_laws
from prism.memory.observational import (
    ObservationalCompactionStrategy,
    ObservationalMemory,
    build_projection,
    fold_ledger,
    status_text,
)

from .workers import STOP, Heard, Workers, memory_of, note_each, observe, session_of, talker


async def until(condition: Callable[[], Any]) -> None:
    """Let others work until *condition* holds; nothing here waits for the clock."""
    for _ in range(10_000):
        if await condition():
            return
        await anyio.lowlevel.checkpoint()
    pytest.fail("It never came.")


def observed(session: Session) -> Callable[[], Any]:
    """Whether every message is observed."""

    async def check() -> bool:
        entries = await session.entries()
        ledger = fold_ledger(entries)
        return not any(
            isinstance(entry, MessageEntry) for entry in entries[ledger.observed.place + 1 :]
        )

    return check


def compacted(session: Session, times: int = 1) -> Callable[[], Any]:
    """Whether the session was compacted so often."""

    async def check() -> bool:
        found = [entry for entry in await session.entries() if isinstance(entry, CompactionEntry)]
        return len(found) >= times

    return check


def compactions(entries: list[Any]) -> list[CompactionEntry]:
    return [entry for entry in entries if isinstance(entry, CompactionEntry)]


async def settle(memory: ObservationalMemory) -> None:
    """Let what follows a settled run come to its end."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()
        await memory.wait_idle()


async def test_attached_it_observes_after_each_settled_run() -> None:
    session = session_of()
    memory = memory_of(session)
    async with memory.attach():
        assert memory.state.attached
        for turn in range(3):
            await session.run(f"turn {turn}")
            await until(observed(session))
    assert not memory.state.attached
    assert len(fold_ledger(await session.entries()).observations) == 6


async def test_without_attach_nothing_runs_until_flush() -> None:
    session = session_of()
    provider = Workers()
    memory = memory_of(session, provider)
    await session.run("a")
    await settle(memory)
    assert provider.requests == []
    assert len(await session.entries()) == 2


async def test_it_compacts_at_the_threshold_and_only_counts_new_messages() -> None:
    session = session_of(provider=talker("word " * 300))
    memory = memory_of(session, compact_after_tokens=1_500, keep_recent_entries=2)
    async with memory.attach():
        for turn in range(4):
            await session.run(f"turn {turn}")
            await until(observed(session))
            await settle(memory)
        await until(compacted(session))
        first = await session.entries()
        # The kept tail alone does not make it due again.
        await session.run("short")
        await until(observed(session))
        await settle(memory)
    assert len(compactions(await session.entries())) == len(compactions(first)) == 1
    (entry,) = compactions(first)
    assert (entry.data or {})["strategy"] == "observational-memory"


async def test_it_does_not_compact_when_the_model_would_see_no_less() -> None:
    session = session_of()
    memory = memory_of(session, compact_after_tokens=40, keep_recent_entries=2)
    async with memory.attach():
        for turn in range(4):
            await session.run(f"turn {turn}")
            await until(observed(session))
            await settle(memory)
    assert compactions(await session.entries()) == []


async def test_the_threshold_can_be_a_part_of_the_models_window() -> None:
    session = session_of(provider=talker("word " * 300))
    memory = memory_of(session, compact_after_ratio=0.5)
    assert (await memory.status()).compact_after_tokens == 50_000
    unknown = session_of()
    unknown.agent.model = ModelConfig(provider="mock", model="m")
    plain = memory_of(unknown, compact_after_ratio=0.5)
    assert (await plain.status()).compact_after_tokens == 81_000


async def test_passive_it_neither_observes_nor_compacts() -> None:
    session = session_of(provider=talker("word " * 300))
    provider = Workers()
    memory = memory_of(
        session, provider, passive=True, compact_after_tokens=100, keep_recent_entries=2
    )
    async with memory.attach():
        for _ in range(3):
            await session.run("a")
            await settle(memory)
    assert provider.requests == []
    assert compactions(await session.entries()) == []


async def test_a_run_is_never_held_up_by_a_flush() -> None:
    gate = anyio.Event()

    class Held(Workers):
        async def generate(self, request: Any) -> Any:  # type: ignore[override]
            await gate.wait()
            async for event in super().generate(request):
                yield event

    session = session_of()
    memory = memory_of(session, Held())
    async with memory.attach():
        for turn in range(5):
            result = await session.run(f"turn {turn}")
            assert result.status == "completed"
        assert fold_ledger(await session.entries()).observations == ()
        gate.set()
        await until(observed(session))


async def test_a_failing_worker_never_fails_a_run_and_shows_in_the_status() -> None:
    session = session_of()
    memory = memory_of(session, Workers([[error("bad", code="auth")]]), breaker_failures=2)
    async with memory.attach():
        for turn in range(4):
            assert (await session.run(f"turn {turn}")).status == "completed"
            await settle(memory)
    assert memory.state.breaker_open
    status = await memory.status()
    assert status.runtime is not None
    assert status.runtime.workers["observer"].last_error is not None
    assert status.tokens_to_observe > 0


async def test_leaving_it_cancels_a_flush_under_way() -> None:
    session = session_of()
    provider = Workers([[delay(60_000), done()]])
    memory = memory_of(session, provider)
    async with memory.attach():
        await session.run("a")
        while not provider.requests:
            await anyio.lowlevel.checkpoint()
    assert memory.state.in_flight is None
    await memory.wait_idle()
    assert len(await session.entries()) == 2


async def test_closing_the_session_ends_it() -> None:
    session = session_of()
    provider = Workers([[delay(60_000), done()]])
    memory = memory_of(session, provider)
    async with memory.attach():
        await session.run("a")
        while not provider.requests:
            await anyio.lowlevel.checkpoint()
        await session.aclose()
        await settle(memory)
        assert not memory.state.attached
    assert memory.state.in_flight is None


async def test_an_error_inside_the_context_comes_out_as_it_is() -> None:
    memory = memory_of(session_of())
    with pytest.raises(KeyError):
        async with memory.attach():
            raise KeyError("mine")


async def test_aborting_a_run_stops_the_workers() -> None:
    provider = Workers([[delay(60_000), done()], observe(), STOP])

    class Endless:
        id = "mock"
        turns = 0

        async def generate(self, _request: Any) -> Any:
            self.turns += 1
            yield text_delta("begin ")
            if self.turns > 1:
                await anyio.sleep(60)
            yield done()

    session = session_of(provider=Endless())
    memory = memory_of(session, provider)
    async with anyio.create_task_group() as group:
        await session.run("a")
        group.start_soon(memory.flush)
        while not provider.requests:
            await anyio.lowlevel.checkpoint()

        async def run() -> None:
            from prism.core import RunAborted

            with pytest.raises(RunAborted):
                await session.run("b")

        group.start_soon(run)
        while (await session.state()).status != "running":
            await anyio.lowlevel.checkpoint()
        session.abort("enough")
    await memory.wait_idle()
    assert memory.state.in_flight is None
    assert fold_ledger(await session.entries()).observations == ()


async def test_unobserved_entries_that_leave_are_warned_of() -> None:
    session = session_of(provider=talker("word " * 300))
    heard = Heard()
    turns = [0]

    def answer(request: Any) -> list[Any]:
        turns[0] += 1
        return note_each(request) if turns[0] <= 2 else [error("bad", code="auth")]

    memory = memory_of(
        session,
        Workers(answer),
        on_event=heard,
        compact_after_tokens=2_000,
        keep_recent_entries=1,
        breaker_failures=100,
    )
    async with memory.attach():
        await session.run("first")
        await until(observed(session))
        for turn in range(8):
            await session.run(f"turn {turn}")
            await settle(memory)
        await until(compacted(session))
    warnings = [event for event in heard.events if isinstance(event, Warned)]
    assert [warning.code for warning in warnings] == ["memory_uncovered"]
    status = await memory.status()
    assert status.uncovered
    assert "Uncovered:" in status_text(status)


async def test_all_events_of_an_attached_session_keep_the_laws_of_events() -> None:
    session = session_of(provider=talker("word " * 300))
    turns = [0]

    def answer(request: Any) -> list[Any]:
        turns[0] += 1
        if turns[0] % 5 == 4:
            return [error("the key is hunter2hunter2", code="auth")]
        return note_each(request)

    memory = memory_of(
        session,
        Workers(answer),
        secrets=["hunter2hunter2"],
        compact_after_tokens=2_000,
        keep_recent_entries=2,
        reflect_after_tokens=500,
        breaker_failures=100,
    )
    async with session.subscribe() as subscription:
        async with memory.attach():
            for turn in range(8):
                await session.run(f"turn {turn}")
                await settle(memory)
            await until(compacted(session))
        stopped = memory_of(session, Workers([[delay(60_000), done()]]))
        async with anyio.create_task_group() as group:
            group.start_soon(stopped.flush)
            for _ in range(100):
                await anyio.lowlevel.checkpoint()
            stopped.cancel()
        await session.aclose()
        events = [event async for event in subscription]
    check_event_laws(events, secrets=["hunter2hunter2"])
    statuses = [event.status for event in events if isinstance(event, WorkerFinished)]
    assert {"recorded", "failed"} <= set(statuses)


async def test_a_compaction_that_fails_is_shown_and_the_session_goes_on() -> None:
    session = session_of(provider=talker("word " * 300))
    memory = memory_of(session, compact_after_tokens=1_000, keep_recent_entries=2)

    async def broken(*_: Any, **__: Any) -> None:
        raise CompactionError("no room")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "compact", broken)
        async with memory.attach():
            for turn in range(4):
                await session.run(f"turn {turn}")
                await settle(memory)
    failed = memory.state.last_compaction_error
    assert failed is not None
    assert "no room" in status_text(await memory.status())


async def test_whatever_fails_in_it_the_session_goes_on() -> None:
    session = session_of()
    heard = Heard()
    memory = memory_of(session, on_event=heard)

    async def broken(**_: Any) -> None:
        raise RuntimeError("a bug")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "flush", broken)
        async with memory.attach():
            for turn in range(2):
                assert (await session.run(f"turn {turn}")).status == "completed"
                await settle(memory)
    assert heard.kinds == ["Warned", "Warned"]


# Through the session


async def test_the_session_compacts_by_memory_and_the_model_sees_it() -> None:
    session = session_of()
    memory = memory_of(session)
    for turn in range(6):
        await session.run(f"turn {turn}")
    await memory.flush()
    async with session.subscribe() as events:
        result = await session.compact(
            strategy=ObservationalCompactionStrategy(keep_recent_entries=2)
        )
        await session.aclose()
        finished = [event async for event in events if isinstance(event, CompactionFinished)]
    assert finished[0].strategy == "observational-memory"
    again = session_of(session.agent.store)
    entries = await again.entries()
    context = rebuild_session_context(entries)
    assert context.summaries == [result.summary]
    assert len(context.messages) == 2
    visible = build_projection(entries).visible
    assert visible is not None
    assert len(visible.observations) == 10
    await again.run("go on")
    provider: Any = again.agent.provider
    assert any(result.summary in message.text for message in provider.requests[-1].messages)


async def test_a_provider_that_fails_every_call_is_not_asked() -> None:
    session = session_of()
    await session.run("a")
    memory = memory_of(session)
    for turn in range(5):
        await session.run(f"turn {turn}")
    await memory.flush()
    session.agent.provider = Workers([[RuntimeError("never")]])
    result = await session.compact(
        strategy=ObservationalCompactionStrategy(keep_recent_entries=2, fallback=None)
    )
    assert result.summary
    assert session.agent.provider.requests == []


async def test_two_compactions_at_once_are_one_and_the_next_works() -> None:
    session = session_of()
    memory = memory_of(session)
    for turn in range(6):
        await session.run(f"turn {turn}")
    await memory.flush()
    strategy = ObservationalCompactionStrategy(keep_recent_entries=2)
    refused: list[Exception] = []

    async def compact() -> None:
        try:
            await session.compact(strategy=strategy)
        except (SessionBusy, NothingToCompact) as failure:
            refused.append(failure)

    async with anyio.create_task_group() as group:
        group.start_soon(compact)
        group.start_soon(compact)
    assert [type(one) for one in refused] == [SessionBusy]
    assert len(compactions(await session.entries())) == 1
    with pytest.raises(NothingToCompact):
        await session.compact(strategy=strategy)


async def test_a_setting_provider_is_asked_at_each_flush_and_its_mistakes_are_told_once() -> None:
    from prism.core.host import StaticSettings

    session = session_of()
    await session.run("a")
    heard = Heard()
    memory = ObservationalMemory(
        session,
        settings=StaticSettings({"observational-memory": {"passive": True, "observeAfter": 3}}),
        on_event=heard,
    )
    assert (await memory.flush()).reason == "passive"
    assert (await memory.flush()).reason == "passive"
    assert heard.kinds == ["Warned"]
