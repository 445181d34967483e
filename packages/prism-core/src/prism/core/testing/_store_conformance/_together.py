"""Several writers: tasks, threads, stores, processes; and a writer that is killed."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio import CancelScope, create_task_group, open_process, to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from prism.core._contracts import SessionStore
from prism.core._errors import StoreConflict
from prism.core.testing._store_conformance._harness import (
    Stage,
    case,
    cases_of,
    chain,
    expect,
    expect_equal,
    expect_stored,
    ids,
    message,
    refused,
)

# Tasks


@case()
async def of_tasks_that_expect_one_version_one_wins(stage: Stage) -> None:
    outcomes: list[str | int] = []

    async def write(number: int) -> None:
        entry = message(f"e{number}")
        try:
            outcomes.append(await stage.store.append("s", [entry], expected_version=0))
        except StoreConflict as error:
            outcomes.append(str(error.code))

    async with create_task_group() as group:
        for number in range(8):
            group.start_soon(write, number)
    expect_equal(outcomes.count(1), 1, "How many won")
    expect_equal(outcomes.count("version_conflict"), 7, "How many were refused")
    expect_equal(len(await stage.store.entries("s")), 1, "The entries")


@case()
async def appends_of_many_tasks_all_land(stage: Stage) -> None:
    async def write(writer: int) -> None:
        for number in range(10):
            await stage.store.append("s", [message(f"w{writer}-{number}")])

    async with create_task_group() as group:
        for writer in range(8):
            group.start_soon(write, writer)
    await _expect_all(stage.store, "w", writers=8, each=10)


@case()
async def one_batch_from_many_tasks_is_stored_once(stage: Stage) -> None:
    versions: list[int] = []

    async def write() -> None:
        versions.append(await stage.store.append("s", chain(3), expected_version=0))

    async with create_task_group() as group:
        for _ in range(8):
            group.start_soon(write)
    expect_equal(versions, [3] * 8, "The versions")
    await expect_stored(stage.store, ["e1", "e2", "e3"])


@case()
async def a_reader_never_sees_half_a_batch(stage: Stage) -> None:
    done = anyio.Event()

    async def write() -> None:
        for number in range(20):
            await stage.store.append("s", chain(5, prefix=f"b{number}-"))
            await anyio.lowlevel.checkpoint()
        done.set()

    async with create_task_group() as group:
        group.start_soon(write)
        while not done.is_set():
            count = len(await stage.store.entries("s"))
            expect_equal(count % 5, 0, f"What is left of {count} entries read in fives")
            await anyio.lowlevel.checkpoint()
    expect_equal(len(await stage.store.entries("s")), 100, "The entries")


@case()
async def a_cancelled_append_is_stored_whole_or_not_at_all(stage: Stage) -> None:
    batch = chain(3)
    with CancelScope() as scope:
        scope.cancel()
        await stage.store.append("s", batch, expected_version=0)
    expect(len(await stage.store.entries("s")) in {0, 3}, "A part of the batch is stored.")
    expect_equal(await stage.store.append("s", batch, expected_version=0), 3, "The version")
    await expect_stored(stage.store, ["e1", "e2", "e3"])


@case()
async def a_store_works_on_after_an_append_was_cancelled(stage: Stage) -> None:
    async def write(number: int) -> None:
        await stage.store.append("s", [message(f"e{number}")])

    async with create_task_group() as group:
        for number in range(4):
            group.start_soon(write, number)
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    version = len(await stage.store.entries("s"))
    new = [message("last")]
    expect_equal(await stage.store.append("s", new, expected_version=version), version + 1, "Then")


# Threads, each with an event loop


async def _in_threads(write: Callable[[int], Awaitable[None]], count: int) -> None:
    async def run(writer: int) -> None:
        await to_thread.run_sync(lambda: anyio.run(write, writer))

    async with create_task_group() as group:
        for writer in range(count):
            group.start_soon(run, writer)


@case("threads")
async def appends_of_several_threads_all_land(stage: Stage) -> None:
    async def write(writer: int) -> None:
        for number in range(20):
            await stage.store.append("s", [message(f"t{writer}-{number}")])

    await _in_threads(write, 4)
    await _expect_all(stage.store, "t", writers=4, each=20)


@case("threads")
async def of_threads_that_expect_one_version_one_wins(stage: Stage) -> None:
    async def write(writer: int) -> None:
        for version in range(10):
            try:
                await stage.store.append(
                    "s", [message(f"v{version}-{writer}")], expected_version=version
                )
            except StoreConflict as error:
                expect_equal(error.code, "version_conflict", "The code")

    await _in_threads(write, 4)
    stored = ids(await stage.store.entries("s"))
    versions = [entry_id.partition("-")[0] for entry_id in stored]
    expect_equal(versions, sorted(set(versions)), "The versions that were won, each once")
    expect(len(versions) > 0, "Nobody won.")


# Two stores on one place


@case("shared")
async def another_store_sees_what_was_appended(stage: Stage) -> None:
    e1, e2, e3 = chain(3)
    other = await stage.another()
    await stage.store.append("s", [e1])
    await expect_stored(other, ["e1"])
    await other.append("s", [e2], expected_version=1)
    await expect_stored(stage.store, ["e1", "e2"])
    await stage.store.append("s", [e3], expected_version=2)
    expect_equal([one.entry for one in await other.entries("s", after=1)], [e2, e3], "The rest")
    expect_equal((await other.sessions())[0].entry_count, 3, "The list's count")


@case("shared")
async def of_two_stores_that_expect_one_version_one_wins(stage: Stage) -> None:
    e1, e2, _ = chain(3)
    other = await stage.another()
    await stage.store.append("s", [e1])
    await stage.store.append("s", [e2], expected_version=1)
    with refused("version_conflict", StoreConflict):
        await other.append("s", [message("mine", "e1")], expected_version=1)
    with refused("id_conflict", StoreConflict):
        await other.append("s", [message("e2", "e1", text="Other")])
    expect_equal(await other.append("s", [e2], expected_version=1), 2, "The same entry")
    expect_equal(await other.append("s", [message("mine", "e2")], expected_version=2), 3, "Then")


@case("shared")
async def two_new_stores_may_begin_one_session(stage: Stage) -> None:
    stores = [stage.store, await stage.another(), await stage.another()]

    async def write(number: int) -> None:
        for step in range(5):
            await stores[number].append("s", [message(f"n{number}-{step}")])

    async with create_task_group() as group:
        for number in range(len(stores)):
            group.start_soon(write, number)
    await _expect_all(stage.store, "n", writers=3, each=5)


# Processes


class _Child:
    """A process that appends, as `_child` says."""

    def __init__(self, process: Process) -> None:
        self.process = process
        assert process.stdout is not None  # noqa: S101 - asked for
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def line(self) -> str:
        return (await self._lines.receive_until(b"\n", 10_000)).decode()

    async def go(self) -> None:
        assert self.process.stdin is not None  # noqa: S101 - asked for
        await self.process.stdin.send(b"go\n")


@asynccontextmanager
async def _child(stage: Stage, job: str, writer: str, count: int) -> AsyncGenerator[_Child]:
    process = stage.harness.process
    assert process is not None  # noqa: S101 - the case needs it
    command = [
        sys.executable,
        "-m",
        "prism.core.testing._store_conformance._child",
        *process,
        job,
        writer,
        str(count),
    ]
    running = await open_process(command, stderr=None)
    try:
        child = _Child(running)
        expect_equal(await child.line(), "ready", "The child's first line")
        yield child
    finally:
        with CancelScope(shield=True):
            if running.returncode is None:
                running.kill()
            await running.aclose()


@case("process")
async def of_processes_that_expect_one_version_one_wins(stage: Stage) -> None:
    async with _child(stage, "race", "a", 10) as first, _child(stage, "race", "b", 10) as second:
        for child in (first, second):
            await child.go()
        won = {"a": await first.line(), "b": await second.line()}
    stored = ids(await stage.store.entries("s"))
    versions = [int(entry_id.partition("-")[2]) for entry_id in stored]
    expect_equal(versions, list(range(10)), "The versions that were won, each once")
    for writer, count in won.items():
        mine = sum(entry_id.startswith(f"{writer}-") for entry_id in stored)
        expect_equal(mine, int(count), f"What {writer} was told it won")


@case("process")
async def appends_of_two_processes_all_land(stage: Stage) -> None:
    async with _child(stage, "land", "p0", 40) as first, _child(stage, "land", "p1", 40) as second:
        for child in (first, second):
            await child.go()
        for child in (first, second):
            expect_equal(await child.line(), "done", "The child's last line")
    await _expect_all(stage.store, "p", writers=2, each=40)


@case("process", "persistent")
async def a_killed_writer_loses_nothing_that_was_acknowledged(stage: Stage) -> None:
    acknowledged = 0
    for writer, wanted in (("k1", 1), ("k2", 17)):
        async with _child(stage, "forever", writer, 3) as child:
            await child.go()
            for _ in range(wanted):
                acknowledged = int(await child.line())
            child.process.kill()
            await child.process.wait()
        await stage.reopen()
        stored = [one for one in ids(await stage.store.entries("s")) if one.startswith(writer)]
        expect(len(stored) >= acknowledged, f"{acknowledged} acknowledged, {len(stored)} stored.")
        expect_equal(stored, [f"{writer}-{n}" for n in range(len(stored))], "What is stored")
        version = len(await stage.store.entries("s"))
        after = [message(f"after-{writer}", stored[-1])]
        expect_equal(
            await stage.store.append("s", after, expected_version=version), version + 1, ""
        )


async def _expect_all(store: SessionStore, prefix: str, *, writers: int, each: int) -> None:
    """Every entry of every writer is there once, each writer's in order."""
    stored = await store.entries("s")
    expect_equal([one.position for one in stored], list(range(1, writers * each + 1)), "Positions")
    for writer in range(writers):
        start = f"{prefix}{writer}-"
        found = [entry_id for entry_id in ids(stored) if entry_id.startswith(start)]
        expect_equal(found, [f"{start}{number}" for number in range(each)], f"Writer {writer}")


CASES: Final = cases_of(globals())
