"""What this version does not know survives: kinds, block types, event types."""

import copy
import json
from typing import Any

import pytest

from prism.core._errors import DecodeError
from prism.core._wire import (
    CommandResult,
    Message,
    MessageDelta,
    MessageEntry,
    OpaqueBlock,
    OpaqueEntry,
    OpaqueEvent,
    TextBlock,
    ToolExecutionFinished,
    ToolResultBlock,
    convert_blocks,
    convert_message,
    decode_entry,
    decode_event,
    decode_message,
    encode,
    encode_ascii,
    encode_entry,
    entry_with_session,
    event_type,
    opaque_entry,
    parse_json,
)
from prism.core._wire.content import block_codec

HOLOGRAM: dict[str, Any] = {"type": "hologram", "data": {"content": [{"type": "text", "text": 1}]}}
TEXT = {"type": "text", "text": "t"}
HEAD = {"id": "e", "sessionId": "s", "timestamp": "t"}


def message_entry(*content: object, **more: object) -> str:
    message = {"role": "user", "content": content}
    return json.dumps({**HEAD, "kind": "message", "message": message, **more})


def test_a_block_of_unknown_type_is_opaque_inside_its_otherwise_normal_message():
    line = message_entry(TEXT, HOLOGRAM, TEXT)
    entry = decode_entry(line)
    assert isinstance(entry, MessageEntry)
    first, middle, last = entry.message.content
    assert first == last == TextBlock(text="t")
    assert isinstance(middle, OpaqueBlock)
    assert middle.type == "hologram"
    assert json.loads(middle.raw) == HOLOGRAM
    assert json.loads(encode_entry(entry)) == json.loads(line)
    assert entry.message.text == "tt"


def test_unknown_blocks_are_found_at_every_depth_of_tool_results():
    inner: dict[str, Any] = HOLOGRAM
    for level in range(200):
        name = f"n{level}"
        inner = {"type": "tool_result", "toolCallId": "c", "name": name, "content": [TEXT, inner]}
    entry = decode_entry(message_entry(inner))
    assert isinstance(entry, MessageEntry)
    block = entry.message.content[0]
    while isinstance(block, ToolResultBlock):
        assert block.content is not None
        block = block.content[1]
    assert block == OpaqueBlock(type="hologram", raw=encode(HOLOGRAM))


def test_a_delta_can_hold_an_unknown_block():
    event = decode_event(
        json.dumps({"type": "message_delta", "sessionId": "s", "content": HOLOGRAM})
    )
    assert isinstance(event, MessageDelta)
    assert isinstance(event.content, OpaqueBlock)
    assert json.loads(encode(event))["content"] == HOLOGRAM


def test_a_result_in_an_event_and_in_a_command_can_hold_an_unknown_block():
    result = {"toolCallId": "c", "name": "n", "content": [HOLOGRAM], "value": HOLOGRAM}
    event = decode_event(
        json.dumps({"type": "tool_execution_finished", "sessionId": "s", "result": result})
    )
    assert isinstance(event, ToolExecutionFinished)
    assert event.result.content == [OpaqueBlock(type="hologram", raw=encode(HOLOGRAM))]
    assert event.result.value == HOLOGRAM
    command = block_codec(CommandResult).decode(json.dumps({"name": "n", "content": [HOLOGRAM]}))
    assert isinstance(command.content[0], OpaqueBlock)


LOOKALIKE: dict[str, Any] = {"content": [HOLOGRAM, {"type": "text"}], "result": HOLOGRAM}
CALL = {"type": "tool_call", "id": "c", "name": "n", "arguments": LOOKALIKE}
RESULT = {"type": "tool_result", "toolCallId": "c", "name": "n", "result": LOOKALIKE}


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({**HEAD, "kind": "custom", "data": {"type": "x", **LOOKALIKE}}),
        json.dumps({**HEAD, "kind": "event", "event": {"type": "y", **LOOKALIKE}}),
        json.dumps({**HEAD, "kind": "summary", "summary": "s", "metadata": LOOKALIKE}),
        message_entry(CALL, RESULT, HOLOGRAM),
        message_entry(HOLOGRAM, {**RESULT, "error": {"message": "m", "cause": LOOKALIKE}}),
        message_entry(HOLOGRAM, metadata=LOOKALIKE),
    ],
)
@pytest.mark.parametrize("suffix", ["", r"\ud800"])
def test_what_looks_like_a_block_in_a_hosts_own_json_is_left_alone(line: str, suffix: str):
    line = line.replace('"id": "e"', f'"id": "e{suffix}"')
    assert json.loads(encode_entry(decode_entry(line))) == json.loads(line)


