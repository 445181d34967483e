"""Folding the records of a branch."""

from __future__ import annotations

import pytest

from prism.core import CustomEntry, UsageError
from prism.memory.observational import earlier_marker, fold_ledger

from .branches import Log, lasting, seen


def test_folding_to_an_entry_sees_only_the_records_up_to_it() -> None:
    log = Log()
    log.talk(2)
    first, second = seen("a", "m1"), seen("b", "m2")
    log.observe("m1", first)
    log.observe("m2", second)
    reflection = log.reflect("m2", lasting("r", first))
    log.observe("m2", seen("c", "m2"))
    ledger = fold_ledger(log.entries, through_entry_id=reflection)
    assert ledger.observations == (first, second)
    assert len(ledger.reflections) == 1


def test_of_one_id_with_two_texts_the_first_is_kept_in_its_place() -> None:
    log = Log()
    log.say("a")
    first, other = seen("a", "m1"), seen("b", "m1")
    log.observe("m1", first, other)
    entry = log.entries[-1]
    assert isinstance(entry, CustomEntry)
    data = dict(entry.data)
    changed = {**data["observations"][0], "content": "another text"}
    log.data({**data, "observations": [changed]})
    assert fold_ledger(log.entries).observations == (first, other)


def test_a_drop_of_an_unknown_id_is_kept_and_hits_a_later_record_of_that_id() -> None:
    log = Log()
    log.talk(2)
    late = seen("late", "m2")
    log.drop("m1", late)
    assert fold_ledger(log.entries).dropped_ids == (late.id,)
    log.observe("m2", late)
    ledger = fold_ledger(log.entries)
    assert ledger.observations == (late,)
    assert ledger.active_observations == ()


def test_what_was_dropped_and_is_observed_again_later_is_active_again() -> None:
    log = Log()
    log.talk(2)
    first = seen("The port is 8080.", "m1")
    log.observe("m1", first)
    log.drop("m1", first)
    again = seen("The port is 8080.", "m2", timestamp="2026-03-01T09:31:00+00:00")
    log.observe("m2", again)
    assert fold_ledger(log.entries).active_observations == (again,)


def test_an_observation_and_a_reflection_of_one_text_have_distinct_ids() -> None:
    one = seen("same", "m1")
    assert lasting("same", one).id != one.id


def test_a_sibling_branch_is_invisible_and_its_own_records_count_after_a_switch() -> None:
    log = Log()
    log.talk(2)
    trunk = list(log.entries)
    log.observe("m2", seen("left", "m2"))
    left = list(log.entries)
    log.entries = list(trunk)
    log.observe("m2", seen("right", "m2"), seen("right too", "m1"))
    assert [one.content for one in fold_ledger(left).observations] == ["left"]
    assert [one.content for one in fold_ledger(log.entries).observations] == ["right", "right too"]


def test_the_frontier_is_the_furthest_marker_and_not_the_last() -> None:
    log = Log()
    log.talk(3)
    log.observe("m2", seen("b", "m2"))
    log.observe("m1", seen("a", "m1"))
    assert fold_ledger(log.entries).observed.entry_id == "m2"


def test_a_dangling_marker_moves_no_frontier_and_is_listed() -> None:
    log = Log()
    log.talk(2)
    entry = log.observe("gone", seen("a", "m1"))
    ledger = fold_ledger(log.entries)
    assert ledger.observed.place == -1
    assert ledger.dangling == (entry,)
    assert len(ledger.observations) == 1
    assert ledger.placed_ids == frozenset()


def test_an_empty_batch_moves_the_frontier() -> None:
    log = Log()
    log.talk(2)
    log.observe("m2")
    log.reflect("m1")
    ledger = fold_ledger(log.entries)
    assert ledger.observed.entry_id == "m2"
    assert ledger.reflected.entry_id == "m1"


def test_a_superseded_reflection_is_out_of_use_and_says_what_stands_for_it() -> None:
    log = Log()
    log.say("a")
    one = seen("a", "m1")
    old, new = lasting("old", one), lasting("new", one)
    log.observe("m1", one)
    log.reflect("m1", old, new)
    log.supersede("m1", old, new)
    ledger = fold_ledger(log.entries)
    assert ledger.active_reflections == (new,)
    assert ledger.superseded == {old.id: new.id}
    assert ledger.citations == {one.id: 1}


def test_an_unknown_boundary_raises() -> None:
    log = Log()
    log.say("a")
    with pytest.raises(UsageError) as raised:
        fold_ledger(log.entries, through_entry_id="gone")
    assert raised.value.code == "entry_not_found"


def test_of_two_markers_the_earlier_on_the_branch_counts() -> None:
    places = {"m1": 0, "m2": 1}
    assert earlier_marker(places, "m2", "m1") == "m1"
    assert earlier_marker(places, "gone", "m2") == "m2"
    assert earlier_marker(places, "gone", None) is None
