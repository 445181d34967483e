"""The one codec: structs to JSON and back, with a fall-back where msgspec refuses.

msgspec does nearly all of the work. It refuses lone surrogates in both directions, and a union
that holds a block of unknown type; those documents go the slow way, through plain dictionaries.
Both ways give the same: nesting above `MAX_DEPTH` is refused, and `NaN` and `Infinity` when they
are read; integers are exact, the last value of a repeated key wins, unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import msgspec

from prism.core._errors import DecodeError, EncodeError
from prism.core._wire.shapes import shape_of
from prism.core._wire.text import (
    MAX_DEPTH,
    SHALLOW_BYTES,
    JsonText,
    check_text,
    depth_exceeds,
    escape_ascii,
    is_dict,
    is_series,
    one_line,
    parse_json,
    too_deep,
    tree_exceeds,
)

__all__ = [
    "MAX_DEPTH", "Codec", "JsonText", "OpaqueBlock", "RawJson", "WireStruct", "depth_exceeds",
    "encode", "encode_ascii", "escape_ascii", "has_non_finite", "parse_json", "to_plain",
]  # fmt: skip

T = TypeVar("T")


class WireStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of every shape that crosses a process, a file or a network."""


class RawJson:
    """Base of values that are kept as JSON text and written back as they came.

    Attributes:
        raw: One JSON value on one line; line breaks between its tokens are taken out.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw: bytes = one_line(raw)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RawJson) or type(other) is not type(self):
            return NotImplemented
        return self.raw == other.raw or bool(parse_json(self.raw) == parse_json(other.raw))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]


class OpaqueBlock(RawJson):
    """A content block of a type that this version does not know.

    Attributes:
        type: The block's `type`.
        raw: Its JSON text.
    """

    __slots__ = ("type",)

    def __init__(self, *, type: str, raw: bytes) -> None:  # noqa: A002
        super().__init__(raw)
        self.type: str = type

    def __repr__(self) -> str:
        return f"OpaqueBlock(type={self.type!r})"


def _to_raw(value: object) -> msgspec.Raw:
    if isinstance(value, RawJson):
        return msgspec.Raw(value.raw)
    raise _unwritable(value)


def _to_builtins(value: object) -> Any:
    if isinstance(value, RawJson):
        return parse_json(value.raw)
    raise _unwritable(value)


def _unwritable(value: object) -> EncodeError:
    return EncodeError(f"A value of type {type(value).__name__} cannot be written as JSON.")


_encode = msgspec.json.Encoder(enc_hook=_to_raw).encode


def encode(value: object) -> bytes:
    """Write *value* as one line of UTF-8 JSON without a line feed.

    NaN and Infinity become `null`, as msgspec writes them: whoever takes values from a host asks
    `has_non_finite` first.

    Raises:
        EncodeError: `too_deep`, or `invalid_value` for a type that JSON has not, and for integers
            of more than 4,300 digits.
    """
    try:
        data = _encode(value)
    except EncodeError:
        raise
    except (ValueError, OverflowError):  # a lone surrogate, or an integer that is too long
        data = _encode_slowly(value)
    except RecursionError:
        raise too_deep(EncodeError) from None
    except TypeError as error:
        raise EncodeError(f"This value cannot be written as JSON: {error}.") from None
    if len(data) > SHALLOW_BYTES and depth_exceeds(data):
        raise too_deep(EncodeError)
    return data


def encode_ascii(value: object) -> bytes:
    r"""Write *value* like `encode`, with every non-ASCII character as a `\\u` escape.

    The line stays one for readers that also split at U+0085 or U+2028.
    """
    data = encode(value)
    return data if data.isascii() else escape_ascii(data)


def to_plain(value: object) -> Any:
    """*value* as dictionaries, lists and scalars, named as on the wire.

    Raises:
        EncodeError: *value* holds a type that JSON has not, or itself.
    """
    try:
        return msgspec.to_builtins(value, enc_hook=_to_builtins, str_keys=True)
    except RecursionError:
        raise too_deep(EncodeError) from None
    except TypeError as error:
        raise EncodeError(f"This value cannot be written as JSON: {error}.") from None


def _encode_slowly(value: object) -> bytes:
    import json  # few programs ever come here

    plain = to_plain(value)
    if has_non_finite(plain):
        raise EncodeError("NaN and Infinity cannot be written as JSON.")
    try:
        text = json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise too_deep(EncodeError) from None
    except ValueError:
        raise EncodeError("An integer of more than 4,300 digits cannot be written.") from None
    return text.encode("ascii")


_SCALARS: Final = frozenset({str, int, bool, type(None), bytes, msgspec.Raw})


def has_non_finite(value: object) -> bool:
    """Whether *value* holds NaN or an infinity anywhere, also as a key.

    Looks at each container once, so it ends for values that hold themselves, and uses no
    recursion. What cannot be written as JSON at all does not count.
    """
    stack: list[Any] = [value]
    seen: set[int] = set()
    made: list[Any] = []  # kept alive, so that no id is given twice
    while stack:
        item = stack.pop()
        if item.__class__ in _SCALARS:
            continue
        if isinstance(item, float):
            if not isfinite(item):
                return True
            continue
        if id(item) in seen:
            continue
        seen.add(id(item))
        if is_dict(item):
            stack.extend(item)
            stack.extend(item.values())
        elif is_series(item):
            stack.extend(item)
        elif isinstance(item, msgspec.Struct):
            stack.extend(msgspec.structs.astuple(item))
        elif not isinstance(item, RawJson):
            made.append(_simpler(item))
            stack.append(made[-1])
    return False


def _simpler(value: object) -> Any:
    """A dataclass, an enum and the like as msgspec writes them; `None` for what it cannot."""
    try:
        return msgspec.to_builtins(value, enc_hook=lambda _: None, str_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None


REFUSALS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What msgspec raises when a JSON text is wrong, or only too much for it."""

