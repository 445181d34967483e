"""Real sessions through observational memory: `uv run python benchmarks/memory/replays.py`.

Each session is fed in four parts; after each of the first three it is observed by a scripted model
and compacted. A row shows, for the three compactions, the context before and after, the pool of
observations, and how long the compaction took.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
from material import chained, real_sessions
from scripted import Observer, keep_all

from prism.core import Agent, MessageEntry, ModelConfig, NothingToCompact
from prism.core.compaction import CompactionResult
from prism.core.providers import MockProvider
from prism.core.stores import MemorySessionStore
from prism.memory.observational import (
    ObservationalCompactionStrategy,
    ObservationalMemory,
    ObservationalMemorySettings,
    fold_ledger,
    memory_status,
    unobserved,
)

PARTS = 4
MODEL = ModelConfig(provider="mock", model="scripted")


@dataclass(kw_only=True)
class Replay:
    """What came of one session."""

    name: str
    messages: int
    contexts: list[str] = field(default_factory=list[str])
    pools: list[str] = field(default_factory=list[str])
    folds: list[str] = field(default_factory=list[str])
    times: list[float] = field(default_factory=list[float])
    covered: int = 0
    sources: int = 0


async def replay(name: str, messages: Sequence[MessageEntry]) -> Replay:
    """One session."""
    store = MemorySessionStore()
    session = Agent(model=MODEL, provider=MockProvider(), store=store).session("s")
    settings = ObservationalMemorySettings(observe_after_tokens=1, max_chunks_per_flush=256)
    memory = ObservationalMemory(
        session, provider=Observer(keep_all), model=MODEL, settings=settings
    )
    strategy = ObservationalCompactionStrategy(fallback=None)
    found = Replay(name=name, messages=len(messages))
    for number in range(PARTS):
        part = messages[len(messages) * number // PARTS : len(messages) * (number + 1) // PARTS]
        await session.entries()
        await store.append("s", chained(part, "s", session.leaf_id))
        await session.reload()
        result = await memory.flush()
        assert not result.failed, result
        if number == PARTS - 1:
            break
        started = time.perf_counter()
        try:
            done: CompactionResult | None = await session.compact(strategy=strategy)
        except NothingToCompact:
            done = None
        found.times.append(1_000 * (time.perf_counter() - started))
        entries = await session.entries()
        found.pools.append(f"{memory_status(entries).pool_tokens:,}")
        if done is None:
            found.contexts.append("nothing to fold")
            found.folds.append("-")
            continue
        found.contexts.append(f"{done.tokens_before:,} → {done.tokens_after:,}")
        memory_data = (done.entries[0].data or {})["memory"]
        found.folds.append("full" if memory_data["fullFold"] else "added")
        assert "uncoveredEntryIds" not in (done.entries[0].data or {})
    entries = await session.entries()
    found.sources = len(messages)
    found.covered = found.sources - len(unobserved(entries, fold_ledger(entries)))
    return found


async def main() -> None:
    """Print the table."""
    print("| session | messages | context in tokens, before → after | fold | pool | covered | ms |")
    print("|---|---|---|---|---|---|---|")
    for name, messages in real_sessions():
        row = await replay(name, messages)
        print(
            f"| {row.name} | {row.messages:,} | {'; '.join(row.contexts)} | {', '.join(row.folds)} "
            f"| {'; '.join(row.pools)} | {100 * row.covered // row.sources} % "
            f"| {max(row.times):.0f} |"
        )


if __name__ == "__main__":
    anyio.run(main)
