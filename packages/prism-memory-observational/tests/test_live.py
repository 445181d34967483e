"""Against a real, weak model: it says whatever it likes, and the memory stays honest.

Run by `nox -s live`, which starts the server.
"""

from __future__ import annotations

import os

import pytest

from prism.core import (
    Agent,
    Message,
    MessageEntry,
    ModelConfig,
    ModelLimits,
    ProviderOptions,
    TextBlock,
)
from prism.core.compaction import latest_compaction
from prism.core.providers import MockProvider, OpenAIChatProvider, done, text_delta
from prism.core.stores import MemorySessionStore
from prism.memory.observational import (
    FlushResult,
    ObservationalCompactionStrategy,
    ObservationalMemory,
    WorkerRole,
    fold_ledger,
    is_memory_id,
    is_source,
    resolve_settings,
    status_text,
)

pytestmark = pytest.mark.live

STATUSES = {"not_due", "recorded", "empty", "failed", "skipped"}

SAID = [
    "Please name the service otter and let it listen on port 8413.",
    "The config file is /etc/otter/main.toml. Never touch /etc/otter/secrets.toml.",
    "Use tabs, not spaces. I really mean it.",
    "The test test_login fails with 'KeyError: session_id' in line 88 of auth.py.",
    "Good. It is fixed now; the tests pass, all 212 of them.",
]


def base_url() -> str:
    url = os.environ.get("PRISM_LIVE_BASE_URL")
    if url is None or os.environ.get("PRISM_LIVE_OBSERVATIONAL_MEMORY_TESTS") != "1":
        pytest.skip(
            "Needs a model server: PRISM_LIVE_BASE_URL and PRISM_LIVE_OBSERVATIONAL_MEMORY_TESTS=1."
        )
    return url


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_the_workers_survive_whatever_a_weak_model_says(choice: str) -> None:
    model = ModelConfig(
        provider="local",
        model="local",
        limits=ModelLimits(context_window=4_096, max_output_tokens=512),
        parameters={"maxTokens": 120, "temperature": 0.8},
    )
    agent = Agent(
        model=ModelConfig(provider="mock", model="talk"),
        provider=MockProvider([text_delta("Understood, I will do that. " * 8), done()]),
        store=MemorySessionStore(),
    )
    session = agent.session("live")
    settings = resolve_settings(
        observe_after_tokens=1,
        reflect_after_tokens=1,
        observer_chunk_max_tokens=400,
        prior_memory_max_tokens=400,
        observations_pool_max_tokens=300,
        observations_pool_target_tokens=150,
        agent_max_turns=3,
        max_chunks_per_flush=1,
        worker_timeout_ms=120_000,
        breaker_failures=100,
    ).values
    provider = OpenAIChatProvider(base_url=base_url())
    memory = ObservationalMemory(
        session,
        model=model,
        provider=provider,
        options=ProviderOptions(tool_choice=choice),
        settings=settings,
        reflector=WorkerRole(limits={"agent_max_turns": 2}),
    )
    try:
        for text in SAID[:3]:
            await session.run(text)
            before = fold_ledger(await session.entries()).observed
            result = await memory.flush()
            print(_told(result))  # noqa: T201 - what the model did is the point of this test
            assert {result.observer.status, result.reflector.status} <= STATUSES
            assert result.dropper.status in STATUSES
            after = fold_ledger(await session.entries()).observed
            if result.observer.covers_up_to is None:
                assert after == before
            if result.observer.status == "failed" and not result.observer.counts.get("recorded"):
                assert result.observer.error is not None
        entries = await session.entries()
        ledger = fold_ledger(entries)
        places = {entry.id: entry for entry in entries}
        for one in ledger.observations:
            assert is_memory_id(one.id)
            assert "\n" not in one.line
            assert all(is_source(places[key]) for key in one.source_entry_ids)
        for two in ledger.reflections:
            assert set(two.supporting_observation_ids) <= set(ledger.observations_by_id)
        assert ledger.malformed == 0
        await session.compact(strategy=ObservationalCompactionStrategy(keep_recent_entries=2))
        entries = await session.entries()
        compacted = latest_compaction(entries)
        assert compacted is not None
        data = compacted.entry.data or {}
        if "memory" in data:
            reported = set(data.get("uncoveredEntryIds") or ())
            for place, entry in enumerate(entries):
                raw = place > compacted.through or place in compacted.keep
                covered = place <= ledger.observed.place
                assert not isinstance(entry, MessageEntry) or raw or covered or entry.id in reported
        print(status_text(await memory.status()))  # noqa: T201
    finally:
        await provider.aclose()


async def test_a_conversation_with_a_real_observer_never_waits_for_it() -> None:
    model = ModelConfig(
        provider="local",
        model="local",
        limits=ModelLimits(context_window=4_096),
        parameters={"maxTokens": 60},
    )
    provider = OpenAIChatProvider(base_url=base_url())
    agent = Agent(
        model=ModelConfig(provider="mock", model="talk"),
        provider=MockProvider([text_delta("Yes."), done()]),
        store=MemorySessionStore(),
    )
    session = agent.session("live")
    memory = ObservationalMemory(
        session,
        model=model,
        provider=provider,
        settings=resolve_settings(observe_after_tokens=1, worker_timeout_ms=60_000).values,
    )
    try:
        async with memory.attach():
            for text in SAID[:2]:
                assert await session.run(Message(role="user", content=[TextBlock(text=text)]))
            await memory.wait_idle()
        status = await memory.status()
        assert status.runtime is not None
        assert status.runtime.workers["observer"].model == "local/local"
    finally:
        await provider.aclose()


def _told(result: FlushResult) -> str:
    return "; ".join(
        f"{name}: {one.status} {one.counts} {one.error.code if one.error else ''}"
        for name, one in (
            ("observer", result.observer),
            ("reflector", result.reflector),
            ("dropper", result.dropper),
        )
        if one.status != "not_due"
    )
