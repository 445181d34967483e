"""Providers and models by name."""

from __future__ import annotations

import pytest

from prism.core._errors import RegistryError
from prism.core.providers import MockProvider, ModelConfig, ModelRegistry, ProviderRegistry

FAST = ModelConfig(provider="openrouter", model="anthropic/claude")


def test_a_provider_is_found_by_its_own_id_or_by_another() -> None:
    first, second = MockProvider(id="first"), MockProvider(id="mock")
    registry = ProviderRegistry([first])
    registry.register(second, id="second")
    assert registry.resolve("first") is first
    assert registry.get("second") is second
    assert registry.get("mock") is None
    assert registry.list() == [first, second]
    assert registry.unregister("first") is first
    assert registry.list() == [second]


def test_a_second_provider_of_one_id_is_refused_with_both_sources() -> None:
    registry = ProviderRegistry()
    registry.register(MockProvider(), source="host")
    with pytest.raises(RegistryError, match="one from host and one from pack") as caught:
        registry.register(MockProvider(), source="pack")
    assert caught.value.code == "duplicate_name"
    assert caught.value.details == {"name": "mock", "sources": ["host", "pack"]}


def test_an_unknown_provider_is_answered_with_those_that_are_known() -> None:
    registry = ProviderRegistry([MockProvider(id=f"p{number:02}") for number in range(25)])
    with pytest.raises(RegistryError, match=r"p00, p01, .* and 5 more") as caught:
        registry.resolve("other")
    assert caught.value.code == "unknown_name"
    with pytest.raises(RegistryError, match="Registered are: none"):
        ProviderRegistry().unregister("other")


def test_a_model_is_found_by_its_full_name_and_by_its_aliases() -> None:
    registry = ModelRegistry()
    registry.register(FAST, aliases=["fast", "default"])
    assert registry.resolve("openrouter/anthropic/claude") is FAST
    assert registry.resolve("fast") is FAST
    assert registry.list() == [FAST]
    assert registry.get("slow") is None
    assert registry.unregister("default") is FAST
    assert registry.list() == []
    assert registry.get("fast") is None


def test_a_taken_alias_leaves_the_registry_as_it_was() -> None:
    registry = ModelRegistry([FAST])
    other = ModelConfig(provider="p", model="m")
    with pytest.raises(RegistryError, match="both from host"):
        registry.register(other, aliases=["openrouter/anthropic/claude"])
    assert registry.list() == [FAST]
    with pytest.raises(RegistryError, match="needs a name"):
        registry.register(other, aliases=[""])
    assert registry.list() == [FAST]


class Closing(MockProvider):
    def __init__(self, id: str, *, fails: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self.fails = fails
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        if self.fails:
            raise OSError(self.id)


async def test_closing_a_registry_closes_every_provider_once() -> None:
    one, two = Closing("one"), Closing("two")
    registry = ProviderRegistry([one, MockProvider(), two])
    registry.register(one, id="again")
    await registry.aclose()
    assert (one.closed, two.closed) == (1, 1)


async def test_a_provider_that_fails_to_close_leaves_none_open() -> None:
    providers = [Closing("one", fails=True), Closing("two", fails=True), Closing("three")]
    with pytest.raises(OSError, match="one"):
        await ProviderRegistry(providers).aclose()
    assert [provider.closed for provider in providers] == [1, 1, 1]
