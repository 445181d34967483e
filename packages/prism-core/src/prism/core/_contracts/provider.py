"""The model's side: what a provider is asked, and what it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from prism.core._wire import (
    ContentBlock,
    ErrorInfo,
    Message,
    ModelConfig,
    ProviderOptions,
    Usage,
)


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model sees it; `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ProviderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One provider turn.

    Attributes:
        system: Parts of the system prompt, in order; the most stable first.
        messages: The conversation; pairs of calls and results are whole.
        output_schema: JSON Schema that the answer's text has to match, where the vendor can.
        metadata: The host's own facts; never sent.
    """

    model: ModelConfig
    messages: Sequence[Message]
    system: Sequence[str] = ()
    tools: Sequence[ToolSpec] = ()
    options: ProviderOptions = ProviderOptions()
    output_schema: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class TextDelta(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """More text; without `index` it belongs to the open text block, else to a new one."""

    text: str
    index: int | None = None


class ThinkingDelta(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """More reasoning; without `index` it belongs to the open thinking block, else to a new one."""

    text: str
    index: int | None = None


class ToolCallChunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of a call: its id and name once, the JSON text of its arguments in parts."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments_text: str = ""


class ToolCallReady(msgspec.Struct, frozen=True, kw_only=True):
    """A whole call at once."""

    id: str
    name: str
    arguments: dict[str, Any]


class BlockFinished(msgspec.Struct, frozen=True, kw_only=True):
    """The block at `index` as it must be kept; it replaces what the deltas built."""

    index: int
    block: ContentBlock


class UsageUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the turn so far; it replaces an earlier one."""

    usage: Usage


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something the host should hear of: it becomes a `warning` event."""

    code: str
    message: str


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The turn is complete. Without `stop_reason`: `tool_use` if there are calls, else `stop`."""

    usage: Usage | None = None
    stop_reason: str | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The turn failed."""

    error: ErrorInfo


ProviderEvent: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | ToolCallChunk
    | ToolCallReady
    | BlockFinished
    | UsageUpdate
    | Notice
    | Done
    | Failed
)


@runtime_checkable
class Provider(Protocol):
    """Answers requests as a stream of events.

    Exactly one of `Done` and `Failed` ends the stream. A vendor's or the network's failure is a
    `Failed`; only programming errors and cancellation raise. An adapter may also have
    `async def aclose(self)`, and `supports_output_schema`: whether `ProviderRequest.output_schema`
    holds the model to it, as a bool or as a method that is given the `ModelConfig`. One that says
    `ends_promptly = True` promises that its stream ends soon after the terminal event, so that
    nobody has to watch the time.
    """

    @property
    def id(self) -> str:
        """Id under which the provider is known, as `ModelConfig.provider` names it."""
        ...

    def generate(self, request: ProviderRequest) -> AsyncIterator[ProviderEvent]:
        """Answer one request."""
        ...


class PolicyContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a request policy may know beside the request."""

    session_id: str
    run_id: str | None = None
    use_case: str = "chat"
    metadata: dict[str, Any] | None = None


@runtime_checkable
class RequestPolicy(Protocol):
    """Changes a request before it is sent; it sees no credential."""

    @property
    def name(self) -> str:
        """For messages and registries."""
        ...

    def apply(self, request: ProviderRequest, context: PolicyContext) -> ProviderRequest:
        """The request to send instead; validated after all policies ran."""
        ...
