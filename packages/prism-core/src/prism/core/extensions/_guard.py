"""Seeing what the setup of an extension leaves running."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import TracebackType, coroutine
from typing import Any

from anyio import TaskInfo, get_running_tasks


class Watch:
    """Notes the tasks and threads that appear while it is entered.

    It is entered only while an extension's own code is on the stack: what other tasks start while
    an async setup waits is theirs. A thread that another thread starts in that very moment cannot
    be told apart from the extension's.
    """

    def __init__(self) -> None:
        # Tasks are known by their coroutines, which the infos keep alive: ids come again.
        self._tasks: list[TaskInfo] = []
        self._threads: list[threading.Thread] = []
        self._tasks_before: list[TaskInfo] = []
        self._threads_before: list[threading.Thread] = []

    def __enter__(self) -> None:
        self._tasks_before = list(get_running_tasks())
        self._threads_before = threading.enumerate()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        known = {id(info.coro) for info in self._tasks_before}
        self._tasks += [info for info in get_running_tasks() if id(info.coro) not in known]
        before = set(self._threads_before)
        self._threads += [each for each in threading.enumerate() if each not in before]
        self._tasks_before, self._threads_before = [], []

    def left(self) -> list[str]:
        """What of it still runs, in words."""
        alive = {id(info.coro) for info in get_running_tasks()}
        return [
            *(f"task {info.name!r}" for info in self._tasks if id(info.coro) in alive),
            *(f"thread {each.name!r}" for each in self._threads if each.is_alive()),
        ]


@coroutine
def watched(awaitable: Awaitable[Any], watch: Watch) -> Generator[Any, Any, Any]:
    """The result of *awaitable*, with *watch* entered for each of its steps and for nothing else.

    It is what `yield from` does, with a word before and after each step.
    """
    steps = _awaited(awaitable)
    step: Callable[[], Any] = partial(steps.send, None)
    while True:
        try:
            with watch:
                request = step()
        except StopIteration as end:
            return end.value
        try:
            answer = yield request
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:  # noqa: BLE001 - cancellation too belongs to the setup
            step = partial(steps.throw, error)
        else:
            step = partial(steps.send, answer)


def _awaited(awaitable: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    """*awaitable* as a coroutine, since only that has `send` and `throw`."""

    async def wait() -> Any:
        return await awaitable

    return wait()
