"""Hooks of a run, and what each may see and change. Payloads are copies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from prism.core._contracts.compaction import CompactionContext, CompactionResult
from prism.core._contracts.provider import ProviderRequest
from prism.core._contracts.retry import RetryContext, RetryDecision
from prism.core._wire import ContentBlock, Message, ToolCallBlock, ToolResult

HOOKS: Final = (
    "session_start",
    "input_assembly",
    "context",
    "prompt_build",
    "provider_request",
    "tool_call",
    "tool_result",
    "retry",
    "compaction_request",
    "compaction",
    "session_shutdown",
)
"""Every hook, in the order in which a run meets them."""

MiddlewarePolicy: TypeAlias = Literal["event", "throw"]
"""A failing middleware becomes an `extension_error` event, or fails the run."""


class SessionPayload(msgspec.Struct, frozen=True, kw_only=True):
    """`session_start` and `session_shutdown`: nothing to change."""

    session_id: str


class InputPayload(msgspec.Struct, frozen=True, kw_only=True):
    """`input_assembly`: the messages that a run's input became, before they are stored."""

    session_id: str
    run_id: str
    messages: Sequence[Message]


class ContextPayload(msgspec.Struct, frozen=True, kw_only=True):
    """`context`: what the context providers gave for this run."""

    session_id: str
    run_id: str
    blocks: Sequence[ContentBlock]


class PromptPayload(msgspec.Struct, frozen=True, kw_only=True):
    """`prompt_build`: the assembled system prompt and conversation."""

    session_id: str
    run_id: str
    system: Sequence[str]
    messages: Sequence[Message]


class ProviderRequestPayload(msgspec.Struct, frozen=True, kw_only=True):
    """`provider_request`: after the request policies; tools may be taken away, never added."""

    session_id: str
    run_id: str
    turn: int
    request: ProviderRequest


class ToolCallPayload(msgspec.Struct, frozen=True, kw_only=True):
    """`tool_call`: the call may get other arguments, or a reason not to run.

    Changed arguments are validated again; name and id stay.
    """

    session_id: str
    run_id: str
    call: ToolCallBlock
    blocked_reason: str | None = None


class ToolResultPayload(msgspec.Struct, frozen=True, kw_only=True):
    """`tool_result`: the result may be changed before it is stored; id and name stay."""

    session_id: str
    run_id: str
    call: ToolCallBlock
    result: ToolResult


class RetryPayload(msgspec.Struct, frozen=True, kw_only=True):
    """`retry`: the decision may be stopped or its delay shortened."""

    context: RetryContext
    decision: RetryDecision


class CompactionRequestPayload(msgspec.Struct, frozen=True, kw_only=True):
    """`compaction_request`: the entries may be rewritten for the strategy."""

    context: CompactionContext


class CompactionPayload(msgspec.Struct, frozen=True, kw_only=True):
    """`compaction`: the result may be changed; it is validated afterwards."""

    context: CompactionContext
    result: CompactionResult


Next: TypeAlias = Callable[[Any], Awaitable[Any]]


class Middleware(Protocol):
    """One step of a hook.

    It takes the payload, and returns another or `None` for unchanged. One that takes a second
    argument gets `next`: what it awaits from `next(payload)` is the rest of the chain's result.
    """

    def __call__(self, payload: Any, /, *args: Any) -> Any:
        """Handle the payload; sync or async."""
        ...


class MiddlewareFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A middleware that failed under the policy `event`."""

    hook: str
    name: str
    error: Exception
