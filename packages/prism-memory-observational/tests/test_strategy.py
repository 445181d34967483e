"""Compaction by what was recorded before."""

from __future__ import annotations

from typing import Any

import pytest

from prism.core import CompactionError, UsageError, encode
from prism.core.compaction import (
    CompactionContext,
    CompactionResult,
    DefaultCompactionStrategy,
    rebuild_session_context,
    validate_compaction,
)
from prism.memory.observational import (
    MEMORY_PREAMBLE,
    ObservationalCompactionStrategy,
    build_projection,
)

from .branches import SESSION, Log, seen


def context(log: Log, **fields: Any) -> CompactionContext:
    return CompactionContext(session_id=SESSION, entries=log.entries, **fields)


async def compacted(
    log: Log, strategy: ObservationalCompactionStrategy | None = None, **fields: Any
) -> CompactionResult:
    """The result, which is valid; its entry is appended."""
    chosen = strategy or ObservationalCompactionStrategy(
        keep_recent_entries=2, clock=lambda: 0.0, new_id=lambda _: f"c{len(log.entries)}"
    )
    result = await chosen.compact(context(log, **fields))
    assert result is not None
    entry = validate_compaction(context(log, **fields), result)
    log.entries.append(entry)
    return result


def data(result: CompactionResult) -> dict[str, Any]:
    return dict(result.entries[0].data or {})


def observed(count: int, *, words: int = 3) -> Log:
    """Messages, each with an observation of its own."""
    log = Log()
    ids = log.talk(count, words)
    log.observe(ids[-1], *(seen(f"fact {key}", key) for key in ids))
    return log


async def test_the_summary_is_the_memory_of_what_leaves_and_the_snapshot_holds_it() -> None:
    log = observed(6)
    result = await compacted(log)
    assert result.summary.startswith(MEMORY_PREAMBLE)
    assert [f"fact m{n}" in result.summary for n in range(1, 7)] == [True] * 4 + [False] * 2
    assert data(result)["throughEntryId"] == "m4"
    assert data(result)["keepEntryIds"] == ["m5", "m6"]
    memory = data(result)["memory"]
    assert memory["type"] == "om.folded"
    assert memory["version"] == 1
    assert memory["fullFold"] is False
    assert len(memory["observations"]) == 4
    assert memory["reflections"] == memory["droppedObservationIds"] == []
    assert "uncoveredEntryIds" not in data(result)
    visible = build_projection(log.entries).visible
    assert visible is not None
    assert len(visible.observations) == 4


async def test_the_same_input_gives_a_byte_identical_summary_and_snapshot() -> None:
    first, second = await compacted(observed(6)), await compacted(observed(6))
    assert encode(first) == encode(second)


async def test_without_memory_the_fallback_compacts_and_no_empty_summary_is_stored() -> None:
    log = Log()
    log.talk(12)
    result = await compacted(log, ObservationalCompactionStrategy())
    assert data(result)["strategy"] == "default-compaction"
    assert result.summary
    alone = ObservationalCompactionStrategy(fallback=None)
    log.talk(12)
    assert await alone.compact(context(log)) is None


async def test_memory_that_has_nothing_to_show_leaves_it_to_the_fallback() -> None:
    log = Log()
    log.talk(6)
    log.observe("m6", seen("of the newest", "m6"))
    result = await compacted(log)
    assert data(result)["strategy"] == "default-compaction"


async def test_a_call_and_its_result_are_kept_together() -> None:
    log = Log()
    log.talk(4)
    asked, answered = log.call("read", {}, "text")
    log.say("so")
    log.observe("m7", seen("a", "m1"))
    result = await compacted(log)
    assert data(result)["keepEntryIds"] == [asked, answered, "m7"]


async def test_messages_that_nobody_observed_stay_raw() -> None:
    log = Log()
    log.talk(10)
    log.observe("m5", seen("a", "m1"), seen("b", "m5"))
    result = await compacted(log)
    assert data(result)["throughEntryId"] == "m5"
    assert data(result)["keepEntryIds"] == ["m6", "m7", "m8", "m9", "m10"]
    assert "uncoveredEntryIds" not in data(result)


async def test_over_four_times_the_kept_messages_the_rest_is_reported() -> None:
    log = Log()
    log.talk(20)
    log.observe("m5", seen("a", "m1"))
    result = await compacted(log)
    assert data(result)["keepEntryIds"] == [f"m{n}" for n in range(13, 21)]
    assert data(result)["uncoveredEntryIds"] == [f"m{n}" for n in range(6, 13)]


async def test_what_is_reported_is_covered_once_it_is_observed() -> None:
    log = Log()
    log.talk(20)
    log.observe("m5", seen("a", "m1"))
    await compacted(log)
    log.observe("m20", seen("late", "m8"))
    log.talk(4)
    log.observe("m24")
    result = await compacted(log)
    assert "uncoveredEntryIds" not in data(result)
    assert "late" in result.summary


async def test_a_summary_of_the_host_that_leaves_is_reported() -> None:
    log = Log()
    log.talk(2)
    summary = log.summary("The host's own.")
    log.talk(4)
    log.observe("m6", seen("a", "m1"))
    assert data(await compacted(log))["uncoveredEntryIds"] == [summary]


