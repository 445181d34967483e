"""Estimates of size in tokens."""

import pytest

from prism.core._support.tokens import (
    IMAGE_TOKENS,
    estimate_block_tokens,
    estimate_message_tokens,
    estimate_text_tokens,
)
from prism.core._wire import (
    ContentBlock,
    ErrorInfo,
    ImageBlock,
    Message,
    NativeBlock,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本語", 2), ("abcdé", 2), ("\ud800", 1)],
)
def test_four_ascii_characters_or_two_others_are_one_token(text: str, tokens: int):
    assert estimate_text_tokens(text) == tokens


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        (TextBlock(text="abcdefgh"), 2),
        (ThinkingBlock(text="abcd"), 1),
        (ImageBlock(url="https://pictures.invalid"), IMAGE_TOKENS),
        (ToolCallBlock(id="c", name="abcd", arguments={"a": 12}), 3),
        (ToolCallBlock(id="c", name="abcd", arguments={}, raw_arguments="{bad"), 2),
        (ToolResultBlock(tool_call_id="c", name="n"), 0),
        (ToolResultBlock(tool_call_id="c", name="n", result=[1, 2]), 2),
        (ToolResultBlock(tool_call_id="c", name="n", error=ErrorInfo(message="abcd")), 1),
        (ToolResultBlock(tool_call_id="c", name="n", content=[TextBlock(text="abcd")]), 1),
        (NativeBlock(api="a", kind="k", data="abcdefgh"), 2),
        (OpaqueBlock(type="x", raw=b'{"type":"x"}'), 0),
    ],
    ids=range(11),
)
def test_a_block_costs_what_of_it_is_sent(block: ContentBlock, tokens: int):
    assert estimate_block_tokens(block) == tokens
    assert estimate_message_tokens(Message(role="user", content=[block, block])) == 4 + 2 * tokens


def test_results_inside_results_are_counted_at_any_depth():
    block: ContentBlock = TextBlock(text="abcd")
    for _ in range(5_000):
        block = ToolResultBlock(tool_call_id="c", name="n", content=[block])
    assert estimate_block_tokens(block) == 1
