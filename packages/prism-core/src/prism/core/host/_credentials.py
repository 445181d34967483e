"""Where credentials come from; none is read before it is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeAlias, TypeVar

from anyio import to_thread

from prism.core._contracts import CredentialRequest, CredentialResolver, Secret
from prism.core._errors import CredentialError, UsageError

DEFAULT_NAME: Final = "apiKey"
"""The name of a provider's credential when it has only one."""

V = TypeVar("V")

ByCredential: TypeAlias = (
    Mapping[str, V] | Mapping[tuple[str, str], V] | Mapping[str | tuple[str, str], V]
)
"""Keys are a provider, which stands for its `apiKey`, or a provider and a credential's name."""


class ExplicitCredentialResolver:
    """Credentials that the host holds already.

    Args:
        credentials: Values by provider, or by provider and name. Empty ones count as missing.
    """

    __slots__ = ("_credentials",)

    def __init__(self, credentials: ByCredential[str | Secret]) -> None:
        self._credentials = {_pair(key): _secret(value) for key, value in credentials.items()}

    async def resolve(self, request: CredentialRequest) -> Secret | None:
        """The credential of that provider and name; the scope is not looked at."""
        return self._credentials.get((request.provider, request.name)) or None

    def __repr__(self) -> str:
        return f"ExplicitCredentialResolver({_names(self._credentials)})"


class EnvCredentialResolver:
    """Credentials in environment variables that were named, read when they are asked for.

    Args:
        variables: Names of variables by provider, or by provider and name.
        environ: Where they are looked up; default: the process's environment.
    """

    __slots__ = ("_environ", "_variables")

    def __init__(
        self, variables: ByCredential[str], *, environ: Mapping[str, str] | None = None
    ) -> None:
        self._variables = {_pair(key): name for key, name in variables.items()}
        self._environ = environ

    async def resolve(self, request: CredentialRequest) -> Secret | None:
        """The variable's value; `None` when none was named, or it is not set, or empty."""
        variable = self._variables.get((request.provider, request.name))
        if variable is None:
            return None
        environ = os.environ if self._environ is None else self._environ
        value = environ.get(variable)
        return Secret(value) if value else None

    def __repr__(self) -> str:
        return f"EnvCredentialResolver({_names(self._variables)})"


class ChainedCredentialResolver:
    """Asks resolvers one after the other; the first that has the credential wins.

    One that fails ends the search: a credential from further down could be somebody else's.
    """

    __slots__ = ("_resolvers",)

    def __init__(self, resolvers: Sequence[CredentialResolver]) -> None:
        self._resolvers = tuple(resolvers)

    async def resolve(self, request: CredentialRequest) -> Secret | None:
        """The first credential that is found."""
        for resolver in self._resolvers:
            secret = await resolver.resolve(request)
            if secret:
                return secret
        return None

    def __repr__(self) -> str:
        return f"ChainedCredentialResolver({list(self._resolvers)!r})"


class MemoryCredentialStore:
    """Credentials that are put in and taken out while the process runs; written nowhere."""

    __slots__ = ("_secrets",)

    def __init__(self) -> None:
        self._secrets: dict[CredentialRequest, Secret] = {}

    async def set(
        self,
        provider: str,
        value: str | Secret,
        *,
        name: str = DEFAULT_NAME,
        scope: str | None = None,
    ) -> None:
        """Keep a credential; it replaces the one of the same provider, name and scope.

        Raises:
            UsageError: `invalid_secret` when it is empty.
        """
        secret = _secret(value)
        if not secret:
            raise UsageError(
                f"The credential {name!r} of {provider!r} is empty.", code="invalid_secret"
            )
        self._secrets[CredentialRequest(provider=provider, name=name, scope=scope)] = secret

    async def get(
        self, provider: str, *, name: str = DEFAULT_NAME, scope: str | None = None
    ) -> Secret | None:
        """The credential of exactly that provider, name and scope, or `None`."""
        return self._secrets.get(CredentialRequest(provider=provider, name=name, scope=scope))

    async def delete(
        self, provider: str, *, name: str = DEFAULT_NAME, scope: str | None = None
    ) -> bool:
        """Forget a credential; whether there was one."""
        request = CredentialRequest(provider=provider, name=name, scope=scope)
        return self._secrets.pop(request, None) is not None

    async def resolve(self, request: CredentialRequest) -> Secret | None:
        """The credential of that scope, or else the one without a scope."""
        found = self._secrets.get(request)
        if found is None and request.scope is not None:
            found = await self.get(request.provider, name=request.name)
        return found

    def __repr__(self) -> str:
        return f"MemoryCredentialStore({len(self._secrets)} credentials)"


class KeyringCredentialResolver:
    """Credentials in the operating system's keyring; needs `prism-core[keyring]`.

    The entry's user name is `provider/name`, as in `openai/apiKey`, followed by `@scope` if the
    request has one.

    Args:
        service: The entry's service.
        backend: Anything with `get_password(service, username)`; default: the `keyring` library,
            which is loaded at the first request.
    """

    __slots__ = ("_backend", "_service")

    def __init__(self, service: str = "prism", *, backend: Any = None) -> None:
        self._service = service
        self._backend = backend

    async def resolve(self, request: CredentialRequest) -> Secret | None:
        """The password of that entry, read in a worker thread.

        Raises:
            UsageError: `missing_extra`.
            CredentialError: `keyring_failed` when the keyring is locked or there is none.
        """
        return await to_thread.run_sync(partial(self._read, request), abandon_on_cancel=True)

    def _read(self, request: CredentialRequest) -> Secret | None:
        backend = self._backend
        if backend is None:
            try:
                backend = import_module("keyring")
            except ModuleNotFoundError:
                raise UsageError(
                    "Reading credentials from the keyring needs the `keyring` library: install "
                    "`prism-core[keyring]`.",
                    code="missing_extra",
                    details={"extra": "keyring"},
                ) from None
        scope = "" if request.scope is None else f"@{request.scope}"
        try:
            value = backend.get_password(self._service, f"{request.provider}/{request.name}{scope}")
        except Exception as error:
            raise CredentialError(
                f"The keyring could not be read for the credential {request.name!r} of "
                f"{request.provider!r}: {type(error).__name__}.",
                code="keyring_failed",
            ) from error
        return Secret(value) if value else None

    def __repr__(self) -> str:
        return f"KeyringCredentialResolver({self._service!r})"


async def resolve_credential(
    resolver: CredentialResolver | None, request: CredentialRequest
) -> Secret:
    """The credential that *request* asks for.

    Raises:
        CredentialError: `missing_credential`, naming the provider and the credential, when there
            is no resolver or it has none.
    """
    secret = None if resolver is None else await resolver.resolve(request)
    if not secret:
        scope = "" if request.scope is None else f" in scope {request.scope!r}"
        raise CredentialError(
            f"No credential {request.name!r} for provider {request.provider!r}{scope}; give the "
            "agent a credential resolver that has it.",
            details={"provider": request.provider, "name": request.name},
        )
    return secret


def _pair(key: str | tuple[str, str]) -> tuple[str, str]:
    return (key, DEFAULT_NAME) if isinstance(key, str) else key


def _secret(value: str | Secret) -> Secret:
    return value if isinstance(value, Secret) else Secret(value)


def _names(keys: Mapping[tuple[str, str], object]) -> str:
    return ", ".join(f"{provider}/{name}" for provider, name in keys)
