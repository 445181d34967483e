"""Responses of OpenAI and others, as they were recorded."""

from __future__ import annotations

import random
from typing import Any

import pytest

from prism.core._wire import NativeBlock, ThinkingBlock, Usage
from prism.core.providers import OpenAIResponsesProvider

from .recordings import Recording, recordings
from .wire import Answer, MemoryTransport, Reading, collect, pieces, read


async def play(recording: Recording, data: bytes, size: int | None) -> Reading:
    answer = Answer(pieces(data, size), status=recording.status, headers=recording.headers)
    provider = OpenAIResponsesProvider(
        base_url="https://vendor.test/v1", transport=MemoryTransport(answer)
    )
    reading = read(await collect(provider))
    assert answer.closed
    return reading


def assert_expected(reading: Reading, expected: dict[str, Any]) -> None:
    if (error := expected.get("error")) is not None:
        assert reading.error is not None
        assert error["provider_message"] in reading.error.message
        assert reading.error.status == error.get("status")
        return
    assert reading.error is None
    assert reading.text == expected["text"]
    assert reading.thinking == expected["reasoning"]
    calls = [(call.id, call.name, call.arguments) for call in reading.calls]
    wanted = expected["tool_calls"]
    assert calls == [(call["id"], call["name"], call["args"]) for call in wanted]
    assert reading.stop == ("tool_use" if wanted else "stop")
    kinds = [block for block in reading.blocks.values() if isinstance(block, NativeBlock)]
    known = {"message", "reasoning", "function_call"}
    assert [block.kind for block in kinds] == [
        kind for kind in expected["output_item_types"] if kind not in known
    ]
    thoughts = [block for block in reading.blocks.values() if isinstance(block, ThinkingBlock)]
    assert len(thoughts) == expected["output_item_types"].count("reasoning")
    assert_usage(reading.usage, expected["usage"])


def assert_usage(usage: Usage | None, expected: dict[str, Any]) -> None:
    assert usage is not None
    assert usage.total_tokens == expected["total_tokens"]
    assert usage.output_tokens == expected["output_tokens"]
    assert usage.cache_read_tokens == expected["input_tokens_details"]["cached_tokens"]
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    assert (usage.input_tokens or 0) + cached == expected["input_tokens"]
    assert usage.reasoning_tokens == expected["output_tokens_details"]["reasoning_tokens"]
    assert usage.cost == expected.get("cost")


@pytest.mark.parametrize("size", [None, 1, 7, 64])
@recordings("openai-responses")
async def test_a_recording_gives_what_the_vendors_sdk_made_of_it(
    recording: Recording, size: int | None
) -> None:
    assert_expected(await play(recording, recording.body, size), recording.expected)


@recordings("openai-responses")
async def test_a_recording_cut_anywhere_is_truncated_and_never_a_wrong_answer(
    recording: Recording,
) -> None:
    if recording.status != 200:
        return  # the status alone is the error; its body may be cut
    whole = await play(recording, recording.body, None)
    places = random.Random(recording.id)  # noqa: S311
    end = max(recording.body.rfind(name) for name in (b"response.completed", b"response.failed"))
    for _ in range(25):
        cut = places.randrange(len(recording.body.rstrip()))
        reading = await play(recording, recording.body[:cut], 1_024)
        if reading.error is None:
            assert cut > end > 0  # only what follows the last event is missing
            assert (reading.text, reading.calls) == (whole.text, whole.calls)
        elif reading.code != whole.code:
            assert reading.code == "stream_truncated"
            assert whole.text.startswith(reading.text)
            assert whole.thinking.startswith(reading.thinking)
            assert all(call in whole.calls for call in reading.calls)
