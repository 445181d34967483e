"""The strategy, the tool and the commands as contributions to an extension kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from prism.core import Secret
from prism.memory.observational._commands import memory_commands
from prism.memory.observational._runtime import ObservationalMemory
from prism.memory.observational._settings import ObservationalMemorySettings
from prism.memory.observational._strategy import ObservationalCompactionStrategy
from prism.memory.observational._tool import GetEntries, recall_tool

EXTENSION_NAME: Final = "prism.memory.observational"


class ObservationalMemoryExtension:
    """Registers what it was made with, and does nothing else.

    Attributes:
        name: Of the extension.
        requires: Nothing.
    """

    __slots__ = ("_contributions", "name", "requires")

    def __init__(self, contributions: Sequence[tuple[str, str, Any]]) -> None:
        self.name: str = EXTENSION_NAME
        self.requires: Sequence[str] = ()
        self._contributions = tuple(contributions)

    def __repr__(self) -> str:
        names = ", ".join(name for _, name, _ in self._contributions)
        return f"ObservationalMemoryExtension({names})"

    def setup(self, api: Any, /) -> None:
        """Register the contributions on *api*."""
        for registry, name, value in self._contributions:
            getattr(api, registry).register(name, value)


def observational_memory_extension(
    *,
    strategy: ObservationalCompactionStrategy | None = None,
    settings: ObservationalMemorySettings | None = None,
    get_entries: GetEntries | None = None,
    memory: Callable[[str], ObservationalMemory | None] | None = None,
    compaction: bool = True,
    recall: bool = True,
    commands: bool = True,
    secrets: Sequence[str | Secret] = (),
) -> ObservationalMemoryExtension:
    """An extension that contributes to a kernel; a session uses what the host selects.

    It starts no worker, reads no setting, resolves no credential and calls no provider.

    Args:
        strategy: Default: one with *settings*.
        settings: Default: the defaults.
        get_entries: The current branch by session id. Without it there is no recall tool, and the
            commands look at the session that is current where they are run.
        memory: The runtime by session id, for `om:status`.
        compaction: Contribute the strategy.
        recall: Contribute the tool.
        commands: Contribute `om:status` and `om:view`.
        secrets: Exact strings that must not be in what the tool and the commands answer.
    """
    found: list[tuple[str, str, Any]] = []
    if compaction:
        chosen = strategy or ObservationalCompactionStrategy(settings=settings, secrets=secrets)
        found.append(("compaction_strategies", chosen.name, chosen))
    if recall and get_entries is not None:
        tool = recall_tool(get_entries, secrets=secrets)
        found.append(("tools", tool.name, tool))
    if commands:
        found += [
            ("commands", command.name, command)
            for command in memory_commands(
                get_entries, settings=settings, memory=memory, secrets=secrets
            )
        ]
    return ObservationalMemoryExtension(found)
