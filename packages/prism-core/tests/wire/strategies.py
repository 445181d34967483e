"""Values of every wire shape, with the texts and numbers that break careless codecs."""

import types
from functools import cache
from typing import Any, Final, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from prism.core._wire import (
    BLOCK_TYPES,
    ContentBlock,
    ImageBlock,
    Message,
    OpaqueBlock,
    ToolResultBlock,
    encode,
)


def joined(text: str) -> str:
    """Two halves of a character as the one that every JSON reader makes of them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def nested(levels: int) -> Any:
    """Lists and objects in turns, *levels* deep."""
    value: Any = "deepest"
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


HOSTILE: Final = (
    "\0", "\ud800", "\udfff tail", "\U0001f600", "\u2028\u2029\x85", '"\\/\b\f\n\r\t', "\x7f\x1c",
    "[{[{", "]}", "NaN", "null", "e\u0301", "\uffff", "\ufeff", "$.path`",
)  # fmt: skip

texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(), max_size=12),
    st.text(st.characters(exclude_categories=()), max_size=12).map(joined),
)
integers = st.one_of(
    st.integers(), st.sampled_from((2**63, 2**64, 2**70, -(2**70), 10**4299, -(10**4299)))
)
floats = st.floats(allow_nan=False, allow_infinity=False)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), integers, floats, texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(texts, inner, max_size=3),
        st.just(nested(60)),
    ),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
block_lookalikes = st.fixed_dictionaries(
    {
        "type": st.sampled_from(("text", "tool_result", "unheard_of")),
        "content": st.lists(st.fixed_dictionaries({"type": st.just("unheard_of")}), max_size=2),
    }
)


@st.composite
def opaque_blocks(draw: st.DrawFn) -> OpaqueBlock:
    kind = draw(texts.filter(lambda text: text not in BLOCK_TYPES))
    return OpaqueBlock(type=kind, raw=encode({**draw(objects), "type": kind}))


@st.composite
def messages(draw: st.DrawFn, depth: int) -> Message:
    fields = {
        field.name: draw(of(field.type, depth))
        for field in msgspec.structs.fields(Message)
        if field.name not in {"role", "content"}
    }
    if draw(st.booleans()):
        content = draw(st.lists(of(ContentBlock, depth), max_size=3))
        return Message(role=draw(texts.filter(lambda t: t != "tool")), content=content, **fields)
    return Message(role="tool", content=[draw(of(ToolResultBlock, depth))], **fields)


def structs(kind: type[Any], depth: int) -> st.SearchStrategy[Any]:
    if kind is Message:
        return messages(depth)
    if kind is ImageBlock:
        return st.one_of(
            st.builds(ImageBlock, mime_type=texts | st.none(), data=texts),
            st.builds(ImageBlock, mime_type=texts | st.none(), url=texts),
        )
    return st.builds(
        kind, **{field.name: of(field.type, depth) for field in msgspec.structs.fields(kind)}
    )


@cache
def of(kind: Any, depth: int = 2) -> st.SearchStrategy[Any]:
    """Values of a field's type; below *depth* levels of structs the lists of blocks are empty."""
    if kind == ContentBlock:
        known = [structs(member, depth - 1) for member in get_args(ContentBlock)]
        return st.one_of(*known, opaque_blocks())
    if isinstance(kind, types.UnionType):
        return st.one_of(*(of(member, depth) for member in get_args(kind)))
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        return st.lists(of(item, depth), max_size=3) if depth > 0 else st.just([])
    if get_origin(kind) is dict:
        _, item = get_args(kind)
        if item is Any:
            return st.one_of(
                objects, st.fixed_dictionaries({"content": st.lists(block_lookalikes)})
            )
        return st.dictionaries(texts, of(item, depth), max_size=3)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind, depth)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: texts,
        int: integers,
        float: floats,
        bool: st.booleans(),
        types.NoneType: st.none(),
        Any: st.one_of(json_values, block_lookalikes),
    }
    return simple[kind]
