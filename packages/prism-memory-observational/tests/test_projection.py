"""What a compaction shows, and what is visible."""

from __future__ import annotations

import pytest
from msgspec import to_builtins

from prism.core import CompactionError, UsageError, encode
from prism.memory.observational import (
    MEMORY_PREAMBLE,
    Fold,
    build_projection,
    fold_ledger,
    fold_memory,
    folded_details,
    make_reflection,
    render_memory,
)

from .branches import TIME, Log, lasting, seen


def folded(log: Log, raw: set[str], *, most: int, **caps: int) -> Fold:
    return fold_memory(log.entries, fold_ledger(log.entries), raw, pool_max_tokens=most, **caps)


def contents(fold: Fold) -> list[str]:
    return [one.content for one in fold.observations]


def some_memory() -> Log:
    """Three observations, the second one dropped, and a reflection; all of entries that leave."""
    log = Log()
    log.talk(6)
    one, two, three = seen("one", "m1"), seen("two", "m2"), seen("three", "m3")
    log.observe("m4", one, two, three)
    log.reflect("m4", lasting("lasting", one, three))
    log.drop("m4", two)
    return log


def test_below_the_pool_maximum_a_first_compaction_shows_observations_only() -> None:
    fold = folded(some_memory(), {"m5", "m6"}, most=20_000)
    assert not fold.full
    assert contents(fold) == ["one", "two", "three"]
    assert fold.reflections == ()


def test_at_the_pool_maximum_the_dropped_one_is_gone_and_the_reflection_is_there() -> None:
    log = some_memory()
    pool = fold_ledger(log.entries).pool_tokens
    fold = folded(log, {"m5", "m6"}, most=pool)
    assert fold.full
    assert contents(fold) == ["one", "three"]
    assert [one.content for one in fold.reflections] == ["lasting"]
    assert not folded(log, {"m5", "m6"}, most=10 * pool).full


def test_the_shown_text_at_the_maximum_makes_the_fold_a_full_one_too() -> None:
    log = some_memory()
    ledger = fold_ledger(log.entries)
    shown = sum(one.token_count for one in ledger.observations)
    assert ledger.pool_tokens < shown
    assert folded(log, set(), most=int(shown)).full


def test_an_observation_is_shown_as_soon_as_one_of_its_sources_leaves() -> None:
    log = Log()
    log.talk(4)
    leaves = seen("leaves", "m2", "m4")
    stays = seen("stays", "m3", "m4")
    log.observe("m4", leaves, stays)  # the batch reaches over the cut
    assert contents(folded(log, {"m3", "m4"}, most=20_000)) == ["leaves"]


def test_a_record_whose_marker_dangles_is_not_shown() -> None:
    log = Log()
    log.talk(2)
    log.observe("gone", seen("a", "m1"))
    assert contents(folded(log, set(), most=20_000)) == []
    assert build_projection(log.entries).observations == ()


def test_between_full_folds_drops_reflections_and_supersessions_do_not_change_the_text() -> None:
    log = some_memory()
    first = folded(log, {"m5", "m6"}, most=20_000)
    log.folded("m4", first.observations, first.reflections)
    log.talk(4)
    new = seen("new", "m7")
    log.observe("m8", new)
    log.drop("m8", first.observations[0])
    reflection = lasting("more", new)
    log.reflect("m8", reflection)
    log.supersede("m8", reflection)
    second = folded(log, {"m9", "m10"}, most=20_000)
    before = render_memory(first.reflections, first.observations)
    after = render_memory(second.reflections, second.observations)
    assert after.startswith(before)
    assert after[len(before) :] == f"\n{new.line}"


def test_a_newcomer_is_added_behind_what_was_shown_whatever_its_place_in_the_ledger() -> None:
    log = Log()
    log.talk(6)
    early, late = seen("early", "m5"), seen("late", "m1")
    log.observe("m6", early, late)
    first = folded(log, {"m5", "m6"}, most=20_000)
    assert contents(first) == ["late"]
    log.folded("m4", first.observations)
    log.talk(2)
    assert contents(folded(log, {"m8"}, most=20_000)) == ["late", "early"]


def test_after_a_full_fold_the_next_fold_keeps_its_reflections() -> None:
    log = some_memory()
    full = folded(log, {"m5", "m6"}, most=1)
    log.compaction("m4", "Memory.", memory=folded_details(full))
    log.talk(2)
    log.observe("m6", seen("five", "m5"))
    normal = folded(log, {"m7", "m8"}, most=20_000)
    assert normal.reflections == full.reflections
    assert contents(normal) == ["one", "three", "five"]


