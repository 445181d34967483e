"""Texts with placeholders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from prism.core._errors import UsageError

_PLACEHOLDER: Final = re.compile(
    r"\\\{\{"  # a literal pair of braces
    r"|\{\{(?:[ \t]*(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)[ \t]*\}\})?"
)


def render_prompt_template(template: str, values: Mapping[str, str | int | float]) -> str:
    r"""Replace each `{{name}}` by its value.

    A name is letters, digits, `_`, `-` and `.`, and is looked up as it stands: a `.` reaches into
    nothing. Values are put in as they are; a placeholder inside one stays text. `\{{` gives `{{`.

    Args:
        template: The text.
        values: Strings and numbers; one that the template does not use is fine.

    Raises:
        UsageError: `unknown_placeholder`, naming every missing one and those that have a value;
            `invalid_template`, with the line of a `{{` that begins no placeholder;
            `invalid_params`, when a value that is used is neither a string nor a number.
    """
    missing: dict[str, None] = {}

    def fill(match: re.Match[str]) -> str:
        found = match.group()
        if found.startswith("\\"):
            return "{{"
        name = match["name"]
        if name is None:
            line = template.count("\n", 0, match.start()) + 1
            raise UsageError(
                f"'{{{{' in line {line} of the template begins no placeholder such as "
                "'{{name}}'. Write '\\{{' for the braces themselves.",
                code="invalid_template",
                details={"line": line},
            )
        if name not in values:
            missing[name] = None
            return found
        return _shown(name, values[name])

    text = _PLACEHOLDER.sub(fill, template)
    if missing:
        known = sorted(values)
        raise UsageError(
            f"The template asks for {', '.join(map(repr, missing))}; there are values for: "
            f"{', '.join(known) or 'none'}.",
            code="unknown_placeholder",
            details={"missing": list(missing), "known": known},
        )
    return text


def _shown(name: str, value: object) -> str:
    # A boolean or None in a prompt is a slip: the model would read Python's word for it.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(
            f"The value of {name!r} must be a string or a number, not {type(value).__name__}.",
            details={"name": name},
        )
    return str(value)
