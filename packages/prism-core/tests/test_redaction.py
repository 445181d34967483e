from __future__ import annotations

import copy
import json
import pickle
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prism.core._contracts import Secret
from prism.core._errors import EncodeError, UsageError
from prism.core._support.redaction import (
    MAX_SECRET_CHARS,
    SecretRedactor,
    redact_secrets,
)
from prism.core._support.redaction.matcher import forms_of
from prism.core._wire import (
    CompactionEntry,
    CompactionFinished,
    CustomEntry,
    ErrorEvent,
    ErrorInfo,
    EventEntry,
    ImageBlock,
    LabelEntry,
    Message,
    MessageDelta,
    MessageEntry,
    MessageFinished,
    MetadataEntry,
    ModelChangeEntry,
    ModelConfig,
    ModelRef,
    NativeBlock,
    OpaqueBlock,
    OpaqueEntry,
    QueueUpdated,
    Replay,
    RpcResponse,
    SummaryEntry,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolCallDelta,
    ToolExecutionError,
    ToolExecutionFinished,
    ToolExecutionProgress,
    ToolResult,
    ToolResultBlock,
    Warned,
    encode,
    encode_ascii,
)

SECRET = "hunter-2-key"  # noqa: S105
GONE = "[REDACTED]"

# A small alphabet, so that secrets overlap, repeat, and begin and end with each other; it holds
# what JSON escapes, a character beyond U+FFFF, both halves of another, and the placeholder's.
letters = st.sampled_from(["a", "b", "\n", "\\", '"', "é", "\x7f", "😀", "\ud83d", "\ude00", "["])
secret_lists = st.lists(st.text(letters, min_size=1, max_size=5), min_size=1, max_size=6)


def all_forms(secrets: list[str]) -> list[str]:
    return sorted({form for secret in secrets for form in forms_of(secret)})


@st.composite
def texts_with_secrets(draw: st.DrawFn) -> tuple[list[str], str]:
    secrets = draw(secret_lists)
    pieces = st.sampled_from(all_forms(secrets)) | st.text(letters, max_size=4)
    return secrets, "".join(draw(st.lists(pieces, max_size=8)))


def by_brute_force(secrets: list[str], text: str, placeholder: str) -> str:
    """Mark the occurrences one by one, join those that overlap, and replace each run."""
    forms = all_forms(secrets)
    runs: list[list[int]] = []
    for start in range(len(text)):
        length = max((len(form) for form in forms if text.startswith(form, start)), default=0)
        if not length:
            continue
        if runs and start < runs[-1][1]:
            runs[-1][1] = max(runs[-1][1], start + length)
        else:
            runs.append([start, start + length])
    output, at = "", 0
    for start, end in runs:
        output += text[at:start] + placeholder
        at = end
    return output + text[at:]


@given(texts_with_secrets())
def test_every_occurrence_is_found_and_overlapping_ones_become_one(
    case: tuple[list[str], str],
) -> None:
    secrets, text = case
    redactor = SecretRedactor(secrets)
    assert redactor.redact_text(text) == by_brute_force(secrets, text, redactor.placeholder)


@given(texts_with_secrets())
def test_redacted_text_holds_no_secret_and_is_not_changed_again(
    case: tuple[list[str], str],
) -> None:
    secrets, text = case
    redactor = SecretRedactor(secrets)
    redacted = redactor.redact_text(text)
    assert not any(secret in redacted for secret in secrets)
    assert redactor.redact_text(redacted) is redacted


@given(texts_with_secrets(), st.data())
def test_a_stream_gives_the_same_wherever_it_is_cut(
    case: tuple[list[str], str], data: st.DataObject
) -> None:
    secrets, text = case
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=10).map(sorted))
    redactor = SecretRedactor(secrets)
    stream = redactor.stream()
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    output = "".join(map(stream.feed, pieces)) + stream.flush()
    assert output == redactor.redact_text(text)
    assert stream.held == 0


