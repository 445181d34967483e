"""Which content blocks a host may give the model."""

from __future__ import annotations

from typing import Final, TypeAlias, TypeGuard

from prism.core._wire import ImageBlock, NativeBlock, OpaqueBlock, TextBlock

GivenBlock: TypeAlias = TextBlock | ImageBlock | NativeBlock | OpaqueBlock

GIVEN_KINDS: Final = "text, image and native blocks"


def is_given_block(value: object) -> TypeGuard[GivenBlock]:
    """Whether it is none of those that only the model or a tool makes."""
    return isinstance(value, TextBlock | ImageBlock | NativeBlock | OpaqueBlock)


def is_blank(block: object) -> bool:
    """Whether it is a text without anything to read."""
    return isinstance(block, TextBlock) and not block.text.strip()
