"""A session keeps its branch up to date entry by entry; it is what reading it again would give."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from prism.core._runtime.history import History
from prism.core._support.branch import current_leaf, is_leaf_marker

from ..histories import Log, trees


def state_of(history: History) -> dict[str, Any]:
    """Everything that a run looks at."""
    return {
        "path": [entry.id for entry in history.path],
        "on_path": history.on_path,
        "leaf_id": history.leaf_id,
        "sent": history.pairs.snapshot(),
        "open_calls": history.pairs.open_calls,
        "summaries": history.summaries,
        "model": history.model,
        "thinking_level": history.thinking_level,
        "counted": history.counted,
        "ends_in_compaction": history.ends_in_compaction,
        "last_message": history.last_message,
        "call_ids": history.call_ids,
        "approvals": history.approvals,
    }


@given(trees())
def test_appending_gives_what_loading_gives(log: Log) -> None:
    history = History()
    for count, entry in enumerate(log.entries, 1):
        so_far = log.entries[:count]
        loaded = History.load(so_far, current_leaf(so_far))
        if is_leaf_marker(entry) or entry.parent_id != history.leaf_id:
            history = loaded  # somebody checked out, or the tree has a hole
        else:
            history.append(entry)
        assert state_of(history) == state_of(loaded)


def test_approvals_are_kept_by_call_and_the_last_record_counts() -> None:
    log = Log()
    history = History()
    for state in ("requested", "edited"):
        log.custom(type="prism.approval", approvalId="a1", toolCallId="c1", state=state)
        history.append(log.entries[-1])
    log.custom(type="prism.approval", approvalId="a2", toolCallId=7, state="requested")
    history.append(log.entries[-1])
    assert list(history.approvals) == ["c1"]
    assert history.approvals["c1"]["state"] == "edited"
    assert state_of(History.load(log.entries, log.leaf)) == state_of(history)
