"""The calls of one assistant message: checked in order, run side by side, answered in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio import CancelScope
from anyio.lowlevel import checkpoint_if_cancelled

from prism.core._contracts import Tool, ToolContext, ToolResultPayload
from prism.core._errors import EncodeError
from prism.core._runtime.approvals import permission_error
from prism.core._runtime.checks import given
from prism.core._runtime.preflight import Preflight, Slot
from prism.core._runtime.reports import Reports
from prism.core._wire import (
    ErrorInfo,
    Message,
    MessageEntry,
    ToolCallBlock,
    ToolExecutionBlocked,
    ToolExecutionError,
    ToolExecutionFinished,
    ToolExecutionStarted,
    ToolResult,
    encode,
    has_non_finite,
)
from prism.core.tools import ToolOutcome, error_result, execute_tool, result_message

if TYPE_CHECKING:
    from prism.core._runtime.run_state import RunState

SKIPPED: Final = ErrorInfo(code="skipped", message="Skipped: the user said something new.")
ABORTED: Final = ErrorInfo(code="aborted", message="The run was aborted before the call finished.")
UNKNOWN_OUTCOME: Final = ErrorInfo(
    code="outcome_unknown",
    message="The run ended, and the tool did not stop in time; it may still have its effect.",
)
UNCHECKED: Final = ErrorInfo(
    code="interrupted",
    message="The call was made, but the run ended before its result was checked and kept.",
)
CRASHED: Final = ErrorInfo(code="tool_error", message="The tool ended the program.")


class Batch:
    """Schedules the calls of one message for a run.

    `execute` is the ordinary way. After a failure or an abort `finish` gives every call that has
    no result one, however far the batch was.
    """

    def __init__(self, run: RunState, slots: Sequence[Slot], tools: Mapping[str, Tool]) -> None:
        self._run = run
        self._preflight = Preflight(run, tools)
        self.slots: list[Slot] = list(slots)
        self._running = 0
        self._done: deque[Slot] = deque()
        self._changed: anyio.Event | None = None
        self._last_begun: anyio.Event | None = None
        self._flushed = 0
        self._reports = Reports(run)

    async def execute(self) -> None:
        """Check all calls, run those that may, and store every result."""
        for slot in self.slots:
            await self._preflight.check(slot)
        for slot in self.slots:
            if slot.approval_id is not None and slot.reason is None:
                await self._await_approval(slot, slot.approval_id)
        for slot in self.slots:
            if slot.reason is None:
                await self._make_room(slot)
            if slot.reason is None and self._run.session.inbox.steer:
                slot.block("skipped", SKIPPED)
            if slot.reason is not None:
                self._answer_blocked(slot)
            else:
                self._start(slot)
        # A tool may end while the result of another one is being stored.
        while self._running or self._done:
            await self._wait()
        await self._flush()

    async def _await_approval(self, slot: Slot, approval_id: str) -> None:
        approvals = self._run.approvals
        answer = await approvals.wait(approval_id)
        if answer is None:
            slot.block("skipped", SKIPPED)
            await approvals.dismiss(approval_id, by="steer", reason="the user said something new")
        elif answer.decision == "denied":
            reason = answer.reason
            if reason is not None:
                reason = self._run.redactor.redact_text(reason)
            slot.block("permission_denied", permission_error(slot.call.name, reason))
        elif answer.decision == "edited" and answer.arguments is not None:
            await self._preflight.take_arguments(slot, answer.arguments)

    async def _make_room(self, slot: Slot) -> None:
        """Until the call may start beside those that run."""
        assert slot.tool is not None  # noqa: S101
        limit = self._run.agent.max_parallel_tools
        while self._running and (
            slot.tool.sequential or self._running >= limit or self._runs_alone()
        ):
            await self._wait()
        # An abort or a cancellation that nothing has waited for yet: no tool starts after it.
        await checkpoint_if_cancelled()

    def _runs_alone(self) -> bool:
        return any(
            slot.started and slot.outcome is None and slot.tool is not None and slot.tool.sequential
            for slot in self.slots
        )

    # The call

    def _start(self, slot: Slot) -> None:
        run = self._run
        run.emit(ToolExecutionStarted(session_id=run.session_id, run_id=run.id, call=slot.call))
        slot.started = True
        slot.scope = CancelScope()
        before = self._last_begun
        # Only a call that others follow has to tell when it begins.
        self._last_begun = anyio.Event() if len(self.slots) > 1 else None
        self._running += 1
        run.tool_calls += 1
        run.group.start_soon(self._run_tool, slot, slot.scope, before, self._last_begun)

    async def _run_tool(
        self,
        slot: Slot,
        scope: CancelScope,
        before: anyio.Event | None,
        begun: anyio.Event | None,
    ) -> None:
        run = self._run
        assert slot.tool is not None  # noqa: S101
        context = ToolContext(
            session_id=run.session_id,
            run_id=run.id,
            tool_call_id=slot.call.id,
            metadata=run.options.metadata,
            report=self._reports.progress_of(slot),
            redact=run.redactor.redact_value if run.redactor else None,
            report_usage=self._reports.usage_of(slot),
        )
        outcome: ToolOutcome | None = None
        try:
            with scope:
                # trio starts tasks in any order; calls start in source order.
                if before is not None and not before.is_set():
                    await before.wait()
                if begun is not None:
                    begun.set()
                slot.began = True
                outcome = await execute_tool(
                    slot.tool,
                    slot.raw_call,
                    slot.arguments,
                    context,
                    redact=run.redactor.redact_value if run.redactor else None,
                    own_task=True,
                )
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - raised by `run()`, where no group wraps it
            outcome = ToolOutcome(result=error_result(slot.call, CRASHED), raised=True)
            run.fail(_crash_in(error))
        finally:
            if begun is not None:
                begun.set()
            if not self._reports.closed:
                slot.outcome = outcome or _stopped(slot)
                self._running -= 1
                self._done.append(slot)
                if self._changed is not None:
                    self._changed.set()

    # After the call

    async def _wait(self) -> None:
        """Until a tool ends; then take in all that ended, and store what can be stored."""
        while not self._done:
            self._changed = anyio.Event()
            await self._changed.wait()
        while self._done:
            await self._take_result(self._done[0])
            self._done.popleft()
        await self._flush()

    async def _take_result(self, slot: Slot) -> None:
        run = self._run
        outcome = slot.outcome
        assert outcome is not None  # noqa: S101
        result = outcome.result
        if run.has_hook("tool_result"):
            payload = await run.hook(
                "tool_result",
                ToolResultPayload(
                    session_id=run.session_id, run_id=run.id, call=slot.raw_call, result=result
                ),
            )
            result = _checked(slot.call, result, payload.result)
        self._keep(slot, run.redactor.redact_value(result), raised=outcome.raised)

    def _keep(self, slot: Slot, result: ToolResult, *, raised: bool) -> None:
        run = self._run
        if raised and result.error is not None:
            run.emit(
                ToolExecutionError(
                    session_id=run.session_id, run_id=run.id, call=slot.call, error=result.error
                )
            )
        else:
            run.emit(ToolExecutionFinished(session_id=run.session_id, run_id=run.id, result=result))
        slot.result = result_message(result)

    def _answer_blocked(self, slot: Slot) -> None:
        run = self._run
        assert slot.reason is not None  # noqa: S101
        assert slot.error is not None  # noqa: S101
        run.emit(
            ToolExecutionBlocked(
                session_id=run.session_id,
                run_id=run.id,
                tool_call_id=slot.call.id,
                name=slot.call.name,
                reason=slot.reason,
                error=slot.error,
            )
        )
        slot.result = result_message(error_result(slot.call, slot.error))

    async def _flush(self) -> None:
        """Store the results that have none unanswered before them."""
        ready: list[Message] = []
        for slot in self.slots[self._flushed :]:
            if slot.result is None:
                break
            ready.append(slot.result)
        if ready:
            await self._run.store([(MessageEntry, {"message": message}) for message in ready])
            self._flushed += len(ready)

    async def finish(self, error: ErrorInfo, *, reason: str, grace_ms: int) -> None:
        """Give every unanswered call its result; the caller has shielded this.

        Args:
            error: For calls that had not started.
            reason: Of their `blocked` events: `aborted` or `skipped`.
            grace_ms: How long tools get to stop.
        """
        for slot in self.slots:
            if slot.scope is not None and slot.outcome is None:
                slot.scope.cancel()
        with anyio.move_on_after(grace_ms / 1000):
            while self._running:
                self._changed = anyio.Event()
                await self._changed.wait()
        self._reports.closed = True
        for slot in self.slots:
            if slot.result is None:
                self._answer_at_the_end(slot, error, reason)
        try:
            for slot in self.slots:
                if slot.approval_id is not None:
                    await self._run.approvals.dismiss(
                        slot.approval_id, by="abort", reason="the run ended"
                    )
        finally:
            await self._flush()

    def _answer_at_the_end(self, slot: Slot, error: ErrorInfo, reason: str) -> None:
        outcome = slot.outcome
        if outcome is not None:
            if not outcome.raised and self._run.has_hook("tool_result"):
                # What a guard has not passed is not shown to the model.
                self._keep(slot, error_result(slot.call, UNCHECKED), raised=True)
            else:
                result = self._run.redactor.redact_value(outcome.result)
                self._keep(slot, result, raised=outcome.raised)
        elif slot.started:
            self._keep(slot, error_result(slot.call, UNKNOWN_OUTCOME), raised=True)
        else:
            if slot.reason is None:
                slot.block(reason, error)
            self._answer_blocked(slot)


def _stopped(slot: Slot) -> ToolOutcome:
    """The outcome of a call that was cancelled from outside."""
    error = ABORTED
    if slot.began and slot.tool is not None and not _is_async(slot.tool.execute):
        error = UNKNOWN_OUTCOME  # its thread was left behind
    return ToolOutcome(result=error_result(slot.call, error), raised=True)


def _is_async(function: Callable[..., Any]) -> bool:
    call: object = getattr(function, "__call__", None)  # noqa: B004 - whether that is async
    return iscoroutinefunction(function) or iscoroutinefunction(call)


def _crash_in(error: BaseException) -> BaseException:
    """What a tool raised to end the program, without the group around it."""
    inner = error
    while isinstance(inner, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", inner)
        kinds = (anyio.get_cancelled_exc_class(), Exception)
        crashes = [each for each in group.exceptions if not isinstance(each, kinds)]
        inner = (crashes or group.exceptions)[0]
    return inner


def _checked(call: ToolCallBlock, before: ToolResult, after: object) -> ToolResult:
    """What `tool_result` middleware made of a result; id and name stay."""
    if after is before:
        return before
    changed = given(ToolResult, after, "tool_result")
    result = ToolResult(
        tool_call_id=before.tool_call_id,
        name=before.name,
        content=changed.content,
        value=changed.value,
        error=changed.error,
        metadata=changed.metadata,
    )
    try:
        encode(result)
        wrong = "NaN and Infinity are not JSON." if has_non_finite(result) else None
    except EncodeError as error:
        wrong = error.message
    if wrong is None:
        return result
    message = f"A tool_result middleware gave what cannot be a result: {wrong}"
    return error_result(call, ErrorInfo(code="invalid_result", message=message))
