"""Instructions that a host switches on by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from prism.core._errors import UsageError
from prism.core._support.registry import Registry
from prism.core.prompt._system import SystemPart

MAX_SKILL_NAME_CHARS: Final = 128
"""Longest name of a skill: it is a key and a heading, not a text."""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions for one kind of job. It is text: it holds no code and activates nothing.

    Attributes:
        name: Unique in a registry; 1 to 128 printable characters.
        description: When to use it; for lists, never sent with the instructions.
        instructions: What the model reads while the skill is active.
        tools: Names of tools that it works well with: a hint to the host, who alone decides
            which tools a run has.

    Raises:
        UsageError: `invalid_name`; or `invalid_params` when there are no instructions.
    """

    name: str
    instructions: str
    description: str = ""
    tools: Sequence[str] = ()

    def __post_init__(self) -> None:
        if (
            not self.name.strip()
            or len(self.name) > MAX_SKILL_NAME_CHARS
            or not self.name.isprintable()
        ):
            raise UsageError(
                f"A skill's name is 1 to {MAX_SKILL_NAME_CHARS} printable characters, not "
                f"{self.name[:80]!r}.",
                code="invalid_name",
                details={"limit": MAX_SKILL_NAME_CHARS},
            )
        if not self.instructions.strip():
            raise UsageError(f"Skill {self.name!r} has no instructions.")
        if isinstance(self.tools, str):
            raise UsageError(f"tools of skill {self.name!r} must be a list of names.")


class SkillRegistry:
    """Skills by name, in the order in which they were registered.

    Args:
        skills: Registered one after the other.

    Raises:
        RegistryError: `duplicate_name`.
    """

    __slots__ = ("_registry",)

    def __init__(self, skills: Iterable[Skill] = ()) -> None:
        self._registry: Registry[Skill] = Registry("skill")
        for skill in skills:
            self.register(skill)

    def register(self, skill: Skill, *, source: str = "host") -> None:
        """Add a skill; nothing becomes active.

        Args:
            skill: Its name must be free.
            source: Who brings it, for error messages.

        Raises:
            RegistryError: `duplicate_name`, naming both sources.
        """
        self._registry.register(skill.name, skill, source=source)

    def unregister(self, name: str) -> None:
        """Take a skill out.

        Raises:
            RegistryError: `unknown_name`, listing the known ones.
        """
        self._registry.unregister(name)

    def resolve(self, name: str) -> Skill:
        """The skill of that name.

        Raises:
            RegistryError: `unknown_name`, listing the known ones.
        """
        return self._registry.resolve(name)

    @property
    def names(self) -> list[str]:
        """Every name, in the order of registration."""
        return list(self._registry.names)

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._registry)

    def __len__(self) -> int:
        return len(self._registry)

    def __contains__(self, name: object) -> bool:
        return name in self._registry


def resolve_active_skills(registry: SkillRegistry, names: Iterable[str]) -> list[SystemPart]:
    """The instructions of the named skills, as parts of a system layer.

    Nothing else of a skill reaches a request: the tools that it suggests are not activated, and
    the model is not told of them.

    Args:
        registry: Where the skills are.
        names: Active ones, in the order in which the model reads them; a name that comes again
            counts once.

    Returns:
        A part `skill:<name>` for each.

    Raises:
        RegistryError: `unknown_name`, listing the known ones.
        UsageError: *names* is one string.
    """
    if isinstance(names, str):
        raise UsageError(f"Active skills are a list of names: [{names!r}], not {names!r}.")
    parts: list[SystemPart] = []
    for name in dict.fromkeys(names):
        skill = registry.resolve(name)
        parts.append(
            SystemPart(name=f"skill:{name}", text=f"# Skill: {name}\n\n{skill.instructions}")
        )
    return parts
