from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from prism.core import (
    CompactionEntry,
    CompactionError,
    ModelConfig,
    ModelLimits,
    ProviderOptions,
    Secret,
    Usage,
    UsageError,
)
from prism.core.compaction import DefaultCompactionStrategy
from prism.core.providers import CredentialRequest
from prism.memory.llm import (
    CODING_FOCUS,
    MAX_ERROR_BYTES,
    MAX_RESERVE_TOKENS,
    MAX_SUMMARY_TOKENS,
    SUMMARY_PROMPT,
    SUMMARY_SYSTEM_PROMPT,
    TURN_PREFIX_HEADING,
    TURN_PREFIX_PROMPT,
    UPDATE_PROMPT,
    CodingCompactionStrategy,
    LlmCompactionStrategy,
    SummaryPrompts,
    serialize_conversation,
)

from .branches import MODEL, Log, Summariser, call, say, strategy


def summariser(_: Secret | None) -> Summariser:
    return Summariser()


def split_log() -> Log:
    """Two turns, and one that is longer than the budget."""
    log = Log().turns(2)
    log.user("a long task")
    for number in range(1, 7):
        log.step(number)
    return log


def transcript_of(text: str) -> str:
    return text.removeprefix("<transcript>\n").split("\n</transcript>")[0]


async def test_one_call_summarises_what_leaves_the_context() -> None:
    log = Log().turns(6)
    provider = Summariser("## Goal\nTo be brief.")
    result = await strategy(provider).compact(log.context())
    assert result is not None
    (request,) = provider.requests
    assert request.system == (SUMMARY_SYSTEM_PROMPT,)
    assert not request.tools
    assert provider.texts == [
        f"<transcript>\n{serialize_conversation(log.entries[:8])}\n</transcript>\n\n{SUMMARY_PROMPT}"
    ]
    assert result.summary == "## Goal\nTo be brief."
    assert result.usage == Usage(input_tokens=100, output_tokens=10)
    (entry,) = result.entries
    assert entry == CompactionEntry(
        id=entry.id,
        session_id="s1",
        timestamp="2026-01-01T00:00:00.000Z",
        parent_id="e12",
        summary="## Goal\nTo be brief.",
        data={
            "throughEntryId": "e8",
            "keepEntryIds": ["e9", "e10", "e11", "e12"],
            "strategy": "llm-compaction",
            "trigger": "manual",
            "firstKeptEntryId": "e9",
            "estimatedTokensBefore": 1284,
            "estimatedTokensAfter": 433,
        },
    )
    assert (result.tokens_before, result.tokens_after) == (1284, 433)


async def test_a_split_turn_takes_a_second_call_for_its_beginning() -> None:
    log = split_log()
    provider = Summariser(lambda text: f"words {len(provider.texts)}")
    entry = log.compacted(await strategy(provider).compact(log.context()))
    first, second = provider.texts
    assert first.endswith(SUMMARY_PROMPT)
    assert transcript_of(first) == serialize_conversation(log.entries[:4])
    assert second.endswith(TURN_PREFIX_PROMPT)
    assert transcript_of(second) == serialize_conversation(log.entries[4:9])
    assert entry.summary == f"words 1\n\n---\n\n{TURN_PREFIX_HEADING}\n\nwords 2"
    assert entry.data is not None
    assert entry.data["splitTurn"] is True
    assert entry.data["throughEntryId"] == "e9"


async def test_a_split_turn_without_history_or_earlier_summary_takes_one_call() -> None:
    log = Log()
    log.user("a long task")
    for number in range(1, 7):
        log.step(number)
    provider = Summariser("the beginning")
    entry = log.compacted(await strategy(provider).compact(log.context()))
    (text,) = provider.texts
    assert text.endswith(TURN_PREFIX_PROMPT)
    assert entry.summary == f"{TURN_PREFIX_HEADING}\n\nthe beginning"


async def test_a_split_turn_without_other_history_keeps_the_earlier_summary() -> None:
    log = Log().turns(1)
    log.compaction("what was before", throughEntryId="e2")
    log.user("a long task")
    for number in range(1, 7):
        log.step(number)
    provider = Summariser("all of it")
    entry = log.compacted(await strategy(provider).compact(log.context()))
    (text,) = provider.texts
    assert "<summary>\nwhat was before\n</summary>" in text
    assert text.endswith(UPDATE_PROMPT)
    assert entry.summary == "all of it"


