"""The real providers: decoding streams, and encoding long conversations."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from measure import Row

from prism.core import (
    Agent,
    Message,
    MessageDelta,
    ModelConfig,
    ModelRef,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.providers import (
    AnthropicProvider,
    GoogleProvider,
    OpenAIChatProvider,
    OpenAIResponsesProvider,
    ProviderRequest,
    ToolSpec,
)
from prism.core.providers._sse import SseDecoder

EVENTS = 5_000
MESSAGES = 500
REPEATS = 20
WORD = "token "
MODEL = ModelConfig(provider="p", model="bench")


def event(payload: Any, name: str | None = None) -> bytes:
    """One event, as the vendors write it."""
    lead = b"" if name is None else f"event: {name}\n".encode()
    return lead + b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def chat_stream() -> bytes:
    """Chat Completions."""
    base = {"id": "chatcmpl-123", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "logprobs": None, "finish_reason": None}
    delta = {**base, "choices": [{**choice, "delta": {"content": WORD}}]}
    end: dict[str, Any] = {**base, "choices": [{**choice, "delta": {}, "finish_reason": "stop"}]}
    return event(delta) * EVENTS + event(end) + b"data: [DONE]\n\n"


def responses_stream() -> bytes:
    """Responses."""
    item: dict[str, Any] = {"id": "msg_123", "type": "message", "role": "assistant", "content": []}
    place = {"item_id": "msg_123", "output_index": 0, "content_index": 0}
    kind = "response.output_text.delta"
    deltas = [
        event({"type": kind, **place, "delta": WORD, "sequence_number": number}, kind)
        for number in range(EVENTS)
    ]
    content: list[Any] = [{"type": "output_text", "text": WORD * EVENTS, "annotations": []}]
    whole: dict[str, Any] = {**item, "content": content}
    response: dict[str, Any] = {"id": "resp_123", "status": "completed", "output": [whole]}
    added: dict[str, Any] = {"type": "response.output_item.added", "output_index": 0, "item": item}
    done: dict[str, Any] = {"type": "response.output_item.done", "output_index": 0, "item": whole}
    end: dict[str, Any] = {"type": "response.completed", "response": response}
    return b"".join([event(added), *deltas, event(done), event(end)])


def anthropic_stream() -> bytes:
    """Anthropic's Messages."""
    text = {"type": "text_delta", "text": WORD}
    block = {"type": "text", "text": ""}
    parts = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
    ]
    delta = {"type": "content_block_delta", "index": 0, "delta": text}
    ends = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]
    return b"".join(
        [
            *(event(part, str(part["type"])) for part in parts),
            event(delta, "content_block_delta") * EVENTS,
            *(event(part, str(part["type"])) for part in ends),
        ]
    )


