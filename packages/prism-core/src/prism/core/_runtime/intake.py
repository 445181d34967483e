"""What a run is told: its input, queued input, and answers to what an earlier run left open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from prism.core._contracts import ContextPayload, ContextRequest, InputPayload, InputRequest
from prism.core._errors import UsageError
from prism.core._runtime.approvals import approval_record, open_approvals, permission_error
from prism.core._runtime.checks import given_list
from prism.core._runtime.preflight import Slot
from prism.core._support.results import error_result, result_message
from prism.core._wire import (
    ContentBlock,
    CustomEntry,
    ErrorInfo,
    ImageBlock,
    Message,
    MessageEntry,
    ModelChanged,
    ModelChangeEntry,
    NativeBlock,
    OpaqueBlock,
    SessionEntry,
    TextBlock,
    ToolApprovalResolved,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.prompt import resolve_context

if TYPE_CHECKING:
    from prism.core._runtime.log import Draft
    from prism.core._runtime.run_state import RunState

DENIED_BY_PROMPT = "a new prompt came first"


async def build_input(run: RunState, value: Any, *, first: bool) -> list[Message]:
    """The messages that an input becomes, after `input_assembly` middleware, redacted.

    Raises:
        UsageError: it is no input, or it has the result of a call that nobody made.
    """
    request = InputRequest(
        session_id=run.session_id,
        run_id=run.id,
        input=value,
        attachments=run.options.attachments if first else (),
        metadata=run.options.metadata,
    )
    messages: object = await run.agent.input_builder.build(request)
    if run.has_hook("input_assembly"):
        payload = await run.hook(
            "input_assembly",
            InputPayload(session_id=run.session_id, run_id=run.id, messages=_messages_of(messages)),
        )
        messages = given_list(Message, payload.messages, "input_assembly")
    built = [run.redactor.redact_message(message) for message in _messages_of(messages)]
    if not built:
        raise UsageError("The input became no message.", details={"reason": "empty_input"})
    _check_results(run, built)
    return built


def _messages_of(value: object) -> list[Message]:
    if isinstance(value, list | tuple):
        items: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        messages = [item for item in items if isinstance(item, Message)]
        if len(messages) == len(items):
            return messages
    raise UsageError(
        "An input builder must give a list of messages.", details={"reason": "invalid_input"}
    )


def _check_results(run: RunState, messages: Iterable[Message]) -> None:
    """Refuse results in an input that answer no open call: no provider takes them."""
    answered = _answered_in(messages)
    if not answered:
        return
    for call in run.session.log.history.pairs.open_calls:
        answered.discard(call.id)
    if answered:
        raise UsageError(
            f"The input has results of calls that are not open: {', '.join(sorted(answered))}.",
            details={"reason": "unknown_call"},
        )


def _answered_in(messages: Iterable[Message]) -> set[str]:
    return {
        block.tool_call_id
        for message in messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    }


async def gather_context(run: RunState) -> list[ContentBlock]:
    """What the context providers and the run's options give, asked once a run."""
    blocks: list[ContentBlock] = list(run.options.context)
    if run.agent.context:
        request = ContextRequest(
            session_id=run.session_id, run_id=run.id, metadata=run.options.metadata
        )
        blocks = [*await resolve_context(run.agent.context, request), *blocks]
    if run.has_hook("context"):
        payload = await run.hook(
            "context", ContextPayload(session_id=run.session_id, run_id=run.id, blocks=blocks)
        )
        kinds = TextBlock | ImageBlock | NativeBlock | OpaqueBlock
        blocks = given_list(kinds, payload.blocks, "context")
    return [run.redactor.redact_block(block) for block in blocks]


