"""Which entries are observed, what they cost, and how they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, TypeGuard

from prism.core import (
    ContentBlock,
    ImageBlock,
    Message,
    MessageEntry,
    NativeBlock,
    SessionEntry,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    encode,
)
from prism.core.compaction import estimate_message_tokens
from prism.memory.observational._lines import minutes, one_line

SOURCE_ROLES: Final = frozenset({"user", "assistant", "tool"})

OBSERVE_KEY: Final = "observe"
"""A message whose `metadata` has this key with the value `False` is never observed."""

MAX_ARGUMENT_CHARS: Final = 2_000
"""How much of a call's arguments a worker sees, in characters."""

Calls: TypeAlias = Mapping[str, ToolCallBlock]


def is_source(entry: SessionEntry) -> TypeGuard[MessageEntry]:
    """Whether an entry is part of the conversation and so can be observed.

    Messages of users, of the model and of tools are; summaries, records and what a host marked
    with `metadata={"observe": False}`, such as reminders that it put in, are not.
    """
    return (
        isinstance(entry, MessageEntry)
        and entry.message.role in SOURCE_ROLES
        and (entry.message.metadata is None or entry.message.metadata.get(OBSERVE_KEY) is not False)
        and (entry.metadata is None or entry.metadata.get(OBSERVE_KEY) is not False)
    )


def source_tokens(entries: Sequence[SessionEntry], *, after: int = -1) -> int:
    """Estimated tokens of the sources behind the place *after*."""
    return sum(
        estimate_message_tokens(entry.message) for entry in entries[after + 1 :] if is_source(entry)
    )


def calls_of(entries: Sequence[SessionEntry]) -> dict[str, ToolCallBlock]:
    """All calls of a branch by id."""
    return {
        block.id: block
        for entry in entries
        if isinstance(entry, MessageEntry)
        for block in entry.message.content
        if isinstance(block, ToolCallBlock)
    }


def source_label(entry: MessageEntry, calls: Calls) -> str:
    """What a source is: its role, and for a result the call that it answers."""
    role = entry.message.role
    if role == "tool":
        for block in entry.message.content:
            if isinstance(block, ToolResultBlock):
                call = calls.get(block.tool_call_id)
                shown = one_line(block.name) if call is None else _call(call)
                return f"tool, result of {shown}"
    return role


def source_block(entry: MessageEntry, calls: Calls, *, timestamp: str | None = None) -> str:
    """A source as a labelled block. Its own lines are set in, so that none looks like a label."""
    at = minutes(entry.timestamp if timestamp is None else timestamp)
    head = f"[entry {entry.id} | {source_label(entry, calls)} | {at}]"
    body = message_text(entry.message)
    if not body:
        return head
    return f"{head}\n{indented(body)}"


def indented(text: str) -> str:
    """*text* with two spaces in front of every line, however it breaks lines."""
    return "\n".join(f"  {line}" for line in text.splitlines())


def message_text(message: Message) -> str:
    """What a message says, with calls as name and arguments and without binary data."""
    return "\n".join(part for block in message.content if (part := _block(block)))


def _block(block: ContentBlock) -> str:
    match block:
        case TextBlock():
            return block.text
        case ThinkingBlock():
            return f"(thinking) {block.text}" if block.text and not block.redacted else ""
        case ImageBlock():
            return f"[image {one_line(block.mime_type or 'of unknown type')}]"
        case ToolCallBlock():
            return f"(calls) {_call(block)}"
        case ToolResultBlock():
            return _result(block)
        case NativeBlock():
            return f"[{one_line(block.kind)}]"
        case _:
            return f"[{one_line(block.type)}]"


def _result(block: ToolResultBlock) -> str:
    parts = [part for inner in block.content or () if (part := _block(inner))]
    if block.result is not None:
        value = block.result
        parts.append(value if isinstance(value, str) else encode(value).decode())
    if block.error is not None:
        parts.append(f"(error) {block.error.message}")
    return "\n".join(parts)


def _call(call: ToolCallBlock) -> str:
    arguments = call.raw_arguments or encode(call.arguments).decode()
    if len(arguments) > MAX_ARGUMENT_CHARS:
        missing = len(arguments) - MAX_ARGUMENT_CHARS
        arguments = f"{arguments[:MAX_ARGUMENT_CHARS]}… [{missing} more characters]"
    return f"{one_line(call.name)}({one_line(arguments)})"
