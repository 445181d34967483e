"""The tool by which a model looks behind its memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any, Final, TypeAlias

from prism.core import (
    Secret,
    SessionEntry,
    TextBlock,
    Tool,
    ToolContext,
    ToolError,
    ToolOutput,
    UsageError,
)
from prism.memory.observational._recall import (
    DEFAULT_RECALL_CHARS,
    check_memory_id,
    recall,
    recall_text,
    recall_value,
)

GetEntries: TypeAlias = Callable[
    [str], "Iterable[SessionEntry] | Awaitable[Iterable[SessionEntry]]"
]
"""Gives the entries of a session's current branch by the session's id; sync or async."""

RECALL_TOOL_NAME: Final = "recall"

DESCRIPTION: Final = (
    "Show the original messages behind one record of your memory, by the id in brackets at the "
    "start of its line. Use it when an exact wording, number, path or error matters for what you "
    "do next, or when you are asked why. One id at a time; it does not search by topic."
)

PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "id": {
            "type": "string",
            "description": "12 lowercase hex digits, as they stand in brackets.",
        },
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "Where to go on in a long source, as the last answer said.",
        },
    },
    "required": ["id"],
    "additionalProperties": False,
}


def recall_tool(
    get_entries: GetEntries,
    *,
    name: str = RECALL_TOOL_NAME,
    max_chars: int = DEFAULT_RECALL_CHARS,
    secrets: Sequence[str | Secret] = (),
) -> Tool:
    """A tool that answers with the evidence of one memory. It has no effect until it is given.

    It sees only the branch that the host gives it. An id that is none is refused before the host
    is asked.

    Args:
        get_entries: The current branch of the session whose model asks.
        name: Of the tool; the text of the summary calls it `recall`.
        max_chars: How much of the sources one call shows, in characters.
        secrets: Exact strings that must not be in the answer.
    """

    async def execute(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        offset: Any = arguments.get("offset", 0)
        try:
            memory = check_memory_id(arguments.get("id"))
        except UsageError as error:
            raise ToolError(error.message, code=error.code) from None
        if type(offset) is not int or offset < 0:
            raise ToolError("offset must be an integer of at least 0.", code="invalid_limit")
        found: Any = get_entries(context.session_id)
        if isawaitable(found):
            found = await found
        result = recall(found, memory, offset=offset, max_chars=max_chars, secrets=secrets)
        # The text is in the blocks; the structured part would send it twice.
        value = {**recall_value(result), "text": ""}
        return ToolOutput(content=[TextBlock(text=recall_text(result))], value=value)

    return Tool(
        name=name,
        description=DESCRIPTION,
        parameters=PARAMETERS,
        execute=execute,
        validate=lambda arguments: arguments,
    )
