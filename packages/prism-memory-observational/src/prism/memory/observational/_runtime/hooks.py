"""Where a host looks at what goes to a worker, and at what comes from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeVar

import msgspec

from prism.core import ErrorInfo, error_info
from prism.memory.observational._records import Observation, Reflection
from prism.memory.observational._workers.engine import bounded_error


class WorkerJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is about to be asked.

    Attributes:
        system: Its system prompt.
        prompt: Memory and messages that it is shown.
        source_entry_ids: The messages that an observer is shown.
    """

    worker: str
    session_id: str
    system: str
    prompt: str
    source_entry_ids: tuple[str, ...] = ()


class WorkerOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker wants to record.

    Attributes:
        superseded: Reflections that go out of use, by the reflection that stands for them.
        obsolete: Reflections that go out of use and that nothing replaces.
        dropped_ids: Observations that leave the pool.
    """

    worker: str
    session_id: str
    observations: tuple[Observation, ...] = ()
    reflections: tuple[Reflection, ...] = ()
    superseded: Mapping[str, tuple[str, ...]] = {}
    obsolete: tuple[str, ...] = ()
    dropped_ids: tuple[str, ...] = ()


T = TypeVar("T", WorkerJob, WorkerOutput)


class MemoryHooks(msgspec.Struct, frozen=True, kw_only=True):
    """Functions of the host, sync or async, that are awaited.

    Attributes:
        before: Gets the job of each worker run. It gives another job to go on with, `None` for no
            opinion, or `False` to stop the worker.
        after: Gets what is about to be recorded, and gives the like; it may change it and take
            things out of it. Observations and reflections get their ids and sizes anew.
    """

    before: Callable[[WorkerJob], Any] | None = None
    after: Callable[[WorkerOutput], Any] | None = None


class HookFailed(Exception):  # noqa: N818
    """Carries a hook's failure; never leaves the package."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


class Stopped(Exception):  # noqa: N818
    """A hook stopped the worker; never leaves the package."""


async def ask_hook(hook: Callable[[T], Any] | None, payload: T, redact: Callable[[str], str]) -> T:
    """What the hook wants to go on with.

    Raises:
        Stopped: It said `False`.
        HookFailed: It raised, or gave something else.
    """
    if hook is None:
        return payload
    try:
        answer: Any = hook(payload)
        if isawaitable(answer):
            answer = await answer
    except Exception as error:  # noqa: BLE001 - the boundary to the host's code
        info = error_info(error, redact=redact)
        failure = ErrorInfo(
            message=f"A memory hook failed: {info.message}", name=info.name, code="hook_failed"
        )
    else:
        if answer is None:
            return payload
        if answer is False:
            raise Stopped
        if isinstance(answer, type(payload)):
            return answer
        failure = ErrorInfo(
            message=f"A memory hook gave a {type(answer).__name__} instead of a "
            f"{type(payload).__name__}.",
            code="hook_failed",
        )
    raise HookFailed(bounded_error(failure))
