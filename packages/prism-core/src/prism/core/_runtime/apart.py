"""Work that its caller's cancellation must not cut in two."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


async def run_apart(work: Callable[[], Awaitable[T]]) -> T:
    """Run *work* in a child task, and give back what it gives or raise what it raises.

    On asyncio a native `Task.cancel()` ignores shields: it would end a shielded wait in the very
    task that is cancelled. A child of a task group is cancelled by scopes alone, and its parent
    waits for it however often it is cancelled itself.
    """
    returned: list[T] = []
    raised: list[BaseException] = []

    async def child() -> None:
        try:
            returned.append(await work())
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - handed over, since a group would wrap it
            raised.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(child)
    if raised:
        raise raised[0]
    return returned[0]
