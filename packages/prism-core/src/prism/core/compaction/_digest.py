"""A summary without a model: the newest lines of what leaves, as many as there is room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from prism.core._wire import (
    ImageBlock,
    LabelEntry,
    Message,
    MessageEntry,
    ModelChangeEntry,
    SessionEntry,
    SummaryEntry,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

OMITTED: Final = "[older lines left out]"
"""The line that stands for lines for which there was no room."""

_CUT: Final = "…"
_MIN_CUT_CHARS: Final = 40
"""A line is rather left out than cut to less than this."""

_MAX_NAME_CHARS: Final = 80
_NO_ROOM_CHARS: Final = len(OMITTED) + 3

_Redact: TypeAlias = Callable[[str], str]


def digest(
    previous: str | None, leaving: Sequence[SessionEntry], *, max_chars: int, redact: _Redact
) -> str:
    """Summarise *leaving* behind the *previous* summary.

    When not all of it fits, the previous summary gets at most half of the room; in both parts the
    oldest lines go first, and a line that says so stands for them.

    Args:
        previous: The summary so far; its lines are taken as they are.
        leaving: In path order. They are read from the newest on, until the room is full.
        max_chars: Longest summary, in characters.
        redact: Applied to every text before it is cut.
    """
    new: list[str] = []  # like `old`, the newest line first
    length = 0
    for lines in _newest_first(leaving, redact):
        new += reversed(lines)
        if length > max_chars:
            break
        length += sum(len(line) + 1 for line in lines)
    old = redact(previous).strip().split("\n")[::-1] if previous is not None else []
    if not new and not old:
        new = [f"[entries without text: {len(leaving)}]"]
    chosen = [*new, *old]
    if _joined_length(chosen) > max_chars:
        half = max_chars // 2
        if old and new and half > _NO_ROOM_CHARS:
            old = _fit(old, half)
            chosen = [*_fit(new, max_chars - _joined_length(old) - 1), *old]
        else:
            chosen = _fit(chosen, max_chars)
    # A secret may also lie across two lines.
    return _cut(redact("\n".join(reversed(chosen))), max_chars)


def _joined_length(lines: Sequence[str]) -> int:
    return sum(map(len, lines)) + max(0, len(lines) - 1)


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 1] + _CUT


def _fit(lines: list[str], max_chars: int) -> list[str]:
    """As many *lines*, the newest first, as there is room for, and the line for the others."""
    if _joined_length(lines) <= max_chars:
        return lines
    if max_chars <= _NO_ROOM_CHARS:
        return [_cut(lines[0], max_chars)]
    room = max_chars - len(OMITTED)
    fitting: list[str] = []
    for line in lines:
        room -= 1  # the line feed
        if len(line) > room:
            if room >= _MIN_CUT_CHARS or not fitting:
                fitting.append(_cut(line, room))
            break
        fitting.append(line)
        room -= len(line)
    if len(fitting) < len(lines):
        fitting.append(OMITTED)
    return fitting


def _newest_first(leaving: Sequence[SessionEntry], redact: _Redact) -> Iterator[list[str]]:
    """The lines of each thing that was said or done; the newest first, its lines in order."""
    run = _ToolRun(redact)
    for entry in reversed(leaving):
        if isinstance(entry, MessageEntry):
            run.add(entry.message)
            said = _said(entry.message, redact)
        else:
            said = _noted(entry, redact)
        if said:
            yield from run.flush()
            yield said
    yield from run.flush()


class _ToolRun:
    """Names of calls and results between two things that were said; the newest come first."""

    __slots__ = ("_calls", "_names", "_redact", "_results")

    def __init__(self, redact: _Redact) -> None:
        self._redact = redact
        self._calls: Counter[str] = Counter()
        self._results: Counter[str] = Counter()
        self._names: dict[str, str] = {}

    def add(self, message: Message) -> None:
        for block in reversed(message.content):
            if isinstance(block, ToolCallBlock):
                self._calls[self._name(block.name)] += 1
            elif isinstance(block, ToolResultBlock):
                name = self._name(block.name)
                self._results[name if block.error is None else f"{name} (failed)"] += 1

    def _name(self, name: str) -> str:
        known = self._names.get(name)
        if known is None:
            known = _cut(" ".join(self._redact(name).split()), _MAX_NAME_CHARS) or "?"
            self._names[name] = known
        return known

    def flush(self) -> Iterator[list[str]]:
        lines = [
            f"tool {kind}: "
            + ", ".join(
                name if count == 1 else f"{name} x{count}"
                for name, count in reversed(names.items())
            )
            for kind, names in (("calls", self._calls), ("results", self._results))
            if names
        ]
        if lines:
            self._calls.clear()
            self._results.clear()
            yield lines


def _said(message: Message, redact: _Redact) -> list[str]:
    if message.role == "tool":
        return []
    text = "\n".join(block.text for block in message.content if isinstance(block, TextBlock))
    images = sum(isinstance(block, ImageBlock) for block in message.content)
    lines = _labelled(message.role, redact(text)) if text else []
    if images:
        shown = "[image]" if images == 1 else f"[{images} images]"
        lines = [*lines[:-1], f"{lines[-1]} {shown}"] if lines else [f"{message.role}: {shown}"]
    return lines


def _noted(entry: SessionEntry, redact: _Redact) -> list[str]:
    if isinstance(entry, SummaryEntry):
        return _labelled("summary", redact(entry.summary))
    if isinstance(entry, LabelEntry):
        return _labelled("label", redact(entry.label or ""))
    if isinstance(entry, ModelChangeEntry):
        model = f"{entry.model.provider}/{entry.model.model}" if entry.model else ""
        level = f"thinking {entry.thinking_level}" if entry.thinking_level else ""
        return _labelled("model", redact(", ".join(part for part in (model, level) if part)))
    return []


def _labelled(label: str, text: str) -> list[str]:
    """The lines of *text* behind a label; all but the first are indented, so that none is one."""
    lines = _split(text.strip())
    return [f"{label}: {lines[0]}", *(f"  {line}" for line in lines[1:])] if lines else []


def _split(text: str) -> list[str]:
    """The lines that hold something."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return [line for line in map(str.rstrip, text.split("\n")) if line]