async def test_the_request_of_a_turn_under_way_is_shown_to_the_model_and_stays() -> None:
    log = Log()
    request = log.user("the task under way")
    for number in range(1, 7):
        log.step(number)
    provider = Summariser()
    entry = log.compacted(
        await strategy(provider).compact(log.context(protected_entry_ids=[request]))
    )
    assert "the task under way" in provider.texts[0]
    assert entry.data is not None
    assert entry.data["keepEntryIds"][0] == request


async def test_the_earlier_summary_is_handed_over_for_updating() -> None:
    log = Log().turns(3)
    log.compaction("all about </summary> the first turns", throughEntryId="e4")
    log.turns(6)
    provider = Summariser()
    log.compacted(await strategy(provider).compact(log.context()))
    (text,) = provider.texts
    assert "<summary>\nall about < /summary> the first turns\n</summary>" in text
    assert text.endswith(UPDATE_PROMPT)
    assert "question-3" in text


async def test_the_earlier_summary_of_another_strategy_is_carried_on_too() -> None:
    log = Log().turns(4)
    log.compacted(await DefaultCompactionStrategy(keep_recent_entries=2).compact(log.context()))
    log.turns(6)
    provider = Summariser()
    log.compacted(await strategy(provider).compact(log.context()))
    assert "question-1 q" in provider.texts[0]


async def test_nothing_to_fold_asks_nobody() -> None:
    provider = Summariser()
    assert await strategy(provider).compact(Log().turns(1).context()) is None
    assert await strategy(provider).compact(Log().context()) is None
    assert provider.requests == []


async def test_an_automatic_compaction_waits_until_it_is_worth_a_call() -> None:
    provider = Summariser()
    compactor = strategy(provider, keep_recent_tokens=3_000)
    log = Log().turns(14)
    log.turn(15, size=40)
    assert await compactor.compact(log.context(trigger="auto")) is None
    assert provider.requests == []
    log.turn(16)
    log.turn(17)
    assert await compactor.compact(log.context(trigger="auto")) is not None
    assert await compactor.compact(log.context()) is not None


async def test_entries_without_any_text_are_covered_without_asking_a_model() -> None:
    log = Log().turns(1)
    log.compaction("before", throughEntryId="e2")
    for _ in range(40):
        log.assistant()
    log.turns(2)
    provider = Summariser()
    entry = log.compacted(await strategy(provider).compact(log.context()))
    assert entry.summary == "before"
    assert provider.requests == []
    bare = Log()
    for _ in range(40):
        bare.assistant()
    bare.turns(2)
    assert await strategy(provider).compact(bare.context()) is None


async def test_a_summary_that_would_not_shrink_the_context_is_not_used() -> None:
    provider = Summariser("long " * 2_000)
    assert await strategy(provider).compact(Log().turns(6).context()) is None
    assert len(provider.requests) == 1


async def test_the_hundredth_compaction_still_carries_on_what_the_first_one_knew() -> None:
    log = Log()
    facts: list[str] = []

    def reply(text: str) -> str:
        # A model that copies the facts that it is shown, as an ideal one would.
        seen = [fact for fact in facts if fact in text]
        return " ".join(seen[-200:])

    provider = Summariser(reply)
    compactor = strategy(provider, keep_recent_tokens=40)
    for number in range(1, 101):
        facts.append(f"fact-{number:03d}.")
        log.user(f"{facts[-1]} " + "x" * 300)
        log.step(number, size=300, name="read", path=f"file-{number:03d}.py")
        log.assistant(f"answer {number}")
        entry = log.compacted(await compactor.compact(log.context()))
        assert all(fact in entry.summary for fact in facts)
        assert entry.data is not None
        assert entry.data["readFiles"] == [f"file-{n:03d}.py" for n in range(1, number + 1)]
        # The lists of files are not shown to the model as a part of the summary.
        assert "<read-files>" not in provider.texts[-1].split("<summary>")[-1]
    assert len(log.compacted.__self__.entries) == 500


# Output limits


