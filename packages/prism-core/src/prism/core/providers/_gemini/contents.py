"""From a transformed message to the wire's contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from prism.core._errors import DecodeError
from prism.core._wire import (
    ContentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    parse_json,
)
from prism.core.providers._json import is_object

API: Final = "gemini"

IMAGE_TYPES: Final = frozenset({
    "image/png", "image/jpeg", "image/webp", "image/heic", "image/heif",
})  # fmt: skip
"""What the API takes as an image."""

_SUFFIXES: Final = {
    "jpg": "image/jpeg",
    **{kind.partition("/")[2]: kind for kind in IMAGE_TYPES},
}

IMAGE_SIGNATURE: Final = "imageSignature"
"""Kind of a native block that holds the signature of the image before it."""

UNSIGNED: Final = "skip_thought_signature_validator"
"""The vendor's own stand-in for the signature of a call that its model did not make."""

Content: TypeAlias = dict[str, Any]


def contents_encoder(*, call_ids: bool, signed_calls: bool) -> Callable[[Message], list[Content]]:
    """What makes the wire's contents of a message; see `GeminiCompat` for the switches."""

    def encode_message(message: Message) -> list[Content]:
        if message.role == "assistant":
            parts = _assistant(message, call_ids=call_ids)
            if signed_calls:
                _sign_first_call(parts)
            return [{"role": "model", "parts": parts}] if parts else []
        results: list[Content] = []
        rest: list[Content] = []
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                results.append(_result(block, call_ids=call_ids))
            else:
                rest += _part(block)
        if results and any("text" not in part for part in rest):
            # The model looks for results in a content of their own.
            return [{"role": "user", "parts": results}, {"role": "user", "parts": rest}]
        parts = [*results, *rest]
        return [{"role": "user", "parts": parts}] if parts else []

    return encode_message


def _part(block: ContentBlock) -> list[Content]:
    if isinstance(block, TextBlock):
        return [{"text": block.text}] if block.text and not block.text.isspace() else []
    if isinstance(block, ImageBlock):
        return [_image(block)]
    if isinstance(block, NativeBlock):
        return _native(block)
    return []


def _image(block: ImageBlock) -> Content:
    url, kind, data = block.url, block.mime_type, block.data
    if url is not None and url.startswith("data:"):
        head, _, data = url[len("data:") :].partition(",")
        kind = head.partition(";")[0] or kind
        url = None
    if url is None:
        return {"inlineData": {"mimeType": kind or "image/png", "data": data or ""}}
    kind = kind or _SUFFIXES.get(url.partition("?")[0].rpartition(".")[2].lower())
    return {"fileData": {**({} if kind is None else {"mimeType": kind}), "fileUri": url}}


def _result(block: ToolResultBlock, *, call_ids: bool) -> Content:
    texts: list[str] = []
    images: list[Content] = []
    for item in block.content or ():
        if isinstance(item, TextBlock):
            texts.append(item.text)
        elif isinstance(item, ImageBlock):
            images.append(_image(item))
    key = "output" if block.error is None else "error"
    response: Content = {"name": block.name}
    if call_ids:
        response["id"] = block.tool_call_id
    response["response"] = {key: "\n".join(texts)}
    if images:
        response["parts"] = images
    return {"functionResponse": response}


def _assistant(message: Message, *, call_ids: bool) -> list[Content]:
    parts: list[Content] = []
    for block in message.content:
        if isinstance(block, TextBlock):
            signature = _signature(block.replay)
            if signature or block.text.strip():
                parts.append({"text": block.text, **signature})
        elif isinstance(block, ThinkingBlock):
            signature = _signature(block.replay)
            if signature or block.text:
                parts.append({"text": block.text, "thought": True, **signature})
        elif isinstance(block, ToolCallBlock):
            call: Content = {"name": block.name, "args": block.arguments}
            if call_ids:
                call["id"] = block.id
            parts.append({"functionCall": call, **_signature(block.replay)})
        elif isinstance(block, ImageBlock):
            parts.append(_image(block))
        elif isinstance(block, NativeBlock):
            if block.kind != IMAGE_SIGNATURE:
                parts += _native(block)
            elif block.api == API and parts and "inlineData" in parts[-1]:
                parts[-1]["thoughtSignature"] = block.data
    return parts


def _native(block: NativeBlock) -> list[Content]:
    if block.api != API:
        return []
    try:
        part = parse_json(block.data)
    except DecodeError:
        return []
    return [part] if is_object(part) and part else []


def _signature(replay: Replay | None) -> Content:
    if replay is None or replay.api != API or replay.kind != "signature":
        return {}
    return {"thoughtSignature": replay.data}


def _sign_first_call(parts: list[Content]) -> None:
    """Of the calls of one step the first is signed; the model refuses it without."""
    for part in parts:
        if "functionCall" in part:
            part.setdefault("thoughtSignature", UNSIGNED)
            return
