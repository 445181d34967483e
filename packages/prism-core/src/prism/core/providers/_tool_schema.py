"""A tool's JSON Schema as vendors take it who want an object at its root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prism.core.providers._json import is_object


def object_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """*parameters* whole, without `$schema`, and with a root that says that it is an object.

    A root that is only a reference into its own `$defs` or `definitions` is replaced by what it
    refers to; the definitions stay, because others may refer to them.
    """
    schema = {key: value for key, value in parameters.items() if key != "$schema"}
    reference = schema.get("$ref")
    target = _local(schema, reference) if isinstance(reference, str) else None
    if target is not None:
        del schema["$ref"]
        schema = {**target, **schema}
    if "type" not in schema:
        schema = {"type": "object", **schema}
    if schema == {"type": "object"}:
        schema["properties"] = {}
    return schema


def _local(schema: dict[str, Any], reference: str) -> dict[str, Any] | None:
    root, _, path = reference.partition("#/")
    if root or not path:
        return None
    place: Any = schema
    for step in path.split("/"):
        if not is_object(place):
            return None
        place = place.get(step.replace("~1", "/").replace("~0", "~"))
    # A reference that leads to another one is left to the vendor.
    return place if is_object(place) and "$ref" not in place else None