_STAND_IN: Final = {"type": "text", "text": ""}

_Path: TypeAlias = tuple[str | int, ...]


class Codec(Generic[T]):
    """Reads one type from JSON; built once, at module level.

    Args:
        kind: What `decode` returns: a struct, a tagged union of structs, or a list of these.
        blocks: The union of the known content blocks; where *kind* has one and the JSON has a
            block of another `type`, the result has an `OpaqueBlock`.
    """

    __slots__ = ("_blocks", "_kind", "fast")

    def __init__(self, kind: Any, *, blocks: Any = None) -> None:
        self._kind = kind
        self._blocks = blocks
        decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self.fast: Callable[[bytes | bytearray | str], T] = decoder.decode
        """msgspec alone, for callers that check the text and fall back themselves."""

    def decode(self, data: JsonText) -> T:
        """Read *data*.

        Raises:
            DecodeError: `parse_error`, `too_deep`, or `invalid_value` with the JSON path, which
                is also in `details["path"]`.
        """
        try:
            if isinstance(data, memoryview):
                data = bytes(data)
            if len(data) > SHALLOW_BYTES or not data.isascii():
                check_text(data)
            return self.fast(data)
        except REFUSALS:
            return self.decode_slowly(data)

    def decode_slowly(self, data: JsonText) -> T:
        """Read *data* when msgspec refused it.

        It holds a lone surrogate or an unknown block, or it is really wrong.

        Raises:
            DecodeError: as `decode`.
        """
        try:
            return self._convert(parse_json(data))
        except RecursionError:
            raise too_deep(DecodeError) from None

    def convert(self, tree: object) -> T:
        """Build the type from dictionaries and lists, as `parse_json` gives them.

        Raises:
            DecodeError: `too_deep`, or `invalid_value` with the JSON path.
        """
        if tree_exceeds(tree):
            raise too_deep(DecodeError)
        try:
            return self._convert(tree)
        except RecursionError:
            raise too_deep(DecodeError) from None

    def _convert(self, tree: object) -> T:
        tree, opaque = self._prepare(tree)
        try:
            value: T = msgspec.convert(tree, type=self._kind)
        except msgspec.ValidationError as error:
            raise _invalid(str(error)) from None
        except UnicodeEncodeError:
            raise _invalid("A lone surrogate stands where no text can be") from None
        for path, block in opaque:
            value = _put(value, path, block)
        return value

    def _prepare(self, tree: object) -> tuple[object, list[tuple[_Path, OpaqueBlock]]]:
        """Follow the types into *tree*, on a copy; what is no struct's is the host's, untouched.

        Unknown fields go, because msgspec stumbles over a lone surrogate in their names. Blocks of
        unknown type get a stand-in and are listed with their places in the result.
        """
        holder: list[Any] = [tree]
        opaque: list[tuple[_Path, OpaqueBlock]] = []
        todo: list[tuple[Any, Any, Any, _Path]] = [(holder, 0, self._kind, ())]
        while todo:
            inside, key, kind, path = todo.pop()
            value = inside[key]
            shape = shape_of(kind)
            if is_series(value):
                if shape.item is not None:
                    items: list[Any] = list(value)
                    inside[key] = items
                    todo.extend((items, i, shape.item, (*path, i)) for i in range(len(items)))
            elif is_dict(value):
                tag = value.get(shape.tag_field)
                known = shape.by_tag.get(tag) if isinstance(tag, str) else None
                if known is None:
                    known = shape.single
                if known is not None:
                    kept = {name: value[name] for name in value if name in known}
                    inside[key] = kept
                    todo.extend(
                        (kept, name, known[name][1], (*path, known[name][0]))
                        for name, item in kept.items()
                        if is_dict(item) or is_series(item)
                    )
                elif isinstance(tag, str) and kind == self._blocks:
                    inside[key] = _STAND_IN
                    opaque.append((path, OpaqueBlock(type=tag, raw=_encode_block(value, path))))
            elif isinstance(value, OpaqueBlock) and kind == self._blocks:
                inside[key] = _STAND_IN
                opaque.append((path, value))
        return holder[0], opaque


def _encode_block(block: dict[Any, Any], path: _Path) -> bytes:
    try:
        return encode(block)
    except EncodeError as error:
        if error.code == "too_deep":
            raise too_deep(DecodeError) from None
        raise _invalid(f"{error.message.rstrip('.')} - at `{_text(path)}`") from None


def _text(path: _Path) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _put(value: Any, path: _Path, block: OpaqueBlock) -> Any:
    """Put *block* where its stand-in ended up."""
    if not path:
        return block
    inside = value
    for step in path[:-1]:
        inside = inside[step] if isinstance(step, int) else getattr(inside, step)
    last = path[-1]
    if isinstance(last, int):
        inside[last] = block
    else:
        msgspec.structs.force_setattr(inside, last, block)
    return value


_MAX_REASON_CHARS: Final = 300


def _invalid(text: str) -> DecodeError:
    """Msgspec's words, bounded, with the path also where it is the root."""
    reason, found, path = text.rpartition(" - at `")
    if not found:
        reason, path = text, "$`"
    if len(reason) > _MAX_REASON_CHARS:
        reason = reason[:_MAX_REASON_CHARS] + "…"
    # The path of a key reads "`key` in `$.counts`".
    return DecodeError(
        f"{reason} - at `{path}.", details={"path": path.rstrip("`").rpartition("`")[2]}
    )