def gemini_stream() -> bytes:
    """Gemini."""
    content = {"role": "model", "parts": [{"text": WORD}]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    part = {"candidates": [{"content": content, "index": 0}], "usageMetadata": usage}
    end: dict[str, Any] = {
        "candidates": [{"content": {"parts": []}, "finishReason": "STOP", "index": 0}]
    }
    return event(part) * EVENTS + event(end)


WIRES: dict[str, tuple[Callable[..., Any], Callable[[], bytes]]] = {
    "openai-chat": (OpenAIChatProvider, chat_stream),
    "openai-responses": (OpenAIResponsesProvider, responses_stream),
    "anthropic-messages": (AnthropicProvider, anthropic_stream),
    "gemini": (GoogleProvider, gemini_stream),
}


@contextlib.contextmanager
def serving(streams: dict[str, bytes]) -> Generator[str]:
    """A server in a process of its own, so that its work does not count."""
    with tempfile.TemporaryDirectory() as folder:
        for name, stream in streams.items():
            (Path(folder) / name).write_bytes(stream)
        script = str(Path(__file__).with_name("stream_server.py"))
        server = subprocess.Popen(
            [sys.executable, script, folder], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()
            server.wait()


async def cpu(job: Callable[[], Awaitable[None]]) -> float:
    """CPU seconds of one go, in the loop under way: clients and connections live on."""
    gc.collect()
    start = time.process_time()
    await job()
    return time.process_time() - start


async def decoding_of(name: str, base_url: str) -> tuple[float, float]:
    """Least CPU seconds of ours and of the bare loop, in turn."""
    provider = WIRES[name][0](id="p", base_url=f"{base_url}/{name}")
    url = f"{base_url}/{name}"

    async def ours() -> None:
        seen = 0
        agent = Agent(model=MODEL, provider=provider)
        async with agent.session("s").stream("Hi") as events:
            async for one in events:
                seen += type(one) is MessageDelta
        assert events.result is not None
        assert events.result.text == WORD * EVENTS
        assert seen

    async def bare(client: httpx2.AsyncClient) -> None:
        seen = 0
        decoder = SseDecoder(max_event_bytes=32 * 1024 * 1024)
        async with client.stream("POST", url, content=b"{}") as answer:
            async for chunk in answer.aiter_bytes():
                seen += len(decoder.feed(chunk))
        assert seen > EVENTS

    async with clients() as client:
        await ours()
        await bare(client)
        pairs = [(await cpu(ours), await cpu(lambda: bare(client))) for _ in range(REPEATS)]
    await provider.aclose()
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


@contextlib.asynccontextmanager
async def clients() -> AsyncGenerator[httpx2.AsyncClient]:
    """The bare loop's client."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        yield client


def decoding() -> list[Row]:
    """A stream through adapter, runtime and subscriber, beside its bytes through the decoder."""
    rows: list[Row] = []
    with serving({name: stream() for name, (_, stream) in WIRES.items()}) as base_url:
        for name in WIRES:
            mine, theirs = asyncio.run(decoding_of(name, base_url))
            rows.append(
                Row(
                    name=f"decode {EVENTS:,} events, {name} (bare: bytes)",
                    ours=mine / EVENTS * 1e6,
                    bare=theirs / EVENTS * 1e6,
                    unit="us",
                    limit=1.4,
                )
            )
    return rows


# Encoding


class Nowhere:
    """A transport that is never asked."""

    async def send(self, *args: Any, **more: Any) -> Any:
        """Nothing."""
        raise AssertionError

    async def aclose(self) -> None:
        """Nothing."""


REASONING: dict[str, Callable[[int], Replay]] = {
    "openai-chat": lambda _: Replay(api="openai-chat", kind="field", data="reasoning_content"),
    "openai-responses": lambda number: Replay(
        api="openai-responses",
        kind="item",
        data=json.dumps(
            {
                "id": f"rs_{number}",
                "type": "reasoning",
                "summary": [],
                "encrypted_content": "gAAAA" * 80,
            }
        ),
        item_id=f"rs_{number}",
    ),
    "anthropic-messages": lambda _: Replay(
        api="anthropic-messages", kind="signature", data="EqQB" * 60
    ),
    "gemini": lambda _: Replay(api="gemini", kind="signature", data="EqQB" * 60),
}


def conversation(api: str, count: int) -> list[Message]:
    """Questions, calls, results of two kilobytes, answers."""
    writer = ModelRef(provider="p", api=api, model="bench")
    messages: list[Message] = []
    for number in range(count // 4 + 1):
        call = ToolCallBlock(
            id=f"call_{number}",
            name="read_file",
            arguments={"path": f"src/module_{number}.py", "lines": [1, 200]},
        )
        thought = ThinkingBlock(text="thinking it over. " * 20, replay=REASONING[api](number))
        source = TextBlock(text="def parse(line: str) -> int:\n    return int(line)\n" * 40)
        messages += [
            Message(role="user", content=[TextBlock(text=f"Question {number}? " + "why? " * 50)]),
            Message(
                role="assistant",
                content=[thought, TextBlock(text="Let me look at that file. " * 4), call],
                model=writer,
                stop_reason="tool_use",
            ),
            Message(
                role="tool",
                content=[ToolResultBlock(tool_call_id=call.id, name="read_file", content=[source])],
            ),
            Message(
                role="assistant",
                content=[TextBlock(text="The parser reads each line as an integer. " * 12)],
                model=writer,
                stop_reason="stop",
            ),
        ]
    return messages[:count]


TOOLS = tuple(
    ToolSpec(
        name=f"tool_{number}",
        description="Does one thing and does it well. " * 3,
        parameters={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    )
    for number in range(10)
)
SYSTEM = ("You are helpful and brief. " * 40,)


def request_of(messages: list[Message]) -> ProviderRequest:
    """A request of an agent with tools."""
    return ProviderRequest(model=MODEL, messages=messages, system=SYSTEM, tools=TOOLS)


def encoding_of(name: str) -> list[Row]:
    """The first request of a long history, and that of the next turn."""
    make = WIRES[name][0]
    messages = conversation(name, MESSAGES + 5)
    earlier, later = request_of(messages[: MESSAGES + 1]), request_of(messages)

    def provider() -> Any:
        return make(id="p", base_url="https://vendor.test/v1", transport=Nowhere())

    encode = msgspec.json.Encoder().encode
    first: list[float] = []
    following: list[float] = []
    whole: list[float] = []
    tree = json.loads(provider().prepare(later).body)

    def clock(times: list[float], job: Callable[[], object]) -> None:
        gc.collect()
        start = time.process_time()
        job()
        times.append(time.process_time() - start)

    for _ in range(REPEATS):
        fresh = provider()
        clock(first, lambda: fresh.prepare(earlier))  # noqa: B023 - called at once
        clock(whole, lambda: encode(tree))
        clock(following, lambda: fresh.prepare(later))  # noqa: B023 - called at once
    return [
        Row(
            name=f"request of turn n+1, {MESSAGES} messages, {name}",
            ours=min(following) * 1e6,
            bare=min(whole) * 1e6,
            unit="us",
            limit=1,
        ),
        Row(
            name=f"first request, {MESSAGES} messages, {name}",
            ours=min(first) * 1e6,
            bare=min(whole) * 1e6,
            unit="us",
            limit=10,
        ),
    ]


def rows() -> list[Row]:
    """Every line of this file."""
    return [*decoding(), *(row for name in WIRES for row in encoding_of(name))]
