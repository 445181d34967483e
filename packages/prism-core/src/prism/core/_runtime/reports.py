"""What running tools tell the readers, from any thread."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from anyio import from_thread
from anyio.lowlevel import EventLoopToken, current_token

from prism.core._errors import EncodeError
from prism.core._runtime.preflight import Slot
from prism.core._wire import (
    ToolExecutionProgress,
    Usage,
    UsageReported,
    encode,
    has_non_finite,
    to_plain,
)

if TYPE_CHECKING:
    from prism.core._runtime.run_state import RunState


class Reports:
    """The reports of one batch's calls, made in the thread of its event loop.

    Attributes:
        closed: Nobody hears any more what a call reports.
    """

    __slots__ = ("_run", "_thread", "_token", "closed")

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._thread = get_ident()
        self._token: EventLoopToken | None = None
        self.closed: bool = False

    def progress_of(self, slot: Slot) -> Callable[[Any], None]:
        """What `ToolContext.progress` of a call does."""
        tell = self._from_any_thread(slot)

        def report(value: Any) -> None:
            # A copy, since the tool may go on with what it reported.
            plain = to_plain(value)
            if has_non_finite(plain):
                raise EncodeError("Progress holds NaN or Infinity, which JSON has not.")
            encode(plain)
            tell(self._progress, slot, plain)

        return report

    def usage_of(self, slot: Slot) -> Callable[[Usage, str], None]:
        """What `ToolContext.report_usage` of a call does."""
        tell = self._from_any_thread(slot)

        def report(usage: Usage, source: str) -> None:
            tell(self._usage, slot, usage, source)

        return report

    def _from_any_thread(self, slot: Slot) -> Callable[..., None]:
        """Calls a function in the event loop's thread, as long as somebody hears it."""
        if self._token is None:
            self._token = current_token()
        token = self._token

        def tell(function: Callable[..., None], *args: Any) -> None:
            if get_ident() == self._thread:
                function(*args)
            elif not self.closed:
                try:
                    from_thread.run_sync(function, *args, token=token)
                except RuntimeError:
                    # The event loop has ended: the thread was abandoned, and nobody hears it.
                    if slot.outcome is None and not self.closed:
                        raise

        return tell

    def _usage(self, slot: Slot, usage: Usage, source: str) -> None:
        run = self._run
        if slot.started and slot.outcome is None and not self.closed:
            run.emit(
                UsageReported(session_id=run.session_id, run_id=run.id, usage=usage, source=source)
            )

    def _progress(self, slot: Slot, value: Any) -> None:
        run = self._run
        if slot.started and slot.outcome is None and not self.closed:
            run.emit(
                ToolExecutionProgress(
                    session_id=run.session_id,
                    run_id=run.id,
                    tool_call_id=slot.call.id,
                    name=slot.call.name,
                    progress=run.redactor.redact_value(value),
                )
            )