def test_visible_is_what_the_compaction_in_force_shows() -> None:
    log = some_memory()
    assert build_projection(log.entries).visible is None
    one = fold_ledger(log.entries).observations[0]
    log.folded("m4", [one])
    found = build_projection(log.entries)
    assert found.visible is not None
    assert found.visible.observations == (one,)
    assert (found.added_observations, found.removed_observations) == (1, 0)
    assert found.added_reflections == 1
    log.drop("m4", one)
    assert build_projection(log.entries).removed_observations == 1


def test_nothing_is_visible_after_another_strategy_has_compacted() -> None:
    log = some_memory()
    log.folded("m4", fold_ledger(log.entries).observations)
    log.talk(2)
    log.compaction("m6", "Another summary.")
    found = build_projection(log.entries)
    assert found.visible is None
    assert found.stale is not None


def test_a_projection_up_to_an_entry_ignores_what_is_behind_it() -> None:
    log = some_memory()
    found = build_projection(log.entries, through_entry_id="m6")
    assert found.observations == ()
    with pytest.raises(UsageError):
        build_projection(log.entries, through_entry_id="gone")


def test_the_same_branch_gives_the_same_bytes() -> None:
    log = some_memory()
    folds = [folded(log, {"m5", "m6"}, most=most) for most in (1, 1, 20_000, 20_000)]
    texts = [render_memory(one.reflections, one.observations) for one in folds]
    details = [encode(folded_details(one)) for one in folds]
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]
    assert details[0] == details[1]
    assert details[2] == details[3]


def test_a_snapshot_over_its_limit_loses_the_least_relevant_and_says_so() -> None:
    log = Log()
    log.talk(2)
    grades = ("low", "critical", "medium", "high")
    log.observe(
        "m2", *(seen(f"{n} " + "x" * 200, "m1", relevance=grades[n % 4]) for n in range(40))
    )
    fold = folded(log, set(), most=20_000, max_folded_bytes=8_000)
    assert fold.full
    assert fold.left_out == 40 - len(fold.observations)
    kept = [one.relevance for one in fold.observations]
    assert kept.count("critical") == kept.count("high") == 10
    assert 0 < kept.count("medium") < 10
    assert "low" not in kept
    medium = [one.content for one in fold.observations if one.relevance == "medium"]
    assert medium[-1].startswith("38 ")  # of equals the newest stay
    text = render_memory(fold.reflections, fold.observations, left_out=fold.left_out)
    assert text.endswith(f"({fold.left_out} more records had no room here; they can still be "
                         "recalled by their ids.)")  # fmt: skip
    assert len(encode(folded_details(fold))) <= 8_000


def test_a_memory_that_cannot_be_made_small_enough_is_an_error() -> None:
    log = Log()
    log.talk(1)
    one = seen("a", "m1")
    log.observe("m1", one)
    log.reflect("m1", *(lasting(f"{n} " + "y" * 400, one) for n in range(30)))
    with pytest.raises(CompactionError) as raised:
        folded(log, set(), most=1, max_folded_bytes=8_000)
    assert raised.value.code == "memory_too_large"


def test_what_was_carried_over_is_shown_by_the_first_compaction() -> None:
    log = Log()
    log.talk(3)
    carried = make_reflection(
        content="The user prefers tabs.",
        supporting_observation_ids=["aaaaaaaaaaaa"],
        timestamp=TIME,
        origin_session_id="before",
    )
    log.reflect("m1", carried)
    log.observe("m2", seen("a", "m1"))
    assert folded(log, {"m3"}, most=20_000).reflections == (carried,)


def test_nothing_renders_to_nothing() -> None:
    assert render_memory((), ()) == ""


def test_reflections_come_first_and_each_record_is_one_line() -> None:
    one = seen("a", "m1", relevance="critical")
    two = lasting("b", one)
    assert render_memory([two], [one]) == (
        f"{MEMORY_PREAMBLE}\n\n## Reflections\n[{two.id}] b\n\n"
        f"## Observations\n[{one.id}] 2026-03-01 09:30 [critical] a"
    )


def test_a_known_secret_is_not_in_the_text() -> None:
    text = render_memory((), [seen("the key is hunter2", "m1")], secrets=["hunter2"])
    assert "hunter2" not in text
    assert "[REDACTED]" in text


def test_a_line_shows_the_minute_in_the_offset_it_was_written_with() -> None:
    for written, shown in (
        ("2026-03-01T23:59:10+05:30", "2026-03-01 23:59"),
        ("2026-03-01 08:15", "2026-03-01 08:15"),
        ("sometime\nlast week, I think", "sometime last we"),
    ):
        assert f"] {shown} [" in seen("a", "m1", timestamp=written).line


def test_a_snapshot_reads_as_it_was_written() -> None:
    log = some_memory()
    fold = folded(log, set(), most=1)
    log.compaction("m4", "Memory.", memory=folded_details(fold))
    visible = build_projection(log.entries).visible
    assert visible is not None
    assert to_builtins(visible.observations) == to_builtins(fold.observations)
    assert visible.dropped_observation_ids == fold.dropped_ids
