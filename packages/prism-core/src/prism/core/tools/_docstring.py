"""What a docstring says to a model."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final

_ARGUMENTS: Final = frozenset({"Args", "Arguments", "Parameters"})
_SECTION: Final = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Return|Yields|Raises)[ \t]*:[ \t]*$", re.MULTILINE
)
_ENTRY: Final = re.compile(r"^\*{0,2}(?P<name>\w+)[ \t]*(?:\([^)]*\))?[ \t]*:[ \t]*(?P<text>.*)$")


def description(function: Callable[..., Any]) -> str:
    """The docstring up to its first section on arguments, results or errors."""
    text = inspect.getdoc(function) or ""
    section = _SECTION.search(text)
    return (text if section is None else text[: section.start()]).strip()


def parameter_descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """What the `Args:` section says of each parameter, each on one line."""
    lines = iter((inspect.getdoc(function) or "").splitlines())
    for line in lines:
        if (section := _SECTION.match(line)) and section[1] in _ARGUMENTS:
            break
    found: dict[str, list[str]] = {}
    entry: list[str] = []
    depth: int | None = None
    for line in lines:
        text = line.strip()
        if not text:
            continue
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            break
        depth = indent if depth is None else depth
        if indent > depth:
            entry.append(text)
        elif match := _ENTRY.match(text):
            entry = found[match["name"]] = [match["text"]]
        else:
            entry = []
    return {name: joined for name, parts in found.items() if (joined := " ".join(parts).strip())}
