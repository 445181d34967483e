"""A worker at work: a small agent with one tool, on any provider, within limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import anyio
import msgspec

from prism.core import (
    Agent,
    AgentFinished,
    DefaultRetryPolicy,
    ErrorInfo,
    MessageDelta,
    MessageFinished,
    MessageStarted,
    MiddlewareRegistry,
    ModelConfig,
    PrismError,
    ProviderOptions,
    RetryContext,
    RetryDecision,
    RetryOptions,
    RunAborted,
    SecretRedactor,
    Session,
    TextBlock,
    ThinkingBlock,
    Tool,
    ToolCallDelta,
    ToolContext,
    ToolError,
    Usage,
    encode,
    error_info,
)
from prism.core.providers import Provider
from prism.memory.observational._settings import ObservationalMemorySettings
from prism.memory.observational._workers.guard import RepetitionWatch

BASE_DELAY_MS: Final = 1_000
"""Wait before the second attempt of a request; it doubles before the third."""

MAX_ERROR_CHARS: Final = 1_024
"""Longest message of an error that is kept."""

Handler: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a call's arguments and gives its receipt."""


class WorkerTool(msgspec.Struct, frozen=True, kw_only=True):
    """The one tool of a worker; its handler only writes down what it is told."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    handle: Handler


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker run is made of.

    Attributes:
        name: `observer`, `reflector` or `dropper`.
        session_id: The session that is remembered; it names the worker's own session.
        nudge: Asked after each answer without calls for something more to say, once.
    """

    name: str
    session_id: str
    model: ModelConfig
    provider: Any
    system: str
    prompt: str
    tool: WorkerTool
    settings: ObservationalMemorySettings
    redactor: Any
    thinking_level: str | None = None
    options: ProviderOptions | None = None
    nudge: Any = None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker run ended.

    Attributes:
        error: Why it broke off; `None` when the model came to its own end.
        turns: Answers of the model.
        calls: Tool calls that were taken.
    """

    error: ErrorInfo | None = None
    turns: int = 0
    calls: int = 0
    usage: Usage | None = None


class _Budget:
    """Counts what a worker uses, and why it was stopped."""

    def __init__(self, settings: ObservationalMemorySettings) -> None:
        self.settings = settings
        self.turns = 0
        self.calls = 0
        self.calls_in_turn = 0
        self.bytes = 0
        self.usage: Usage | None = None
        self.stop: ErrorInfo | None = None
        self.retries = settings.max_retries
        self.retry_ms: float = settings.retry_budget_ms

    def refuse(self, code: str, message: str, limit: int | None = None) -> None:
        if self.stop is None:
            details = None if limit is None else {"limit": limit}
            self.stop = ErrorInfo(message=message, code=code, details=details)


class _Spent(Exception):  # noqa: N818
    """Keeps a request from being sent; the budget says why."""


class _RetryBudget:
    """A retry policy whose attempts and waits are shared by all turns of a worker run."""

    def __init__(self, budget: _Budget) -> None:
        self._budget = budget

    def decide(self, context: RetryContext) -> RetryDecision:
        budget = self._budget
        base = DefaultRetryPolicy(
            max_attempts=budget.settings.max_retries + 1,
            base_delay_ms=BASE_DELAY_MS,
            max_delay_ms=budget.settings.retry_budget_ms,
            max_retry_after_ms=budget.settings.retry_budget_ms,
        ).decide(context)
        if not base.retry:
            return base
        if budget.retries <= 0 or base.delay_ms > budget.retry_ms:
            return msgspec.structs.replace(
                base, retry=False, delay_ms=0, reason="The worker's retries are used up."
            )
        budget.retries -= 1
        budget.retry_ms -= base.delay_ms
        return base


async def converse(work: Assignment) -> Conversation:
    """Run a worker to its end. Its failures are returned, and only cancellation raises."""
    budget = _Budget(work.settings)
    error: ErrorInfo | None = None
    redactor: SecretRedactor = work.redactor
    try:
        agent = _agent(work, budget)
        session = agent.session(f"{work.session_id}/memory-{work.name}")
        prompt: str | None = work.prompt
        with anyio.fail_after(work.settings.worker_timeout_ms / 1000):
            while prompt is not None:
                await _speak(session, prompt, budget)
                nudge: Callable[[], str | None] | None = work.nudge
                prompt = None
                if (
                    nudge is not None
                    and budget.stop is None
                    and budget.turns < work.settings.agent_max_turns
                ):
                    prompt = nudge()
    except TimeoutError:
        limit = work.settings.worker_timeout_ms
        error = ErrorInfo(
            message=f"The worker took longer than {limit} ms.",
            code="timeout",
            details={"limit": limit},
        )
    except RunAborted:
        pass  # the budget says why
    except PrismError as failure:
        error = bounded_error(error_info(failure, redact=redactor.redact_text))
    return Conversation(
        error=budget.stop or error,
        turns=budget.turns,
        calls=budget.calls,
        usage=budget.usage,
    )


def bounded_error(error: ErrorInfo) -> ErrorInfo:
    """*error* with a message of at most `MAX_ERROR_CHARS`."""
    if len(error.message) <= MAX_ERROR_CHARS:
        return error
    return msgspec.structs.replace(error, message=error.message[: MAX_ERROR_CHARS - 1] + "…")


def _agent(work: Assignment, budget: _Budget) -> Agent:
    middleware = MiddlewareRegistry()

    def begin_turn(_payload: Any) -> None:
        limit = work.settings.agent_max_turns
        if budget.turns >= limit:
            budget.refuse("turn_limit", f"The worker did not end within {limit} turns.", limit)
            raise _Spent
        budget.turns += 1
        budget.calls_in_turn = 0

    middleware.use("provider_request", begin_turn, name="memory-worker", policy="throw")
    provider: Provider = work.provider
    return Agent(
        model=work.model,
        provider=provider,
        tools=[_tool(work.tool, budget)],
        system=work.system,
        thinking_level=work.thinking_level,
        options=work.options,
        middleware=middleware,
        redactor=work.redactor,
        retry=RetryOptions(policy=_RetryBudget(budget)),
        max_tool_rounds=work.settings.agent_max_turns,
        max_parallel_tools=1,
    )


def _tool(tool: WorkerTool, budget: _Budget) -> Tool:
    settings = budget.settings

    async def execute(arguments: dict[str, Any], _context: ToolContext) -> dict[str, Any]:
        budget.calls += 1
        budget.calls_in_turn += 1
        if budget.calls_in_turn > settings.max_calls_per_turn:
            limit = settings.max_calls_per_turn
            budget.refuse("too_many_calls", f"One answer has more than {limit} calls.", limit)
        elif budget.calls > settings.max_calls_per_run:
            limit = settings.max_calls_per_run
            budget.refuse("too_many_calls", f"The worker made more than {limit} calls.", limit)
        elif len(encode(arguments)) > settings.max_payload_bytes:
            raise ToolError(
                f"These arguments have more than {settings.max_payload_bytes} bytes; "
                "send fewer at a time.",
                code="arguments_too_large",
            )
        if budget.stop is not None:
            raise ToolError(budget.stop.message, code=str(budget.stop.code))
        return tool.handle(arguments)

    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        execute=execute,
        # Each item is checked by itself, so that one bad item does not cost the good ones.
        validate=lambda arguments: arguments,
        sequential=True,
        max_result_bytes=settings.max_payload_bytes,
    )


async def _speak(session: Session, prompt: str, budget: _Budget) -> None:
    """One run of the worker's agent, watched as it goes."""
    settings = budget.settings
    budget.bytes += len(prompt.encode("utf-8", "surrogatepass"))
    watch = RepetitionWatch()
    arguments: dict[int, int] = {}
    async with session.stream(prompt) as events:
        async for event in events:
            match event:
                case MessageStarted():
                    watch = RepetitionWatch()
                    arguments = {}
                case MessageDelta(content=TextBlock() | ThinkingBlock() as block):
                    _count(budget, block.text)
                    if watch.feed(block.text):
                        budget.refuse("degenerate_output", "The model repeats itself.")
                case ToolCallDelta(index=index, arguments_text=text):
                    _count(budget, text)
                    arguments[index] = arguments.get(index, 0) + len(text)
                    if arguments[index] > settings.max_payload_bytes:
                        limit = settings.max_payload_bytes
                        budget.refuse(
                            "arguments_too_large", f"A call has more than {limit} bytes.", limit
                        )
                case MessageFinished(message=message):
                    _judge_stop(budget, message.stop_reason)
                case AgentFinished(usage=Usage() as usage):
                    budget.usage = usage if budget.usage is None else budget.usage + usage
                case _:
                    pass
            if budget.stop is not None:
                session.abort(budget.stop.message)


def _count(budget: _Budget, text: str) -> None:
    budget.bytes += len(text)
    limit = budget.settings.max_transcript_bytes
    if budget.bytes > limit:
        budget.refuse("transcript_too_large", f"The worker said more than {limit} bytes.", limit)


def _judge_stop(budget: _Budget, stop_reason: str | None) -> None:
    if stop_reason in {"length", "context_limit"}:
        budget.refuse("length", "The model's answer was cut at its length limit.")
    elif stop_reason == "refusal":
        budget.refuse("refusal", "The model refused.")
