"""Agents by name: what an agent is, without what only a host has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from prism.core._contracts import PermissionPolicy, Provider, Tool
from prism.core._errors import UsageError
from prism.core._runtime.agent import Agent
from prism.core._runtime.checks import is_name
from prism.core._wire import ModelConfig, ProviderOptions, UsageLimits
from prism.core.providers import ProviderRegistry
from prism.core.tools import filter_tools

_PARTS = (
    "model", "system", "thinking_level", "limits", "permissions", "options", "max_tool_rounds",
)  # fmt: skip


class AgentDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as data, which an extension can contribute and a host chooses by name.

    Calling it with what the host has makes the `Agent`; a definition holds no provider, no tool,
    no store and no credential. What is `None` is left to the host.

    Attributes:
        name: Under which it is known; as a tool's name too, so letters, digits, `_` and `-`.
        description: What it is good for, for people and for other models.
        model: The model.
        system: The system prompt, or its parts.
        tools: Names, or globs such as `fs_*`, of the only tools that it may use.
        thinking_level: One of `THINKING_LEVELS`.
        limits: What one run may use.
        permissions: Asked for every call.
        options: For every provider request.
        max_tool_rounds: Batches of calls that a run executes.

    Raises:
        UsageError: `invalid_name`: the name is empty.
    """

    name: str
    description: str = ""
    model: ModelConfig | None = None
    system: str | Sequence[str] | None = None
    tools: Sequence[str] | None = None
    thinking_level: str | None = None
    limits: UsageLimits | None = None
    permissions: PermissionPolicy | None = None
    options: ProviderOptions | None = None
    max_tool_rounds: int | None = None

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise UsageError(
                f"An agent's name must be a string that is not empty, not {self.name!r}.",
                code="invalid_name",
            )

    def __call__(
        self, *, provider: Provider | ProviderRegistry, tools: Iterable[Tool] = (), **parts: Any
    ) -> Agent:
        """Make the agent.

        Args:
            provider: Who serves its model.
            tools: What the host offers; the definition's `tools` choose among them.
            **parts: Other arguments of `Agent`; what the host gives here wins.

        Raises:
            UsageError: Neither has a model, or a part is wrong.
            RegistryError: `unknown_name`: the definition names a tool that the host does not offer.
        """
        offered = list(tools)
        if self.tools is not None:
            offered = filter_tools(offered, allow=self.tools, argument="tools")
        for name in _PARTS:
            own = getattr(self, name)
            if own is not None and parts.get(name) is None:
                parts[name] = own
        if parts.get("model") is None:
            raise UsageError(
                f"The definition of agent {self.name!r} has no model, so model= has to be given."
            )
        return Agent(provider=provider, tools=offered, **parts)
