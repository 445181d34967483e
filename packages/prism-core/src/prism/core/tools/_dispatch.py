"""Calls for hosts that run tools without a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus

from prism.core._contracts import Tool, ToolContext
from prism.core._errors import UsageError
from prism.core._support.errors import error_info
from prism.core._support.limits import positive_int
from prism.core._support.results import error_result
from prism.core._wire import ErrorInfo, ToolCallBlock, ToolResult
from prism.core.tools._arguments import validate_arguments
from prism.core.tools._execute import execute_tool, leaves
from prism.core.tools._registry import ToolRegistry, known_names

DEFAULT_MAX_CONCURRENCY: Final = 8
"""Calls of one batch that run at once."""

_MAX_CONCURRENCY: Final = 1_000


class _Job:
    """A call that may start."""

    __slots__ = ("arguments", "call", "position", "tool")

    def __init__(
        self, position: int, call: ToolCallBlock, tool: Tool, arguments: dict[str, Any]
    ) -> None:
        self.position = position
        self.call = call
        self.tool = tool
        self.arguments = arguments


async def dispatch_tool_call(
    call: ToolCallBlock,
    tools: ToolRegistry | Iterable[Tool],
    *,
    context: ToolContext | None = None,
    redact: Callable[[Any], Any] | None = None,
) -> ToolResult:
    """Check and run one call; whatever goes wrong is an error result.

    Args:
        call: As the model made it.
        tools: Where its tool is looked up.
        context: What the tool is given, with the call's id put in; default: an empty one.
        redact: Applied to what the tool gives, before it is cut to the tool's limit.

    Returns:
        The tool's result, or an error with the code `unknown_tool`, `invalid_arguments`,
        `validation_failed`, or one of `execute_tool`.

    Raises:
        RegistryError: `duplicate_name` in *tools*.
    """
    (result,) = await dispatch_tool_calls([call], tools, context=context, redact=redact)
    return result


async def dispatch_tool_calls(
    calls: Sequence[ToolCallBlock],
    tools: ToolRegistry | Iterable[Tool],
    *,
    context: ToolContext | None = None,
    max_concurrency: int = DEFAULT_MAX_CONCURRENCY,
    redact: Callable[[Any], Any] | None = None,
) -> list[ToolResult]:
    """Check all calls, then run those that passed, beside each other.

    They start in the order given; a tool that is `sequential` starts when all before it have
    ended, and the next ones wait for it.

    Args:
        calls: As the model made them.
        tools: Where their tools are looked up.
        context: What the tools are given, with each call's id put in; default: an empty one.
        max_concurrency: How many run at once, from 1 to 1,000; default 8.
        redact: Applied to what the tools give, before it is cut to a tool's limit.

    Returns:
        One result per call, in the order of *calls*; errors as in `dispatch_tool_call`.

    Raises:
        UsageError: `invalid_limit`.
        RegistryError: `duplicate_name` in *tools*.
    """
    limit = positive_int("max_concurrency", max_concurrency, cap=_MAX_CONCURRENCY)
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
    results: dict[int, ToolResult] = {}
    jobs: list[_Job] = []
    for position, call in enumerate(calls):
        checked = _preflight(position, call, registry)
        if isinstance(checked, _Job):
            jobs.append(checked)
        else:
            results[position] = checked
    slots = anyio.Semaphore(limit)

    async def run(job: _Job, *, task_status: TaskStatus[None]) -> None:
        try:
            task_status.started()
            outcome = await execute_tool(
                job.tool,
                job.call,
                job.arguments,
                _context_of(job.call, context),
                redact=redact,
                own_task=True,
            )
            results[job.position] = outcome.result
        finally:
            slots.release()

    try:
        for batch in _batches(jobs):
            async with anyio.create_task_group() as group:
                for job in batch:
                    await slots.acquire()
                    # Unlike start_soon, this starts them in order on every backend.
                    await group.start(run, job)
    except BaseExceptionGroup as error:
        # A tool's Exception is a result; what comes here wants to end the program.
        cancelled = anyio.get_cancelled_exc_class()
        raise next(leaf for leaf in leaves(error) if not isinstance(leaf, cancelled)) from None
    return [results[position] for position in range(len(calls))]


def _preflight(position: int, call: ToolCallBlock, registry: ToolRegistry) -> _Job | ToolResult:
    tool = registry.get(call.name)
    if tool is None:
        message = f"There is no tool named {call.name!r}. {known_names(registry)}"
        return error_result(call, ErrorInfo(message=message, code="unknown_tool"))
    try:
        return _Job(position, call, tool, validate_arguments(tool, call))
    except UsageError as error:
        return error_result(call, error_info(error))


def _context_of(call: ToolCallBlock, context: ToolContext | None) -> ToolContext:
    if context is None:
        return ToolContext(tool_call_id=call.id)
    if context.tool_call_id == call.id:
        return context
    return ToolContext(
        session_id=context.session_id,
        run_id=context.run_id,
        tool_call_id=call.id,
        metadata=context.metadata,
        report=context.progress,
        redact=context.redact,
        report_usage=lambda usage, source: context.report_usage(usage, source=source),
    )


def _batches(jobs: Iterable[_Job]) -> Iterator[list[_Job]]:
    """Neighbours that may run beside each other; a sequential one stands alone."""
    batch: list[_Job] = []
    for job in jobs:
        if job.tool.sequential:
            if batch:
                yield batch
            yield [job]
            batch = []
        else:
            batch.append(job)
    if batch:
        yield batch
