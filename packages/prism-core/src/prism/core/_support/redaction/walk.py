"""Which parts of a value are text to be redacted, and which are left as they are."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import msgspec

from prism.core._errors import EncodeError
from prism.core._wire import (
    CompactionEntry,
    ImageBlock,
    LabelEntry,
    ModelConfig,
    ModelRef,
    NativeBlock,
    OpaqueBlock,
    RawJson,
    Replay,
    RpcResponse,
    ToolCallBlock,
    ToolCallDelta,
    ToolExecutionBlocked,
    ToolExecutionProgress,
    ToolResult,
    ToolResultBlock,
    Usage,
    to_plain,
)

Redact: TypeAlias = Callable[[str], str]


class _Mode(Enum):
    TEXT = auto()  # every string and key
    NAME = auto()  # a tool's name: the model may invent one
    WIRE = auto()  # dictionaries shaped like ours: ids and opaque parts are found by key
    DATA = auto()  # an entry's data: the host's, unless its type is ours


_UNTOUCHED: Final = (NativeBlock, Replay, Usage, ModelRef)
_NAMED: Final = (
    ToolCallBlock,
    ToolCallDelta,
    ToolExecutionBlocked,
    ToolExecutionProgress,
    ToolResult,
    ToolResultBlock,
)
_KEPT_FIELDS: Final = frozenset({
    "id", "kind", "replay", "role", "signature", "status", "stop_reason", "timestamp", "type",
    "usage",
})  # fmt: skip
_KEPT_OF: Final[dict[type, frozenset[str]]] = {
    ImageBlock: frozenset({"data", "mime_type"}),
    ModelConfig: frozenset({"provider", "model", "capabilities", "limits", "cost"}),
}
_WIRE_FIELDS: Final = frozenset({"event", "follow_up", "memory", "steer"})
_KEPT_KEYS: Final = frozenset({
    "id", "kind", "mimeType", "replay", "role", "signature", "status", "stopReason", "timestamp",
    "type", "usage",
})  # fmt: skip
_HOST_KEYS: Final = frozenset({
    "arguments", "cause", "compat", "details", "metadata", "parameters", "progress", "result",
    "value",
})  # fmt: skip
_OUR_TYPES: Final = ("prism.", "om.")
_SCALARS: Final[frozenset[type]] = frozenset({int, float, bool, type(None), bytes})


@lru_cache(maxsize=256)
def _plan(kind: type[msgspec.Struct]) -> tuple[tuple[str, _Mode], ...]:
    """The fields of a struct that can hold text, and how each is read."""
    if issubclass(kind, _UNTOUCHED):
        return ()
    kept = _KEPT_FIELDS | _KEPT_OF.get(kind, frozenset())
    return tuple(
        (name, _mode(kind, name))
        for name in kind.__struct_fields__
        if name not in kept and not name.endswith(("_id", "_ids"))
    )


def _mode(kind: type[msgspec.Struct], name: str) -> _Mode:
    if name == "name" and issubclass(kind, _NAMED):
        return _Mode.NAME
    if name in _WIRE_FIELDS or (name == "result" and issubclass(kind, RpcResponse)):
        return _Mode.WIRE
    if name == "data":
        return _Mode.WIRE if issubclass(kind, CompactionEntry | LabelEntry) else _Mode.DATA
    return _Mode.TEXT


class Walker:
    """Applies a function to every text of a value, and copies only what changes.

    Args:
        text: Redacts text.
        name: Redacts a tool's name, so that it stays one.
    """

    __slots__ = ("_handlers", "_name", "_text")

    def __init__(self, text: Redact, name: Redact) -> None:
        self._text = text
        self._name = name
        self._handlers: dict[type, Callable[[Any], Any]] = {
            str: text,
            dict: self._dict,
            list: self._list,
            **dict.fromkeys(_SCALARS, _same),
        }

    # A value may nest as deep as the codec allows, so that each level must take one frame only:
    # the methods find each other by type, and loops stand where comprehensions would read better.

    def value(self, value: object) -> Any:
        """*value* with every string and key redacted; the same object when nothing changed."""
        return self._handlers.get(type(value), self._object)(value)

    def _list(self, value: list[object]) -> list[object]:
        changed: list[object] | None = None
        for position, item in enumerate(value):
            new = self._handlers.get(type(item), self._object)(item)
            if new is not item:
                changed = list(value) if changed is None else changed
                changed[position] = new
        return value if changed is None else changed

    def _dict(self, value: dict[object, object]) -> dict[Any, Any]:
        changes = False
        new_items: list[tuple[Any, Any]] = []
        for key, item in value.items():
            new_key = self._text(key) if type(key) is str else key
            new = self._handlers.get(type(item), self._object)(item)
            changes = changes or new is not item or new_key is not key
            new_items.append((new_key, new))
        return _rebuild(new_items) if changes else value

    def _struct(self, value: msgspec.Struct) -> msgspec.Struct:
        changes: dict[str, Any] | None = None
        for name, mode in _plan(type(value)):
            item = getattr(value, name)
            if item is None:
                continue
            if mode is _Mode.TEXT:
                new = self.value(item)
            elif mode is _Mode.NAME:
                new = self._name(item)
            elif mode is _Mode.WIRE or _is_ours(item):
                new = self.wire(item)
            else:
                new = self.value(item)
            if new is not item:
                changes = {} if changes is None else changes
                changes[name] = new
        return value if changes is None else msgspec.structs.replace(value, **changes)

    def wire(self, value: object) -> Any:
        """The same for dictionaries shaped like ours: ids and opaque parts are not touched."""
        if type(value) is list:
            items = cast("list[object]", value)
            changed: list[object] | None = None
            for position, item in enumerate(items):
                new = self.wire(item)
                if new is not item:
                    changed = list(items) if changed is None else changed
                    changed[position] = new
            return items if changed is None else changed
        if type(value) is not dict:
            return self.value(value)
        fields = cast("dict[object, object]", value)
        block = fields.get("type")
        if block == "native":
            return fields
        changes = False
        new_items: list[tuple[Any, Any]] = []
        for key, item in fields.items():
            if _is_kept(key, item) or (block == "image" and key == "data"):
                new_items.append((key, item))
                continue
            if key in _HOST_KEYS:
                new = self.value(item)
            elif key == "name" and type(item) is str:
                new = self._name(item)
            else:
                new = self.wire(item)
            new_key = self._text(key) if type(key) is str else key
            changes = changes or new is not item or new_key is not key
            new_items.append((new_key, new))
        return _rebuild(new_items) if changes else fields

    def _object(self, value: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if isinstance(value, RawJson | OpaqueBlock):
            return value
        if type(value) is tuple:
            whole = cast("tuple[object, ...]", value)
            items = list(whole)
            new_items = self._list(items)
            return whole if new_items is items else tuple(new_items)
        # The encoder knows more types than JSON has, such as dataclasses and sets.
        try:
            plain = to_plain(value)
        except (EncodeError, TypeError):
            return value
        new = self.value(plain)
        return value if new is plain else new


def _same(value: Any) -> Any:
    return value


def _rebuild(items: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """A dictionary of *items*; keys that became equal are told apart, so that no value is lost."""
    result: dict[Any, Any] = {}
    for key, item in items:
        unique, number = key, 1
        while unique in result:
            number += 1
            unique = f"{key}~{number}"
        result[unique] = item
    return result


def _is_kept(key: object, item: object) -> bool:
    """Whether *key* names an id, a closed set of words or an opaque part."""
    if type(key) is not str:
        return False
    if key in _KEPT_KEYS:
        return True
    if key.endswith(("Id", "Ids")):
        return type(item) is str or (
            type(item) is list and all(type(part) is str for part in cast("list[object]", item))
        )
    return False


def _is_ours(data: Any) -> bool:
    """Whether an entry's data is a record of Prism's, whose ids must stay."""
    kind = cast("dict[str, Any]", data).get("type") if type(data) is dict else None
    return isinstance(kind, str) and (kind == "leaf" or kind.startswith(_OUR_TYPES))
