"""Running the modes: one event loop, one exit status, no traceback."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, TextIO

import anyio

from prism.cli._host import Host, HostOptions, UsageProblem, describe
from prism.cli._main import EXIT_FAILED, EXIT_USAGE, complain
from prism.cli._streams import own_stdio

THREAD_SECONDS: Final = 0.05
"""How long a worker thread that has nothing to do may take to notice."""


def run(*, mode: str, prompt: str, app: str | None, flags: Mapping[str, Any]) -> int:
    """Run a mode to its end.

    Returns:
        The exit status; what was wrong has been said.
    """
    options = HostOptions(mode=mode, **flags)
    threads = set(threading.enumerate())
    stdout: TextIO | None = sys.stdout
    encoding = getattr(stdout, "encoding", None) or "utf-8"
    with own_stdio() as (stdin, out):
        try:
            host = Host(options, app=app)
            if mode == "rpc":
                from prism.cli._rpc.server import serve

                work = partial(serve, host, stdin=stdin, stdout=out)
            else:
                from prism.cli._output import answer

                work = partial(answer, host, prompt, out=out, encoding=encoding)
            gc.enable()  # all is imported
            status = anyio.run(work)
        except UsageProblem as error:
            complain(str(error))
            return EXIT_USAGE
        except Exception as error:  # noqa: BLE001 - the command's one boundary: no traceback
            complain(describe(error))
            return EXIT_FAILED
        leave_threads(threads, status)
        return status


def leave_threads(before: set[threading.Thread], status: int) -> None:
    """End the process if a tool's thread is still at work: it was aborted, and may never end."""
    for thread in threading.enumerate():
        if thread not in before and not thread.daemon:
            thread.join(THREAD_SECONDS)
            if thread.is_alive():
                sys.stderr.flush()
                os._exit(status)
