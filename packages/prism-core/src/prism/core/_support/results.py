"""Results of tools: as blocks, as messages, as text for a model."""

from __future__ import annotations

from prism.core._wire import (
    ErrorInfo,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultBlock,
    encode,
)


def error_result(call: ToolCallBlock, error: ErrorInfo) -> ToolResult:
    """The result of a call that gave nothing but an error."""
    return ToolResult(tool_call_id=call.id, name=call.name, error=error)


def result_block(result: ToolResult) -> ToolResultBlock:
    """The block that stands in the conversation; metadata is for the host and stays out."""
    return ToolResultBlock(
        tool_call_id=result.tool_call_id,
        name=result.name,
        content=result.content,
        result=result.value,
        error=result.error,
    )


def result_message(result: ToolResult) -> Message:
    """The `tool` message of one result; it carries the result's metadata, for the host."""
    return Message(role="tool", content=[result_block(result)], metadata=result.metadata)


def result_text(block: ToolResultBlock) -> str:
    """What a model reads that takes text only.

    An error comes first, as `Error: …` or, with the class of an exception, `Error (KeyError): …`.
    Then the content's text blocks, each on its own line; without content, the JSON value
    (text as it is). Images and other blocks have no text: an adapter sends them its own way.

    Raises:
        EncodeError: the value cannot be written as JSON.
    """
    parts: list[str] = []
    if block.error is not None:
        name = block.error.name
        kind = f" ({name})" if name and name != "ToolError" else ""
        parts.append(f"Error{kind}: {block.error.message}")
    if block.content is not None:
        parts += [inner.text for inner in block.content if isinstance(inner, TextBlock)]
    elif isinstance(block.result, str):
        parts.append(block.result)
    elif block.result is not None:
        parts.append(encode(block.result).decode())
    return "\n".join(parts)