def test_queued_inputs_progress_and_values_of_events_are_the_hosts_own():
    for fields in (
        {"type": "queue_updated", "size": 1, "steer": [[HOLOGRAM, TEXT], "x"], "followUp": []},
        {"type": "tool_execution_progress", "toolCallId": "c", "name": "n", "progress": LOOKALIKE},
        {"type": "error", "error": {"message": "m", "details": LOOKALIKE}},
    ):
        line = json.dumps({"sessionId": "s\ud800", **fields})
        assert json.loads(encode(decode_event(line))) == json.loads(line)


def test_converting_leaves_the_callers_tree_as_it_was_and_takes_finished_blocks():
    tree: dict[str, Any] = {"role": "user", "content": [copy.deepcopy(HOLOGRAM)]}
    before = copy.deepcopy(tree)
    message = convert_message(tree)
    assert tree == before
    assert isinstance(message.content[0], OpaqueBlock)
    text = TextBlock(text="t")
    assert convert_blocks([message.content[0], text, HOLOGRAM]) == [
        message.content[0],
        text,
        message.content[0],
    ]


@pytest.mark.parametrize(
    ("block", "path"),
    [
        ({"type": "text"}, "$.content[0]"),
        ({"type": 5}, "$.content[0].type"),
        ({}, "$.content[0]"),
        ("words", "$.content[0]"),
        ({"type": "image", "mimeType": "image/png"}, "$.content[0]"),
        ({"type": "image", "url": "u", "data": "d"}, "$.content[0]"),
    ],
)
def test_a_malformed_block_of_known_type_is_refused_with_its_path(block: object, path: str):
    with pytest.raises(DecodeError) as caught:
        decode_message(json.dumps({"role": "user", "content": [block, HOLOGRAM]}))
    assert caught.value.details == {"path": path}


def test_an_entry_of_unknown_kind_is_opaque_and_written_back_byte_for_byte():
    line = b'{"kind":"hologram", "id":"e","sessionId":"s","parentId":"p","x":1.50,"k":"\\u00e9"}'
    entry = decode_entry(line)
    assert isinstance(entry, OpaqueEntry)
    assert (entry.id, entry.session_id, entry.parent_id, entry.kind, entry.timestamp) == (
        "e", "s", "p", "hologram", "",
    )  # fmt: skip
    assert encode_entry(entry) == encode(entry) == line
    assert entry == decode_entry(line.replace(b", ", b","))
    assert entry != decode_entry(line.replace(b"1.50", b"2"))
    assert entry != object()
    assert "hologram" in repr(entry)


@pytest.mark.parametrize("kind", [r"\ud800", "", "Message", r"x\u0000"])
def test_any_string_can_be_an_unknown_kind(kind: str):
    line = f'{{"kind":"{kind}","id":"e","sessionId":"s"}}'
    entry = decode_entry(line)
    assert isinstance(entry, OpaqueEntry)
    assert entry.kind == json.loads(line)["kind"]


def test_an_entry_of_unknown_kind_needs_an_id_and_a_session():
    for line in ('{"kind":"hologram","id":"e"}', '{"kind":"hologram","sessionId":"s","id":1}'):
        with pytest.raises(DecodeError):
            decode_entry(line)
        with pytest.raises(DecodeError) as caught:
            opaque_entry(line)
        assert caught.value.details is not None
        assert caught.value.details["path"].startswith("$")


def test_an_event_of_unknown_type_is_opaque():
    line = b'{"type":"sunrise","sessionId":"s","runId":"r","at":[1,{"x":"\\ud800"}]}'
    event = decode_event(line)
    assert isinstance(event, OpaqueEvent)
    assert (event_type(event), event.session_id, event.run_id) == ("sunrise", "s", "r")
    assert encode(event) == line
    assert event == decode_event(line.decode())
    assert "sunrise" in repr(event)
    with pytest.raises(DecodeError):
        decode_event('{"type":5}')
    with pytest.raises(DecodeError, match=r"`turn` - at `\$`"):
        decode_event('{"type":"turn_started","sessionId":"s"}')


