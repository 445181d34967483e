"""The layout of a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from prism.core._contracts import (
    BuiltPrompt,
    PromptBuilder,
    PromptInput,
    ProviderRequest,
    Tool,
    ToolSpec,
)
from prism.core._errors import RegistryError, UsageError
from prism.core._wire import ContentBlock, Message, ModelConfig, ProviderOptions, TextBlock

CONTEXT_MARKER: Final = (
    "[Context from the application that runs this conversation. It is information, not a request.]"
)
"""First block of the message that holds the context; it never changes within a release."""

SUMMARY_MARKER: Final = "[Summary of the earlier conversation, whose messages are no longer shown.]"
"""First line of the message that holds the summaries; it never changes within a release."""

_SUMMARY_END: Final = "</summary>"


class DefaultPromptBuilder:
    """System parts, then the context, then the summaries, then the history as it is.

    From the most stable to the least, because vendors cache a prefix and bind reasoning to it:
    within a run a turn only adds messages at the end, a compaction leaves system and context in
    place, and a run whose context is the same as the last one's goes on where that one ended.
    A context that differs from run to run changes everything behind it: facts of the moment
    belong into the input's attachments, which are stored and stay where they are.

    The messages of the history are the very objects that came in, so that an adapter can keep
    what it made of them. The result is a list of its own: it does not change when the
    caller's grows. Building costs one concatenation, and nothing for each message.
    """

    __slots__ = ()

    def build(self, prompt: PromptInput) -> BuiltPrompt:
        """The request's system prompt and messages; equal input gives equal bytes."""
        return BuiltPrompt(
            system=tuple(prompt.system),
            messages=[
                *context_messages(prompt.context),
                *summary_messages(prompt.summaries),
                *prompt.messages,
            ],
        )


def context_messages(blocks: Sequence[ContentBlock]) -> list[Message]:
    """One `user` message that holds the marker and the blocks; none when there are no blocks."""
    if not blocks:
        return []
    return [Message(role="user", content=[TextBlock(text=CONTEXT_MARKER + "\n\n"), *blocks])]


def summary_messages(summaries: Sequence[str]) -> list[Message]:
    """One `user` message that holds the marker and all summaries, oldest first.

    Blank summaries are left out, and without any other there is no message. A summary cannot end
    its own frame: the closing tag is altered in it.
    """
    framed = [
        f"\n\n<summary>\n{summary.replace(_SUMMARY_END, '< /summary>')}\n{_SUMMARY_END}"
        for summary in summaries
        if summary.strip()
    ]
    if not framed:
        return []
    return [Message(role="user", content=[TextBlock(text=SUMMARY_MARKER + "".join(framed))])]


def tool_specs(tools: Iterable[Tool | ToolSpec]) -> list[ToolSpec]:
    """What the model sees of each tool, in the order given: reordering them breaks a cache.

    Raises:
        RegistryError: `duplicate_name`.
    """
    specs: dict[str, ToolSpec] = {}
    for tool in tools:
        if tool.name in specs:
            raise RegistryError(
                f"Two tools of the request are named {tool.name!r}; give one another name.",
                code="duplicate_name",
                details={"name": tool.name},
            )
        specs[tool.name] = (
            tool
            if isinstance(tool, ToolSpec)
            else ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters)
        )
    return list(specs.values())


def assemble_provider_input(
    prompt: PromptInput | BuiltPrompt,
    *,
    model: ModelConfig,
    tools: Iterable[Tool | ToolSpec] = (),
    options: ProviderOptions | None = None,
    output_schema: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    builder: PromptBuilder | None = None,
) -> ProviderRequest:
    """One provider request; pure, so that equal arguments give equal bytes.

    Args:
        prompt: What the prompt is made of, or a prompt that was built already.
        model: Who is asked.
        tools: In the order in which the model sees them. Tools come from here alone: nothing in a
            prompt activates one.
        options: How it is sent; default: nothing special.
        output_schema: JSON Schema that the answer's text has to match, where the vendor can.
        metadata: The host's own facts; never sent.
        builder: Lays out a `PromptInput`; default: `DefaultPromptBuilder`.

    Raises:
        UsageError: `invalid_params`, when there is no message.
        RegistryError: `duplicate_name`, when two tools have one name.
    """
    if isinstance(prompt, PromptInput):
        prompt = (builder or DefaultPromptBuilder()).build(prompt)
    if not prompt.messages:
        raise UsageError(
            "A provider request needs a message, and the prompt has none.",
            details={"reason": "empty_input"},
        )
    return ProviderRequest(
        model=model,
        messages=prompt.messages,
        system=prompt.system,
        tools=tool_specs(tools),
        options=options or ProviderOptions(),
        output_schema=output_schema,
        metadata=metadata,
    )
