"""What a host may say about one run, and what it gets back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from prism.core._contracts import CompactionOptions, RetryOptions
from prism.core._support.redaction import SecretRedactor
from prism.core._wire import (
    ContentBlock,
    ErrorInfo,
    Message,
    ModelConfig,
    ProviderOptions,
    Usage,
    UsageLimits,
)

ApprovalMode: TypeAlias = Literal["deny", "wait"]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Overrides of the agent's configuration for one run; `None` leaves the agent's.

    Attributes:
        model: From this run on, the branch's model.
        thinking_level: From this run on, the branch's thinking level.
        tools: Names of the only tools that the model may use.
        system: A part of the system prompt that follows the agent's.
        attachments: Blocks that follow the input.
        context: Blocks that the model sees in this run and that are not stored.
        max_tool_rounds: Batches of calls that are executed.
        compaction: `False` turns auto-compaction off.
        retry: `False` turns retrying off.
        redactor: Its secrets are added to the agent's.
        limits: Ends the run when reached.
        approvals: `wait`: somebody will call `answer_approval`; `deny`: nobody will.
        options: Merged over the agent's provider options.
        metadata: For tools, policies and context providers; never sent to the model.
        output: A type; the answer is validated against it and stands in `RunResult.output`.
    """

    model: ModelConfig | None = None
    thinking_level: str | None = None
    tools: Sequence[str] | None = None
    system: str | Sequence[str] | None = None
    attachments: Sequence[ContentBlock] = ()
    context: Sequence[ContentBlock] = ()
    max_tool_rounds: int | None = None
    compaction: CompactionOptions | Literal[False] | None = None
    retry: RetryOptions | Literal[False] | None = None
    redactor: SecretRedactor | None = None
    limits: UsageLimits | None = None
    approvals: ApprovalMode = "deny"
    options: ProviderOptions | None = None
    metadata: dict[str, Any] | None = None
    output: Any = None


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended.

    Attributes:
        status: `completed`, `max_tool_rounds` or `limit_reached`; a stream's result may also be
            `aborted` or `failed`.
        text: Text of the last assistant message.
        message: That message.
        stop_reason: Why the model stopped.
        usage: Sum of the run's turns.
        entry_ids: Entries that the run stored, in order.
        leaf_id: Where the session stands.
        output: The validated value, when `output=` was given.
    """

    status: str
    session_id: str
    run_id: str
    text: str = ""
    message: Message | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    entry_ids: Sequence[str] = ()
    leaf_id: str | None = None
    error: ErrorInfo | None = None
    output: Any = None


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is doing.

    Attributes:
        status: `idle`, `running`, `compacting` or `awaiting_approval`.
        model: The branch's, else the agent's.
        steer: Steering inputs that wait.
        follow_up: Follow-ups that wait.
        usage: Sum of the turns since the session was opened.
        pending_approvals: Calls that wait for somebody's word, by approval id.
    """

    session_id: str
    status: str
    model: ModelConfig
    thinking_level: str | None = None
    leaf_id: str | None = None
    run_id: str | None = None
    steer: int = 0
    follow_up: int = 0
    usage: Usage | None = None
    pending_approvals: Sequence[str] = ()
