"""Worker threads for sync tools: a bounded number per event loop, abandoned ones included."""

from __future__ import annotations

import math
import threading
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from prism.core._contracts import ToolContext, ToolFunction
from prism.core._errors import ToolError

TOOL_THREADS: Final = 40
"""Sync tools that run at once in one event loop; more wait. As many as anyio's own default."""

MAX_TOOL_THREADS: Final = 200
"""Threads of sync tools in one event loop, counting those that were abandoned and still run."""


class ToolThreads:
    """The threads of one event loop.

    A cancelled or timed out sync tool leaves its thread behind. Its place is free at once, so
    that one stuck tool does not hold up the others; how many are left behind is limited.
    """

    def __init__(self) -> None:
        self._places = anyio.Semaphore(TOOL_THREADS)
        # Places are ours to give: anyio's limiters differ in when an abandoned thread frees one.
        self._no_limit = anyio.CapacityLimiter(math.inf)
        self._lock = threading.Lock()
        self._running = 0

    async def take(self) -> None:
        """Wait for a place."""
        await self._places.acquire()

    def give_back(self) -> None:
        """Free the place, whether or not its thread still runs."""
        self._places.release()

    async def run(
        self, execute: ToolFunction, arguments: dict[str, Any], context: ToolContext
    ) -> Any:
        """Run *execute* in a thread and abandon it when this task is cancelled.

        Raises:
            ToolError: `too_many_threads`.
        """
        if self._running >= MAX_TOOL_THREADS:
            raise ToolError(
                f"{self._running} threads of sync tools are still running, most of them "
                f"abandoned after a timeout or a cancellation; the limit is {MAX_TOOL_THREADS}.",
                code="too_many_threads",
                details={"limit": MAX_TOOL_THREADS},
            )
        (returned,) = await anyio.to_thread.run_sync(
            self._in_thread,
            execute,
            arguments,
            context,
            abandon_on_cancel=True,
            limiter=self._no_limit,
        )
        return returned

    def _in_thread(
        self, execute: ToolFunction, arguments: dict[str, Any], context: ToolContext
    ) -> tuple[Any]:
        with self._lock:
            self._running += 1
        try:
            # In a tuple, because trio refuses a bare coroutine from a thread.
            return (execute(arguments, context),)
        finally:
            with self._lock:
                self._running -= 1


_of_this_loop: RunVar[ToolThreads] = RunVar("prism_tool_threads")


def tool_threads() -> ToolThreads:
    """The threads of the event loop that is running."""
    try:
        return _of_this_loop.get()
    except LookupError:
        threads = ToolThreads()
        _of_this_loop.set(threads)
        return threads