PRETTY = (
    b'{\r\n  "kind": "hologram",\n  "id": "e", "sessionId": "s",\n  "n": 1.50, "t": "a\\nb"\n}\n'
)


def test_a_pretty_printed_entry_becomes_one_line_with_its_tokens_as_they_were():
    for entry in (decode_entry(PRETTY), opaque_entry(PRETTY), entry_with_session(PRETTY, "s")):
        assert encode_entry(entry) == (
            b'{"kind":"hologram","id":"e","sessionId":"s","n":1.50,"t":"a\\nb"}'
        )
    assert json.loads(entry_with_session(PRETTY, "o").raw)["sessionId"] == "o"


def test_a_pretty_printed_text_with_a_lone_surrogate_becomes_one_line_too():
    pretty = PRETTY.replace(b"a\\nb", b"\\ud800")
    raw = opaque_entry(pretty).raw
    assert len(raw.splitlines()) == 1
    assert json.loads(raw) == json.loads(pretty)


def test_line_breaks_around_a_text_are_dropped_and_all_else_stays():
    line = b'{"kind": "hologram",  "id":"e","sessionId":"s"}'
    assert opaque_entry(b"\n " + line + b"\r\n").raw == line


def test_blocks_and_events_with_line_breaks_are_written_on_one_line():
    block = OpaqueBlock(type="x", raw=b'{"type":\n"x"}')
    assert encode(Message(role="user", content=[block])) == (
        b'{"role":"user","content":[{"type":"x"}]}'
    )
    assert b"\n" not in encode_ascii(decode_event(b'{"type":"sunrise",\n"sessionId":"s"}'))
    with pytest.raises(DecodeError):
        OpaqueBlock(type="x", raw=b"not\njson")


def test_raw_text_given_as_str_keeps_its_lone_surrogates_as_escapes():
    entry = opaque_entry('{"kind":"k","id":"e","sessionId":"s","x":"\ud800é"}')
    assert entry.raw == '{"kind":"k","id":"e","sessionId":"s","x":"\\ud800é"}'.encode()
    assert parse_json(entry.raw)["x"] == "\ud800é"


@pytest.mark.parametrize(
    "line",
    [
        '{"id":"e","kind":"k","sessionId":"old","x":1}',
        '{"id": "e", "kind": "k", "sessionId" : "old", "é": "\\u00e9"}',
        '{"id":"e","kind":"event","event":{"sessionId":"old"},"sessionId":"old"}',
        '{"id":"e","kind":"k","x":"\\"sessionId\\":\\"old\\"","sessionId":"old"}',
        '{"id":"e","kind":"k","a\\"sessionId":"old","sessionId":"old"}',
        '{"id":"e","kind":"k","session\\u0049d":"old","y":{"sessionId":"old"}}',
        '{"id":"e","kind":"k","sessionId":"ol\\u0064","\\ud800":[2.50]}',
        '{"id":"e","kind":"k","sessionId":"older","sessionId":"old"}',
    ],
)
@pytest.mark.parametrize("session_id", ["new", 'q"\\1\n', "\ud800", "é\u2028"])
def test_moving_an_entry_changes_its_session_and_nothing_else(line: str, session_id: str):
    moved = entry_with_session(line.encode(), session_id)
    assert moved.session_id == session_id
    assert json.loads(moved.raw) == {**json.loads(line), "sessionId": session_id}
    assert len(moved.raw.splitlines()) == 1


def test_moving_an_entry_keeps_the_spelling_of_its_text():
    line = b'{"id": "e", "kind": "k", "sessionId" : "old", "n": 1.50, "t": "\\u00e9"}'
    assert entry_with_session(line, "new").raw == line.replace(b"old", b"new")
    assert entry_with_session(line, "old").raw == line


def test_opaque_values_can_be_copied():
    block = OpaqueBlock(type="x", raw=b'{"type":"x"}')
    assert copy.deepcopy(block) == block
    entry = opaque_entry(b'{"kind":"k","id":"e","sessionId":"s"}')
    assert copy.deepcopy(entry) == entry
    assert block != entry
