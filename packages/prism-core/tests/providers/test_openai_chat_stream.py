"""Every quirk of Chat Completions streams, one hand-written stream each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prism.core._errors import ProviderError
from prism.core._wire import ModelLimits, Replay, ThinkingBlock, ToolCallBlock, Usage
from prism.core.providers import (
    Done,
    Failed,
    Notice,
    OpenAIChatProvider,
    TextDelta,
    ToolCallChunk,
    UsageUpdate,
)

from .wire import Answer, MemoryTransport, Reading, ask, collect, pieces, read, sse


def chunk(delta: dict[str, Any] | None = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c1", "model": "m", "choices": [choice], **more}


def text(content: Any) -> dict[str, Any]:
    return chunk({"content": content})


def tool(**piece: Any) -> dict[str, Any]:
    function = {name: piece.pop(name) for name in ("name", "arguments") if name in piece}
    return chunk({"tool_calls": [{**piece, "function": function}]})


STOP = chunk(finish="stop")
CALLS = chunk(finish="tool_calls")


def provider_of(data: bytes, size: int | None = None, **more: Any) -> OpenAIChatProvider:
    return OpenAIChatProvider(
        base_url="https://vendor.test/v1",
        transport=MemoryTransport(Answer(pieces(data, size))),
        new_id=lambda prefix: f"{prefix}_new",
        **more,
    )


async def answer(*payloads: Any, end: bytes = b"data: [DONE]\n\n", **more: Any) -> Reading:
    """Read a stream whole, and in pieces: the answer is the same."""
    data = sse(*payloads, end=end)
    whole = await collect(provider_of(data, **more))
    for size in (1, 7, 64):
        assert await collect(provider_of(data, size, **more)) == whole
    return read(whole)


# --- the end ----------------------------------------------------------------------------------


async def test_usage_comes_after_the_finish_reason_and_before_the_end() -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    data = sse(text("Hi"), STOP, {"choices": [], "usage": counts})
    usage = Usage(input_tokens=10, output_tokens=2, total_tokens=12)
    assert await collect(provider_of(data)) == [
        TextDelta(text="Hi", index=0),
        UsageUpdate(usage=usage),
        Done(usage=usage, stop_reason="stop"),
    ]


async def test_nothing_after_the_end_is_read() -> None:
    reading = await answer(text("Hi"), STOP, "[DONE]", text("more"), {"error": {"message": "x"}})
    assert (reading.text, reading.stop) == ("Hi", "stop")


async def test_an_end_without_a_finish_reason_is_an_end() -> None:
    assert (await answer(text("Hi"))).stop == "stop"


async def test_a_finish_reason_without_an_end_is_an_end() -> None:
    assert (await answer(text("Hi"), STOP, end=b"")).stop == "stop"


async def test_the_last_event_needs_no_blank_line() -> None:
    assert (await answer(text("Hi"), end=b"data: [DONE]")).stop == "stop"


@pytest.mark.parametrize("end", [b"", b"data: [DON", b'data: {"choices":[{"del'])
async def test_text_without_either_is_truncated(end: bytes) -> None:
    reading = await answer(text("Hi"), end=end)
    assert reading.code == "stream_truncated"
    assert reading.text == "Hi"


@pytest.mark.parametrize("body", [b"", b": only a comment\n\n"])
async def test_a_stream_without_events_is_truncated(body: bytes) -> None:
    assert (await answer(end=body)).code == "stream_truncated"


async def test_a_connection_that_breaks_is_a_truncated_stream() -> None:
    breaks = ProviderError("reset by peer", code="connection")
    transport = MemoryTransport(Answer([sse(text("Hi"), end=b"")], breaks=breaks))
    provider = OpenAIChatProvider(base_url="https://vendor.test/v1", transport=transport)
    reading = read(await collect(provider))
    assert reading.code == "stream_truncated"
    assert reading.error is not None
    assert reading.error.details == {"reason": "connection"}


async def test_a_connection_that_breaks_after_the_finish_reason_cost_only_the_usage() -> None:
    breaks = ProviderError("reset by peer", code="connection")
    transport = MemoryTransport(Answer([sse(text("Hi"), STOP, end=b"")], breaks=breaks))
    provider = OpenAIChatProvider(base_url="https://vendor.test/v1", transport=transport)
    assert await collect(provider) == [
        TextDelta(text="Hi", index=0),
        Notice(code="stream_cut", message="reset by peer"),
        Done(stop_reason="stop"),
    ]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        ("eos", "stop"),
        ("end_turn", "stop"),
        ("tool_calls", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "refusal"),
        ("sensitive", "refusal"),
        ("model_context_window_exceeded", "context_limit"),
    ],
)
async def test_finish_reasons(reason: str, stop: str) -> None:
    reading = await answer(text("Hi"), chunk(finish=reason))
    assert (reading.stop, reading.notices) == (stop, [])


async def test_an_unknown_finish_reason_ends_the_turn_with_a_notice() -> None:
    reading = await answer(text("Hi"), chunk(finish="weird"))
    assert (reading.stop, reading.notices) == ("stop", ["unknown_stop_reason"])


async def test_the_finish_reason_error_is_a_failure() -> None:
    assert (await answer(text("Hi"), chunk(finish="error"))).code == "server_error"


# --- chunks -----------------------------------------------------------------------------------


async def test_chunks_may_have_no_choices_or_other_choices() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}]}
    both = {
        "choices": [
            {"index": 1, "delta": {"content": "other"}},
            {"index": 0, "delta": {"content": "Hi"}},
        ]
    }
    reading = await answer({}, {"choices": None}, {"choices": []}, other, both, STOP)
    assert reading.text == "Hi"


async def test_null_and_empty_fields_say_nothing() -> None:
    empty = {"content": None, "reasoning": "", "tool_calls": None, "refusal": None}
    reading = await answer(chunk(empty), text(""), text("Hi"), STOP)
    assert reading == Reading(text="Hi", stop="stop")


async def test_comments_pings_and_json_that_is_no_object_are_skipped() -> None:
    ping = b": ping\n\nevent: ping\ndata: {}\n\n"
    assert (await answer(ping, "null", '"beat"', "[]", text("Hi"), STOP)).text == "Hi"


async def test_an_emoji_may_be_cut_by_the_network_and_by_the_vendor() -> None:
    assert (await answer(text("a😀b"), STOP)).text == "a😀b"
    halves = [f'{{"choices":[{{"delta":{{"content":"\\u{half}"}}}}]}}' for half in ("d83d", "de00")]
    assert (await answer(*halves, STOP)).text == "\ud83d\ude00"  # joined by the runtime


@pytest.mark.parametrize(
    "broken", ["{", '{"choices":', '{"choices":7}', b'data: {"a":\xff}\n\n', "[" * 2_000]
)
async def test_an_event_that_cannot_be_read_is_malformed_output(broken: Any) -> None:
    reading = await answer(text("Hi"), broken, STOP)
    assert reading.code == "malformed_output"
    assert reading.text == "Hi"


async def test_an_event_above_the_limit_is_refused() -> None:
    data = sse(text("Hi"), text("x" * 500))
    provider = provider_of(data, max_event_bytes=200)
    reading = read(await collect(provider))
    assert reading.code == "response_too_large"
    assert reading.error is not None
    assert reading.error.details == {"limit": 200}


async def test_leading_white_space_is_dropped_where_a_vendor_makes_it() -> None:
    stream = (text("\n\n"), text(" Hi"), text(" there"), STOP)
    assert (await answer(*stream)).text == "\n\n Hi there"
    assert (await answer(*stream, id="qwen")).text == "Hi there"


async def test_a_refusal_is_text_and_a_stop_reason() -> None:
    reading = await answer(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), STOP)
    assert (reading.text, reading.stop) == ("I cannot.", "refusal")


# --- reasoning --------------------------------------------------------------------------------


def by_field(name: str, text: str) -> ThinkingBlock:
    return ThinkingBlock(text=text, replay=Replay(api="openai-chat", kind="field", data=name))


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
async def test_reasoning_remembers_its_field(field: str) -> None:
    reading = await answer(chunk({field: "h"}), chunk({field: "m"}), text("Hi"), STOP)
    assert reading.blocks == {0: by_field(field, "hm")}
    assert reading.text == "Hi"


async def test_reasoning_in_two_fields_at_once_is_taken_once() -> None:
    twice = chunk({"reasoning_content": "hm", "reasoning": "hm"})
    assert (await answer(twice, text("Hi"), STOP)).blocks == {
        0: by_field("reasoning_content", "hm")
    }


async def test_reasoning_after_text_is_a_block_of_its_own() -> None:
    reading = await answer(
        chunk({"reasoning": "a"}), text("b"), chunk({"reasoning": "c"}), text("d"), STOP
    )
    assert reading.blocks == {0: by_field("reasoning", "a"), 2: by_field("reasoning", "c")}
    assert reading.text == "bd"


async def test_reasoning_comes_as_parts_of_content() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "h"}, 7]},
        {"type": "thinking", "thinking": "m"},
        {"type": "reference", "ids": [1]},
        "noise",
        {"type": "text", "text": "Hi"},
    ]
    reading = await answer(text(parts), text(" you"), STOP)
    assert reading.blocks == {0: by_field("content.thinking", "hm")}
    assert reading.text == "Hi you"


def detail(**fields: Any) -> dict[str, Any]:
    return {"reasoning_details": [{"index": 0, "type": "reasoning.text", **fields}]}


async def test_reasoning_details_are_collected_for_the_way_back() -> None:
    reading = await answer(
        chunk({"reasoning": "h", **detail(text="h", signature=None)}),
        chunk({"reasoning": "m", **detail(text="m")}),
        chunk(detail(signature="sig", format="f")),
        text("Hi"),
        STOP,
    )
    data = '[{"index":0,"type":"reasoning.text","text":"hm","signature":"sig","format":"f"}]'
    replay = Replay(api="openai-chat", kind="details", data=data)
    assert reading.blocks == {0: ThinkingBlock(text="hm", replay=replay)}


async def test_a_detail_keeps_what_a_later_piece_leaves_empty() -> None:
    first = {"type": "reasoning.text", "index": 0, "text": "a", "signature": "s", "id": None}
    later = {"type": "reasoning.text", "index": 0, "text": "b", "signature": None}
    reading = await answer(
        chunk({"reasoning_details": [first]}), chunk({"reasoning_details": [later]}), STOP
    )
    (block,) = reading.blocks.values()
    assert isinstance(block, ThinkingBlock)
    assert block.replay is not None
    assert json.loads(block.replay.data) == [{**first, "text": "ab"}]


async def test_reasoning_in_details_alone_is_shown() -> None:
    reading = await answer(
        chunk(detail(text="h")),
        chunk({"reasoning_details": [{"index": 1, "type": "reasoning.summary", "summary": "m"}]}),
        STOP,
    )
    assert reading.thinking == "hm"


async def test_encrypted_reasoning_alone_is_a_redacted_block() -> None:
    reading = await answer(
        text("Hi"), chunk(detail(type="reasoning.encrypted", data="gA==", id="rs_1")), STOP
    )
    block = reading.blocks[1]
    assert isinstance(block, ThinkingBlock)
    assert (block.text, block.redacted) == ("", True)
    assert block.replay is not None
    assert "gA==" in block.replay.data


async def test_empty_details_are_no_reasoning() -> None:
    reading = await answer(chunk({"reasoning_details": [], **detail(text="")}), text("Hi"), STOP)
    assert reading.blocks == {}


# --- calls ------------------------------------------------------------------------------------


def made(
    call_id: str, name: str, arguments: dict[str, Any], raw: str | None = None
) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name=name, arguments=arguments, raw_arguments=raw)


async def test_a_call_comes_in_pieces() -> None:
    data = sse(
        tool(index=0, id="c1", name="add", arguments=""),
        tool(index=0, arguments='{"a"'),
        tool(index=0, arguments=":1}"),
        CALLS,
    )
    events = await collect(provider_of(data))
    assert events[:2] == [
        ToolCallChunk(index=0, id="c1", name="add", arguments_text='{"a"'),
        ToolCallChunk(index=0, arguments_text=":1}"),
    ]
    reading = read(events)
    assert reading.calls == [made("c1", "add", {"a": 1})]
    assert reading.stop == "tool_use"


async def test_parallel_calls_interleave_by_index() -> None:
    reading = await answer(
        text("Both:"),
        tool(index=0, id="c1", name="a", arguments='{"n":'),
        tool(index=1, id="c2", name="b", arguments='{"n":'),
        tool(index=0, arguments="1}"),
        tool(index=1, arguments="2}"),
        STOP,
    )
    assert reading.calls == [made("c1", "a", {"n": 1}), made("c2", "b", {"n": 2})]
    assert sorted(reading.blocks) == [1, 2]
    assert reading.stop == "tool_use"


@pytest.mark.parametrize("index", [{}, {"index": 0}, {"index": None}])
async def test_a_new_id_begins_a_new_call_where_the_index_says_nothing(
    index: dict[str, Any],
) -> None:
    reading = await answer(
        tool(**index, id="c1", name="a", arguments='{"n":'),
        tool(**index, arguments="1}"),
        tool(**index, id="c2", name="a", arguments='{"n":2}'),
        CALLS,
    )
    assert reading.calls == [made("c1", "a", {"n": 1}), made("c2", "a", {"n": 2})]


async def test_an_id_may_come_with_every_piece() -> None:
    reading = await answer(
        tool(id="c1", name="a", arguments='{"n":'),
        tool(id="c2", name="b", arguments="{"),
        tool(id="c1", arguments="1}"),
        tool(id="c2", arguments="}"),
        CALLS,
    )
    assert reading.calls == [made("c1", "a", {"n": 1}), made("c2", "b", {})]


async def test_whole_calls_without_ids_are_told_apart_by_their_names() -> None:
    reading = await answer(tool(name="a", arguments="{}"), tool(name="b", arguments="{}"), CALLS)
    assert [call.name for call in reading.calls] == ["a", "b"]
    assert reading.calls[0].id == "call_new"


@pytest.mark.parametrize("missing", [{}, {"id": ""}, {"id": None}])
async def test_a_call_without_an_id_gets_one(missing: dict[str, Any]) -> None:
    reading = await answer(tool(index=0, **missing, name="a", arguments="{}"), CALLS)
    assert reading.calls == [made("call_new", "a", {})]


async def test_an_id_that_is_given_twice_counts_once() -> None:
    reading = await answer(
        tool(index=0, id="c1", name="a", arguments="{}"),
        tool(index=1, id="c1", name="b", arguments="{}"),
        CALLS,
    )
    assert [call.id for call in reading.calls] == ["c1", "call_new"]


async def test_calls_appear_in_their_order_also_when_one_has_no_arguments_yet() -> None:
    data = sse(
        tool(index=0, id="c1", name="a", arguments=""),
        tool(index=1, id="c2", name="b", arguments='{"x":'),
        tool(index=1, arguments="1}"),
        tool(index=0, arguments="{}"),
        CALLS,
    )
    chunks = [
        event for event in await collect(provider_of(data)) if isinstance(event, ToolCallChunk)
    ]
    assert [(piece.index, piece.id, piece.arguments_text) for piece in chunks] == [
        (0, "c1", ""),
        (1, "c2", '{"x":'),
        (1, None, "1}"),
        (0, None, "{}"),
    ]


async def test_a_name_that_comes_again_after_arguments_belongs_to_the_same_call() -> None:
    reading = await answer(
        tool(index=0, id="c1", name="get_weather", arguments='{"a":'),
        tool(index=0, name="get_weather", arguments="1"),
        tool(index=0, name="other", arguments="}"),
        CALLS,
    )
    assert reading.calls == [made("c1", "get_weather", {"a": 1})]


async def test_usage_that_counts_nothing_takes_nothing_back() -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 2}
    reading = await answer(text("Hi"), {"usage": counts}, STOP, {"usage": {}})
    assert reading.usage == Usage(input_tokens=10, output_tokens=2, total_tokens=12)


@pytest.mark.parametrize(
    "names", [["get_", "weather"], ["get_weather", "get_weather"], ["get_", "get_weather"]]
)
async def test_a_name_comes_in_pieces_or_again(names: list[str]) -> None:
    reading = await answer(
        *(tool(index=0, id="c1", name=name, arguments="") for name in names),
        tool(index=0, name="get_weather", arguments="{}"),
        CALLS,
    )
    assert reading.calls == [made("c1", "get_weather", {})]


@pytest.mark.parametrize(
    ("written", "arguments", "raw"),
    [
        ("", {}, None),
        ("  ", {}, None),
        ("null", {}, None),
        ("{}", {}, None),
        ('{"n":1180591620717411303424}', {"n": 2**70}, None),
        ('{"e":"\\ud83d\\ude00"}', {"e": "😀"}, None),
        ('{"lone":"\\ud83d"}', {"lone": "\ud83d"}, None),
        ("[1]", {}, "[1]"),
        ('"text"', {}, '"text"'),
        ('{"a":', {}, '{"a":'),
        ('{"a":NaN}', {}, '{"a":NaN}'),
        ("{'a': 1}", {}, "{'a': 1}"),
        ('{"a":1} trailing', {}, '{"a":1} trailing'),
    ],
)
async def test_arguments_are_parsed_once_and_kept_raw_when_they_are_no_object(
    written: str, arguments: dict[str, Any], raw: str | None
) -> None:
    reading = await answer(tool(index=0, id="c1", name="a", arguments=written), CALLS)
    assert reading.calls == [made("c1", "a", arguments, raw)]
    assert reading.stop == "tool_use"


async def test_arguments_may_come_as_an_object() -> None:
    reading = await answer(tool(index=0, id="c1", name="a", arguments={"n": [1]}), CALLS)
    assert reading.calls == [made("c1", "a", {"n": [1]})]


async def test_the_old_function_call_is_a_call() -> None:
    reading = await answer(
        chunk({"function_call": {"name": "a", "arguments": '{"n":'}}),
        chunk({"function_call": {"arguments": "1}"}}),
        chunk(finish="function_call"),
    )
    assert reading.calls == [made("call_new", "a", {"n": 1})]


async def test_a_call_that_the_length_limit_cut_is_dropped() -> None:
    reading = await answer(
        tool(index=0, id="c1", name="a", arguments="{}"),
        tool(index=1, id="c2", name="b", arguments='{"n":'),
        chunk(finish="length"),
    )
    assert reading.calls == [made("c1", "a", {})]
    assert (reading.stop, reading.notices) == ("length", ["tool_call_dropped"])


# --- usage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "total_tokens": 120,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
                "completion_tokens_details": {"reasoning_tokens": 15},
            },
            Usage(
                input_tokens=10,
                output_tokens=20,
                cache_read_tokens=60,
                cache_write_tokens=30,
                reasoning_tokens=15,
                total_tokens=120,
            ),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 1, "prompt_cache_hit_tokens": 4},
            Usage(input_tokens=6, output_tokens=1, cache_read_tokens=4, total_tokens=11),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 22,
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            Usage(input_tokens=10, output_tokens=12, reasoning_tokens=7, total_tokens=22),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 1, "cached_tokens": 50, "cost": 0.5},
            Usage(
                input_tokens=0,
                output_tokens=1,
                cache_read_tokens=50,
                total_tokens=51,
                cost=0.5,
                currency="USD",
            ),
        ),
        (
            {"prompt_tokens": "many", "completion_tokens": 3.0, "prompt_tokens_details": []},
            Usage(output_tokens=3, total_tokens=3),
        ),
    ],
)
async def test_usage_is_split_into_parts_that_do_not_overlap(
    raw: dict[str, Any], wanted: Usage
) -> None:
    assert (await answer(text("Hi"), STOP, {"choices": [], "usage": raw})).usage == wanted


COUNTS = {"prompt_tokens": 1, "completion_tokens": 2}


@pytest.mark.parametrize(
    "place",
    [
        {"choices": [], "usage": COUNTS},
        {"choices": [{"index": 0, "delta": {}, "usage": COUNTS}]},
        chunk(x_groq={"usage": COUNTS}),
    ],
    ids=["top", "choice", "x_groq"],
)
async def test_usage_stands_in_different_places(place: Any) -> None:
    reading = await answer(text("Hi"), STOP, place)
    assert reading.usage == Usage(input_tokens=1, output_tokens=2, total_tokens=3)


async def test_usage_that_is_repeated_is_told_once() -> None:
    data = sse(chunk({"content": "H"}, usage=COUNTS), chunk({"content": "i"}, usage=COUNTS), STOP)
    events = await collect(provider_of(data))
    assert sum(isinstance(event, UsageUpdate) for event in events) == 1


async def test_reasoning_outside_of_output_can_be_ruled() -> None:
    raw = {
        "prompt_tokens": 1,
        "completion_tokens": 5,
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    stream = [STOP, chunk(usage=raw)]
    assert (await answer(*stream)).usage == Usage(
        input_tokens=1, output_tokens=5, reasoning_tokens=3, total_tokens=6
    )
    ruled = await answer(*stream, compat={"reasoning_outside_output": True})
    assert ruled.usage is not None
    assert ruled.usage.output_tokens == 8


async def test_a_request_that_filled_the_window_unnoticed_is_reported() -> None:
    data = sse(STOP, {"choices": [], "usage": {"prompt_tokens": 5_000, "completion_tokens": 1}})
    request = ask(config={"limits": ModelLimits(context_window=4_096)})
    reading = read(await collect(provider_of(data), request))
    assert (reading.stop, reading.notices) == ("stop", ["context_overflow"])


# --- failures inside a stream -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"error": {"message": "slow down", "code": 429}}, "rate_limit"),
        ({"error": "it broke"}, "server_error"),
        ({"error": {"message": "full", "code": "context_length_exceeded"}}, "context_overflow"),
        (chunk(error={"message": "upstream", "code": 502}), "server_error"),
        ({"object": "error", "message": "bad", "type": "BadRequestError"}, "invalid_request"),
        (b'event: error\ndata: {"message": "overloaded"}\n\n', "temporarily_unavailable"),
    ],
)
async def test_an_error_in_the_stream_ends_it(event: Any, code: str) -> None:
    reading = await answer(text("Hi"), event, text("no more"), STOP)
    assert (reading.text, reading.code) == ("Hi", code)


async def test_usage_beside_an_error_is_kept() -> None:
    reading = await answer(chunk(error={"message": "x", "code": 400}, usage=COUNTS))
    assert reading.code == "invalid_request"
    assert reading.usage is not None


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("application/json", b'{"error": {"message": "no", "code": 401}}', "auth"),
        ("application/json", b'{"choices": [{"message": {"content": "Hi"}}]}', "malformed_output"),
        ("text/html", b"<html>log in</html>", "malformed_output"),
    ],
)
async def test_a_success_that_is_no_stream_is_a_failure(kind: str, body: bytes, code: str) -> None:
    transport = MemoryTransport(Answer(pieces(body, 5), headers={"content-type": kind}))
    provider = OpenAIChatProvider(base_url="https://vendor.test/v1", transport=transport)
    (event,) = await collect(provider)
    assert isinstance(event, Failed)
    assert event.error.code == code


async def test_a_stream_with_the_wrong_content_type_is_read() -> None:
    headers = {"content-type": "text/plain"}
    transport = MemoryTransport(Answer([sse(text("Hi"), STOP)], headers=headers))
    provider = OpenAIChatProvider(base_url="https://vendor.test/v1", transport=transport)
    assert read(await collect(provider)).text == "Hi"
