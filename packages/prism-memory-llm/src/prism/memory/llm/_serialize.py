"""A conversation as plain text for the model that summarises it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prism.core import (
    ContentBlock,
    ImageBlock,
    LabelEntry,
    Message,
    MessageEntry,
    NativeBlock,
    OpaqueBlock,
    Secret,
    SecretRedactor,
    SessionEntry,
    SummaryEntry,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    encode,
)
from prism.memory.llm._tokens import checked_limit, clean_text

DEFAULT_MAX_TOOL_RESULT_CHARS: Final = 2_000
"""How much of a tool's result, of a call's arguments and of a thought is shown."""

MAX_TOOL_RESULT_CHARS: Final = 1_000_000

_MAX_NAME_CHARS: Final = 80
_ROUND: Final = str.maketrans("[]", "()")
_NO_SECRETS: Final = SecretRedactor()


def serialize_conversation(
    entries: Iterable[SessionEntry],
    *,
    max_tool_result_chars: int = DEFAULT_MAX_TOOL_RESULT_CHARS,
    secrets: Sequence[str | Secret] = (),
) -> str:
    """Messages, summaries and labels as text; other entries are not shown.

    Each part stands under a line that says whose it is, such as `[user]` or `[tool result read]`.
    The text under it is indented, so that nothing that was said can pass for such a line.

    Args:
        entries: In path order.
        max_tool_result_chars: Results, arguments and thinking above it lose their middle. What
            users and the model said is never cut.
        secrets: Exact strings that are taken out, before anything is cut.

    Raises:
        UsageError: `invalid_limit` or `invalid_secret`.
    """
    checked_limit("max_tool_result_chars", max_tool_result_chars, cap=MAX_TOOL_RESULT_CHARS)
    redactor = SecretRedactor(secrets) if secrets else _NO_SECRETS
    return "\n".join(serialize_entries(entries, max_chars=max_tool_result_chars, redactor=redactor))


def serialize_entries(
    entries: Iterable[SessionEntry], *, max_chars: int, redactor: SecretRedactor
) -> Iterator[str]:
    """The text of each entry that has one."""
    writer = _Writer(max_chars, redactor)
    for entry in entries:
        if isinstance(entry, MessageEntry):
            text = writer.message(entry.message)
        elif isinstance(entry, SummaryEntry):
            text = writer.part("summary", entry.summary)
        elif isinstance(entry, LabelEntry):
            text = writer.part("label", entry.label or "")
        else:
            continue
        if text:
            yield text


class _Writer:
    __slots__ = ("_max_chars", "_redact")

    def __init__(self, max_chars: int, redactor: SecretRedactor) -> None:
        self._max_chars = max_chars
        self._redact = redactor.redact_text

    def part(self, label: str, text: str, *, cut: bool = False) -> str:
        """A labelled part; nothing for blank text."""
        text = clean_text(self._redact(text)).strip()
        if not text:
            return ""
        if cut:
            text = _without_middle(text, self._max_chars)
        return f"[{label}]\n  " + "\n  ".join(text.splitlines())

    def message(self, message: Message) -> str:
        parts: list[str] = []
        said: list[str] = []
        for block in message.content:
            if isinstance(block, TextBlock):
                said.append(block.text)
            elif isinstance(block, ImageBlock):
                said.append("[image]")
            else:
                self._flush(message.role, said, parts)
                parts.append(self._block(block))
        self._flush(message.role, said, parts)
        return "\n".join(part for part in parts if part)

    def _flush(self, role: str, said: list[str], parts: list[str]) -> None:
        if said:
            parts.append(self.part(self._name(role), "\n".join(said)))
            said.clear()

    def _block(self, block: ContentBlock) -> str:
        if isinstance(block, ThinkingBlock):
            return self.part("assistant, thinking", block.text, cut=True)
        if isinstance(block, ToolCallBlock):
            arguments = block.raw_arguments or encode(block.arguments).decode()
            return self.part(f"tool call {self._name(block.name)}", arguments, cut=True)
        if isinstance(block, NativeBlock):
            return f"[{self._name(block.kind)} of the vendor]"
        if isinstance(block, OpaqueBlock | TextBlock | ImageBlock):
            return ""
        name = self._name(block.name)
        given = [
            inner.text if isinstance(inner, TextBlock) else "[image]"
            for inner in block.content or ()
            if isinstance(inner, TextBlock | ImageBlock)
        ]
        if block.result is not None and not given:
            result = block.result
            given.append(result if isinstance(result, str) else encode(result).decode())
        if block.error is None:
            text = self.part(f"tool result {name}", "\n".join(given), cut=True)
            return text or f"[tool result {name}: empty]"
        return self.part(f"tool error {name}", "\n".join([block.error.message, *given]), cut=True)

    def _name(self, name: str) -> str:
        """A name on one line, which no bracket can end."""
        shown = " ".join(clean_text(self._redact(name)).split()).translate(_ROUND)
        return shown[:_MAX_NAME_CHARS] or "?"


def _without_middle(text: str, max_chars: int) -> str:
    """*text* within *max_chars* and a note; three quarters of it are from its start."""
    if len(text) <= max_chars:
        return text
    head = max_chars - max_chars // 4
    tail = max_chars - head
    left_out = len(text) - head - tail
    end = text[-tail:] if tail else ""
    return f"{text[:head]}\n[{left_out} characters left out]\n{end}".rstrip()
