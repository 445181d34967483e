"""Every quirk of Responses streams, one hand-written stream each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prism.core._wire import NativeBlock, Replay, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from prism.core.providers import (
    BlockFinished,
    Done,
    OpenAIResponsesProvider,
    TextDelta,
    ToolCallChunk,
    UsageUpdate,
)

from .wire import Answer, MemoryTransport, Reading, ask, collect, pieces, read, sse, user

API = "openai-responses"


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": 0, **fields}


def added(index: int, **item: Any) -> dict[str, Any]:
    return event("output_item.added", output_index=index, item=item)


def finished(index: int, **item: Any) -> dict[str, Any]:
    return event("output_item.done", output_index=index, item=item)


def message(text: str, **more: Any) -> dict[str, Any]:
    content: list[Any] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content, **more}


def call(arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    given = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add"}
    return {**given, "arguments": arguments, **more}


def text(index: int, delta: str, **more: Any) -> dict[str, Any]:
    return event("output_text.delta", output_index=index, content_index=0, delta=delta, **more)


def completed(*output: Any, kind: str = "completed", **response: Any) -> dict[str, Any]:
    return event(kind, response={"status": kind, "output": list(output), **response})


def provider_of(data: bytes, size: int | None = None, **more: Any) -> OpenAIResponsesProvider:
    return OpenAIResponsesProvider(
        base_url="https://vendor.test/v1",
        transport=MemoryTransport(Answer(pieces(data, size))),
        new_id=lambda prefix: f"{prefix}_new",
        **more,
    )


async def answer(*payloads: Any, end: bytes = b"") -> Reading:
    """Read a stream whole, and in pieces: the answer is the same."""
    data = sse(event("created", response={"status": "in_progress"}), *payloads, end=end)
    whole = await collect(provider_of(data))
    for size in (1, 7, 64):
        assert await collect(provider_of(data, size)) == whole
    return read(whole)


# --- blocks -----------------------------------------------------------------------------------


async def test_text_a_call_and_usage_become_events_in_order() -> None:
    counts = {
        "input_tokens": 100,
        "input_tokens_details": {
            "cached_tokens": 60,
            "cache_write_tokens": 10,
            "cache_write_tokens_details": {"ttl_12h_tokens": 4},
        },
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 109,
    }
    data = sse(
        added(0, type="message", id="msg_1", content=[]),
        text(0, "Hel"),
        text(0, "lo"),
        finished(0, **message("Hello", phase="commentary")),
        added(1, **call("")),
        event("function_call_arguments.delta", output_index=1, delta='{"a":'),
        event("function_call_arguments.delta", output_index=1, delta="1}"),
        event("function_call_arguments.done", output_index=1, arguments='{"a":1}'),
        finished(1, **call('{"a":1}')),
        completed(usage=counts),
    )
    usage = Usage(
        input_tokens=30,
        cache_read_tokens=60,
        cache_write_tokens=10,
        cache_write_long_tokens=4,
        output_tokens=9,
        reasoning_tokens=5,
        total_tokens=109,
    )
    said = Replay(api=API, kind="item", data="", item_id="msg_1", phase="commentary")
    called = Replay(api=API, kind="item", data="", item_id="fc_1")
    assert await collect(provider_of(data)) == [
        TextDelta(text="Hel", index=0),
        TextDelta(text="lo", index=0),
        BlockFinished(index=0, block=TextBlock(text="Hello", replay=said)),
        ToolCallChunk(index=1, id="call_1", name="add"),
        ToolCallChunk(index=1, arguments_text='{"a":'),
        ToolCallChunk(index=1, arguments_text="1}"),
        BlockFinished(
            index=1,
            block=ToolCallBlock(id="call_1", name="add", arguments={"a": 1}, replay=called),
        ),
        Done(usage=usage, stop_reason="tool_use"),
    ]


async def test_a_server_that_sends_only_done_events_loses_and_doubles_nothing() -> None:
    reading = await answer(
        event("reasoning_summary_text.done", output_index=0, summary_index=0, text="One."),
        event("reasoning_summary_text.done", output_index=0, summary_index=1, text="Two."),
        event("output_text.done", output_index=1, content_index=0, text="Hello"),
        finished(1, **message("Hello")),
        event("function_call_arguments.done", output_index=2, arguments='{"a":1}'),
        finished(2, **call('{"a":1}')),
        finished(3, **call('{"a":2}', call_id="call_2")),
        completed(),
    )
    assert (reading.text, reading.thinking) == ("Hello", "One.\n\nTwo.")
    assert [(one.id, one.arguments) for one in reading.calls] == [
        ("call_1", {"a": 1}),
        ("call_2", {"a": 2}),
    ]


async def test_the_last_event_alone_brings_the_whole_answer() -> None:
    thought: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs_1",
        "encrypted_content": "x",
        "summary": [],
    }
    search = {"type": "web_search_call", "id": "ws_1"}
    reading = await answer(completed(thought, search, message("Hello"), call('{"a":1}')))
    assert (reading.text, reading.stop) == ("Hello", "tool_use")
    kinds = [type(block) for block in reading.blocks.values()]
    assert kinds == [ThinkingBlock, NativeBlock, TextBlock, ToolCallBlock]


async def test_items_without_an_end_of_their_own_are_ended_by_the_response() -> None:
    reading = await answer(
        text(0, "Hel"),
        added(1, **call("")),
        event("function_call_arguments.delta", output_index=1, delta='{"a":1}'),
        completed(message("Hello"), call('{"a":1}')),
    )
    assert reading.text == "Hello"
    assert reading.calls[0].arguments == {"a": 1}
    bare = await answer(
        text(0, "Hello"),
        added(1, **call("")),
        event("function_call_arguments.delta", output_index=1, delta='{"a":1}'),
        event("reasoning_text.delta", output_index=2, delta="hm"),
        completed(),
    )
    assert (bare.text, bare.thinking) == ("Hello", "hm")
    assert bare.calls[0].arguments == {"a": 1}


async def test_events_without_an_index_go_by_the_items_id_or_to_the_open_item() -> None:
    named = await answer(
        event("output_item.added", item={"type": "message", "id": "m", "content": []}),
        event("output_text.delta", item_id="m", delta="Hello"),
        event("output_item.added", item={"type": "message", "id": "n", "content": []}),
        event("output_text.delta", item_id="n", delta=" you"),
        event("output_item.done", item={"type": "message", "id": "n", "content": "  you"}),
        event("output_item.done", item={"type": "message", "id": "m", "content": "Hello"}),
        completed(),
    )
    assert [block.text for block in named.blocks.values() if isinstance(block, TextBlock)] == [
        " you",
        "Hello",
    ]
    bare = await answer(
        event("output_text.delta", delta="Hel"), event("output_text.delta", delta="lo"), completed()
    )
    assert bare.text == "Hello"


async def test_deltas_win_over_a_final_text_that_differs() -> None:
    reading = await answer(text(0, "Hello"), finished(0, **message("Bye")), completed())
    assert reading.text == "Hello"


async def test_parts_of_a_summary_are_parted_and_shown_once() -> None:
    summary = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
    reading = await answer(
        added(0, type="reasoning", id="rs_1", encrypted_content="half"),
        event("reasoning_summary_part.added", output_index=0, summary_index=0),
        event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="One."),
        event("reasoning_summary_text.done", output_index=0, summary_index=0, text="One."),
        event("reasoning_summary_part.added", output_index=0, summary_index=1),
        event("reasoning_summary_text.delta", output_index=0, summary_index=1, delta="Two."),
        event("reasoning_text.delta", output_index=0, content_index=0, delta="all of it"),
        finished(0, type="reasoning", id="rs_1", encrypted_content="whole", summary=summary),
        completed(),
    )
    assert reading.thinking == "One.\n\nTwo."


async def test_a_reasoning_item_is_kept_as_it_came_when_it_was_done() -> None:
    raw = '{"id":"rs_1","type":"reasoning","summary":[],"n":1.50,"encrypted_content":"whole=="}'
    opened = {"type": "reasoning", "id": "rs_1", "encrypted_content": "half"}
    reading = await answer(
        added(0, **opened),
        '{"type":"response.output_item.done","output_index":0,"item":' + raw + "}",
        completed(),
    )
    block = reading.blocks[0]
    assert isinstance(block, ThinkingBlock)
    assert block.replay is not None
    assert (block.text, block.redacted) == ("", True)
    assert (block.replay.kind, block.replay.data, block.replay.item_id) == ("item", raw, "rs_1")


async def test_reasoning_that_cannot_be_sent_back_is_only_shown() -> None:
    reading = await answer(
        event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="hm"),
        finished(0, type="reasoning", id="rs_1", summary=[{"text": "hm"}]),
        finished(1, type="reasoning", id="rs_2", summary=[]),
        completed(),
    )
    assert list(reading.blocks.values()) == [ThinkingBlock(text="hm")]


async def test_items_of_the_vendors_own_tools_are_kept_verbatim() -> None:
    raw = '{"type":"compaction","id":"cmp_1","encrypted_content":"e"}'
    reading = await answer(
        added(0, type="web_search_call", id="ws_1", status="in_progress"),
        event("web_search_call.searching", output_index=0),
        finished(0, type="web_search_call", id="ws_1", status="completed"),
        '{"type":"response.output_item.done","output_index":1,"item":' + raw + "}",
        completed(),
    )
    first, second = reading.blocks.values()
    assert isinstance(first, NativeBlock)
    assert json.loads(first.data)["status"] == "completed"
    assert second == NativeBlock(api=API, kind="compaction", data=raw)


async def test_a_refusal_is_text_and_a_stop_reason() -> None:
    part = {"type": "refusal", "refusal": "No."}
    said = message("", content=[part])
    streamed = await answer(
        event("refusal.delta", output_index=0, delta="No"),
        event("refusal.delta", output_index=0, delta="."),
        event("refusal.done", output_index=0, refusal="No."),
        finished(0, **said),
        completed(),
    )
    whole = await answer(finished(0, **said), completed())
    alone = await answer(event("refusal.done", output_index=0, refusal="No."), completed())
    for reading in (streamed, whole, alone):
        assert (reading.text, reading.stop) == ("No.", "refusal")


# --- calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parsed", "raw"),
    [
        ("", {}, None),
        ("null", {}, None),
        ({"a": 1}, {"a": 1}, None),
        ("[1]", {}, "[1]"),
        ('{"a":', {}, '{"a":'),
    ],
)
async def test_arguments_are_parsed_once_at_the_end(
    arguments: Any, parsed: dict[str, Any], raw: str | None
) -> None:
    reading = await answer(finished(0, **call(arguments)), completed())
    assert reading.calls[0].arguments == parsed
    assert reading.calls[0].raw_arguments == raw
    assert reading.stop == "tool_use"


@pytest.mark.parametrize("call_id", ["", None])
async def test_a_call_without_an_id_gets_one(call_id: str | None) -> None:
    reading = await answer(finished(0, **call(call_id=call_id)), completed())
    assert reading.calls[0].id == "call_new"


async def test_two_calls_of_one_id_get_two() -> None:
    reading = await answer(finished(0, **call()), finished(1, **call()), completed())
    assert [one.id for one in reading.calls] == ["call_1", "call_new"]


async def test_interleaved_calls_stay_apart() -> None:
    reading = await answer(
        added(0, **call("", call_id="a")),
        added(1, **call("", call_id="b")),
        event("function_call_arguments.delta", output_index=1, delta='{"b"'),
        event("function_call_arguments.delta", output_index=0, delta='{"a"'),
        event("function_call_arguments.delta", output_index=1, delta=":2}"),
        event("function_call_arguments.delta", output_index=0, delta=":1}"),
        completed(),
    )
    assert [(one.id, one.arguments) for one in reading.calls] == [("a", {"a": 1}), ("b", {"b": 2})]


async def test_a_call_whose_name_comes_at_its_end_is_whole() -> None:
    reading = await answer(
        added(0, type="function_call", id="fc_1"),
        event("function_call_arguments.delta", output_index=0, delta='{"a":1}'),
        finished(0, **call('{"a":1}')),
        completed(),
    )
    assert (reading.calls[0].name, reading.calls[0].arguments) == ("add", {"a": 1})


async def test_a_call_that_the_length_cut_is_left_out() -> None:
    reading = await answer(
        text(0, "Let me"),
        added(1, **call("")),
        event("function_call_arguments.delta", output_index=1, delta='{"a":'),
        completed(
            message("Let me"),
            call('{"a":', status="incomplete"),
            kind="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        ),
    )
    assert (reading.stop, reading.calls, reading.notices) == ("length", [], ["tool_call_dropped"])


# --- the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop", "notices"),
    [
        ("max_output_tokens", "length", []),
        ("content_filter", "refusal", []),
        ("max_messages", "pause", []),
        ("steered", "pause", []),
        ("weird", "length", ["unknown_stop_reason"]),
        (None, "length", ["unknown_stop_reason"]),
    ],
)
async def test_an_incomplete_response_says_why(
    reason: str | None, stop: str, notices: list[str]
) -> None:
    details = {"reason": reason} if reason else None
    reading = await answer(text(0, "Hi"), completed(kind="incomplete", incomplete_details=details))
    assert (reading.text, reading.stop, reading.notices) == ("Hi", stop, notices)


async def test_what_the_vendor_dropped_is_noticed() -> None:
    changes = [{"type": "reasoning_removed", "reason": "prefix_mismatch"}]
    reading = await answer(text(0, "Hi"), completed(input_transformations=changes))
    assert (reading.stop, reading.notices) == ("stop", ["thinking_dropped"])


FAILURE = {"code": "context_length_exceeded", "message": "It exceeds the context window."}


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (completed(kind="failed", error=FAILURE), "context_overflow"),
        ({"type": "error", **FAILURE, "param": None}, "context_overflow"),
        ({"type": "error", "error": {"type": "invalid_request_error", **FAILURE}},
         "context_overflow"),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "Slow."}, "rate_limit"),
        ({"type": "error", "code": None, "message": "Overloaded."}, "temporarily_unavailable"),
        (completed(kind="failed", error={"code": "server_error", "message": "x"}), "server_error"),
        (completed(kind="failed", error=None), "server_error"),
        (completed(kind="cancelled"), "aborted"),
    ],
)  # fmt: skip
async def test_a_failure_in_the_stream_is_one_error(payload: Any, code: str) -> None:
    reading = await answer(text(0, "Hi"), payload, completed(kind="failed", error=FAILURE))
    assert (reading.text, reading.code) == ("Hi", code)


async def test_a_failed_response_still_tells_what_it_cost() -> None:
    counts = {"input_tokens": 5, "output_tokens": 0}
    reading = await answer(completed(kind="failed", error=FAILURE, usage=counts))
    assert reading.usage == Usage(input_tokens=5, output_tokens=0, total_tokens=5)
    events = await collect(provider_of(sse(completed(kind="failed", usage=counts))))
    assert isinstance(events[0], UsageUpdate)


@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n"])
async def test_without_its_last_event_an_answer_is_truncated(end: bytes) -> None:
    reading = await answer(text(0, "Hi"), finished(0, **message("Hi")), end=end)
    assert (reading.text, reading.code) == ("Hi", "stream_truncated")


async def test_nothing_after_the_end_is_read() -> None:
    reading = await answer(text(0, "Hi"), completed(), text(0, "more"), end=b"data: [DONE]\n\n")
    assert (reading.text, reading.stop) == ("Hi", "stop")


async def test_unknown_events_and_nonsense_are_passed_over() -> None:
    reading = await answer(
        event("rate_limits.updated", limits=[]),
        {"type": None},
        "[1]",
        event("output_text.delta", output_index=0, delta=None),
        event("output_text.delta", output_index=0, delta={"a": 1}),
        event("output_item.added", output_index=0, item=None),
        text(1, "Hi"),
        completed(usage="none"),
    )
    assert (reading.text, reading.stop, reading.usage) == ("Hi", "stop", None)


async def test_an_event_is_known_by_its_name_when_its_data_does_not_say() -> None:
    data = b'event: response.output_text.delta\ndata: {"output_index":0,"delta":"Hi"}\n\n'
    assert (await answer(data, completed())).text == "Hi"


async def test_broken_json_ends_the_answer() -> None:
    reading = await answer(text(0, "Hi"), "{broken", completed())
    assert (reading.text, reading.code) == ("Hi", "malformed_output")


async def test_lone_surrogates_in_events_and_items_are_read() -> None:
    item = json.dumps(message("a\ud83d"))
    data = sse(
        '{"type":"response.output_text.delta","output_index":0,"delta":"a\\ud83d"}',
        '{"type":"response.output_item.done","output_index":0,"item":' + item + "}",
        '{"type":"response.completed","response":{"status":"completed","output":[' + item + "]}}",
        end=b"",
    )
    assert read(await collect(provider_of(data))).text == "a\ud83d"


async def test_a_last_event_of_five_megabytes_is_read_and_one_above_the_limit_is_not() -> None:
    long = "x" * 5_000_000
    data = sse(text(0, long), completed(message(long)), end=b"")
    reading = read(await collect(provider_of(data, 65_536)))
    assert (len(reading.text), reading.stop) == (5_000_000, "stop")
    small = read(await collect(provider_of(data, 65_536, max_event_bytes=1_000_000)))
    assert small.code == "response_too_large"


# --- what the answer remembers ----------------------------------------------------------------


async def test_reasoning_is_stamped_with_what_it_was_written_after() -> None:
    thought: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs_1",
        "encrypted_content": "x",
        "summary": [],
    }
    data = sse(finished(0, **thought), finished(1, **message("Hi")), completed(), end=b"")
    prefixes: list[str | None] = []
    for said in ("one", "one", "two"):
        reading = read(await collect(provider_of(data), ask(user(said))))
        block, text_block = reading.blocks.values()
        assert isinstance(block, ThinkingBlock)
        assert isinstance(text_block, TextBlock)
        assert block.replay is not None
        assert text_block.replay is not None
        assert text_block.replay.prefix is None
        prefixes.append(block.replay.prefix)
    assert prefixes[0] is not None
    assert prefixes[0] == prefixes[1] != prefixes[2]
