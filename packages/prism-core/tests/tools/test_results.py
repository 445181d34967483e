"""What a tool returns, as a result; and results as blocks, messages and text."""

import datetime
import decimal
import enum
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, strategies as st

from prism.core._wire import (
    ErrorInfo,
    ImageBlock,
    OpaqueBlock,
    TextBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultBlock,
    encode,
)
from prism.core.tools import (
    Tool,
    ToolOutput,
    dispatch_tool_call,
    result_block,
    result_message,
    result_text,
)
from prism.core.tools._convert import make_result

CALL = ToolCallBlock(id="c1", name="t", arguments={})
IMAGE = ImageBlock(data="aGk=", mime_type="image/png")


async def returned(value: Any, **options: Any) -> ToolResult:
    redact = options.pop("redact", None)

    async def execute(arguments: dict[str, Any], context: object) -> Any:
        return value

    tool = Tool(name="t", execute=execute, **options)
    return await dispatch_tool_call(CALL, [tool], redact=redact)


class Color(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    when: datetime.date


class Row(msgspec.Struct, rename="camel"):
    row_id: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("hi", {"content": [TextBlock(text="hi")]}),
        ("", {"content": [TextBlock(text="")]}),
        (None, {}),
        (IMAGE, {"content": [IMAGE]}),
        (["see", IMAGE], {"content": [TextBlock(text="see"), IMAGE]}),
        ((TextBlock(text="a"),), {"content": [TextBlock(text="a")]}),
        ([], {"value": []}),
        (["a", "b"], {"value": ["a", "b"]}),
        (0, {"value": 0}),
        (False, {"value": False}),
        (2**70, {"value": 2**70}),
        ("\ud800", {"content": [TextBlock(text="\ud800")]}),
        ({"a": {1: [None]}}, {"value": {"a": {"1": [None]}}}),
        (Point(1, datetime.date(2024, 1, 2)), {"value": {"x": 1, "when": "2024-01-02"}}),
        ([Row(1), Color.RED], {"value": [{"rowId": 1}, "red"]}),
        (decimal.Decimal("1.10"), {"value": "1.10"}),
        (b"hi", {"value": "aGk="}),
        (
            ToolOutput(content=[IMAGE], value=Row(2), metadata={"k": 1}),
            {"content": [IMAGE], "value": {"rowId": 2}, "metadata": {"k": 1}},
        ),
        (
            ToolOutput(error=ErrorInfo(message="no", code="e")),
            {"error": ErrorInfo(message="no", code="e")},
        ),
        (ToolResult(tool_call_id="other", name="other", value=3), {"value": 3}),
        (
            [TextBlock(text="a"), OpaqueBlock(type="video", raw=b'{"type":"video"}')],
            {"content": [TextBlock(text="a"), OpaqueBlock(type="video", raw=b'{"type":"video"}')]},
        ),
    ],
)
async def test_each_kind_of_return_value_has_its_place(
    value: Any, expected: dict[str, Any]
) -> None:
    assert await returned(value) == ToolResult(tool_call_id="c1", name="t", **expected)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


NO_RESULTS: dict[str, Any] = {
    "nan": float("nan"),
    "inner infinity": {"a": [float("-inf"), None]},
    "object": object(),
    "inner object": {"a": object()},
    "key": {(1, 2): 3},
    "deep": nested(600),
    "very deep": nested(100_000),
    "endless": endless(),
    "long integer": 10**5000,
    "generator": (number for number in ()),
    "nan as value": ToolOutput(value=float("nan")),
    "nan as metadata": ToolOutput(metadata={"a": float("inf")}),
    "list as metadata": ToolOutput(metadata=[1]),  # pyright: ignore[reportArgumentType]
    "number as block": ToolOutput(content=[5]),  # pyright: ignore[reportArgumentType]
    "text as error": ToolOutput(error="no"),  # pyright: ignore[reportArgumentType]
    "number as text": TextBlock(text=5),  # pyright: ignore[reportArgumentType]
    "nan in a block": ToolCallBlock(id="a", name="b", arguments={"a": float("nan")}),
}


@pytest.mark.parametrize("kind", NO_RESULTS)
async def test_what_the_wire_cannot_hold_is_an_error_result(kind: str) -> None:
    result = await returned(NO_RESULTS[kind])
    assert result.error is not None
    assert result.error.code == "invalid_result"
    assert result.error.message.startswith("Tool 't' returned what cannot be a result: ")
    encode(result)


async def test_a_result_is_a_copy() -> None:
    value = {"a": [1]}
    result = await returned(value)
    value["a"].append(2)
    assert result.value == {"a": [1]}


async def test_long_text_is_cut_and_says_so() -> None:
    result = await returned("ä" * 1000, max_result_bytes=500)
    assert result.content is not None
    head, remark = result.content
    assert isinstance(head, TextBlock)
    assert isinstance(remark, TextBlock)
    assert set(head.text) == {"ä"}
    left_out = 2000 - 2 * len(head.text)
    assert remark.text == (
        f"[{left_out} bytes left out: this tool's results are limited to 500 bytes.]"
    )
    size = len(encode([TextBlock(text="ä" * 1000)]))
    assert result.metadata == {"truncated": True, "bytes": size}
    assert 400 < len(encode(result.content)) <= 500


