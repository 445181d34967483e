"""Short names for the events of a provider: for scripts, tests and adapters."""

from __future__ import annotations

from typing import Any

from prism.core._contracts import (
    BlockFinished,
    Done,
    Failed,
    Notice,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    ToolCallReady,
    UsageUpdate,
)
from prism.core._errors import UsageError
from prism.core._support.errors import error_info
from prism.core._wire import ErrorInfo, Usage
from prism.core._wire.content import ContentBlock


def text_delta(text: str, *, index: int | None = None) -> TextDelta:
    """More text; without *index* for the open text block, else for a new one."""
    return TextDelta(text=text, index=index)


def thinking_delta(text: str, *, index: int | None = None) -> ThinkingDelta:
    """More reasoning; without *index* for the open thinking block, else for a new one."""
    return ThinkingDelta(text=text, index=index)


def tool_call_delta(
    *,
    index: int,
    id: str | None = None,  # noqa: A002
    name: str | None = None,
    arguments_text: str = "",
) -> ToolCallChunk:
    """A piece of the call at *index*: id and name once, the JSON of its arguments in parts."""
    return ToolCallChunk(index=index, id=id, name=name, arguments_text=arguments_text)


def tool_call(*, id: str, name: str, arguments: dict[str, Any] | None = None) -> ToolCallReady:  # noqa: A002
    """A whole call at once; without *arguments* it has none."""
    return ToolCallReady(id=id, name=name, arguments={} if arguments is None else arguments)


def block_finished(*, index: int, block: ContentBlock) -> BlockFinished:
    """The block at *index* as it must be kept, instead of what the deltas built."""
    return BlockFinished(index=index, block=block)


def usage(usage: Usage) -> UsageUpdate:
    """Usage of the turn so far, instead of an earlier one."""
    return UsageUpdate(usage=usage)


def notice(code: str, message: str) -> Notice:
    """Something that the host should hear of."""
    return Notice(code=code, message=message)


def done(*, usage: Usage | None = None, stop_reason: str | None = None) -> Done:
    """The turn is complete; without *stop_reason*, with `tool_use` if it has calls, else `stop`."""
    return Done(usage=usage, stop_reason=stop_reason)


def error(
    error: ErrorInfo | BaseException | str,
    *,
    code: str | int | None = None,
    status: int | None = None,
    retry_after_ms: int | float | None = None,
    details: dict[str, Any] | None = None,
) -> Failed:
    """The turn failed.

    Args:
        error: What happened: as data, as an exception, or a message to go with the rest.
        code: A stable code, such as `rate_limit`.
        status: HTTP status.
        retry_after_ms: How long the other side asked to wait.
        details: JSON-safe facts.

    Raises:
        UsageError: *error* is no message, and something else was given beside it.
    """
    if isinstance(error, str):
        return Failed(
            error=ErrorInfo(
                message=error,
                code=code,
                status=status,
                retry_after_ms=retry_after_ms,
                details=details,
            )
        )
    if any(value is not None for value in (code, status, retry_after_ms, details)):
        raise UsageError("error(): code, status and the like go with a message only.")
    return Failed(error=error if isinstance(error, ErrorInfo) else error_info(error))
