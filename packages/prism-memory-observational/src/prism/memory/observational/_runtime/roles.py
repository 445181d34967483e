"""Who does a worker's job: model, provider, credential, limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import structs

from prism.core import ModelConfig, ProviderOptions, Secret, UsageError, is_thinking_level
from prism.core.providers import (
    CredentialRequest,
    CredentialResolver,
    Provider,
    ProviderRegistry,
)
from prism.memory.observational._settings import ObservationalMemorySettings, resolve_settings

WORKERS: Final = ("observer", "reflector", "dropper")

LIMITS: Final = frozenset({
    "agent_max_turns", "max_calls_per_turn", "max_calls_per_run", "max_payload_bytes",
    "max_transcript_bytes", "max_retries", "retry_budget_ms", "worker_timeout_ms",
    "observer_chunk_max_tokens", "prior_memory_max_tokens",
})  # fmt: skip
"""Settings that a role may have for itself."""

ProviderFactory: TypeAlias = Callable[[Secret | None], Provider | Awaitable[Provider]]
"""Makes a provider from the credential that was resolved for it."""


class WorkerRole(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker differs from the others.

    Attributes:
        model: Default: the memory's own.
        provider: A provider, a `ProviderRegistry`, or a function that makes a provider from a
            credential; default: the memory's own.
        thinking_level: One of `THINKING_LEVELS`; default: the memory's own.
        options: For its requests.
        credential: What is asked of the credential resolver before it runs; without an answer it
            is skipped.
        prompt: Its system prompt.
        limits: Settings of its own, of those in `WORKER_LIMITS`.
    """

    model: ModelConfig | None = None
    provider: Any = None
    thinking_level: str | None = None
    options: ProviderOptions | None = None
    credential: CredentialRequest | None = None
    prompt: str | None = None
    limits: Mapping[str, int] = {}


def check_role(name: str, role: WorkerRole) -> WorkerRole:
    """*role*, when it can be used.

    Raises:
        UsageError: `invalid_setting` for a limit, `invalid_params` for anything else.
    """
    if role.thinking_level is not None and not is_thinking_level(role.thinking_level):
        raise UsageError(f"Unknown thinking level {role.thinking_level!r} of the {name}.")
    if role.provider is not None and not callable(role.provider) and not _is_provider(role):
        raise UsageError(
            f"The provider of the {name} must be a provider, a registry or a function that makes "
            f"one, not {type(role.provider).__name__}."
        )
    for limit in role.limits:
        if limit not in LIMITS:
            raise UsageError(f"{limit} is no limit of the {name}.", code="invalid_setting")
    resolve_settings(**role.limits)
    return role


def _is_provider(role: WorkerRole) -> bool:
    return isinstance(role.provider, Provider | ProviderRegistry)


def merged_role(base: WorkerRole, own: WorkerRole | None) -> WorkerRole:
    """*own* over *base*."""
    if own is None:
        return base
    given = {
        name: value
        for name in WorkerRole.__struct_fields__
        if (value := getattr(own, name)) is not None
    }
    given["limits"] = {**base.limits, **own.limits}
    return structs.replace(base, **given)


def limited(settings: ObservationalMemorySettings, role: WorkerRole) -> ObservationalMemorySettings:
    """*settings* with the limits of the role over them."""
    return structs.replace(settings, **role.limits) if role.limits else settings


class Missing(Exception):  # noqa: N818
    """Carries the reason for which a worker cannot run; never leaves the package."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Hired(msgspec.Struct, frozen=True, kw_only=True):
    """A role with all that it needs.

    Attributes:
        made: Whether the provider was made for this run, and is to be closed after it.
    """

    role: WorkerRole
    model: ModelConfig
    provider: Any
    secret: Any = None
    made: bool = False

    async def dismiss(self) -> None:
        """Close a provider that was made for this run."""
        close: Any = getattr(self.provider, "aclose", None) if self.made else None
        if close is not None:
            await close()


async def hire(role: WorkerRole, credentials: CredentialResolver | None) -> Hired:
    """Find the model, the credential and the provider of a role.

    Raises:
        Missing: `missing_model` or `missing_credential`.
        UsageError: A factory made no provider.
    """
    if role.model is None or role.provider is None:
        raise Missing("missing_model")
    secret: Secret | None = None
    if role.credential is not None:
        secret = None if credentials is None else await credentials.resolve(role.credential)
        if not secret:
            raise Missing("missing_credential")
    found: Any = role.provider
    made = False
    if isinstance(found, ProviderRegistry):
        found = found.resolve(role.model.provider)
    elif not isinstance(found, Provider) or isinstance(found, type):
        found = found(secret)
        if isawaitable(found):
            found = await found
        made = True
        if not isinstance(found, Provider):
            raise UsageError(f"A provider factory gave a {type(found).__name__}.")
    return Hired(role=role, model=role.model, provider=found, secret=secret, made=made)
