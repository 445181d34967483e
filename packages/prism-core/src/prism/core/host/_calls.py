"""Calling what a host gave, sync or async."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from anyio import to_thread


async def call(function: Callable[..., Any], *args: Any) -> Any:
    """The result of *function*; one that is not async runs in a worker thread.

    On cancellation the thread is left to itself.
    """
    if _is_async(function):
        return await function(*args)
    # In a list, since trio takes a thread's awaitable for a mistake.
    (result,) = await to_thread.run_sync(lambda: [function(*args)], abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


def _is_async(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is asked for
    )
