"""Walking the tree: the leaf, the path, the branches, the labels."""

from __future__ import annotations

import pytest
from hypothesis import given

from prism.core._errors import BranchError
from prism.core._support.branch import (
    Branch,
    branch_entries,
    current_leaf,
    labels_by_target,
    list_branches,
    rebuild_session_context,
)
from prism.core._wire import (
    LabelEntry,
    MessageEntry,
    SessionEntry,
    decode_entry,
    encode_entry,
)

from ..histories import WHEN, Log, say, trees


def ids(entries: list[SessionEntry]) -> list[str]:
    return [entry.id for entry in entries]


def entry(key: str, parent: str | None) -> MessageEntry:
    return MessageEntry(
        id=key, session_id="s1", timestamp=WHEN, parent_id=parent, message=say("user", key)
    )


def test_an_empty_session_stands_at_the_empty_root():
    assert current_leaf([]) is None
    assert branch_entries([]) == []
    assert list_branches([]) == []
    context = rebuild_session_context([])
    assert (context.leaf_id, context.messages, context.warnings) == (None, [], [])


def test_the_leaf_is_the_last_entry_in_append_order_whatever_its_timestamp():
    log = Log()
    log.user("a")
    log.add(
        MessageEntry(
            id="old",
            session_id="s1",
            timestamp="1999-01-01T00:00:00.000Z",
            parent_id=log.leaf,
            message=say("user", "b"),
        )
    )
    assert current_leaf(log.entries) == "old"


@pytest.mark.parametrize("kind", ["custom", "event", "opaque", "metadata"])
def test_every_kind_but_the_leaf_marker_moves_the_leaf(kind: str):
    log = Log()
    log.user("a")
    last = getattr(log, kind)()
    assert current_leaf(log.entries) == last
    assert ids(branch_entries(log.entries)) == ["e1", "e2"]


def test_a_label_goes_under_the_leaf_and_moves_it():
    log = Log()
    target = log.user("a")
    assert current_leaf(log.entries) == target
    label = log.label("start", target)
    assert current_leaf(log.entries) == label
    assert ids(branch_entries(log.entries)) == [target, label]


def test_after_a_checkout_the_session_stands_there_again_when_it_is_opened():
    log = Log()
    first, *_ = log.turn(1)
    log.turn(2)
    log.checkout(first)
    reopened = [decode_entry(encode_entry(known)) for known in log.entries]
    assert current_leaf(reopened) == first
    assert ids(branch_entries(reopened)) == [first]


def test_a_checkout_of_the_empty_root_stands_at_the_empty_root():
    log = Log()
    log.turn(1)
    log.checkout(None)
    assert current_leaf(log.entries) is None
    assert branch_entries(log.entries) == []
    again = log.user("from the start")
    assert ids(branch_entries(log.entries)) == [again]


def test_a_leaf_marker_is_on_no_path_also_when_something_was_appended_under_it():
    log = Log()
    first, second = log.turn(1)
    marker = log.checkout(first)
    # A reader that does not know markers goes on from the last entry.
    log.add(entry("other", marker))
    assert ids(branch_entries(log.entries)) == [first, "other"]
    assert list_branches(log.entries) == [
        Branch(leaf_id=second, entry_count=2),
        Branch(leaf_id="other", entry_count=2),
    ]


def test_an_entry_with_only_a_marker_under_it_is_still_a_leaf():
    log = Log()
    first, second = log.turn(1)
    log.checkout(second)
    assert [branch.leaf_id for branch in list_branches(log.entries)] == [second]
    log.checkout(first)
    assert [branch.leaf_id for branch in list_branches(log.entries)] == [second]


def test_a_leaf_can_be_named():
    log = Log()
    first, second = log.turn(1)
    log.turn(2)
    assert ids(branch_entries(log.entries, second)) == [first, second]
    context = rebuild_session_context(log.entries, second)
    assert (context.leaf_id, ids(context.entries)) == (second, [first, second])


def test_a_missing_parent_raises_from_branch_entries_and_says_where():
    with pytest.raises(BranchError) as caught:
        branch_entries([entry("a", "gone"), entry("b", "a")])
    assert caught.value.code == "missing_parent"
    assert caught.value.details == {"entryId": "a"}
    assert "'gone'" in str(caught.value)


def test_an_unknown_leaf_raises_from_branch_entries():
    with pytest.raises(BranchError, match="'nowhere'"):
        branch_entries([entry("a", None)], "nowhere")


def test_a_cycle_raises_from_branch_entries():
    with pytest.raises(BranchError) as caught:
        branch_entries([entry("a", "b"), entry("b", "a")])
    assert caught.value.code == "cycle"


def test_branches_are_in_the_order_of_their_leaves_with_their_sizes_and_labels():
    log = Log()
    first, second = log.turn(1)
    log.checkout(first)
    other = log.user("instead")
    log.checkout(second)
    label = log.label("better", other)
    assert list_branches(log.entries) == [
        Branch(leaf_id=other, entry_count=2, label="better"),
        Branch(leaf_id=label, entry_count=3),
    ]


def test_the_latest_label_of_an_entry_wins_and_an_empty_one_clears():
    log = Log()
    one, two = log.turn(1)
    log.label("a", one)
    log.label("b", two)
    log.label("c", one)
    assert labels_by_target(log.entries) == {one: "c", two: "b"}
    log.label(None, one)
    assert labels_by_target(log.entries) == {two: "b"}


@given(trees())
def test_each_branch_has_as_many_entries_as_the_path_to_its_leaf(log: Log):
    branches = list_branches(log.entries)
    for branch in branches:
        assert branch.entry_count == len(branch_entries(log.entries, branch.leaf_id))
    on_branches = {
        key for branch in branches for key in ids(branch_entries(log.entries, branch.leaf_id))
    }
    markers = {key.id for key in log.entries if getattr(key, "is_leaf_marker", False)}
    assert on_branches == set(ids(log.entries)) - markers


def test_branches_of_a_broken_tree_have_as_many_entries_as_can_be_walked():
    broken = [
        entry("late", "parent"),
        entry("a", "b"),
        entry("b", "a"),
        entry("tail", "a"),
        entry("tip", "tail"),
        entry("orphan", "gone"),
        entry("parent", None),
        entry("selfish", "selfish"),
    ]
    branches = list_branches(broken)
    assert [(branch.leaf_id, branch.entry_count) for branch in branches] == [
        ("late", 2), ("tip", 4), ("orphan", 1),
    ]  # fmt: skip
    for branch in branches:
        walked = rebuild_session_context(broken, branch.leaf_id).entries
        assert branch.entry_count == len(walked)


def test_a_branch_has_the_label_of_the_entry_that_its_last_labels_follow():
    log = Log()
    log.user("a")
    named = log.user("b")

    def label(key: str, target: str | None, text: str | None) -> LabelEntry:
        return LabelEntry(
            id=key,
            session_id="s1",
            timestamp=WHEN,
            parent_id=log.leaf,
            label=text,
            data={"targetId": target},
        )

    log.add(label("l1", named, "x"))
    assert [branch.label for branch in list_branches(log.entries)] == ["x"]
    log.add(label("l2", log.entries[0].id, "the beginning"))
    assert [branch.label for branch in list_branches(log.entries)] == ["x"]
    log.add(label("l3", "l2", "y"))
    assert [branch.label for branch in list_branches(log.entries)] == ["y"]
    log.user("c")
    assert [branch.label for branch in list_branches(log.entries)] == [None]
