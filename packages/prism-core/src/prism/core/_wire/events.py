"""Agent events: what a run tells its readers."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

import msgspec

from prism.core._errors import DecodeError
from prism.core._wire.base import REFUSALS, Codec, RawJson, WireStruct
from prism.core._wire.content import ContentBlock, Message, ToolCallBlock, ToolResult, block_codec
from prism.core._wire.models import ErrorInfo, ModelConfig, Usage
from prism.core._wire.text import SHALLOW_BYTES, JsonText, to_bytes

# Fields that the TypeScript original does not write have the default `None`, so that its events
# can be read; Prism always gives them, so that they are always written.


class EventBase(WireStruct, frozen=True, kw_only=True, tag_field="type"):
    """What every event has."""

    session_id: str
    run_id: str | None = None


class AgentStarted(EventBase, frozen=True, kw_only=True, tag="agent_started"):
    """A run begins."""


class AgentFinished(EventBase, frozen=True, kw_only=True, tag="agent_finished"):
    """Last event of its run; `status` is one of `RUN_STATUSES`."""

    status: str | None = None
    usage: Usage | None = None
    error: ErrorInfo | None = None


class TurnStarted(EventBase, frozen=True, kw_only=True, tag="turn_started"):
    """A provider turn begins; `turn` counts from 1."""

    turn: int


class TurnFinished(EventBase, frozen=True, kw_only=True, tag="turn_finished"):
    """The turn's message and its results are stored."""

    turn: int
    usage: Usage | None = None
    stop_reason: str | None = None


class MessageStarted(EventBase, frozen=True, kw_only=True, tag="message_started"):
    """The assistant's first content came; `message.content` is empty."""

    message: Message


class MessageDelta(EventBase, frozen=True, kw_only=True, tag="message_delta"):
    """New text, thinking or a call in `content`; `index` is the block's place in the message."""

    content: ContentBlock
    index: int | None = None


class MessageFinished(EventBase, frozen=True, kw_only=True, tag="message_finished"):
    """The whole message, as stored under `entry_id`; `partial` when it was cut short."""

    message: Message
    entry_id: str | None = None
    partial: bool | None = None


class ToolCallDelta(EventBase, frozen=True, kw_only=True, tag="tool_call_delta"):
    """More text of a call's arguments."""

    index: int
    arguments_text: str
    tool_call_id: str | None = None
    name: str | None = None


class ToolExecutionStarted(EventBase, frozen=True, kw_only=True, tag="tool_execution_started"):
    """A tool begins to run."""

    call: ToolCallBlock


class ToolExecutionProgress(EventBase, frozen=True, kw_only=True, tag="tool_execution_progress"):
    """What a running tool reported."""

    tool_call_id: str
    name: str
    progress: Any = None
    metadata: dict[str, Any] | None = None


class ToolExecutionFinished(EventBase, frozen=True, kw_only=True, tag="tool_execution_finished"):
    """A tool returned, perhaps a result that it marks as an error."""

    result: ToolResult


class ToolExecutionError(EventBase, frozen=True, kw_only=True, tag="tool_execution_error"):
    """A tool raised, timed out, was cancelled, or its outcome is unknown."""

    call: ToolCallBlock
    error: ErrorInfo


class ToolExecutionBlocked(EventBase, frozen=True, kw_only=True, tag="tool_execution_blocked"):
    """A call that was never started, and why."""

    tool_call_id: str
    name: str
    reason: str
    error: ErrorInfo


class ToolApprovalRequested(EventBase, frozen=True, kw_only=True, tag="tool_approval_requested"):
    """A call waits for somebody's word."""

    approval_id: str
    call: ToolCallBlock
    reason: str | None = None


class ToolApprovalResolved(EventBase, frozen=True, kw_only=True, tag="tool_approval_resolved"):
    """The word: `allowed`, `edited` or `denied`."""

    approval_id: str
    call: ToolCallBlock
    decision: str
    by: str
    reason: str | None = None


class QueueUpdated(EventBase, frozen=True, kw_only=True, tag="queue_updated"):
    """What waits to be said to the model; `size` counts both queues."""

    size: int
    steer: list[Any] | None = None
    follow_up: list[Any] | None = None


class CompactionStarted(EventBase, frozen=True, kw_only=True, tag="compaction_started"):
    """A compaction begins."""

    trigger: str | None = None
    strategy: str | None = None


class CompactionFinished(EventBase, frozen=True, kw_only=True, tag="compaction_finished"):
    """The compaction is stored under `entry_id`."""

    summary: str
    trigger: str | None = None
    strategy: str | None = None
    entry_id: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None


class CompactionFailed(EventBase, frozen=True, kw_only=True, tag="compaction_failed"):
    """Nothing was appended."""

    trigger: str
    strategy: str
    error: ErrorInfo


class RetryScheduled(EventBase, frozen=True, kw_only=True, tag="retry_scheduled"):
    """Attempt number `attempt` (from 2) runs after `delay_ms`."""

    attempt: int
    delay_ms: int | float
    error: ErrorInfo


