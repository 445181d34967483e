"""An app for `prism --app`: sessions that remember what their summaries leave out.

    prism --app examples.memory_app:App --mode rpc --store sessions --session s1

Its commands are `om:flush`, which observes what is new, `om:status` and `om:view`; the model has
the tool `recall`. Without `--base-url` a scripted model answers and observes, so that it can be
tried without a server; it calls `recall` when it is asked to. With `--base-url`, `--model` and
`--credential-env` it is any model behind the Chat Completions API.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from prism.cli import HostOptions
from prism.core import Agent, CommandResult, CompactionOptions, ModelConfig, Session, SessionEntry
from prism.core.host import CommandContext, CommandDefinition
from prism.core.providers import (
    MockProvider,
    OpenAIChatProvider,
    Provider,
    ProviderEvent,
    ProviderRequest,
    done,
    text_delta,
    tool_call,
)
from prism.memory.observational import (
    ObservationalCompactionStrategy,
    ObservationalMemory,
    ObservationalMemorySettings,
    memory_commands,
    recall_tool,
)

SETTINGS = ObservationalMemorySettings(observe_after_tokens=200, keep_recent_entries=2)

USER_BLOCK = re.compile(r"^\[entry (\S+) \| user .*\]\n  (.*)$", re.MULTILINE)
MEMORY_LINE = re.compile(r"^\[([a-f0-9]{12})\]", re.MULTILINE)


class App:
    """One agent for all sessions, and a memory for each."""

    def __init__(self) -> None:
        self._agent: Agent | None = None
        self._memories: dict[str, ObservationalMemory] = {}
        self.commands: list[CommandDefinition] = [
            *memory_commands(settings=SETTINGS, memory=self._memories.get),
            CommandDefinition(
                name="om:flush", description="Observe what is new.", execute=self._flush
            ),
        ]

    def create_session(self, options: HostOptions) -> Session:
        """The session that is asked for, with its memory."""
        if self._agent is None:
            provider = provider_of(options)
            self._agent = Agent(
                model=ModelConfig(provider=provider.id, model=options.model or "scripted"),
                provider=provider,
                store=options.open_store(),
                tools=[recall_tool(self._entries)],
                compaction=CompactionOptions(
                    strategy=ObservationalCompactionStrategy(settings=SETTINGS)
                ),
            )
        agent = self._agent
        session = agent.session(options.session)
        self._memories[session.id] = ObservationalMemory(
            session, provider=agent.provider, model=agent.model, settings=SETTINGS
        )
        return session

    async def aclose(self) -> None:
        """Close what was opened."""
        if self._agent is not None:
            await self._agent.aclose()

    async def _entries(self, session_id: str) -> list[SessionEntry]:
        return await self._memories[session_id].session.entries()

    async def _flush(self, _args: Any, context: CommandContext) -> CommandResult:
        result = await self._memories[context.session.id].flush(force=True)
        return CommandResult(name="om:flush", value=msgspec.to_builtins(result))


def provider_of(options: HostOptions) -> Provider:
    """The vendor that the flags name, or the scripted one."""
    if options.base_url is None:
        return MockProvider(scripted)
    key = os.environ[options.credential_env] if options.credential_env else None
    return OpenAIChatProvider(base_url=options.base_url, credential=key)


def scripted(request: ProviderRequest) -> Iterable[ProviderEvent]:
    """Chat, observe, or find nothing to reflect on."""
    job = request.tools[0].name
    first = all(message.role == "user" for message in request.messages)
    if job == "record_observations" and first:
        found = USER_BLOCK.findall(request.messages[0].text)
        notes = [
            {"content": f"The user said: {text}", "relevance": "high", "sourceEntryIds": [entry]}
            for entry, text in found
        ]
        return [tool_call(id="note", name=job, arguments={"observations": notes}), done()]
    if job != "recall":
        if first and job == "record_reflections":
            return [tool_call(id="none", name=job, arguments={"reflections": []}), done()]
        return [text_delta("Done."), done()]
    return chat(request)


def chat(request: ProviderRequest) -> Iterable[ProviderEvent]:
    """Say how much is seen; look behind the first memory when the user says `recall`."""
    newest = request.messages[-1]
    if newest.role == "user" and "recall" in newest.text:
        seen = "\n".join(message.text for message in request.messages)
        known = MEMORY_LINE.findall(seen)
        if known:
            return [
                tool_call(id=f"look_{known[0]}", name="recall", arguments={"id": known[0]}),
                done(),
            ]
    if newest.role == "tool":
        return [text_delta("I looked it up."), done()]
    return [text_delta(f"I see {len(request.messages)} messages. " + "So it goes. " * 20), done()]
