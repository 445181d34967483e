"""Looks into JSON whose shape is not ours to trust."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether *value* is a JSON array."""
    return isinstance(value, list)


def as_object(value: object) -> dict[str, Any]:
    """*value*, or an empty object when it is none."""
    return value if is_object(value) else {}


def as_text(value: object) -> str | None:
    """*value* when it is text that is not empty."""
    return value if isinstance(value, str) and value else None


def as_count(value: object) -> int | None:
    """*value* when it is a whole number that is not negative."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None
