"""One provider turn: its request, its attempts, its message in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anyio.lowlevel import checkpoint_if_cancelled
from msgspec import structs

from prism.core._contracts import (
    BuiltPrompt,
    PromptInput,
    PromptPayload,
    ProviderRequest,
    ProviderRequestPayload,
    RetryContext,
    RetryDecision,
    RetryPayload,
)
from prism.core._errors import MiddlewareError
from prism.core._retry import MAX_DELAY_MS, DefaultRetryPolicy, wait_for_retry
from prism.core._runtime.attempt import Attempt
from prism.core._runtime.checks import given, given_list, made
from prism.core._runtime.compact import try_compact
from prism.core._runtime.request import apply_policies, finish_request, request_options
from prism.core._support.limits import non_negative_number
from prism.core._wire import (
    ErrorInfo,
    Message,
    MessageEntry,
    MessageFinished,
    NativeBlock,
    RetryScheduled,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

if TYPE_CHECKING:
    from prism.core._runtime.run_state import RunState


class TurnFailed(Exception):  # noqa: N818
    """Carries a provider's failure out of the loop; never leaves the run."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


async def ask(run: RunState) -> Attempt:
    """Ask the model once, with retries while nothing of its answer was seen.

    Returns:
        The attempt that succeeded; its message is stored.

    Raises:
        TurnFailed: The last attempt failed.
    """
    tries = 1
    repaired = False
    request = await build_request(run, strip_reasoning=False)
    while True:
        attempt = run.new_attempt()
        error = await attempt.consume(run.provider, request)
        if error is None:
            message = attempt.message()
            if message is not None:
                await store_message(run, attempt, message)
            elif attempt.started:
                close_message(run)
            return attempt
        # A provider may have made an error of the cancellation.
        await checkpoint_if_cancelled()
        if attempt.started:
            raise TurnFailed(error)
        if error.code == "context_overflow":
            if not await _compact_overflow(run):
                raise TurnFailed(error)
            request = await build_request(run, strip_reasoning=repaired)
        elif error.code == "replay_invalid" and not repaired:
            repaired = True
            run.warn(
                "reasoning_dropped",
                "The provider refused replayed reasoning; the turn is sent again without it.",
            )
            request = await build_request(run, strip_reasoning=True)
        else:
            await _wait_to_retry(run, tries, error)
            tries += 1


async def store_message(
    run: RunState, attempt: Attempt, message: Message, *, partial: bool | None = None
) -> None:
    """Store an assistant message, then tell the readers."""
    (entry,) = await run.store([(MessageEntry, {"message": message})])
    run.message = message
    attempt.stored = True
    run.emit(
        MessageFinished(
            session_id=run.session_id,
            run_id=run.id,
            message=message,
            entry_id=entry.id,
            partial=partial,
        )
    )


def close_message(run: RunState) -> None:
    """End a message of which nothing is stored."""
    run.emit(
        MessageFinished(
            session_id=run.session_id,
            run_id=run.id,
            message=Message(role="assistant", content=[]),
            partial=True,
        )
    )


async def _compact_overflow(run: RunState) -> bool:
    """At most once a run: compact, and say whether the context shrank."""
    options = run.agent.compaction_for(run.options)
    if options is None or options.on_overflow != "compact" or run.compacted_overflow:
        return False
    run.compacted_overflow = True
    before = len(run.session.log.history.pairs.messages)
    result = await try_compact(run, options, trigger="overflow")
    return result is not None and len(run.session.log.history.pairs.messages) < before


# Retry


async def _wait_to_retry(run: RunState, tries: int, error: ErrorInfo) -> None:
    decision = await _decide(run, tries, error)
    if not decision.retry:
        if decision.reason:
            details = {**(error.details or {}), "retry": decision.reason}
            error = structs.replace(error, details=details)
        raise TurnFailed(error)
    run.emit(
        RetryScheduled(
            session_id=run.session_id,
            run_id=run.id,
            attempt=tries + 1,
            delay_ms=decision.delay_ms,
            error=run.redactor.redact_error(error),
        )
    )
    await wait_for_retry(decision)


