"""Gemini, as it was recorded."""

from __future__ import annotations

import random
from typing import Any

import pytest

from prism.core._wire import NativeBlock, Usage
from prism.core.providers import GoogleProvider

from .recordings import Recording, recordings
from .wire import Answer, MemoryTransport, Reading, collect, pieces, read


async def play(recording: Recording, data: bytes, size: int | None) -> Reading:
    answer = Answer(pieces(data, size), status=recording.status, headers=recording.headers)
    provider = GoogleProvider(
        transport=MemoryTransport(answer), new_id=lambda prefix: f"{prefix}_new"
    )
    reading = read(await collect(provider))
    assert answer.closed
    return reading


def assert_expected(reading: Reading, expected: dict[str, Any]) -> None:
    if (error := expected.get("error")) is not None:
        assert reading.error is not None
        assert (reading.error.status, reading.error.code) == (error["status"], "not_found")
        assert reading.error.message == error["message"]
        return
    assert reading.text == expected["text"]
    assert reading.thinking == expected["reasoning"]
    calls = [(call.id, call.name, call.arguments) for call in reading.calls]
    wanted = [
        (call["id"] or "call_new", call["name"], call["args"]) for call in expected["tool_calls"]
    ]
    assert calls == wanted
    assert expected["stop_reason"] == "STOP"
    assert reading.stop == ("tool_use" if calls else "stop")
    natives = [block for block in reading.blocks.values() if isinstance(block, NativeBlock)]
    kinds = {"executable_code": "executableCode", "code_execution_result": "codeExecutionResult"}
    assert [block.kind for block in natives] == [
        kinds[part] for part in expected["other_parts"] if part in kinds
    ]
    assert signatures(reading) == expected["thought_signatures"]
    assert_usage(reading.usage, expected["usage"])


def signatures(reading: Reading) -> int:
    blocks = reading.blocks.values()
    signed = [block for block in blocks if getattr(block, "replay", None) is not None]
    native = [
        block
        for block in blocks
        if isinstance(block, NativeBlock) and '"thoughtSignature"' in block.data
    ]
    return len(signed) + len(native)


def assert_usage(usage: Usage | None, expected: dict[str, Any]) -> None:
    assert usage is not None
    thoughts = expected.get("thoughts_token_count")
    assert usage == Usage(
        input_tokens=expected["prompt_token_count"]
        + expected.get("tool_use_prompt_token_count", 0),
        output_tokens=expected["candidates_token_count"] + (thoughts or 0),
        reasoning_tokens=thoughts,
        total_tokens=expected["total_token_count"],
    )


@pytest.mark.parametrize("size", [None, 1, 7, 64])
@recordings("gemini")
async def test_a_recording_gives_what_the_vendors_sdk_made_of_it(
    recording: Recording, size: int | None
) -> None:
    assert_expected(await play(recording, recording.body, size), recording.expected)


@recordings("gemini")
async def test_a_recording_cut_anywhere_is_truncated_and_never_a_wrong_answer(
    recording: Recording,
) -> None:
    if recording.status != 200:
        return  # the status alone is the error; its body may be cut
    whole = await play(recording, recording.body, None)
    last = recording.body.rstrip().rfind(b"\n") + 1  # of the last chunk, which holds the reason
    places = random.Random(recording.id)  # noqa: S311
    for _ in range(25):
        cut = places.randrange(len(recording.body))
        reading = await play(recording, recording.body[:cut], 1_024)
        if reading.error is None:
            assert cut > last
            assert reading == whole
            continue
        assert reading.code == "stream_truncated"
        assert whole.text.startswith(reading.text)
        assert whole.thinking.startswith(reading.thinking)
        assert reading.calls == whole.calls[: len(reading.calls)]
        assert reading.stop is None
