"""T1 to T20: one conversation, whoever wrote it, as another model takes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from prism.core._errors import ProviderError
from prism.core._wire import (
    ContentBlock,
    ErrorInfo,
    ImageBlock,
    Message,
    ModelRef,
    NativeBlock,
    OpaqueBlock,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    encode,
)
from prism.core.providers import Notice
from prism.core.providers._transform import Sent, Target, transform
from prism.core.providers._transform.target import id_map

from .wire import user

APIS = ("openai-responses", "openai-chat", "anthropic-messages", "gemini")
PICTURE = ImageBlock(data="aGk=", mime_type="image/png")


def target(api: str = "openai-responses", **fields: Any) -> Target:
    return Target(provider="p", api=api, model="m", **fields)


ANTHROPIC = target(
    "anthropic-messages",
    merge_users=True,
    user_first=True,
    system_notes=False,
    signed_thinking=True,
    id_style="anthropic-messages",
    image_types=frozenset({"image/png"}),
)
TARGETS = [
    target("openai-responses", id_style="openai-responses", bound_natives=True),
    target("openai-chat", id_style="openai-chat", result_images=False, binds_prefix=False),
    target("openai-chat", id_style="mistral9", result_images=False, assistant_after_results=True),
    ANTHROPIC,
    target("gemini", merge_users=True, user_first=True, system_notes=False, images=False),
]
OWN = ModelRef(provider="p", model="m", api="openai-responses")
OTHER = ModelRef(provider="q", model="n", api="anthropic-messages")


def assistant(*content: str | ContentBlock, **fields: Any) -> Message:
    blocks = [TextBlock(text=item) if isinstance(item, str) else item for item in content]
    fields.setdefault("model", OWN)
    return Message(role="assistant", content=blocks, **fields)


def call(call_id: str = "call_1", **fields: Any) -> ToolCallBlock:
    given: dict[str, Any] = {"id": call_id, "name": "t", "arguments": {}, **fields}
    return ToolCallBlock(**given)


def result(call_id: str = "call_1", *content: str | ContentBlock, **fields: Any) -> Message:
    blocks = [TextBlock(text=item) if isinstance(item, str) else item for item in content]
    given = ToolResultBlock(tool_call_id=call_id, name="t", content=blocks or None, **fields)
    return Message(role="tool", content=[given])


def thought(
    text: str = "hm", *, api: str = "openai-responses", kind: str = "item", prefix: Any = None
) -> ThinkingBlock:
    replay = Replay(api=api, kind=kind, data="{}", item_id="rs_1", prefix=prefix)
    return ThinkingBlock(text=text, replay=replay)


def sent(*messages: Message, to: Target | None = None, head: bytes = b"") -> Sent:
    return transform(messages, to or target(), head=head)


def shapes(*messages: Message, to: Target | None = None) -> list[tuple[str, list[str]]]:
    """Role and blocks of each message, in short."""
    return [
        (message.role, [_short(block) for block in message.content])
        for message in sent(*messages, to=to).messages
    ]


def _short(block: ContentBlock) -> str:
    match block:
        case TextBlock():
            return block.text
        case ThinkingBlock():
            return f"<{block.text}>"
        case ToolCallBlock():
            return f"call {block.id}"
        case ToolResultBlock():
            inner = ", ".join(_short(part) for part in block.content or ())
            return f"result {block.tool_call_id}: {inner}"
        case ImageBlock():
            return "image"
        case _:
            return type(block).__name__


# --- T1 to T5: whose message it is ------------------------------------------------------------


@pytest.mark.parametrize("stop", ["aborted", "error"])
def test_t1_a_message_that_was_cut_short_goes_with_its_text_its_calls_and_their_results(
    stop: str,
) -> None:
    cut = assistant(
        ThinkingBlock(text="unfinished"),
        "Let me",
        call(),
        call("call_2", raw_arguments='{"a'),
        NativeBlock(api="openai-responses", kind="web_search_call", data="{}"),
        stop_reason=stop,
    )
    assert shapes(user("a"), cut, result("call_1", "r"), user("b")) == [
        ("user", ["a"]),
        ("assistant", ["Let me", "call call_1"]),
        ("tool", ["result call_1: r"]),
        ("user", ["b"]),
    ]


@pytest.mark.parametrize(
    ("writer", "stays"),
    [
        (OWN, True),
        (replace(OWN, api=None), True),
        (replace(OWN, model=" M"), True),
        (None, True),
        (replace(OWN, provider="q"), False),
        (replace(OWN, model="m2"), False),
        (replace(OWN, api="openai-chat"), False),
    ],
)
def test_t2_opaque_state_goes_back_only_to_the_model_that_made_it(
    writer: ModelRef | None, *, stays: bool
) -> None:
    said = TextBlock(text="b", replay=Replay(api="openai-responses", kind="item", data=""))
    answer = assistant(thought(), said, model=writer)
    _, kept, _ = sent(user("a"), answer, user("c")).messages
    assert kept.content == (answer.content if stays else [TextBlock(text="b")])
    # State of another API is nobody's, whoever wrote the message.
    strange = assistant(thought(api="gemini"), "b")
    assert shapes(user("a"), strange, user("c"))[1] == ("assistant", ["b"])


def test_t3_foreign_reasoning_is_dropped_or_on_request_becomes_plain_text() -> None:
    foreign = assistant(thought("hm"), ThinkingBlock(text="", redacted=True), "b", model=OTHER)
    turns = (user("a"), foreign, user("c"))
    assert shapes(*turns)[1] == ("assistant", ["b"])
    assert shapes(*turns, to=target(foreign_thinking="text"))[1] == ("assistant", ["hm", "b"])


def test_t4_redacted_reasoning_stays_with_its_model_and_unsigned_reasoning_goes() -> None:
    redacted = replace(thought("", kind="redacted"), redacted=True)
    turns = (user("a"), assistant(redacted, ThinkingBlock(text="unsigned"), "b"), user("c"))
    assert shapes(*turns)[1] == ("assistant", ["<>", "b"])
    foreign = replace(turns[1], model=OTHER)
    assert shapes(turns[0], foreign, turns[2])[1] == ("assistant", ["b"])
    signed = assistant(
        ThinkingBlock(text="signed", signature="s"), "b", model=replace(OWN, api=None)
    )
    assert shapes(user("a"), signed, user("c"))[1] == ("assistant", ["b"])
    assert shapes(user("a"), signed, user("c"), to=ANTHROPIC)[1] == ("assistant", ["<signed>", "b"])


def test_t5_empty_reasoning_with_state_stays_and_without_it_goes() -> None:
    empty = assistant(thought(""), ThinkingBlock(text=""), "b")
    assert shapes(user("a"), empty, user("c"))[1] == ("assistant", ["<>", "b"])


# --- T6: reasoning is bound to what was before it ---------------------------------------------


def converse(*inputs: Message, to: Target, start: list[Message] | None = None) -> list[Message]:
    """Let a model answer each input with stamped reasoning, as the adapters stamp it."""
    history = list(start or ())
    for number, message in enumerate(inputs):
        history.append(message)
        prefix = transform(history, to).prefix
        answer = assistant(
            thought(f"thought {number}", api=to.api, prefix=prefix),
            f"answer {number}",
            model=ModelRef(provider="p", model="m", api=to.api),
        )
        history.append(answer)
    return history


def thoughts(of: Sent) -> list[str]:
    return [
        block.text
        for message in of.messages
        for block in message.content
        if isinstance(block, ThinkingBlock)
    ]


BINDING = [one for one in TARGETS if one.binds_prefix]


@pytest.mark.parametrize("to", BINDING, ids=lambda one: one.api)
def test_t6_reasoning_whose_prefix_changed_is_stripped_from_there_on(to: Target) -> None:
    history = [*converse(user("a"), user("b"), user("c"), to=to), user("d")]
    whole = sent(*history, to=to)
    assert thoughts(whole) == ["thought 0", "thought 1", "thought 2"]
    assert whole.notices == []
    history[2] = user("b, shortened")
    edited = sent(*history, to=to)
    assert thoughts(edited) == ["thought 0"]
    assert [notice.code for notice in edited.notices] == ["thinking_stripped"]
    history[0] = user("a, shortened")
    assert thoughts(sent(*history, to=to)) == []
    assert thoughts(sent(*history, to=to, head=b"other tools")) == []


@pytest.mark.parametrize("to", BINDING, ids=lambda one: one.api)
def test_t6_reasoning_that_was_written_after_the_change_fits_again(to: Target) -> None:
    history = converse(user("a"), user("b"), to=to)
    history[0] = user("a, shortened")
    history = converse(user("c"), user("d"), to=to, start=history)
    assert thoughts(sent(*history, user("e"), to=to)) == ["thought 0", "thought 1"]


@pytest.mark.parametrize("to", BINDING, ids=lambda one: one.api)
def test_t6_compaction_strips_the_reasoning_that_is_kept_behind_the_summary(to: Target) -> None:
    history = converse(user("a"), user("b"), user("c"), to=to)
    compacted = sent(user("summary of a"), *history[2:], user("d"), to=to)
    assert thoughts(compacted) == []
    assert [notice.code for notice in compacted.notices] == ["thinking_stripped"]


def test_t6_a_message_that_was_only_reasoning_leaves_no_gap() -> None:
    anthropic = ModelRef(provider="p", model="m", api="anthropic-messages")
    stale = assistant(thought(api="anthropic-messages", prefix="another past"), model=anthropic)
    turns = (user("x"), assistant("y", model=anthropic), user("a"), stale, user("b"))
    assert shapes(*turns, to=ANTHROPIC) == [
        ("user", ["x"]),
        ("assistant", ["y"]),
        ("user", ["a", "b"]),
    ]
    without = [*turns[:3], turns[4]]
    assert sent(*turns, to=ANTHROPIC).prefix == sent(*without, to=ANTHROPIC).prefix


def test_t6_what_hangs_on_stripped_reasoning_goes_with_it() -> None:
    native = NativeBlock(api="openai-responses", kind="web_search_call", data="{}")
    compaction = NativeBlock(api="openai-responses", kind="compaction", data="{}")
    state = Replay(api="openai-responses", kind="item", data="", item_id="x", phase="commentary")
    signed = Replay(api="openai-responses", kind="signature", data="sig")
    answer = assistant(
        thought(prefix="another past"),
        native,
        compaction,
        TextBlock(text="b", replay=state),
        call(replay=state),
        call("call_2", replay=signed),
    )
    stripped = sent(
        user("a"), answer, result("call_1"), result("call_2"), to=target(bound_natives=True)
    )
    unbound = replace(state, item_id=None)
    assert stripped.messages[1].content == [
        compaction,
        TextBlock(text="b", replay=unbound),
        call(replay=unbound),
        call("call_2"),
    ]


def test_t6_reasoning_without_a_stamp_and_targets_that_bind_nothing_keep_all() -> None:
    turns = (user("a"), assistant(thought(), "b"), user("c"))
    assert thoughts(sent(*turns)) == ["hm"]
    stamped = (user("a"), assistant(thought(prefix="another past"), "b"), user("c"))
    loose = sent(*stamped, to=target(binds_prefix=False))
    assert thoughts(loose) == ["hm"]
    assert loose.prefix is None


@pytest.mark.parametrize("to", TARGETS, ids=lambda one: f"{one.api}-{one.id_style}")
def test_t7_a_signature_stays_on_its_own_part_even_without_text(to: Target) -> None:
    writer = ModelRef(provider="p", model="m", api=to.api)
    signed = Replay(api=to.api, kind="signature", data="sig")
    content = [
        TextBlock(text="a", replay=signed),
        TextBlock(text="", replay=signed),
        call("abcDEF123", replay=signed),
        call("abcDEF456"),
    ]
    answer = assistant(*content, model=writer)
    turns = (user("x"), answer, result("abcDEF123", "r"), result("abcDEF456", "r"))
    assert sent(*turns, to=to).messages[1].content == content


# --- T8 to T11: calls and results -------------------------------------------------------------

HARD_IDS = ["call_1", "functions.add:0", "call_x|fc_y", "toolu_" + "x" * 80, "trailing_", "é", "a"]
FITS: dict[str, Callable[[str], bool]] = {
    "any": lambda text: 0 < len(text) <= 256,
    "openai-chat": lambda text: 0 < len(text) <= 40,
    "openai-responses": lambda text: len(text) <= 64 and text.isascii() and text[-1] != "_",
    "anthropic-messages": lambda text: len(text) <= 64 and "|" not in text and text.isascii(),
    "mistral9": lambda text: len(text) == 9 and text.isalnum(),
}


@pytest.mark.parametrize("to", TARGETS, ids=lambda one: f"{one.api}-{one.id_style}")
def test_t8_ids_are_mapped_alike_on_call_and_result_and_only_where_they_must(to: Target) -> None:
    calls = assistant(*[call(call_id) for call_id in HARD_IDS], model=OTHER)
    out = sent(user("x"), calls, *[result(one, "r") for one in HARD_IDS], to=to)
    ids = [block.id for message in out.messages for block in message.tool_calls]
    answered = [
        block.tool_call_id
        for message in out.messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]
    assert ids == answered
    assert len(set(ids)) == len(HARD_IDS)
    fits = FITS[to.id_style]
    assert all(map(fits, ids))
    for before, after in zip(HARD_IDS, ids, strict=True):
        if before == "call_1" and to.id_style != "mistral9":
            assert after == before
    assert calls.tool_calls[1].id == "functions.add:0", "the history is not touched"


def test_t8_an_id_that_comes_twice_gets_a_second_one_and_earlier_ones_stay() -> None:
    turns = [user("x"), assistant(call()), result("call_1", "1"), user("y")]
    again = [*turns, assistant(call()), result("call_1", "2")]
    assert shapes(*again)[-2:] == [
        ("assistant", ["call call_1_2"]),
        ("tool", ["result call_1_2: 2"]),
    ]
    assert shapes(*again)[:4] == shapes(*turns)


@given(st.lists(st.text(st.sampled_from("ab_|:é"), min_size=1, max_size=70), unique=True))
def test_t8_the_map_of_every_style_is_injective_and_does_not_look_ahead(ids: list[str]) -> None:
    for style in FITS:
        mapped = id_map(style)  # type: ignore[arg-type]
        out = [mapped[one] for one in ids]
        assert len(set(out)) == len(ids)
        half = id_map(style)  # type: ignore[arg-type]
        assert [half[one] for one in ids[: len(ids) // 2]] == out[: len(ids) // 2]


def test_t9_a_call_without_a_result_gets_one_in_call_order() -> None:
    turns = (user("x"), assistant(call("a"), call("b"), call("c")), result("b", "r"), user("y"))
    out = sent(*turns)
    results = [m.content[0] for m in out.messages if m.role == "tool"]
    assert [block.tool_call_id for block in results if isinstance(block, ToolResultBlock)] == [
        "a",
        "b",
        "c",
    ]
    first = results[0]
    assert isinstance(first, ToolResultBlock)
    assert first.error is not None
    assert first.error.code == "interrupted"
    assert first.content is not None
    assert [notice.code for notice in out.notices] == ["history_repaired"]
    at_the_end = sent(user("x"), assistant(call("a"), call("b")), result("a", "r"))
    assert [message.role for message in at_the_end.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert [notice.code for notice in at_the_end.notices] == ["history_repaired"]


def test_t10_a_result_without_a_call_is_dropped_and_a_real_one_wins() -> None:
    lost = sent(user("x"), result("nobody", "r"), user("y"))
    assert [message.role for message in lost.messages] == ["user", "user"]
    assert [notice.code for notice in lost.notices] == ["history_repaired"]
    synthetic = result("call_1", error=ErrorInfo(code="interrupted", message="?"))
    turns = (user("x"), assistant(call()), synthetic, result("call_1", "real"), user("y"))
    assert shapes(*turns)[2] == ("tool", ["result call_1: real"])


@pytest.mark.parametrize("to", TARGETS, ids=lambda one: f"{one.api}-{one.id_style}")
def test_t11_results_follow_their_calls_and_text_between_them_follows(to: Target) -> None:
    ids = ("abcDEF123", "abcDEF456")
    turns = (
        user("x"),
        assistant(*[call(one) for one in ids], model=OTHER),
        result(ids[1], "2"),
        user("meanwhile"),
        result(ids[0], "1"),
        assistant("b", model=OTHER),
        user("y"),
    )
    blocks = [block for _, content in shapes(*turns, to=to) for block in content]
    said = [block for block in blocks if block != "Understood."]
    assert said[1:6] == [
        f"call {ids[0]}",
        f"call {ids[1]}",
        f"result {ids[0]}: 1",
        f"result {ids[1]}: 2",
        "meanwhile",
    ]


# --- T12 to T15: content, images, order -------------------------------------------------------


def test_t12_what_is_empty_is_left_out_or_said_to_be_empty() -> None:
    turns = (
        user(" \n", "a"),
        user("  "),
        assistant(" ", call()),
        result("call_1"),
        assistant(" "),
        assistant(OpaqueBlock(type="hologram", raw=b"{}")),
        user(OpaqueBlock(type="hologram", raw=b"{}"), "b"),
    )
    assert shapes(*turns) == [
        ("user", ["a"]),
        ("assistant", ["call call_1"]),
        ("tool", ["result call_1: (no output)"]),
        ("user", ["b"]),
    ]


@pytest.mark.parametrize(
    "last",
    [user("  "), user(), user(OpaqueBlock(type="hologram", raw=b"{}"))],
    ids=["blank", "empty", "opaque"],
)
@pytest.mark.parametrize("to", TARGETS, ids=lambda one: f"{one.api}-{one.id_style}")
def test_t12_an_empty_last_message_is_the_callers_mistake(last: Message, to: Target) -> None:
    with pytest.raises(ProviderError) as caught:
        sent(user("a"), last, to=to)
    assert caught.value.code == "invalid_request"
    with pytest.raises(ProviderError):
        sent(to=to)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (result("call_1", result={"b": 1, "a": [None]}), '{"b":1,"a":[null]}'),
        (result("call_1", result="plain"), "plain"),
        (result("call_1", error=ErrorInfo(message="no file")), "Error: no file"),
        (result("call_1", error=ErrorInfo(message="k", name="KeyError")), "Error (KeyError): k"),
        (result("call_1", "no file", error=ErrorInfo(message="no file")), "no file"),
        (result("call_1", "log", error=ErrorInfo(message="bad")), "Error: bad, log"),
    ],
)
def test_t12_every_form_of_result_becomes_blocks(message: Message, text: str) -> None:
    assert shapes(user("x"), assistant(call()), message)[2] == ("tool", [f"result call_1: {text}"])


def test_t13_images_become_placeholders_where_none_are_taken() -> None:
    tiff = ImageBlock(data="aGk=", mime_type="image/tiff")
    turns = (user("see", PICTURE, tiff), assistant(call()), result("call_1", PICTURE))
    blind = sent(*turns, to=target(images=False))
    omitted = "(image omitted: the model has no image input)"
    assert [_short(block) for block in blind.messages[0].content] == ["see", omitted, omitted]
    assert _short(blind.messages[2].content[0]) == f"result call_1: {omitted}"
    assert [notice.code for notice in blind.notices] == ["image_omitted"]
    picky = sent(*turns, to=target(image_types=frozenset({"image/png"})))
    assert [_short(block) for block in picky.messages[0].content] == [
        "see",
        "image",
        "(image omitted: the model takes no image/tiff)",
    ]
    assert [notice.code for notice in picky.notices] == ["image_type_unsupported"]


def test_t13_images_of_results_stay_inside_or_follow_the_whole_run() -> None:
    turns = (
        user("x"),
        assistant(call("a"), call("b")),
        result("a", PICTURE),
        result("b", "two", PICTURE),
        user("y"),
    )
    assert shapes(*turns)[2:4] == [
        ("tool", ["result a: image"]),
        ("tool", ["result b: two, image"]),
    ]
    lead = "Images that the tools returned, in the order of the calls:"
    assert shapes(*turns, to=target("openai-chat", result_images=False))[2:] == [
        ("tool", ["result a: (the image is in the next user message)"]),
        ("tool", ["result b: two"]),
        ("user", [lead, "image", "image"]),
        ("user", ["y"]),
    ]
    merged = shapes(*turns, to=target("gemini", result_images=False, merge_users=True))
    assert merged[2][1][2:] == [lead, "image", "image", "y"]


def test_t14_neighbours_are_merged_and_the_first_message_is_the_users_where_it_must_be() -> None:
    note = Message(role="system", content=[TextBlock(text="note")])
    turns = (
        assistant("before", model=OTHER),
        user("a"),
        user("b"),
        assistant(call()),
        result("call_1", "r"),
        note,
        user("c"),
    )
    assert shapes(*turns, to=ANTHROPIC) == [
        ("user", ["(continued)"]),
        ("assistant", ["before"]),
        ("user", ["a", "b"]),
        ("assistant", ["call call_1"]),
        ("user", ["result call_1: r", "note", "c"]),
    ]
    assert [role for role, _ in shapes(*turns)] == [
        "assistant", "user", "user", "assistant", "tool", "system", "user",
    ]  # fmt: skip
    with_notes = shapes(*turns, to=replace(ANTHROPIC, system_notes=True))
    assert with_notes[-3:] == [
        ("user", ["result call_1: r"]),
        ("system", ["note"]),
        ("user", ["c"]),
    ]


@pytest.mark.parametrize("to", TARGETS, ids=lambda one: f"{one.api}-{one.id_style}")
def test_t15_a_request_never_ends_with_the_models_message(to: Target) -> None:
    for stop in ("stop", None, "refusal"):
        with pytest.raises(ProviderError) as caught:
            sent(user("a"), assistant("b", stop_reason=stop), to=to)
        assert caught.value.code == "invalid_request"
    assert shapes(user("a"), assistant("b", stop_reason="pause"), to=to)[-1] == ("assistant", ["b"])


@pytest.mark.parametrize("stop", ["length", "aborted", "error"])
def test_t15_the_model_is_asked_to_go_on_and_the_history_stays_as_it_was_sent(stop: str) -> None:
    cut = (user("a"), assistant("b", stop_reason=stop))
    asked = shapes(*cut)
    assert asked[-1] == ("user", ["(continue)"])
    assert shapes(*cut, assistant("c"), user("d"))[:3] == asked


# --- T16 to T20: text, names, arguments, natives, bytes ---------------------------------------


def test_t16_lone_surrogates_and_nul_are_replaced_in_what_is_sent_alone() -> None:
    turns = (
        user("a\ud83d\x00"),
        assistant(call(arguments={"k\udc00": "\x00"})),
        result("call_1", "\x00", result={"x": "\udfff"}),
        user("\ud83d\ude00"),
    )
    out = sent(*turns)
    data = b"".join(bytes(item) for item in out.items)
    assert b"\\u0000" not in data
    assert [json.loads(bytes(item))["content"][0].get("text") for item in out.items] == [
        "a\ufffd\ufffd",
        None,
        None,
        "😀",
    ]
    assert turns[0].text == "a\ud83d\x00"


def test_t17_tool_names_go_as_they_are() -> None:
    turns = (user("x"), assistant(call(name="read_file")), result("call_1", "r"))
    assert sent(*turns).messages[1].tool_calls[0].name == "read_file"


def test_t18_arguments_that_did_not_parse_are_sent_as_none() -> None:
    broken = assistant(call(arguments={}, raw_arguments='{"a'))
    error = result("call_1", error=ErrorInfo(code="invalid_arguments", message="not JSON"))
    out = sent(user("x"), broken, error)
    (sent_call,) = out.messages[1].tool_calls
    assert (sent_call.arguments, sent_call.raw_arguments) == ({}, None)
    assert _short(out.messages[2].content[0]) == "result call_1: Error: not JSON"


def test_t19_native_blocks_go_only_to_their_own_model() -> None:
    native = NativeBlock(api="openai-responses", kind="web_search_call", data="{}")
    answer = assistant(native, "b")
    assert shapes(user("a"), answer, user("c"))[1] == ("assistant", ["NativeBlock", "b"])
    for stranger in (replace(OWN, model="m2"), OTHER):
        foreign = replace(answer, model=stranger)
        assert shapes(user("a"), foreign, user("c"))[1] == ("assistant", ["b"])
    assert shapes(user("a"), answer, user("c"), to=target("gemini"))[1] == ("assistant", ["b"])


def test_t20_the_same_input_gives_the_same_bytes() -> None:
    def made() -> Sent:
        turns = (
            user("a"),
            assistant(thought(), call("x|1"), call("x|2")),
            result("x|2", result={"b": 1, "a": 2}),
        )
        return sent(*turns, to=TARGETS[0])

    first, second = made(), made()
    assert first.items == second.items
    assert first.prefix == second.prefix


# --- properties -------------------------------------------------------------------------------

texts = st.sampled_from(["", " ", "a", "b\x00", "\ud83d", "c\n"])
ids = st.sampled_from(["call_1", "x|y", "toolu_" + "z" * 70, "n", ""])
replays = st.none() | st.builds(
    Replay,
    api=st.sampled_from(APIS),
    kind=st.sampled_from(["item", "signature", "field"]),
    data=st.just("{}"),
    item_id=st.none() | st.just("it_1"),
    prefix=st.none() | st.just("p" * 32),
)
images = st.builds(
    ImageBlock, data=st.just("aGk="), mime_type=st.sampled_from(["image/png", "image/tiff"])
)
inputs = st.lists(st.builds(TextBlock, text=texts) | images, max_size=3)
errors = st.none() | st.builds(
    ErrorInfo, message=st.just("bad"), code=st.sampled_from(["interrupted", "other"])
)
results = st.builds(
    ToolResultBlock,
    tool_call_id=ids,
    name=st.just("t"),
    content=st.none() | inputs,
    result=st.none() | st.just({"a": 1}),
    error=errors,
)
answers = st.lists(
    st.builds(TextBlock, text=texts, replay=replays)
    | st.builds(ThinkingBlock, text=texts, replay=replays, redacted=st.sampled_from([None, True]))
    | st.builds(
        ToolCallBlock,
        id=ids,
        name=st.just("t"),
        arguments=st.just({"a": 1}),
        raw_arguments=st.none() | st.just("{"),
        replay=replays,
    )
    | st.builds(NativeBlock, api=st.sampled_from(APIS), kind=st.just("x"), data=st.just("{}")),
    max_size=4,
)
writers = st.none() | st.builds(
    ModelRef,
    provider=st.sampled_from(["p", "q"]),
    model=st.sampled_from(["m", "n"]),
    api=st.none() | st.sampled_from(APIS),
)
stops = st.sampled_from(["stop", "tool_use", "length", "aborted", "error", "pause", None])
messages = st.lists(
    st.builds(Message, role=st.sampled_from(["user", "system"]), content=inputs)
    | st.builds(
        Message, role=st.just("assistant"), content=answers, model=writers, stop_reason=stops
    )
    | st.builds(Message, role=st.just("tool"), content=results.map(lambda block: [block])),
    max_size=8,
)


@given(messages, st.sampled_from(TARGETS))
def test_a_transformed_conversation_is_whole_and_transforming_it_again_changes_nothing(
    history: list[Message], to: Target
) -> None:
    once = sent(*history, user("end"), to=to)
    assert_whole(once.messages, to)
    assert encode(history) == encode(list(history)), "the history is not touched"
    again = sent(*once.messages, to=to)
    assert again.messages == once.messages
    assert again.items == once.items
    if not to.merge_users:  # results that were merged into input are found to be out of place
        assert again.notices == []


def assert_whole(sent_messages: list[Message], to: Target) -> None:
    """Each call has its result right behind it, in order, and nothing is empty."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in sent_messages:
        assert message.content
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                assert waiting
                assert block.tool_call_id == waiting.pop(0)
                assert block.content
                assert block.result is None
            elif isinstance(block, ToolCallBlock):
                assert message.role == "assistant"
                assert block.raw_arguments is None
                assert block.id not in seen
                seen.add(block.id)
            elif isinstance(block, ImageBlock):
                assert to.images
        calls = [block.id for block in message.tool_calls]
        if message.role != "tool" and not to.merge_users:
            assert not waiting
        if calls:
            assert not waiting
            waiting = calls
    assert not waiting
    assert sent_messages[-1].role != "assistant"
    if to.merge_users:
        roles = [message.role for message in sent_messages]
        assert all(pair != ("user", "user") for pair in pairwise(roles))
        assert roles[0] == "user"


def test_a_notice_is_told_once() -> None:
    out = sent(user(PICTURE, PICTURE), user(PICTURE), to=target(images=False))
    assert [type(notice) for notice in out.notices] == [Notice]