@pytest.mark.parametrize(
    ("options", "history", "prefix"),
    [
        ({}, 13_107, 8_192),
        ({"max_summary_tokens": 800}, 800, 800),
        ({"max_output_tokens": 700}, 700, 700),
        ({"max_summary_tokens": 800, "max_output_tokens": 700}, 800, 800),
        ({"reserve_tokens": 1_000}, 800, 500),
        ({"reserve_tokens": 1}, 1, 1),
        ({"summary_model": replace(MODEL, limits=ModelLimits(max_output_tokens=900))}, 900, 900),
        ({"summary_model": replace(MODEL, parameters={"maxTokens": 600, "x": 1})}, 600, 600),
        ({"summary_model": replace(MODEL, parameters={"maxTokens": math.nan})}, 13_107, 8_192),
    ],
)
async def test_each_request_has_a_finite_limit_of_output(
    options: dict[str, Any], history: int, prefix: int
) -> None:
    provider = Summariser()
    await strategy(provider, **options).compact(split_log().context())
    asked = [(request.model.parameters or {})["maxTokens"] for request in provider.requests]
    assert asked == [history, prefix]
    host = options.get("summary_model", MODEL)
    assert all(
        request.model == replace(host, parameters=request.model.parameters)
        for request in provider.requests
    )


CAPS = {
    "reserve_tokens": MAX_RESERVE_TOKENS,
    "max_summary_tokens": MAX_SUMMARY_TOKENS,
    "max_output_tokens": MAX_SUMMARY_TOKENS,
    "max_error_bytes": MAX_ERROR_BYTES,
    "keep_recent_tokens": 10_000_000,
    "max_tool_result_chars": 1_000_000,
}


@pytest.mark.parametrize("name", CAPS)
@pytest.mark.parametrize("value", [True, 1.0, math.nan, math.inf, 0, -1, "5", 2**53])
def test_a_limit_that_is_no_integer_within_its_cap_is_refused_at_once(
    name: str, value: Any
) -> None:
    with pytest.raises(UsageError, match="must be an integer from 1 to") as caught:
        strategy(**{name: value})
    assert caught.value.code == "invalid_limit"


@pytest.mark.parametrize("name", CAPS)
def test_the_caps_themselves_are_accepted(name: str) -> None:
    strategy(**{name: CAPS[name]})
    strategy(**{name: 1})
    with pytest.raises(UsageError):
        strategy(**{name: CAPS[name] + 1})


def test_the_caps_are_those_of_the_specification() -> None:
    assert (MAX_RESERVE_TOKENS, MAX_SUMMARY_TOKENS, MAX_ERROR_BYTES) == (131_072, 131_072, 8_192)


# Model and provider


