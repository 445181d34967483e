"""Checking a value against a JSON Schema; the checking itself is the `jsonschema` library's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from prism.core._errors import EncodeError, UsageError
from prism.core._wire import encode, parse_json

MAX_REPORTED: Final = 10
"""How many mismatches one error names; a model that fixes ten can ask again."""

_CACHED_SCHEMAS: Final = 256
_CACHED_SCHEMA_BYTES: Final = 64 * 1024
_SHOWN_CHARS: Final = 200
_ANNOTATIONS: Final = frozenset({"$schema", "$id", "title", "description", "$comment"})
_CHOICES: Final = frozenset({"anyOf", "oneOf"})


def check_schema_available(parameters: Mapping[str, Any] | None) -> None:
    """Check, without loading it, that the library is installed if *parameters* needs it.

    Schemas that say no more than "an object", and "an object without properties", need none.

    Raises:
        UsageError: `missing_extra`, naming `prism-core[schema]`.
    """
    if parameters is None or _trivial(parameters) is not None:
        return
    if find_spec("jsonschema") is None:
        raise _missing()


def check_schema(parameters: Mapping[str, Any]) -> None:
    """Check that *parameters* is a JSON Schema that can be used; loads the library.

    Raises:
        UsageError: `invalid_schema` with the place in the schema, or `missing_extra`.
    """
    if _trivial(parameters) is None:
        _validator(parameters)


def validate_against_schema(value: object, schema: Mapping[str, Any]) -> None:
    """Check *value*, made of dictionaries, lists and scalars, against *schema*.

    References to other documents are never fetched. The message names places, expectations and
    names of properties, and never a value.

    Raises:
        UsageError: `invalid_arguments` with the JSON path of each mismatch (at most
            `MAX_REPORTED`), and the same as `details["problems"]`; `invalid_schema` when the
            schema itself is wrong; `missing_extra` when it needs a library that is missing.
    """
    trivial = _trivial(schema)
    problems = (
        _validator_problems(value, schema) if trivial is None else _object_problems(value, trivial)
    )
    if not problems:
        return
    shown = problems[:MAX_REPORTED]
    more = len(problems) - len(shown)
    text = "; ".join(f"{path}: {problem}" for path, problem in shown)
    raise UsageError(
        f"Does not match the schema: {text}{f'; and {more} more' if more else ''}.",
        code="invalid_arguments",
        details={"problems": [{"path": path, "message": problem} for path, problem in shown]},
    )


def json_path(steps: Iterable[str | int]) -> str:
    """`$.a[0]` for the steps `"a"`, `0`; other names than plain ones are quoted."""
    parts = ["$"]
    for step in steps:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif step.isidentifier():
            parts.append(f".{step}")
        else:
            parts.append(f"[{_show(step)}]")
    return "".join(parts)


def _trivial(schema: Mapping[str, Any]) -> bool | None:
    """Whether a schema without constraints allows properties; `None` when it has constraints.

    An empty schema allows anything and is left to the library, like every other.
    """
    if schema.get("type") != "object":
        return None
    allowed: object = True
    for key, part in schema.items():
        if key == "additionalProperties":
            allowed = part
        elif key == "properties" or key == "required":
            if part:
                return None
        elif key != "type" and key not in _ANNOTATIONS:
            return None
    return allowed if isinstance(allowed, bool) else None


def _object_problems(value: object, allows_properties: bool) -> list[tuple[str, str]]:  # noqa: FBT001
    if not isinstance(value, dict):
        return [("$", f"must be object, not {_kind(value)}")]
    if value and not allows_properties:
        return [("$", f"has unknown properties {_names(value)}")]  # pyright: ignore[reportUnknownArgumentType]
    return []


def _validator_problems(value: object, schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    validator = _validator(schema)
    referencing = import_module("referencing.exceptions")
    try:
        errors = sorted(validator.iter_errors(value), key=_by_path)
    except referencing.Unresolvable as error:
        raise UsageError(
            f"The schema refers to {_show(str(error.ref))}, which it does not hold.",
            code="invalid_schema",
        ) from None
    except (RecursionError, OverflowError):
        return [("$", "nests too deep, or holds a number that is too large")]
    return [_describe(error) for error in errors]


def _by_path(error: Any) -> list[str]:
    return [f"{step:012d}" if isinstance(step, int) else step for step in error.absolute_path]


def _describe(error: Any) -> tuple[str, str]:
    """The place and the expectation; the library's own text would quote the value."""
    keyword, expected = error.validator, error.validator_value
    while keyword in _CHOICES and error.context:
        # The branch that got deepest is the one that was meant.
        error = max(error.context, key=lambda inner: (len(inner.absolute_path), _rank(inner)))
        keyword, expected = error.validator, error.validator_value
    path = json_path(error.absolute_path)
    if keyword == "type":
        kinds: list[str] = [expected] if isinstance(expected, str) else expected
        return path, f"must be {' or '.join(kinds)}, not {_kind(error.instance)}"
    if keyword == "required":
        missing = [name for name in expected if name not in error.instance]
        return path, f"lacks the properties {_names(missing)}"
    if keyword == "additionalProperties" and expected is False:
        return path, f"has unknown properties {_names(_unknown(error.instance, error.schema))}"
    if keyword is None:
        return path, "must not be there"
    if keyword == "enum":
        return path, f"must be one of {_show(expected)}"
    return path, f"does not satisfy {keyword} {_show(expected)}"


def _unknown(instance: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    known: Mapping[str, Any] = schema.get("properties", {})
    patterns: Iterable[str] = schema.get("patternProperties", ())
    return [
        name
        for name in instance
        if name not in known and not any(re.search(pattern, name) for pattern in patterns)
    ]


def _rank(error: Any) -> bool:
    """A wrong type says less than a wrong value of the right type."""
    return bool(error.validator != "type")


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    shown = ", ".join(_show(name) for name in listed[:MAX_REPORTED])
    return shown if len(listed) <= MAX_REPORTED else f"{shown}, …"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, Sequence) else type(value).__name__


def _show(part: object) -> str:
    """A part of the schema, or a property's name, as JSON; long parts of the schema are cut."""
    text = encode(part).decode()
    return text if isinstance(part, str) or len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _validator(schema: Mapping[str, Any]) -> Any:
    try:
        text = encode(schema)
    except EncodeError as error:
        raise UsageError(
            f"The schema is not JSON: {error.message}", code="invalid_schema"
        ) from None
    # The text is the key, so that a schema that is changed in place is compiled anew.
    return _cached(text) if len(text) <= _CACHED_SCHEMA_BYTES else _compile(text)


def _compile(text: bytes) -> Any:
    try:
        jsonschema = import_module("jsonschema")
    except ModuleNotFoundError:
        raise _missing() from None
    referencing = import_module("referencing")
    schema = parse_json(text)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UsageError(
            f"The JSON Schema is wrong at {json_path(error.absolute_path)}: it "
            f"{_describe(error)[1]}.",
            code="invalid_schema",
        ) from None
    # The library's own default registry would fetch `$ref`s over the network.
    return kind(schema, registry=referencing.Registry())


_cached = lru_cache(maxsize=_CACHED_SCHEMAS)(_compile)


def _missing() -> UsageError:
    return UsageError(
        "Checking arguments against a JSON Schema needs the `jsonschema` library: install "
        "`prism-core[schema]`, or give the tool or command a `validate` of its own.",
        code="missing_extra",
        details={"extra": "schema"},
    )
