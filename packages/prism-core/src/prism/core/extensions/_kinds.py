"""What an extension can contribute, and the registry of each kind."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from prism.core._contracts import (
    CommandDefinition,
    CompactionStrategy,
    ContextProvider,
    CredentialResolver,
    InputBuilder,
    PromptBuilder,
    Provider,
    RequestPolicy,
    ResourceLoader,
    RetryPolicy,
    Secret,
    SessionStore,
    SettingsProvider,
    Tool,
)
from prism.core._errors import RegistryError
from prism.core._runtime import Agent
from prism.core._support.registry import list_names
from prism.core._wire import ModelConfig
from prism.core.extensions._registry import ContributionRegistry
from prism.core.host import OAuthCredential
from prism.core.prompt import Skill, SystemPart

CONTRIBUTION_REGISTRIES: Final[Mapping[str, str]] = MappingProxyType({
    "agent": "agents",
    "authMethod": "auth_methods",
    "command": "commands",
    "compactionStrategy": "compaction_strategies",
    "contextProvider": "context_providers",
    "credentialResolver": "credential_resolvers",
    "inputBuilder": "input_builders",
    "model": "models",
    "promptBuilder": "prompt_builders",
    "provider": "providers",
    "providerPackage": "provider_packages",
    "requestPolicy": "request_policies",
    "resourceLoader": "resource_loaders",
    "retryPolicy": "retry_policies",
    "settingsProvider": "settings_providers",
    "skill": "skills",
    "storeFactory": "store_factories",
    "systemPrompt": "system_prompts",
    "tool": "tools",
})  # fmt: skip
"""For each kind, as a manifest names it, the attribute that holds its registry.

`middleware`, the one other kind of a manifest, is no choice by name: it goes to a
`MiddlewareRegistry`.
"""

AgentFactory: TypeAlias = Callable[..., Agent]
"""Makes an agent of what the host gives it, as an `AgentDefinition` does when it is called; which
keywords another one takes is its own affair."""

StoreFactory: TypeAlias = Callable[..., SessionStore | Awaitable[SessionStore]]
"""Opens a session store, at a place that the host names."""


class ProviderPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor, for a host that lets its users choose one.

    Attributes:
        create: Makes the provider when the host calls it, with the host's keywords, such as a
            credential resolver.
        models: Models that it serves.
        auth_methods: Names of auth methods by which its credentials can be had.
    """

    create: Callable[..., Provider]
    models: Sequence[ModelConfig] = ()
    auth_methods: Sequence[str] = ()


class AuthMethod(msgspec.Struct, frozen=True, kw_only=True):
    """A way for a person to sign in with a vendor.

    Attributes:
        provider: Whose credential it gets.
        login: Called when the host wants to sign in, with whatever the host offers for asking a
            person; gives the credential.
        refresh: For `refresh_oauth_credential`; `None`: what `login` gives is not renewed.
        label: For a list to choose from.
    """

    provider: str
    login: Callable[..., Secret | OAuthCredential | Awaitable[Secret | OAuthCredential]]
    refresh: Callable[[OAuthCredential], OAuthCredential | Awaitable[OAuthCredential]] | None = None
    label: str = ""


class ContributionRegistries:
    """One registry for each kind of contribution: what extensions offer and a host chooses from.

    Attributes:
        agents: Agents that can be made by name: an `AgentDefinition`, or a function.
        auth_methods: Ways to sign in with a vendor.
        commands: What people and clients run by name.
        compaction_strategies: For `CompactionOptions.strategy`.
        context_providers: For `Agent(context=…)`.
        credential_resolvers: Where credentials come from.
        input_builders: For `Agent(input_builder=…)`.
        models: By `provider/model` or by a name of their own.
        prompt_builders: For `Agent(prompt_builder=…)`.
        provider_packages: Vendors to choose from.
        providers: For `Agent(provider=…)`.
        request_policies: For `Agent(request_policies=…)`.
        resource_loaders: For `ResourceLoaders`.
        retry_policies: For `RetryOptions.policy`.
        settings_providers: For `ChainedSettings`.
        skills: For a `SkillRegistry`.
        store_factories: Open a session store.
        system_prompts: Parts of the system prompt's `package` layer.
        tools: For `Agent(tools=…)`.
    """

    def __init__(self) -> None:
        self.agents: ContributionRegistry[AgentFactory] = _registry("agent", Callable)
        self.auth_methods: ContributionRegistry[AuthMethod] = _registry("authMethod", AuthMethod)
        self.commands: ContributionRegistry[CommandDefinition] = _registry(
            "command", CommandDefinition
        )
        self.compaction_strategies: ContributionRegistry[CompactionStrategy] = _registry(
            "compactionStrategy", CompactionStrategy
        )
        self.context_providers: ContributionRegistry[ContextProvider] = _registry(
            "contextProvider", ContextProvider
        )
        self.credential_resolvers: ContributionRegistry[CredentialResolver] = _registry(
            "credentialResolver", CredentialResolver
        )
        self.input_builders: ContributionRegistry[InputBuilder] = _registry(
            "inputBuilder", InputBuilder
        )
        self.models: ContributionRegistry[ModelConfig] = _registry("model", ModelConfig)
        self.prompt_builders: ContributionRegistry[PromptBuilder] = _registry(
            "promptBuilder", PromptBuilder
        )
        self.provider_packages: ContributionRegistry[ProviderPackage] = _registry(
            "providerPackage", ProviderPackage
        )
        self.providers: ContributionRegistry[Provider] = _registry("provider", Provider)
        self.request_policies: ContributionRegistry[RequestPolicy] = _registry(
            "requestPolicy", RequestPolicy
        )
        self.resource_loaders: ContributionRegistry[ResourceLoader] = _registry(
            "resourceLoader", ResourceLoader
        )
        self.retry_policies: ContributionRegistry[RetryPolicy] = _registry(
            "retryPolicy", RetryPolicy
        )
        self.settings_providers: ContributionRegistry[SettingsProvider] = _registry(
            "settingsProvider", SettingsProvider
        )
        self.skills: ContributionRegistry[Skill] = _registry("skill", Skill)
        self.store_factories: ContributionRegistry[StoreFactory] = _registry(
            "storeFactory", Callable
        )
        self.system_prompts: ContributionRegistry[SystemPart] = _registry(
            "systemPrompt", SystemPart
        )
        self.tools: ContributionRegistry[Tool] = _registry("tool", Tool)

    def of_kind(self, kind: str) -> ContributionRegistry[Any]:
        """The registry of a kind, as a manifest names it.

        Raises:
            RegistryError: `unknown_name`, listing the kinds.
        """
        attribute = CONTRIBUTION_REGISTRIES.get(kind)
        if attribute is None:
            raise RegistryError(
                f"There is no registry for the kind {kind!r}. "
                f"{list_names(CONTRIBUTION_REGISTRIES)}",
                details={"name": kind, "known": list(CONTRIBUTION_REGISTRIES)},
            )
        registry: ContributionRegistry[Any] = getattr(self, attribute)
        return registry


def _registry(kind: str, accepts: Any) -> ContributionRegistry[Any]:
    words = re.sub(r"(?=[A-Z])", " ", kind).lower()
    plural = CONTRIBUTION_REGISTRIES[kind].replace("_", " ")
    return ContributionRegistry(words, plural=plural, accepts=(accepts,))