class ModelChanged(EventBase, frozen=True, kw_only=True, tag="model_changed"):
    """The branch uses another model or thinking level from here on."""

    model: ModelConfig
    previous_model: ModelConfig | None = None
    thinking_level: str | None = None


class UsageReported(EventBase, frozen=True, kw_only=True, tag="usage"):
    """Usage of a `turn`, of a `compaction`, of `memory`, of an `agent` that was asked, of a `tool`.

    That of the last two is not in the run's own usage.
    """

    usage: Usage
    source: str


class WorkerStarted(EventBase, frozen=True, kw_only=True, tag="worker_started"):
    """A memory worker begins: `observer`, `reflector` or `dropper`."""

    worker: str


class WorkerFinished(EventBase, frozen=True, kw_only=True, tag="worker_finished"):
    """A memory worker ended."""

    worker: str
    status: str
    counts: dict[str, int]
    usage: Usage | None = None
    error: ErrorInfo | None = None


class ExtensionFailed(EventBase, frozen=True, kw_only=True, tag="extension_error"):
    """A middleware or an extension failed, and the run goes on."""

    phase: str
    error: ErrorInfo
    extension: str | None = None


class Warned(EventBase, frozen=True, kw_only=True, tag="warning"):
    """Something was repaired, clamped or dropped."""

    code: str
    message: str


class SessionSettled(EventBase, frozen=True, kw_only=True, tag="session_settled"):
    """Nothing more happens without new input."""

    leaf_id: str | None = None


class ErrorEvent(EventBase, frozen=True, kw_only=True, tag="error"):
    """The run failed (`fatal`) or is being aborted."""

    error: ErrorInfo
    fatal: bool | None = None


class OpaqueEvent(RawJson):
    """An event of a type that this version does not know.

    Attributes:
        type: As in the text, like `session_id` and `run_id`.
        raw: Its JSON text on one line, otherwise as it came.
    """

    __slots__ = ("run_id", "session_id", "type")

    def __init__(
        self,
        *,
        type: str,  # noqa: A002
        raw: bytes,
        session_id: str = "",
        run_id: str | None = None,
    ) -> None:
        super().__init__(raw)
        self.type: str = type
        self.session_id: str = session_id
        self.run_id: str | None = run_id

    def __repr__(self) -> str:
        return f"OpaqueEvent(type={self.type!r})"


KnownEvent: TypeAlias = (
    AgentStarted
    | AgentFinished
    | TurnStarted
    | TurnFinished
    | MessageStarted
    | MessageDelta
    | MessageFinished
    | ToolCallDelta
    | ToolExecutionStarted
    | ToolExecutionProgress
    | ToolExecutionFinished
    | ToolExecutionError
    | ToolExecutionBlocked
    | ToolApprovalRequested
    | ToolApprovalResolved
    | QueueUpdated
    | CompactionStarted
    | CompactionFinished
    | CompactionFailed
    | RetryScheduled
    | ModelChanged
    | UsageReported
    | WorkerStarted
    | WorkerFinished
    | ExtensionFailed
    | Warned
    | SessionSettled
    | ErrorEvent
)
AgentEvent: TypeAlias = KnownEvent | OpaqueEvent


def event_type(event: AgentEvent) -> str:
    """The event's `type` as on the wire."""
    if isinstance(event, OpaqueEvent):
        return event.type
    tag = event.__struct_config__.tag
    return tag if isinstance(tag, str) else ""


EVENT_TYPES: frozenset[str] = frozenset(
    str(kind.__struct_config__.tag) for kind in get_args(KnownEvent)
)

_codec: Codec[KnownEvent] = block_codec(KnownEvent)
_fast = _codec.fast


class _Head(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    type: str
    session_id: str = ""
    run_id: str | None = None


_head_codec: Codec[_Head] = Codec(_Head)


def decode_event(data: JsonText) -> AgentEvent:
    """Read an event; one of unknown type becomes an `OpaqueEvent`.

    Raises:
        DecodeError: with the JSON path of what is wrong.
    """
    try:
        if isinstance(data, bytes) and len(data) <= SHALLOW_BYTES:
            if not data.isascii():
                data.decode()  # msgspec takes any bytes in fields that it skips
            return _fast(data)
        return _codec.decode(data)
    except REFUSALS:
        return _decode_slowly(data)
    except DecodeError as error:
        return _decode_unknown(data, error)


def _decode_slowly(data: JsonText) -> AgentEvent:
    try:
        return _codec.decode_slowly(data)
    except DecodeError as error:
        return _decode_unknown(data, error)


def _decode_unknown(data: JsonText, error: DecodeError) -> OpaqueEvent:
    if error.code != "invalid_value":
        raise error
    try:
        head = _head_codec.decode(data)
    except DecodeError:
        raise error from None
    if head.type in EVENT_TYPES:
        raise error
    return OpaqueEvent(
        type=head.type, raw=to_bytes(data), session_id=head.session_id, run_id=head.run_id
    )
