"""Every Python name in `docs/names.md` can be imported from the place that the page gives."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, Final

import pytest

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "names.md"

# The group of entry points is written like a package, and is none.
NOT_PYTHON: Final = frozenset({"prism.extensions"})


def python_names() -> list[str]:
    found = re.findall(r"`(prism(?:\.\w+)+)`", PAGE.read_text(encoding="utf-8"))
    return sorted({*found} - NOT_PYTHON)


def is_public(name: str) -> bool:
    """Whether the innermost package in *name* lists what follows, and has all the rest."""
    package, rest = innermost_package(name)
    if not rest:
        return True
    if rest[0] not in package.__all__:
        return False
    value: Any = package
    for part in rest:
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def innermost_package(name: str) -> tuple[Any, list[str]]:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            return importlib.import_module(".".join(parts[:end])), parts[end:]
        except ModuleNotFoundError:
            continue
    raise AssertionError(name)


@pytest.mark.parametrize("name", python_names())
def test_a_name_of_the_table_is_public_where_the_table_says(name: str) -> None:
    assert is_public(name)
