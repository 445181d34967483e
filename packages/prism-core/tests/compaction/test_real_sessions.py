"""Compaction of sessions that real agents left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from prism.core._support.branch import count_context_entries
from prism.core._wire import (
    CompactionEntry,
    Message,
    MessageEntry,
    OpaqueEntry,
    SessionEntry,
    TextBlock,
    decode_entry,
)
from prism.core.compaction import (
    CompactionContext,
    DefaultCompactionStrategy,
    estimate_message_tokens,
    estimate_text_tokens,
    latest_compaction,
    rebuild_session_context,
    repair_pairs,
    validate_compaction,
)

from ..converters import (
    as_jsonl,
    convert_claude_code,
    convert_openhands,
    convert_pi,
    convert_swe_agent,
    convert_tau_bench,
    session_file,
)
from ..histories import assert_pairs_are_whole

Convert = Callable[[Path], list[SessionEntry]]

LARGE: list[tuple[str, Convert]] = [
    ("pi-large-session.jsonl", convert_pi),
    ("claude-code-4d5611e5.jsonl", convert_claude_code),
    ("claude-code-ae4a77f8.jsonl", convert_claude_code),
]
OTHERS: list[tuple[str, Convert]] = [
    ("claude-code-4d5611e5-subagent-a2898e3.jsonl", convert_claude_code),
    ("claude-code-short.jsonl", convert_claude_code),
    ("claude-code-tool_heavy.jsonl", convert_claude_code),
    ("openhands-goal-events.jsonl", convert_openhands),
    ("sweagent-ctf-i_got_id.traj", convert_swe_agent),
    ("sweagent-marshmallow-1867-fc.traj", convert_swe_agent),
]


def provider_messages(entries: list[SessionEntry]) -> list[Message]:
    """What a provider is sent: the summaries as a user message, then the repaired history."""
    context = rebuild_session_context(entries)
    assert context.warnings == []
    sendable, _ = repair_pairs(context.messages)
    summaries = [TextBlock(text=summary) for summary in context.summaries]
    before = [Message(role="user", content=[*summaries])] if summaries else []
    return [*before, *sendable]


def assert_acceptable(messages: list[Message]) -> None:
    assert_pairs_are_whole(messages)
    assert messages[0].role in {"user", "system"}
    for message in messages:
        assert message.content
        assert message.role != "assistant" or any(
            not isinstance(block, TextBlock) or block.text.strip() for block in message.content
        )


def tokens(entries: list[SessionEntry]) -> int:
    context = rebuild_session_context(entries)
    return sum(map(estimate_message_tokens, context.messages)) + sum(
        map(estimate_text_tokens, context.summaries)
    )


def raw_tokens(entries: Sequence[SessionEntry]) -> int:
    return sum(
        estimate_message_tokens(entry.message)
        for entry in entries
        if isinstance(entry, MessageEntry)
    )


async def compact(
    entries: list[SessionEntry], strategy: DefaultCompactionStrategy
) -> CompactionEntry | None:
    context = CompactionContext(
        session_id=entries[0].session_id, entries=rebuild_session_context(entries).entries
    )
    result = await strategy.compact(context)
    if result is None:
        return None
    assert result.tokens_before == tokens(entries)
    entry = validate_compaction(context, result)
    assert result.tokens_after == tokens([*entries, entry])
    return entry


@pytest.mark.parametrize(("name", "convert"), [*LARGE, *OTHERS])
def test_an_imported_session_is_sent_with_whole_pairs(name: str, convert: Convert):
    entries = convert(session_file(name))
    assert entries
    assert [decode_entry(line) for line in as_jsonl(entries).splitlines()] == entries
    assert_pairs_are_whole(provider_messages(entries))


@pytest.mark.parametrize(("name", "convert"), LARGE)
async def test_compaction_of_a_large_session_gives_a_context_that_a_provider_accepts(
    name: str, convert: Convert
):
    entries = convert(session_file(name))
    before = tokens(entries)
    entry = await compact(entries, DefaultCompactionStrategy())
    assert entry is not None
    after = [*entries, entry]
    assert_acceptable(provider_messages(after))
    assert len(entry.summary) <= 4_000
    assert tokens(after) < before / 4
    print(  # noqa: T201
        f"\n{name}: {len(entries)} entries with {raw_tokens(entries):,} tokens,"
        f" {before:,} of them in the context"
        f" -> {len(provider_messages(after))} messages, {tokens(after):,} tokens"
    )


@pytest.mark.parametrize(("name", "convert"), LARGE)
async def test_a_large_session_that_is_compacted_as_it_grows_is_acceptable_at_every_point(
    name: str, convert: Convert
):
    source = [
        entry for entry in convert(session_file(name)) if not isinstance(entry, CompactionEntry)
    ]
    strategy = DefaultCompactionStrategy(keep_recent_entries=12, max_summary_chars=8_000)
    entries: list[SessionEntry] = []
    compactions = largest = 0
    for entry in chained(source, entries):
        entries.append(entry)
        if len(entries) % 10:
            continue
        path = rebuild_session_context(entries).entries
        if count_context_entries(path, latest_compaction(path)) <= 60:
            continue
        made = await compact(entries, strategy)
        assert made is not None
        entries.append(made)
        compactions += 1
        largest = max(largest, tokens(entries))
        assert_acceptable(provider_messages(entries))
    assert compactions >= 5
    print(  # noqa: T201
        f"\n{name}: {compactions} compactions on the way, at most {largest:,} tokens after one,"
        f" {raw_tokens(source):,} without any"
    )


def chained(
    source: Sequence[SessionEntry], so_far: Sequence[SessionEntry]
) -> Iterator[SessionEntry]:
    """The entries of *source*, each under what was appended last."""
    for entry in source:
        assert not isinstance(entry, OpaqueEntry)
        parent = so_far[-1].id if so_far else None
        yield msgspec.structs.replace(entry, id=f"grown_{entry.id}", parent_id=parent)


@pytest.mark.parametrize(("name", "convert"), OTHERS)
async def test_compaction_of_other_sessions_gives_an_acceptable_context(
    name: str, convert: Convert
):
    entries = convert(session_file(name))
    entry = await compact(entries, DefaultCompactionStrategy(keep_recent_entries=2))
    if entry is not None:
        assert_acceptable(provider_messages([*entries, entry]))


async def test_each_conversation_of_tau_bench_is_compacted_to_an_acceptable_context():
    conversations = convert_tau_bench(session_file("taubench-gpt4o-airline-000-099.jsonl"))
    assert len(conversations) == 100
    for entries in conversations:
        assert_acceptable(provider_messages(entries))
        entry = await compact(entries, DefaultCompactionStrategy(keep_recent_entries=3))
        assert entry is not None
        assert_acceptable(provider_messages([*entries, entry]))
