"""The same jobs by hand: one async-generator loop, without retries, aborts or redaction.

It does what such a loop cannot do without: it yields the events a user interface needs, validates
a call's arguments, and stores every message as an entry of a tree, with an id, a time and a
parent, as one line of JSON. It runs tools in its own task, so that nothing can stop them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from os import urandom
from typing import Any

import msgspec

from prism.core.providers import Done, ProviderEvent, TextDelta, ToolCallReady


class Delta(msgspec.Struct, frozen=True):
    """Text as it comes."""

    text: str


class MessageBegan(msgspec.Struct, frozen=True):
    """The answer's first text."""


class MessageEnded(msgspec.Struct, frozen=True):
    """The answer, and where it is stored."""

    text: str
    calls: list[ToolCallReady]
    entry_id: str


class Entry(msgspec.Struct, frozen=True, tag_field="kind", tag="message"):
    """What the loop stores."""

    id: str
    parent: str | None
    time: str
    role: str
    content: Any


class ToolStarted(msgspec.Struct, frozen=True):
    """A tool begins."""

    call: ToolCallReady


class ToolFinished(msgspec.Struct, frozen=True):
    """A tool ended."""

    call: ToolCallReady
    result: Any


_encode = msgspec.json.Encoder().encode

BareTool = tuple[type[msgspec.Struct], Callable[..., Awaitable[Any]]]
Provider = Callable[[], AsyncIterator[ProviderEvent]]
Sink = Callable[[bytes], object]


async def loop(
    provider: Provider, tools: Mapping[str, BareTool], prompt: str, sink: Sink
) -> AsyncIterator[Any]:
    """Ask, run the tools, ask again; every event is yielded, every message stored."""
    leaf: str | None = None

    def store(role: str, content: Any) -> str:
        nonlocal leaf
        entry_id = urandom(10).hex()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        sink(_encode(Entry(entry_id, leaf, now, role, content)) + b"\n")
        leaf = entry_id
        return entry_id

    history: list[Any] = [("user", prompt)]
    store("user", prompt)
    while True:
        parts: list[str] = []
        calls: list[ToolCallReady] = []
        async for event in provider():
            kind = type(event)
            if kind is TextDelta:
                if not parts:
                    yield MessageBegan()
                parts.append(event.text)  # type: ignore[union-attr]
                yield Delta(event.text)  # type: ignore[union-attr]
            elif kind is ToolCallReady:
                calls.append(event)  # type: ignore[arg-type]
            elif kind is Done:
                break
        text = "".join(parts)
        history.append(("assistant", text, calls))
        yield MessageEnded(text, calls, store("assistant", {"text": text, "calls": calls}))
        if not calls:
            return
        for call in calls:
            schema, function = tools[call.name]
            arguments = msgspec.structs.asdict(msgspec.convert(call.arguments, schema))
            yield ToolStarted(call)
            result = await function(**arguments)
            history.append(("tool", call.id, result))
            store("tool", {"call": call.id, "result": result})
            yield ToolFinished(call, result)


def scripted(turns: Sequence[Sequence[ProviderEvent]]) -> Provider:
    """A provider of fixed turns that never suspends."""
    position = 0

    async def generate() -> AsyncIterator[ProviderEvent]:
        nonlocal position
        turn = turns[min(position, len(turns) - 1)]
        position += 1
        for event in turn:
            yield event

    return generate
