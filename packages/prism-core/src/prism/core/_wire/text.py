"""JSON as text: how deep it nests, whether it is one line, and its plain reading."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import accumulate
from typing import Any, Final, NoReturn, TypeAlias, TypeGuard

import msgspec

from prism.core._errors import DecodeError, EncodeError

JsonText: TypeAlias = bytes | bytearray | memoryview | str
"""What every reader of the wire takes."""

MAX_DEPTH: Final = 512
"""Deepest nesting of arrays and objects that is read or written."""

SHALLOW_BYTES: Final = 2 * MAX_DEPTH
"""A JSON text up to this size cannot be well formed and nest deeper than `MAX_DEPTH`."""

_SQUARED: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS: Final = {ord("["): 1, ord("]"): -1}
_PASSES: Final = 4
_NON_ASCII: Final = re.compile(r"[^\x00-\x7f]")

_decode_any = msgspec.json.Decoder().decode


def too_deep(kind: type[DecodeError | EncodeError]) -> DecodeError | EncodeError:
    """The error for JSON that nests deeper than `MAX_DEPTH`."""
    return kind(
        f"JSON nests deeper than {MAX_DEPTH} levels.",
        code="too_deep",
        details={"limit": MAX_DEPTH},
    )


def to_bytes(data: JsonText) -> bytes:
    r"""*data* as UTF-8; lone surrogates, which UTF-8 has not, become `\\u` escapes."""
    if isinstance(data, bytes):
        return data
    # Raw surrogates can stand only inside JSON strings, where the escape means the same.
    return data.encode("utf-8", "backslashreplace") if isinstance(data, str) else bytes(data)


def depth_exceeds(data: JsonText, limit: int = MAX_DEPTH) -> bool:
    """Whether the JSON text nests deeper than *limit* arrays and objects.

    Linear in the size of *data*, also for hostile input. A malformed text may get either answer.
    """
    raw = to_bytes(data)
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False
    # Without escapes every quote is a delimiter, so each second piece lies inside a string.
    raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    raw = raw.translate(_SQUARED, _NOT_BRACKETS).replace(b'""', b"")
    brackets = b"".join(raw.split(b'"')[::2])
    # Removing all leaves of a tree makes it lower by one; flat data is gone after a few passes.
    for _ in range(min(_PASSES, limit)):
        brackets = brackets.replace(b"[]", b"")
        limit -= 1
    return any(map(limit.__lt__, accumulate(map(_STEPS.__getitem__, brackets))))


def is_dict(value: object) -> TypeGuard[dict[Any, Any]]:
    """Whether *value* is a dictionary, which checkers then take for one of anything."""
    return isinstance(value, dict)


def is_series(value: object) -> TypeGuard[Collection[Any]]:
    """Whether *value* becomes a JSON array."""
    return isinstance(value, list | tuple | set | frozenset)


def tree_exceeds(tree: object, limit: int = MAX_DEPTH) -> bool:
    """Whether dictionaries and lists nest deeper than *limit*, also when they hold themselves."""
    level: list[Any] = [tree]
    for _ in range(limit + 1):
        below: dict[int, Iterable[Any]] = {}
        for item in level:
            name = id(item)  # what stands at one depth twice is followed once
            items: Iterable[Any]
            if is_dict(item):
                items = item.values()
            elif is_series(item):
                items = item
            else:
                continue
            below[name] = items
        if not below:
            return False
        level = [item for items in below.values() for item in items]
    return True


def check_text(data: JsonText) -> None:
    """Refuse what the decoder would let pass in fields that it skips.

    Raises:
        DecodeError: `too_deep`, or `parse_error` for bytes that are not UTF-8.
    """
    if len(data) > SHALLOW_BYTES and depth_exceeds(data):
        raise too_deep(DecodeError)
    if isinstance(data, str):
        return
    try:
        to_bytes(data).decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"Not valid UTF-8 at byte {error.start}.", code="parse_error") from None


def parse_json(data: JsonText) -> Any:
    """Read any JSON text as dictionaries, lists and scalars.

    Lone surrogates survive, integers are exact, and of a repeated key the last value wins.

    Raises:
        DecodeError: `too_deep`, or `parse_error` for what is not JSON, `NaN` and `Infinity`
            included, a number that no float holds, and integers of more than 4,300 digits.
    """
    check_text(data)
    try:
        return _decode_any(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return parse_slowly(data)


def parse_slowly(data: JsonText) -> Any:
    """Read a JSON text that msgspec refuses, or say what is wrong with it."""
    import json  # few programs ever come here

    text = data if isinstance(data, str) else to_bytes(data).decode()
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite_float)
    except DecodeError:
        raise
    except json.JSONDecodeError as error:
        raise DecodeError(
            f"Not valid JSON: {error.msg} (line {error.lineno}, column {error.colno}).",
            code="parse_error",
        ) from None
    except RecursionError:
        raise too_deep(DecodeError) from None
    except ValueError:
        raise DecodeError(
            "Not usable JSON: an integer has more than 4,300 digits.", code="parse_error"
        ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise DecodeError(f"Not valid JSON: {name} is no JSON number.", code="parse_error")


def _finite_float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise DecodeError(
            f"Not usable JSON: the number {text[:40]} is out of range.", code="parse_error"
        )
    return number


def one_line(raw: bytes) -> bytes:
    """The same JSON text without a raw line feed or carriage return.

    Raises:
        DecodeError: *raw* holds one and is not JSON.
    """
    if b"\n" not in raw and b"\r" not in raw:
        return raw
    raw = raw.strip(b" \t\r\n")
    if b"\n" not in raw and b"\r" not in raw:
        return raw
    import json

    check_text(raw)
    try:
        return msgspec.json.format(raw, indent=-1)
    except (msgspec.DecodeError, RecursionError):  # a lone surrogate, or really wrong
        tree = parse_slowly(raw)
    try:
        return json.dumps(tree, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise too_deep(DecodeError) from None


def escape_ascii(data: bytes) -> bytes:
    r"""Replace each non-ASCII character of a JSON text by its `\\u` escape.

    They can stand only inside strings, where the escape means the same.
    """
    return _NON_ASCII.sub(_escape, data.decode()).encode("ascii")


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 | code >> 10:04x}\\u{0xDC00 | code & 0x3FF:04x}"
