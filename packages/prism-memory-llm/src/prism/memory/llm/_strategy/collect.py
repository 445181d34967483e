"""One answer of the summary model: text, and nothing else, within limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

import msgspec
from anyio.lowlevel import checkpoint

from prism.core import ErrorInfo, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from prism.core.host import SecretRedactor
from prism.core.providers import (
    BlockFinished,
    Done,
    Failed,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    ToolCallReady,
    UsageUpdate,
)
from prism.memory.llm._strategy.failures import Unusable, not_a_summary
from prism.memory.llm._tokens import clean_text, cut_utf16, utf16_length

CHECKPOINT_EVERY: Final = 64
"""An abort lands within so many events, also of a provider that never suspends."""

_REFUSED: Final = ("refusal", "pause", "error", "aborted")
_CUT_SHORT: Final = frozenset({"length", "context_limit"})


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model wrote.

    Attributes:
        text: Redacted, not blank.
        truncated: Whether it goes on where it was cut, by the model's limit or by ours.
    """

    text: str
    truncated: bool = False
    usage: Usage | None = None


class ProviderFailed(Exception):  # noqa: N818
    """Carries the failure that a provider reported; never leaves the package."""

    def __init__(self, info: ErrorInfo, usage: Usage | None) -> None:
        super().__init__(info.message)
        self.info = info
        self.usage = usage


async def collect_answer(
    events: AsyncIterator[ProviderEvent],
    *,
    max_units: int,
    max_events: int,
    redactor: SecretRedactor,
) -> Answer:
    """Read an answer to its end, or to a limit; the stream is closed either way.

    Args:
        events: The provider's stream.
        max_units: UTF-16 code units that are retained; at more, reading stops.
        max_events: Events that are read.
        redactor: Applied to the deltas as they come.

    Raises:
        ProviderFailed: The provider reported a failure.
        Unusable: `invalid_summary` for an answer without text, with a call, or refused;
            `stream_truncated` when the stream ends too early; `event_limit`.
    """
    reader = _Reader(max_units, redactor)
    count = 0
    async with _closing(events):
        async for event in events:
            count += 1
            if count % CHECKPOINT_EVERY == 0:
                await checkpoint()
            if reader.take(event):
                break
            if count >= max_events:
                raise Unusable(
                    f"The summary model sent {max_events} events without finishing; the limit is "
                    "4 for each token of max_summary_tokens, and 1,024 more.",
                    code="event_limit",
                    details={"limit": max_events},
                )
    return reader.answer()


class _Reader:
    """Joins the text of one answer."""

    __slots__ = (
        "_carry", "_ended", "_index", "_kind", "_max_units", "_parts", "_redaction", "_seen",
        "_stop_reason", "_text", "_thought", "_truncated", "_units", "_usage",
    )  # fmt: skip

    def __init__(self, max_units: int, redactor: SecretRedactor) -> None:
        self._max_units = max_units
        self._redaction = redactor.stream()
        self._text: list[str] = []
        self._units = 0
        self._carry = ""
        self._kind: type | None = None  # of the open block
        self._index = -1
        self._parts: list[str] = []  # of the open block, as they came
        self._seen: set[int] = set()
        self._thought = False
        self._ended = False
        self._truncated = False
        self._stop_reason: str | None = None
        self._usage: Usage | None = None

    def take(self, event: ProviderEvent) -> bool:
        """Take the next event; whether it was the last one that is wanted."""
        match event:
            case TextDelta():
                return self._delta(TextBlock, event.index, event.text)
            case ThinkingDelta():
                return self._delta(ThinkingBlock, event.index, event.text)
            case BlockFinished():
                return self._finished(event)
            case ToolCallChunk() | ToolCallReady():
                raise _called_a_tool()
            case UsageUpdate():
                self._usage = event.usage
            case Done():
                self._usage = event.usage or self._usage
                self._stop_reason = event.stop_reason
                self._ended = True
            case Failed():
                raise ProviderFailed(event.error, self._usage)
            case _:
                pass
        return self._ended

    def _delta(self, kind: type, index: int | None, text: str) -> bool:
        if not text:
            return False
        if self._kind is not kind or (index is not None and index != self._index):
            self._index = len(self._seen) if index is None else index
            self._kind = kind
            self._parts = []
            self._seen.add(self._index)
        if kind is ThinkingBlock:
            self._thought = True
            return False
        self._parts.append(text)
        return self._add(text)

    def _finished(self, event: BlockFinished) -> bool:
        block = event.block
        if isinstance(block, ToolCallBlock):
            raise _called_a_tool()
        if isinstance(block, ThinkingBlock):
            self._thought = True
        if not isinstance(block, TextBlock):
            self._seen.add(event.index)
            return False
        is_open = self._kind is TextBlock and event.index == self._index
        if is_open:
            came = "".join(self._parts)
            self._parts = []
            self._kind = None
            # What was shown stays; a block that tells another story is the adapter's fault.
            return self._add(block.text[len(came) :]) if block.text.startswith(came) else False
        if event.index in self._seen:
            return False
        self._seen.add(event.index)
        return self._add(block.text)

    def _add(self, text: str) -> bool:
        text = self._carry + text
        self._carry = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._carry = text[-1]  # its other half may be in the next delta
            text = text[:-1]
        return self._keep(self._redaction.feed(clean_text(text)))

    def _keep(self, text: str) -> bool:
        """Retain what there is room for; whether there was too much."""
        units = utf16_length(text)
        room = self._max_units - self._units
        if units > room:
            text = cut_utf16(text, room)
            self._truncated = True
        self._text.append(text)
        self._units += units
        return self._truncated

    def answer(self) -> Answer:
        if not self._truncated:
            if not self._ended:
                raise Unusable(
                    "The summary model's stream ended without saying that it was complete.",
                    code="stream_truncated",
                )
            self._keep(self._redaction.feed(clean_text(self._carry)) + self._redaction.flush())
            self._check_stop()
        text = "".join(self._text).strip()
        if not text:
            thought = self._thought
            raise not_a_summary(
                "only_thinking" if thought else "empty",
                "The summary model only thought, and wrote no text: raise max_summary_tokens, or "
                "lower thinking_level."
                if thought
                else "The summary model wrote no text.",
            )
        return Answer(
            text=text,
            truncated=self._truncated or self._stop_reason in _CUT_SHORT,
            usage=self._usage,
        )

    def _check_stop(self) -> None:
        reason = self._stop_reason
        if reason == "tool_use":
            raise _called_a_tool()
        if reason in _REFUSED:
            raise not_a_summary(
                reason, f"The summary model did not finish: it stopped with {reason!r}."
            )


def _called_a_tool() -> Unusable:
    return not_a_summary(
        "tool_call", "The summary model called a tool, though it was offered none."
    )


def _closing(events: Any) -> AbstractAsyncContextManager[Any]:
    close: Callable[[], Any] | None = getattr(events, "aclose", None)
    return nullcontext() if close is None else _Closing(close)


class _Closing(AbstractAsyncContextManager[None]):
    """Closes a provider's generator, also when its reader leaves early."""

    __slots__ = ("_close",)

    def __init__(self, close: Callable[[], Any]) -> None:
        self._close = close

    async def __aexit__(self, *_: object) -> None:
        await self._close()
