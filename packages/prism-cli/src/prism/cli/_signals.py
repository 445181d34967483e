"""SIGINT, SIGTERM and SIGHUP: the first one ends the work in order, a second one at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskStatus

SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)

GRACE_SECONDS: Final = 3.0
"""After SIGINT: above the time that an aborted tool gets to stop."""

SHORT_GRACE_SECONDS: Final = 0.8
"""After SIGTERM and SIGHUP: whoever sends them often sends SIGKILL a second later."""

OUTPUT_GRACE_SECONDS: Final = 0.4
"""How long a reader may take for what was written by then; below any grace."""


def exit_status(signum: int) -> int:
    """The exit status that tells of a signal."""
    return 128 + signum


async def watch_signals(
    on_signal: Callable[[int], None], *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Call *on_signal* for the first signal; the process ends at a second one, or after the grace.

    A signal that the process was started to ignore (`nohup`, a shell's background job) stays
    ignored. Only the main thread can watch.
    """
    wanted = [item for item in SIGNALS if signal.getsignal(item) is not signal.SIG_IGN]
    if not wanted or threading.current_thread() is not threading.main_thread():
        task_status.started()
        return
    with anyio.open_signal_receiver(*wanted) as received:
        task_status.started()
        first = await anext(received)
        on_signal(first)
        grace = GRACE_SECONDS if first == signal.SIGINT else SHORT_GRACE_SECONDS
        with anyio.move_on_after(grace):
            await anext(received)
        os._exit(exit_status(first))
