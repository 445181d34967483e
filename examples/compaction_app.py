"""An app for `prism --app`: sessions that a model keeps short by its summaries.

    prism --app examples.compaction_app:App --mode rpc --store sessions --session s1

Without `--base-url` a scripted model answers, so that it can be tried without a server. With
`--base-url`, `--model` and `--credential-env` it is any model behind the Chat Completions API.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from prism.cli import HostOptions
from prism.core import Agent, CompactionOptions, ModelConfig, Session, Usage
from prism.core.providers import (
    MockProvider,
    OpenAIChatProvider,
    Provider,
    ProviderEvent,
    ProviderRequest,
    done,
    text_delta,
)
from prism.memory.llm import SUMMARY_SYSTEM_PROMPT, CodingCompactionStrategy


class App:
    """One agent for all sessions. It summarises with the model that it chats with."""

    def __init__(self) -> None:
        self._agent: Agent | None = None

    def create_session(self, options: HostOptions) -> Session:
        """The session that is asked for."""
        if self._agent is None:
            provider = provider_of(options)
            model = ModelConfig(provider=provider.id, model=options.model or "scripted")
            strategy = CodingCompactionStrategy(
                provider=provider, model=model, keep_recent_tokens=400
            )
            self._agent = Agent(
                model=model,
                provider=provider,
                store=options.open_store(),
                compaction=CompactionOptions(strategy=strategy, on_overflow="compact"),
            )
        return self._agent.session(options.session)

    async def aclose(self) -> None:
        """Close what was opened."""
        if self._agent is not None:
            await self._agent.aclose()


def provider_of(options: HostOptions) -> Provider:
    """The vendor that the flags name, or the scripted one."""
    if options.base_url is None:
        return MockProvider(scripted)
    key = os.environ[options.credential_env] if options.credential_env else None
    return OpenAIChatProvider(base_url=options.base_url, credential=key)


def scripted(request: ProviderRequest) -> Iterable[ProviderEvent]:
    """Count the questions in what is sent, or summarise them."""
    text = "\n".join(message.text for message in request.messages)
    usage = Usage(input_tokens=len(text) // 4, output_tokens=8)
    if SUMMARY_SYSTEM_PROMPT in request.system:
        carried = " It carries on an earlier summary." if "<summary>" in text else ""
        words = f"## Progress\nThe user asked {text.count('[user]')} more questions.{carried}"
    else:
        asked = sum(message.role == "user" for message in request.messages)
        words = f"I see {asked} messages of yours. " + "So it goes. " * 40
    return [text_delta(words), done(usage=usage)]
