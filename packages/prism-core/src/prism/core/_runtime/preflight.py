"""What is checked before a call may run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anyio import CancelScope

from prism.core._contracts import (
    PermissionDecision,
    PermissionRequest,
    Tool,
    ToolCallPayload,
)
from prism.core._errors import PermissionDenied, UsageError
from prism.core._runtime.approvals import permission_error
from prism.core._runtime.checks import given, given_object, made
from prism.core._support.errors import error_info
from prism.core._wire import ErrorInfo, Message, ToolCallBlock
from prism.core.tools import ToolOutcome, validate_arguments

if TYPE_CHECKING:
    from prism.core._runtime.run_state import RunState

MAX_SHOWN_TOOLS_CHARS = 2_000
"""Longest list of known tools in an error that the model reads."""

MAX_SHOWN_NAME_CHARS = 100


class Slot:
    """One call and how far it is.

    Attributes:
        call: As it is shown, redacted.
        raw_call: As it runs; the tool gets these arguments.
        approved: Somebody has allowed the call as it is.
        changed: Its arguments are not those that the model wrote.
        asks: Why somebody has to be asked first, when a policy says so.
        reason: Why the call never starts.
        began: The tool has been called.
        result: The message that answers the call, once there is one.
    """

    __slots__ = (
        "approval_id", "approved", "arguments", "asks", "began", "call", "changed", "error",
        "outcome", "raw_call", "reason", "result", "scope", "started", "tool",
    )  # fmt: skip

    def __init__(
        self, call: ToolCallBlock, raw_call: ToolCallBlock, *, approved: bool = False
    ) -> None:
        self.call = call
        self.raw_call = raw_call
        self.approved = approved
        self.changed = False
        self.tool: Tool | None = None
        self.arguments: dict[str, Any] = {}
        self.asks: PermissionDecision | None = None
        self.reason: str | None = None
        self.error: ErrorInfo | None = None
        self.approval_id: str | None = None
        self.started = False
        self.began = False
        self.scope: CancelScope | None = None
        self.outcome: ToolOutcome | None = None
        self.result: Message | None = None

    def block(self, reason: str, error: ErrorInfo) -> None:
        """Decide that the call never starts."""
        self.reason = reason
        self.error = error


class Preflight:
    """Checks calls for a run, one after the other in source order."""

    __slots__ = ("_run", "_tools")

    def __init__(self, run: RunState, tools: Mapping[str, Tool]) -> None:
        self._run = run
        self._tools = tools

    async def check(self, slot: Slot) -> None:
        """Known, permitted, valid, passed by middleware; and again when that changed it."""
        if slot.reason is not None:
            return
        slot.tool = self._tools.get(slot.raw_call.name)
        if slot.tool is None:
            self._refuse_unknown(slot)
            return
        for step in (self._ask_policy, self._validate, self._ask_middleware, self._ask_somebody):
            await step(slot)
            if slot.reason is not None:
                return

    async def take_arguments(self, slot: Slot, arguments: dict[str, Any]) -> None:
        """Use other arguments than the model's, when they are valid too."""
        call = slot.raw_call
        slot.raw_call = ToolCallBlock(id=call.id, name=call.name, arguments=arguments)
        slot.call = self._run.redactor.redact_value(slot.raw_call)
        await self._validate(slot)

    def _refuse_unknown(self, slot: Slot) -> None:
        name = slot.call.name[:MAX_SHOWN_NAME_CHARS]
        if slot.raw_call.name in self._run.agent.tools:
            slot.block(
                "tool_denied",
                ErrorInfo(code="tool_denied", message=f"Tool {name!r} is not allowed here."),
            )
            return
        known = ", ".join(sorted(self._tools)) or "none"
        slot.block(
            "unknown_tool",
            ErrorInfo(
                code="unknown_tool",
                message=f"There is no tool named {name!r}. "
                f"Known tools: {known[:MAX_SHOWN_TOOLS_CHARS]}.",
            ),
        )

    async def _validate(self, slot: Slot) -> None:
        assert slot.tool is not None  # noqa: S101
        try:
            slot.arguments = validate_arguments(slot.tool, slot.raw_call)
        except UsageError as error:
            info = error_info(error, redact=self._run.redactor.redact_text)
            reason = "invalid_arguments" if error.code == "invalid_arguments" else error.code
            slot.block(str(reason), self._run.redactor.redact_error(info))

    async def _ask_policy(self, slot: Slot) -> None:
        run = self._run
        policy = run.agent.permissions
        # To answer is no action that needs a permission.
        if policy is None or slot.tool is run.final_tool:
            return
        request = PermissionRequest(
            action="tool",
            name=slot.raw_call.name,
            session_id=run.session_id,
            run_id=run.id,
            call=slot.raw_call,
            metadata=run.options.metadata,
        )
        slot.asks = None
        try:
            decision = await policy.decide(request)
        except PermissionDenied as denied:
            decision = PermissionDecision(verdict="deny", reason=denied.message)
        decision = made(PermissionDecision, decision, "The permission policy")
        if decision.verdict == "ask":
            slot.asks = decision
        elif decision.verdict != "allow":
            self._deny(slot, decision.reason)

    def _deny(self, slot: Slot, reason: str | None) -> None:
        if reason is not None:
            reason = self._run.redactor.redact_text(reason)
        slot.block("permission_denied", permission_error(slot.call.name, reason))

    async def _ask_middleware(self, slot: Slot) -> None:
        run = self._run
        if not run.has_hook("tool_call"):
            return
        call = slot.raw_call
        payload = await run.hook(
            "tool_call", ToolCallPayload(session_id=run.session_id, run_id=run.id, call=call)
        )
        blocked: object = payload.blocked_reason
        if blocked is not None:
            message = run.redactor.redact_text(given(str, blocked, "tool_call"))
            slot.block("validation_failed", ErrorInfo(code="validation_failed", message=message))
            return
        changed = given(ToolCallBlock, payload.call, "tool_call")
        # Somebody has approved the arguments as they are, so nothing changes them any more.
        if changed.arguments == call.arguments or slot.approved:
            return
        slot.changed = True
        await self.take_arguments(slot, given_object(changed.arguments, "tool_call"))
        if slot.reason is None:
            await self._ask_policy(slot)

    async def _ask_somebody(self, slot: Slot) -> None:
        run = self._run
        if slot.asks is None:
            return
        record = run.approvals.record_of(slot.call.id)
        state = record.get("state")
        if slot.approved or state == "allowed":
            return
        if state == "edited":
            await self.take_arguments(slot, record.get("arguments") or {})
            return
        if state == "denied":
            self._deny(slot, record.get("reason"))
            return
        slot.approval_id = await run.approvals.request(
            slot.call, slot.asks.reason, arguments=slot.call.arguments if slot.changed else None
        )
        if run.options.approvals != "wait":
            await run.approvals.resolve(
                slot.approval_id, "denied", by="policy", reason="nobody can be asked"
            )
