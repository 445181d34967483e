"""Chat Completions of ten vendors, as they were recorded."""

from __future__ import annotations

import random
from typing import Any

import pytest

from prism.core._wire import Usage
from prism.core.providers import OpenAIChatProvider

from .recordings import Recording, recordings
from .wire import Answer, MemoryTransport, Reading, collect, pieces, read

STOPS = {"stop": "stop", "tool_calls": "tool_use", "length": "length"}


async def play(recording: Recording, data: bytes, size: int | None) -> Reading:
    answer = Answer(pieces(data, size), status=recording.status, headers=recording.headers)
    provider = OpenAIChatProvider(
        base_url="https://vendor.test/v1", transport=MemoryTransport(answer)
    )
    reading = read(await collect(provider))
    assert answer.closed
    return reading


def assert_expected(reading: Reading, expected: dict[str, Any]) -> None:
    assert reading.text == expected.get("text", "")
    assert reading.thinking == expected.get("reasoning", "")
    calls = [(call.id, call.name, call.arguments) for call in reading.calls]
    wanted = expected.get("tool_calls", [])
    assert calls == [(call["id"], call["name"], call["args"]) for call in wanted]
    if (error := expected.get("error")) is not None:
        assert reading.error is not None
        assert error["provider_message"] in reading.error.message
        assert reading.error.status == error.get("status", reading.error.status)
    else:
        assert reading.stop == STOPS[expected["stop_reason"]]
        assert_usage(reading.usage, expected["usage"])


def assert_usage(usage: Usage | None, expected: dict[str, Any] | None) -> None:
    if expected is None:
        assert usage is None
        return
    assert usage is not None
    assert usage.total_tokens == expected["total_tokens"]
    prompt = (usage.input_tokens or 0) + (usage.cache_read_tokens or 0)
    assert prompt == expected["prompt_tokens"]
    details: dict[str, Any] = expected.get("completion_tokens_details") or {}
    assert usage.reasoning_tokens == details.get("reasoning_tokens")
    assert usage.output_tokens == expected["total_tokens"] - expected["prompt_tokens"]
    assert usage.cost == expected.get("cost")


@pytest.mark.parametrize("size", [None, 1, 7, 64])
@recordings("openai-chat")
async def test_a_recording_gives_what_the_vendors_sdk_made_of_it(
    recording: Recording, size: int | None
) -> None:
    assert_expected(await play(recording, recording.body, size), recording.expected)


@recordings("openai-chat")
async def test_a_recording_cut_anywhere_is_truncated_and_never_a_wrong_answer(
    recording: Recording,
) -> None:
    if recording.status != 200:
        return  # the status alone is the error; its body may be cut
    whole = await play(recording, recording.body, None)
    finish = recording.body.find(b'"finish_reason":"')
    places = random.Random(recording.id)  # noqa: S311
    for _ in range(25):
        cut = places.randrange(len(recording.body) - len(b"data: [DONE]\n\n"))
        reading = await play(recording, recording.body[:cut], 1_024)
        if reading.error is None:
            # What may follow the vendor's word that the answer is complete is usage, or an error.
            assert 0 <= finish < cut
            assert reading.stop == STOPS[recording.expected["stop_reason"]]
            assert (reading.text, reading.thinking, reading.calls) == (
                whole.text,
                whole.thinking,
                whole.calls,
            )
        elif reading.code != whole.code:
            assert reading.code == "stream_truncated"
            assert whole.text.startswith(reading.text)
            assert whole.thinking.startswith(reading.thinking)
            assert reading.calls == []
