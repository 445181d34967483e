"""A result that breaks the contract is refused, whoever made it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from prism.core._errors import CompactionError
from prism.core._wire import CompactionEntry, LabelEntry
from prism.core.compaction import CompactionContext, CompactionResult, validate_compaction

from ..histories import WHEN, Log


@pytest.fixture
def context() -> CompactionContext:
    """e1 to e4 are messages, e5 is a label."""
    log = Log()
    log.turn(1)
    log.turn(2)
    log.label("x", "e1")
    return CompactionContext(session_id="s1", entries=log.entries)


def entry(**fields: Any) -> CompactionEntry:
    data = {"throughEntryId": "e2", "keepEntryIds": ["e3", "e4"], "strategy": "mine"}
    good: dict[str, Any] = {
        "id": "new",
        "session_id": "s1",
        "timestamp": WHEN,
        "parent_id": "e5",
        "summary": "fine",
        "data": data,
    }
    return CompactionEntry(**{**good, **fields})


def result(*entries: Any) -> CompactionResult:
    return CompactionResult(summary="fine", entries=list(entries))


@pytest.mark.parametrize(
    "data",
    [
        {"throughEntryId": "e2", "keepEntryIds": ["e3", "e4"]},
        {"throughEntryId": "e2", "keepEntryIds": ["e1"]},
        {"throughEntryId": "e2", "keepEntryIds": ["e1", "e4"]},
        {"throughEntryId": "e5", "keepEntryIds": []},
        {"throughEntryId": "e2"},
        {"throughEntryId": "e1", "memory": 7, "of_its_own": [1]},
        {},
        None,
    ],
)
def test_what_a_rebuild_can_use_is_accepted(
    context: CompactionContext, data: dict[str, Any] | None
):
    good = entry(data=data)
    assert validate_compaction(context, result(good)) is good


def test_the_first_compaction_of_an_empty_session_follows_nothing():
    context = CompactionContext(session_id="s1", entries=[])
    validate_compaction(context, result(entry(parent_id=None, data=None)))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ([], "0 entries"),
        ([entry(), entry(id="new2")], "2 entries"),
        ([LabelEntry(id="new", session_id="s1", timestamp=WHEN, parent_id="e5")], "LabelEntry"),
        ([{"kind": "compaction"}], "dict"),
        ([entry(session_id="s2")], "'s2'"),
        ([entry(parent_id="e4")], "must follow the leaf 'e5'"),
        ([entry(parent_id=None)], "must follow the leaf 'e5'"),
        ([entry(summary="")], "summary is empty"),
        ([entry(summary=" \n\t")], "summary is empty"),
        ([entry(data={"throughEntryId": "nowhere"})], "'nowhere' is not before it on the path"),
        ([entry(data={"throughEntryId": "new"})], "'new' is not before it on the path"),
        ([entry(data={"throughEntryId": 2})], "throughEntryId is not an id"),
        ([entry(data={"keepEntryIds": "e1"})], "not a list of ids"),
        ([entry(data={"throughEntryId": "e2", "keepEntryIds": ["nowhere"]})], "'nowhere'"),
        (
            [entry(data={"throughEntryId": "e2", "keepEntryIds": ["e5"]})],
            "not a message",
        ),
        ([entry(data={"throughEntryId": "e2", "keepEntryIds": ["e4", "e3"]})], "order"),
        ([entry(data={"throughEntryId": "e2", "keepEntryIds": ["e3", "e3"]})], "'e3' twice"),
    ],
)
def test_what_breaks_the_contract_is_refused(context: CompactionContext, bad: list[Any], why: str):
    with pytest.raises(CompactionError) as caught:
        validate_compaction(context, result(*bad))
    assert caught.value.code == "invalid_compaction"
    assert why in str(caught.value)
    assert caught.value.details is not None
    assert why in caught.value.details["reason"]


def test_an_entry_of_another_branch_is_not_on_the_path(context: CompactionContext):
    shorter = msgspec.structs.replace(context, entries=context.entries[:3])
    with pytest.raises(CompactionError, match="'e4'"):
        validate_compaction(shorter, result(entry(parent_id="e3", data={"throughEntryId": "e4"})))
