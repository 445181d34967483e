"""Real sessions of other agents, observed by a script and compacted three times."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from prism.core import MessageEntry, NothingToCompact, Session
from prism.core.compaction import CompactionResult
from prism.core.providers import ProviderRequest
from prism.memory.observational import (
    ObservationalCompactionStrategy,
    fold_ledger,
    is_source,
    memory_status,
    recall,
    unobserved,
)

from .workers import STOP, Workers, entry_ids, is_first, memory_of, note, observe, session_of

PACKAGES = Path(__file__).resolve().parents[2]
SESSIONS = PACKAGES.parents[1] / "shared" / "fixtures" / "sessions"
PARTS = 4


def converters() -> Any:
    """What the tests of the core read these files with."""
    name = "prism_session_converters"
    if name not in sys.modules:
        path = PACKAGES / "prism-core" / "tests" / "converters.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


FILES = {
    "pi-large-session.jsonl": "convert_pi",
    "claude-code-4d5611e5.jsonl": "convert_claude_code",
    "claude-code-ae4a77f8.jsonl": "convert_claude_code",
    "claude-code-4d5611e5-subagent-a2898e3.jsonl": "convert_claude_code",
    "claude-code-tool_heavy.jsonl": "convert_claude_code",
    "sweagent-marshmallow-1867-fc.traj": "convert_swe_agent",
    "sweagent-ctf-i_got_id.traj": "convert_swe_agent",
    "openhands-goal-events.jsonl": "convert_openhands",
}


def messages_of(name: str) -> list[MessageEntry]:
    """The conversation in a fixture."""
    path = SESSIONS / name
    if not path.exists():
        pytest.skip(f"The session fixtures are not beside this checkout (looked for {path}).")
    found: Sequence[Any] = getattr(converters(), FILES[name])(path)
    return [entry for entry in found if isinstance(entry, MessageEntry)]


async def feed(session: Session, messages: Sequence[MessageEntry]) -> None:
    """Append what was said elsewhere, as if it had been said here."""
    await session.entries()
    parent = session.leaf_id
    entries: list[MessageEntry] = []
    for entry in messages:
        entries.append(replace(entry, session_id=session.id, parent_id=parent))
        parent = entry.id
    await session.agent.store.append(session.id, entries)
    await session.reload()


def every_other(request: ProviderRequest) -> list[Any]:
    """A note for every other message, as a busy observer writes them."""
    if not is_first(request):
        return STOP
    notes = [note(f"Something of {key} that matters.", key) for key in entry_ids(request)[::2]]
    return observe(*notes)


@pytest.mark.parametrize("name", sorted(FILES))
async def test_three_compactions_cover_all_and_only_add_at_the_end_between_full_folds(
    name: str,
) -> None:
    messages = messages_of(name)
    session = session_of()
    memory = memory_of(session, Workers(every_other), max_chunks_per_flush=256)
    strategy = ObservationalCompactionStrategy(fallback=None)
    results: list[CompactionResult] = []
    pools: list[int] = []
    for number in range(PARTS):
        await feed(session, messages[len(messages) * number // PARTS : _end(messages, number)])
        assert not (await memory.flush()).failed
        entries = await session.entries()
        assert unobserved(entries, fold_ledger(entries)) == []
        pools.append(memory_status(entries).pool_tokens)
        if number == PARTS - 1:
            break
        try:
            results.append(await session.compact(strategy=strategy))
        except NothingToCompact:
            assert len(messages) < 50  # a part is less than what is kept
    assert pools == sorted(pools)
    previous = ""
    for result in results:
        data = result.entries[0].data or {}
        assert "uncoveredEntryIds" not in data
        assert (result.tokens_after or 0) < (result.tokens_before or 0) or len(messages) < 50
        if not data["memory"]["fullFold"]:
            assert result.summary.startswith(previous)
        previous = result.summary
    entries = await session.entries()
    status = memory_status(entries)
    assert status.uncovered == ()
    assert status.malformed == 0
    ledger = fold_ledger(entries)
    for one in ledger.observations[:: max(1, len(ledger.observations) // 20)]:
        found = recall(entries, one.id)
        assert found.status == "ok"
        assert found.source_ids == one.source_entry_ids


def _end(messages: Sequence[MessageEntry], number: int) -> int:
    return len(messages) * (number + 1) // PARTS


@pytest.mark.parametrize("name", sorted(FILES))
async def test_whatever_is_in_a_real_session_fits_the_chunks_and_is_shown_once(name: str) -> None:
    messages = messages_of(name)
    session = session_of()
    await feed(session, messages)
    provider = Workers(every_other)
    memory = memory_of(session, provider, observer_chunk_max_tokens=2_000, max_chunks_per_flush=256)
    assert not (await memory.flush()).failed
    shown = [
        key for request in provider.requests if is_first(request) for key in entry_ids(request)
    ]
    assert len(shown) == len(set(shown))
    sources = [entry.id for entry in await session.entries() if is_source(entry)]
    assert [key for key in sources if key in set(shown)] == shown
    assert len(shown) >= len(sources) * 0.9  # the rest has nothing to show
    for request in provider.requests:
        assert len(request.messages[0].text) < 4 * (2_000 + 60_000)