async def accept_input(run: RunState, messages: list[Message]) -> list[str]:
    """Store a run's input, with a change of model before it, in one batch.

    Returns:
        The ids of the message entries.
    """
    agent = run.agent
    history = run.session.log.history
    model_before = history.model or agent.model
    level_before = history.thinking_level or agent.thinking_level
    level = run.options.thinking_level or level_before
    new_model = run.model != model_before
    if messages:
        await _deny_open_approvals(run, answered=_answered_in(messages))
    # Nothing stands between a call and its result, not even a change of model.
    drafts: list[Draft] = [
        (MessageEntry, {"message": message}) for message in messages if message.role == "tool"
    ]
    if new_model or level != level_before:
        fields: dict[str, Any] = {"thinking_level": level}
        if new_model:
            fields |= {"model": run.model, "previous_model": model_before}
        drafts.append((ModelChangeEntry, fields))
    drafts += [
        (MessageEntry, {"message": message}) for message in messages if message.role != "tool"
    ]
    if not drafts:
        return []
    stored = await run.store(drafts)
    if new_model or level != level_before:
        run.emit(
            ModelChanged(
                session_id=run.session_id,
                run_id=run.id,
                model=run.model,
                previous_model=model_before if new_model else None,
                thinking_level=level,
            )
        )
    return [entry.id for entry in stored if isinstance(entry, MessageEntry)]


async def deliver(run: RunState, items: list[Any], queue: list[Any]) -> list[str]:
    """Store queued input; what does not get into the store goes back to the front of *queue*.

    Only an item that is itself refused, by an input builder or a guard, does not go back: it
    would fail every run to come.

    Returns:
        The ids of the message entries.
    """
    if not items:
        return []
    back = list(items)
    try:
        messages: list[Message] = []
        for item in items:
            try:
                messages += await build_input(run, item, first=False)
            except Exception:
                back.remove(item)
                raise
        stored: list[SessionEntry] = await run.store(
            (MessageEntry, {"message": message}) for message in messages
        )
        back.clear()
    finally:
        queue[:0] = back
        run.session.say_queue(run)
    return [entry.id for entry in stored]


async def _deny_open_approvals(run: RunState, *, answered: set[str]) -> None:
    """A new prompt answers what was still open with no."""
    drafts: list[Draft] = []
    denied: list[tuple[str, ToolCallBlock]] = []
    for approval_id, call in open_approvals(run.session).items():
        if call.id in answered:
            continue
        data = approval_record(approval_id, call.id, "denied", reason=DENIED_BY_PROMPT)
        result = error_result(call, permission_error(call.name, DENIED_BY_PROMPT))
        drafts += [
            (CustomEntry, {"data": data}),
            (MessageEntry, {"message": result_message(result)}),
        ]
        denied.append((approval_id, call))
    if not drafts:
        return
    await run.store(drafts)
    for approval_id, call in denied:
        run.emit(
            ToolApprovalResolved(
                session_id=run.session_id,
                run_id=run.id,
                approval_id=approval_id,
                call=call,
                decision="denied",
                by="prompt",
                reason=DENIED_BY_PROMPT,
            )
        )


def open_slots(run: RunState) -> list[Slot]:
    """Calls that an earlier run left open; those that were approved meanwhile may run."""
    history = run.session.log.history
    slots: list[Slot] = []
    for call in history.pairs.open_calls:
        record = history.approvals.get(call.id, {})
        state = record.get("state")
        approved = call
        if state in {"allowed", "edited"} and isinstance(record.get("arguments"), dict):
            arguments: dict[str, Any] = record["arguments"]
            approved = ToolCallBlock(id=call.id, name=call.name, arguments=arguments)
        slot = Slot(approved, approved, approved=state in {"allowed", "edited"})
        if state == "denied":
            slot.block("permission_denied", permission_error(call.name, record.get("reason")))
        elif state not in {"allowed", "edited", "requested"}:
            error = ErrorInfo(
                code="interrupted",
                message="The call was interrupted; it may or may not have run.",
            )
            slot.block("skipped", error)
        slots.append(slot)
    return slots
