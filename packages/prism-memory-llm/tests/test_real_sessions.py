"""Compaction of sessions that real agents left behind, by a summary model that plays a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prism.core import (
    CompactionData,
    CompactionEntry,
    MessageEntry,
    ModelConfig,
    SessionEntry,
    ToolCallBlock,
    ToolResultBlock,
    providers as core_providers,
)
from prism.core.compaction import rebuild_session_context, repair_pairs
from prism.core.prompt import DefaultPromptBuilder, PromptInput
from prism.core.providers import ProviderRequest
from prism.memory.llm import estimate_text_tokens, prepare

from .branches import Log, Summariser, say, sent_tokens, strategy
from .converters import (
    from_claude_code,
    from_pi,
    from_swe_agent,
    session_file,
)

Convert = Callable[[Path], list[SessionEntry]]

REAL: dict[str, Convert] = {
    "pi-large-session.jsonl": from_pi,
    "claude-code-4d5611e5.jsonl": from_claude_code,
    "claude-code-ae4a77f8.jsonl": from_claude_code,
    "sweagent-marshmallow-1867-fc.traj": from_swe_agent,
}


def log_of(name: str) -> Log:
    log = Log()
    log.entries = REAL[name](session_file(name))
    log.session_id = log.entries[0].session_id
    return log


def figures(log: Log, provider: Summariser, entry: CompactionEntry) -> dict[str, Any]:
    """What one compaction did, as small numbers."""
    data = CompactionData.from_entry(entry)
    assert data is not None
    place = {known.id: number for number, known in enumerate(log.entries, 1)}
    return {
        "entries": len(log.entries) - 1,
        "through": place[data.through_entry_id or ""],
        "kept": len(data.keep_entry_ids or []),
        "tokens": (data.estimated_tokens_before, data.estimated_tokens_after),
        "asked": [estimate_text_tokens(text) for text in provider.texts],
        "files": (len(data.read_files or []), len(data.modified_files or [])),
    }


EXPECTED: dict[str, dict[str, Any]] = {
    "pi-large-session.jsonl": {
        "entries": 915,
        "through": 813,
        "kept": 102,
        "tokens": (128_388, 13_558),
        "asked": [89_023],
        "files": (5, 22),
    },
    "claude-code-4d5611e5.jsonl": {
        "entries": 303,
        "through": 252,
        "kept": 51,
        "tokens": (45_530, 12_189),
        "asked": [20_617],
        "files": (2, 5),
    },
    "claude-code-ae4a77f8.jsonl": {
        "entries": 485,
        "through": 441,
        "kept": 44,
        "tokens": (41_658, 14_970),
        "asked": [5_584, 17_820],
        "files": (2, 7),
    },
    "sweagent-marshmallow-1867-fc.traj": {
        "entries": 28,
        "through": 6,
        "kept": 22,
        "tokens": (7_510, 5_070),
        "asked": [677, 1_899],
        "files": (0, 0),
    },
}
"""Figures as they came, read through once; a prompt that changes moves `asked`."""


@pytest.mark.parametrize("name", REAL)
async def test_the_figures_of_one_compaction_are_as_they_were(name: str) -> None:
    log = log_of(name)
    provider = Summariser("## Goal\nScripted.")
    compactor = strategy(provider, keep_recent_tokens=20_000 if "swe" not in name else 5_000)
    entry = log.compacted(await compactor.compact(log.context()))
    assert figures(log, provider, entry) == EXPECTED[name]


@pytest.mark.parametrize("name", REAL)
async def test_the_summary_request_holds_what_leaves_and_nothing_that_stays(name: str) -> None:
    log = log_of(name)
    provider = Summariser()
    await strategy(provider, keep_recent_tokens=5_000).compact(log.context())
    plan = prepare(log.entries, keep_recent_tokens=5_000)
    assert plan is not None
    asked = "\n".join(provider.texts)
    flat = " ".join(asked.split())
    for entry in [*plan.history, *plan.turn_prefix]:
        if isinstance(entry, MessageEntry) and entry.message.role in {"user", "assistant"}:
            for line in entry.message.text.splitlines()[:20]:
                assert " ".join(line.split()) in flat
    calls = sum(
        isinstance(block, ToolCallBlock)
        for entry in [*plan.history, *plan.turn_prefix]
        if isinstance(entry, MessageEntry)
        for block in entry.message.content
    )
    assert asked.count("\n[tool call ") + asked.count(">\n[tool call ") >= calls > 0
    if plan.previous_summary is not None:
        assert plan.previous_summary in asked


ADAPTERS = [
    name
    for name in (
        "AnthropicProvider", "GoogleProvider", "OpenAIChatProvider", "OpenAIResponsesProvider",
    )
    if name in core_providers.__all__
]  # fmt: skip


@pytest.mark.parametrize("name", REAL)
async def test_every_adapter_takes_the_context_after_each_of_many_compactions(name: str) -> None:
    source = [entry for entry in log_of(name).entries if not isinstance(entry, CompactionEntry)]
    adapters = [getattr(core_providers, adapter)(credential="key") for adapter in ADAPTERS]
    log = Log(source[0].session_id)
    provider = Summariser("## Goal\nScripted.")
    compactor = strategy(provider, keep_recent_tokens=2_000)
    compactions = 0
    step = len(source) // 8
    for number, entry in enumerate(source, 1):
        head = {key: value for key, value in log.head().items() if key != "id"}
        log.add(type(entry)(**{**fields_of(entry), **head}))
        if number % step and number != len(source):
            continue
        before = sent_tokens(log.entries)
        result = await compactor.compact(log.context())
        if result is None:
            continue
        log.compacted(result)
        compactions += 1
        assert sent_tokens(log.entries) < before
        assert sent_tokens(log.entries) < 8_000
        request = next_request(log.entries)
        assert_pairs_are_whole(request)
        for adapter in adapters:
            adapter.prepare(request)
    assert compactions >= 2


def fields_of(entry: Any) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__struct_fields__}


def next_request(entries: list[SessionEntry]) -> ProviderRequest:
    """What the next turn sends."""
    context = rebuild_session_context(entries)
    assert context.warnings == []
    messages, _ = repair_pairs(context.messages)
    built = DefaultPromptBuilder().build(
        PromptInput(
            session_id="s",
            run_id="r",
            system=["Be brief."],
            context=[],
            summaries=context.summaries,
            messages=messages,
        )
    )
    return ProviderRequest(
        model=ModelConfig(provider="vendor", model="model", parameters={"maxTokens": 1_000}),
        system=built.system,
        messages=[*built.messages, say("user", "Go on.")],
    )


def assert_pairs_are_whole(request: ProviderRequest) -> None:
    waiting: list[str] = []
    for message in request.messages:
        assert message.content
        results = [
            block.tool_call_id for block in message.content if isinstance(block, ToolResultBlock)
        ]
        if message.role == "tool":
            assert results == waiting[:1]
            waiting = waiting[1:]
            continue
        assert not waiting
        assert not results
        waiting = [block.id for block in message.content if isinstance(block, ToolCallBlock)]
    assert not waiting
