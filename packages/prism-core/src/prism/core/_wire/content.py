"""Content blocks and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from prism.core._errors import UsageError
from prism.core._wire.base import Codec, JsonText, OpaqueBlock, WireStruct
from prism.core._wire.models import ErrorInfo, ModelRef, Usage


class Replay(WireStruct, frozen=True, kw_only=True):
    """Opaque vendor state that a block needs when it is sent back to the same API.

    Attributes:
        api: `openai-responses`, `openai-chat`, `anthropic-messages` or `gemini`.
        kind: What `data` is, such as `signature`, `encrypted`, `field`, `item`.
        data: Never redacted, cut or changed.
        prefix: Digest of what came before the block when it was made.
    """

    api: str
    kind: str
    data: str
    item_id: str | None = None
    phase: str | None = None
    prefix: str | None = None


class TextBlock(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Text."""

    text: str
    replay: Replay | None = None


class ThinkingBlock(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """The model's reasoning, or its summary; empty and `redacted` when the vendor hides it."""

    text: str
    signature: str | None = None
    redacted: bool | None = None
    replay: Replay | None = None


class ImageBlock(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image: exactly one of `data` (base64) and `url`.

    Raises:
        UsageError: both are given, or none.
    """

    mime_type: str | None = None
    data: str | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            raise UsageError("An image needs either `data` or `url`, and not both.")


class ToolCallBlock(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="tool_call"):
    """A call that the model asks for.

    Attributes:
        arguments: Parsed; empty when they did not parse.
        raw_arguments: The model's text, only when it did not parse as an object.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    raw_arguments: str | None = None
    replay: Replay | None = None


class ToolResultBlock(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    """What a call gave: blocks, a JSON value, or an error."""

    tool_call_id: str
    name: str
    content: list[ContentBlock] | None = None
    result: Any = None
    error: ErrorInfo | None = None


class NativeBlock(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="native"):
    """A vendor's own item, replayed only to the same API."""

    api: str
    kind: str
    data: str


if TYPE_CHECKING:
    ContentBlock: TypeAlias = (
        TextBlock
        | ThinkingBlock
        | ImageBlock
        | ToolCallBlock
        | ToolResultBlock
        | NativeBlock
        | OpaqueBlock
    )
else:
    # msgspec cannot decode a union that holds a class of its own; the codec puts the opaque
    # blocks in.
    ContentBlock = (
        TextBlock | ThinkingBlock | ImageBlock | ToolCallBlock | ToolResultBlock | NativeBlock
    )

BLOCK_TYPES: Final = frozenset({
    "text", "thinking", "image", "tool_call", "tool_result", "native",
})  # fmt: skip


class Message(WireStruct, frozen=True, kw_only=True):
    """One message of a conversation.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        content: A `tool` message holds exactly one `ToolResultBlock`.
        model: Who wrote it; assistant messages only.
        stop_reason: `stop`, `tool_use`, `length`, `context_limit`, `refusal`, `pause`, `error`
            or `aborted`; assistant messages only.
        usage: What it cost; assistant messages only.
    """

    role: str
    content: list[ContentBlock]
    id: str | None = None
    metadata: dict[str, Any] | None = None
    model: ModelRef | None = None
    stop_reason: str | None = None
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_calls(self) -> list[ToolCallBlock]:
        """The calls, in source order."""
        return [block for block in self.content if isinstance(block, ToolCallBlock)]


class ToolResult(WireStruct, frozen=True, kw_only=True):
    """What a tool gave, as events carry it; `value` becomes the block's `result`."""

    tool_call_id: str
    name: str
    content: list[ContentBlock] | None = None
    value: Any = None
    error: ErrorInfo | None = None
    metadata: dict[str, Any] | None = None


class CommandResult(WireStruct, frozen=True, kw_only=True):
    """What a command gave."""

    name: str
    content: list[ContentBlock] | None = None
    value: Any = None
    error: ErrorInfo | None = None
    metadata: dict[str, Any] | None = None


def block_codec(kind: Any) -> Codec[Any]:
    """A codec for a type that holds content blocks."""
    return Codec(kind, blocks=ContentBlock)


_message_codec: Codec[Message] = block_codec(Message)
_blocks_codec: Codec[list[ContentBlock]] = block_codec(list[ContentBlock])


def gather_result(message: Message) -> Message:
    """A tool message as Prism has it: one result, and nothing beside it.

    The TypeScript original writes blocks beside the result; they become its `content`. A message
    that has no result, or several, comes back as it is.
    """
    if message.role != "tool" or len(message.content) < 2:
        return message
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    if len(results) != 1:
        return message
    beside = [block for block in message.content if block is not results[0]]
    content = [*(results[0].content or ()), *beside]
    return replace(message, content=[replace(results[0], content=content)])


def decode_message(data: JsonText) -> Message:
    """Read a message; blocks of unknown type become `OpaqueBlock`.

    Blocks beside the one result of a `tool` message become that result's `content`.

    Raises:
        DecodeError: with the JSON path of what is wrong.
    """
    return gather_result(_message_codec.decode(data))


def convert_message(tree: object) -> Message:
    """Build a message from dictionaries and lists, as `decode_message` does from JSON.

    Raises:
        DecodeError: with the JSON path of what is wrong.
    """
    return gather_result(_message_codec.convert(tree))


def convert_blocks(tree: object) -> list[ContentBlock]:
    """Build content blocks from a list of dictionaries.

    Raises:
        DecodeError: with the JSON path of what is wrong; `$` is the list.
    """
    return _blocks_codec.convert(tree)
