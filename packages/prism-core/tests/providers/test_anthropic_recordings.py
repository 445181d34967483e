"""Anthropic Messages, as it was recorded."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from prism.core._wire import NativeBlock, ThinkingBlock, Usage
from prism.core.providers import AnthropicProvider

from .recordings import Recording, recordings
from .wire import Answer, MemoryTransport, Reading, collect, pieces, read

STOPS = {"end_turn": "stop", "tool_use": "tool_use"}


async def play(recording: Recording, data: bytes, size: int | None) -> Reading:
    answer = Answer(pieces(data, size), status=recording.status, headers=recording.headers)
    provider = AnthropicProvider(transport=MemoryTransport(answer))
    reading = read(await collect(provider))
    assert answer.closed
    return reading


def assert_expected(reading: Reading, expected: dict[str, Any]) -> None:
    if (error := expected.get("error")) is not None:
        assert reading.error is not None
        assert (reading.error.status, reading.error.code) == (error["status"], "not_found")
        assert (reading.error.name, reading.error.message) == (
            error["type"],
            error["provider_message"],
        )
        return
    assert reading.text == expected["text"]
    assert reading.thinking == expected["reasoning"]
    calls = [(call.id, call.name, call.arguments) for call in reading.calls]
    assert calls == [(call["id"], call["name"], call["args"]) for call in expected["tool_calls"]]
    assert reading.stop == STOPS[expected["stop_reason"]]
    assert_opaque(reading, expected)
    assert_usage(reading.usage, expected["usage"])


def assert_opaque(reading: Reading, expected: dict[str, Any]) -> None:
    thoughts = [block for block in reading.blocks.values() if isinstance(block, ThinkingBlock)]
    assert [block.signature for block in thoughts if block.signature] == expected["signatures"]
    redacted = [block for block in thoughts if block.redacted]
    assert len(redacted) == expected["redacted_thinking_blocks"]
    assert all(block.replay is not None and block.replay.data for block in thoughts)
    natives = [block for block in reading.blocks.values() if isinstance(block, NativeBlock)]
    kinds = {"text", "thinking", "redacted_thinking", "tool_use"}
    assert [block.kind for block in natives] == [
        kind for kind in expected["block_types"] if kind not in kinds
    ]
    items = [json.loads(block.data) for block in natives if block.kind == "server_tool_use"]
    assert [{"name": item["name"], "args": item["input"]} for item in items] == expected[
        "server_tool_calls"
    ]


def assert_usage(usage: Usage | None, expected: dict[str, Any]) -> None:
    assert usage is not None
    details: dict[str, Any] = expected.get("output_tokens_details") or {}
    kept: dict[str, Any] = expected.get("cache_creation") or {}
    assert usage == Usage(
        input_tokens=expected["input_tokens"],
        output_tokens=expected["output_tokens"],
        cache_read_tokens=expected["cache_read_input_tokens"],
        cache_write_tokens=expected["cache_creation_input_tokens"],
        cache_write_long_tokens=kept.get("ephemeral_1h_input_tokens"),
        reasoning_tokens=details.get("thinking_tokens"),
        total_tokens=usage.total_tokens,
    )


@pytest.mark.parametrize("size", [None, 1, 7, 64])
@recordings("anthropic-messages")
async def test_a_recording_gives_what_the_vendors_sdk_made_of_it(
    recording: Recording, size: int | None
) -> None:
    assert_expected(await play(recording, recording.body, size), recording.expected)


@recordings("anthropic-messages")
async def test_a_recording_cut_anywhere_is_truncated_and_never_a_wrong_answer(
    recording: Recording,
) -> None:
    if recording.status != 200:
        return  # the status alone is the error; its body may be cut
    whole = await play(recording, recording.body, None)
    stop_reason = recording.body.rfind(b'"type":"message_delta"')
    places = random.Random(recording.id)  # noqa: S311
    for _ in range(25):
        cut = places.randrange(len(recording.body))
        reading = await play(recording, recording.body[:cut], 1_024)
        if reading.error is None:
            # With the stop reason and the usage the answer is whole.
            assert cut > stop_reason
            assert reading.notices in (["stream_cut"], [])
            reading.notices = []
            assert reading == whole
            continue
        assert reading.code == "stream_truncated"
        assert whole.text.startswith(reading.text)
        assert whole.thinking.startswith(reading.thinking)
        assert reading.calls == whole.calls[: len(reading.calls)]
        assert reading.stop is None