@given(texts_with_secrets())
def test_a_stream_holds_back_no_more_than_could_begin_a_secret(
    case: tuple[list[str], str],
) -> None:
    secrets, text = case
    forms = all_forms(secrets)
    stream = SecretRedactor(secrets).stream()
    for end in range(1, len(text) + 1):
        stream.feed(text[end - 1])
        tails = (text[start:end] for start in range(end))
        longest = next(
            (
                tail
                for tail in tails
                if any(form.startswith(tail) and form != tail for form in forms)
            ),
            "",
        )
        assert stream.held == len(longest)


def test_every_split_of_a_secret_over_two_deltas_is_redacted() -> None:
    text = f"the key {SECRET}, is it"
    for cut in range(len(text) + 1):
        stream = SecretRedactor([SECRET]).stream()
        output = stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.flush()
        assert output == f"the key {GONE}, is it"


def test_a_stream_can_be_used_for_another_text_after_its_flush() -> None:
    stream = SecretRedactor([SECRET]).stream()
    assert stream.feed("hunter") == ""
    assert stream.flush() == "hunter"
    assert stream.feed("-2-key") == "-2-key"
    assert stream.flush() == ""


AWKWARD = 'tab\t"quote" back\\slash\nü 😀 \x7f \x01'


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(AWKWARD, id="as it is"),
        pytest.param(encode(AWKWARD).decode(), id="JSON"),
        pytest.param(encode_ascii(AWKWARD).decode(), id="ASCII JSON"),
        pytest.param(json.dumps(AWKWARD), id="the standard library's JSON"),
        pytest.param(json.dumps(json.dumps(AWKWARD)), id="JSON in JSON"),
    ],
)
def test_a_secret_is_found_in_every_form(written: str) -> None:
    redacted = SecretRedactor([AWKWARD]).redact_text(f"<{written}>")
    assert redacted.strip('<>"\\') == GONE


def test_the_longest_secret_wins_over_its_own_parts() -> None:
    redactor = SecretRedactor(["key", "key-1", "my-key-1"])
    assert redactor.redact_text("my-key-1 key-1 key-2") == f"{GONE} {GONE} {GONE}-2"


def test_secrets_side_by_side_are_two_and_overlapping_ones_are_one() -> None:
    redactor = SecretRedactor(["abcd", "cdef", "xyz"])
    assert redactor.redact_text("abcdef abcdxyz") == f"{GONE} {GONE}{GONE}"


def test_a_secret_that_could_touch_the_placeholder_gets_another_placeholder() -> None:
    assert SecretRedactor(["E"]).redact_text("SEE") == "S" + "*" * 6
    assert SecretRedactor(["E", "*", "#", "?"]).redact_text("SEE") == "S" + "█" * 6
    assert SecretRedactor([SECRET], placeholder="<>").redact_text(SECRET) == "<>"
    with pytest.raises(UsageError, match="placeholder must not be empty"):
        SecretRedactor([SECRET], placeholder="")


def test_a_redactor_without_secrets_is_false_and_gives_everything_back() -> None:
    redactor = SecretRedactor(["", Secret("")])
    value = {"a": ["text"]}
    stream = redactor.stream()
    assert not redactor
    assert not stream
    assert redactor.redact_text("text") == "text"
    assert redactor.redact_value(value) is value
    assert (stream.feed("text"), stream.flush(), stream.held) == ("text", "", 0)
    assert SecretRedactor([SECRET])


def test_secret_objects_are_revealed_and_other_things_refused() -> None:
    assert SecretRedactor([Secret(SECRET)]).redact_text(SECRET) == GONE
    with pytest.raises(UsageError, match="is one string"):
        SecretRedactor(SECRET)
    wrong: Any = [b"bytes"]
    with pytest.raises(UsageError, match="not bytes"):
        SecretRedactor(wrong)
    with pytest.raises(UsageError, match=f"more than {MAX_SECRET_CHARS}"):
        SecretRedactor(["x" * (MAX_SECRET_CHARS + 1)])


