"""Tools by name, and choosing among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final

from prism.core._contracts import Tool
from prism.core._errors import RegistryError, UsageError
from prism.core._support.registry import Registry, list_names
from prism.core._support.schema import check_schema
from prism.core.tools._decorator import FunctionTool

_NO_TOOLS: Final = "There are no tools."


class ToolRegistry:
    """Tools by their unique names, in the order in which they were registered.

    Args:
        tools: Registered at once, as by `register`.
    """

    __slots__ = ("_registry",)

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._registry: Registry[Tool] = Registry("tool", nothing=_NO_TOOLS)
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool, *, source: str | None = None) -> None:
        """Add *tool*.

        Args:
            tool: Its name must be free.
            source: Who brings it, for error messages; default: where its function is defined.

        Raises:
            RegistryError: `duplicate_name`, naming both sources.
            UsageError: The arguments of a tool without a `validate` of its own could not be
                checked: `invalid_schema`, or `missing_extra` when `prism-core[schema]` is not
                installed.
        """
        if tool.validate is None:
            _check_parameters(tool)
        self._registry.register(tool.name, tool, source=source or _defined_in(tool))

    def unregister(self, name: str) -> Tool:
        """Take a tool out.

        Raises:
            RegistryError: `unknown_name`, listing the known ones.
        """
        return self._registry.unregister(name)

    def get(self, name: str) -> Tool | None:
        """The tool of that name, or `None`."""
        return self._registry.get(name)

    def resolve(self, name: str) -> Tool:
        """The tool of that name.

        Raises:
            RegistryError: `unknown_name`, listing the known ones.
        """
        return self._registry.resolve(name)

    def source(self, name: str) -> str:
        """Who brought the tool of that name.

        Raises:
            RegistryError: `unknown_name`, listing the known ones.
        """
        return self._registry.source(name)

    def list(self) -> tuple[Tool, ...]:
        """All tools, in the order of registration."""
        return self._registry.list()

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._registry)

    def __len__(self) -> int:
        return len(self._registry)

    def __contains__(self, name: object) -> bool:
        return name in self._registry


def filter_tools(
    tools: Iterable[Tool],
    *,
    allow: Iterable[str] | None = None,
    deny: Iterable[str] | None = None,
    argument: str = "allow",
) -> list[Tool]:
    """The tools that may be used, in the order given.

    Args:
        tools: Tools or a registry.
        allow: Names, or globs such as `fs_*`; only these pass. `None`: all pass.
        deny: Names or globs that do not pass, even when allowed. One that fits no tool is no
            error: a list of forbidden names may serve several sets of tools.
        argument: What errors call *allow*, for functions that take it under another name.

    Raises:
        RegistryError: `unknown_name`: a name in *allow* fits no tool.
        UsageError: *allow* or *deny* is a single string.
    """
    candidates = list(tools)
    allowed = None if allow is None else _patterns(argument, allow)
    denied = _patterns("deny", deny or ())
    if allowed is not None:
        names = {tool.name for tool in candidates}
        for pattern in allowed:
            if not any(char in pattern for char in "*?[") and pattern not in names:
                raise RegistryError(
                    f"{argument!r} names a tool that is not there: {pattern!r}. "
                    f"{known_names(candidates)}"
                )
    return [
        tool
        for tool in candidates
        if (allowed is None or _matches(tool.name, allowed)) and not _matches(tool.name, denied)
    ]


def _check_parameters(tool: Tool) -> None:
    try:
        check_schema(tool.parameters)
    except UsageError as error:
        raise UsageError(
            f"Tool {tool.name!r}: {error.message}", code=error.code, details=error.details
        ) from None


def known_names(tools: Iterable[Tool]) -> str:
    """A sentence that lists the tools' names, at most the first fifty."""
    return list_names((tool.name for tool in tools), label="Known tools", nothing=_NO_TOOLS)


def _patterns(name: str, patterns: Iterable[str]) -> list[str]:
    if isinstance(patterns, str):
        raise UsageError(f"{name!r} is a list of names, not one string: use [{patterns!r}].")
    return list(patterns)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _defined_in(tool: Tool) -> str:
    function = tool.function if isinstance(tool, FunctionTool) else tool.execute
    module = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{module}.{name}"
