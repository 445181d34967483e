"""Running a command by its definition."""

from __future__ import annotations

from typing import Any, cast

from msgspec import structs

from prism.core._contracts import CommandContext, CommandDefinition
from prism.core._errors import EncodeError, UsageError
from prism.core._support.schema import validate_against_schema
from prism.core._wire import (
    CommandResult,
    ContentBlock,
    ImageBlock,
    NativeBlock,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    encode,
    has_non_finite,
    to_plain,
)
from prism.core.host._calls import call

_BLOCKS = (
    TextBlock,
    ThinkingBlock,
    ImageBlock,
    ToolCallBlock,
    ToolResultBlock,
    NativeBlock,
    OpaqueBlock,
)


async def run_command(
    definition: CommandDefinition, args: Any = None, context: CommandContext | None = None
) -> CommandResult:
    """Run a command that a person or a client asked for.

    Args:
        definition: A sync `execute` runs in a worker thread, and is left to itself when the
            caller is cancelled.
        args: Any JSON value. With `parameters` it is checked first, and no arguments count as an
            empty object.
        context: Where it runs; default: nowhere.

    Returns:
        What the command gave: text and blocks as `content`, any other JSON value as `value`.

    Raises:
        UsageError: `invalid_arguments` with the JSON path of what is wrong; `missing_extra` when
            that check needs `prism-core[schema]`; `invalid_result` when the result is not JSON.
        Exception: What the command raised, as it came.
    """
    if definition.parameters is not None:
        args = {} if args is None else args
        try:
            validate_against_schema(args, definition.parameters)
        except UsageError as error:
            raise UsageError(
                f"Command {definition.name!r}: {error.message}",
                code=error.code,
                details=error.details,
            ) from None
    context = CommandContext() if context is None else context
    result = _as_result(definition.name, await call(definition.execute, args, context))
    problem = _why_not_json(result)
    if problem is not None:
        raise UsageError(
            f"Command {definition.name!r} returned what JSON cannot hold: {problem}",
            code="invalid_result",
        )
    return result


def _why_not_json(result: CommandResult) -> str | None:
    try:
        data = encode(result)
    except EncodeError as error:
        return error.message
    if b"null" in data and has_non_finite(to_plain(result)):
        return "NaN and Infinity are not JSON."
    return None


def _as_result(name: str, value: Any) -> CommandResult:
    if isinstance(value, CommandResult):
        return value if value.name == name else structs.replace(value, name=name)
    if isinstance(value, str):
        return CommandResult(name=name, content=[TextBlock(text=value)])
    content = _as_blocks(value)
    if content is not None:
        return CommandResult(name=name, content=content)
    return CommandResult(name=name, value=value)


def _as_blocks(value: Any) -> list[ContentBlock] | None:
    items: list[Any] = (
        list(cast("list[Any]", value)) if isinstance(value, list | tuple) else [value]
    )
    return items if items and all(isinstance(item, _BLOCKS) for item in items) else None