def test_extending_keeps_what_was_known_and_leaves_the_first_as_it_was() -> None:
    first = SecretRedactor(["one"], placeholder="<x>")
    both = first.extended([Secret("two")])
    assert both.redact_text("one two") == "<x> <x>"
    assert first.redact_text("one two") == "<x> two"
    assert first.extended(["one", ""]) is first
    assert first.extended(both).redact_text("two") == "<x>"
    assert both.reveal() == ("one", "two")


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_holds_secrets_hides_them_and_cannot_be_copied(copied: Any) -> None:
    redactor = SecretRedactor([SECRET])
    stream = redactor.stream()
    stream.feed("hunter-2")
    for holder in (redactor, stream):
        assert "hunter" not in f"{holder} {holder!r}"
        with pytest.raises(TypeError, match="cannot be pickled"):
            copied(holder)


def test_redaction_comes_before_the_cut() -> None:
    redactor = SecretRedactor([SECRET])
    assert redactor.redact_and_truncate(f"{SECRET} {SECRET}", 15) == f"{GONE} […"
    assert redactor.redact_and_truncate("plain", 15) == "plain"


def test_nested_values_are_redacted_with_their_keys() -> None:
    value = {
        "list": [f"a {SECRET}", 1, None, True, 1.5, ("t", SECRET)],
        SECRET: {"deep": {f"{SECRET}!": SECRET}},
        7: SECRET,
    }
    assert redact_secrets(value, [SECRET]) == {
        "list": [f"a {GONE}", 1, None, True, 1.5, ("t", GONE)],
        GONE: {"deep": {f"{GONE}!": GONE}},
        7: GONE,
    }


def test_keys_that_become_equal_are_numbered() -> None:
    value = {SECRET: 1, f"{GONE}": 2, "other": 3, "pass-word": 4}
    redacted = redact_secrets(value, [SECRET, "pass-word"])
    assert redacted == {GONE: 1, f"{GONE}~2": 2, "other": 3, f"{GONE}~3": 4}


def test_what_holds_no_secret_is_the_same_object_at_every_level() -> None:
    clean: dict[str, Any] = {"a": [1, {"b": "text"}]}
    value = {"clean": clean, "dirty": [SECRET]}
    redacted = SecretRedactor([SECRET]).redact_value(value)
    assert redacted == {"clean": clean, "dirty": [GONE]}
    assert redacted["clean"] is clean
    assert value["dirty"] == [SECRET]
    message = Message(role="user", content=[TextBlock(text="hi")], metadata={"n": 1})
    assert SecretRedactor([SECRET]).redact_message(message) is message


def test_types_that_the_encoder_writes_are_searched_too() -> None:
    @dataclass
    class Point:
        label: str

    redactor = SecretRedactor([SECRET])
    assert redactor.redact_value({"p": Point(SECRET)}) == {"p": {"label": GONE}}
    clean, unknown = Point("x"), object()
    assert redactor.redact_value(clean) is clean
    assert redactor.redact_value(unknown) is unknown


def test_a_value_as_deep_as_the_codec_allows_is_redacted_and_a_deeper_one_is_refused() -> None:
    def nested(depth: int) -> Any:
        value: Any = SECRET
        for level in range(depth):
            value = [value] if level % 2 else {"k": value}
        return value

    redactor = SecretRedactor([SECRET])
    assert GONE in encode(redactor.redact_value(nested(512))).decode()
    with pytest.raises(EncodeError) as caught:
        redactor.redact_value(nested(100_000))
    assert caught.value.code == "too_deep"


