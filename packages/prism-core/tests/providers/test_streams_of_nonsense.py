"""Whatever stands in a vendor's events, an answer ends once, raises nothing and counts right."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from hypothesis import given, strategies as st

from prism.core._wire import Usage, encode
from prism.core.providers import UsageUpdate
from prism.core.providers._json import is_list, is_object
from prism.core.testing import ScriptedAnswer, ScriptedCall

from .vendors import ADAPTERS
from .wire import Answer, MemoryTransport, collect, read

ANSWER = ScriptedAnswer(
    thinking=("hm, ", "so"),
    text=("a😀", "b"),
    calls=(
        ScriptedCall(id="c1", name="add", arguments=('{"a":', "1}")),
        ScriptedCall(id="c2", name="add", arguments=("{}",)),
    ),
    stop="tool_use",
    usage=Usage(input_tokens=3, output_tokens=4),
)

# What does stand in such places, and what does not.
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 2),
        st.sampled_from([10**30, -1.5, 1e308]),
        st.text(max_size=3),
        st.sampled_from(["\ud83d", "\0", "tool_use", "text", "error", "response.completed", "[1]"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["type", "id", "text", "index", "name", "usage", "error", "message"]),
            inner,
            max_size=2,
        ),
    ),
    max_leaves=4,
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree: what holds it, and its key."""
    keys: list[Any] = []
    if is_object(value):
        keys += value
    elif is_list(value):
        keys += range(len(value))
    for key in keys:
        yield value, key
        yield from places(value[key])


@st.composite
def streams(draw: st.DrawFn, name: str) -> bytes:
    """A good answer in which some values are others, some gone, and some events twice."""
    content, end, _ = ADAPTERS[name][1](ANSWER)
    events: list[Any] = copy.deepcopy([*content, *end])
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(events))
        holder, key = found[draw(st.integers(0, len(found) - 1))]
        change = draw(st.sampled_from(["value", "gone", "twice"]))
        if change == "value":
            holder[key] = draw(VALUES)
        elif change == "gone":
            del holder[key]
        elif is_list(holder):
            holder.append(copy.deepcopy(holder[key]))
        if not events:
            break
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)


@pytest.mark.parametrize("name", ADAPTERS)
@given(data=st.data())
def test_nonsense_in_an_answer_is_an_answer_or_one_failure(name: str, data: st.DataObject) -> None:
    stream = data.draw(streams(name))
    make = ADAPTERS[name][0]

    async def answered() -> None:
        transport = MemoryTransport(Answer([stream]))
        events = await collect(make(base_url="https://vendor.test/v1", transport=transport))
        read(events)
        for event in events:
            encode(event)  # whatever came can be stored
            if isinstance(event, UsageUpdate):
                check_sum(event.usage)

    anyio.run(answered)


def check_sum(usage: Usage) -> None:
    parts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    )
    counted = [part for part in parts if part is not None]
    assert all(part >= 0 for part in counted)
    assert usage.total_tokens == (sum(counted) if counted else None)
