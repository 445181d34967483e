"""Making a request's input from what is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from prism.core._wire import ContentBlock, Message


class InputRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run's input as the host gave it.

    Attributes:
        input: Text, content blocks, a message, or several messages.
        attachments: Blocks that follow the input's own.
    """

    session_id: str
    run_id: str
    input: str | Message | Sequence[ContentBlock | Message]
    attachments: Sequence[ContentBlock] = ()
    metadata: dict[str, Any] | None = None


@runtime_checkable
class InputBuilder(Protocol):
    """Turns a run's input into the messages that are stored."""

    async def build(self, request: InputRequest) -> list[Message]:
        """At least one message of role `user`, or results of tools."""
        ...


class ContextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a context provider may know."""

    session_id: str
    run_id: str
    metadata: dict[str, Any] | None = None


@runtime_checkable
class ContextProvider(Protocol):
    """Gives facts that the model should have, asked once a run."""

    @property
    def name(self) -> str:
        """Context is ordered by registration, and told apart by name."""
        ...

    async def provide(self, request: ContextRequest) -> Sequence[ContentBlock]:
        """Blocks for the model; none is fine."""
        ...


class PromptInput(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a prompt is made of.

    Attributes:
        system: Composed layers, the most stable first.
        context: Blocks of the context providers.
        summaries: What stands for compacted history, oldest first.
        messages: History that is sent raw, pairs repaired.
    """

    session_id: str
    run_id: str
    system: Sequence[str]
    context: Sequence[ContentBlock]
    summaries: Sequence[str]
    messages: Sequence[Message]


class BuiltPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent: system parts, messages that stand before the history, the history."""

    system: Sequence[str]
    messages: Sequence[Message]


@runtime_checkable
class PromptBuilder(Protocol):
    """Lays out the request; pure, so that the prefix stays the same from turn to turn."""

    def build(self, prompt: PromptInput) -> BuiltPrompt:
        """The request's system prompt and messages."""
        ...
