from __future__ import annotations

from typing import Any

import pytest

from prism.core import Usage, UsageError
from prism.memory.llm import CutPoint, Preparation, find_cut_point, prepare, serialize_conversation

from .branches import Log, call


def prepared(log: Log, **options: Any) -> Preparation:
    options.setdefault("keep_recent_tokens", 300)
    preparation = prepare(log.entries, **options)
    assert preparation is not None
    return preparation


def ids(entries: list[Any]) -> list[str]:
    return [entry.id for entry in entries]


def test_the_newest_turns_stay_and_the_others_are_summarised() -> None:
    log = Log().turns(6)
    plan = prepared(log, keep_recent_tokens=420)
    assert ids(plan.history) == ["e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"]
    assert ids(plan.kept) == ["e9", "e10", "e11", "e12"]
    assert plan.turn_prefix == []
    assert plan.previous_summary is None
    assert plan.cut == CutPoint(through_entry_id="e8", first_kept_entry_id="e9")


@pytest.mark.parametrize("value", [0, -1, True, 1.5, None, "3", 2**40])
def test_a_budget_that_is_no_limit_is_refused(value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        prepare(Log().turns(2).entries, keep_recent_tokens=value)
    assert caught.value.code == "invalid_limit"
    with pytest.raises(UsageError):
        find_cut_point(Log().turns(2).entries, keep_recent_tokens=value)
    with pytest.raises(UsageError):
        serialize_conversation([], max_tool_result_chars=value)


def test_a_branch_within_the_budget_has_nothing_to_leave() -> None:
    assert prepare(Log().turns(6).entries) is None
    assert prepare([]) is None
    assert find_cut_point(Log().turns(6).entries) is None


def test_a_single_message_never_leaves_before_it_was_answered() -> None:
    log = Log()
    log.user("x" * 100_000)
    assert prepare(log.entries, keep_recent_tokens=10) is None


def test_the_cut_falls_inside_a_turn_that_is_longer_than_the_budget() -> None:
    log = Log().turns(2)
    start = log.user("a long task")
    for number in range(1, 7):
        log.step(number)
    plan = prepared(log)
    assert ids(plan.history) == ["e1", "e2", "e3", "e4"]
    assert ids(plan.turn_prefix) == ["e5", "e6", "e7", "e8", "e9", "e10", "e11"]
    assert ids(plan.kept) == ["e12", "e13", "e14", "e15", "e16", "e17"]
    assert plan.is_split_turn
    assert plan.cut == CutPoint(
        through_entry_id="e11", first_kept_entry_id="e12", turn_start_entry_id=start
    )
    assert find_cut_point(log.entries, keep_recent_tokens=300) == plan.cut


def test_a_cut_near_the_start_of_a_turn_moves_there() -> None:
    log = Log().turns(3)
    log.user("the last question")
    log.step(1, size=1_000)
    log.step(2, size=100)
    # 300 tokens are reached at the first call; the question above it is a few tokens further.
    plan = prepared(log)
    assert ids(plan.kept)[0] == "e7"
    assert not plan.is_split_turn


def test_calls_and_results_of_one_batch_stay_together() -> None:
    log = Log().turns(3)
    log.assistant(call("a"), call("b"))
    log.result("b", "r" * 900)
    log.custom()
    log.result("a", "r" * 900)
    log.assistant("the end")
    plan = prepared(log)
    assert ids(plan.kept) == ["e7", "e8", "e10", "e11"]


def test_a_result_far_above_the_budget_does_not_stay() -> None:
    log = Log()
    log.user("read it all")
    log.assistant(call("a", "read", path="huge.txt"))
    log.result("a", "r" * 400_000)
    plan = prepared(log, keep_recent_tokens=20_000)
    assert ids(plan.history) == ["e1", "e2", "e3"]
    assert plan.kept == []
    assert plan.cut == CutPoint(through_entry_id="e3")


def test_an_unanswered_call_at_the_end_stays_because_its_result_may_come() -> None:
    log = Log().turns(3, size=800)
    log.assistant(call("a"))
    log.custom()
    plan = prepared(log, keep_recent_tokens=1)
    assert ids(plan.kept) == ["e7"]


def test_protected_messages_stay_and_their_turn_is_shown_with_them() -> None:
    log = Log().turns(2)
    request = log.user("the task under way")
    for number in range(1, 6):
        log.step(number)
    plan = prepared(log, protected_entry_ids=[request])
    assert ids(plan.kept) == [request, "e10", "e11", "e12", "e13", "e14", "e15"]
    assert ids(plan.turn_prefix) == ["e6", "e7", "e8", "e9"]
    assert plan.turn_request is not None
    assert plan.turn_request.id == request
    assert plan.cut.through_entry_id == "e9"
    assert plan.cut.first_kept_entry_id == request


def test_a_protected_call_keeps_its_result() -> None:
    log = Log().turns(1)
    asked = log.assistant(call("a"))
    log.result("a")
    log.turns(5)
    plan = prepared(log, protected_entry_ids=[asked])
    assert ids(plan.kept)[:2] == ["e3", "e4"]


def test_the_number_of_messages_can_be_asked_for_instead() -> None:
    log = Log().turns(4)
    log.step(1)
    log.summary("a note")
    log.assistant("the end")
    plan = prepared(log, keep_recent_entries=2)
    assert ids(plan.kept) == ["e9", "e10", "e12"]
    assert ids(plan.later) == ["e11"]
    assert prepare(log.entries, keep_recent_entries=11) is None


def test_a_compaction_that_must_shrink_leaves_half_whatever_the_budget() -> None:
    log = Log().turns(6)
    assert prepare(log.entries, must_shrink=True) is not None
    plan = prepared(log, keep_recent_entries=11, must_shrink=True)
    assert plan.tokens_kept <= plan.tokens_before / 2


def test_the_second_compaction_works_on_what_the_first_one_kept() -> None:
    log = Log().turns(3)
    log.compaction("first", throughEntryId="e2", keepEntryIds=["e3", "e4", "e5", "e6"])
    log.turn(4)
    plan = prepared(log, keep_recent_tokens=200)
    assert plan.previous_summary == "first"
    assert ids(plan.history) == ["e3", "e4", "e5", "e6"]
    assert ids(plan.kept) == ["e8", "e9"]
    assert plan.cut.through_entry_id == "e7"


def test_messages_that_the_first_compaction_kept_by_name_leave_with_the_second() -> None:
    log = Log().turns(4)
    log.compaction("first", throughEntryId="e8", keepEntryIds=["e1", "e2", "e7", "e8"])
    log.turn(5)
    plan = prepared(log, keep_recent_tokens=420)
    assert ids(plan.history) == ["e1", "e2"]
    assert ids(plan.kept) == ["e7", "e8", "e10", "e11"]
    # What was covered stays covered, so the kept ones are named.
    assert plan.cut.through_entry_id == "e9"


def test_labels_that_leave_are_in_the_history_and_other_entries_are_not() -> None:
    log = Log().turns(1)
    log.label("here", "e1")
    log.custom()
    log.model("other")
    log.turns(4)
    assert ids(prepared(log).history) == ["e1", "e2", "e3", "e6", "e7", "e8", "e9"]


def test_a_summary_of_the_host_is_summarised_or_stays() -> None:
    log = Log()
    log.summary("old note")
    log.turns(4)
    log.summary("new note")
    log.turn(5)
    plan = prepared(log, keep_recent_entries=4)
    assert ids(plan.history)[0] == "e1"
    assert ids(plan.later) == ["e10"]


def test_the_budget_follows_what_the_provider_counts() -> None:
    log = Log()
    counted = 5_000  # the system prompt and the tools
    for number in range(1, 9):
        log.user(f"question-{number} " + "q" * 800)
        counted += 600  # three times what is estimated
        log.assistant("a" * 800, usage=Usage(input_tokens=counted, cache_read_tokens=number))
        counted += 600
    assert len(prepared(log, keep_recent_tokens=1_300).kept) == 2
    plain = Log().turns(8, size=800)
    assert len(prepared(plain, keep_recent_tokens=1_300).kept) == 6


def test_files_of_covered_calls_join_those_of_all_earlier_compactions() -> None:
    log = Log()
    log.user("start")
    log.step(1, name="read", path="new.py")
    log.step(2, name="edit", path="seen.py")
    log.compaction("one", throughEntryId="e1", readFiles=["seen.py", "old.py"])
    log.compaction("by another strategy", throughEntryId="e1", keepEntryIds=["e2", "e3"])
    log.turns(4)
    files = prepared(log).files
    assert files.read_files == ["old.py", "new.py"]
    assert files.modified_files == ["seen.py"]
    assert prepared(log, track_file_operations=False).files.read_files == []
