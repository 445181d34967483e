"""What the model can call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from prism.core._errors import UsageError
from prism.core._wire import ContentBlock, ErrorInfo, Usage

DEFAULT_MAX_RESULT_BYTES: Final = 256 * 1024
"""Longest result of a tool, as JSON; longer text is cut and says so."""

DEFAULT_TOOL_TIMEOUT_MS: Final = 600_000
"""How long a tool may run when it does not say."""


class ToolContext:
    """Where a call comes from, and its way to report.

    Attributes:
        session_id: The session whose model asks.
        run_id: The run.
        tool_call_id: The call; unique on the branch.
        metadata: What the host gave the run.
    """

    __slots__ = (
        "_redact",
        "_report",
        "_report_usage",
        "metadata",
        "run_id",
        "session_id",
        "tool_call_id",
    )

    def __init__(
        self,
        *,
        session_id: str = "",
        run_id: str = "",
        tool_call_id: str = "",
        metadata: Mapping[str, Any] | None = None,
        report: Callable[[Any], None] | None = None,
        redact: Callable[[Any], Any] | None = None,
        report_usage: Callable[[Usage, str], None] | None = None,
    ) -> None:
        self.session_id: str = session_id
        self.run_id: str = run_id
        self.tool_call_id: str = tool_call_id
        self.metadata: Mapping[str, Any] = metadata or {}
        self._report: Callable[[Any], None] | None = report
        self._redact: Callable[[Any], Any] | None = redact
        self._report_usage: Callable[[Usage, str], None] | None = report_usage

    def progress(self, value: Any) -> None:
        """Tell the readers of events how far the tool is; any JSON value, from any thread."""
        if self._report is not None:
            self._report(value)

    def redact(self, value: Any) -> Any:
        """*value* without the secrets that the run knows, for what a tool keeps or sends on.

        A tool gets its arguments as the model wrote them.
        """
        return value if self._redact is None else self._redact(value)

    def report_usage(self, usage: Usage, *, source: str = "tool") -> None:
        """Tell the readers of events what the call used of a model, from any thread.

        It becomes a `usage` event with that *source*, and is not added to the run's own usage.
        """
        if self._report_usage is not None:
            self._report_usage(usage, source)


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool returns when text or a JSON value is not enough.

    Attributes:
        content: Blocks that the model sees.
        value: A JSON value; sent to the model when there is no content.
        error: Marks the result as an error; the run goes on.
        metadata: For the host; never sent to the model.
    """

    content: list[ContentBlock] | None = None
    value: Any = None
    error: ErrorInfo | None = None
    metadata: dict[str, Any] | None = None


ToolFunction: TypeAlias = Callable[[dict[str, Any], ToolContext], Any | Awaitable[Any]]


class Tool:
    """A tool with a schema made by hand; `@tool` makes one from a function.

    Args:
        name: 1 to 64 letters, digits, `_` or `-`.
        description: For the model.
        parameters: JSON Schema of an object.
        execute: Sync (it runs in a worker thread) or async. It takes the arguments and a
            `ToolContext`, and returns text, content blocks, any JSON value or a `ToolOutput`.
        validate: Checks and converts the arguments; raises `ValueError` with a message for the
            model. Without it the arguments are checked against `parameters`.
        sequential: Never runs beside another tool.
        timeout_ms: How long it may run.
        max_result_bytes: Longest result as JSON.
    """

    __slots__ = (
        "description",
        "execute",
        "max_result_bytes",
        "name",
        "parameters",
        "sequential",
        "timeout_ms",
        "validate",
    )

    def __init__(
        self,
        *,
        name: str,
        execute: ToolFunction,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        validate: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        sequential: bool = False,
        timeout_ms: int = DEFAULT_TOOL_TIMEOUT_MS,
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
    ) -> None:
        if not name or len(name) > 64 or not _is_tool_name(name):
            raise UsageError(
                f"A tool's name is 1 to 64 letters, digits, '_' or '-': {name[:80]!r}.",
                code="invalid_name",
            )
        for field, number in (("timeout_ms", timeout_ms), ("max_result_bytes", max_result_bytes)):
            if type(number) is not int or number <= 0:
                raise UsageError(
                    f"{field} of tool {name!r} must be a positive integer, not {number!r}."
                )
        self.name: str = name
        self.description: str = description
        self.parameters: dict[str, Any] = dict(
            parameters or {"type": "object", "properties": {}, "additionalProperties": False}
        )
        self.execute: ToolFunction = execute
        self.validate: Callable[[dict[str, Any]], dict[str, Any]] | None = validate
        self.sequential: bool = sequential
        self.timeout_ms: int = timeout_ms
        self.max_result_bytes: int = max_result_bytes

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


def _is_tool_name(name: str) -> bool:
    return name.isascii() and name.replace("_", "").replace("-", "").isalnum()
