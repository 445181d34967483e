"""Running one call: the boundary between Prism and the code of a tool."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, cast

import anyio
import msgspec

from prism.core._contracts import Tool, ToolContext
from prism.core._errors import DecodeError, EncodeError, ToolError
from prism.core._support.errors import error_info, error_text
from prism.core._support.results import error_result
from prism.core._wire import ErrorInfo, ToolCallBlock, ToolResult
from prism.core.tools._convert import make_result, plain_details
from prism.core.tools._decorator import is_async
from prism.core.tools._threads import ToolThreads, tool_threads

_SHOWN_ERRORS: Final = 10


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended.

    Attributes:
        result: What the model gets.
        raised: The tool did not return by itself: it raised, timed out or was cancelled. A tool
            that returned an error, or something that is no JSON, did return.
    """

    result: ToolResult
    raised: bool = False


async def execute_tool(
    tool: Tool,
    call: ToolCallBlock,
    arguments: dict[str, Any],
    context: ToolContext,
    *,
    redact: Callable[[Any], Any] | None = None,
    own_task: bool = False,
) -> ToolOutcome:
    """Run *tool* once. Whatever it does becomes a result; a real cancellation passes through.

    An async tool runs in this task, a sync one in a worker thread: at most `TOOL_THREADS` at once
    in one event loop, and a thread whose call is cancelled or times out is abandoned. An async
    tool that ignores its cancellation cannot be abandoned here.

    Error codes of the result: a `ToolError`'s own; `tool_error` for any other exception;
    `timeout`; `cancelled`; `invalid_result` for what is not JSON or no content block;
    `too_many_threads`.

    Args:
        tool: What to run.
        call: Its id and name are the result's.
        arguments: From `validate_arguments`.
        context: Given to the tool.
        redact: Applied to texts, values and error messages before they are cut.
        own_task: This call runs in a task of its own, a child of an anyio task group, which
            nothing but a cancel scope cancels from outside. Then a cancellation that no scope
            explains is the tool's own, and becomes the error `cancelled`. Without that promise it
            may be the event loop's cancellation of this task, and is never swallowed.
    """
    threads = None if is_async(tool.execute) else tool_threads()
    if threads is not None:
        # Waiting for a thread does not count as the tool's time.
        await threads.take()
    try:
        with anyio.move_on_after(tool.timeout_ms / 1000) as scope:
            returned = await _call(tool, arguments, context, threads)
            return _returned(tool, call, returned, redact)
        assert scope.cancelled_caught  # noqa: S101
        message = f"Tool {tool.name!r} did not finish within {tool.timeout_ms} ms."
        info = ErrorInfo(message=message, code="timeout", details={"timeoutMs": tool.timeout_ms})
    except Exception as error:  # noqa: BLE001 - the boundary: a tool may raise anything
        info = _describe(error, tool.max_result_bytes, redact)
    except (anyio.get_cancelled_exc_class(), BaseExceptionGroup) as error:
        if not own_task or not _is_cancellation(error) or _cancelled_from_outside():
            raise
        info = ErrorInfo(message=f"Tool {tool.name!r} cancelled itself.", code="cancelled")
    finally:
        if threads is not None:
            threads.give_back()
    return ToolOutcome(result=error_result(call, info), raised=True)


async def _call(
    tool: Tool, arguments: dict[str, Any], context: ToolContext, threads: ToolThreads | None
) -> Any:
    if threads is None:
        return await tool.execute(arguments, context)
    returned = await threads.run(tool.execute, arguments, context)
    # A sync function may hand back the coroutine of another one.
    return await returned if inspect.isawaitable(returned) else returned


def _returned(
    tool: Tool,
    call: ToolCallBlock,
    returned: object,
    redact: Callable[[Any], Any] | None,
) -> ToolOutcome:
    try:
        result = make_result(call, returned, max_bytes=tool.max_result_bytes, redact=redact)
    except (EncodeError, DecodeError) as error:
        message = f"Tool {tool.name!r} returned what cannot be a result: {error.message}"
        result = error_result(call, ErrorInfo(message=message, code="invalid_result"))
    return ToolOutcome(result=result)


def _cancelled_from_outside() -> bool:
    """Whether a cancel scope around this call is cancelled and reaches this task."""
    return anyio.current_effective_deadline() == -math.inf


def _is_cancellation(error: BaseException) -> bool:
    """Whether nothing but cancellations and ordinary errors are in *error*."""
    kinds = (Exception, anyio.get_cancelled_exc_class())
    return all(isinstance(leaf, kinds) for leaf in leaves(error))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, at any depth; one that is no group is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for inner in group.exceptions:
            yield from leaves(inner)
    else:
        yield error


def _describe(error: Exception, max_bytes: int, redact: Callable[[Any], Any] | None) -> ErrorInfo:
    """An exception for the model; a group, as a tool's own task group raises it, by its parts."""
    parts = list(islice(leaves(error), _SHOWN_ERRORS + 1))
    if len(parts) > 1:
        shown = [f"{type(leaf).__name__}: {error_text(leaf)}" for leaf in parts[:_SHOWN_ERRORS]]
        more = ["…"] if len(parts) > _SHOWN_ERRORS else []
        count = "many" if more else str(len(parts))
        message = f"{count} errors: {'; '.join(shown + more)}"
        info = error_info(ToolError(message), redact=redact)
        return ErrorInfo(message=info.message, name=type(error).__name__, code="tool_error")
    (leaf,) = parts
    if not isinstance(leaf, ToolError):
        info = error_info(ToolError(error_text(leaf)), redact=redact)
        return ErrorInfo(message=info.message, name=type(leaf).__name__, code="tool_error")
    info = error_info(leaf, redact=redact)
    details = plain_details(leaf.details, max_bytes=max_bytes, redact=redact)
    return msgspec.structs.replace(info, details=details)
