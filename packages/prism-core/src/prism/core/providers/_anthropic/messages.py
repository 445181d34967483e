"""From a transformed message to the wire's."""

from __future__ import annotations

from typing import Any, Final

from prism.core._errors import DecodeError
from prism.core._wire import (
    ContentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    parse_json,
)
from prism.core.providers._json import is_list, is_object

API: Final = "anthropic-messages"

IMAGE_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""What the API takes as an image."""

SHOWN_IMAGE: Final = "(an image that the assistant showed)"
EMPTY_RESULT: Final = "(no output)"
NO_ANSWER: Final = "(no answer)"


def encode_message(message: Message) -> list[dict[str, Any]]:
    """The wire's message, or none when nothing of it can be sent.

    `content` is the last key, and a list that is not empty.
    """
    if message.role == "assistant":
        content = _assistant(message)
    elif message.role == "system":
        content = _text(message.text)
    else:
        content = _user(message)
    if not content:
        return []
    role = message.role if message.role in {"assistant", "system"} else "user"
    return [{"role": role, "content": content}]


def _text(text: str) -> list[dict[str, Any]]:
    """White space alone is refused."""
    return [{"type": "text", "text": text}] if text and not text.isspace() else []


def _user(message: Message) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            results.append(_result(block))
        else:
            rest += _part(block)
    return [*results, *rest]


def _part(block: ContentBlock) -> list[dict[str, Any]]:
    if isinstance(block, TextBlock):
        return _text(block.text)
    if isinstance(block, ImageBlock):
        return [{"type": "image", "source": _image_source(block)}]
    if isinstance(block, NativeBlock) and block.api == API:  # a document, for one
        return _native(block)
    return []


def _image_source(block: ImageBlock) -> dict[str, Any]:
    url, kind, data = block.url, block.mime_type or "image/png", block.data
    if url is not None and url.startswith("data:"):
        head, _, data = url[len("data:") :].partition(",")
        kind = head.partition(";")[0] or kind
        url = None
    if url is not None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": kind, "data": data or ""}


def _result(block: ToolResultBlock) -> dict[str, Any]:
    content = block.content or ()
    sent: dict[str, Any] = {"type": "tool_result", "tool_use_id": block.tool_call_id}
    texts = [item.text for item in content if isinstance(item, TextBlock)]
    if len(texts) == len(content):
        said = [text for text in texts if text and not text.isspace()]
        sent["content"] = "\n".join(said) or EMPTY_RESULT
        # With the flag only text is taken; with images the text alone says what went wrong.
        if block.error is not None:
            sent["is_error"] = True
    else:
        sent["content"] = [part for item in content for part in _part(item)]
    return sent


def _assistant(message: Message) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    answered = _answered(message)
    for block in message.content:
        if isinstance(block, TextBlock):
            content += _written(block)
        elif isinstance(block, ThinkingBlock):
            content += _thinking(block)
        elif isinstance(block, ToolCallBlock):
            content.append(
                {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
            )
        elif isinstance(block, NativeBlock) and block.api == API:
            # After a pause the vendor itself answers its call; elsewhere one alone is refused.
            content += [
                item
                for item in _native(block)
                if item["type"] != "server_tool_use"
                or message.stop_reason == "pause"
                or item.get("id") in answered
            ]
        elif isinstance(block, ImageBlock):
            content += _text(SHOWN_IMAGE)
    if content and content[-1]["type"] in {"thinking", "redacted_thinking"}:
        # An answer must not end in a thought, and a thought that is left out invalidates the next.
        content += _text(NO_ANSWER)
    return content


def _written(block: TextBlock) -> list[dict[str, Any]]:
    parts = _text(block.text)
    replay = block.replay
    if parts and replay is not None and replay.api == API and replay.kind == "citations":
        citations = _json(replay.data)
        if is_list(citations):
            parts[0]["citations"] = citations
    return parts


def _thinking(block: ThinkingBlock) -> list[dict[str, Any]]:
    replay = block.replay
    if replay is not None and replay.api != API:
        return []
    opaque = block.signature if replay is None else replay.data
    if not opaque:
        return []
    if block.redacted or (replay is not None and replay.kind == "redacted"):
        return [{"type": "redacted_thinking", "data": opaque}]
    # Its text may be empty: the signature stands for what the vendor does not show.
    return [{"type": "thinking", "thinking": block.text, "signature": opaque}]


def _native(block: NativeBlock) -> list[dict[str, Any]]:
    item = _json(block.data)
    return [item] if is_object(item) and isinstance(item.get("type"), str) else []


def _answered(message: Message) -> set[Any]:
    """Ids of the calls of the vendor's own tools that have their results beside them."""
    return {
        item.get("tool_use_id")
        for block in message.content
        if isinstance(block, NativeBlock) and block.kind.endswith("_result")
        for item in _native(block)
    }


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except DecodeError:
        return None
