"""Every quirk of Messages streams, one hand-written stream each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prism.core._errors import ProviderError
from prism.core._wire import NativeBlock, Replay, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from prism.core.providers import (
    AnthropicProvider,
    BlockFinished,
    Done,
    Notice,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    UsageUpdate,
)

from .wire import Answer, MemoryTransport, Reading, ask, collect, pieces, read

API = "anthropic-messages"
COUNTS = {
    "input_tokens": 10,
    "cache_read_input_tokens": 5,
    "cache_creation_input_tokens": 3,
    "output_tokens": 1,
}
USAGE = Usage(
    input_tokens=10, cache_read_tokens=5, cache_write_tokens=3, output_tokens=7, total_tokens=25
)


def start(usage: Any = None, **message: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": usage, **message}}


def opened(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    block = {"type": kind, **fields}
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    piece = {"type": f"{kind}_delta", **fields}
    return {"type": "content_block_delta", "index": index, "delta": piece}


def closed(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def text(content: str, index: int = 0) -> list[dict[str, Any]]:
    return [opened(index, "text", text=""), delta(index, "text", text=content), closed(index)]


def tool(index: int, *arguments: str, **fields: Any) -> list[dict[str, Any]]:
    block: dict[str, Any] = {"id": f"toolu_{index}", "name": "add", "input": {}, **fields}
    deltas = [delta(index, "input_json", partial_json=piece) for piece in arguments]
    return [opened(index, "tool_use", **block), *deltas, closed(index)]


def ends(stop: str | None = "end_turn", usage: Any = None, **more: Any) -> list[dict[str, Any]]:
    reason = {"stop_reason": stop, **more}
    return [{"type": "message_delta", "delta": reason, "usage": usage}, {"type": "message_stop"}]


def sse(*payloads: Any) -> bytes:
    parts: list[bytes] = []
    for payload in payloads:
        if isinstance(payload, bytes):
            parts.append(payload)
            continue
        name = payload.get("type", "")
        parts.append(f"event: {name}\ndata: {json.dumps(payload)}\n\n".encode())
    return b"".join(parts)


def provider_of(data: bytes, size: int | None = None, **more: Any) -> AnthropicProvider:
    transport = MemoryTransport(Answer(pieces(data, size), **more))
    return AnthropicProvider(transport=transport, new_id=lambda prefix: f"{prefix}_new")


async def answer(*payloads: Any) -> Reading:
    """Read a stream whole, and in pieces: the answer is the same."""
    data = sse(*payloads)
    whole = await collect(provider_of(data))
    for size in (1, 7, 64):
        assert await collect(provider_of(data, size)) == whole
    return read(whole)


# --- the end ----------------------------------------------------------------------------------


async def test_a_whole_answer() -> None:
    data = sse(start(COUNTS), {"type": "ping"}, *text("Hi"), *ends(usage={"output_tokens": 7}))
    assert await collect(provider_of(data)) == [
        UsageUpdate(
            usage=Usage(
                input_tokens=10,
                cache_read_tokens=5,
                cache_write_tokens=3,
                output_tokens=1,
                total_tokens=19,
            )
        ),
        TextDelta(text="Hi", index=0),
        UsageUpdate(usage=USAGE),
        Done(usage=USAGE, stop_reason="stop"),
    ]


async def test_nothing_after_the_end_is_read() -> None:
    reading = await answer(*text("Hi"), *ends(), *text("more", 1), {"type": "error"})
    assert (reading.text, reading.stop) == ("Hi", "stop")


async def test_text_without_an_end_is_truncated() -> None:
    reading = await answer(start(COUNTS), *text("Hi"))
    assert (reading.text, reading.code) == ("Hi", "stream_truncated")
    assert reading.usage is not None


async def test_a_stop_reason_without_the_last_event_is_an_end() -> None:
    reading = await answer(*text("Hi"), *ends()[:1])
    assert (reading.stop, reading.notices) == ("stop", ["stream_cut"])


async def test_a_gateway_may_end_as_chat_does() -> None:
    reading = await answer(*text("Hi"), *ends()[:1], b"data: [DONE]\n\n")
    assert (reading.text, reading.stop) == ("Hi", "stop")
    reading = await answer(*text("Hi"), *ends(), b"data: [DONE]\n\n")
    assert (reading.stop, reading.notices) == ("stop", [])
    assert (await answer(*text("Hi"), b"data: [DONE]\n\n")).code == "stream_truncated"


async def test_a_connection_that_breaks_is_a_truncated_stream() -> None:
    breaks = ProviderError("reset by peer", code="connection")
    reading = read(await collect(provider_of(sse(*text("Hi")), breaks=breaks)))
    assert reading.code == "stream_truncated"
    reading = read(await collect(provider_of(sse(*text("Hi"), *ends()[:1]), breaks=breaks)))
    assert (reading.stop, reading.notices) == ("stop", ["stream_cut", "stream_cut"])


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "context_limit"),
        ("pause_turn", "pause"),
        (None, "stop"),
    ],
)
async def test_stop_reasons(reason: str | None, stop: str) -> None:
    reading = await answer(*text("Hi"), *ends(reason))
    assert (reading.stop, reading.notices) == (stop, [])


@pytest.mark.parametrize("reason", ["refusal", "sensitive"])
async def test_a_refusal_names_its_category(reason: str) -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this."}
    data = sse(*ends(reason, stop_details=details))
    events = await collect(provider_of(data))
    assert events == [
        Notice(code="refusal", message="The model refused (bio): Not this."),
        Done(stop_reason="refusal"),
    ]


async def test_an_unknown_stop_reason_ends_the_turn_with_a_notice() -> None:
    reading = await answer(*text("Hi"), *ends("weird"))
    assert (reading.stop, reading.notices) == ("stop", ["unknown_stop_reason"])
    assert (await answer(*tool(0, "{}"), *ends("weird"))).stop == "tool_use"


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("overloaded_error", "temporarily_unavailable"),
        ("api_error", "server_error"),
        ("rate_limit_error", "rate_limit"),
        ("timeout_error", "timeout"),
        ("billing_error", "quota_exhausted"),
    ],
)
@pytest.mark.parametrize("before", [[], text("Hi")])
async def test_an_error_inside_the_stream(kind: str, code: str, before: list[Any]) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "Sorry"}, "request_id": "req_1"}
    reading = await answer(start(COUNTS), *before, error, *ends())
    assert reading.code == code
    assert reading.error is not None
    assert (reading.error.message, reading.error.name) == ("Sorry", kind)
    assert reading.error.details == {"vendorCode": kind, "requestId": "req_1"}
    assert reading.text == ("Hi" if before else "")


@pytest.mark.parametrize(
    ("status", "kind", "message", "more", "code", "details"),
    [
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", {},
         "context_overflow", {"used": 210_000, "limit": 200_000}),
        (400, "invalid_request_error",
         "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", {},
         "context_overflow", {"used": 210_000, "limit": 200_000}),
        (413, "request_too_large", "Request exceeds the maximum size", {},
         "request_too_large", {}),
        (429, "rate_limit_error", "prompt is too long: 2 tokens > 1 maximum", {},
         "rate_limit", {}),
        (429, "rate_limit_error", "Slow down", {"error_code": "ramp_limit_exceeded"},
         "rate_limit", {}),
        (400, "invalid_request_error", "No", {"error_code": "enforced_spend_limit_reached"},
         "quota_exhausted", {}),
        (400, "invalid_request_error", "Your credit balance is too low", {},
         "quota_exhausted", {}),
        (403, "permission_error", "No", {"error_code": "organization_on_hold"}, "permission", {}),
        (401, "authentication_error", "invalid x-api-key", {}, "auth", {}),
        (529, "overloaded_error", "Overloaded", {}, "temporarily_unavailable", {}),
        (400, "invalid_request_error",
         "messages.1.content.0: Invalid `signature` in `thinking` block.", {},
         "replay_invalid", {}),
        (400, "invalid_request_error", "The block is bound to a different conversation.", {},
         "replay_invalid", {}),
        (400, "invalid_request_error",
         "messages.1.content.0.type: Expected `thinking`, but found `tool_use`.", {},
         "replay_invalid", {}),
    ],
)  # fmt: skip
async def test_an_error_as_the_answer(
    status: int, kind: str, message: str, more: dict[str, str], code: str, details: dict[str, Any]
) -> None:
    error = {"type": kind, "message": message, **({"details": more} if more else {})}
    data = json.dumps({"type": "error", "error": error}).encode()
    reading = read(await collect(provider_of(data, status=status)))
    assert reading.code == code
    assert reading.error is not None
    found = reading.error.details or {}
    assert {name: found.get(name) for name in details} == details


async def test_a_key_that_the_vendor_repeats_is_not_shown() -> None:
    error = {"type": "authentication_error", "message": "invalid x-api-key sk-ant-secret-0123"}
    data = json.dumps({"type": "error", "error": error}).encode()
    provider = AnthropicProvider(
        transport=MemoryTransport(Answer([data], status=401)), credential="sk-ant-secret-0123"
    )
    events = await collect(provider)
    assert "sk-ant-secret-0123" not in repr(events)
    assert read(events).code == "auth"


@pytest.mark.parametrize("broken", [b"data: {\n\n", b'data: {"a":\xff}\n\n'])
async def test_an_event_that_cannot_be_read_is_malformed_output(broken: bytes) -> None:
    reading = await answer(*text("Hi"), broken, *ends())
    assert (reading.code, reading.text) == ("malformed_output", "Hi")


async def test_events_and_deltas_that_are_not_known_are_skipped() -> None:
    noise = [
        {"type": "message_annotation", "note": 1},
        {"no": "type"},
        delta(0, "sparkle", glitter=1),
        delta(9, "sparkle", glitter=1),
        delta(9, "input_json", partial_json="{"),
        closed(9),
        {"type": "content_block_start", "index": 3, "content_block": None},
        {"type": "content_block_delta", "index": 0, "delta": None},
        {"type": "message_start", "message": None},
        b'data: "beat"\n\n',
    ]
    reading = await answer(*noise, *text("Hi"), *noise, *ends())
    assert reading == Reading(text="Hi", stop="stop")


async def test_the_type_may_stand_in_the_events_name_alone() -> None:
    events = [*text("Hi"), *ends()]
    data = b"".join(
        f"event: {event.pop('type')}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )
    assert read(await collect(provider_of(data))) == Reading(text="Hi", stop="stop")


# --- text and reasoning -----------------------------------------------------------------------


async def test_an_emoji_may_be_cut_by_the_network_and_by_the_vendor() -> None:
    assert (await answer(*text("a😀b"), *ends())).text == "a😀b"
    event = json.dumps(delta(0, "text", text="HALF")).encode()
    halves = [b"data: %s\n\n" % event.replace(b"HALF", half) for half in (rb"\ud83d", rb"\ude00")]
    assert (await answer(*halves, *ends())).text == "\ud83d\ude00"  # joined by the runtime


async def test_a_block_may_begin_with_text_and_miss_its_start_or_its_end() -> None:
    reading = await answer(opened(0, "text", text="H"), delta(0, "text", text="i"), *ends())
    assert reading.text == "Hi"
    assert (await answer(delta(0, "text", text="Hi"), *ends())).text == "Hi"
    reading = await answer(
        opened(0, "thinking", thinking="h", signature="s"),
        delta(0, "thinking", thinking="m"),
        opened(0, "text", text="Hi"),  # the same number again
        *ends(),
    )
    assert (reading.thinking, reading.text) == ("hm", "Hi")
    assert reading.blocks == {
        0: ThinkingBlock(
            text="hm", signature="s", replay=Replay(api=API, kind="signature", data="s")
        )
    }


async def test_a_block_without_an_end_is_whole_at_the_end_of_the_message() -> None:
    whole, cut = tool(0, "{}"), tool(1, '{"a":1}')[:-1]
    reading = await answer(*whole, *cut, *ends("tool_use"))
    assert [(call.id, call.arguments) for call in reading.calls] == [
        ("toolu_0", {}),
        ("toolu_1", {"a": 1}),
    ]


async def test_empty_blocks_leave_no_trace() -> None:
    empty = [opened(0, "text", text=""), closed(0), opened(1, "thinking", thinking=""), closed(1)]
    assert await answer(*empty, *text("Hi", 2), *ends()) == Reading(text="Hi", stop="stop")


async def test_thinking_ends_with_its_signature() -> None:
    data = sse(
        opened(0, "thinking", thinking="", signature=""),
        delta(0, "thinking", thinking="hm"),
        delta(0, "signature", signature="si"),
        delta(0, "signature", signature="gn"),
        closed(0),
        *text("Hi", 1),
        *ends(),
    )
    block = ThinkingBlock(
        text="hm", signature="sign", replay=Replay(api=API, kind="signature", data="sign")
    )
    assert await collect(provider_of(data)) == [
        ThinkingDelta(text="hm", index=0),
        BlockFinished(index=0, block=block),
        TextDelta(text="Hi", index=1),
        Done(stop_reason="stop"),
    ]
    bound = read(await collect(provider_of(data), ask(model="claude-opus-5-5"))).blocks[0]
    assert isinstance(bound, ThinkingBlock)
    assert bound.replay is not None
    assert bound.replay.prefix is not None


async def test_thinking_that_is_not_shown_keeps_its_signature() -> None:
    reading = await answer(
        opened(0, "thinking", thinking="", signature=""),
        delta(0, "signature", signature="sign"),
        closed(0),
        *tool(1, ""),
        *ends("tool_use"),
    )
    block = reading.blocks[0]
    assert isinstance(block, ThinkingBlock)
    assert (block.text, block.signature) == ("", "sign")
    assert [call.arguments for call in reading.calls] == [{}]
    assert reading.stop == "tool_use"


async def test_thinking_without_a_signature_has_nothing_to_replay() -> None:
    reading = await answer(
        opened(0, "thinking", thinking=""), delta(0, "thinking", thinking="hm"), closed(0), *ends()
    )
    assert reading.blocks == {0: ThinkingBlock(text="hm")}


async def test_redacted_thinking_is_complete_at_once() -> None:
    reading = await answer(opened(0, "redacted_thinking", data="xyz"), closed(0), *ends())
    assert list(reading.blocks) == [0]
    block = reading.blocks[0]
    assert isinstance(block, ThinkingBlock)
    assert block.redacted
    assert block.replay is not None
    assert (block.text, block.replay.kind, block.replay.data) == ("", "redacted", "xyz")


async def test_citations_are_kept_for_the_way_back() -> None:
    citation = {"type": "web_search_result_location", "url": "https://a.test", "cited_text": "x"}
    reading = await answer(
        opened(0, "text", text="", citations=[]),
        delta(0, "citations", citation=citation),
        delta(0, "text", text="Hi"),
        closed(0),
        *ends(),
    )
    block = reading.blocks[0]
    assert isinstance(block, TextBlock)
    assert block.replay is not None
    assert block.replay.kind == "citations"
    assert json.loads(block.replay.data) == [citation]


async def test_reasoning_that_the_vendor_dropped_is_told() -> None:
    dropped = {
        "type": "thinking_dropped",
        "path": "messages.1",
        "reason": "prefix_binding_mismatch",
    }
    other = {"type": "thinking_mismatch_allowed", "path": "messages.3"}
    message = start(COUNTS, input_transformations=[dropped, other])
    events = await collect(provider_of(sse(message, *text("Hi"), *ends())))
    notices = [event for event in events if isinstance(event, Notice)]
    assert notices == [
        Notice(
            code="thinking_dropped",
            message="The vendor left 1 reasoning blocks out of the conversation: "
            "prefix_binding_mismatch.",
        )
    ]


# --- calls ------------------------------------------------------------------------------------


async def test_arguments_are_parsed_once_at_the_end() -> None:
    data = sse(*tool(0, "", '{"a"', ": 1}"), *ends("tool_use"))
    block = ToolCallBlock(id="toolu_0", name="add", arguments={"a": 1})
    assert await collect(provider_of(data)) == [
        ToolCallChunk(index=0, id="toolu_0", name="add"),
        ToolCallChunk(index=0, arguments_text='{"a"'),
        ToolCallChunk(index=0, arguments_text=": 1}"),
        BlockFinished(index=0, block=block),
        Done(stop_reason="tool_use"),
    ]


@pytest.mark.parametrize(
    ("arguments", "parsed", "raw"),
    [
        ("", {}, None),
        ("null", {}, None),
        ("{}", {}, None),
        ("[1]", {}, "[1]"),
        ('{"a":', {}, '{"a":'),
    ],
)
async def test_arguments_that_are_no_object_do_not_end_the_turn(
    arguments: str, parsed: dict[str, Any], raw: str | None
) -> None:
    reading = await answer(*text("Hi"), *tool(1, arguments), *ends("tool_use"))
    (call,) = reading.calls
    assert (call.arguments, call.raw_arguments) == (parsed, raw)
    assert reading.stop == "tool_use"


async def test_a_host_may_give_the_input_whole() -> None:
    reading = await answer(*tool(0, input={"a": 1}), *ends("tool_use"))
    assert [call.arguments for call in reading.calls] == [{"a": 1}]
    reading = await answer(*tool(0, '{"a": 2}', input={"a": 1}), *ends("tool_use"))
    assert [call.arguments for call in reading.calls] == [{"a": 2}]


@pytest.mark.parametrize("fields", [{"id": None}, {"id": ""}, {"id": 7}])
async def test_a_call_without_an_id_gets_one(fields: dict[str, Any]) -> None:
    reading = await answer(*tool(0, "{}", **fields), *ends("tool_use"))
    assert [call.id for call in reading.calls] == ["call_new"]


async def test_an_id_is_given_out_once() -> None:
    reading = await answer(*tool(0, "{}"), *tool(1, "{}", id="toolu_0"), *ends("tool_use"))
    assert [call.id for call in reading.calls] == ["toolu_0", "call_new"]


async def test_a_delta_of_another_kind_than_its_block_is_not_taken_for_its_content() -> None:
    reading = await answer(
        start(),
        opened(0, "thinking", thinking=""),
        delta(0, "thinking", thinking="hm"),
        delta(0, "input_json", partial_json="{}"),
        delta(0, "text", text="?"),
        closed(0),
        opened(1, "tool_use", id="t1", name="add", input={}),
        delta(1, "text", text="?"),
        delta(1, "signature", signature="?"),
        delta(1, "input_json", partial_json="{}"),
        closed(1),
        *ends("tool_use"),
    )
    assert (reading.text, reading.thinking) == ("", "hm")
    assert reading.calls == [ToolCallBlock(id="t1", name="add", arguments={})]


async def test_parallel_calls_may_interleave() -> None:
    first, second = tool(0, '{"a":', "1}"), tool(1, '{"b":', "2}")
    mixed = [event for pair in zip(first, second, strict=True) for event in pair]
    reading = await answer(*mixed, *ends("tool_use"))
    assert [(call.id, call.arguments) for call in reading.calls] == [
        ("toolu_0", {"a": 1}),
        ("toolu_1", {"b": 2}),
    ]


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("arguments", ["", '{"a": 1, "b'])
async def test_a_call_that_a_limit_cut_is_dropped(reason: str, arguments: str) -> None:
    reading = await answer(*tool(0, '{"a": 1}'), *tool(1, arguments), *ends(reason))
    assert [call.id for call in reading.calls] == ["toolu_0"]
    assert reading.notices == ["tool_call_dropped"]
    assert reading.stop in {"length", "context_limit"}


# --- the vendor's own tools ---------------------------------------------------------------------


async def test_server_tools_are_kept_as_they_are() -> None:
    result: dict[str, Any] = {"tool_use_id": "srv_1", "content": [{"n": 2**70}]}
    reading = await answer(
        opened(0, "server_tool_use", id="srv_1", name="web_search", input={}),
        delta(0, "input_json", partial_json='{"query":'),
        delta(0, "input_json", partial_json=' "x"}'),
        closed(0),
        opened(1, "web_search_tool_result", **result),
        closed(1),
        *text("Hi", 2),
        *ends("pause_turn"),
    )
    blocks = [block for block in reading.blocks.values() if isinstance(block, NativeBlock)]
    assert [(block.api, block.kind) for block in blocks] == [
        (API, "server_tool_use"),
        (API, "web_search_tool_result"),
    ]
    call, found = (json.loads(block.data) for block in blocks)
    assert call == {
        "type": "server_tool_use",
        "id": "srv_1",
        "name": "web_search",
        "input": {"query": "x"},
    }
    assert found == {"type": "web_search_tool_result", **result}
    assert (reading.calls, reading.stop) == ([], "pause")


async def test_a_compaction_grows_by_its_deltas() -> None:
    reading = await answer(
        opened(0, "compaction", content=None),
        delta(0, "compaction", content="So "),
        delta(0, "compaction", content="far."),
        closed(0),
        *ends(),
    )
    (block,) = reading.blocks.values()
    assert isinstance(block, NativeBlock)
    assert json.loads(block.data) == {"type": "compaction", "content": "So far."}


# --- usage ------------------------------------------------------------------------------------


async def test_usage_is_cumulative_and_nulls_say_nothing() -> None:
    long = {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 2}
    last = {
        "input_tokens": None,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 4},
        "server_tool_use": {"web_search_requests": 1},
    }
    reading = await answer(
        start({**COUNTS, "cache_creation": long}), *text("Hi"), *ends(usage=last)
    )
    assert reading.usage == Usage(
        input_tokens=10,
        cache_read_tokens=5,
        cache_write_tokens=3,
        cache_write_long_tokens=2,
        output_tokens=7,
        reasoning_tokens=4,
        total_tokens=25,
    )


@pytest.mark.parametrize("usage", [None, [], {"input_tokens": "many", "output_tokens": -1}])
async def test_usage_may_be_missing_or_nonsense(usage: Any) -> None:
    reading = await answer(start(usage), *text("Hi"), *ends(usage=usage))
    assert (reading.stop, reading.usage) == ("stop", None)
