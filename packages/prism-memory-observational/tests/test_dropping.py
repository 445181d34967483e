"""Which observations go."""

from __future__ import annotations

import pytest

from prism.memory.observational import Observation, fold_ledger
from prism.memory.observational._workers.dropper import DropperDesk, backstop_drops, max_drops

from .branches import Log, lasting, seen


@pytest.mark.parametrize(
    ("count", "pool", "target", "expected"),
    [
        (10, 100, 90, 1),
        (10, 100, 50, 5),
        (10, 100, 0, 10),
        (3, 56, 20, 2),
        (200, 20_000, 10_000, 100),
        (10, 100, 100, 0),
        (0, 0, 10, 0),
    ],
)
def test_how_many_may_go(count: int, pool: int, target: int, expected: int) -> None:
    assert max_drops(pool, target, count) == expected


def graded() -> tuple[Log, dict[str, Observation]]:
    """One observation of each kind: relevance, and how well reflections keep it."""
    log = Log()
    log.talk(2)
    found = {
        "strong critical": seen("a", "m1", relevance="critical"),
        "partial low": seen("b", "m1", relevance="low"),
        "none low": seen("c", "m1", relevance="low"),
        "none critical": seen("d", "m1", relevance="critical"),
        "none medium": seen("e", "m1", relevance="medium"),
    }
    log.observe("m2", *found.values())
    log.reflect(
        "m2",
        lasting("one", found["strong critical"], found["partial low"]),
        lasting("two", found["strong critical"]),
    )
    return log, found


def test_of_five_proposals_with_a_cap_of_two_the_best_kept_go() -> None:
    log, found = graded()
    desk = DropperDesk(fold_ledger(log.entries), 2)
    receipt = desk.handle({"ids": [one.id for one in found.values()]})
    assert receipt == {"queued": 4, "ignored": 1, "maximum": 2}
    assert desk.selected() == (found["strong critical"].id, found["partial low"].id)


def test_what_is_critical_and_kept_by_no_reflection_cannot_be_proposed() -> None:
    log, found = graded()
    desk = DropperDesk(fold_ledger(log.entries), 5)
    desk.handle({"ids": [found["none critical"].id, "aaaaaaaaaaaa", 3]})
    assert desk.selected() == ()
    assert desk.rejected == 3


def test_of_equals_the_older_goes_and_an_unreadable_time_counts_as_newest() -> None:
    log = Log()
    log.talk(1)
    odd = seen("odd", "m1", timestamp="whenever")
    new = seen("new", "m1", timestamp="2026-03-02T00:00:00+00:00")
    old = seen("old", "m1", timestamp="2026-03-01T23:00:00-02:00")
    log.observe("m1", odd, new, old)
    desk = DropperDesk(fold_ledger(log.entries), 3)
    desk.handle({"ids": [odd.id, new.id, old.id, odd.id]})
    assert desk.selected() == (new.id, old.id, odd.id)
    assert desk.duplicates == 1


def test_by_rule_the_least_relevant_go_first_and_never_what_is_critical_and_kept_nowhere() -> None:
    log, found = graded()
    ledger = fold_ledger(log.entries)
    assert backstop_drops(ledger, 0) == tuple(
        found[name].id for name in ("partial low", "none low", "none medium", "strong critical")
    )
    assert backstop_drops(ledger, ledger.pool_tokens) == ()
    assert backstop_drops(ledger, ledger.pool_tokens - 1) == (found["partial low"].id,)
