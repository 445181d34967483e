"""`prism.memory.observational` beside decoding the entries that it reads."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
from measure import Row, show
from memory.material import chained, real_sessions
from memory_llm import MESSAGES

from prism.core import SessionEntry, decode_entry
from prism.core.compaction import CompactionContext
from prism.memory.observational import (
    ObservationalCompactionStrategy,
    build_projection,
    make_observation,
    make_reflection,
    observations_record,
    reflections_record,
    render_memory,
)

ENTRIES = 100_000
RECORDS = 5_000
REPEATS = 5
MAX_COMPACTION_MS = 50


def session_lines(count: int, records: int) -> Iterator[bytes]:
    """A session of turns with one call each, and a record of one observation now and then."""
    every = count // records
    for number in range(count):
        head = {"id": f"e{number}", "sessionId": "s", "timestamp": "2026-01-01T00:00:00.000Z"}
        if number:
            head["parentId"] = f"e{number - 1}"
        if number % every == every - 1:
            yield json.dumps({**head, "kind": "custom", "data": record(number, every)}).encode()
        else:
            message = MESSAGES[number % 4](number)
            yield json.dumps({**head, "kind": "message", "message": message}).encode()


def record(number: int, every: int) -> dict[str, Any]:
    """A record of what the last messages were about."""
    one = make_observation(
        content=f"Part {number} of the program returns 1, and nothing calls it.",
        timestamp="2026-01-01T00:00:00+00:00",
        relevance=("low", "medium", "high")[number // every % 3],
        source_entry_ids=[f"e{number - 2}", f"e{number - 1}"],
    )
    if number // every % 10 == 9:
        reflection = make_reflection(
            content=f"Up to part {number} nothing is called.",
            supporting_observation_ids=[one.id],
            timestamp="2026-01-01T00:00:00+00:00",
        )
        return reflections_record([reflection], f"e{number - 1}")
    return observations_record([one], f"e{number - 1}")


def best(job: Callable[[], object]) -> float:
    """Least CPU milliseconds of *job*."""
    times: list[float] = []
    for _ in range(REPEATS):
        gc.collect()
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def folding() -> Row:
    """Folding, projecting and rendering a whole branch."""
    lines = list(session_lines(ENTRIES, RECORDS))
    entries: list[SessionEntry] = [decode_entry(line) for line in lines]

    def job() -> str:
        found = build_projection(entries)
        return render_memory(found.reflections, found.observations)

    assert len(build_projection(entries).ledger.records) == RECORDS
    return Row(
        name=f"fold, projection, render: {ENTRIES:,} entries, {RECORDS:,} records",
        ours=best(job),
        bare=best(lambda: [decode_entry(line) for line in lines]),
        unit="ms",
        limit=4,
    )


def compaction() -> Row:
    """Compacting the largest real session by memory that is there: one observation a message."""
    name, messages = max(real_sessions(), key=lambda found: len(found[1]))
    path: list[SessionEntry] = [*chained(messages, "s", None)]
    observations = [
        make_observation(
            content=f"Something about {entry.id} that is worth a line of this length or so.",
            timestamp=entry.timestamp,
            relevance="medium",
            source_entry_ids=[entry.id],
        )
        for entry in messages
    ]
    data = observations_record(observations, path[-1].id)
    line = json.dumps({
        "kind": "custom", "id": "record", "sessionId": "s", "parentId": path[-1].id,
        "timestamp": path[-1].timestamp, "data": data,
    })  # fmt: skip
    path.append(decode_entry(line.encode()))
    strategy = ObservationalCompactionStrategy(fallback=None)
    context = CompactionContext(session_id="s", entries=path)
    return Row(
        name=f"compaction of {name}, {len(messages):,} messages",
        ours=best(lambda: anyio.run(strategy.compact, context)),
        bare=0,
        unit="ms",
        limit=MAX_COMPACTION_MS,
    )


def rows() -> list[Row]:
    """Every line of this file; the second one needs the session fixtures."""
    return [folding(), compaction()]


if __name__ == "__main__":
    show(rows())
