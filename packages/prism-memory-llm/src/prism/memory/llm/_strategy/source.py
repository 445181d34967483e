"""Where the summary model's provider comes from, for each compaction anew."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias, cast

import anyio
import msgspec

from prism.core import ModelConfig, Secret, UsageError
from prism.core.host import resolve_credential
from prism.core.providers import (
    CredentialRequest,
    CredentialResolver,
    Provider,
    resolve_use_case_model,
    use_case_credential_provider,
)
from prism.memory.llm._strategy.failures import Failures

ProviderFactory: TypeAlias = Callable[[Secret | None], Provider | Awaitable[Provider]]
"""Makes a provider for one compaction from the credential that was resolved for it."""

ProviderSource: TypeAlias = Provider | ProviderFactory

USE_CASE: Final = "summary"
"""Under which the model is resolved, and which request policies are told."""

_CLOSE_SECONDS: Final = 2.0


class SummarySource(msgspec.Struct, frozen=True, kw_only=True):
    """A provider or its factory, with the model that it is asked for.

    Attributes:
        provider: Set when the host gave one.
        factory: Set when the host gave a factory.
        credential: Asked before the factory is called.
        credential_request: What it is asked for.
    """

    model: ModelConfig
    provider: Any = None
    factory: Any = None
    credential: Any = None
    credential_request: CredentialRequest | None = None

    @asynccontextmanager
    async def open(self, failures: Failures) -> AsyncGenerator[tuple[Provider, Failures]]:
        """The provider, and failures that know its credential too.

        What a factory made is closed at the end.
        """
        if self.factory is None:
            yield self.provider, failures
            return
        secret: Secret | None = None
        resolver, wanted = self.credential, self.credential_request
        if resolver is not None and wanted is not None:
            secret = await failures.guarded_async(
                "The summary model's credential could not be resolved",
                lambda: resolve_credential(resolver, wanted),
            )
            failures = Failures(failures.redactor.extended([secret]), failures.max_bytes)
        provider = await failures.guarded_async(
            "The summary model's provider could not be made", lambda: self._make(secret)
        )
        try:
            yield provider, failures
        finally:
            close = getattr(provider, "aclose", None)
            if close is not None:
                # The answer is there, or its own failure is under way: neither is lost over this.
                with anyio.move_on_after(_CLOSE_SECONDS, shield=True), suppress(Exception):
                    await close()

    async def _make(self, secret: Secret | None) -> Provider:
        made: object = self.factory(secret)
        provider: object = (
            await cast("Awaitable[object]", made) if isinstance(made, Awaitable) else made
        )
        if not isinstance(provider, Provider):
            raise UsageError(f"the factory gave a {type(provider).__name__}")
        return provider


def summary_source(
    *,
    provider: ProviderSource | None,
    summary_provider: ProviderSource | None,
    model: ModelConfig | None,
    summary_model: ModelConfig | None,
    credential: CredentialResolver | None,
    credential_request: CredentialRequest | None,
) -> SummarySource:
    """Check what the host gave.

    Raises:
        UsageError: `missing_provider`, `no_model_for_use_case`, or `invalid_params` for a
            credential that no factory would get.
    """
    source = provider if summary_provider is None else summary_provider
    binding = resolve_use_case_model(USE_CASE, explicit=summary_model, fallback=model)
    chosen = binding.model
    if source is None:
        raise UsageError(
            "Compaction by a summary model needs summary_provider or provider.",
            code="missing_provider",
        )
    if isinstance(source, Provider) and not isinstance(source, type):
        if credential is not None or credential_request is not None:
            raise UsageError(
                "credential and credential_request are for a provider factory, and a provider was "
                "given: give the credential to the provider itself."
            )
        return SummarySource(model=chosen, provider=source)
    if not callable(source):
        raise UsageError(
            "summary_provider must be a provider or a function that makes one, not "
            f"{type(source).__name__}."
        )
    if credential is None and credential_request is not None:
        raise UsageError("credential_request needs a credential resolver: give credential too.")
    return SummarySource(
        model=chosen,
        factory=source,
        credential=credential,
        credential_request=credential_request
        or CredentialRequest(provider=use_case_credential_provider(binding)),
    )
