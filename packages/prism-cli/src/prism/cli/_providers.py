"""The providers that `--provider` knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

from prism.cli._host import HostOptions, UsageProblem
from prism.core.providers import Provider

_Make = Callable[[HostOptions, str], Provider]


def _mock(options: HostOptions, name: str) -> Provider:
    for flag, value in (
        ("--base-url", options.base_url),
        ("--credential-env", options.credential_env),
    ):
        if value is not None:
            raise UsageProblem(f"{flag} means nothing to the provider {name}.")
    from prism.core.providers import MockProvider

    return MockProvider(id=name)


def _http(class_name: str) -> _Make:
    """A provider on HTTP, loaded only when it is chosen."""

    def make(options: HostOptions, name: str) -> Provider:
        kind = getattr(import_module("prism.core.providers"), class_name)
        fields: dict[str, object] = {"id": name}
        if options.base_url is not None:
            fields["base_url"] = options.base_url
        if options.credential_env is not None:
            from prism.core.host import EnvCredentialResolver

            fields["credential_resolver"] = EnvCredentialResolver({name: options.credential_env})
        provider: Provider = kind(**fields)
        return provider

    return make


PROVIDERS: Final[Mapping[str, _Make]] = {
    "mock": _mock,
    "openai": _http("OpenAIResponsesProvider"),
    "openai-chat": _http("OpenAIChatProvider"),
    "anthropic": _http("AnthropicProvider"),
    "google": _http("GoogleProvider"),
}

DEFAULT_MODELS: Final[Mapping[str, str]] = {"mock": "demo"}
"""Providers that answer without being told a model."""


def make_provider(options: HostOptions) -> tuple[Provider, str]:
    """The provider that the flags name, and the model.

    Raises:
        UsageProblem: None is named, it is unknown, or the model is missing.
    """
    name = options.provider
    known = ", ".join(PROVIDERS)
    if name is None:
        raise UsageProblem(f"Name a provider with --provider ({known}), or an app with --app.")
    make = PROVIDERS.get(name)
    if make is None:
        raise UsageProblem(f"Unknown provider {name!r}; there are {known}.")
    model = options.model or DEFAULT_MODELS.get(name)
    if model is None:
        raise UsageProblem(f"The provider {name} needs a model: give it with --model.")
    return make(options, name), model