async def test_the_summary_model_and_provider_win_over_the_fallbacks() -> None:
    fallback, chosen = Summariser(), Summariser()
    compactor = strategy(
        fallback, summary_provider=chosen, model=ModelConfig(provider="mock", model="chat")
    )
    await compactor.compact(Log().turns(6).context())
    assert fallback.requests == []
    assert chosen.requests[0].model.model == "summariser"
    other = strategy(fallback, summary_model=None, model=ModelConfig(provider="m", model="chat"))
    await other.compact(Log().turns(6).context())
    assert fallback.requests[0].model.model == "chat"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"provider": Summariser()}, "no_model_for_use_case"),
        ({"model": MODEL}, "missing_provider"),
        ({"model": MODEL, "provider": "openai"}, "invalid_params"),
        (
            {"model": MODEL, "provider": Summariser(), "thinking_level": "x"},
            "unknown_thinking_level",
        ),
        ({"model": MODEL, "provider": Summariser(), "name": ""}, "invalid_name"),
        ({"model": MODEL, "provider": Summariser(), "secrets": "abc"}, "invalid_secret"),
        (
            {
                "model": MODEL,
                "provider": Summariser(),
                "credential_request": CredentialRequest(provider="x"),
            },
            "invalid_params",
        ),
        (
            {
                "model": MODEL,
                "provider": summariser,
                "credential_request": CredentialRequest(provider="x"),
            },
            "invalid_params",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_the_strategy_is_made(
    options: dict[str, Any], code: str
) -> None:
    with pytest.raises(UsageError) as caught:
        LlmCompactionStrategy(**options)
    assert caught.value.code == code


# What is asked


async def test_requests_carry_the_session_of_the_agent() -> None:
    provider = Summariser()
    await strategy(provider).compact(split_log().context())
    for request in provider.requests:
        assert request.options == ProviderOptions(session_id="s1", cache_key="s1")


async def test_options_of_the_host_are_kept() -> None:
    provider = Summariser()
    options = ProviderOptions(cache_retention="short", cache_key="mine", timeout_ms=5_000)
    await strategy(provider, provider_options=options).compact(Log().turns(6).context())
    assert provider.requests[0].options == replace(options, session_id="s1")


class OverTheWire(Summariser):
    """A summary model that is asked in the form of a vendor."""

    api = "openai-chat"


@pytest.mark.parametrize(("level", "sent"), [("off", "none"), ("none", "none"), ("high", "high")])
async def test_a_thinking_level_is_asked_for_in_the_form_of_the_model(
    level: str, sent: str
) -> None:
    provider = OverTheWire()
    options = ProviderOptions(compat={"other": 1})
    model = ModelConfig(provider="openai", model="gpt-5.1")
    compactor = strategy(
        provider, summary_model=model, thinking_level=level, provider_options=options
    )
    await compactor.compact(Log().turns(6).context())
    compat = provider.requests[0].options.compat
    assert compat is not None
    assert compat["other"] == 1
    assert compat["thinking"]["body"] == {"reasoning_effort": sent}


async def test_a_thinking_family_that_nobody_knows_stops_the_request() -> None:
    provider = OverTheWire()
    model = replace(MODEL, compat={"thinkingFamily": "nobody"})
    compactor = strategy(provider, summary_model=model, thinking_level="high")
    with pytest.raises(CompactionError, match="unknown thinking family") as caught:
        await compactor.compact(Log().turns(6).context())
    assert caught.value.code == "unknown_thinking_family"
    assert provider.requests == []


async def test_instructions_of_host_and_caller_are_in_every_request() -> None:
    provider = Summariser()
    compactor = strategy(provider, custom_instructions="Look at tests.")
    await compactor.compact(split_log().context(instructions="Look at docs."))
    assert len(provider.texts) == 2
    for text in provider.texts:
        assert text.endswith("Pay special attention to this:\nLook at tests.\nLook at docs.")


async def test_every_text_can_be_replaced() -> None:
    provider = Summariser(lambda text: f"words {len(provider.texts)}")
    prompts = SummaryPrompts(
        system="SYSTEM", initial="INITIAL", update="UPDATE", turn_prefix="PREFIX",
        turn_heading="HEADING",
    )  # fmt: skip
    log = split_log()
    log.compacted(await strategy(provider, prompts=prompts).compact(log.context()))
    assert [request.system for request in provider.requests] == [("SYSTEM",)] * 2
    assert provider.texts[0].endswith("\n\nINITIAL")
    assert provider.texts[1].endswith("\n\nPREFIX")
    assert log.entries[-1].summary == "words 1\n\n---\n\nHEADING\n\nwords 2"  # type: ignore[union-attr]


async def test_long_results_are_shown_within_the_limit_of_the_strategy() -> None:
    log = Log()
    log.step(1, size=10_000)
    log.turns(4)
    provider = Summariser()
    await strategy(provider, max_tool_result_chars=50).compact(log.context())
    assert "r" * 40 not in provider.texts[0]


# What the caller may override


async def test_the_caller_can_ask_for_a_number_of_messages_and_a_length() -> None:
    log = Log().turns(3)
    provider = Summariser("a summary " * 100)
    context = log.context(keep_recent_entries=2, max_summary_chars=100)
    entry = log.compacted(await strategy(provider).compact(context))
    assert len(entry.summary) <= 100
    assert entry.data is not None
    assert entry.data["keepEntryIds"] == ["e5", "e6"]


@pytest.mark.parametrize("name", ["keep_recent_entries", "max_summary_chars"])
async def test_an_override_that_is_no_limit_is_refused(name: str) -> None:
    for value in (0, True, 10**9):
        with pytest.raises(UsageError, match=name):
            await strategy().compact(Log().turns(6).context(**{name: value}))


async def test_an_overflow_compacts_also_what_is_within_the_budget() -> None:
    log = Log().turns(6)
    compactor = strategy(keep_recent_tokens=1_000_000)
    assert await compactor.compact(log.context()) is None
    entry = log.compacted(await compactor.compact(log.context(trigger="overflow")))
    assert entry.data is not None
    assert entry.data["trigger"] == "overflow"
    assert entry.data["estimatedTokensAfter"] < entry.data["estimatedTokensBefore"] / 2 + 20


# Files


async def test_files_are_kept_in_the_data_and_listed_in_the_summary() -> None:
    log = Log()
    log.step(1, name="read", path="a.py")
    log.step(2, name="write", path="b.py")
    log.turns(4)
    entry = log.compacted(await strategy(Summariser("Words.")).compact(log.context()))
    assert entry.data is not None
    assert entry.data["readFiles"] == ["a.py"]
    assert entry.data["modifiedFiles"] == ["b.py"]
    assert entry.summary == (
        "Words.\n\n<read-files>\na.py\n</read-files>\n<modified-files>\nb.py\n</modified-files>"
    )


@pytest.mark.parametrize(
    ("options", "in_data", "in_summary"),
    [
        ({"include_file_operations": False}, True, False),
        ({"track_file_operations": False}, False, False),
    ],
)
async def test_files_can_be_left_out(
    options: dict[str, Any], in_data: object, in_summary: object
) -> None:
    log = Log()
    log.step(1, name="read", path="a.py")
    log.turns(4)
    entry = log.compacted(await strategy(**options).compact(log.context()))
    assert ("readFiles" in (entry.data or {})) is in_data
    assert ("a.py" in entry.summary) is in_summary


async def test_summary_turn_and_files_share_one_limit() -> None:
    log = Log()
    for number in range(1, 60):
        log.step(number, size=100, name="read", path=f"src/module/file_{number}.py")
    log.user("a long task")
    for number in range(101, 140):
        log.step(number, size=100)
    provider = Summariser(lambda text: f"summary {len(provider.texts)}: " + "word " * 500)
    compactor = strategy(provider, max_summary_tokens=100, keep_recent_tokens=100)
    entry = log.compacted(await compactor.compact(log.context()))
    assert 350 < len(entry.summary) <= 400
    assert "summary 1: word" in entry.summary
    assert f"{TURN_PREFIX_HEADING}\n\nsummary 2: word" in entry.summary
    assert "earlier)" in entry.summary
    assert entry.summary.endswith("</read-files>")
    assert entry.data is not None
    assert len(entry.data["readFiles"]) == 59
    assert entry.data["truncated"] is True


# The preset for programming


async def test_the_coding_preset_has_its_name_its_focus_and_files() -> None:
    log = Log()
    log.step(1, name="edit", path="a.py")
    log.turns(4)
    provider = Summariser()
    compactor = CodingCompactionStrategy(
        provider=provider,
        summary_model=MODEL,
        keep_recent_tokens=420,
        max_summary_tokens=800,
        custom_instructions="Keep blockers.",
    )
    entry = log.compacted(await compactor.compact(log.context()))
    assert compactor.name == "coding"
    assert entry.data is not None
    assert entry.data["strategy"] == "coding"
    assert entry.data["modifiedFiles"] == ["a.py"]
    assert f"{CODING_FOCUS}\nKeep blockers." in provider.texts[0]
    assert len(provider.requests) == 1


@pytest.mark.parametrize("name", ["name", "track_file_operations", "include_file_operations"])
def test_what_the_coding_preset_fixes_cannot_be_given(name: str) -> None:
    options: dict[str, Any] = {"provider": Summariser(), "model": MODEL, name: False}
    with pytest.raises(UsageError, match=f"{name} is fixed"):
        CodingCompactionStrategy(**options)


def test_the_strategy_shows_its_model_and_nothing_else() -> None:
    shown = repr(strategy(secrets=["hush-hush"], custom_instructions="hush-hush"))
    assert shown == "LlmCompactionStrategy('llm-compaction', model=mock/summariser)"


async def test_thinking_and_calls_in_the_history_are_summarised() -> None:
    log = Log()
    log.message(say("assistant", call("a", "search", query="needle")))
    log.result("a", "found the needle")
    log.turns(4)
    provider = Summariser()
    await strategy(provider).compact(log.context())
    assert '[tool call search]\n  {"query":"needle"}' in provider.texts[0]
    assert "found the needle" in provider.texts[0]