def test_the_parts_that_a_session_needs_are_never_touched() -> None:
    replay = Replay(api=SECRET, kind=SECRET, data=SECRET, item_id=SECRET, prefix=SECRET)
    message = Message(
        role="assistant",
        id=SECRET,
        stop_reason="stop",
        model=ModelRef(provider=SECRET, model=SECRET),
        content=[
            TextBlock(text="x", replay=replay),
            ThinkingBlock(text="x", signature=SECRET, replay=replay),
            ToolCallBlock(id=SECRET, name="t", arguments={}, replay=replay),
            ToolResultBlock(tool_call_id=SECRET, name="t"),
            NativeBlock(api=SECRET, kind=SECRET, data=SECRET),
            ImageBlock(mime_type="image/png", data=SECRET),
            OpaqueBlock(type="new", raw=encode({"type": "new", "text": SECRET})),
        ],
    )
    entry = MessageEntry(
        id=SECRET,
        session_id=SECRET,
        timestamp=SECRET,
        parent_id=SECRET,
        run_id=SECRET,
        message=message,
    )
    opaque = OpaqueEntry(id="e", session_id="s", raw=encode({"id": "e", "text": SECRET}))
    compaction = CompactionEntry(
        id="e",
        session_id="s",
        timestamp="",
        summary="x",
        data={
            "throughEntryId": SECRET,
            "keepEntryIds": [SECRET],
            "memory": {
                "type": "om.folded",
                "observations": [{"id": SECRET, "sourceEntryIds": [SECRET]}],
                "droppedObservationIds": [SECRET],
            },
        },
    )
    own = CustomEntry(
        id="e",
        session_id="s",
        timestamp="",
        data={"type": "prism.approval", "approvalId": SECRET, "toolCallId": SECRET},
    )
    label = LabelEntry(id="e", session_id="s", timestamp="", data={"targetId": SECRET})
    leaf = MetadataEntry(
        id="e", session_id="s", timestamp="", data={"type": "leaf", "leafId": SECRET}
    )
    event = EventEntry(
        id="e",
        session_id="s",
        timestamp="",
        event={
            "type": "message_finished",
            "sessionId": SECRET,
            "message": {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "x", "replay": {"data": SECRET}},
                    {"type": "thinking", "text": "x", "signature": SECRET},
                    {"type": "native", "data": SECRET},
                    {"type": "image", "data": SECRET},
                ],
            },
        },
    )
    redactor = SecretRedactor([SECRET])
    for each in (entry, opaque, compaction, own, label, leaf, event):
        assert redactor.redact_entry(each) is each


ERROR = ErrorInfo(
    message=SECRET, name=SECRET, code=SECRET, cause={"text": SECRET}, details={SECRET: [SECRET]}
)
CALL = ToolCallBlock(
    id="c", name=SECRET, arguments={SECRET: {"path": SECRET}}, raw_arguments=f'{{"{SECRET}'
)
RESULT = ToolResult(
    tool_call_id="c",
    name=SECRET,
    content=[TextBlock(text=SECRET), ImageBlock(url=f"https://host/?key={SECRET}")],
    value={SECRET: [SECRET]},
    error=ERROR,
    metadata={"file": SECRET},
)
MODEL = ModelConfig(
    provider="p",
    model="m",
    display_name=SECRET,
    compat={"k": SECRET},
    parameters={"k": SECRET},
    metadata={"k": SECRET},
)
MESSAGE = Message(
    role="user",
    metadata={SECRET: SECRET},
    content=[
        TextBlock(text=SECRET),
        ThinkingBlock(text=SECRET),
        CALL,
        ToolResultBlock(
            tool_call_id="c",
            name=SECRET,
            content=[TextBlock(text=SECRET)],
            result=SECRET,
            error=ERROR,
        ),
    ],
)
HEAD: dict[str, Any] = {"id": "e", "session_id": "s", "timestamp": "", "metadata": {"k": SECRET}}


