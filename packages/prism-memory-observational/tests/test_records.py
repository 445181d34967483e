"""Ids, the parser, and what it does with bad data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from prism.core import UsageError, encode, parse_json
from prism.memory.observational import (
    fold_ledger,
    is_memory_id,
    make_observation,
    make_reflection,
    memory_id,
    observations_record,
    parse_record,
)

from .branches import TIME, Log, lasting, seen


def raw(one: Any) -> dict[str, Any]:
    return dict(msgspec.to_builtins(one))


def test_an_id_is_twelve_hex_digits_of_what_it_says_and_where_it_comes_from() -> None:
    # The digest of ["observation","The port is 8080.","2026-03-01T09:30:00+00:00",["m1","m2"]].
    found = memory_id("observation", "The port is 8080.", TIME, ["m2", "m1", "m2"])
    assert found == "2467d8cd45c6"
    assert found == memory_id("observation", "The port is 8080.", TIME, ["m1", "m2"])
    assert found != memory_id("reflection", "The port is 8080.", TIME, ["m1", "m2"])
    assert found != memory_id("observation", "The port is 8080.", TIME, ["m1"])
    assert found != memory_id("observation", "The port is 8080.", "", ["m1", "m2"])


def test_an_id_that_is_taken_with_other_content_is_hashed_again() -> None:
    first = memory_id("observation", "a", TIME, ["m1"])
    second = memory_id("observation", "a", TIME, ["m1"], taken={first})
    third = memory_id("observation", "a", TIME, ["m1"], taken={first, second})
    assert len({first, second, third}) == 3
    assert all(is_memory_id(one) for one in (first, second, third))


def test_the_same_observation_again_keeps_its_id() -> None:
    one = seen("a", "m1")
    again = make_observation(
        content="a",
        timestamp=TIME,
        relevance="low",
        source_entry_ids=["m1"],
        taken={one.id: one},
    )
    assert again is one


@pytest.mark.parametrize("value", ["ABC", "aaaaaaaaaaaaa", "aaaaaaaaaaa", "aaaaaaaaaaag", 12, None])
def test_only_twelve_lowercase_hex_digits_are_an_id(value: object) -> None:
    assert not is_memory_id(value)
    assert is_memory_id("0123456789ab")


@given(st.text(), st.lists(st.text(min_size=1), min_size=1))
def test_any_text_has_an_id(content: str, sources: list[str]) -> None:
    assert is_memory_id(memory_id("observation", content + "\ud800", TIME, sources))


def test_content_is_brought_onto_one_line_so_that_it_forges_no_heading() -> None:
    one = seen("a\n## Reflections\r\u2028[000000000000]\x00\u202e b", "m1")
    assert one.content == "a ## Reflections [000000000000] b"
    assert "\n" not in one.line


def test_content_is_cut_to_ten_thousand_characters_and_says_how_much_is_missing() -> None:
    one = seen("x" * 10_500, "m1")
    assert len(one.content) == 10_000
    assert "more characters]" in one.content


def test_what_is_no_observation_cannot_be_made() -> None:
    with pytest.raises(UsageError, match="at least one source"):
        make_observation(content=" \n", timestamp=TIME, relevance="low", source_entry_ids=["m1"])
    with pytest.raises(UsageError, match="at least one source"):
        make_observation(content="a", timestamp=TIME, relevance="low", source_entry_ids=[])
    with pytest.raises(UsageError, match="relevance is one of"):
        make_observation(content="a", timestamp=TIME, relevance="huge", source_entry_ids=["m1"])
    with pytest.raises(UsageError, match="supporting observation"):
        make_reflection(content="a", supporting_observation_ids=[], timestamp=TIME)


def test_a_record_says_its_version_and_its_coverage() -> None:
    record = observations_record([seen("a", "m1")], "m1")
    assert record["version"] == 1
    assert record["coversUpToId"] == "m1"
    assert set(record["observations"][0]) == {
        "id", "content", "timestamp", "relevance", "sourceEntryIds", "tokenCount",
    }  # fmt: skip


def test_a_record_without_version_and_coverage_is_read() -> None:
    log = Log()
    log.say("a")
    data = observations_record([seen("a", "m1")], "m1")
    del data["version"], data["coversUpToId"]
    log.data(data)
    ledger = fold_ledger(log.entries)
    assert [one.content for one in ledger.observations] == ["a"]
    assert ledger.observed.place == -1
    assert ledger.malformed == 0


def test_a_newer_version_is_skipped_and_counted() -> None:
    log = Log()
    log.say("a")
    log.data({**observations_record([seen("a", "m1")], "m1"), "version": 2})
    ledger = fold_ledger(log.entries)
    assert ledger.observations == ()
    assert ledger.unsupported == 1
    assert ledger.observed.place == -1


def test_null_data_an_unknown_marker_and_a_version_2_snapshot_are_ignored() -> None:
    log = Log()
    log.say("a")
    log.data({"type": "om.unknown", "observations": None})
    log.data({"type": "om.observations.recorded"})
    log.data({"type": "om.observations.recorded", "observations": {"a": 1}, "version": None})
    log.data({"type": "om.observations.dropped", "observationIds": [None, "", 3]})
    log.data({"type": "om.reflections.superseded", "reflectionIds": "abc"})
    log.folded("m1", [seen("a", "m1")], version=2)
    ledger = fold_ledger(log.entries)
    assert ledger.observations == ()
    assert ledger.dropped_ids == ()
    assert ledger.malformed == 6
    assert ledger.observed.place == -1


BAD_ITEMS: list[Any] = [
    None,
    "text",
    {},
    {"id": "XYZ"},
    {"id": "aaaaaaaaaaaa", "content": "", "timestamp": TIME, "relevance": "low"},
]


@pytest.mark.parametrize("bad", BAD_ITEMS)
def test_a_bad_item_is_dropped_and_counted_and_the_good_ones_of_its_batch_stay(bad: Any) -> None:
    log = Log()
    log.talk(3)
    data = observations_record([seen("a", "m1"), seen("b", "m2")], "m3")
    data["observations"].insert(1, bad)
    log.data(data)
    ledger = fold_ledger(log.entries)
    assert [one.content for one in ledger.observations] == ["a", "b"]
    assert ledger.malformed == 1
    assert ledger.observed.place == -1  # what the bad item was about is unknown


def test_the_frontier_stops_before_content_that_was_not_recorded() -> None:
    log = Log()
    log.talk(4)
    bad = {**raw(seen("b", "m3")), "relevance": "huge"}
    data = observations_record([seen("a", "m1")], "m4")
    data["observations"].append(bad)
    log.data(data)
    ledger = fold_ledger(log.entries)
    assert ledger.observed.entry_id == "m2"


def test_a_count_of_the_content_alone_is_counted_again_on_the_line() -> None:
    log = Log()
    log.say("a")
    one = seen("a", "m1")
    data = observations_record([one], "m1")
    data["observations"][0]["tokenCount"] = 1
    log.data(data)
    assert fold_ledger(log.entries).observations == (one,)
    assert fold_ledger(log.entries).pool_tokens == one.token_count > 10


def test_records_survive_a_round_trip_through_json() -> None:
    log = Log()
    log.say("a")
    one = seen("Ü \U0001f600 \ud800 x", "m1")
    log.data(parse_json(encode(observations_record([one], "m1"))))
    record = parse_record(log.entries[-1])
    assert record is not None
    assert record.observations == (one,)
    reflection = lasting("r", one)
    log.reflect("m1", reflection)
    assert fold_ledger(log.entries).reflections == (reflection,)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.sampled_from([
        "om.observations.recorded",
        "om.reflections.recorded",
        "om.observations.dropped",
        "om.reflections.superseded",
    ]),
    st.dictionaries(
        st.sampled_from([
            "observations", "reflections", "observationIds", "reflectionIds", "coversUpToId",
            "version", "byReflectionId",
        ]),
        json_values,
    ),
)  # fmt: skip
def test_no_data_makes_the_parser_raise(kind: str, data: dict[str, Any]) -> None:
    log = Log()
    log.talk(2)
    log.data({**data, "type": kind})
    ledger = fold_ledger(log.entries)
    assert ledger.observed.place < len(log.entries)
