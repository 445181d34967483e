"""Calls that wait for somebody's word, also over a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec

from prism.core._errors import UsageError
from prism.core._runtime.history import APPROVAL_TYPE
from prism.core._wire import (
    CustomEntry,
    ErrorInfo,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolCallBlock,
    to_plain,
)
from prism.core.tools import validate_arguments

if TYPE_CHECKING:
    from prism.core._runtime.run_state import RunState
    from prism.core._runtime.session_base import SessionBase


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The word: `allowed`, `edited` (with other arguments) or `denied`."""

    decision: str
    arguments: dict[str, Any] | None = None
    reason: str | None = None


class PendingApproval:
    """A call whose run waits.

    Attributes:
        answering: An answer is being stored.
        answer: The word, once it is stored.
        changed: Set when there is something to look at.
    """

    __slots__ = ("answer", "answering", "call", "changed")

    def __init__(self, call: ToolCallBlock) -> None:
        self.call: ToolCallBlock = call
        self.answering: bool = False
        self.answer: ApprovalAnswer | None = None
        self.changed: anyio.Event = anyio.Event()


def approval_record(
    approval_id: str,
    call_id: str,
    state: str,
    *,
    arguments: dict[str, Any] | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    """The `custom` data that survives a restart."""
    record: dict[str, Any] = {
        "type": APPROVAL_TYPE,
        "approvalId": approval_id,
        "toolCallId": call_id,
        "state": state,
    }
    if arguments is not None:
        record["arguments"] = arguments
    if reason is not None:
        record["reason"] = reason
    return record


def permission_error(name: str, reason: str | None) -> ErrorInfo:
    """What the model is told of a call that was not permitted."""
    why = f": {reason}" if reason else ""
    return ErrorInfo(
        code="permission_denied", message=f"Permission to call {name!r} was denied{why}."
    )


def check_answer(decision: object, arguments: object, reason: object) -> ApprovalAnswer:
    """An answer as a host or a client gives it.

    Raises:
        UsageError: it is none.
    """
    if decision not in ("allowed", "edited", "denied"):
        raise UsageError(f"A decision is allowed, edited or denied, not {decision!r}.")
    if (decision == "edited") != (arguments is not None):
        raise UsageError("Arguments go with the decision `edited`, and only with it.")
    if arguments is not None and not isinstance(arguments, dict):
        raise UsageError(f"The arguments must be an object, not {type(arguments).__name__}.")
    if reason is not None and not isinstance(reason, str):
        raise UsageError(f"The reason must be a string, not {type(reason).__name__}.")
    plain: dict[str, Any] | None = to_plain(cast("object", arguments))
    return ApprovalAnswer(decision=str(decision), arguments=plain, reason=reason)


async def record_answer(
    session: SessionBase,
    approval_id: str,
    answer: ApprovalAnswer,
    *,
    by: str,
    run: RunState | None,
) -> None:
    """Store an answer, tell the readers, and wake the run that waits for it.

    Raises:
        UsageError: `approval_not_found`; `invalid_arguments` for edited arguments that the tool
            does not take, in which case the approval stays open.
    """
    pending = session.approvals.get(approval_id)
    call = open_approvals(session).get(approval_id) if pending is None else pending.call
    if call is None or (pending is not None and (pending.answering or pending.answer is not None)):
        raise UsageError(f"No approval {approval_id!r} is open.", code="approval_not_found")
    if answer.arguments is not None:
        tool = session.agent.tools.get(call.name)
        if tool is not None:
            edited = ToolCallBlock(id=call.id, name=call.name, arguments=answer.arguments)
            validate_arguments(tool, edited)
    reason = None if answer.reason is None else session.redactor.redact_text(answer.reason)
    arguments = answer.arguments
    if arguments is None and answer.decision == "allowed":
        # What was approved is what was shown, also when that was not what the model had written.
        arguments = session.log.history.approvals.get(call.id, {}).get("arguments")
    data = approval_record(
        approval_id,
        call.id,
        answer.decision,
        arguments=None if arguments is None else session.redactor.redact_value(arguments),
        reason=reason,
    )
    run_id = None if run is None else run.id
    if pending is not None:
        pending.answering = True
    try:
        await session.log.append([(CustomEntry, {"data": data})], run_id=run_id)
        if pending is not None:
            pending.answer = answer
        session.emit(
            ToolApprovalResolved(
                session_id=session.id,
                run_id=run_id,
                approval_id=approval_id,
                call=call,
                decision=answer.decision,
                by=by,
                reason=reason,
            )
        )
    finally:
        if pending is not None:
            pending.answering = False
            pending.changed.set()


def open_approvals(session: SessionBase) -> dict[str, ToolCallBlock]:
    """Calls of the branch that wait for somebody's word, by approval id."""
    history = session.log.history
    if not history.approvals:
        return {}
    found: dict[str, ToolCallBlock] = {}
    for call in history.pairs.open_calls:
        record = history.approvals.get(call.id)
        if record is not None and record.get("state") == "requested":
            found[str(record.get("approvalId"))] = call
    return found


class Approvals:
    """The approvals of one run.

    Attributes:
        waiting: Whether the run waits for somebody's word now.
    """

    __slots__ = ("_run", "waiting")

    def __init__(self, run: RunState) -> None:
        self._run = run
        self.waiting: PendingApproval | None = None

    def wake(self) -> None:
        """Something was said to the model: it need not wait for an answer any more."""
        if self.waiting is not None:
            self.waiting.changed.set()

    def record_of(self, call_id: str) -> dict[str, Any]:
        """What was last recorded about the call; empty when it never needed an approval."""
        return self._run.session.log.history.approvals.get(call_id, {})

    async def request(
        self, call: ToolCallBlock, reason: str | None, *, arguments: dict[str, Any] | None
    ) -> str:
        """Record and announce that a call waits.

        Args:
            call: As it will run.
            reason: Of the policy that asks.
            arguments: When they are not those that the model wrote.
        """
        run = self._run
        reason = None if reason is None else run.redactor.redact_text(reason)
        record = self.record_of(call.id)
        if record.get("state") == "requested" and record.get("arguments") == arguments:
            approval_id = str(record.get("approvalId"))
        else:
            approval_id = run.agent.id_maker("approval")
            data = approval_record(
                approval_id, call.id, "requested", arguments=arguments, reason=reason
            )
            await run.store([(CustomEntry, {"data": data})])
        run.session.approvals[approval_id] = PendingApproval(call)
        run.emit(
            ToolApprovalRequested(
                session_id=run.session_id,
                run_id=run.id,
                approval_id=approval_id,
                call=call,
                reason=reason,
            )
        )
        return approval_id

    async def wait(self, approval_id: str) -> ApprovalAnswer | None:
        """Somebody's word, once it is recorded; `None` when steering input came first."""
        session = self._run.session
        pending = session.approvals[approval_id]
        self.waiting = pending
        try:
            while pending.answer is None:
                if session.inbox.steer and not pending.answering:
                    return None
                await pending.changed.wait()
                pending.changed = anyio.Event()
        finally:
            self.waiting = None
        del session.approvals[approval_id]
        return pending.answer

    async def resolve(
        self, approval_id: str, decision: str, *, by: str, reason: str | None = None
    ) -> None:
        """Answer in somebody's place."""
        run = self._run
        answer = ApprovalAnswer(decision=decision, reason=reason)
        await record_answer(run.session, approval_id, answer, by=by, run=run)

    async def dismiss(self, approval_id: str, *, by: str, reason: str) -> None:
        """Deny a call that nobody has answered, if it is still open, and forget it."""
        pending = self._run.session.approvals.get(approval_id)
        if pending is None:
            return
        try:
            if pending.answer is None and not pending.answering:
                await self.resolve(approval_id, "denied", by=by, reason=reason)
        finally:
            self._run.session.approvals.pop(approval_id, None)
