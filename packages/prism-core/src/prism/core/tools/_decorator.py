"""A tool from a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from prism.core._contracts import (
    DEFAULT_MAX_RESULT_BYTES,
    DEFAULT_TOOL_TIMEOUT_MS,
    Tool,
    ToolContext,
    ToolFunction,
)
from prism.core._errors import UsageError
from prism.core.tools._docstring import description as description_of
from prism.core.tools._signature import Signature, unwrapped

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Tool, Generic[P, R]):
    """A tool that `tool` made. Calling it calls its function, as if it were not decorated.

    Attributes:
        function: The function itself.
    """

    __slots__ = ("function",)

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        sequential: bool = False,
        timeout_ms: int = DEFAULT_TOOL_TIMEOUT_MS,
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
        caller: FrameType | None = None,
    ) -> None:
        _check_function(function)
        inner = unwrapped(function)
        if name is None:
            name = getattr(inner if inner.__name__ != "__call__" else function, "__name__", "")
        if not name:
            raise UsageError(f"{function!r} has no name: give name=.", code="invalid_name")
        signature = Signature(function, name, caller=caller)
        super().__init__(
            name=name,
            description=description_of(inner) if description is None else description,
            parameters=signature.schema,
            execute=_execute(function, signature),
            validate=signature.check,
            sequential=sequential,
            timeout_ms=timeout_ms,
            max_result_bytes=max_result_bytes,
        )
        self.function: Callable[P, R] = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    sequential: bool = False,
    timeout_ms: int = DEFAULT_TOOL_TIMEOUT_MS,
    max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    sequential: bool = False,
    timeout_ms: int = DEFAULT_TOOL_TIMEOUT_MS,
    max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    sequential: bool = False,
    timeout_ms: int = DEFAULT_TOOL_TIMEOUT_MS,
    max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
) -> Any:
    """Make a tool from a function: `@tool`, `@tool(name="…")` or `tool(instance.method)`.

    The JSON Schema comes from the signature, by msgspec: scalars, containers, `Literal`, enums,
    unions, structs, dataclasses, `TypedDict`, dates, and `Annotated[…, msgspec.Meta(…)]` with
    constraints and descriptions. Arguments are checked as strictly as JSON is (no text for a
    number) and unknown ones are refused; the function gets real types. A parameter with a default
    is optional. One parameter may be a `ToolContext`: it gets the call's, and the model does not
    see it.

    Args:
        function: Sync (it runs in a worker thread) or async. Every parameter has a type; `*args`
            and `**kwargs` are refused, a `list` or a `dict` parameter does their work. It returns
            text, content blocks, any JSON value (structs and dataclasses too), a `ToolOutput`,
            or `None`.
        name: Default: the function's.
        description: Default: the docstring up to its `Args:`, `Returns:`, `Yields:` or `Raises:`.
            The lines below `Args:` describe the parameters, except where a `Meta` does.
        sequential: Never runs beside another tool.
        timeout_ms: How long it may run, in milliseconds; default 10 minutes. A sync function is
            abandoned then, its thread goes on.
        max_result_bytes: Longest result as JSON; default 256 KiB.

    Returns:
        A `Tool` that can still be called like the function.

    Raises:
        UsageError: `invalid_signature`: the signature cannot become a schema; `invalid_name`;
            or a limit is not a positive integer.
    """
    frame = inspect.currentframe()
    caller = None if frame is None else frame.f_back
    del frame

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(
            function,
            name=name,
            description=description,
            sequential=sequential,
            timeout_ms=timeout_ms,
            max_result_bytes=max_result_bytes,
            caller=caller,
        )

    return decorate if function is None else decorate(function)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling *function*, or an object with such a `__call__`, gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - whether it is async, not whether it is
    )


def _check_function(function: object) -> None:
    if isinstance(function, Tool):
        raise UsageError(f"{function!r} is a tool already.", code="invalid_signature")
    if not callable(function) or inspect.isclass(function):
        raise UsageError(f"A tool is made from a function, not from {function!r}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{function!r} is a generator; a tool returns one value, and tells what happens "
            f"meanwhile with ToolContext.progress.",
            code="invalid_signature",
        )


def _execute(function: Callable[..., Any], signature: Signature) -> ToolFunction:
    if is_async(function):

        async def execute_async(arguments: dict[str, Any], context: ToolContext) -> Any:
            positional, keywords = signature.bind(arguments, context)
            return await function(*positional, **keywords)

        return execute_async

    def execute(arguments: dict[str, Any], context: ToolContext) -> Any:
        positional, keywords = signature.bind(arguments, context)
        return function(*positional, **keywords)

    return execute