async def test_a_long_value_becomes_its_text_cut() -> None:
    result = await returned(ToolOutput(value=["x" * 400], metadata={"k": 1}), max_result_bytes=300)
    assert result.value is None
    text = result_text(result_block(result))
    assert text.startswith('["xxxx')
    assert text.endswith("limited to 300 bytes.]")
    assert result.metadata == {"k": 1, "truncated": True, "bytes": 404}


async def test_a_block_that_is_too_long_makes_room_for_the_text_after_it() -> None:
    image = ImageBlock(data="A" * 2000)
    result = await returned([image, "caption"], max_result_bytes=500)
    assert result.content is not None
    caption, remark = result.content
    assert caption == TextBlock(text="caption")
    assert isinstance(remark, TextBlock)
    assert remark.text.startswith(f"[{len(encode(image)) + 1} bytes left out")


async def test_a_value_beside_content_is_dropped_when_there_is_no_room() -> None:
    output = ToolOutput(content=[TextBlock(text="short")], value="v" * 600, metadata={"m": "x"})
    result = await returned(output, max_result_bytes=500)
    assert (result.content, result.value) == ([TextBlock(text="short")], None)
    assert result.metadata == {"m": "x", "truncated": True, "bytes": 634}


async def test_metadata_and_errors_are_bounded_too() -> None:
    error = ErrorInfo(message="m" * 10_000, code="e", details={"d": "x" * 600})
    result = await returned(
        ToolOutput(value=1, metadata={"m": "x" * 600}, error=error), max_result_bytes=500
    )
    assert result.value == 1
    assert result.metadata == {"truncated": True, "bytes": 608}
    assert result.error is not None
    assert len(result.error.message.encode()) <= 4096
    assert (result.error.code, result.error.details) == ("e", None)


async def test_redaction_comes_before_the_cut() -> None:
    def redact(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("sesame", "[REDACTED]")
        if isinstance(value, list):
            return [redact(item) for item in cast("list[Any]", value)]
        return value

    for size in range(200, 240):
        for value in ("." * 90 + "sesame" * 40, ["." * 90 + "sesame" * 40]):
            result = await returned(value, max_result_bytes=size, redact=redact)
            assert "ses" not in result_text(result_block(result))
    assert (await returned("sesame", redact=redact)).content == [TextBlock(text="[REDACTED]")]
    assert (await returned(["sesame"], redact=redact)).value == ["[REDACTED]"]


@given(
    texts=st.lists(
        st.text(st.characters() | st.sampled_from('\0\n"\\\u2028\ud800\udc00😀é')), min_size=1
    ),
    max_bytes=st.integers(150, 600),
    repeat=st.sampled_from([1, 30]),
)
def test_no_cut_exceeds_the_limit_or_splits_a_character(
    texts: list[str], max_bytes: int, repeat: int
) -> None:
    blocks = [TextBlock(text=text * repeat) for text in texts]
    result = make_result(CALL, blocks, max_bytes=max_bytes)
    assert result.content is not None
    assert len(encode(result.content)) <= max_bytes
    if result.metadata is None:
        assert result.content == blocks
        return
    *kept, remark = result.content
    assert isinstance(remark, TextBlock)
    full = [block.text for block in blocks]
    seen = [block.text for block in kept if isinstance(block, TextBlock)]
    left = sum(len(text.encode("utf-8", "surrogatepass")) for text in full)
    left -= sum(len(text.encode("utf-8", "surrogatepass")) for text in seen)
    assert remark.text.startswith(f"[{left} bytes left out")
    position = 0
    for text in seen:
        while not full[position].startswith(text):
            position += 1


def test_a_result_becomes_a_message_with_one_block() -> None:
    result = ToolResult(tool_call_id="c1", name="t", value=3, metadata={"m": 1})
    message = result_message(result)
    assert message.role == "tool"
    assert message.content == [ToolResultBlock(tool_call_id="c1", name="t", result=3)]
    assert message.metadata == {"m": 1}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, ""),
        ({"content": [TextBlock(text="a"), IMAGE, TextBlock(text="b")], "result": 1}, "a\nb"),
        ({"result": {"a": [1, None]}}, '{"a":[1,null]}'),
        ({"result": "as it is"}, "as it is"),
        ({"result": False}, "false"),
        ({"error": ErrorInfo(message="gone", code="timeout")}, "Error: gone"),
        ({"error": ErrorInfo(message="gone", name="ToolError")}, "Error: gone"),
        ({"error": ErrorInfo(message="'x'", name="KeyError")}, "Error (KeyError): 'x'"),
        (
            {"error": ErrorInfo(message="exit 1"), "content": [TextBlock(text="log")]},
            "Error: exit 1\nlog",
        ),
    ],
)
def test_a_model_that_takes_text_reads_it_so(parts: dict[str, Any], text: str) -> None:
    assert result_text(ToolResultBlock(tool_call_id="c1", name="t", **parts)) == text
