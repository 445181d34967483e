"""The end of a run: its bookkeeping, which nothing interrupts."""

from __future__ import annotations

from anyio import CancelScope

from prism.core._errors import RunAborted
from prism.core._runtime.attempt import Attempt
from prism.core._runtime.batch import Batch
from prism.core._runtime.options import RunResult
from prism.core._runtime.preflight import Slot
from prism.core._runtime.run_state import RunState
from prism.core._runtime.turn import TurnFailed, close_message, store_message
from prism.core._support.errors import error_info, provider_error
from prism.core._wire import (
    AgentFinished,
    ErrorEvent,
    ErrorInfo,
    SessionSettled,
    ToolCallBlock,
    TurnFinished,
    Usage,
    UsageReported,
)


class RunEnding(RunState):
    """How a run ends, well or not."""

    async def settle_cancelled(self) -> None:
        """The end of a run whose caller was cancelled."""
        if not self.aborted:
            self.stop("cancelled")
        await self.settle(None)

    async def settle(self, failure: BaseException | None) -> None:
        """The end of a run that was aborted, or failed with *failure*."""
        self.accepting = False
        self.ending = True
        if self.aborted:
            failure = None
        info = self.abort_info() if failure is None else self._describe(failure)
        if failure is not None and self.announced:
            self.emit(
                ErrorEvent(session_id=self.session_id, run_id=self.id, error=info, fatal=True)
            )
        try:
            with CancelScope(shield=True):
                await self._close_turn()
        except Exception as error:  # noqa: BLE001 - whatever fails, the readers get their ends
            if failure is None:
                failure = error
                info = self._describe(error)
            self._close_message()
            self.end_turn("error")
        if self.error is None:
            if failure is None:
                reason = f": {self.abort_reason}" if self.abort_reason else ""
                self.error = RunAborted(f"{info.message}{reason}", details=info.details)
            elif isinstance(failure, TurnFailed):
                self.error = provider_error(info)
            else:
                self.error = failure
        self.finish("aborted" if failure is None else "failed", info)

    def _describe(self, failure: BaseException) -> ErrorInfo:
        if isinstance(failure, TurnFailed):
            return self.redactor.redact_error(failure.info)
        return self.redactor.redact_error(error_info(failure, redact=self.redactor.redact_text))

    async def _close_turn(self) -> None:
        """Store what the open turn had: its partial message, and a result for every call."""
        if not self.turn_open:
            return
        stopped = "aborted" if self.aborted else "error"
        attempt = self.attempt
        if attempt is not None and attempt.started and self.batch is None:
            message = self.message if attempt.stored else attempt.partial_message(stopped)
            if message is None:
                self._close_message()
            elif not attempt.stored:
                await store_message(self, attempt, message, partial=True)
            if message is not None and message.tool_calls:
                self.batch = self.new_batch(attempt, message.tool_calls)
        if self.batch is not None:
            error = ErrorInfo(
                code="aborted" if self.aborted else "interrupted",
                message=f"The run {'was aborted' if self.aborted else 'failed'} "
                "before this call started.",
            )
            reason = "aborted" if self.aborted else "skipped"
            await self.batch.finish(error, reason=reason, grace_ms=self.agent.tool_cancel_grace_ms)
        self.end_turn(stopped)

    def _close_message(self) -> None:
        """End a message of which nothing could be stored."""
        attempt = self.attempt
        if attempt is not None and attempt.started and not attempt.stored:
            attempt.stored = True
            close_message(self)

    def new_batch(self, attempt: Attempt, calls: list[ToolCallBlock]) -> Batch:
        """The calls of the turn's message."""
        slots = [Slot(call, attempt.raw_calls.get(call.id, call)) for call in calls]
        return Batch(self, slots, self.tools)

    def end_turn(self, stop_reason: str | None = None) -> None:
        """Count the open turn's usage and say that it is over."""
        if not self.turn_open:
            return
        usage = self.use_in_turn()
        attempt = self.attempt
        if attempt is not None:
            stop_reason = attempt.stop_reason or stop_reason
        self.turn_open = False
        self.batch = None
        if usage is not None:
            self._check_cost(usage)
            self.add_usage(usage)
            self.session.add_usage(usage)
            self.emit(
                UsageReported(
                    session_id=self.session_id, run_id=self.id, usage=usage, source="turn"
                )
            )
        self.emit(
            TurnFinished(
                session_id=self.session_id,
                run_id=self.id,
                turn=self.turn_number,
                usage=usage,
                stop_reason=stop_reason,
            )
        )

    def _check_cost(self, usage: Usage) -> None:
        limits = self.options.limits or self.agent.limits
        if limits is None or limits.max_cost is None or usage.cost is not None:
            return
        if not self.told_cost:
            self.told_cost = True
            self.warn(
                "cost_unknown",
                f"max_cost cannot hold: model {self.model.model!r} has no prices "
                "(ModelConfig.cost), and its provider names no cost.",
            )

    def finish(self, status: str, error: ErrorInfo | None = None) -> None:
        """Terminal events and the outcome; there is nothing here to interrupt."""
        self.accepting = False
        self.ending = True
        session = self.session
        message = self.message
        output = self.output
        self.result = RunResult(
            status=status,
            session_id=self.session_id,
            run_id=self.id,
            text="" if message is None else message.text,
            message=message,
            stop_reason=self.stop_reason if message is None else message.stop_reason,
            usage=self.usage,
            entry_ids=tuple(self.entry_ids),
            leaf_id=session.leaf_id,
            error=error,
            output=None if output is None else output.value,
        )
        if self.announced:
            self.emit(
                AgentFinished(
                    session_id=self.session_id,
                    run_id=self.id,
                    status=status,
                    usage=self.usage,
                    error=error,
                )
            )
            self.emit(
                SessionSettled(session_id=self.session_id, run_id=self.id, leaf_id=session.leaf_id)
            )
        session.release(self)
