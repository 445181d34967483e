"""Tools: what a model can call, how to make one, and how a call is run."""

import typing

from prism.core._contracts import (
    DEFAULT_MAX_RESULT_BYTES,
    DEFAULT_TOOL_TIMEOUT_MS,
    Tool,
    ToolContext,
    ToolFunction,
    ToolOutput,
)
from prism.core._support import lazy as _lazy
from prism.core._support.results import error_result, result_block, result_message, result_text
from prism.core.tools._arguments import validate_arguments
from prism.core.tools._decorator import FunctionTool, tool
from prism.core.tools._execute import ToolOutcome, execute_tool
from prism.core.tools._registry import ToolRegistry, filter_tools
from prism.core.tools._threads import MAX_TOOL_THREADS, TOOL_THREADS

if typing.TYPE_CHECKING:
    from prism.core.tools._dispatch import (
        DEFAULT_MAX_CONCURRENCY,
        dispatch_tool_call,
        dispatch_tool_calls,
    )

__all__ = [
    "DEFAULT_MAX_CONCURRENCY",
    "DEFAULT_MAX_RESULT_BYTES",
    "DEFAULT_TOOL_TIMEOUT_MS",
    "MAX_TOOL_THREADS",
    "TOOL_THREADS",
    "FunctionTool",
    "Tool",
    "ToolContext",
    "ToolFunction",
    "ToolOutcome",
    "ToolOutput",
    "ToolRegistry",
    "dispatch_tool_call",
    "dispatch_tool_calls",
    "error_result",
    "execute_tool",
    "filter_tools",
    "result_block",
    "result_message",
    "result_text",
    "tool",
    "validate_arguments",
]

__getattr__: _lazy.GetAttribute = _lazy.lazy_names(
    __name__,
    {
        "DEFAULT_MAX_CONCURRENCY": "_dispatch",
        "dispatch_tool_call": "_dispatch",
        "dispatch_tool_calls": "_dispatch",
    },
)
