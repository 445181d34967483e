"""A session that is too long for a real model's window is compacted by that model, and goes on."""

from __future__ import annotations

import os

import pytest

from prism.core import (
    Agent,
    CompactionEntry,
    CompactionFailed,
    CompactionFinished,
    CompactionOptions,
    ModelConfig,
)
from prism.core.providers import OpenAIChatProvider
from prism.core.stores import MemorySessionStore
from prism.memory.llm import LlmCompactionStrategy

from .branches import Log, sent_tokens

BASE_URL = "PRISM_LIVE_BASE_URL"
WINDOW = 4_096
"""Tokens of one slot of the server that `tests/live_servers.py` starts."""

FACTS = "The otters of pond {n} eat {n} kilograms of fish and sleep in the reed. "


def long_session() -> Log:
    """A conversation of about one and a half windows."""
    log = Log("long")
    for number in range(1, 17):
        log.user(FACTS.format(n=number) * 20)
        log.assistant(f"I noted what pond {number} needs.")
    return log


@pytest.mark.live
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the model is slow, and the wire the same
async def test_a_session_longer_than_the_window_goes_on() -> None:
    base_url = os.environ.get(BASE_URL)
    assert base_url, f"{BASE_URL} is not set: run this test with `nox -s live`."
    provider = OpenAIChatProvider(base_url=base_url, credential="none")
    # Nobody tells the strategy how long the window is: the server's refusal does.
    model = ModelConfig(provider=provider.id, model="local", parameters={"temperature": 0})
    strategy = LlmCompactionStrategy(
        provider=provider, model=model, keep_recent_tokens=600, max_summary_tokens=100
    )
    log = long_session()
    store = MemorySessionStore()
    await store.append("long", log.entries)
    assert sent_tokens(log.entries) > 1.4 * WINDOW
    agent = Agent(
        model=ModelConfig(
            provider=provider.id, model="local", parameters={"maxTokens": 30, "temperature": 0}
        ),
        provider=provider,
        store=store,
        compaction=CompactionOptions(strategy=strategy, on_overflow="compact"),
    )
    session = agent.session("long")
    async with session.stream("How much fish is it?") as events:
        seen = [event async for event in events]
    assert [event.error for event in seen if isinstance(event, CompactionFailed)] == []
    assert events.result is not None
    assert events.result.status == "completed"
    assert events.result.text.strip()
    (compacted,) = [event for event in seen if isinstance(event, CompactionFinished)]
    assert compacted.trigger == "overflow"
    assert compacted.tokens_before is not None
    assert compacted.tokens_after is not None
    assert compacted.tokens_after < WINDOW / 2 < compacted.tokens_before
    again = await session.run("And who eats it?")
    assert again.status == "completed"
    entries = await session.entries()
    (entry,) = [entry for entry in entries if isinstance(entry, CompactionEntry)]
    assert entry.summary == compacted.summary
    await agent.aclose()
    print(  # noqa: T201
        f"\n{compacted.tokens_before} -> {compacted.tokens_after} tokens; the summary has "
        f"{len(entry.summary)} characters and begins with {entry.summary[:120]!r}"
    )
