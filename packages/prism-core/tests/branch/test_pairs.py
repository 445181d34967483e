"""Pair repair: what a provider is sent has each call with its result, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from prism.core._support.pairs import PairRepairer, repair_pairs, split_results
from prism.core._wire import (
    ImageBlock,
    Message,
    OpaqueBlock,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)

from ..histories import (
    CALL_IDS,
    answer,
    assert_pairs_are_whole,
    call,
    conversations,
    say,
)


def result(message: Message) -> ToolResultBlock:
    (block,) = message.content
    assert isinstance(block, ToolResultBlock)
    return block


def test_a_healthy_conversation_is_sent_as_it_is():
    messages = [
        say("user", "do both"),
        say("assistant", "yes", call("c1"), call("c2"), stop_reason="tool_use"),
        answer("c1"),
        answer("c2"),
        say("assistant", "both done"),
    ]
    sendable, repairs = repair_pairs(messages)
    assert repairs == 0
    assert all(sent is given for sent, given in zip(sendable, messages, strict=True))


def test_results_without_a_call_are_dropped():
    before_its_call = [answer("c1"), say("assistant", call("c1")), answer("c1", "real")]
    sendable, repairs = repair_pairs([say("user", "hi"), answer("gone"), *before_its_call])
    assert [message.role for message in sendable] == ["user", "assistant", "tool"]
    assert result(sendable[-1]).result == "real"
    assert repairs == 2


def test_a_call_without_a_result_gets_an_interrupted_one_right_behind_it():
    sendable, repairs = repair_pairs([say("assistant", call("c1", "read")), say("user", "and?")])
    assert [message.role for message in sendable] == ["assistant", "tool", "user"]
    block = result(sendable[1])
    assert (block.tool_call_id, block.name) == ("c1", "read")
    assert block.error is not None
    assert block.error.code == "interrupted"
    assert repairs == 1


def test_a_trailing_call_gets_one_too_but_not_while_its_approval_is_open():
    messages = [say("assistant", call("c1"), call("c2"))]
    sendable, repairs = repair_pairs(messages)
    assert [result(message).tool_call_id for message in sendable[1:]] == ["c1", "c2"]
    assert repairs == 2
    sendable, repairs = repair_pairs(messages, waiting={"c2"})
    assert [result(message).tool_call_id for message in sendable[1:]] == ["c1"]
    assert repairs == 1


@pytest.mark.parametrize("code", ["interrupted", "aborted", "skipped", "outcome_unknown"])
def test_a_real_result_is_kept_over_a_synthetic_one(code: str):
    for order in ([answer("c1", code=code), answer("c1")], [answer("c1"), answer("c1", code=code)]):
        for after in ([], [say("user", "next")]):
            sendable, repairs = repair_pairs([say("assistant", call("c1")), *order, *after])
            assert [message.role for message in sendable[:2]] == ["assistant", "tool"]
            assert result(sendable[1]).result == "done"
            assert len(sendable) == 2 + len(after)
            assert repairs == 1


def test_a_late_real_result_takes_the_place_of_the_interrupted_one():
    messages = [
        say("assistant", call("c1"), call("c2")),
        answer("c2"),
        say("user", "never mind"),
        say("assistant", "fine"),
        answer("c1", "late"),
    ]
    sendable, _ = repair_pairs(messages)
    assert [message.role for message in sendable] == [
        "assistant", "tool", "tool", "user", "assistant",
    ]  # fmt: skip
    assert [result(message).result for message in sendable[1:3]] == ["late", "done"]


def test_of_two_real_results_the_first_is_kept():
    sendable, repairs = repair_pairs([
        say("assistant", call("c1")), answer("c1", 1), answer("c1", 2),
    ])  # fmt: skip
    assert [result(message).result for message in sendable[1:]] == [1]
    assert repairs == 1


def test_of_two_synthetic_results_the_first_is_kept():
    given = [answer("c1", code="skipped"), answer("c1", code="interrupted")]
    for after in ([], [say("user", "next"), given[1]]):
        sendable, _ = repair_pairs([say("assistant", call("c1")), *given, *after])
        assert sendable[1] is given[0]
        assert len(sendable) == (3 if after else 2)


def test_a_late_result_belongs_to_the_nearest_call_of_its_id_before_it():
    messages = [say("assistant", call("c1")), say("assistant", call("c1")), say("user", "next")]
    sendable, _ = repair_pairs([*messages, answer("c1", "late")])
    assert [message.role for message in sendable] == [
        "assistant", "tool", "assistant", "tool", "user",
    ]  # fmt: skip
    assert result(sendable[1]).error is not None
    assert result(sendable[3]).result == "late"
    assert result(sendable[3]).tool_call_id == sendable[2].tool_calls[0].id


def test_an_error_that_a_tool_gave_is_a_real_result():
    sendable, _ = repair_pairs([
        say("assistant", call("c1")), answer("c1", code="not_found"), answer("c1"),
    ])  # fmt: skip
    error = result(sendable[1]).error
    assert error is not None
    assert error.code == "not_found"


def test_the_results_of_one_batch_stay_together_in_call_order():
    sendable, repairs = repair_pairs([
        say("assistant", call("c1"), call("c2"), call("c3")),
        answer("c3"),
        say("user", "quick question"),
        answer("c1"),
        answer("c2"),
    ])  # fmt: skip
    assert [message.role for message in sendable] == ["assistant", "tool", "tool", "tool", "user"]
    assert [result(message).tool_call_id for message in sendable[1:4]] == ["c1", "c2", "c3"]
    assert all(result(message).result == "done" for message in sendable[1:4])
    assert repairs > 0


def test_results_in_another_order_than_their_calls_are_put_in_order():
    sendable, repairs = repair_pairs([
        say("assistant", call("c1"), call("c2")), answer("c2"), answer("c1"),
    ])  # fmt: skip
    assert [result(message).tool_call_id for message in sendable[1:]] == ["c1", "c2"]
    assert repairs == 1


@pytest.mark.parametrize(
    "empty",
    [
        say("assistant"),
        say("assistant", "", "\n\n"),
        say("assistant", ThinkingBlock(text="")),
        say("assistant", OpaqueBlock(type="hologram", raw=b'{"type":"hologram"}')),
        say("assistant", stop_reason="aborted"),
        say("assistant", ThinkingBlock(text="hm"), stop_reason="aborted"),
        say("assistant", ThinkingBlock(text="hm", signature="ok"), stop_reason="error"),
    ],
)
def test_empty_assistant_messages_are_dropped(empty: Message):
    messages = [say("assistant", call("c1")), empty, answer("c1"), say("user", "next"), empty]
    sendable, _ = repair_pairs(messages)
    assert [message.role for message in sendable] == ["assistant", "tool", "user"]
    assert result(sendable[1]).error is None


def test_user_messages_without_anything_to_send_are_dropped():
    nothing = OpaqueBlock(type="hologram", raw=b'{"type":"hologram"}')
    sendable, repairs = repair_pairs([say("user"), say("user", nothing), say("user", "hi")])
    assert [message.text for message in sendable] == ["hi"]
    assert repairs == 2


@pytest.mark.parametrize("stop_reason", ["aborted", "error"])
def test_a_message_cut_short_is_sent_with_its_text_its_complete_calls_and_their_results(
    stop_reason: str,
):
    broken = ToolCallBlock(id="c2", name="work", arguments={}, raw_arguments='{"pa')
    message = say("assistant", "partly", "", call("c1"), broken, stop_reason=stop_reason)
    sendable, _ = repair_pairs([message, answer("c1"), answer("c2"), say("user", "go on")])
    assert sendable[0].text == "partly"
    assert [block.id for block in sendable[0].tool_calls] == ["c1"]
    assert [message.role for message in sendable] == ["assistant", "tool", "user"]
    assert sendable[0].stop_reason == stop_reason


def test_in_a_message_cut_short_thinking_goes_unless_it_is_signed():
    replayed = ThinkingBlock(text="", replay=Replay(api="openai-responses", kind="item", data="x"))
    message = say(
        "assistant",
        ThinkingBlock(text="unsigned"),
        ThinkingBlock(text="signed", signature="ok"),
        ThinkingBlock(text="half", signature=""),
        replayed,
        "so far",
        stop_reason="aborted",
    )
    (sent,), _ = repair_pairs([message])
    assert sent.content == [message.content[1], replayed, TextBlock(text="so far")]


def test_a_whole_message_keeps_its_unsigned_thinking_and_its_unparsed_call():
    unparsed = ToolCallBlock(id="c1", name="work", arguments={}, raw_arguments="{")
    message = say("assistant", ThinkingBlock(text="hm"), unparsed, stop_reason="tool_use")
    sendable, repairs = repair_pairs([message, answer("c1", code="invalid_arguments")])
    assert sendable[0] is message
    assert repairs == 0


def test_a_tool_message_of_several_results_is_sent_as_one_message_each():
    both = say("tool", "before", answer("c1").content[0], answer("c2").content[0], "after")
    sendable, repairs = repair_pairs([say("assistant", call("c1"), call("c2")), both])
    assert [result(message).tool_call_id for message in sendable[1:]] == ["c1", "c2"]
    assert [result(message).content for message in sendable[1:]] == [
        [TextBlock(text="before")],
        [TextBlock(text="after")],
    ]
    assert repairs == 0


def test_blocks_beside_a_result_become_its_content():
    image = ImageBlock(url="https://example.org/a.png")
    inner = ToolResultBlock(tool_call_id="c1", name="work", content=[TextBlock(text="own")])
    (only,) = split_results(say("tool", inner, image))
    assert result(only).content == [TextBlock(text="own"), image]


def test_results_in_a_user_message_answer_their_calls_and_its_text_comes_after():
    mixed = say("user", answer("c1").content[0], "also this")
    sendable, _ = repair_pairs([say("assistant", call("c1")), mixed])
    assert [message.role for message in sendable] == ["assistant", "tool", "user"]
    assert sendable[2].text == "also this"


def test_a_call_id_that_was_used_before_is_sent_under_another_one_with_its_result():
    messages = [
        say("assistant", call("c1"), call("c1")), answer("c1", 1), answer("c1", 2),
        say("assistant", call("c1"), call("")), answer("c1", 3), answer("", 4),
    ]  # fmt: skip
    sendable, _ = repair_pairs(messages)
    assert_pairs_are_whole(sendable)
    assert [result(message).result for message in sendable if message.role == "tool"] == [
        1,
        2,
        3,
        4,
    ]
    assert [result(message).tool_call_id for message in sendable if message.role == "tool"] == [
        "c1", "c1_2", "c1_3", "call_1",
    ]  # fmt: skip


def test_the_other_id_is_one_that_no_call_has():
    sendable, _ = repair_pairs([say("assistant", call("c1_2"), call("c1"), call("c1"))])
    assert [block.id for block in sendable[0].tool_calls] == ["c1_2", "c1", "c1_3"]


def test_open_calls_are_named_as_in_the_history():
    repairer = PairRepairer()
    for message in [
        say("assistant", call("c1")),
        answer("c1"),
        say("assistant", call("c1"), call("c2"), call("c3")),
        answer("c2"),
        say("assistant"),
    ]:
        repairer.push(message)
    assert [block.id for block in repairer.open_calls] == ["c1", "c3"]
    waiting = repairer.snapshot(waiting={"c1"})
    assert [result(message).tool_call_id for message in waiting[-2:]] == ["c2", "c3"]


@given(conversations())
def test_whatever_the_history_the_repaired_copy_has_whole_pairs(messages: list[Message]):
    sendable, _ = repair_pairs(messages)
    assert_pairs_are_whole(sendable)


@given(conversations(), st.sets(CALL_IDS, max_size=2))
def test_waiting_calls_are_the_only_ones_without_a_result(
    messages: list[Message], waiting: set[str]
):
    sendable, _ = repair_pairs(messages, waiting=waiting)
    renamed = {f"{key or 'call'}_{number}" for key in waiting for number in range(99)}
    assert_pairs_are_whole(sendable, waiting=sorted(waiting | renamed))


@given(conversations())
def test_repair_is_idempotent(messages: list[Message]):
    once, _ = repair_pairs(messages)
    twice, repairs = repair_pairs(once)
    assert twice == once
    assert repairs == 0


@given(conversations())
def test_what_needed_no_repair_is_sent_as_it_was(messages: list[Message]):
    sendable, repairs = repair_pairs(messages)
    if not repairs:
        assert sendable == [result for given in messages for result in _as_read(given)]


def _as_read(message: Message) -> list[Message]:
    return split_results(message) if message.role == "tool" else [message]


@given(conversations())
def test_repair_leaves_its_input_alone(messages: list[Message]):
    before = [(message, list(message.content)) for message in messages]
    repair_pairs(messages)
    assert all(message.content == content for message, content in before)


@given(conversations(), st.sets(CALL_IDS, max_size=2))
def test_message_by_message_gives_what_repairing_the_whole_gives(
    messages: list[Message], waiting: set[str]
):
    repairer = PairRepairer()
    for count, message in enumerate(messages, 1):
        repairer.push(message)
        if count % 3 == 0 or count == len(messages):
            snapshot = repairer.snapshot(waiting=waiting)
            missing = sum(block.id not in waiting for block in repairer.open_calls)
            assert (snapshot, repairer.repairs + missing) == repair_pairs(
                messages[:count], waiting=waiting
            )


@given(conversations())
def test_every_text_and_every_complete_call_is_still_there(messages: list[Message]):
    sendable, _ = repair_pairs(messages)
    for role in ("user", "assistant"):
        said = [m.text.strip() for m in messages if m.role == role and m.text.strip()]
        assert [m.text.strip() for m in sendable if m.role == role and m.text.strip()] == said
    asked = [block for m in messages if m.role == "assistant" for block in m.tool_calls]
    assert sum(len(m.tool_calls) for m in sendable) == len(asked)