async def _decide(run: RunState, tries: int, error: ErrorInfo) -> RetryDecision:
    options = run.agent.retry_for(run.options)
    if options is None:
        return RetryDecision(retry=False)
    context = RetryContext(
        session_id=run.session_id,
        run_id=run.id,
        attempt=tries,
        max_attempts=options.max_attempts,
        error=run.redactor.redact_error(error),
        metadata=options.metadata,
    )
    policy = options.policy or DefaultRetryPolicy(options)
    decision = made(RetryDecision, policy.decide(context), "The retry policy")
    if not decision.retry:
        return decision
    non_negative_number("delay_ms", decision.delay_ms, cap=MAX_DELAY_MS)
    if run.has_hook("retry"):
        payload = await run.hook("retry", RetryPayload(context=context, decision=decision))
        changed = given(RetryDecision, payload.decision, "retry")
        # Middleware may stop a retry or shorten its wait, never start or lengthen one.
        non_negative_number("delay_ms", changed.delay_ms, cap=MAX_DELAY_MS)
        delay_ms = min(changed.delay_ms, decision.delay_ms)
        decision = structs.replace(changed, delay_ms=delay_ms)
    return decision


# The request


async def build_request(run: RunState, *, strip_reasoning: bool) -> ProviderRequest:
    """The request of this turn, built from what is stored."""
    agent = run.agent
    history = run.session.log.history
    built = agent.prompt_builder.build(
        PromptInput(
            session_id=run.session_id,
            run_id=run.id,
            system=run.system,
            context=run.context,
            summaries=history.summaries,
            messages=history.pairs.snapshot(),
        )
    )
    built = made(BuiltPrompt, built, "The prompt builder")
    system, messages = built.system, built.messages
    if run.has_hook("prompt_build"):
        payload = await run.hook(
            "prompt_build",
            PromptPayload(
                session_id=run.session_id, run_id=run.id, system=system, messages=messages
            ),
        )
        system = given_list(str, payload.system, "prompt_build")
        messages = given_list(Message, payload.messages, "prompt_build")
    if strip_reasoning:
        messages = without_reasoning(messages)
    output = run.output
    schema = output.schema if output is not None and output.mode == "schema" else None
    request = ProviderRequest(
        model=run.model,
        system=system,
        messages=messages,
        tools=run.tool_specs,
        options=request_options(run),
        output_schema=schema,
        metadata=run.options.metadata,
    )
    changed = apply_policies(run, request)
    if run.has_hook("provider_request"):
        changed = await _ask_middleware(run, changed)
    return finish_request(run, request, changed)


async def _ask_middleware(run: RunState, request: ProviderRequest) -> ProviderRequest:
    payload = await run.hook(
        "provider_request",
        ProviderRequestPayload(
            session_id=run.session_id, run_id=run.id, turn=run.turn_number, request=request
        ),
    )
    changed = given(ProviderRequest, payload.request, "provider_request")
    added = ", ".join(spec.name for spec in changed.tools if spec.name not in run.tools)
    if added:
        raise MiddlewareError(
            f"A provider_request middleware added the tools {added}; middleware may only take "
            "tools away."
        )
    return changed


def without_reasoning(messages: Sequence[Message]) -> list[Message]:
    """The messages without thinking and replay state; what then is empty goes.

    A vendor's own items hang on the reasoning beside them, but for a compaction: it stands for
    messages that are no longer there.
    """
    kept: list[Message] = []
    for message in messages:
        if message.role != "assistant":
            kept.append(message)
            continue
        content = [
            structs.replace(block, replay=None)
            if isinstance(block, TextBlock | ToolCallBlock) and block.replay is not None
            else block
            for block in message.content
            if not isinstance(block, ThinkingBlock)
            and not (isinstance(block, NativeBlock) and block.kind != "compaction")
        ]
        if content:
            kept.append(structs.replace(message, content=content))
    return kept
