"""A host that wires in each part of Prism. It plays a script instead of asking a model.

    python examples/host/main.py

It reads its configuration, loads an extension, puts an agent together from what both offer, and
lets it work: the agent asks another agent, and a person before it opens a cage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
from scripted_model import play
from zoo_extension import zoo

from prism.core import (
    Agent,
    ModelConfig,
    SecretRedactor,
    Session,
    ToolApprovalRequested,
    UsageLimits,
    UsageReported,
    agent_tool,
    tool,
)
from prism.core.extensions import ExtensionKernel
from prism.core.host import (
    ChainedCredentialResolver,
    ChainedSettings,
    CommandContext,
    CredentialRequest,
    EnvCredentialResolver,
    ExplicitCredentialResolver,
    FileResourceLoader,
    FileSettings,
    PermissionRule,
    StaticPermissionPolicy,
    StaticSettings,
    StaticTrustPolicy,
    credential_reference,
    load_config_files,
    load_manifest_resource,
    load_resource,
    merge_config_layers,
    resolve_credential,
    run_command,
)
from prism.core.prompt import (
    SkillRegistry,
    SystemLayer,
    compose_system_prompt,
    resolve_active_skills,
    resource_block,
    system_layer,
)
from prism.core.providers import MockProvider
from prism.core.stores import MemorySessionStore

DATA = Path(__file__).parent / "data"
DEFAULTS: dict[str, Any] = {"system": "Be brief.", "skills": [], "limits": {"maxRequests": 10}}
# A real host gives `os.environ`; Prism reads no environment by itself.
ENVIRONMENT = {"ZOO_KEY": "zoo-key-4711"}

PERMISSIONS = StaticPermissionPolicy(
    [
        PermissionRule(verdict="ask", action="tool", name="feed", reason="It opens a cage."),
        PermissionRule(verdict="allow", action="tool"),
    ]
)


class Report(msgspec.Struct):
    """What the host wants to know in the end."""

    animal: str
    kg: float
    fed: bool


async def make_agent(kernel: ExtensionKernel, config: dict[str, Any], settings: Any) -> Agent:
    """Put the agent together; what an extension offers has no effect before this."""
    offered = kernel.registries
    credentials = ChainedCredentialResolver(
        [
            EnvCredentialResolver({"zoo": "ZOO_KEY"}, environ=ENVIRONMENT),
            ExplicitCredentialResolver({"zoo": "only-for-tests"}),
        ]
    )
    reference = credential_reference(config["zoo"]["api_key"])
    key = await resolve_credential(credentials, reference or CredentialRequest(provider="zoo"))
    max_kg = settings.get("zoo")["max_kg"]

    @tool
    async def feed(animal: str, kg: float) -> str:
        """Open a cage and feed an animal."""
        return f"Opened with {key.reveal()}; the {animal} got {min(kg, max_kg * 3)} kg."

    provider = MockProvider(play, supports_output_schema=True)
    store = MemorySessionStore()
    redactor = SecretRedactor([key.reveal()])
    model = msgspec.convert(config["model"], ModelConfig)
    dietician = offered.agents.resolve("dietician")(
        provider=provider,
        model=model,
        tools=offered.tools.list(),
        store=store,
        redactor=redactor,
    )
    ask_dietician = agent_tool(
        dietician, name="dietician", description="Knows how much each animal may eat."
    )
    skills = SkillRegistry(offered.skills.list())
    system = compose_system_prompt(
        system_layer("package", offered.system_prompts.list()),
        system_layer("app", "Never open a cage without being asked to."),
        system_layer("user", config["system"]),
        SystemLayer(level="run", parts=resolve_active_skills(skills, config["skills"])),
    )
    return Agent(
        model=model,
        provider=provider,
        tools=[feed, ask_dietician, *offered.tools.list()],
        store=store,
        system=system,
        context=offered.context_providers.list(),
        middleware=kernel.middleware,
        permissions=PERMISSIONS,
        redactor=redactor,
        limits=msgspec.convert(config["limits"], UsageLimits),
    )


async def work(session: Session, rules: Any) -> None:
    """One run, in which a person is asked."""
    async with session.stream("Feed the otters.", attachments=[rules], approvals="wait") as events:
        async for event in events:
            if isinstance(event, ToolApprovalRequested):
                print(f"May it {event.call.name} {event.call.arguments}? {event.reason}")
                less = {**event.call.arguments, "kg": 6}
                await session.answer_approval(event.approval_id, "edited", arguments=less)
            elif isinstance(event, UsageReported) and event.source == "agent":
                print(f"The dietician cost {event.usage.cost:.4f} {event.usage.currency}.")
    assert events.result is not None  # noqa: S101
    print(f"{events.result.text} ({events.result.status})")


async def main() -> None:
    """Read, load, wire, run."""
    trust = StaticTrustPolicy([str(DATA)])
    config = merge_config_layers(
        DEFAULTS, load_config_files([DATA / "config.toml"], root=DATA, trust=trust)
    )
    settings = ChainedSettings(
        [
            FileSettings(DATA / "config.toml", table="settings", trust=trust),
            StaticSettings({"zoo": {"max_kg": 1}}),
        ]
    )
    resources = FileResourceLoader([DATA])
    manifest = await load_manifest_resource(resources, "file:manifest.json")
    print(f"{manifest.name} {manifest.version} offers {len(manifest.contributions)} things.")
    rules = resource_block(await load_resource(resources, "file:rules.md"))

    kernel = ExtensionKernel()
    await kernel.load([zoo])
    agent = await make_agent(kernel, config, settings)
    session = agent.session("keeper")

    await work(session, rules)
    fed = next(entry for entry in await session.entries() if "Opened" in repr(entry))
    print("The store knows the key:", ENVIRONMENT["ZOO_KEY"] in repr(fed))
    asked = await agent.session(f"keeper.{await call_id(session, 'dietician')}").entries()
    print(f"The dietician's session has {len(asked)} entries.")

    result = await session.run("Report.", output=Report)
    print(result.output)
    result = await session.run("Look again and again.")
    print(f"Without an end: {result.status}")

    command = kernel.registries.commands.resolve("zoo:calls")
    told = await run_command(command, None, CommandContext(session_id=session.id, session=session))
    for block in told.content or ():
        print(getattr(block, "text", ""))
    usage = (await session.state()).usage
    print(f"All in all: {usage.cost:.4f} {usage.currency}" if usage else "Nothing was used.")
    await session.aclose()
    await agent.aclose()


async def call_id(session: Session, name: str) -> str:
    """The id of the first call of a tool."""
    for entry in await session.entries():
        message = getattr(entry, "message", None)
        for call in message.tool_calls if message is not None else ():
            if call.name == name:
                return str(call.id)
    raise LookupError(name)


if __name__ == "__main__":
    anyio.run(main)
