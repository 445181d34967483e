"""A session file of 100 MB: what opening it takes, and what an append to it costs.

Memory is what Python allocated, so that it does not depend on the machine: the entries alone,
decoded with msgspec from one line at a time, are the bare figure.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from measure import Row, compile_sources, show

from prism.core import (
    Agent,
    CompactionEntry,
    CustomEntry,
    Message,
    MessageEntry,
    ModelConfig,
    TextBlock,
)
from prism.core.providers import MockProvider
from prism.core.stores import JsonlSessionStore

FILE_BYTES = 100_000_000
TEXT = "It was looked at, and there is not much to say about it. " * 16
APPENDS = 500
REPEATS = 10
WHEN = "2026-01-01T00:00:00.000Z"
MEMORY_LIMIT = 2.0
APPEND_LIMIT = 1.2


def message(number: int) -> MessageEntry:
    """Question and answer in turn, of about a kilobyte."""
    role = "assistant" if number % 2 else "user"
    return MessageEntry(
        id=f"entry_{number}",
        session_id="long",
        timestamp=WHEN,
        parent_id=f"entry_{number - 1}" if number else None,
        message=Message(role=role, content=[TextBlock(text=f"{number}. {TEXT}")]),
    )


def write(path: Path) -> int:
    """Fill the file, and tell how many entries it took."""
    encoder = msgspec.json.Encoder()
    written = number = 0
    with path.open("wb") as file:
        while written < FILE_BYTES:
            written += file.write(encoder.encode(message(number)) + b"\n")
            number += 1
    return number


def decode(path: Path) -> list[Any]:
    """The entries alone."""
    # One union of two, so that the kind is read as it is in a session file.
    decoder = msgspec.json.Decoder(MessageEntry | CompactionEntry)
    with path.open("rb") as file:
        return [decoder.decode(line) for line in file]


def traced(job: Callable[[], Any], entries: int) -> tuple[float, float]:
    """Megabytes that *job* has left, and the most that it had on the way."""
    gc.collect()
    tracemalloc.start()
    found = job()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == entries, (len(found), entries)
    return kept / 1e6, peak / 1e6


async def read_store(folder: Path) -> list[Any]:
    """Every entry, from the store's stream."""
    store = JsonlSessionStore(folder)
    entries = [stored.entry async for stored in store.iter_entries("long")]
    await store.aclose()
    return entries


async def read_session(folder: Path) -> list[Any]:
    """Every entry, from a session that was opened."""
    store = JsonlSessionStore(folder)
    agent = Agent(
        model=ModelConfig(provider="mock", model="bench"), provider=MockProvider(), store=store
    )
    entries = await agent.session("long").entries()
    await store.aclose()
    return list(entries)


def opening(folder: Path, path: Path, entries: int) -> list[Row]:
    """The most memory that opening takes."""
    decoded, _ = traced(lambda: decode(path), entries)
    _, streamed = traced(lambda: asyncio.run(read_store(folder)), entries)
    _, opened = traced(lambda: asyncio.run(read_session(folder)), entries)
    size = f"{FILE_BYTES // 1_000_000} MB"
    return [
        Row(name=name, ours=ours, bare=decoded, unit="MB", limit=MEMORY_LIMIT)
        for name, ours in (
            (f"peak memory: stream of {size} (bare: its entries)", streamed),
            (f"peak memory: session of {size} (bare: its entries)", opened),
        )
    ]


async def append_us(
    append: Callable[[int], Awaitable[object]],
    beside: Callable[[int], Awaitable[object]],
) -> tuple[float, float]:
    """Least CPU microseconds of an append here and there, taken in turn."""
    best = [float("inf"), float("inf")]
    number = 0
    for _ in range(REPEATS):
        for place, job in enumerate((append, beside)):
            gc.collect()
            gc.disable()
            start = time.process_time()
            for one in range(number, number + APPENDS):
                await job(one)
            best[place] = min(best[place], time.process_time() - start)
            gc.enable()
        number += APPENDS
    return best[0] / APPENDS * 1e6, best[1] / APPENDS * 1e6


async def appending(folder: Path, entries: int) -> list[Row]:
    """What an append costs once the file is open, beside one to a new file."""
    store = JsonlSessionStore(folder)
    agent = Agent(
        model=ModelConfig(provider="mock", model="bench"), provider=MockProvider(), store=store
    )
    assert len(await store.entries("long", after=entries - 1)) == 1

    def to_store(session_id: str, version: int) -> Callable[[int], Awaitable[object]]:
        def append(number: int) -> Awaitable[object]:
            entry = CustomEntry(
                id=f"more_{number}",
                session_id=session_id,
                timestamp=WHEN,
                parent_id=f"more_{number - 1}" if number else None,
                data={"type": "bench"},
            )
            return store.append(session_id, [entry], expected_version=version + number)

        return append

    def to_session(session_id: str) -> Callable[[int], Awaitable[object]]:
        session = agent.session(session_id)
        return lambda number: session.append_custom({"type": "bench", "n": number})

    stored = await append_us(to_store("long", entries), to_store("new", 0))
    through = [to_session("long"), to_session("newer")]
    for append in through:
        await append(0)  # the session is read at its first use
    said = await append_us(*through)
    await store.aclose()
    return [
        Row(name=name, ours=pair[0], bare=pair[1], unit="us", limit=APPEND_LIMIT)
        for name, pair in (
            ("append to its file (bare: to a new one)", stored),
            ("append to its session (bare: to a new one)", said),
        )
    ]


def rows() -> list[Row]:
    """Every line of this file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "long.jsonl"
        entries = write(path)
        assert path.stat().st_size >= FILE_BYTES
        return [*opening(folder, path, entries), *asyncio.run(appending(folder, entries))]


if __name__ == "__main__":
    compile_sources()
    show(rows())
