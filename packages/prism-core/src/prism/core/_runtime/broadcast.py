"""Events from one run to any number of readers, none of which can slow it."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Generic, NoReturn, TypeVar, cast

import anyio

from prism.core._wire import (
    AgentEvent,
    MessageDelta,
    TextBlock,
    ThinkingBlock,
    ToolCallDelta,
    ToolExecutionProgress,
)

HIGH_WATER: Final = 1_024
"""Unread events above which adjacent deltas are merged. A run takes a pause every 64 deltas, so a
reader that keeps up never has this many."""

T = TypeVar("T")


class _Deltas:
    """Adjacent deltas of one block, joined when they are read."""

    __slots__ = ("first", "parts")

    def __init__(self, first: MessageDelta | ToolCallDelta, text: str) -> None:
        self.first = first
        self.parts = [text]

    def add(self, event: MessageDelta | ToolCallDelta, text: str) -> None:
        if isinstance(event, ToolCallDelta):
            self.first = event  # the id and the name may come after the first delta
        self.parts.append(text)

    def event(self) -> AgentEvent:
        text = "".join(self.parts)
        first = self.first
        if isinstance(first, ToolCallDelta):
            return ToolCallDelta(
                session_id=first.session_id,
                run_id=first.run_id,
                index=first.index,
                tool_call_id=first.tool_call_id,
                name=first.name,
                arguments_text=text,
            )
        kind = TextBlock if isinstance(first.content, TextBlock) else ThinkingBlock
        return MessageDelta(
            session_id=first.session_id,
            run_id=first.run_id,
            content=kind(text=text),
            index=first.index,
        )


class _Newest(Generic[T]):
    """A place in the buffer whose event is replaced by a newer one."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class Subscription:
    """The events of a session, for one reader: iterate it with `async for`.

    A reader that keeps up gets every event. One that falls behind by more than `HIGH_WATER`
    loses no text: adjacent deltas of a block reach it joined, and of the progress of a call only
    the newest.
    """

    __slots__ = ("_buffer", "_closed", "_progress", "_waiter")

    def __init__(self) -> None:
        self._buffer: deque[Any] = deque()
        self._waiter: anyio.Event | None = None
        self._closed = False
        self._progress: dict[str, _Newest[ToolExecutionProgress]] = {}

    def push(self, event: AgentEvent) -> None:
        """Hand over an event; never waits."""
        buffer = self._buffer
        if len(buffer) < HIGH_WATER or not self._merge(event):
            buffer.append(event)
        if self._waiter is not None:
            self._waiter.set()
            self._waiter = None

    def _merge(self, event: AgentEvent) -> bool:
        kind = type(event)
        if kind is MessageDelta or kind is ToolCallDelta:
            return self._merge_delta(cast("MessageDelta | ToolCallDelta", event))
        if isinstance(event, ToolExecutionProgress):
            place = self._progress.get(event.tool_call_id)
            if place is not None:
                place.value = event
                return True
            self._progress[event.tool_call_id] = place = _Newest(event)
            self._buffer.append(place)
            return True
        return False

    def _merge_delta(self, event: MessageDelta | ToolCallDelta) -> bool:
        text = _delta_text(event)
        last = self._buffer[-1]
        first = last.first if isinstance(last, _Deltas) else last
        if text is None or not _is_same_block(first, event):
            return False
        if not isinstance(last, _Deltas):
            last = self._buffer[-1] = _Deltas(last, _delta_text(last) or "")
        last.add(event, text)
        return True

    def close(self) -> None:
        """End the iteration once what is buffered has been read."""
        if not self._closed:
            self._closed = True
            if self._waiter is not None:
                self._waiter.set()
                self._waiter = None

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> AgentEvent:
        buffer = self._buffer
        while not buffer:
            if self._closed:
                self._end()
            if self._waiter is None:
                self._waiter = anyio.Event()
            await self._waiter.wait()
        item = buffer.popleft()
        if type(item) is _Deltas:
            return item.event()
        if type(item) is _Newest:
            newest = cast("_Newest[ToolExecutionProgress]", item).value
            self._progress.pop(newest.tool_call_id, None)
            return newest
        return cast("AgentEvent", item)

    def _end(self) -> NoReturn:
        raise StopAsyncIteration


class Broadcast:
    """Hands events to readers. Nothing here waits.

    Attributes:
        readers: Who reads; empty when making an event would be for nobody.
    """

    __slots__ = ("readers",)

    def __init__(self) -> None:
        self.readers: list[Subscription] = []

    def send(self, event: AgentEvent) -> None:
        """Hand an event to every reader."""
        for reader in self.readers:
            reader.push(event)

    def drop(self, reader: Subscription) -> None:
        """Forget a reader and end its iteration."""
        if reader in self.readers:
            self.readers.remove(reader)
        reader.close()

    def close(self) -> None:
        """End every reader's iteration."""
        for reader in list(self.readers):
            self.drop(reader)


def _is_same_block(first: Any, event: MessageDelta | ToolCallDelta) -> bool:
    if isinstance(first, MessageDelta) and isinstance(event, MessageDelta):
        return first.index == event.index and type(first.content) is type(event.content)
    if isinstance(first, ToolCallDelta) and isinstance(event, ToolCallDelta):
        return first.index == event.index
    return False


def _delta_text(event: MessageDelta | ToolCallDelta) -> str | None:
    if isinstance(event, ToolCallDelta):
        return event.arguments_text
    content = event.content
    return content.text if isinstance(content, TextBlock | ThinkingBlock) else None
