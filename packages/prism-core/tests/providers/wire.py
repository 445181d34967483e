"""What the tests of all adapters share: an in-memory server, requests, and readings of answers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from prism.core._errors import ProviderError
from prism.core._wire import (
    ContentBlock,
    ErrorInfo,
    Message,
    ModelConfig,
    ProviderOptions,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from prism.core.providers import (
    BlockFinished,
    Done,
    Failed,
    HttpTimeouts,
    Notice,
    ProviderEvent,
    ProviderRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    UsageUpdate,
)

EVENT_STREAM = {"content-type": "text/event-stream"}


def sse(*payloads: Any, end: bytes = b"data: [DONE]\n\n") -> bytes:
    """A stream with one event for each payload; text and bytes are taken as they are."""
    parts: list[bytes] = []
    for payload in payloads:
        if isinstance(payload, bytes):
            parts.append(payload)
            continue
        text = payload if isinstance(payload, str) else json.dumps(payload)
        parts.append(f"data: {text}\n\n".encode())
    return b"".join([*parts, end])


def pieces(data: bytes, size: int | None) -> list[bytes]:
    """*data* in pieces of *size* bytes; whole without one."""
    if size is None:
        return [data]
    return [data[at : at + size] for at in range(0, len(data), size)]


@dataclass
class Sent:
    """A request that reached the in-memory server."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes
    timeouts: HttpTimeouts

    @property
    def body(self) -> Any:
        return json.loads(self.content)


@dataclass
class Answer:
    """What the in-memory server answers; `breaks` is raised after the last chunk."""

    chunks: Iterable[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: EVENT_STREAM)
    breaks: ProviderError | None = None
    closed: bool = False
    taken: int = 0
    _body: AsyncGenerator[bytes] | None = None

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        self._body = self._read()
        return self._body

    async def _read(self) -> AsyncGenerator[bytes]:
        for chunk in self.chunks:
            self.taken += len(chunk)
            yield chunk
        if self.breaks is not None:
            raise self.breaks

    async def aclose(self) -> None:
        if self._body is not None:
            await self._body.aclose()
        self.closed = True


class MemoryTransport:
    """Gives the answers one after the other, the last one again and again."""

    def __init__(self, *answers: Answer | ProviderError) -> None:
        self.answers = answers
        self.sent: list[Sent] = []
        self.closed = False

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes,
        timeouts: HttpTimeouts,
    ) -> Answer:
        answer = self.answers[min(len(self.sent), len(self.answers) - 1)]
        self.sent.append(Sent(method, url, dict(headers), content, timeouts))
        if isinstance(answer, ProviderError):
            raise answer
        return answer

    async def aclose(self) -> None:
        self.closed = True


def user(*content: str | ContentBlock) -> Message:
    return Message(
        role="user",
        content=[TextBlock(text=item) if isinstance(item, str) else item for item in content],
    )


def ask(
    *messages: Message,
    model: str = "test-model",
    provider: str = "test",
    options: ProviderOptions | None = None,
    config: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ProviderRequest:
    return ProviderRequest(
        model=ModelConfig(provider=provider, model=model, **(config or {})),
        messages=messages or (user("Hi"),),
        options=options or ProviderOptions(),
        **fields,
    )


class Generates(Protocol):
    """Any provider."""

    def generate(self, request: ProviderRequest) -> AsyncIterator[ProviderEvent]: ...


async def collect(
    provider: Generates, request: ProviderRequest | None = None
) -> list[ProviderEvent]:
    return [event async for event in provider.generate(request or ask())]


@dataclass
class Reading:
    """What a runtime would make of an answer."""

    text: str = ""
    thinking: str = ""
    calls: list[ToolCallBlock] = field(default_factory=list[ToolCallBlock])
    blocks: dict[int, ContentBlock] = field(default_factory=dict[int, ContentBlock])
    notices: list[str] = field(default_factory=list[str])
    stop: str | None = None
    usage: Usage | None = None
    error: ErrorInfo | None = None

    @property
    def code(self) -> str | int | None:
        return None if self.error is None else self.error.code


def read(events: Iterable[ProviderEvent]) -> Reading:
    """Read an answer, and check the laws that every answer keeps."""
    reading = Reading()
    texts: dict[int, list[str]] = {}
    events = list(events)
    assert [type(event) in {Done, Failed} for event in events].index(True) == len(events) - 1
    for event in events:
        match event:
            case TextDelta():
                assert event.text
                reading.text += event.text
                texts.setdefault(_known(event.index), []).append(event.text)
            case ThinkingDelta():
                assert event.text
                reading.thinking += event.text
                texts.setdefault(_known(event.index), []).append(event.text)
            case ToolCallChunk():
                first = event.index not in texts
                assert first == (event.id is not None), "the id comes once, and first"
                texts.setdefault(event.index, []).append(event.arguments_text)
            case BlockFinished():
                assert event.index not in reading.blocks
                reading.blocks[event.index] = event.block
                if isinstance(event.block, ToolCallBlock):
                    reading.calls.append(event.block)
                if isinstance(event.block, TextBlock | ThinkingBlock):
                    assert event.block.text == "".join(texts.get(event.index, []))
            case UsageUpdate():
                reading.usage = event.usage
            case Notice():
                reading.notices.append(event.code)
            case Done():
                reading.stop = event.stop_reason
                reading.usage = event.usage or reading.usage
            case Failed():
                reading.error = event.error
            case _:
                raise AssertionError(event)
    indexes = sorted({*texts, *reading.blocks})
    assert indexes == list(range(len(indexes))), "indexes are dense"
    if reading.usage is not None:
        _check_usage(reading.usage)
    return reading


def _known(index: int | None) -> int:
    assert index is not None
    return index


def _check_usage(usage: Usage) -> None:
    parts = (
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
    )
    assert all(part is None or part >= 0 for part in parts)
    assert usage.total_tokens == sum(part or 0 for part in parts)


MakeProvider = Callable[[MemoryTransport], Generates]


async def answer_of(make: MakeProvider, data: bytes, *, size: int | None = None) -> Reading:
    """Read the stream *data*, given to a provider in pieces of *size* bytes."""
    return read(await collect(make(MemoryTransport(Answer(pieces(data, size))))))
