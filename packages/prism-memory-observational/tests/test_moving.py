"""Branches, closing and cancelling while workers are at work."""

from __future__ import annotations

from typing import Any

import anyio

from prism.core.providers import delay, done, text_delta
from prism.memory.observational import (
    FlushResult,
    MemoryHooks,
    ObservationalMemory,
    WorkerOutput,
    fold_ledger,
)

from .workers import (
    STOP,
    Workers,
    memory_of,
    observe,
    session_of,
)


async def contents(memory: ObservationalMemory) -> list[str]:
    ledger = fold_ledger(await memory.session.entries())
    return [one.content for one in ledger.observations]


async def test_what_was_found_is_discarded_when_the_session_has_moved_to_another_branch() -> None:
    session = session_of()
    await session.run("a")
    await session.run("b")
    root = (await session.entries())[0].id

    async def switch(_output: WorkerOutput) -> None:
        await session.checkout(root)

    memory = memory_of(session, hooks=MemoryHooks(after=switch))
    result = await memory.flush()
    assert result.observer.status == "skipped"
    assert result.observer.reason == "branch_moved"
    assert await contents(memory) == []
    assert all(type(node).__name__ != "CustomEntry" for node in await session.entries())


async def test_closing_the_session_cancels_the_workers_and_nothing_is_written() -> None:
    session = session_of()
    await session.run("a")
    before = len(await session.entries())
    provider = Workers([[delay(60_000), done()]])
    memory = memory_of(session, provider)
    results: list[FlushResult] = []

    async def flush() -> None:
        results.append(await memory.flush())

    async with anyio.create_task_group() as group:
        group.start_soon(flush)
        while not provider.requests:
            await anyio.lowlevel.checkpoint()
        await session.aclose()
    assert results[0].reason == "aborted"
    assert len(await session_of(session.agent.store).entries()) == before


async def test_cancel_stops_a_flush_and_the_next_one_works() -> None:
    session = session_of()
    await session.run("a")
    provider = Workers([[delay(60_000), done()], observe(), STOP])
    memory = memory_of(session, provider)
    assert not memory.cancel()
    async with anyio.create_task_group() as group:
        group.start_soon(memory.flush)
        while not provider.requests:
            await anyio.lowlevel.checkpoint()
        assert memory.cancel()
    assert (await memory.flush()).observer.status == "empty"


async def test_the_callers_own_cancellation_goes_through() -> None:
    session = session_of()
    await session.run("a")
    memory = memory_of(session, Workers([[delay(60_000), done()]]))
    with anyio.move_on_after(0.01) as scope:
        await memory.flush()
    assert scope.cancelled_caught
    assert memory.state.in_flight is None


async def test_during_a_run_a_flush_is_skipped_and_records_can_still_be_appended() -> None:
    gate = anyio.Event()

    class Slow:
        id = "mock"

        async def generate(self, _request: Any) -> Any:
            yield text_delta("wait ")
            await gate.wait()
            yield done()

    session = session_of(provider=Slow())
    memory = memory_of(session)
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "a")
        while (await session.state()).status != "running":
            await anyio.lowlevel.checkpoint()
        assert (await memory.flush()).reason == "run_active"
        assert (await memory.flush(force=True)).observer.status == "recorded"
        gate.set()
    assert (await memory.flush()).observer.status == "recorded"
