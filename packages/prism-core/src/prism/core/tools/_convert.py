"""From what a tool returned to a result that fits the wire and its size limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from prism.core._contracts import ToolOutput
from prism.core._errors import DecodeError, EncodeError
from prism.core._support.errors import MAX_ERROR_BYTES
from prism.core._support.limits import truncate_utf8
from prism.core._wire import (
    ContentBlock,
    ErrorInfo,
    ImageBlock,
    NativeBlock,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultBlock,
    convert_blocks,
    encode,
    has_non_finite,
    parse_json,
    to_plain,
)

_BLOCKS: Final = (
    TextBlock,
    ThinkingBlock,
    ImageBlock,
    ToolCallBlock,
    ToolResultBlock,
    NativeBlock,
    OpaqueBlock,
)

_TEXT_OR_BLOCK: Final = (str, *_BLOCKS)

_BYTES_PER_CHAR: Final = 6
"""Most bytes that one character of a string takes in JSON: an escape such as `\\u0000`."""

_LONGEST_ESCAPE: Final = 12
"""Bytes of a character outside the first plane, written as two escapes."""

_TEXT_FRAME: Final = len(b'{"type":"text","text":""},')


def make_result(
    call: ToolCallBlock,
    returned: object,
    *,
    max_bytes: int,
    redact: Callable[[Any], Any] | None = None,
) -> ToolResult:
    """The result of *call*.

    Text becomes one text block; a block, or a list of blocks and texts, becomes content; a
    `ToolOutput` or `ToolResult` gives its parts; `None` gives neither content nor value; all else
    becomes a JSON value.

    Args:
        call: Its id and name are the result's.
        returned: What the tool returned.
        max_bytes: Longest content and value together, as JSON. Text is cut at its end, and a
            value becomes its JSON text, cut; the text then says how many bytes were left out, and
            the metadata has `truncated` and the whole size, `bytes`. Below about 150 bytes only
            that remark is left.
        redact: Applied to texts and values before they are cut.

    Raises:
        EncodeError, DecodeError: it cannot be written as JSON, or is no content block.
    """
    if type(returned) is str and len(returned) * _BYTES_PER_CHAR + _TEXT_FRAME <= max_bytes:
        text = returned if redact is None else redact(returned)
        if len(text) * _BYTES_PER_CHAR + _TEXT_FRAME <= max_bytes:
            return ToolResult(tool_call_id=call.id, name=call.name, content=[TextBlock(text=text)])
    content: list[ContentBlock] | None = None
    value: Any = None
    error: ErrorInfo | None = None
    metadata: dict[str, Any] | None = None
    if isinstance(returned, ToolOutput | ToolResult):
        if returned.content is not None:
            content = _content(returned.content, redact)
        value, error, metadata = returned.value, returned.error, returned.metadata
    elif isinstance(returned, _TEXT_OR_BLOCK) or _is_content(returned):
        content = _content(returned, redact)
    else:
        value = returned
    value, value_bytes = _plain(value, redact)
    content_bytes = 0 if content is None else len(encode(content))
    metadata, metadata_bytes = _plain(metadata, redact)
    if type(metadata) not in {dict, type(None)}:
        raise EncodeError("The metadata of a tool's result must be a dict.")
    if metadata_bytes > max_bytes:
        metadata = {"truncated": True, "bytes": metadata_bytes}
    size = content_bytes + value_bytes
    if size > max_bytes:
        content, value = _cut(content, value, value_bytes, max_bytes)
        metadata = {**(metadata or {}), "truncated": True, "bytes": size}
    return ToolResult(
        tool_call_id=call.id,
        name=call.name,
        content=content,
        value=value,
        error=None if error is None else _error(error, max_bytes, redact),
        metadata=metadata,
    )


def plain_details(
    details: object, *, max_bytes: int, redact: Callable[[Any], Any] | None = None
) -> dict[str, Any] | None:
    """Details of an error as JSON; `None` when they are none, not JSON or too long."""
    try:
        plain, size = _plain(details, redact)
    except EncodeError:
        return None
    if not isinstance(plain, dict) or size > max_bytes:
        return None
    return cast("dict[str, Any]", plain)


def _is_content(returned: object) -> bool:
    if not isinstance(returned, list | tuple):
        return False
    items = cast("list[object]", returned)
    return all(isinstance(item, _TEXT_OR_BLOCK) for item in items) and any(
        isinstance(item, _BLOCKS) for item in items
    )


def _content(returned: Any, redact: Callable[[Any], Any] | None) -> list[ContentBlock]:
    """Blocks that decode again: a struct does not check its fields when it is made."""
    items = list(cast("list[Any]", returned) if isinstance(returned, list | tuple) else [returned])
    plain, _ = _plain([TextBlock(text=str(i)) if isinstance(i, str) else i for i in items], None)
    blocks = convert_blocks(plain)
    for position, block in enumerate(blocks):
        if isinstance(block, TextBlock) and redact is not None:
            blocks[position] = msgspec.structs.replace(block, text=redact(block.text))
    return blocks


def _plain(value: object, redact: Callable[[Any], Any] | None) -> tuple[Any, int]:
    """*value* as plain JSON values, and its size as JSON."""
    if value is None:
        return None, 0
    plain = to_plain(value)
    if redact is not None:
        plain = redact(plain)
    data = encode(plain)
    # What has no JSON form is written as null, so a text without one needs no search.
    if b"null" in data and has_non_finite(plain):
        raise EncodeError("NaN and Infinity are not JSON.")
    return plain, len(data)


def _error(error: object, max_bytes: int, redact: Callable[[Any], Any] | None) -> ErrorInfo:
    plain, size = _plain(error, redact)
    try:
        info = msgspec.convert(plain, ErrorInfo)
    except msgspec.ValidationError as wrong:
        raise DecodeError(f"The error of a tool's result is no ErrorInfo: {wrong}.") from None
    message = truncate_utf8(info.message, MAX_ERROR_BYTES)
    if size > max_bytes:
        return msgspec.structs.replace(info, message=message, cause=None, details=None)
    return msgspec.structs.replace(info, message=message)


def _cut(
    content: list[ContentBlock] | None, value: Any, value_bytes: int, max_bytes: int
) -> tuple[list[ContentBlock], Any]:
    """Content within the limit, and the value if there is room beside it."""
    if content is None:
        return _cut_blocks([TextBlock(text=encode(value).decode())], max_bytes), None
    content_bytes = len(encode(content))
    if content_bytes > max_bytes:
        content = _cut_blocks(content, max_bytes)
        content_bytes = len(encode(content))
    keeps_value = content_bytes + value_bytes <= max_bytes
    return content, value if keeps_value else None


def _cut_blocks(blocks: list[ContentBlock], max_bytes: int) -> list[ContentBlock]:
    """The first blocks that fit, the last text cut, and a remark on what is missing."""
    longest_remark = len(_remark(10**12, max_bytes))
    room = max_bytes - longest_remark - _TEXT_FRAME - len("[]")
    kept: list[ContentBlock] = []
    left_out = 0
    for block in blocks:
        size = len(encode(block)) + 1
        if size <= room:
            kept.append(block)
            room -= size
        elif isinstance(block, TextBlock):
            head = _head(block.text, room - _TEXT_FRAME)
            if head:
                kept.append(TextBlock(text=head))
            left_out += _utf8_bytes(block.text) - _utf8_bytes(head)
            room = 0  # what follows a cut text would read as its continuation
        else:
            left_out += size
    kept.append(TextBlock(text=_remark(left_out, max_bytes)))
    return kept


def _remark(left_out: int, max_bytes: int) -> str:
    return f"[{left_out} bytes left out: this tool's results are limited to {max_bytes} bytes.]"


def _utf8_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _head(text: str, room: int) -> str:
    """The longest head of *text* that takes at most *room* bytes as JSON without its quotes."""
    if room <= 0:
        return ""
    data = encode(text)[1:-1]
    if len(data) <= room:
        return text
    for end in range(room, max(0, room - _LONGEST_ESCAPE), -1):
        # An end inside a character or an escape is no JSON; half of a pair is no head.
        try:
            head = parse_json(b'"' + data[:end] + b'"')
        except DecodeError:
            continue
        if isinstance(head, str) and text.startswith(head):
            return head
    return ""
