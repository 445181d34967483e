"""One run as its events."""

from __future__ import annotations

from typing import NoReturn

from prism.core._runtime.broadcast import Subscription
from prism.core._runtime.options import RunResult
from prism.core._runtime.run_state import RunState


class RunStream(Subscription):
    """The events of one run; after the last one, its outcome.

    Iterate it with `async for`. At the end it raises what `Session.run` would raise.
    """

    __slots__ = ("_run",)

    def __init__(self, run: RunState) -> None:
        super().__init__()
        self._run = run
        run.reader = self

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def result(self) -> RunResult | None:
        """How the run ended, also when it was aborted or failed; `None` while it runs."""
        return self._run.result

    def _end(self) -> NoReturn:
        if self._run.error is not None:
            raise self._run.error
        raise StopAsyncIteration
