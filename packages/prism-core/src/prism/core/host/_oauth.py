"""Keeping an OAuth credential fresh; the request itself is the host's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
from anyio import Lock

from prism.core._contracts import CredentialRequest, Secret
from prism.core._errors import CredentialError
from prism.core._support.ids import Clock, system_clock
from prism.core._support.limits import non_negative_number
from prism.core.host._calls import call

DEFAULT_SKEW_MS: Final = 60_000
"""How long before its end a credential is renewed: more than a request and a wrong clock take."""

_MAX_SKEW_MS: Final = 24 * 60 * 60 * 1000


class OAuthCredential(msgspec.Struct, frozen=True, kw_only=True):
    """An access token and what is needed to get the next one.

    Attributes:
        access: The token that requests carry.
        refresh: The token that buys a new one; `None`: it cannot be renewed.
        expires_at: Seconds since the epoch; `None`: it does not expire.
    """

    access: Secret
    refresh: Secret | None = None
    expires_at: float | None = None

    def is_fresh(self, *, now: float, skew_ms: float = 0) -> bool:
        """Whether it lasts longer than *skew_ms* from *now* (seconds since the epoch) on."""
        return self.expires_at is None or self.expires_at - skew_ms / 1000 > now


Refresh: TypeAlias = Callable[[OAuthCredential], OAuthCredential | Awaitable[OAuthCredential]]
"""Gets a new credential for one that ends; sync (in a worker thread) or async."""


class RefreshFlight:
    """What concurrent refreshes of one credential share, so that only one of them is sent.

    Make one for each credential and keep it: it also hands the newest credential to a caller that
    still holds an older one, whose refresh token may be worth nothing any more.
    """

    __slots__ = ("attempts", "failure", "latest", "lock")

    def __init__(self) -> None:
        self.lock: Lock = Lock()
        self.attempts: int = 0
        self.latest: OAuthCredential | None = None
        self.failure: CredentialError | None = None


async def refresh_oauth_credential(
    credential: OAuthCredential,
    refresh: Refresh,
    *,
    skew_ms: float = DEFAULT_SKEW_MS,
    clock: Clock = system_clock,
    flight: RefreshFlight | None = None,
) -> OAuthCredential:
    """A credential that is good for a request now.

    Args:
        credential: The one that the host has.
        refresh: Called when *credential* is not fresh. When its result has no refresh token, the
            old one stays.
        skew_ms: A credential that ends within this time counts as ended (0 to 24 hours).
        clock: Seconds since the epoch.
        flight: Shared by everybody who refreshes this credential. Whoever comes while a refresh
            is under way gets its result, or its failure; if it was cancelled, the next one tries.

    Returns:
        *credential* itself when it is fresh, else a newer one, which the host should keep.

    Raises:
        CredentialError: `credential_expired` when it cannot be renewed; `refresh_failed` when
            *refresh* raised or returned something else.
    """
    non_negative_number("skew_ms", skew_ms, cap=_MAX_SKEW_MS)
    if credential.is_fresh(now=clock(), skew_ms=skew_ms):
        return credential
    flight = RefreshFlight() if flight is None else flight
    seen = flight.attempts
    async with flight.lock:
        latest = flight.latest
        if latest is not None and latest.is_fresh(now=clock(), skew_ms=skew_ms):
            return latest
        if flight.attempts != seen and flight.failure is not None:
            raise CredentialError(
                flight.failure.message, code=flight.failure.code
            ) from flight.failure
        newest = credential if latest is None else latest
        flight.failure = None
        try:
            flight.latest = await _refreshed(newest, refresh)
        except CredentialError as error:
            flight.attempts += 1
            flight.failure = error
            raise
        flight.attempts += 1
        return flight.latest


async def _refreshed(credential: OAuthCredential, refresh: Refresh) -> OAuthCredential:
    if not credential.refresh:
        raise CredentialError(
            "The OAuth credential has ended and has no refresh token; sign in again.",
            code="credential_expired",
        )
    try:
        new: object = await call(refresh, credential)
    except Exception as error:
        # The message of the cause may hold tokens.
        raise CredentialError(
            f"Refreshing the OAuth credential failed: {type(error).__name__}.",
            code="refresh_failed",
        ) from error
    if not isinstance(new, OAuthCredential) or not new.access:
        raise CredentialError(
            "Refreshing the OAuth credential must return an OAuthCredential with an access token.",
            code="refresh_failed",
        )
    return new if new.refresh else msgspec.structs.replace(new, refresh=credential.refresh)


class OAuthCredentialResolver:
    """Gives one provider's access token, and renews it when it ends.

    Args:
        provider: Whose token it is.
        credential: The one to begin with.
        refresh: As for `refresh_oauth_credential`.
        name: Under which name it is asked for.
        save: Told of each new credential, to keep it; sync (in a worker thread) or async.
        skew_ms: As for `refresh_oauth_credential`.
        clock: Seconds since the epoch.
    """

    __slots__ = (
        "_clock",
        "_credential",
        "_flight",
        "_name",
        "_provider",
        "_refresh",
        "_save",
        "_skew_ms",
    )

    def __init__(
        self,
        provider: str,
        credential: OAuthCredential,
        refresh: Refresh,
        *,
        name: str = "apiKey",
        save: Callable[[OAuthCredential], Awaitable[None] | None] | None = None,
        skew_ms: float = DEFAULT_SKEW_MS,
        clock: Clock = system_clock,
    ) -> None:
        self._provider = provider
        self._name = name
        self._credential = credential
        self._refresh = refresh
        self._save = save
        self._skew_ms = skew_ms
        self._clock = clock
        self._flight = RefreshFlight()

    async def resolve(self, request: CredentialRequest) -> Secret | None:
        """The access token, renewed if need be; `None` for another provider or name.

        Raises:
            CredentialError: `credential_expired` or `refresh_failed`.
            Exception: What `save` raised, as it came; the new credential is used nevertheless.
        """
        if (request.provider, request.name) != (self._provider, self._name):
            return None
        credential = await refresh_oauth_credential(
            self._credential,
            self._refresh,
            skew_ms=self._skew_ms,
            clock=self._clock,
            flight=self._flight,
        )
        if credential is not self._credential:
            # Kept before it is saved: when saving fails, the new refresh token is not lost.
            self._credential = credential
            if self._save is not None:
                await call(self._save, credential)
        return credential.access
