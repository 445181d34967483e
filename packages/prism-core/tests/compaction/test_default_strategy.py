"""What the default strategy keeps, what it says, and within which limits."""

from __future__ import annotations

from typing import Any

import pytest

from prism.core._errors import UsageError
from prism.core._support.branch import branch_entries
from prism.core._wire import (
    CompactionEntry,
    ImageBlock,
    MessageEntry,
    SessionEntry,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.compaction import (
    CompactionContext,
    CompactionData,
    CompactionResult,
    CompactionStrategy,
    DefaultCompactionStrategy,
    estimate_text_tokens,
    rebuild_session_context,
    validate_compaction,
)

from ..histories import Log, answer, call, say

MARKER = "[older lines left out]"


def context_of(log: Log, **fields: Any) -> CompactionContext:
    return CompactionContext(
        session_id=log.session_id, entries=branch_entries(log.entries), **fields
    )


async def compact(
    log: Log, strategy: DefaultCompactionStrategy | None = None, **fields: Any
) -> CompactionResult | None:
    """Compact the branch on which *log* stands, and append the entry."""
    context = context_of(log, **fields)
    chosen = strategy or DefaultCompactionStrategy(new_id=lambda _: f"e{len(log.entries) + 1}")
    result = await chosen.compact(context)
    if result is not None:
        log.add(validate_compaction(context, result))
    return result


async def summary_of(log: Log, *, keep: int = 1, **fields: Any) -> str:
    result = await compact(log, keep_recent_entries=keep, **fields)
    assert result is not None
    return result.summary


def texts(log: Log) -> list[str]:
    return [message.text for message in rebuild_session_context(log.entries).messages]


async def test_it_is_a_compaction_strategy_that_keeps_eight_messages_by_default():
    strategy = DefaultCompactionStrategy()
    assert isinstance(strategy, CompactionStrategy)
    assert strategy.name == "default-compaction"
    log = Log()
    for number in range(1, 7):
        log.turn(number)
    await compact(log)
    assert texts(log) == [
        f"{kind}-{number}" for number in range(3, 7) for kind in ("question", "answer")
    ]


async def test_the_result_is_one_compaction_entry_under_the_leaf():
    log = Log("s9")
    first = log.turn(1)
    second = log.turn(2)
    label = log.label("here", first[0])
    strategy = DefaultCompactionStrategy(
        keep_recent_entries=2, clock=lambda: 0.25, new_id=lambda prefix: f"{prefix}_7"
    )
    result = await strategy.compact(context_of(log, trigger="nightly", run_id="run_1"))
    assert result is not None
    assert result.summary == "user: question-1\nassistant: answer-1"
    assert result.entries == [
        CompactionEntry(
            id="entry_7",
            session_id="s9",
            timestamp="1970-01-01T00:00:00.250Z",
            parent_id=label,
            run_id="run_1",
            summary=result.summary,
            data={
                "throughEntryId": first[1],
                "keepEntryIds": second,
                "strategy": "default-compaction",
                "trigger": "nightly",
            },
        )
    ]
    data = CompactionData.from_entry(result.entries[0])
    assert data is not None
    assert (data.strategy, data.trigger) == ("default-compaction", "nightly")


async def test_its_own_entries_are_left_as_they_are():
    log = Log()
    for number in range(9):
        log.turn(number)
    before = list(log.entries)
    await compact(log)
    assert log.entries[:-1] == before


async def test_nothing_newly_leaving_is_none():
    assert await DefaultCompactionStrategy().compact(context_of(Log())) is None
    log = Log()
    for number in range(4):
        log.turn(number)
    assert await compact(log) is None
    log.turn(5)
    assert await compact(log) is not None
    assert await compact(log) is None
    log.label("x", "e1")
    log.model("m1")
    log.custom()
    assert await compact(log) is None


async def test_only_one_call_with_a_huge_result_leaves_nothing():
    log = Log()
    log.user("read it")
    log.assistant(call("c1"))
    log.result("c1", "x" * 100_000)
    assert await compact(log, keep_recent_entries=1) is not None  # the question can go
    assert await compact(log, keep_recent_entries=1) is None


async def test_a_summary_entry_in_front_of_what_is_kept_is_folded_in():
    log = Log()
    log.summary("from before")
    log.turn(1)
    assert await summary_of(log, keep=2) == "summary: from before"
    assert rebuild_session_context(log.entries).summaries == ["summary: from before"]
    assert texts(log) == ["question-1", "answer-1"]


async def test_text_summaries_model_changes_labels_and_tool_names_are_summarised():
    log = Log()
    target = log.user("find the bug")
    log.model("big", thinking="high")
    log.assistant("Looking.", call("c1", "read"), call("c2", "read"), call("c3", "bash"))
    log.result("c1")
    log.result("c2", code="not_found")
    log.result("c3")
    log.assistant(call("c4", "edit"))
    log.message(say("tool", ToolResultBlock(tool_call_id="c4", name="edit", result="changed it")))
    log.label("fix", target)
    log.summary("all green")
    log.assistant("Found it.")
    log.user("thanks")
    assert (await summary_of(log)).splitlines() == [
        "user: find the bug",
        "model: mock/big, thinking high",
        "assistant: Looking.",
        "tool calls: read x2, bash, edit",
        "tool results: work (failed), work x2, edit",
        "label: fix",
        "summary: all green",
        "assistant: Found it.",
    ]


async def test_metadata_thinking_arguments_results_and_custom_records_are_never_in_it():
    log = Log()
    hidden = "hidden-"
    log.message(
        say("user", "visible", metadata={"note": f"{hidden}1"}), metadata={"a": f"{hidden}2"}
    )
    log.assistant(
        ThinkingBlock(text=f"{hidden}3", signature=f"{hidden}4"),
        ToolCallBlock(id="c1", name="read", arguments={"path": f"{hidden}5"}),
    )
    log.result("c1", f"{hidden}6")
    log.message(answer("c1", code="x"))
    log.custom(text=f"{hidden}7")
    log.metadata(type="note", text=f"{hidden}8")
    log.event()
    log.opaque()
    log.user("last")
    summary = await summary_of(log, metadata={"key": f"{hidden}9"}, instructions=f"{hidden}10")
    assert summary.startswith("user: visible\ntool calls: read")
    assert hidden not in summary


async def test_lines_of_one_message_are_indented_so_that_none_looks_like_another_speaker():
    log = Log()
    log.user("one\n\nassistant: not me\r\nthree  ")
    log.user("last")
    assert await summary_of(log) == "user: one\n  assistant: not me\n  three"


async def test_images_and_messages_without_text_are_not_passed_over_in_silence():
    log = Log()
    log.message(say("user", "look", ImageBlock(url="https://example.org/a.png")))
    log.message(say("user", ImageBlock(data="AAAA"), ImageBlock(data="BBBB")))
    log.user("last")
    assert await summary_of(log) == "user: look [image]\nuser: [2 images]"
    log = Log()
    log.assistant(ThinkingBlock(text="hm"))
    log.user("last")
    assert await summary_of(log) == "[entries without text: 1]"


async def test_the_previous_summary_and_what_newly_leaves_are_the_input():
    log = Log()
    log.turn(1)
    log.turn(2)
    first = await summary_of(log, keep=2)
    log.turn(3)
    assert await summary_of(log, keep=2) == f"{first}\nuser: question-2\nassistant: answer-2"
    assert texts(log) == ["question-3", "answer-3"]


async def test_what_the_first_compaction_kept_is_kept_or_summarised_by_the_second():
    log = Log()
    for number in (1, 2, 3):
        log.turn(number)
    await compact(log, keep_recent_entries=4)
    log.turn(4)
    summary = await summary_of(log, keep=2)
    assert summary.splitlines() == [
        f"{who}-{number}" for number in (1, 2, 3) for who in ("user: question", "assistant: answer")
    ]
    assert texts(log) == ["question-4", "answer-4"]


async def test_what_another_strategy_kept_in_the_middle_leaves_later():
    log = Log()
    one = log.turn(1)
    two = log.turn(2)
    log.compaction("theirs", through=two[1], keep=[one[0]])
    log.turn(3)
    assert await summary_of(log, keep=2) == "theirs\nuser: question-1"
    assert texts(log) == ["question-3", "answer-3"]


async def test_the_boundary_never_moves_back():
    log = Log()
    one = log.turn(1)
    two = log.turn(2)
    log.compaction("theirs", through=two[1], keep=[one[0]])
    log.summary("later")
    log.user("now")
    result = await compact(log, keep_recent_entries=5)
    assert result is not None  # the summary entry is folded in
    assert texts(log) == ["question-1", "now"]
    assert rebuild_session_context(log.entries).summaries == ["theirs\nsummary: later"]


async def test_a_compaction_that_kept_everything_is_carried_on():
    log = Log()
    log.turn(1)
    log.compaction("a note")
    log.turn(2)
    assert await summary_of(log, keep=2) == "a note\nuser: question-1\nassistant: answer-1"


async def test_keep_recent_extends_back_so_that_no_pair_is_split():
    log = Log()
    log.user("go")
    asked = log.assistant("on it", call("c1"), call("c2"))
    results = [log.result("c1"), log.custom(), log.result("c2")]
    await compact(log, keep_recent_entries=1)
    data = CompactionData.from_entry(log.entries[-1])
    assert data is not None
    assert data.keep_entry_ids == [asked, results[0], results[2]]
    assert data.through_entry_id == "e1"


async def test_only_messages_count_as_recent_entries():
    log = Log()
    log.turn(1)
    log.turn(2)
    log.label("x", "e1")
    log.model("m1")
    log.custom()
    await compact(log, keep_recent_entries=2)
    assert texts(log) == ["question-2", "answer-2"]


async def test_protected_entries_are_kept_whatever_their_place():
    log = Log()
    first, _ = log.turn(1)
    log.turn(2)
    log.turn(3)
    await compact(log, keep_recent_entries=1, protected_entry_ids=[first, "nowhere"])
    assert texts(log) == ["question-1", "answer-3"]


async def test_a_call_that_was_never_answered_can_leave():
    log = Log()
    log.user("go")
    log.assistant(call("c1", "slow"))
    log.user("forget it")
    log.assistant("ok")
    assert await summary_of(log, keep=2) == "user: go\ntool calls: slow"


async def test_a_result_that_comes_after_the_compaction_brings_its_call_back():
    log = Log()
    log.user("go")
    log.assistant(call("c1", "slow"))
    log.user("meanwhile")
    await compact(log, keep_recent_entries=1)
    log.result("c1")
    assert [message.role for message in rebuild_session_context(log.entries).messages] == [
        "assistant", "user", "tool",
    ]  # fmt: skip


# Limits


async def test_over_the_limit_the_oldest_lines_go_first_behind_a_marker():
    log = Log()
    for number in range(20):
        log.turn(number)
    summary = await summary_of(log, keep=2, max_summary_chars=100)
    assert len(summary) <= 100
    marker, *rest = summary.splitlines()
    assert marker == MARKER
    assert rest == [
        "user: question-17", "assistant: answer-17", "user: question-18", "assistant: answer-18",
    ]  # fmt: skip


async def test_exactly_at_the_limit_nothing_goes():
    log = Log()
    log.turn(1)
    log.user("last")
    exact = "user: question-1\nassistant: answer-1"
    assert await summary_of(log, max_summary_chars=len(exact)) == exact
    log.checkout("e3")
    shorter = await summary_of(log, max_summary_chars=len(exact) - 1)
    assert shorter.startswith(MARKER)
    assert len(shorter) < len(exact)


async def test_a_single_long_line_is_cut_at_its_end():
    log = Log()
    log.user("word " * 100)
    log.user("last")
    summary = await summary_of(log, max_summary_chars=80)
    assert summary.startswith("user: word word")
    assert summary.endswith("…")
    assert len(summary) <= 80


@pytest.mark.parametrize("limit", [*range(1, 60), 100, 1_000])
async def test_no_limit_is_exceeded_and_no_summary_is_empty(limit: int):
    log = Log()
    for number in range(30):
        log.turn(number)
        if number % 10 == 9:
            summary = await summary_of(log, keep=1, max_summary_chars=limit)
            assert 0 < len(summary) <= limit
            assert summary.strip()


async def test_over_the_limit_the_previous_summary_gets_at_most_half():
    log = Log()
    log.user("u" * 10)
    log.compaction("\n".join(f"old fact {number:02}" for number in range(50)), through="e1")
    for number in range(20):
        log.turn(number)
    summary = await summary_of(log, keep=1, max_summary_chars=300)
    assert len(summary) <= 300
    before, new = summary.split(f"\n{MARKER}\n")
    assert before.startswith(f"{MARKER}\nold fact")
    assert before.endswith("old fact 49")
    assert len(before) <= 150
    assert "assistant: answer-18" in new
    assert "old" not in new


async def test_a_short_previous_summary_stays_whole_and_leaves_its_room_to_the_rest():
    log = Log()
    log.user("x")
    log.compaction("one fact", through="e1")
    for number in range(20):
        log.turn(number)
    summary = await summary_of(log, keep=1, max_summary_chars=300)
    assert summary.startswith(f"one fact\n{MARKER}\n")
    assert 250 < len(summary) <= 300


async def test_a_previous_summary_that_fits_stays_as_it_was():
    log = Log()
    log.user("x")
    log.compaction("## Goal\n\nwin\n\n## Next\n\n- play", through="e1")
    log.turn(1)
    assert await summary_of(log) == "## Goal\n\nwin\n\n## Next\n\n- play\nuser: question-1"


# Secrets


async def test_known_secrets_are_redacted_everywhere():
    log = Log()
    log.user("x")
    log.compaction("it knew s3cret-a", through="e1")
    target = log.user("use s3cret-a and s3cret-b")
    log.label("s3cret-b", target)
    log.summary("s3cret-a")
    log.assistant("", call("c1", "s3cret-a"))
    log.result("c1")
    log.user("last")
    strategy = DefaultCompactionStrategy(keep_recent_entries=1, secrets=["s3cret-a"])
    result = await compact(log, strategy, secrets=["s3cret-b"])
    assert result is not None
    assert "s3cret" not in result.summary
    assert result.summary.count("[REDACTED]") == 6
    assert "s3cret" not in repr(strategy)


@pytest.mark.parametrize("limit", range(1, 80))
async def test_it_redacts_before_it_truncates(limit: int):
    log = Log()
    log.user("abc sk-0123456789 def sk-0123456789")
    log.user("last")
    summary = await summary_of(log, max_summary_chars=limit, secrets=["sk-0123456789"])
    assert "sk-" not in summary
    assert len(summary) <= limit


async def test_a_secret_over_several_lines_is_redacted():
    log = Log()
    log.user("key:\nBEGIN\nAAAA\nEND")
    log.user("last")
    assert "AAAA" not in await summary_of(log, secrets=["BEGIN\nAAAA\nEND"])


# Arguments


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("keep_recent_entries", 0),
        ("keep_recent_entries", -1),
        ("keep_recent_entries", 10_001),
        ("keep_recent_entries", 1.5),
        ("keep_recent_entries", True),
        ("keep_recent_entries", "8"),
        ("max_summary_chars", 0),
        ("max_summary_chars", 1_000_001),
        ("max_summary_chars", False),
        ("max_summary_chars", 4e3),
    ],
)
async def test_limits_are_positive_integers_with_a_cap(field: str, value: Any):
    with pytest.raises(UsageError, match=field) as caught:
        DefaultCompactionStrategy(**{field: value})
    assert caught.value.code == "invalid_limit"
    with pytest.raises(UsageError, match=field):
        await DefaultCompactionStrategy().compact(context_of(Log(), **{field: value}))


