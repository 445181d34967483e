"""What the annotations of the wire's structs say, for the slow way of the codec."""

from __future__ import annotations

import types
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin

import msgspec


class Shape(NamedTuple):
    """What a type is made of: structs by tag, or one without a tag, or a list's items.

    Fields of a struct are listed by their JSON name, with the name in Python and the type.
    """

    by_tag: dict[str, dict[str, tuple[str, Any]]]
    tag_field: str | None
    single: dict[str, tuple[str, Any]] | None
    item: Any


@cache
def shape_of(kind: Any) -> Shape:
    """The shape of a type annotation; a host's own JSON has an empty one."""
    by_tag: dict[str, dict[str, tuple[str, Any]]] = {}
    tag_field = None
    single = item = None
    members = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    for member in members:
        if get_origin(member) is list:
            (item,) = get_args(member)
        elif isinstance(member, type) and issubclass(member, msgspec.Struct):
            fields: dict[str, tuple[str, Any]] = {
                field.encode_name: (field.name, field.type)
                for field in msgspec.structs.fields(member)
            }
            config = member.__struct_config__
            if config.tag_field is None:
                single = fields
            else:
                tag_field = config.tag_field
                fields[tag_field] = ("", str)
                by_tag[str(config.tag)] = fields
    return Shape(by_tag=by_tag, tag_field=tag_field, single=single, item=item)
