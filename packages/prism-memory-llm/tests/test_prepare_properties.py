"""What holds for every branch, after any number of compactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, strategies as st

from prism.core import CompactionData, MessageEntry, SessionEntry, ToolCallBlock, ToolResultBlock
from prism.core.compaction import (
    estimate_text_tokens,
    rebuild_session_context,
    repair_pairs,
)
from prism.memory.llm import Preparation, find_cut_point, prepare
from prism.memory.llm._file_ops import without_file_blocks

from .branches import (
    KINDS,
    Log,
    Summariser,
    branches,
    grow,
    sent_ids,
    sent_tokens,
    strategy,
)

BUDGETS = st.integers(1, 2_000)


def pairs(entries: Sequence[SessionEntry]) -> list[tuple[str, str]]:
    """Entries of calls and of the results that answer them."""
    calls: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    for entry in entries:
        if isinstance(entry, MessageEntry):
            for block in entry.message.content:
                if isinstance(block, ToolCallBlock):
                    calls[block.id] = entry.id
                elif isinstance(block, ToolResultBlock) and block.tool_call_id in calls:
                    found.append((calls[block.tool_call_id], entry.id))
    return found


def covered_ids(plan: Preparation) -> list[str]:
    return [entry.id for entry in [*plan.history, *plan.turn_prefix] if entry.id]


def check_plan(log: Log, plan: Preparation, protected: Sequence[str] = ()) -> None:
    sent = sent_ids(log.entries)
    labels = {entry.id for entry in log.entries if type(entry).__name__ == "LabelEntry"}
    gone = [key for key in covered_ids(plan) if key not in labels]
    stay = {entry.id for entry in [*plan.kept, *plan.later]}
    # Everything that is sent is covered or kept, and nothing is both.
    assert sorted([*gone, *stay]) == sorted(sent)
    assert gone
    order = {key: place for place, key in enumerate(sent)}
    assert gone == sorted(gone, key=order.__getitem__)
    assert [entry.id for entry in plan.kept] == [
        key for key in sent if key in stay and key in {entry.id for entry in plan.kept}
    ]
    # No call is parted from its result.
    for asked, answered in pairs(log.entries):
        if asked in order and answered in order:
            assert (asked in stay) == (answered in stay)
    assert {key for key in protected if key in order} <= stay
    assert plan.tokens_before == sent_tokens(log.entries)
    data = plan.data(strategy="s", trigger="manual", summary="short")
    assert data.keep_entry_ids == [entry.id for entry in plan.kept]
    assert data.first_kept_entry_id == (plan.kept[0].id if plan.kept else None)


@given(log=branches(), budget=BUDGETS, data=st.data())
def test_a_plan_covers_or_keeps_everything_and_parts_no_pair(
    log: Log, budget: int, data: st.DataObject
) -> None:
    protected: list[str] = []
    if data.draw(st.booleans()):
        messages = [entry.id for entry in log.entries if isinstance(entry, MessageEntry)]
        protected = data.draw(st.lists(st.sampled_from(messages), max_size=2))
    options: dict[str, Any] = {"keep_recent_tokens": budget, "protected_entry_ids": protected}
    if data.draw(st.booleans()):
        options["keep_recent_entries"] = data.draw(st.integers(1, 8))
    options["must_shrink"] = data.draw(st.booleans())
    plan = prepare(log.entries, **options)
    if plan is None:
        return
    check_plan(log, plan, protected)
    log.entries.append(compaction_entry(log, plan))
    assert sent_tokens(log.entries) == plan.tokens_kept + estimate_text_tokens("short")
    assert set(sent_ids(log.entries)) == {entry.id for entry in [*plan.kept, *plan.later]}


def compaction_entry(log: Log, plan: Preparation) -> SessionEntry:
    data = plan.data(strategy="s", trigger="manual", summary="short")
    probe = Log()
    probe.entries = list(log.entries)
    probe.compaction(
        "short", throughEntryId=data.through_entry_id, keepEntryIds=data.keep_entry_ids
    )
    return probe.entries[-1]


@given(log=branches(), budget=BUDGETS)
def test_a_cut_point_is_where_the_plan_cuts(log: Log, budget: int) -> None:
    plan = prepare(log.entries, keep_recent_tokens=budget)
    cut = find_cut_point(log.entries, keep_recent_tokens=budget)
    assert cut == (None if plan is None else plan.cut)
    if plan is None or cut is None:
        return
    kept = {entry.id: entry for entry in plan.kept}
    if cut.first_kept_entry_id is not None:
        assert kept[cut.first_kept_entry_id].message.role != "tool"
    covered = {entry.id for entry in plan.history} | {entry.id for entry in plan.turn_prefix}
    if cut.turn_start_entry_id is not None:
        assert cut.turn_start_entry_id in covered
        assert plan.is_split_turn


@given(
    first=branches(max_size=12),
    later=st.lists(
        st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1_500)), max_size=8), max_size=6
    ),
    budget=st.integers(50, 1_000),
)
async def test_nothing_is_lost_over_any_number_of_compactions(
    first: Log, later: list[list[tuple[str, int]]], budget: int
) -> None:
    log = first
    provider = Summariser(lambda text: f"summary-{len(provider.texts)}")
    compactor = strategy(provider, keep_recent_tokens=budget)
    shown: set[str] = set()  # entries that a summary request held, or a plan covered
    read: list[str] = []
    modified: list[str] = []
    for steps in [[], *later]:
        for kind, size in steps:
            grow(log, kind, size)
        plan = prepare(log.entries, keep_recent_tokens=budget)
        before, asked = sent_tokens(log.entries), len(provider.texts)
        result = await compactor.compact(log.context())
        requests = provider.texts[asked:]
        if result is None:
            continue
        assert plan is not None
        entry = log.compacted(result)
        assert 1 <= len(requests) <= 2
        if plan.previous_summary is not None:
            assert without_file_blocks(plan.previous_summary) in requests[0]
        shown.update(covered_ids(plan))
        assert result.tokens_before == before
        assert result.tokens_after == sent_tokens(log.entries)
        assert sent_tokens(log.entries) < before
        everything = {
            e.id for e in log.entries if type(e).__name__ in {"MessageEntry", "SummaryEntry"}
        }
        assert everything <= shown | set(sent_ids(log.entries))
        data = CompactionData.from_entry(entry)
        assert data is not None
        # File lists only grow, and keep their order.
        assert [p for p in modified if p in (data.modified_files or [])] == modified
        assert (data.modified_files or [])[: len(modified)] == modified
        stay = [p for p in read if p not in (data.modified_files or [])]
        assert (data.read_files or [])[: len(stay)] == stay
        read, modified = data.read_files or [], data.modified_files or []
        context = rebuild_session_context(log.entries)
        assert context.warnings == []
        repair_pairs(context.messages)