@pytest.mark.parametrize(
    "value",
    [
        MESSAGE,
        MessageEntry(message=MESSAGE, **HEAD),
        SummaryEntry(summary=SECRET, data={"myId": SECRET}, **HEAD),
        CompactionEntry(summary=SECRET, data={"readFiles": [SECRET], "x": {"y": SECRET}}, **HEAD),
        ModelChangeEntry(model=MODEL, previous_model=MODEL, **HEAD),
        LabelEntry(label=SECRET, data={"targetId": "e1", "note": SECRET}, **HEAD),
        MetadataEntry(data={"anyId": SECRET}, **HEAD),
        CustomEntry(data={"type": "mine", "accessKeyId": SECRET}, **HEAD),
        pytest.param(
            CustomEntry(data={"type": "prism.approval", "arguments": {"userId": SECRET}}, **HEAD),
            id="approval",
        ),
        EventEntry(
            event={
                "type": "tool_execution_started",
                "call": {"type": "tool_call", "name": SECRET, "arguments": {"id": SECRET}},
                "list": [[SECRET]],
                SECRET: 1,
            },
            **HEAD,
        ),
        MessageDelta(session_id="s", content=TextBlock(text=SECRET), index=0),
        MessageFinished(session_id="s", message=MESSAGE),
        ToolCallDelta(session_id="s", index=0, arguments_text=SECRET, name=SECRET),
        ToolExecutionProgress(session_id="s", tool_call_id="c", name=SECRET, progress=SECRET),
        ToolExecutionFinished(session_id="s", result=RESULT),
        ToolExecutionError(session_id="s", call=CALL, error=ERROR),
        QueueUpdated(session_id="s", size=2, steer=[SECRET, [TextBlock(text=SECRET)]]),
        CompactionFinished(session_id="s", summary=SECRET),
        Warned(session_id="s", code="c", message=SECRET),
        ErrorEvent(session_id="s", error=ERROR),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_text_of_the_wire_structs_is_redacted(value: Any) -> None:
    redacted = SecretRedactor([SECRET]).redact_value(value)
    assert type(redacted) is type(value)
    assert SECRET not in encode(redacted).decode()
    assert GONE in encode(redacted).decode()


def test_a_reply_keeps_its_ids() -> None:
    response = RpcResponse(id=SECRET, ok=True, result={"sessionId": SECRET, "text": SECRET})
    assert SecretRedactor([SECRET]).redact_value(response) == RpcResponse(
        id=SECRET, ok=True, result={"sessionId": SECRET, "text": GONE}
    )


def test_a_redacted_tool_name_is_still_one_that_vendors_accept() -> None:
    redacted = SecretRedactor([SECRET]).redact_block(
        ToolCallBlock(id="c", name=f"get_{SECRET}", arguments={})
    )
    assert redacted.name == "get_REDACTED"


def test_the_helpers_keep_the_type_that_they_are_given() -> None:
    redactor = SecretRedactor([SECRET])
    assert redactor.redact_error(ERROR).message == GONE
    assert redactor.redact_event(Warned(session_id="s", code="c", message=SECRET)).message == GONE


def test_thousands_of_secrets_and_a_long_text_take_no_more_than_linear_time() -> None:
    # Each would take minutes if every place of the text were compared with every secret.
    secrets = [f"{number:x}-sk-{number * 7919:016x}" for number in range(5_000)]
    redactor = SecretRedactor(secrets)
    text = "The quick brown fox says 7 words, and then 12ab more. " * 4_000
    assert redactor.redact_text(text) is text
    assert redactor.redact_text(text + secrets[-1]) == text + GONE


@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        (["a" * 1_000], "a" * 100_000),
        (["a" * length for length in range(1, 1_000)], "ab" * 20_000),
        (["b" * length + "a" for length in range(1, 1_000)], "b" * 40_000),
        (["a" * 1_000 + "b"], "a" * 100_000),
    ],
)
def test_repetitive_secrets_do_not_make_it_slow(secrets: list[str], text: str) -> None:
    redactor = SecretRedactor(secrets)
    stream = redactor.stream()
    pieces = [stream.feed(text[at : at + 100]) for at in range(0, len(text), 100)]
    assert "".join(pieces) + stream.flush() == redactor.redact_text(text)
