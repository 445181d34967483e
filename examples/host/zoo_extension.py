"""An extension: a tool, an agent, a skill, context, a part of the system prompt, a command."""

from __future__ import annotations

from typing import Any

from prism.core import AgentDefinition, UsageLimits, tool
from prism.core.extensions import ExtensionApi, ToolResultPayload, extension
from prism.core.host import CommandContext, CommandDefinition
from prism.core.prompt import Skill, StaticContext, SystemPart


@tool
def stock(food: str) -> str:
    """How much of a food is left."""
    return {"fish": "40 kg of fish"}.get(food, f"no {food}")


DIETICIAN = AgentDefinition(
    name="dietician",
    description="Knows how much each animal may eat.",
    system="You are a dietician for animals.",
    tools=["stock"],
    limits=UsageLimits(max_requests=3),
    max_tool_rounds=2,
)
FEEDING = Skill(name="feeding", instructions="Ask the dietician before you feed.", tools=["feed"])
ANIMALS = StaticContext("animals", "The zoo has 3 otters.")
TONE = SystemPart(name="tone", text="You help the keepers of a zoo.")


@extension("zoo")
def zoo(api: ExtensionApi) -> None:
    """Registers everything, and starts nothing."""
    calls: list[str] = []

    def count(payload: ToolResultPayload) -> None:
        calls.append(payload.call.name)

    def tell(_args: Any, _context: CommandContext) -> str:
        return f"{len(calls)} calls: {', '.join(calls)}"

    api.tools.register("stock", stock)
    api.agents.register("dietician", DIETICIAN)
    api.skills.register("feeding", FEEDING)
    api.context_providers.register("animals", ANIMALS)
    api.system_prompts.register("tone", TONE)
    api.use("tool_result", count)
    api.commands.register("zoo:calls", CommandDefinition(name="zoo:calls", execute=tell))
