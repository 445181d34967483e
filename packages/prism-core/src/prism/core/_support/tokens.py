"""Cheap estimates of size in tokens."""

from __future__ import annotations

from typing import Final

from prism.core._wire import (
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    encode,
)
from prism.core._wire.content import ContentBlock

CHARS_PER_TOKEN: Final = 4
"""The field's rule of thumb for English and code; in other scripts two characters make one."""

IMAGE_TOKENS: Final = 1_200
"""What a middle-sized image costs with the large vendors, as a round figure."""


def estimate_text_tokens(text: str) -> int:
    """Tokens of *text*: a quarter of its ASCII characters, and half of the others."""
    if text.isascii():
        return (len(text) + CHARS_PER_TOKEN - 1) // CHARS_PER_TOKEN
    ascii_chars = len(text.encode("ascii", "ignore"))
    other = len(text) - ascii_chars
    return (ascii_chars + CHARS_PER_TOKEN - 1) // CHARS_PER_TOKEN + (other + 1) // 2


def estimate_block_tokens(block: ContentBlock) -> int:
    """Tokens of one content block."""
    tokens = 0
    todo = [block]  # a result can hold results
    while todo:
        inner = todo.pop()
        if isinstance(inner, TextBlock | ThinkingBlock):
            tokens += estimate_text_tokens(inner.text)
        elif isinstance(inner, ImageBlock):
            tokens += IMAGE_TOKENS
        elif isinstance(inner, ToolCallBlock):
            arguments = inner.raw_arguments or encode(inner.arguments).decode()
            tokens += estimate_text_tokens(inner.name) + estimate_text_tokens(arguments)
        elif isinstance(inner, ToolResultBlock):
            todo.extend(inner.content or ())
            if inner.result is not None:
                tokens += estimate_text_tokens(encode(inner.result).decode())
            if inner.error is not None:
                tokens += estimate_text_tokens(inner.error.message)
        elif isinstance(inner, NativeBlock):
            tokens += estimate_text_tokens(inner.data)
        # An opaque block is never sent.
    return tokens


def estimate_message_tokens(message: Message) -> int:
    """Tokens of a message: its blocks, and four for the frame around them."""
    return 4 + sum(estimate_block_tokens(block) for block in message.content)
