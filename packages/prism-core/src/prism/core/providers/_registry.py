"""Providers and models by name. A registry is passed to an agent; none is global."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prism.core._contracts import Provider
from prism.core._support.registry import Registry
from prism.core._wire import ModelConfig

_SHOWN: Final = 20
_NOTHING: Final = "Registered are: none."


class ProviderRegistry:
    """Providers by the id that `ModelConfig.provider` names."""

    def __init__(self, providers: Iterable[Provider] = ()) -> None:
        self._registry: Registry[Provider] = Registry("provider", shown=_SHOWN, nothing=_NOTHING)
        for provider in providers:
            self.register(provider)

    def register(self, provider: Provider, *, id: str | None = None, source: str = "host") -> None:  # noqa: A002
        """Add a provider.

        Args:
            provider: Any provider.
            id: Instead of the provider's own id.
            source: Who registers it, for messages.

        Raises:
            RegistryError: `duplicate_name`, with both sources.
        """
        self._registry.register(provider.id if id is None else id, provider, source=source)

    def resolve(self, id: str) -> Provider:  # noqa: A002
        """The provider of that id.

        Raises:
            RegistryError: `unknown_name`, with the ids that are known.
        """
        return self._registry.resolve(id)

    def get(self, id: str) -> Provider | None:  # noqa: A002
        """The provider of that id, if there is one."""
        return self._registry.get(id)

    def list(self) -> list[Provider]:
        """All providers, in the order of registration."""
        return [*self._registry]

    async def aclose(self) -> None:
        """Close every provider that can be closed; what the first one raises comes last."""
        raised: Exception | None = None
        for provider in self._registry:
            close = getattr(provider, "aclose", None)
            if close is not None:
                try:
                    await close()
                except Exception as error:  # noqa: BLE001 - raised when the others are closed
                    raised = raised or error
        if raised is not None:
            raise raised

    def unregister(self, id: str) -> Provider:  # noqa: A002
        """Take the provider out and return it; it is not closed.

        Raises:
            RegistryError: `unknown_name`.
        """
        return self._registry.unregister(id)


class ModelRegistry:
    """Models by `provider/model` and by alias."""

    def __init__(self, models: Iterable[ModelConfig] = ()) -> None:
        self._registry: Registry[ModelConfig] = Registry("model", shown=_SHOWN, nothing=_NOTHING)
        for model in models:
            self.register(model)

    def register(
        self, model: ModelConfig, *, aliases: Iterable[str] = (), source: str = "host"
    ) -> None:
        """Add a model under `provider/model` and each alias.

        Raises:
            RegistryError: `duplicate_name`, with both sources; nothing was added then.
        """
        self._registry.register(_full_name(model), model, source=source, aliases=aliases)

    def resolve(self, name: str) -> ModelConfig:
        """The model of that full name or alias.

        Raises:
            RegistryError: `unknown_name`, with the names that are known.
        """
        return self._registry.resolve(name)

    def get(self, name: str) -> ModelConfig | None:
        """The model of that full name or alias, if there is one."""
        return self._registry.get(name)

    def list(self) -> list[ModelConfig]:
        """All models, in the order of registration."""
        return [*self._registry]

    def unregister(self, name: str) -> ModelConfig:
        """Take the model out, with all its names, and return it.

        Raises:
            RegistryError: `unknown_name`.
        """
        return self._registry.unregister(name)


def _full_name(model: ModelConfig) -> str:
    return f"{model.provider}/{model.model}"
