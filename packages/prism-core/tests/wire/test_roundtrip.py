"""What is written is read back: every shape, with hostile contents."""

import json
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given, settings, strategies as st

from prism.core import _wire as wire
from prism.core._wire import (
    Codec,
    CommandResult,
    CompactionData,
    ErrorEnvelope,
    EventEnvelope,
    KnownEntry,
    KnownEvent,
    Message,
    ModelConfig,
    ProviderOptions,
    RpcEvent,
    RpcRequest,
    RpcResponse,
    ToolResult,
    UsageLimits,
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
    to_plain,
)
from prism.core._wire.content import block_codec

from .strategies import json_values, of, texts

ENTRIES = get_args(KnownEntry)
EVENTS = get_args(KnownEvent)
OTHERS: dict[type[Any], Callable[[bytes], Any]] = {
    Message: decode_message,
    ToolResult: block_codec(ToolResult).decode,
    CommandResult: block_codec(CommandResult).decode,
    **{
        kind: Codec[Any](kind).decode
        for kind in (
            CompactionData, ErrorEnvelope, EventEnvelope, ModelConfig, ProviderOptions, RpcEvent,
            RpcRequest, RpcResponse, UsageLimits,
        )
    },
}  # fmt: skip


def check_both_ways(value: object, decode: Callable[[bytes], Any]) -> None:
    data = encode(value)
    assert len(data.splitlines()) == 1
    back = decode(data)
    assert type(back) is type(value)
    assert back == value
    assert encode(back) == data
    assert parse_json(data) == to_plain(value)
    # The standard library, which knows nothing of Prism, agrees.
    assert json.loads(data) == to_plain(value)
    plain = encode_ascii(value)
    assert plain.isascii()
    assert len(plain.decode().splitlines()) == 1
    assert decode(plain) == value


@pytest.mark.parametrize("kind", ENTRIES)
@settings(max_examples=12)
@given(data=st.data())
def test_every_kind_of_entry_comes_back_equal(kind: type[Any], data: st.DataObject):
    check_both_ways(data.draw(of(kind)), decode_entry)


@pytest.mark.parametrize("kind", EVENTS)
@settings(max_examples=8)
@given(data=st.data())
def test_every_type_of_event_comes_back_equal(kind: type[Any], data: st.DataObject):
    check_both_ways(data.draw(of(kind)), decode_event)


@pytest.mark.parametrize("kind", OTHERS)
@settings(max_examples=10)
@given(data=st.data())
def test_every_other_shape_comes_back_equal(kind: type[Any], data: st.DataObject):
    check_both_ways(data.draw(of(kind)), OTHERS[kind])


def test_every_exported_struct_is_one_of_those_that_are_tried():
    tried: set[Any] = set()

    def visit(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, wire.WireStruct):
            if kind not in tried:
                tried.add(kind)
                for annotation in kind.__annotations__:
                    visit(types_of(kind)[annotation])
            return
        for part in get_args(kind):
            visit(part)

    for kind in (*ENTRIES, *EVENTS, *OTHERS):
        visit(kind)
    exported = {
        value
        for name in wire.__all__
        if isinstance(value := getattr(wire, name), type) and issubclass(value, wire.WireStruct)
    }
    assert exported - {wire.WireStruct} <= tried


def types_of(kind: type[Any]) -> dict[str, Any]:
    import msgspec

    return {field.name: field.type for field in msgspec.structs.fields(kind)}


unknown_fields = st.dictionaries(texts.map(lambda text: "x-" + text), json_values, min_size=1)


@pytest.mark.parametrize("kind", ENTRIES)
@settings(max_examples=8)
@given(data=st.data(), extra=unknown_fields)
def test_unknown_fields_are_ignored_in_memory_and_kept_in_the_text(
    kind: type[Any], data: st.DataObject, extra: dict[str, Any]
):
    entry = data.draw(of(kind, 1))
    fields = {**parse_json(encode(entry)), **extra}
    text = encode(fields)
    assert decode_entry(text) == entry
    kept = opaque_entry(text)
    assert kept.raw == text
    assert encode_entry(kept) == text
    moved = entry_with_session(text, "other")
    assert moved.session_id == "other"
    assert parse_json(moved.raw) == {**fields, "sessionId": "other"}


@pytest.mark.parametrize("kind", EVENTS)
@settings(max_examples=4)
@given(data=st.data(), extra=unknown_fields)
def test_unknown_fields_of_events_are_ignored(
    kind: type[Any], data: st.DataObject, extra: dict[str, Any]
):
    event = data.draw(of(kind, 1))
    assert decode_event(encode({**parse_json(encode(event)), **extra})) == event
    assert event_type(event) == parse_json(encode(event))["type"]


@given(value=json_values)
def test_any_json_value_is_read_as_the_standard_library_reads_it(value: Any):
    data = encode(value)
    assert parse_json(data) == json.loads(data) == value
    assert parse_json(data.decode()) == value
    assert parse_json(bytearray(data)) == value
    assert parse_json(memoryview(data)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False)) == value