async def test_marked_messages_are_neither_observed_nor_reported() -> None:
    log = Log()
    log.say("Reminder: be nice.", metadata={"observe": False})
    log.talk(5)
    log.observe("m6", seen("a", "m2"))
    log.entries[-1].data["coversUpToId"] = "m6"  # type: ignore[union-attr]
    assert "uncoveredEntryIds" not in data(await compacted(log))


async def test_what_only_another_summary_stands_for_is_left_to_the_fallback() -> None:
    log = Log()
    log.talk(12)
    log.compaction("m8", "Another summary.", keepEntryIds=[])
    log.observe("m4", seen("a", "m1"))
    log.talk(4)
    result = await compacted(log)
    assert data(result)["strategy"] == "default-compaction"
    assert "Another summary." in result.summary
    log.observe("m16", seen("b", "m6"))
    log.talk(4)
    assert data(await compacted(log))["strategy"] == "observational-memory"


async def test_when_all_unobserved_messages_fit_there_is_nothing_to_fold() -> None:
    log = Log()
    log.talk(4)
    log.observe("m1", seen("a", "m1"))
    strategy = ObservationalCompactionStrategy(keep_recent_entries=3)
    assert await strategy.compact(context(log)) is not None
    strategy = ObservationalCompactionStrategy(keep_recent_entries=8)
    assert await strategy.compact(context(log)) is None


async def test_on_overflow_the_fallback_folds_what_would_all_stay() -> None:
    log = Log()
    log.talk(12)
    log.observe("m1", seen("a", "m1"))
    log.entries = [entry for entry in log.entries if entry.id != "m1"]
    strategy = ObservationalCompactionStrategy(keep_recent_entries=4)
    assert await strategy.compact(context(log)) is None
    result = await strategy.compact(context(log, trigger="overflow"))
    assert result is not None
    assert data(result)["strategy"] == "default-compaction"


async def test_the_input_of_the_run_under_way_stays_raw() -> None:
    log = observed(8)
    result = await compacted(log, protected_entry_ids=["m1"])
    assert data(result)["keepEntryIds"] == ["m1", "m7", "m8"]
    assert "fact m1" not in result.summary


async def test_the_caller_overrides_how_much_is_kept_and_says_what_matters() -> None:
    log = observed(8)
    result = await compacted(
        log, keep_recent_entries=4, instructions="Look at\nthe port.", max_summary_chars=100_000
    )
    assert data(result)["keepEntryIds"] == ["m5", "m6", "m7", "m8"]
    assert result.summary.endswith("compaction\nLook at the port.")
    with pytest.raises(UsageError):
        await compacted(log, keep_recent_entries=0)


async def test_a_failure_inside_leaves_it_to_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault, with hunter2 in it")

    monkeypatch.setattr("prism.memory.observational._strategy.fold_memory", broken)
    log = observed(8)
    assert data(await compacted(log))["strategy"] == "default-compaction"
    alone = ObservationalCompactionStrategy(fallback=None, keep_recent_entries=2)
    log = observed(8)
    with pytest.raises(CompactionError) as raised:
        await alone.compact(context(log, secrets=["hunter2"]))
    assert "hunter2" not in str(raised.value)


async def test_a_memory_that_is_too_large_leaves_it_to_the_fallback() -> None:
    log = observed(8)
    small = ObservationalCompactionStrategy(keep_recent_entries=2, max_folded_bytes=200)
    assert data(await compacted(log, small))["strategy"] == "default-compaction"
    small = ObservationalCompactionStrategy(
        keep_recent_entries=2, max_folded_bytes=200, fallback=None
    )
    with pytest.raises(CompactionError) as raised:
        await small.compact(context(observed(8)))
    assert raised.value.code == "memory_too_large"


async def test_three_compactions_in_a_row_only_add_at_the_end() -> None:
    log = observed(6)
    summaries = [(await compacted(log)).summary]
    for turn in range(2):
        first = 7 + 4 * turn
        log.talk(4)
        log.observe(f"m{first + 3}", *(seen(f"fact {n}", f"m{n}") for n in range(first, first + 4)))
        summaries.append((await compacted(log)).summary)
    assert summaries[1].startswith(summaries[0])
    assert summaries[2].startswith(summaries[1])
    assert rebuild_session_context(log.entries).summaries == [summaries[2]]


async def test_secrets_of_the_strategy_and_of_the_caller_are_not_in_the_summary() -> None:
    log = Log()
    log.talk(4)
    log.observe("m4", seen("keys: hunter2 and swordfish", "m1"))
    strategy = ObservationalCompactionStrategy(keep_recent_entries=2, secrets=["hunter2"])
    result = await compacted(log, strategy, secrets=["swordfish"])
    assert "hunter2" not in result.summary
    assert "swordfish" not in result.summary


async def test_compaction_keeps_what_follows_the_default_strategy_of_the_host() -> None:
    fallback = DefaultCompactionStrategy(name="mine")
    log = Log()
    log.talk(12)
    result = await compacted(log, ObservationalCompactionStrategy(fallback=fallback))
    assert data(result)["strategy"] == "mine"


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"keep_recent_entries": True},
        {"keep_recent_entries": 10_001},
        {"observations_pool_max_tokens": 0},
        {"max_summary_bytes": 0},
        {"max_folded_bytes": 10**9},
    ],
)
def test_bad_options_are_refused_when_the_strategy_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ObservationalCompactionStrategy(**fields)
