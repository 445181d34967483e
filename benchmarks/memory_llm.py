"""`prism.memory.llm` beside decoding the entries that it reads."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

from measure import Row

from prism.core import SessionEntry, decode_entry
from prism.memory.llm import prepare

ENTRIES = 100_000
REPEATS = 5


def session_lines(count: int, *, compact_every: int | None) -> Iterator[bytes]:
    """A session of turns with one tool call each, as a store holds it."""
    for number in range(count):
        kind: dict[str, Any] = {"kind": "message"}
        if compact_every is not None and number and number % compact_every == 0:
            kind = {
                "kind": "compaction",
                "summary": "What was done so far. " * 40,
                "data": {"throughEntryId": f"e{number - 10}", "strategy": "llm-compaction"},
            }
        else:
            kind["message"] = MESSAGES[number % 4](number)
        head = {"id": f"e{number}", "sessionId": "s", "timestamp": "2026-01-01T00:00:00.000Z"}
        if number:
            head["parentId"] = f"e{number - 1}"
        yield json.dumps({**head, **kind}).encode()


MESSAGES: list[Callable[[int], dict[str, Any]]] = [
    lambda n: {
        "role": "user",
        "content": [{"type": "text", "text": f"Please look at part {n} of the program."}],
    },
    lambda n: {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I read the file first."},
            {
                "type": "tool_call",
                "id": f"call_{n}",
                "name": "read",
                "arguments": {"path": f"src/part_{n % 500}.py"},
            },
        ],
        "stopReason": "tool_use",
    },
    lambda n: {
        "role": "tool",
        "content": [
            {
                "type": "tool_result",
                "toolCallId": f"call_{n - 1}",
                "name": "read",
                "content": [{"type": "text", "text": "def work():\n    return 1\n" * 12}],
            }
        ],
    },
    lambda n: {
        "role": "assistant",
        "content": [{"type": "text", "text": "It returns 1, and nothing calls it. " * 4}],
        "stopReason": "stop",
    },
]


def _best(job: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(REPEATS):
        gc.collect()
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def preparation(*, compact_every: int | None) -> Row:
    """Planning a compaction of a whole branch."""
    lines = list(session_lines(ENTRIES, compact_every=compact_every))
    entries: list[SessionEntry] = [decode_entry(line) for line in lines]
    how = "never compacted" if compact_every is None else f"compacted every {compact_every:,}"
    return Row(
        name=f"prepare, {ENTRIES:,} entries, {how}",
        ours=_best(lambda: prepare(entries)) * 1e3,
        bare=_best(lambda: [decode_entry(line) for line in lines]) * 1e3,
        unit="ms",
        limit=3,
    )


def memory() -> Row:
    """What planning holds beyond the entries, for a branch that was compacted before."""
    entries = [decode_entry(line) for line in session_lines(ENTRIES, compact_every=5_000)]
    tracemalloc.start()
    prepare(entries)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Row(
        name=f"peak memory of prepare, {ENTRIES:,} entries, compacted every 5,000",
        ours=peak / 1024,
        bare=0,
        unit="Ki",
        limit=24_000,
    )


def rows() -> list[Row]:
    """Every line of this file."""
    return [preparation(compact_every=None), preparation(compact_every=5_000), memory()]
