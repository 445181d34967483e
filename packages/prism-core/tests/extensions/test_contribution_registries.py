from __future__ import annotations

from typing import Any

import pytest

from prism.core import Agent, ConfigError, ModelConfig, RegistryError, Secret, Tool
from prism.core.compaction import DefaultCompactionStrategy
from prism.core.extensions import (
    CONTRIBUTION_REGISTRIES,
    AuthMethod,
    ContributionRegistries,
    ContributionRegistry,
    ExtensionApi,
    ExtensionKernel,
    ProviderPackage,
    extension,
)
from prism.core.host import (
    CONTRIBUTION_KINDS,
    CommandDefinition,
    DataResourceLoader,
    ExplicitCredentialResolver,
    StaticSettings,
    parse_manifest,
)
from prism.core.prompt import (
    DefaultInputBuilder,
    DefaultPromptBuilder,
    Skill,
    StaticContext,
    SystemPart,
)
from prism.core.providers import MockProvider
from prism.core.stores import MemorySessionStore

MODEL = ModelConfig(provider="mock", model="demo")


class Policy:
    """A request policy and a retry policy, as far as their shapes go."""

    name = "policy"

    def apply(self, request: Any, context: Any) -> Any:
        return request

    def decide(self, context: Any) -> Any:
        raise NotImplementedError


def agent() -> Agent:
    return Agent(model=MODEL, provider=MockProvider())


SAMPLES: dict[str, Any] = {
    "agent": agent,
    "authMethod": AuthMethod(provider="mock", login=Secret),
    "command": CommandDefinition(name="now", execute=lambda args, context: "now"),
    "compactionStrategy": DefaultCompactionStrategy(),
    "contextProvider": StaticContext("zoo", "The zoo has 3 otters."),
    "credentialResolver": ExplicitCredentialResolver({}),
    "inputBuilder": DefaultInputBuilder(),
    "model": MODEL,
    "promptBuilder": DefaultPromptBuilder(),
    "provider": MockProvider(),
    "providerPackage": ProviderPackage(create=MockProvider, models=[MODEL]),
    "requestPolicy": Policy(),
    "resourceLoader": DataResourceLoader(),
    "retryPolicy": Policy(),
    "settingsProvider": StaticSettings({}),
    "skill": Skill(name="haiku", instructions="Answer in a haiku."),
    "storeFactory": MemorySessionStore,
    "systemPrompt": SystemPart(text="Be brief."),
    "tool": Tool(name="now", execute=lambda arguments, context: "now"),
}


def strings() -> ContributionRegistry[str]:
    return ContributionRegistry("string", accepts=(str,))


def test_every_kind_of_a_manifest_but_middleware_has_one_registry() -> None:
    assert {*CONTRIBUTION_REGISTRIES, "middleware"} == {*CONTRIBUTION_KINDS}
    assert {*CONTRIBUTION_REGISTRIES.values()} == {*vars(ContributionRegistries())}
    assert {*SAMPLES} == {*CONTRIBUTION_REGISTRIES}


@pytest.mark.parametrize("kind", CONTRIBUTION_REGISTRIES)
async def test_each_kind_is_registered_in_setup_and_resolved_by_the_host(kind: str) -> None:
    attribute = CONTRIBUTION_REGISTRIES[kind]

    @extension("sample")
    def sample(api: ExtensionApi) -> None:
        getattr(api, attribute).register("first", SAMPLES[kind])

    kernel = ExtensionKernel()
    await kernel.load([sample])
    registry = kernel.registries.of_kind(kind)
    assert registry is getattr(kernel.registries, attribute)
    assert registry.resolve("first") is SAMPLES[kind]
    assert registry.source("first") == "sample"


@pytest.mark.parametrize("kind", CONTRIBUTION_REGISTRIES)
def test_a_value_of_another_kind_is_refused(kind: str) -> None:
    registry = ContributionRegistries().of_kind(kind)
    with pytest.raises(RegistryError, match="'first' of 'pack' must be a ") as caught:
        registry.register("first", 42, source="pack")
    assert caught.value.code == "invalid_value"
    assert registry.names == ()


def test_an_unknown_kind_is_answered_with_the_known_ones() -> None:
    with pytest.raises(RegistryError, match=r"'tools'\. Known: agent, authMethod, .*tool\."):
        ContributionRegistries().of_kind("tools")


def test_a_registry_keeps_the_order_of_registration() -> None:
    registry = strings()
    registry.register("b", "B")
    registry.register("a", "A", source="pack", aliases=["first"])
    assert registry.names == ("b", "a", "first")
    assert registry.list() == tuple(registry) == ("B", "A")
    assert registry.items() == (("b", "B"), ("a", "A"), ("first", "A"))
    assert (len(registry), "first" in registry, "c" in registry) == (2, True, False)
    assert (registry.source("b"), registry.source("first")) == ("host", "pack")
    assert (registry.get("a"), registry.get("c")) == ("A", None)


def test_a_value_leaves_with_all_its_names() -> None:
    registry = strings()
    registry.register("a", "A", aliases=["first"])
    registry.register("b", "A")
    assert registry.unregister("first") == "A"
    assert registry.items() == (("b", "A"),)
    registry.register("a", "again")


def test_a_taken_name_is_refused_naming_both_sources() -> None:
    registry = strings()
    registry.register("a", "A", source="one")
    for names in (("a",), ("b", "a")):
        with pytest.raises(RegistryError, match="one from one and one from two") as caught:
            registry.register(names[0], "B", source="two", aliases=names[1:])
        assert caught.value.code == "duplicate_name"
        assert caught.value.details == {"name": "a", "sources": ["one", "two"]}
    assert registry.items() == (("a", "A"),)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    registry = strings()
    for ask in (registry.resolve, registry.unregister, registry.source):
        with pytest.raises(RegistryError, match=r"no string named 'x'\. Known: none") as caught:
            ask("x")
        assert caught.value.code == "unknown_name"
    for number in range(60):
        registry.register(f"s{number}", "S")
    with pytest.raises(RegistryError, match=r"Known: s0, s1, .*s49 and 10 more\.") as caught:
        registry.resolve("x")
    assert caught.value.details is not None
    assert len(caught.value.details["known"]) == 50


def manifest(name: str) -> dict[str, Any]:
    declared = {"kind": "tool", "name": name, "entryPoint": "a:b"}
    return {"name": "pack", "version": "1", "contributions": [declared]}


@pytest.mark.parametrize(
    "name", ["openrouter/anthropic/claude@1", "om:status", "A.b_c-d", "x" * 128]
)
def test_what_a_manifest_can_name_can_be_registered(name: str) -> None:
    strings().register(name, "S")
    parse_manifest(manifest(name))


@pytest.mark.parametrize("name", ["x" * 129, "", "_a", "a b", "a\n", "ä"])
def test_what_a_manifest_cannot_name_cannot_be_registered(name: str) -> None:
    with pytest.raises(RegistryError) as caught:
        strings().register(name, "S")
    assert caught.value.code == "invalid_name"
    with pytest.raises(ConfigError):
        parse_manifest(manifest(name))