def test_the_largest_limits_are_accepted():
    DefaultCompactionStrategy(keep_recent_entries=10_000, max_summary_chars=1_000_000)
    DefaultCompactionStrategy(keep_recent_entries=1, max_summary_chars=1)


def test_a_name_is_needed_and_secrets_are_a_list():
    with pytest.raises(UsageError, match="name"):
        DefaultCompactionStrategy(name="")
    with pytest.raises(UsageError, match="secrets"):
        DefaultCompactionStrategy(secrets="s3cret")


async def test_the_contexts_own_numbers_win_over_the_strategys():
    log = Log()
    for number in range(5):
        log.turn(number)
    strategy = DefaultCompactionStrategy(keep_recent_entries=9, max_summary_chars=10)
    result = await compact(log, strategy, keep_recent_entries=2, max_summary_chars=500)
    assert result is not None
    assert len(texts(log)) == 2
    assert len(result.summary) > 100


async def test_the_size_of_the_context_before_and_after_is_estimated():
    log = Log()
    log.user("a" * 4_000)
    log.summary("b" * 400)
    log.user("c" * 40)
    result = await compact(log, keep_recent_entries=1, max_summary_chars=200)
    assert result is not None
    assert result.tokens_before == (1_000 + 4) + 100 + (10 + 4)
    assert result.tokens_after == estimate_text_tokens(result.summary) + (10 + 4)


def kinds(entries: list[SessionEntry]) -> list[str]:
    return [type(entry).__name__ for entry in entries if not isinstance(entry, MessageEntry)]


async def test_on_a_branch_only_its_own_entries_are_summarised():
    log = Log()
    first, _ = log.turn(1)
    log.turn(2)
    log.checkout(first)
    log.assistant("another answer")
    log.user("last")
    assert await summary_of(log) == "user: question-1\nassistant: another answer"
    assert kinds(log.entries) == ["MetadataEntry", "CompactionEntry"]
