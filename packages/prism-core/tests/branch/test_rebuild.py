"""What of a branch the model sees."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from prism.core._support.branch import (
    SessionContext,
    branch_entries,
    count_context_entries,
    current_leaf,
    is_leaf_marker,
    latest_compaction,
    list_branches,
    rebuild_session_context,
)
from prism.core._support.pairs import PairRepairer, repair_pairs
from prism.core._wire import (
    CompactionEntry,
    MessageEntry,
    SessionEntry,
    SummaryEntry,
    ToolCallBlock,
    ToolResultBlock,
)

from ..histories import (
    WHEN,
    Log,
    answer,
    assert_pairs_are_whole,
    call,
    say,
    trees,
)


def texts(context: SessionContext) -> list[str]:
    return [message.text for message in context.messages]


def codes(context: SessionContext) -> list[str]:
    return [problem.code for problem in context.warnings]


def test_without_a_compaction_all_messages_and_summaries_of_the_path_are_seen():
    log = Log()
    log.turn(1)
    log.summary("meanwhile")
    log.custom(text="not for the model")
    log.event()
    log.opaque()
    log.turn(2)
    context = rebuild_session_context(log.entries)
    assert texts(context) == ["question-1", "answer-1", "question-2", "answer-2"]
    assert context.summaries == ["meanwhile"]
    assert context.entries == log.entries
    assert context.warnings == []


def test_another_branch_is_not_seen():
    log = Log()
    first, _ = log.turn(1)
    log.turn(2)
    log.checkout(first)
    log.assistant("other answer")
    assert texts(rebuild_session_context(log.entries)) == ["question-1", "other answer"]


def test_a_missing_parent_ends_the_path_there_with_a_warning():
    lost = MessageEntry(
        id="e1", session_id="s1", timestamp=WHEN, parent_id="gone", message=say("user", "still")
    )
    context = rebuild_session_context([lost])
    assert texts(context) == ["still"]
    (problem,) = context.warnings
    assert (problem.code, problem.entry_id) == ("missing_parent", "e1")
    assert "'gone'" in problem.message


def test_a_cycle_ends_the_path_there_with_a_warning():
    around = [
        MessageEntry(
            id=key, session_id="s1", timestamp=WHEN, parent_id=parent, message=say("user", key)
        )
        for key, parent in (("a", "c"), ("b", "a"), ("c", "b"))
    ]
    context = rebuild_session_context(around)
    assert texts(context) == ["a", "b", "c"]
    assert codes(context) == ["cycle"]


def test_the_kept_messages_are_those_after_through_together_with_the_kept_ids_in_path_order():
    log = Log()
    one = log.turn(1)
    two = log.turn(2)
    three = log.turn(3)
    log.turn(4)
    log.compaction("sum", through=three[0], keep=[two[0], one[1], two[0]])
    log.turn(5)
    context = rebuild_session_context(log.entries)
    assert texts(context) == [
        "answer-1", "question-2", "answer-3", "question-4", "answer-4", "question-5", "answer-5",
    ]  # fmt: skip
    assert context.summaries == ["sum"]
    assert context.entries == log.entries


def test_kept_ids_that_are_not_on_the_path_or_no_messages_are_ignored():
    log = Log()
    one = log.turn(1)
    log.checkout(one[0])
    summary = log.summary("covered")
    two = log.turn(2)
    log.compaction("sum", through=two[1], keep=[one[1], "nowhere", summary, two[1]])
    context = rebuild_session_context(log.entries)
    assert texts(context) == ["answer-2"]
    assert context.summaries == ["sum"]
    assert context.warnings == []


def test_a_compaction_without_through_keeps_everything():
    log = Log()
    log.turn(1)
    log.summary("own")
    log.compaction("added")
    log.turn(2)
    context = rebuild_session_context(log.entries)
    assert texts(context) == ["question-1", "answer-1", "question-2", "answer-2"]
    assert context.summaries == ["added", "own"]


def test_summaries_are_the_compactions_own_and_those_after_through():
    log = Log()
    log.summary("covered")
    one = log.turn(1)
    log.summary("between")
    log.compaction("sum", through=one[1])
    log.summary("later")
    log.summary(" ")
    assert rebuild_session_context(log.entries).summaries == ["sum", "between", "later"]


def test_the_latest_compaction_on_the_path_counts_and_older_ones_are_invisible():
    log = Log()
    one = log.turn(1)
    log.compaction("first", through=one[1])
    two = log.turn(2)
    log.compaction("second", through=one[1], keep=[one[1]])
    log.turn(3)
    context = rebuild_session_context(log.entries)
    assert context.summaries == ["second"]
    assert texts(context) == ["answer-1", "question-2", "answer-2", "question-3", "answer-3"]
    assert rebuild_session_context(log.entries, two[1]).summaries == ["first"]


def test_the_latest_compaction_is_the_one_on_this_branch_never_by_time():
    log = Log()
    one = log.turn(1)
    log.compaction("mine", through=one[0])
    mine = log.user("mine")
    log.checkout(one[1])
    log.compaction("newer, elsewhere", through=one[1])
    assert rebuild_session_context(log.entries, mine).summaries == ["mine"]


@pytest.mark.parametrize(
    ("summary", "data", "why"),
    [
        ("", {}, "its summary is empty"),
        (" \n", {"throughEntryId": "e1"}, "its summary is empty"),
        ("fine", {"throughEntryId": "nowhere"}, "'nowhere' is not before it"),
        ("fine", {"throughEntryId": "e4"}, "'e4' is not before it"),
        ("fine", {"throughEntryId": "e3"}, "'e3' is not before it"),
        ("fine", {"throughEntryId": 4}, "its throughEntryId is not an id"),
        ("fine", {"throughEntryId": "e1", "keepEntryIds": "e1"}, "not a list of ids"),
        ("fine", {"throughEntryId": "e1", "keepEntryIds": [1]}, "not a list of ids"),
    ],
)
def test_an_invalid_compaction_is_skipped_with_a_warning(
    summary: str, data: dict[str, Any], why: str
):
    log = Log()
    log.turn(1)
    bad = CompactionEntry(
        id="e3", session_id="s1", timestamp=WHEN, parent_id="e2", summary=summary, data=data
    )
    log.add(bad)
    log.user("e4")
    context = rebuild_session_context(log.entries)
    assert texts(context) == ["question-1", "answer-1", "e4"]
    assert context.summaries == []
    (problem,) = context.warnings
    assert (problem.code, problem.entry_id) == ("invalid_compaction", "e3")
    assert why in problem.message


def test_behind_an_invalid_compaction_the_latest_valid_one_counts():
    log = Log()
    one = log.turn(1)
    log.compaction("good", through=one[1])
    log.compaction("bad", through="nowhere")
    context = rebuild_session_context(log.entries)
    assert (context.summaries, context.messages) == (["good"], [])
    assert codes(context) == ["invalid_compaction"]


def test_fields_that_a_strategy_adds_do_not_make_its_compaction_invalid():
    log = Log()
    one = log.turn(1)
    log.compaction("sum", through=one[1], memory="in its own form", readFiles=7)
    assert rebuild_session_context(log.entries).summaries == ["sum"]


def test_a_kept_result_keeps_its_call_and_the_calls_other_results():
    log = Log()
    log.user("go")
    asked = log.assistant(call("c1"), call("c2"))
    log.result("c1", "one")
    second = log.result("c2", "two")
    through = log.assistant("done")
    for kept in (asked, second):
        log.checkout(through)
        log.compaction("sum", through=through, keep=[kept])
        context = rebuild_session_context(log.entries)
        assert [message.role for message in context.messages] == ["assistant", "tool", "tool"]
        assert_pairs_are_whole(context.messages)


def test_a_result_after_through_keeps_its_call_and_the_results_before():
    log = Log()
    log.user("go")
    log.assistant(call("c1"), call("c2"))
    first = log.result("c1")
    log.result("c2")
    log.compaction("sum", through=first)
    context = rebuild_session_context(log.entries)
    assert [message.role for message in context.messages] == ["assistant", "tool", "tool"]


def test_a_message_with_results_of_two_batches_keeps_both():
    log = Log()
    log.assistant(call("c1"))
    log.assistant(call("c2"))
    both = log.message(say("tool", answer("c1").content[0], answer("c2").content[0]))
    through = log.assistant("done")
    log.compaction("sum", through=through, keep=[both])
    assert len(rebuild_session_context(log.entries).messages) == 3


def test_a_result_belongs_to_the_nearest_call_of_its_id_before_it():
    log = Log()
    for number in (1, 2):
        log.assistant(f"try {number}", call("same"))
        through = log.result("same", number)
    log.compaction("sum", through=through, keep=[through])
    context = rebuild_session_context(log.entries)
    assert [message.text for message in context.messages if message.role == "assistant"] == [
        "try 2"
    ]


def test_model_and_thinking_level_come_from_the_whole_path():
    log = Log()
    log.model("m1", thinking="high")
    log.turn(1)
    log.model("m2")
    last = log.user("go")
    log.compaction("sum", through=last)
    context = rebuild_session_context(log.entries)
    assert context.model is not None
    assert (context.model.model, context.thinking_level) == ("m2", "high")
    log.model(thinking="none")
    context = rebuild_session_context(log.entries)
    assert context.model is not None
    assert (context.model.model, context.thinking_level) == ("m2", "off")


def test_the_model_of_another_branch_does_not_count():
    log = Log()
    log.model("m1")
    here = log.user("a")
    log.model("m2")
    context = rebuild_session_context(log.entries, here)
    assert context.model is not None
    assert context.model.model == "m1"


def test_the_threshold_counts_the_latest_compaction_what_it_kept_and_what_follows():
    log = Log()
    one = log.turn(1)
    covered = log.summary("covered")
    two = log.turn(2)
    log.custom()
    log.label("x", one[0])
    log.metadata(type="note")
    log.event()

    def count() -> int:
        path = branch_entries(log.entries)
        return count_context_entries(path, latest_compaction(path))

    assert count() == 5
    log.compaction("sum", through=two[0], keep=[one[0], covered, two[0]])
    assert count() == 4  # the compaction, the two that it names, the answer after through
    log.model("m1")
    log.summary("s")
    assert count() == 6


# Properties


@given(trees())
def test_every_message_on_the_path_is_kept_or_covered(log: Log):
    for leaf in (None, *(branch.leaf_id for branch in list_branches(log.entries))):
        context = rebuild_session_context(log.entries, leaf)
        path = context.entries
        compacted = latest_compaction(path)
        through = -1 if compacted is None else compacted.through
        kept = [
            entry.message
            for place, entry in enumerate(path)
            if isinstance(entry, MessageEntry)
            and (place > through or (compacted is not None and place in compacted.keep))
        ]
        assert all(sent is known for sent, known in zip(context.messages, kept, strict=True))
        covered = [entry for entry in path[: through + 1] if isinstance(entry, MessageEntry)]
        if covered:
            assert compacted is not None
            assert context.summaries[0] == compacted.entry.summary
            assert compacted.entry.summary.strip()
        later = [
            entry.summary
            for entry in path[through + 1 :]
            if isinstance(entry, SummaryEntry) and entry.summary.strip()
        ]
        assert context.summaries[compacted is not None :] == later


@given(trees())
def test_a_rebuild_leaves_no_pair_open_that_the_path_closes(log: Log):
    context = rebuild_session_context(log.entries)
    raw = {id(message) for message in context.messages}
    call_of: dict[str, MessageEntry] = {}
    for entry in context.entries:
        if not isinstance(entry, MessageEntry):
            continue
        for block in entry.message.content:
            if isinstance(block, ToolCallBlock):
                call_of[block.id] = entry
            elif isinstance(block, ToolResultBlock) and block.tool_call_id in call_of:
                asked = call_of[block.tool_call_id]
                assert (id(asked.message) in raw) == (id(entry.message) in raw)


@given(trees())
def test_what_is_rebuilt_and_repaired_has_whole_pairs(log: Log):
    sendable, _ = repair_pairs(rebuild_session_context(log.entries).messages)
    assert_pairs_are_whole(sendable)


@given(trees())
def test_a_rebuild_is_a_function_of_its_arguments(log: Log):
    before = list(log.entries)
    first = rebuild_session_context(log.entries)
    assert rebuild_session_context(iter(log.entries)) == first
    assert rebuild_session_context(log.entries, current_leaf(log.entries)) == first
    assert log.entries == before
    # What stands on other branches does not matter.
    on_path = {entry.id for entry in first.entries}
    here = [entry for entry in before if entry.id in on_path or is_leaf_marker(entry)]
    if first.leaf_id is not None:
        assert rebuild_session_context(here, first.leaf_id) == first


@settings(max_examples=10)
@given(trees(max_size=15), st.randoms(use_true_random=False))
def test_a_hundred_random_compactions_in_a_row_cover_or_keep_every_message(
    log: Log, choose: random.Random
):
    log.user("start")
    for number in range(100):
        log.turn(number)
        path = branch_entries(log.entries)
        messages = [entry.id for entry in path if isinstance(entry, MessageEntry)]
        through = choose.choice(path[-12:]).id
        log.compaction(f"sum-{number}", through=through, keep=choose.sample(messages, 2))
        context = rebuild_session_context(log.entries)
        assert context.summaries[0] == f"sum-{number}"
        place = [entry.id for entry in path].index(through)
        after = [entry.message for entry in path[place + 1 :] if isinstance(entry, MessageEntry)]
        assert [message for message in context.messages if message in after] == after
        assert_pairs_are_whole(repair_pairs(context.messages)[0])


# Scale


def lines_run(work: Callable[[], object]) -> int:
    """Lines of Python that *work* executes: a clock that no other process disturbs."""
    count = 0

    def trace(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def long_history(turns: int) -> list[SessionEntry]:
    log = Log()
    for number in range(turns):
        log.user(f"question {number}")
        log.assistant(call(f"c{number}"), call("same"))
        log.result(f"c{number}")
        if number % 7:
            log.result("same", code="interrupted" if number % 3 else None)
        log.compaction("bad", through="nowhere")
        if number % 50 == 49:
            log.compaction("sum", through=log.leaf, keep=["e1", f"e{len(log.entries) - 3}"])
        if number % 20 == 19:
            leaf = log.leaf
            log.checkout("e1")
            log.user("aside")
            log.checkout(leaf)
    return log.entries


@pytest.mark.parametrize("work", [rebuild_session_context, branch_entries, list_branches])
def test_ten_times_the_entries_cost_ten_times_the_work(work: Callable[[Any], object]):
    small = lines_run(lambda: work(long_history_small))
    large = lines_run(lambda: work(long_history_large))
    assert large < 11 * small


long_history_small = long_history(100)
long_history_large = long_history(1_000)


def test_ten_times_the_messages_cost_ten_times_the_repair():
    def repair(entries: list[SessionEntry]) -> int:
        messages = [entry.message for entry in entries if isinstance(entry, MessageEntry)]
        return lines_run(lambda: repair_pairs(messages))

    assert repair(long_history_large) < 11 * repair(long_history_small)


def test_a_hundred_thousand_entries_are_rebuilt_and_repaired():
    log = Log()
    shared = say("user", "again"), say("assistant", "sure", call("same")), answer("same")
    entries: list[SessionEntry] = [
        MessageEntry(
            id=f"e{number}",
            session_id="s1",
            timestamp=WHEN,
            parent_id=f"e{number - 1}" if number else None,
            message=shared[number % 3],
        )
        for number in range(100_000)
    ]
    log.entries = entries
    assert len(rebuild_session_context(entries).messages) == 100_000
    log.compaction("sum", through="e50000", keep=["e3", "e49000"])
    context = rebuild_session_context(entries)
    assert len(context.messages) == 49_999 + 3
    repairer = PairRepairer()
    for message in context.messages:
        repairer.push(message)
    assert_pairs_are_whole(repairer.snapshot())
    assert len(list_branches(entries)) == 1
