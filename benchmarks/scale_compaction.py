"""Compaction of a long session, and rebuilding its context, beside decoding it with msgspec."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
from measure import Row, compile_sources, show

from prism.core import (
    CompactionEntry,
    Message,
    MessageEntry,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    rebuild_session_context,
)
from prism.core.compaction import CompactionContext, DefaultCompactionStrategy, repair_pairs

ENTRIES = 100_000
REPEATS = 5
LIMIT = 3.0
WHEN = "2026-01-01T00:00:00.000Z"


def messages(number: int) -> Message:
    """A question, a call, its result, an answer; and again."""
    match number % 4:
        case 0:
            return Message(role="user", content=[TextBlock(text=f"What about number {number}?")])
        case 1:
            call = ToolCallBlock(id=f"call_{number}", name="look_up", arguments={"n": number})
            return Message(
                role="assistant",
                content=[TextBlock(text="Let me look that up."), call],
                stop_reason="tool_use",
            )
        case 2:
            result = ToolResultBlock(
                tool_call_id=f"call_{number - 1}",
                name="look_up",
                content=[TextBlock(text=f"{number} is a number. " * 8)],
            )
            return Message(role="tool", content=[result])
        case _:
            text = f"I looked at {number}, and there is not much to say about it. " * 3
            return Message(role="assistant", content=[TextBlock(text=text)], stop_reason="stop")


def session() -> list[MessageEntry]:
    """The whole branch."""
    return [
        MessageEntry(
            id=f"entry_{number}",
            session_id="long",
            timestamp=WHEN,
            parent_id=f"entry_{number - 1}" if number else None,
            message=messages(number),
        )
        for number in range(ENTRIES)
    ]


def best_ms(job: Callable[[], Any]) -> float:
    """Least CPU milliseconds of *job*, without the collector, which slows decoding most."""
    times: list[float] = []
    for _ in range(REPEATS):
        gc.collect()
        gc.disable()
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
        gc.enable()
    return min(times) * 1e3


def rows() -> list[Row]:
    """Every line of this file."""
    text = msgspec.json.Encoder().encode_lines(session())
    # One union of two, so that the kind is read as it is in a session file.
    decoder = msgspec.json.Decoder(MessageEntry | CompactionEntry)
    decoding = best_ms(lambda: decoder.decode_lines(text))
    entries: list[Any] = decoder.decode_lines(text)
    context = CompactionContext(session_id="long", entries=entries)
    strategy = DefaultCompactionStrategy()
    made: list[CompactionEntry] = []

    async def compact() -> None:
        result = await strategy.compact(context)
        made[:] = result.entries if result is not None else []

    compacting = best_ms(lambda: anyio.run(compact))
    rebuilding = best_ms(lambda: rebuild_session_context(entries))
    compacted = [*entries, *made]
    after = best_ms(lambda: rebuild_session_context(compacted))
    history = rebuild_session_context(entries).messages
    left = rebuild_session_context(compacted).messages
    if len(history) != ENTRIES or not 0 < len(left) < ENTRIES // 1_000:
        message = f"{len(history)} messages before, {len(left)} after: this measures nothing."
        raise RuntimeError(message)
    repairing = best_ms(lambda: repair_pairs(history))
    return [
        Row(name=name, ours=ours, bare=decoding, unit="ms", limit=LIMIT)
        for name, ours in (
            (f"compaction of {ENTRIES:,} entries (bare: decode)", compacting),
            (f"rebuild of {ENTRIES:,} entries (bare: decode)", rebuilding),
            ("the same, compacted", after),
            (f"pair repair of {ENTRIES:,} messages (bare: decode)", repairing),
        )
    ]


if __name__ == "__main__":
    compile_sources()
    show(rows())
