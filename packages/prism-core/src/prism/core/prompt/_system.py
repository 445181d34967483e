"""The system prompt, from layers that know nothing of each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from prism.core._errors import RegistryError, UsageError

SystemMode: TypeAlias = Literal["append", "prepend", "replace", "disable"]
"""What a part does to the prompt that the layers before it made."""

SystemLevel: TypeAlias = Literal["package", "app", "user", "run"]
"""Whose layer it is, from the most stable and most general to the least."""

SYSTEM_LEVELS: Final[tuple[SystemLevel, ...]] = get_args(SystemLevel)
"""In the order in which layers are applied."""

_MODES: Final[tuple[SystemMode, ...]] = get_args(SystemMode)


class SystemPart(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of the system prompt, or a change to an earlier one.

    Attributes:
        text: What the model reads; none for `disable`. A blank text is left out.
        name: What later parts call it, or, for `replace` and `disable`, the part that is meant.
            Without a name, `replace` and `disable` mean the whole prompt so far.
        mode: Where it goes.

    Raises:
        UsageError: an unknown mode, an empty name, or a text with `disable`.
    """

    text: str = ""
    name: str | None = None
    mode: SystemMode = "append"

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise UsageError(
                f"A system part's mode is one of {', '.join(_MODES)}, not {self.mode!r}."
            )
        if self.name is not None and not self.name.strip():
            raise UsageError("A system part's name may be left out, but not empty.")
        if self.mode == "disable" and self.text:
            raise UsageError(
                f"A system part that disables {self.name or 'everything before it'} has no text; "
                "use the mode 'replace' to put another in its place."
            )


class SystemLayer(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that one source adds to the system prompt.

    Attributes:
        level: When it is applied: after every layer of the levels before.
        parts: Applied in this order.
        source: Who made it, for messages; default: the level.

    Raises:
        UsageError: an unknown level.
    """

    level: SystemLevel
    parts: Sequence[SystemPart]
    source: str | None = None

    def __post_init__(self) -> None:
        if self.level not in SYSTEM_LEVELS:
            raise UsageError(
                f"A system layer's level is one of {', '.join(SYSTEM_LEVELS)}, not {self.level!r}."
            )


def system_layer(
    level: SystemLevel,
    value: str | SystemPart | Iterable[str | SystemPart] | None,
    *,
    source: str | None = None,
) -> SystemLayer:
    """A layer from what hosts like to write.

    Args:
        level: Whose layer it is.
        value: A text, a part, or several of both; a text is appended. `None`: no part.
        source: Who made it, for messages.

    Raises:
        UsageError: *value* holds something else, or *level* is unknown.
    """
    items: Iterable[object]
    if value is None:
        items = ()
    elif isinstance(value, str | SystemPart):
        items = (value,)
    else:
        items = value
    return SystemLayer(level=level, parts=[_as_part(item) for item in items], source=source)


def _as_part(item: object) -> SystemPart:
    if isinstance(item, str):
        return SystemPart(text=item)
    if isinstance(item, SystemPart):
        return item
    raise UsageError(
        f"A system prompt is made of strings and SystemPart, not {type(item).__name__}."
    )


def merge_system_prompt(*layers: SystemLayer) -> list[SystemPart]:
    """Apply every layer, and give the parts that are left.

    Layers are applied by level (`package`, `app`, `user`, `run`), those of one level as given. What
    a layer prepends stands before all that was there, in the order in which the layer has it; a
    part that replaces another stands in its place.

    Args:
        layers: In any order of levels.

    Returns:
        Parts with text and mode `append`, in the order in which the model reads them. They can
        be the parts of another layer.

    Raises:
        RegistryError: `duplicate_name`, naming both sources; or `unknown_name`, listing the names
            that there are, when `replace` or `disable` names a part that is not there.
    """
    body: list[SystemPart] = []
    sources: dict[str, str] = {}
    for layer in sorted(layers, key=_level_order):
        front: list[SystemPart] = []
        for part in layer.parts:
            _apply(part, layer.source or layer.level, front, body, sources)
        body = front + body
    return [part for part in body if part.text.strip()]


def compose_system_prompt(*layers: SystemLayer) -> list[str]:
    """The texts of `merge_system_prompt`: what `PromptInput.system` holds.

    The same layers give the same strings, so the prompt can stand at the head of a cached prefix.

    Raises:
        RegistryError: as `merge_system_prompt`.
    """
    return [part.text for part in merge_system_prompt(*layers)]


def _level_order(layer: SystemLayer) -> int:
    return SYSTEM_LEVELS.index(layer.level)


def _apply(
    part: SystemPart,
    source: str,
    front: list[SystemPart],
    body: list[SystemPart],
    sources: dict[str, str],
) -> None:
    if part.mode in {"append", "prepend"}:
        if part.name is not None:
            if part.name in sources:
                raise RegistryError(
                    f"System part {part.name!r} of {source!r} is already there, from "
                    f"{sources[part.name]!r}. Give it another name, or the mode 'replace'.",
                    code="duplicate_name",
                    details={"name": part.name, "sources": [sources[part.name], source]},
                )
            sources[part.name] = source
        place = body if part.mode == "append" else front
        place.append(SystemPart(text=part.text, name=part.name))
        return
    if part.name is None:
        front.clear()
        body.clear()
        sources.clear()
        if part.mode == "replace":
            body.append(SystemPart(text=part.text))
        return
    if part.name not in sources:
        known = sorted(sources)
        raise RegistryError(
            f"{source!r} wants to {part.mode} the system part {part.name!r}, which is not there. "
            f"There are: {', '.join(known) or 'none'}.",
            details={"name": part.name, "known": known},
        )
    held_by, at = next(
        (parts, place)
        for parts in (front, body)
        for place, held in enumerate(parts)
        if held.name == part.name
    )
    if part.mode == "replace":
        held_by[at] = SystemPart(text=part.text, name=part.name)
        sources[part.name] = source
    else:
        del held_by[at]
        del sources[part.name]
