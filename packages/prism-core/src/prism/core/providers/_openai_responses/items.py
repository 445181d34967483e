"""The events and the output items of a Responses stream, and what they hold."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from prism.core._errors import DecodeError, ProviderError
from prism.core._wire import encode, parse_json
from prism.core.providers._json import as_object, is_list, is_object
from prism.core.providers._stream import UNDECODABLE

_NOTHING: Final = msgspec.Raw(b"null")
PARTS: Final = "\n\n"
"""Between the parts of a summary."""


class Event(msgspec.Struct, gc=False):
    """What is looked at of any event; the rest, and what is not needed, is not even decoded."""

    type: Any = None
    output_index: Any = None
    item_id: Any = None
    content_index: Any = None
    summary_index: Any = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    item: msgspec.Raw = _NOTHING
    response: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING
    code: Any = None
    message: Any = None


_decoder = msgspec.json.Decoder(Event)
_RAW_FIELDS: Final = ("item", "response", "error")

TEXT, THINKING, CALL, NATIVE = "text", "thinking", "call", "native"
_KINDS: Final = {"message": TEXT, "reasoning": THINKING, "function_call": CALL}


class Item:
    """An output item under way.

    Attributes:
        at: Its `output_index`, where the server gives one.
        index: Of its block among the answer's; none before it shows.
        seen: The text or the arguments that were emitted.
        part: Which part of its reasoning came last: its source and number.
    """

    __slots__ = (
        "at", "call_id", "finished", "id", "index", "kind", "name", "part", "phase", "seen",
    )  # fmt: skip

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.at: int | None = None
        self.id: str | None = None
        self.index: int | None = None
        self.seen: list[str] = []
        self.part: tuple[str, int] | None = None
        self.name = ""
        self.call_id = ""
        self.phase: str | None = None
        self.finished = False


def decode_event(data: bytes) -> Event | None:
    """An event, or `None` for what is none.

    Raises:
        ProviderError: `malformed_output`.
    """
    try:
        return _decoder.decode(data)
    except UNDECODABLE:
        if data.strip() == b"[DONE]":
            return None
    # A lone surrogate, for one.
    try:
        tree = parse_json(data)
    except DecodeError as error:
        raise ProviderError(
            f"An event of the stream cannot be read: {error}", code="malformed_output"
        ) from None
    if not is_object(tree):
        return None
    fields = {name: tree[name] for name in Event.__struct_fields__ if name in tree}
    for name in _RAW_FIELDS:
        if name in fields:
            fields[name] = msgspec.Raw(encode(fields[name]))
    return Event(**fields)


def object_of(raw: msgspec.Raw) -> dict[str, Any]:
    """The object, or an empty one for anything else."""
    try:
        return as_object(msgspec.json.decode(raw))
    except UNDECODABLE:
        return as_object(parse_json(bytes(raw)))


class _Output(msgspec.Struct, gc=False):
    output: list[msgspec.Raw] = []


def output_of(response: msgspec.Raw) -> list[msgspec.Raw]:
    """The items that a response lists."""
    try:
        return msgspec.json.decode(response, type=_Output).output
    except UNDECODABLE:
        found = object_of(response).get("output")
        return [msgspec.Raw(encode(item)) for item in found] if is_list(found) else []


def kind_of(raw: dict[str, Any]) -> str:
    """What an item becomes."""
    return _KINDS.get(str(raw.get("type")), NATIVE)


def number(index: Any) -> int:
    """An index, 0 where there is none."""
    return index if type(index) is int else 0


def arguments_text(value: Any) -> str:
    """Some servers send an object instead of its JSON text."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value).decode()


def content_text(raw: dict[str, Any]) -> tuple[str, bool]:
    """The text of a message item, and whether it is a refusal."""
    content = raw.get("content")
    if isinstance(content, str):
        return content, False
    refused = False
    texts: list[str] = []
    for part in content if is_list(content) else ():
        if not is_object(part):
            continue
        text, refusal = part.get("text"), part.get("refusal")
        if isinstance(refusal, str):
            text, refused = refusal, True
        if isinstance(text, str):
            texts.append(text)
    return "".join(texts), refused


def reasoning_text(raw: dict[str, Any]) -> str:
    """The summary of a reasoning item, else its text."""
    for name in ("summary", "content"):
        parts = raw.get(name)
        if not is_list(parts):
            continue
        texts = [part.get("text") for part in parts if is_object(part)]
        joined = PARTS.join(text for text in texts if isinstance(text, str) and text)
        if joined:
            return joined
    return ""
