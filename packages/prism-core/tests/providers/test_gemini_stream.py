"""Every quirk of Gemini streams, one hand-written stream each."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from prism.core._errors import ProviderError
from prism.core._wire import (
    ImageBlock,
    NativeBlock,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from prism.core.providers import (
    BlockFinished,
    Done,
    GoogleProvider,
    Notice,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    UsageUpdate,
)

from .wire import Answer, MemoryTransport, Reading, collect, pieces, read

COUNTS = {"promptTokenCount": 10, "candidatesTokenCount": 4, "totalTokenCount": 14}
USAGE = Usage(input_tokens=10, output_tokens=4, total_tokens=14)


def chunk(*parts: Any, finish: Any = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **more}


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"text": content, **more}


def call(name: str = "add", args: Any = None, **more: Any) -> dict[str, Any]:
    ids = {"id": more.pop("id")} if "id" in more else {}
    return {"functionCall": {"name": name, "args": args or {}, **ids}, **more}


STOP = chunk(finish="STOP")


def signed(data: str) -> Replay:
    return Replay(api="gemini", kind="signature", data=data)


def sse(*payloads: Any) -> bytes:
    return b"".join(
        payload if isinstance(payload, bytes) else f"data: {json.dumps(payload)}\r\n\r\n".encode()
        for payload in payloads
    )


def provider_of(data: bytes, size: int | None = None, **more: Any) -> GoogleProvider:
    ids = count(1)
    return GoogleProvider(
        transport=MemoryTransport(Answer(pieces(data, size), **more)),
        new_id=lambda prefix: f"{prefix}_{next(ids)}",
        clock=lambda: 0.0,
    )


async def answer(*payloads: Any) -> Reading:
    """Read a stream whole, and in pieces: the answer is the same."""
    data = sse(*payloads)
    whole = await collect(provider_of(data))
    for size in (1, 7, 64):
        assert await collect(provider_of(data, size)) == whole
    return read(whole)


# --- the end ----------------------------------------------------------------------------------


async def test_the_body_ends_the_answer_after_a_finish_reason() -> None:
    first = {"promptTokenCount": 10, "totalTokenCount": 10}
    data = sse(
        chunk(text("H"), usageMetadata=first),
        chunk(text("i"), usageMetadata={**COUNTS, "candidatesTokenCount": 2}),
        chunk(finish="STOP", usageMetadata=COUNTS),
    )
    assert await collect(provider_of(data)) == [
        UsageUpdate(usage=Usage(input_tokens=10, total_tokens=10)),
        TextDelta(text="H", index=0),
        TextDelta(text="i", index=0),
        UsageUpdate(usage=USAGE),
        Done(usage=USAGE, stop_reason="stop"),
    ]


async def test_usage_may_follow_the_finish_reason() -> None:
    reading = await answer(chunk(text("Hi"), finish="STOP"), {"usageMetadata": COUNTS})
    assert (reading.text, reading.stop, reading.usage) == ("Hi", "stop", USAGE)


async def test_text_without_a_finish_reason_is_truncated() -> None:
    reading = await answer(chunk(text("Hi"), usageMetadata=COUNTS))
    assert (reading.text, reading.code, reading.usage) == ("Hi", "stream_truncated", USAGE)
    reading = await answer(chunk(text("Hi"), finish="FINISH_REASON_UNSPECIFIED"))
    assert reading.code == "stream_truncated"


@pytest.mark.parametrize("body", [b"", b": beat\n\n", b"data: [DONE]\n\n"])
async def test_a_stream_without_chunks_is_truncated(body: bytes) -> None:
    assert (await answer(body)).code == "stream_truncated"


async def test_a_connection_that_breaks_is_a_truncated_stream() -> None:
    breaks = ProviderError("reset by peer", code="connection")
    reading = read(await collect(provider_of(sse(chunk(text("Hi"))), breaks=breaks)))
    assert reading.code == "stream_truncated"
    reading = read(await collect(provider_of(sse(chunk(text("Hi")), STOP), breaks=breaks)))
    assert (reading.stop, reading.notices) == ("stop", ["stream_cut"])


@pytest.mark.parametrize(
    ("reason", "stop"), [("STOP", "stop"), ("MAX_TOKENS", "length"), ("CONTINUATION", "pause")]
)
async def test_finish_reasons(reason: str, stop: str) -> None:
    reading = await answer(chunk(text("Hi")), chunk(finish=reason))
    assert (reading.text, reading.stop, reading.notices) == ("Hi", stop, [])


@pytest.mark.parametrize(
    "reason",
    [
        "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII",
        "MODEL_ARMOR", "ESCALATION", "PUP_LIMITED_DISABLED", "IMAGE_SAFETY", "IMAGE_OTHER",
        "NO_IMAGE",
    ],
)  # fmt: skip
async def test_a_filter_is_a_refusal_that_keeps_its_name(reason: str) -> None:
    events = await collect(provider_of(sse(chunk(text("Hi")), chunk(finish=reason))))
    assert events[1:] == [
        Notice(code="refusal", message=f"The vendor cut the answer off ({reason})."),
        Done(stop_reason="refusal"),
    ]


@pytest.mark.parametrize(
    ("reason", "code", "details"),
    [
        ("MALFORMED_FUNCTION_CALL", "malformed_output", {}),
        ("UNEXPECTED_TOOL_CALL", "malformed_output", {}),
        ("MALFORMED_RESPONSE", "malformed_output", {}),
        ("MISSING_THOUGHT_SIGNATURE", "replay_invalid", {}),
        ("OTHER", "server_error", {}),
        ("TOO_MANY_TOOL_CALLS", "server_error", {"shouldRetry": False}),
        ("SOMETHING_NEW", "server_error", {"shouldRetry": False}),
    ],
)
async def test_other_finish_reasons_are_failures(
    reason: str, code: str, details: dict[str, Any]
) -> None:
    stream = chunk(finish=reason, usageMetadata=COUNTS)
    stream["candidates"][0]["finishMessage"] = "print(add("
    reading = await answer(stream, STOP)
    assert reading.code == code
    assert reading.error is not None
    assert reading.error.details == {"reason": reason, **details}
    assert reading.error.message.endswith(f"({reason}): print(add(")
    assert reading.usage == USAGE


async def test_a_blocked_prompt_is_a_refusal() -> None:
    feedback = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "No."}
    data = sse({"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 3}})
    usage = Usage(input_tokens=3, total_tokens=3)
    assert await collect(provider_of(data)) == [
        UsageUpdate(usage=usage),
        Notice(code="refusal", message="The vendor blocked the prompt (PROHIBITED_CONTENT): No."),
        Done(usage=usage, stop_reason="refusal"),
    ]
    reading = await answer(chunk(text("Hi"), promptFeedback={"safetyRatings": []}), STOP)
    assert (reading.stop, reading.notices) == ("stop", [])


# --- errors -----------------------------------------------------------------------------------


async def test_what_is_said_of_the_prompt_beside_an_answer_is_no_refusal() -> None:
    feedback = {"blockReason": "OTHER"}
    reading = await answer(chunk(text("Hi"), finish="STOP", promptFeedback=feedback))
    assert (reading.text, reading.stop, reading.notices) == ("Hi", "stop", [])


async def test_an_error_inside_the_stream() -> None:
    error = {"error": {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}}
    reading = await answer(chunk(text("Hi"), usageMetadata=COUNTS), error, STOP)
    assert (reading.text, reading.code) == ("Hi", "temporarily_unavailable")
    assert reading.error is not None
    assert (reading.error.status, reading.error.name) == (503, "UNAVAILABLE")


def quota(quota_id: str) -> list[dict[str, Any]]:
    return [
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"quotaId": quota_id}],
        },
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"},
    ]


@pytest.mark.parametrize(
    ("status", "error", "code", "retry_after_ms", "details"),
    [
        (429, {"status": "RESOURCE_EXHAUSTED", "message": "Slow down",
               "details": quota("GenerateRequestsPerMinute")}, "rate_limit", 34_070, {}),
        (429, {"status": "RESOURCE_EXHAUSTED", "message": "Slow down",
               "details": quota("GenerateRequestsPerDay")}, "quota_exhausted", None, {}),
        (400, {"status": "INVALID_ARGUMENT", "message": "API key not valid.",
               "details": [{"reason": "API_KEY_INVALID"}]}, "auth", None, {}),
        (400, {"status": "INVALID_ARGUMENT",
               "message": "The input token count (210000) exceeds the maximum number of tokens "
               "allowed (200000)."}, "context_overflow", None, {"used": 210_000, "limit": 200_000}),
        (400, {"status": "INVALID_ARGUMENT",
               "message": "Function call is missing a thought_signature in functionCall parts."},
         "replay_invalid", None, {}),
        (403, {"status": "PERMISSION_DENIED", "message": "No"}, "permission", None, {}),
        (500, {"status": "INTERNAL", "message": "Oops"}, "server_error", None, {}),
        (504, {"status": "DEADLINE_EXCEEDED", "message": "Late"}, "timeout", None, {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_list", [False, True])
async def test_an_error_as_the_answer(
    status: int,
    error: dict[str, Any],
    code: str,
    retry_after_ms: int | None,
    details: dict[str, Any],
    *,
    as_list: bool,
) -> None:
    body: Any = {"error": {"code": status, **error}}
    data = json.dumps([body] if as_list else body).encode()
    reading = read(await collect(provider_of(data, status=status)))
    assert reading.code == code
    assert reading.error is not None
    assert reading.error.retry_after_ms == retry_after_ms
    found = reading.error.details or {}
    assert {name: found.get(name) for name in details} == details


@pytest.mark.parametrize("broken", [b"data: {\n\n", b'data: {"candidates":7}\n\n'])
async def test_a_chunk_that_cannot_be_read_is_malformed_output(broken: bytes) -> None:
    reading = await answer(chunk(text("Hi")), broken, STOP)
    assert (reading.code, reading.text) == ("malformed_output", "Hi")


async def test_a_lone_surrogate_where_no_text_belongs_is_malformed_output() -> None:
    reading = await answer(b'data: {"candidates": "\\ud83d"}\n\n', STOP)
    assert reading.code == "malformed_output"


async def test_chunks_may_have_nothing_in_them() -> None:
    noise: list[Any] = [
        {},
        {"candidates": None},
        {"candidates": []},
        {"candidates": [{"index": 1, "content": {"parts": [text("other")]}}]},
        {"candidates": [{"content": None}]},
        {"candidates": [{"content": {"parts": None}}]},
        chunk(7, {}, text(""), {"thought": True}),
        {"usageMetadata": 7},
        b'data: "beat"\n\n',
        {"candidates": [{"index": 1, "content": {}}, {"content": {"parts": [text("H")]}}]},
    ]
    assert await answer(*noise, chunk(text("i")), STOP) == Reading(text="Hi", stop="stop")


# --- text, reasoning, signatures ----------------------------------------------------------------


async def test_an_emoji_may_be_cut_by_the_network_and_by_the_vendor() -> None:
    assert (await answer(chunk(text("a😀b")), STOP)).text == "a😀b"
    halves = [
        b'data: {"candidates":[{"content":{"parts":[{"text":"\\u%s"}]}}]}\n\n' % half
        for half in (b"d83d", b"de00")
    ]
    assert await collect(provider_of(sse(*halves, STOP))) == [
        TextDelta(text="\ud83d", index=0),  # joined by the runtime
        TextDelta(text="\ude00", index=0),
        Done(stop_reason="stop"),
    ]


async def test_thoughts_and_text_are_blocks_of_their_own() -> None:
    data = sse(
        chunk(text("h", thought=True)),
        chunk(text("m", thought=True), text("Hi")),
        chunk(text(" you"), text("again", thought=True)),
        STOP,
    )
    assert await collect(provider_of(data)) == [
        ThinkingDelta(text="h", index=0),
        ThinkingDelta(text="m", index=0),
        TextDelta(text="Hi", index=1),
        TextDelta(text=" you", index=1),
        ThinkingDelta(text="again", index=2),
        Done(stop_reason="stop"),
    ]


async def test_a_part_with_a_signature_is_a_block_by_itself() -> None:
    reading = await answer(
        chunk(text("a")),
        chunk(text("b", thoughtSignature="s1")),
        chunk(text("c")),
        chunk(text("d")),
        chunk(text("", thoughtSignature="s2"), finish="STOP"),
    )
    assert reading.text == "abcd"
    assert reading.blocks == {
        1: TextBlock(text="b", replay=signed("s1")),
        3: TextBlock(text="", replay=signed("s2")),
    }


async def test_a_signature_may_stand_on_a_thought_or_alone() -> None:
    reading = await answer(
        chunk(text("hm", thought=True, thoughtSignature="s1")),
        chunk({"thoughtSignature": "s2"}),
        chunk({"thoughtSignature": "s3", "thought": True}),
        STOP,
    )
    assert reading.blocks == {
        0: ThinkingBlock(text="hm", signature="s1", replay=signed("s1")),
        1: TextBlock(text="", replay=signed("s2")),
        2: ThinkingBlock(text="", signature="s3", replay=signed("s3")),
    }


# --- calls ------------------------------------------------------------------------------------


async def test_a_call_comes_whole() -> None:
    data = sse(chunk(call(args={"a": 1}, id="c1", thoughtSignature="s")), STOP)
    block = ToolCallBlock(id="c1", name="add", arguments={"a": 1}, replay=signed("s"))
    assert await collect(provider_of(data)) == [
        ToolCallChunk(index=0, id="c1", name="add", arguments_text='{"a":1}'),
        BlockFinished(index=0, block=block),
        Done(stop_reason="tool_use"),
    ]


async def test_calls_of_the_same_name_without_ids_are_told_apart() -> None:
    reading = await answer(
        chunk(text("", thoughtSignature="s"), call(args={"a": 1}), call(args={"a": 2})), STOP
    )
    assert [(item.id, item.arguments) for item in reading.calls] == [
        ("call_1", {"a": 1}),
        ("call_2", {"a": 2}),
    ]
    assert reading.blocks[0] == TextBlock(text="", replay=signed("s"))
    assert reading.stop == "tool_use"


async def test_an_id_is_given_out_once() -> None:
    reading = await answer(chunk(call(id="x"), call(id="x"), call(id="")), STOP)
    assert [item.id for item in reading.calls] == ["x", "call_1", "call_2"]


@pytest.mark.parametrize(("args", "raw"), [(None, None), ({}, None), ([1], "[1]"), ("x", '"x"')])
async def test_arguments_that_are_no_object_do_not_end_the_turn(args: Any, raw: str | None) -> None:
    reading = await answer(chunk({"functionCall": {"name": "add", "args": args}}), STOP)
    (item,) = reading.calls
    assert (item.arguments, item.raw_arguments) == ({}, raw)


# --- other parts ------------------------------------------------------------------------------


async def test_parts_of_the_vendors_own_tools_are_kept_as_they_are() -> None:
    code = {"executableCode": {"code": "1+1", "language": "PYTHON"}, "thoughtSignature": "s"}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
    reading = await answer(chunk(code), chunk(result), chunk(text("2")), STOP)
    natives = [block for block in reading.blocks.values() if isinstance(block, NativeBlock)]
    assert [(block.api, block.kind) for block in natives] == [
        ("gemini", "executableCode"),
        ("gemini", "codeExecutionResult"),
    ]
    assert [json.loads(block.data) for block in natives] == [code, result]
    assert (reading.text, reading.stop) == ("2", "stop")


async def test_images_are_images_and_drafts_of_them_are_not_kept() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    reading = await answer(
        chunk({**image, "thought": True}, image, {**image, "thoughtSignature": "s"}),
        chunk({"inlineData": {"mimeType": "audio/wav", "data": "aGk="}}, {"inlineData": 7}),
        STOP,
    )
    block = ImageBlock(mime_type="image/png", data="aGk=")
    assert [reading.blocks[at] for at in range(3)] == [
        block,
        block,
        NativeBlock(api="gemini", kind="imageSignature", data="s"),
    ]
    assert [getattr(reading.blocks[at], "kind", None) for at in (3, 4)] == ["inlineData"] * 2


# --- usage ------------------------------------------------------------------------------------


async def test_the_parts_of_usage_are_disjoint() -> None:
    counts = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 20,
        "totalTokenCount": 132,
    }
    reading = await answer(chunk(text("Hi"), finish="STOP", usageMetadata=counts))
    assert reading.usage == Usage(
        input_tokens=45,
        cache_read_tokens=60,
        output_tokens=27,
        reasoning_tokens=20,
        total_tokens=132,
    )


@pytest.mark.parametrize("usage", [None, [], {}, {"promptTokenCount": "many"}])
async def test_usage_may_be_missing_or_nonsense(usage: Any) -> None:
    reading = await answer(chunk(text("Hi"), finish="STOP", usageMetadata=usage))
    assert (reading.stop, reading.usage) == ("stop", None)
