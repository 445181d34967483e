"""Promise 4 over random histories: nothing that was said leaves without a trace."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given, settings, strategies as st

from prism.core._support.branch import branch_entries, current_leaf
from prism.core._support.pairs import repair_pairs
from prism.core._wire import (
    CompactionEntry,
    MessageEntry,
    SummaryEntry,
    ToolCallBlock,
)
from prism.core.compaction import (
    CompactionContext,
    CompactionPlan,
    DefaultCompactionStrategy,
    plan_compaction,
    rebuild_session_context,
    validate_compaction,
)

from ..histories import Log, assert_pairs_are_whole, call, trees

STEPS = ["turn", "tools", "summary", "model", "compact"]


async def compact(log: Log, strategy: DefaultCompactionStrategy) -> bool:
    context = CompactionContext(
        session_id="s1", entries=rebuild_session_context(log.entries).entries
    )
    result = await strategy.compact(context)
    if result is None:
        return False
    entry = validate_compaction(context, result)
    assert entry.summary.strip()
    assert len(entry.summary) <= strategy.max_summary_chars
    assert result.tokens_before is not None
    assert result.tokens_after is not None
    log.add(entry)
    return True


def visible(log: Log) -> tuple[str, set[str]]:
    """What is summarised, and what users and the model say raw."""
    context = rebuild_session_context(log.entries)
    raw = {message.text for message in context.messages if message.role != "tool"}
    return "\n".join(context.summaries), raw


@given(trees(max_size=30), st.integers(1, 6))
async def test_every_word_is_sent_raw_or_summarised(log: Log, keep: int):
    strategy = DefaultCompactionStrategy(keep_recent_entries=keep, max_summary_chars=1_000_000)
    before, raw_before = visible(log)
    await compact(log, strategy)
    after, raw_after = visible(log)
    lost = {text.strip() for text in raw_before - raw_after if text.strip()}
    for text in lost:
        assert f": {text}" in after
    for line in before.splitlines():
        assert line in after


@settings(max_examples=25)
@given(st.lists(st.sampled_from(STEPS), max_size=60), st.integers(1, 5))
async def test_after_any_appends_and_compactions_all_is_kept_or_covered_and_pairs_are_whole(
    steps: list[str], keep: int
):
    strategy = DefaultCompactionStrategy(keep_recent_entries=keep, max_summary_chars=1_000_000)
    log = Log()
    for number, step in enumerate([*steps, "compact"]):
        if step == "turn":
            log.user(f"word{number}.")
            log.assistant(f"word{number}!")
        elif step == "tools":
            log.assistant(
                f"word{number}.", call(f"a{number}", f"tool{number}."), call(f"b{number}")
            )
            log.result(f"b{number}")
            log.result(f"a{number}")
        elif step == "summary":
            log.summary(f"sum{number}.")
        elif step == "model":
            log.model(f"model{number}.")
        else:
            await compact(log, strategy)
        context = rebuild_session_context(log.entries)
        assert context.warnings == []
        summaries = "\n".join(context.summaries)
        raw = {entry.text for entry in context.messages}
        raw |= {block.name for m in context.messages for block in m.tool_calls}
        for entry in log.entries:
            if isinstance(entry, MessageEntry):
                names = [b.name for b in entry.message.content if isinstance(b, ToolCallBlock)]
                for text in [entry.message.text, *names]:
                    assert text in raw or text in summaries
            elif isinstance(entry, SummaryEntry):
                assert entry.summary in summaries
        sendable, _ = repair_pairs(context.messages)
        assert_pairs_are_whole(sendable)
        assert all(message.role != "tool" for message in context.messages[:1])


@settings(max_examples=5)
@given(st.integers(1, 12), st.integers(60, 800))
async def test_a_hundred_compactions_in_a_row_keep_or_cover_every_message(keep: int, limit: int):
    strategy = DefaultCompactionStrategy(keep_recent_entries=keep, max_summary_chars=limit)
    log = Log()
    made = 0
    for number in range(100):
        log.turn(number)
        if number % 3 == 0:
            log.assistant(call(f"c{number}"))
            log.result(f"c{number}")
        made += await compact(log, strategy)
        context = rebuild_session_context(log.entries)
        sent = [m for m in log.entries if isinstance(m, MessageEntry)][-keep:]
        assert [entry.message for entry in sent] == context.messages[-len(sent) :]
        assert len(context.messages) <= keep + 1
        summary = "\n".join(context.summaries)
        for entry in log.entries:
            if isinstance(entry, MessageEntry) and entry.message.text:
                raw = entry.message in context.messages
                assert raw or entry.message.text in summary or "[older lines left out]" in summary
        assert_pairs_are_whole(repair_pairs(context.messages)[0])
    assert made > 90


@given(trees(max_size=30), st.integers(1, 6))
async def test_a_compaction_leaves_nothing_for_the_next(log: Log, keep: int):
    strategy = DefaultCompactionStrategy(keep_recent_entries=keep)
    if await compact(log, strategy):
        context = rebuild_session_context(log.entries)
        assert context.warnings == []
        assert not await compact(log, strategy)


@given(trees(max_size=30), st.integers(1, 6))
async def test_the_same_input_gives_the_same_summary(log: Log, keep: int):
    entries = rebuild_session_context(log.entries).entries
    strategy = DefaultCompactionStrategy(
        keep_recent_entries=keep, clock=lambda: 1.0, new_id=lambda prefix: prefix
    )
    context = CompactionContext(session_id="s1", entries=entries)
    assert await strategy.compact(context) == await strategy.compact(context)


@given(trees(max_size=40), st.integers(1, 6), st.data())
def test_a_plan_keeps_the_newest_and_the_protected_and_moves_the_boundary_on(
    log: Log, keep: int, data: st.DataObject
):
    context = rebuild_session_context(log.entries)
    path = context.entries
    ids = [entry.id for entry in path]
    protected = data.draw(st.lists(st.sampled_from(ids), max_size=2)) if ids else []
    plan = plan_compaction(path, keep_recent_entries=keep, protected_entry_ids=protected)
    if plan is None:
        return
    assert isinstance(plan, CompactionPlan)
    kept = [entry.message for entry in plan.kept]
    leaving = [entry.message for entry in plan.leaving if isinstance(entry, MessageEntry)]
    assert len(kept) + len(leaving) == len(context.messages)
    assert kept[-keep:] == context.messages[-keep:]
    assert not any(isinstance(entry, CompactionEntry) for entry in plan.leaving)
    in_context = {id(message) for message in context.messages}
    for entry in path:
        if entry.id in protected and isinstance(entry, MessageEntry):
            assert id(entry.message) not in in_context or entry in plan.kept
    assert plan.through_entry_id in ids
    compacted = CompactionEntry(
        id="new",
        session_id="s1",
        timestamp="",
        parent_id=ids[-1],
        summary="new",
        data={
            "throughEntryId": plan.through_entry_id,
            "keepEntryIds": [entry.id for entry in plan.kept],
        },
    )
    after = rebuild_session_context([*log.entries, compacted])
    assert after.messages == kept
    assert after.summaries == ["new", *(entry.summary for entry in plan.later)]


@given(trees(max_size=25), st.sampled_from(["w", "word", "ord1", ": ", "user", "tool", "\n"]))
async def test_no_summary_holds_a_secret(log: Log, secret: str):
    strategy = DefaultCompactionStrategy(
        keep_recent_entries=1, max_summary_chars=60, secrets=[secret]
    )
    context = CompactionContext(
        session_id="s1", entries=rebuild_session_context(log.entries).entries
    )
    result = await strategy.compact(context)
    if result is not None:
        assert secret not in result.summary


async def test_a_compaction_can_be_cancelled():
    log = Log()
    for number in range(20):
        log.turn(number)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await compact(log, DefaultCompactionStrategy())
        pytest.fail("the compaction was not a checkpoint")
    assert not any(isinstance(entry, CompactionEntry) for entry in log.entries)


async def test_ten_thousand_entries_are_compacted():
    log = Log()
    for number in range(5_000):
        log.turn(number)
    assert await compact(log, DefaultCompactionStrategy())
    assert current_leaf(log.entries) == log.entries[-1].id
    assert len(branch_entries(log.entries)) == 10_001
