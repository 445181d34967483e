"""What a JSON value is, for those who check types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether *value* is an object."""
    return isinstance(value, Mapping)


def is_series(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether *value* is a list or a tuple."""
    return isinstance(value, list | tuple)


def as_list(value: object) -> list[Any] | None:
    """*value* as a list, when it is one or a tuple."""
    return list(value) if is_series(value) else None


def as_ids(value: object) -> list[str] | None:
    """*value*, when it is a list of strings."""
    found = as_list(value)
    if found is None or any(not isinstance(one, str) for one in found):
        return None
    return found
