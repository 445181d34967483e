"""A block of the message that a provider is making, and what its text has to become."""

from __future__ import annotations

from typing import Any, cast

from prism.core._errors import DecodeError
from prism.core._support.redaction import SecretRedactor, StreamRedactor
from prism.core._wire import ContentBlock, TextBlock, ThinkingBlock, parse_json


class Building:
    """A block that is being made.

    Attributes:
        kind: Its class.
        position: Its place in the message.
        parts: Its text, as it was shown.
        block: The finished block.
        finished: Whether nothing can be added.
        whole: It came at once and without an index, so an index may mean another block.
        call_id: Of a call.
        name: Of a call.
        carry: The first half of a character whose second half is still to come.
        raw_parts: Its text with secrets, when there are secrets to hide.
        redaction: Hides them.
    """

    __slots__ = (
        "block",
        "call_id",
        "carry",
        "finished",
        "kind",
        "name",
        "parts",
        "position",
        "raw_parts",
        "redaction",
        "whole",
    )

    def __init__(self, kind: type, position: int, redactor: SecretRedactor) -> None:
        self.kind = kind
        self.position = position
        self.parts: list[str] = []
        self.block: ContentBlock | None = None
        self.finished = False
        self.whole = False
        self.call_id: str | None = None
        self.name: str | None = None
        self.carry = ""
        self.raw_parts: list[str] | None = [] if redactor else None
        self.redaction: StreamRedactor | None = redactor.stream() if redactor else None

    @property
    def raw_text(self) -> str:
        """All that came but for `carry`, with secrets."""
        return "".join(self.parts if self.raw_parts is None else self.raw_parts)

    def prepare(self, text: str) -> str:
        """Join surrogate halves that came in two deltas, and hold back what may be a secret."""
        text = self.carry + text
        self.carry = ""
        if not text.isascii():
            if "\ud800" <= text[-1] <= "\udbff":
                self.carry = text[-1]
                text = text[:-1]
            text = join_surrogates(text)
        if self.raw_parts is not None and self.redaction is not None:
            self.raw_parts.append(text)
            text = self.redaction.feed(text)
        return text

    def flush(self) -> str:
        """What was held back, now that nothing more comes."""
        text, self.carry = self.carry, ""
        if self.raw_parts is not None and self.redaction is not None:
            self.raw_parts.append(text)
            text = self.redaction.feed(text) + self.redaction.flush()
        return text


def is_empty(block: ContentBlock) -> bool:
    """Whether a block says nothing and has nothing to be replayed."""
    if isinstance(block, TextBlock):
        return not block.text and block.replay is None
    if isinstance(block, ThinkingBlock):
        return not (block.text or block.signature or block.replay or block.redacted)
    return False


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """A call's arguments, and its text when they are no JSON object; no text is no arguments."""
    if not text.strip():
        return {}, None
    try:
        value = parse_json(text)
    except DecodeError:
        return {}, text
    if not isinstance(value, dict):
        return {}, text
    return cast("dict[str, Any]", value), None


def join_surrogates(text: str) -> str:
    """Halves of one character that stand side by side become that character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text
