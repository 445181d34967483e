"""From transformed messages to the items of `input`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

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
)
from prism.core.providers._openai_responses.compat import OpenAIResponsesCompat
from prism.core.providers._requests import encode_sent, image_url

API: Final = "openai-responses"

_MAX_ITEM_ID: Final = 64


class Encoder:
    """Encodes the messages of one conversation, in order.

    Its only state is the effort under which the model's last message was written: a change is
    told by an item in front of the message that it was made for.
    """

    __slots__ = ("_compat", "_effort")

    def __init__(self, compat: OpenAIResponsesCompat) -> None:
        self._compat = compat
        self._effort: str | None = None

    def __call__(self, message: Message) -> list[Any]:
        """The items of one message."""
        role, content = message.role, message.content
        if role == "assistant":
            return self._assistant(message)
        if role == "tool":
            return [_result(block) for block in content if isinstance(block, ToolResultBlock)]
        parts = _parts(content)
        if not parts:
            return []
        return [{"role": system_role(self._compat) if role == "system" else role, "content": parts}]

    def _assistant(self, message: Message) -> list[Any]:
        items: list[Any] = []
        reasons = 0  # reasoning items at the end of `items`: none may end a message
        has_reasoning = False
        for block in message.content:
            item: Any
            if isinstance(block, ThinkingBlock):
                item = _raw(block.replay.data) if block.replay is not None else None
                if item is not None:
                    has_reasoning = True
                    reasons += 1
                    items.append(item)
                continue
            if isinstance(block, TextBlock):
                item = _text(block, with_id=has_reasoning)
            elif isinstance(block, ToolCallBlock):
                item = _call(block, with_id=has_reasoning)
            elif isinstance(block, NativeBlock):
                item = _raw(block.data)
            else:
                item = None
            if item is not None:
                reasons = 0
                items.append(item)
        if reasons:
            del items[-reasons:]
        effort = effort_of(message) if self._compat.configuration_updates else None
        if effort is not None:
            if self._effort is not None and effort != self._effort:
                items.insert(0, configuration_update(effort))
            self._effort = effort
        return items


def system_role(compat: OpenAIResponsesCompat) -> str:
    """The role of the system prompt."""
    return "developer" if compat.developer_role else "system"


def configuration_update(effort: str) -> dict[str, Any]:
    """The item that changes the effort for all that follows."""
    return {"type": "configuration_update", "reasoning": {"effort": effort}}


def item_replay(item_id: str | None, phase: str | None, effort: str | None) -> Replay | None:
    """What a message or a call needs when it is sent back; `None` for nothing."""
    if item_id is None and phase is None and effort is None:
        return None
    data = "" if effort is None else msgspec.json.encode({"effort": effort}).decode()
    return Replay(api=API, kind="item", data=data, item_id=item_id, phase=phase)


def effort_of(message: Message) -> str | None:
    """The effort under which a message was written, where that is known."""
    for block in message.content:
        if isinstance(block, TextBlock | ToolCallBlock) and block.replay is not None:
            if not block.replay.data:
                return None
            try:
                effort = _effort_decoder.decode(block.replay.data).effort
            except msgspec.DecodeError:
                return None
            return effort
    return None


class _Effort(msgspec.Struct, frozen=True):
    effort: str


_effort_decoder = msgspec.json.Decoder(_Effort)
_raw_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _raw(data: str) -> msgspec.Raw | None:
    """An item of the vendor's, verbatim; `None` when it is no object."""
    try:
        raw = data.encode()
        _raw_decoder.decode(raw)
    except (UnicodeEncodeError, msgspec.DecodeError):
        return None
    return msgspec.Raw(raw)


def _object(data: str) -> dict[str, Any] | None:
    raw = _raw(data)
    return None if raw is None else msgspec.json.decode(raw)


def _parts(content: Sequence[ContentBlock]) -> list[Any]:
    parts: list[Any] = []
    for block in content:
        if isinstance(block, TextBlock):
            parts.append({"type": "input_text", "text": block.text})
        elif (part := _part(block)) is not None:
            parts.append(part)
    return parts


def _part(block: ContentBlock) -> Any:
    if isinstance(block, ImageBlock):
        return {"type": "input_image", "image_url": image_url(block), "detail": "auto"}
    return _object(block.data) if isinstance(block, NativeBlock) else None  # a file, for one


def _text(block: TextBlock, *, with_id: bool) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": block.text, "annotations": []}],
    }
    replay = block.replay
    if replay is not None:
        if with_id and replay.item_id is not None and len(replay.item_id) <= _MAX_ITEM_ID:
            item["id"] = replay.item_id
        if replay.phase is not None:
            item["phase"] = replay.phase
    return item


def _call(block: ToolCallBlock, *, with_id: bool) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "function_call",
        "call_id": block.id,
        "name": block.name,
        "arguments": encode_sent(block.arguments).decode(),
    }
    replay = block.replay
    # Without its reasoning before it, an item of that id is refused.
    item_id = replay.item_id if with_id and replay is not None else None
    if item_id is not None and len(item_id) <= _MAX_ITEM_ID:
        item["id"] = item_id
    return item


def _result(block: ToolResultBlock) -> dict[str, Any]:
    content = block.content or ()
    texts = [inner.text for inner in content if isinstance(inner, TextBlock)]
    output: Any = "\n".join(texts) if len(texts) == len(content) else _parts(content)
    return {"type": "function_call_output", "call_id": block.tool_call_id, "output": output}
