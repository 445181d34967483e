"""Checking what a model gave for arguments, before anything runs."""

from __future__ import annotations

from typing import Any, NoReturn

from prism.core._contracts import Tool
from prism.core._errors import DecodeError, ToolError, UsageError
from prism.core._support.schema import validate_against_schema
from prism.core._wire import ToolCallBlock, parse_json, to_plain


def validate_arguments(tool: Tool, call: ToolCallBlock) -> dict[str, Any]:
    """The arguments to execute *tool* with; a copy, so that a tool cannot change the call.

    Args:
        tool: Its `validate` checks and converts; without one, `parameters` is the schema.
        call: As the model made it.

    Raises:
        UsageError: `invalid_arguments`, with a message for the model that names the JSON path;
            `validation_failed` when they could not be checked: the schema is wrong, the library
            for schemas is missing, or the tool's `validate` raised something else than a
            `ValueError` or a `ToolError`.
    """
    if call.raw_arguments is not None:
        raise _invalid(tool, _why_unparsed(call.raw_arguments))
    try:
        arguments: dict[str, Any] = to_plain(call.arguments)
        if tool.validate is None:
            validate_against_schema(arguments, tool.parameters)
        else:
            arguments = tool.validate(arguments)
    except UsageError as error:
        if error.code != "invalid_arguments":
            _not_checked(tool, error)
        raise _invalid(tool, error.message, error.details) from None
    except (ValueError, ToolError) as error:
        raise _invalid(tool, str(error)) from error
    except Exception as error:  # noqa: BLE001 - a tool's own check is code that Prism does not know
        _not_checked(tool, error)
    return arguments


def _why_unparsed(raw: str) -> str:
    try:
        parse_json(raw)
    except DecodeError as error:
        return error.message
    return "They must be one JSON object."


def _invalid(tool: Tool, reason: str, details: dict[str, Any] | None = None) -> UsageError:
    return UsageError(
        f"Invalid arguments for tool {tool.name!r}: {reason}",
        code="invalid_arguments",
        details=details,
    )


def _not_checked(tool: Tool, error: Exception) -> NoReturn:
    raise UsageError(
        f"The arguments of tool {tool.name!r} could not be checked: "
        f"{type(error).__name__}: {error}",
        code="validation_failed",
    ) from error
