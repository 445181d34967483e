"""From an id back to what was said."""

from __future__ import annotations

import pytest

from prism.core import UsageError
from prism.memory.observational import make_observation, recall, recall_text

from .branches import Log, lasting, seen


def test_an_observation_leads_to_its_sources() -> None:
    log = Log()
    log.say("What is the port?")
    asked, answered = log.call("read", {"path": "a.toml"}, "port = 8080")
    one = seen("The port is 8080.", asked, answered)
    log.observe(answered, one)
    found = recall(log.entries, one.id)
    assert (found.kind, found.found, found.status) == ("observation", True, "ok")
    assert found.source_ids == (asked, answered)
    assert f'[entry {answered} | tool, result of read({{"path":"a.toml"}}) |' in found.text
    assert "  port = 8080" in found.text
    assert found.next_offset is None
    assert recall_text(found).startswith(f"Observation {one.line}\n")


def test_a_reflection_leads_to_its_observations_and_their_sources() -> None:
    log = Log()
    log.talk(2)
    one, two = seen("a", "m1"), seen("b", "m2")
    reflection = lasting("r", one, two)
    log.observe("m2", one, two)
    log.reflect("m2", reflection)
    found = recall(log.entries, reflection.id)
    assert found.kind == "reflection"
    assert [one.observation.content for one in found.observations] == ["a", "b"]
    assert found.source_ids == ("m1", "m2")


def test_a_dropped_observation_still_answers() -> None:
    log = Log()
    log.say("a")
    one = seen("a", "m1")
    log.observe("m1", one)
    log.drop("m1", one)
    found = recall(log.entries, one.id)
    assert found.status == "ok"
    assert found.observations[0].status == "dropped"
    assert "dropped from the summary" in recall_text(found)
    assert found.text


def test_a_superseded_reflection_still_answers_and_names_what_stands_for_it() -> None:
    log = Log()
    log.say("a")
    one = seen("a", "m1")
    old, new = lasting("old", one), lasting("new", one)
    log.observe("m1", one)
    log.reflect("m1", old, new)
    log.supersede("m1", old, new)
    found = recall(log.entries, old.id)
    assert found.reflections[0].status == "superseded"
    assert f"(superseded by [{new.id}])" in recall_text(found)


def test_missing_ids_are_listed_beside_what_was_found() -> None:
    log = Log()
    log.say("here")
    one = seen("a", "m1", "gone")
    log.observe("m1", one)
    reflection = lasting("r", one, seen("never recorded", "m1"))
    log.reflect("m1", reflection)
    found = recall(log.entries, reflection.id)
    assert found.status == "partial"
    assert found.missing_source_ids == ("gone",)
    assert len(found.missing_observation_ids) == 1
    text = recall_text(found)
    assert "Sources that are not on this branch: gone" in text
    assert "  here" in text


def test_a_source_that_is_a_ledger_entry_is_listed_as_no_message() -> None:
    log = Log()
    log.say("a")
    record = log.observe("m1", seen("a", "m1"))
    odd = seen("odd", "m1", record)
    log.observe("m1", odd)
    found = recall(log.entries, odd.id)
    assert found.non_source_ids == (record,)
    assert found.status == "partial"


def test_an_unknown_id_is_not_found() -> None:
    found = recall([], "aaaaaaaaaaaa")
    assert (found.found, found.status) == (False, "not_found")
    assert "No memory" in recall_text(found)


@pytest.mark.parametrize("bad", ["ABC", "", "aaaaaaaaaaaa ", 12, None])
def test_a_malformed_id_is_refused(bad: object) -> None:
    with pytest.raises(UsageError) as raised:
        recall([], bad)  # type: ignore[arg-type]
    assert raised.value.code == "invalid_id"


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (True, 1), (0, 0), (0, 1.5), (0, 10**9)])
def test_a_bad_page_is_refused(offset: int, size: int) -> None:
    with pytest.raises(UsageError) as raised:
        recall([], "aaaaaaaaaaaa", offset=offset, max_chars=size)
    assert raised.value.code == "invalid_limit"


def test_a_source_of_1_700_000_characters_comes_in_pages() -> None:
    log = Log()
    log.say("".join(f"line {n}\n" for n in range(150_000)))
    one = seen("long", "m1")
    log.observe("m1", one)
    found = recall(log.entries, one.id)
    assert len(found.text) == 16_000
    assert found.total_chars > 1_700_000
    assert f"call recall with offset {found.next_offset}" in recall_text(found)
    pages = [found.text]
    while found.next_offset is not None:
        found = recall(log.entries, one.id, offset=found.next_offset, max_chars=200_000)
        pages.append(found.text)
    assert len("".join(pages)) == found.total_chars
    assert pages[-1].endswith("line 149999")


def test_a_secret_that_lies_across_the_end_of_a_page_is_taken_out_before_the_cut() -> None:
    log = Log()
    log.say("x" * 70 + "hunter2hunter2" + "y" * 70)
    one = seen("hunter2hunter2", "m1")
    log.observe("m1", one)
    for size in range(1, 220):
        found = recall(log.entries, one.id, max_chars=size, secrets=["hunter2hunter2"])
        assert "hunter2" not in found.text
        assert "hunter2" not in recall_text(found)
        assert "hunter2" not in repr(found)


def test_the_sources_of_one_id_are_shown_in_the_order_of_the_branch() -> None:
    log = Log()
    log.talk(3)
    one = make_observation(
        content="a", timestamp="2026-03-01T09:30:00Z", relevance="low",
        source_entry_ids=["m3", "m1"],
    )  # fmt: skip
    log.observe("m3", one)
    assert recall(log.entries, one.id).source_ids == ("m1", "m3")
