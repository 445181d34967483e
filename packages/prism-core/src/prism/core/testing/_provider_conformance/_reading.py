"""Reads a provider's events as the runtime does, and holds them to the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, cast

import msgspec

from prism.core._contracts import (
    BlockFinished,
    Done,
    Failed,
    Notice,
    Provider,
    ProviderEvent,
    ProviderRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    ToolCallReady,
    UsageUpdate,
)
from prism.core._errors import DecodeError
from prism.core._wire import (
    ErrorInfo,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
    parse_json,
)
from prism.core.testing._store_conformance._harness import brief, expect

_COUNTERS: Final = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
    "cache_write_long_tokens", "reasoning_tokens", "total_tokens",
)  # fmt: skip


class _Block:
    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.parts: list[str] = []
        self.call_id: str | None = None
        self.name: str | None = None
        self.block: Any = None

    @property
    def text(self) -> str:
        return "".join(self.parts) if self.block is None else self.block.text

    def call(self) -> ToolCallBlock:
        """The call, parsed from its pieces when nobody gave it whole."""
        if isinstance(self.block, ToolCallBlock):
            return self.block
        text = "".join(self.parts)
        arguments = _parsed(text)
        return ToolCallBlock(
            id=self.call_id or "",
            name=self.name or "",
            arguments={} if arguments is None else arguments,
            raw_arguments=text if arguments is None else None,
        )


class Heard:
    """One answer, as the runtime would understand it.

    Attributes:
        events: All events, in order.
        done: The terminal event of an answer.
        error: The terminal event's error.
        usage: The last one that was told.
        has_output: Whether any text, thinking or call was seen, after which nothing is retried.
    """

    def __init__(self) -> None:
        self.events: list[ProviderEvent] = []
        self.done: Done | None = None
        self.error: ErrorInfo | None = None
        self.usage: Usage | None = None
        self._blocks: list[_Block] = []
        self._open: _Block | None = None

    @property
    def text(self) -> str:
        """All text."""
        return "".join(block.text for block in self._blocks if block.kind is TextBlock)

    @property
    def thinking(self) -> str:
        """All reasoning."""
        return "".join(block.text for block in self._blocks if block.kind is ThinkingBlock)

    @property
    def calls(self) -> list[ToolCallBlock]:
        """The calls, in order."""
        return [block.call() for block in self._blocks if block.kind is ToolCallBlock]

    @property
    def kinds(self) -> list[type]:
        """What kinds of blocks there are, in order."""
        return [block.kind for block in self._blocks]

    @property
    def has_output(self) -> bool:
        """Whether a block was begun."""
        return bool(self._blocks)

    @property
    def ended(self) -> bool:
        """Whether the terminal event was seen."""
        return self.done is not None or self.error is not None

    def feed(self, event: ProviderEvent) -> None:
        """Take the next event.

        Raises:
            AssertionError: It breaks the contract.
        """
        expect(
            not self.ended,
            f"A {type(event).__name__} came after the terminal event: {brief(event)}.",
        )
        self.events.append(event)
        match event:
            case TextDelta() | ThinkingDelta():
                kind = TextBlock if isinstance(event, TextDelta) else ThinkingBlock
                block = self._block(kind, event.index)
                block.parts.append(event.text)
                self._open = block
            case ToolCallChunk():
                self._chunk(event)
            case ToolCallReady():
                block = self._block(ToolCallBlock, None)
                block.block = ToolCallBlock(id=event.id, name=event.name, arguments=event.arguments)
            case BlockFinished():
                self._finished(event)
            case UsageUpdate():
                self._count(event.usage)
            case Notice():
                expect(bool(event.code and event.message), "A notice has no code or no message.")
            case Done():
                if event.usage is not None:
                    self._count(event.usage)
                self.done = event
            case Failed():
                self.error = event.error
            case _:
                raise AssertionError(f"{brief(event)} is no provider event.")

    def _block(self, kind: type, index: int | None) -> _Block:
        opened = self._open
        if index is None:
            if opened is not None and opened.kind is kind and kind is not ToolCallBlock:
                return opened
            index = len(self._blocks)
        if index == len(self._blocks):
            self._blocks.append(_Block(kind))
        expect(
            0 <= index < len(self._blocks),
            f"Index {index} came when the next new one is {len(self._blocks)}: they must be dense.",
        )
        block = self._blocks[index]
        expect(block.kind is kind, f"Block {index} is a {block.kind.__name__} and a {kind}.")
        expect(block.block is None, f"Something came for block {index} after its end.")
        return block

    def _chunk(self, event: ToolCallChunk) -> None:
        block = self._block(ToolCallBlock, event.index)
        for name, value in (("call_id", event.id), ("name", event.name)):
            before = getattr(block, name)
            expect(
                value is None or before in {None, value},
                f"Block {event.index} has the {name} {before!r} and {value!r}.",
            )
            if value is not None:
                setattr(block, name, value)
        block.parts.append(event.arguments_text)

    def _finished(self, event: BlockFinished) -> None:
        final = event.block
        block = self._block(type(final), event.index)
        seen = "".join(block.parts)
        if isinstance(final, TextBlock | ThinkingBlock):
            expect(
                final.text.startswith(seen),
                f"Block {event.index} ends as {brief(final.text)}; its deltas gave {brief(seen)}.",
            )
        elif isinstance(final, ToolCallBlock):
            for name, before in (("id", block.call_id), ("name", block.name)):
                expect(
                    before in {None, getattr(final, name)},
                    f"Call {event.index} has the {name} {before!r}, then another.",
                )
            _check_arguments(event.index, final, seen)
        block.block = final
        if self._open is block:
            self._open = None

    def _count(self, usage: Usage) -> None:
        before = self.usage
        for name in _COUNTERS:
            value = getattr(usage, name)
            expect(
                value is None or (type(value) is int and value >= 0),
                f"usage.{name} must be a count, not {value!r}.",
            )
            old = None if before is None else getattr(before, name)
            # What is told later replaces what was told before: it may not tell less.
            expect(
                old is None or (value is not None and value >= old),
                f"usage.{name} fell from {old} to {value}: usage must be cumulative.",
            )
        self.usage = usage


def _check_arguments(index: int, call: ToolCallBlock, seen: str) -> None:
    expect(isinstance(call.arguments, dict), f"The arguments of call {index} are no object.")  # pyright: ignore[reportUnnecessaryIsInstance]
    if call.raw_arguments is not None:
        expect(call.arguments == {}, f"Call {index} has raw arguments and parsed ones.")
    elif seen:
        parsed = _parsed(seen)
        expect(
            parsed == call.arguments,
            f"The deltas of call {index} gave {brief(seen)}; it ends with {brief(call.arguments)}.",
        )


def _parsed(text: str) -> dict[str, Any] | None:
    """Arguments: no text and `null` are none, what is no object is broken."""
    if not text.strip():
        return {}
    try:
        value: Any = parse_json(text)
    except DecodeError:
        return None
    if value is None:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


async def hear(provider: Provider, request: ProviderRequest) -> Heard:
    """Read an answer to its end.

    Raises:
        AssertionError: It breaks the contract.
    """
    heard = Heard()
    events = listen(provider, request)
    try:
        async for event in events:
            heard.feed(event)
    finally:
        await close_stream(events)
    expect(heard.ended, "The stream ended without a terminal event.")
    return heard


def listen(provider: Provider, request: ProviderRequest) -> AsyncIterator[ProviderEvent]:
    """Ask, and give the stream.

    Raises:
        AssertionError: `generate` gave something else.
    """
    events = provider.generate(request)
    given: Any = events
    is_stream = hasattr(given, "__anext__")
    if not is_stream and (close := getattr(given, "close", None)) is not None:
        close()  # a coroutine that nobody awaits would warn
    expect(
        is_stream,
        f"generate() gave a {type(given).__name__}; it must give an async iterator at once.",
    )
    return events


async def close_stream(events: Any) -> None:
    """Close a stream as the runtime does."""
    aclose = getattr(events, "aclose", None)
    if aclose is not None:
        await aclose()


def shown(events: Sequence[ProviderEvent]) -> str:
    """Everything that is in the events, as text."""
    return msgspec.json.encode(events).decode() + repr(events)
