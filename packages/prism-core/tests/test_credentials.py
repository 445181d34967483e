from __future__ import annotations

import os
import pickle
import sys
import threading
from typing import Any

import anyio
import msgspec
import pytest

from prism.core import _errors as errors
from prism.core.host import (
    ChainedCredentialResolver,
    CredentialRequest,
    CredentialResolver,
    EnvCredentialResolver,
    ExplicitCredentialResolver,
    KeyringCredentialResolver,
    MemoryCredentialStore,
    OAuthCredential,
    OAuthCredentialResolver,
    RefreshFlight,
    Secret,
    refresh_oauth_credential,
    resolve_credential,
)

OPENAI = CredentialRequest(provider="openai")
AWS_SECRET = CredentialRequest(provider="aws", name="secretKey")


def revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


async def test_explicit_credentials_are_found_by_provider_or_by_provider_and_name() -> None:
    resolver = ExplicitCredentialResolver(
        {"openai": "sk-1", ("aws", "secretKey"): Secret("aws-1"), "empty": ""}
    )
    assert revealed(await resolver.resolve(OPENAI)) == "sk-1"
    assert revealed(await resolver.resolve(AWS_SECRET)) == "aws-1"
    assert await resolver.resolve(CredentialRequest(provider="aws")) is None
    assert await resolver.resolve(CredentialRequest(provider="openai", name="other")) is None
    assert await resolver.resolve(CredentialRequest(provider="empty")) is None


async def test_only_the_variables_that_were_named_are_read_and_only_when_asked() -> None:
    class Watched(dict[str, str]):
        def __init__(self) -> None:
            super().__init__(KEY="sk-1", AWS="aws-1", EMPTY="", OTHER="other")
            self.read: list[str] = []

        def get(self, key: str, default: Any = None) -> Any:
            self.read.append(key)
            return super().get(key, default)

    environ = Watched()
    resolver = EnvCredentialResolver(
        {"openai": "KEY", ("aws", "secretKey"): "AWS", "empty": "EMPTY", "unset": "UNSET"},
        environ=environ,
    )
    assert environ.read == []
    assert revealed(await resolver.resolve(OPENAI)) == "sk-1"
    assert revealed(await resolver.resolve(AWS_SECRET)) == "aws-1"
    assert await resolver.resolve(CredentialRequest(provider="empty")) is None
    assert await resolver.resolve(CredentialRequest(provider="unset")) is None
    assert await resolver.resolve(CredentialRequest(provider="other")) is None
    assert environ.read == ["KEY", "AWS", "EMPTY", "UNSET"]
    environ["KEY"] = "sk-2"
    assert revealed(await resolver.resolve(OPENAI)) == "sk-2"


async def test_the_process_environment_is_read_at_the_time_of_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = EnvCredentialResolver({"openai": "PRISM_TEST_KEY"})
    assert "PRISM_TEST_KEY" not in os.environ
    assert await resolver.resolve(OPENAI) is None
    monkeypatch.setenv("PRISM_TEST_KEY", "sk-1")
    assert revealed(await resolver.resolve(OPENAI)) == "sk-1"


async def test_the_first_resolver_that_has_the_credential_wins() -> None:
    chain = ChainedCredentialResolver(
        [
            ExplicitCredentialResolver({"aws": "a"}),
            ExplicitCredentialResolver({"openai": "first"}),
            ExplicitCredentialResolver({"openai": "second"}),
        ]
    )
    assert revealed(await chain.resolve(OPENAI)) == "first"
    assert await chain.resolve(CredentialRequest(provider="none")) is None


async def test_a_resolver_that_fails_ends_the_search() -> None:
    class Broken:
        async def resolve(self, request: CredentialRequest) -> Secret | None:
            raise errors.CredentialError("locked", code="keyring_failed")

    chain = ChainedCredentialResolver([Broken(), ExplicitCredentialResolver({"openai": "k"})])
    with pytest.raises(errors.CredentialError, match="locked"):
        await chain.resolve(OPENAI)


async def test_the_memory_store_keeps_credentials_by_provider_name_and_scope() -> None:
    store = MemoryCredentialStore()
    await store.set("openai", "general")
    await store.set("openai", "mine", scope="me")
    await store.set("openai", "newer")
    scoped = CredentialRequest(provider="openai", scope="me")
    other = CredentialRequest(provider="openai", scope="you")
    assert revealed(await store.resolve(OPENAI)) == "newer"
    assert revealed(await store.resolve(scoped)) == "mine"
    assert revealed(await store.resolve(other)) == "newer"
    assert await store.get("openai", scope="you") is None
    assert await store.delete("openai")
    assert not await store.delete("openai")
    assert await store.resolve(OPENAI) is None
    assert revealed(await store.resolve(scoped)) == "mine"
    with pytest.raises(errors.UsageError, match="is empty"):
        await store.set("openai", "")


async def test_the_keyring_is_read_in_a_worker_thread_by_provider_and_name() -> None:
    class Backend:
        def __init__(self) -> None:
            self.asked: list[tuple[str, str, bool]] = []

        def get_password(self, service: str, username: str) -> str | None:
            here = threading.current_thread() is threading.main_thread()
            self.asked.append((service, username, here))
            return {"openai/apiKey": "sk-1", "openai/apiKey@me": "sk-2"}.get(username)

    backend = Backend()
    resolver = KeyringCredentialResolver("my-app", backend=backend)
    assert revealed(await resolver.resolve(OPENAI)) == "sk-1"
    scoped = CredentialRequest(provider="openai", scope="me")
    assert revealed(await resolver.resolve(scoped)) == "sk-2"
    assert await resolver.resolve(AWS_SECRET) is None
    assert backend.asked == [
        ("my-app", "openai/apiKey", False),
        ("my-app", "openai/apiKey@me", False),
        ("my-app", "aws/secretKey", False),
    ]


async def test_a_keyring_that_fails_names_the_credential_and_no_more() -> None:
    class Locked:
        def get_password(self, service: str, username: str) -> str | None:
            raise RuntimeError("the collection 'hunter2' is locked")

    with pytest.raises(errors.CredentialError, match="'apiKey' of 'openai'") as caught:
        await KeyringCredentialResolver(backend=Locked()).resolve(OPENAI)
    assert caught.value.code == "keyring_failed"
    assert "hunter2" not in str(caught.value)


async def test_without_the_keyring_library_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(errors.UsageError, match=r"prism-core\[keyring\]") as caught:
        await KeyringCredentialResolver().resolve(OPENAI)
    assert caught.value.code == "missing_extra"


async def test_a_missing_credential_is_named_and_nothing_else_is() -> None:
    resolver = ExplicitCredentialResolver({"aws": "hunter2"})
    assert (await resolve_credential(resolver, CredentialRequest(provider="aws"))).reveal()
    for none in (None, resolver):
        with pytest.raises(
            errors.CredentialError, match="'secretKey' for provider 'azure'"
        ) as caught:
            await resolve_credential(none, CredentialRequest(provider="azure", name="secretKey"))
        assert caught.value.code == "missing_credential"
        assert caught.value.details == {"provider": "azure", "name": "secretKey"}
        assert "hunter2" not in str(caught.value)


async def test_no_resolver_shows_a_secret() -> None:
    store = MemoryCredentialStore()
    await store.set("openai", "hunter2")
    holders: list[object] = [
        ExplicitCredentialResolver({"openai": "hunter2"}),
        EnvCredentialResolver({"openai": "KEY"}, environ={"KEY": "hunter2"}),
        store,
        KeyringCredentialResolver("my-app"),
        OAuthCredential(access=Secret("hunter2"), refresh=Secret("hunter2")),
    ]
    holders.append(
        ChainedCredentialResolver([h for h in holders if isinstance(h, CredentialResolver)])
    )
    for holder in holders:
        assert "hunter2" not in f"{holder} {holder!r}"


def test_a_secret_hides_wherever_it_could_be_written() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {secret:>20} %s" % secret
    for write in (pickle.dumps, msgspec.json.encode, msgspec.to_builtins):
        with pytest.raises(TypeError):
            write(secret)


class Server:
    """Sells tokens, one after the other, each good for 100 s."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.calls: list[str] = []
        self.failing = False
        self.gate = anyio.Event()

    def clock(self) -> float:
        return self.now

    async def refresh(self, credential: OAuthCredential) -> OAuthCredential:
        assert credential.refresh is not None
        self.calls.append(credential.refresh.reveal())
        await self.gate.wait()
        if self.failing:
            raise ConnectionError("token hunter2 refused")
        number = len(self.calls)
        return OAuthCredential(
            access=Secret(f"access-{number}"),
            refresh=Secret(f"refresh-{number}"),
            expires_at=self.now + 100,
        )

    def ended(self) -> OAuthCredential:
        return OAuthCredential(
            access=Secret("access-0"), refresh=Secret("refresh-0"), expires_at=self.now
        )


async def test_a_fresh_credential_comes_back_as_it_is() -> None:
    server = Server()
    lasting = OAuthCredential(access=Secret("a"))
    soon = OAuthCredential(access=Secret("a"), refresh=Secret("r"), expires_at=1_031.0)
    for credential in (lasting, soon):
        assert (
            await refresh_oauth_credential(
                credential, server.refresh, skew_ms=30_000, clock=server.clock
            )
            is credential
        )
    assert server.calls == []


async def test_a_credential_within_the_skew_of_its_end_is_renewed() -> None:
    server = Server()
    server.gate.set()
    soon = OAuthCredential(access=Secret("a"), refresh=Secret("r"), expires_at=1_030.0)
    new = await refresh_oauth_credential(soon, server.refresh, skew_ms=30_000, clock=server.clock)
    assert new.access.reveal() == "access-1"
    assert server.calls == ["r"]


@pytest.mark.parametrize("outcome", ["access-1", "refresh_failed"])
async def test_concurrent_refreshes_are_one_and_share_its_outcome(outcome: str) -> None:
    server, flight = Server(), RefreshFlight()
    failing = outcome == "refresh_failed"
    server.failing = failing
    credential = server.ended()
    outcomes: list[object] = []

    async def ask() -> None:
        try:
            new = await refresh_oauth_credential(
                credential, server.refresh, skew_ms=0, clock=server.clock, flight=flight
            )
            outcomes.append(new.access.reveal())
        except errors.CredentialError as error:
            outcomes.append(error.code)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        server.gate.set()
    assert server.calls == ["refresh-0"]
    assert outcomes == [outcome] * 20

    # A caller that comes later with the old credential gets the newest, or tries again.
    server.failing = False
    await ask()
    assert outcomes[-1] == ("access-2" if failing else "access-1")
    server.now += 200
    await ask()
    assert server.calls[-1] == ("refresh-2" if failing else "refresh-1")


async def test_when_the_refresh_is_cancelled_the_next_caller_tries() -> None:
    server, flight = Server(), RefreshFlight()
    credential = server.ended()
    results: list[str] = []

    async def ask() -> None:
        new = await refresh_oauth_credential(
            credential, server.refresh, skew_ms=0, clock=server.clock, flight=flight
        )
        results.append(new.access.reveal())

    async def give_up(scope: anyio.CancelScope) -> None:
        with scope:
            await ask()

    first = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(give_up, first)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        server.gate.set()
    assert server.calls == ["refresh-0", "refresh-0"]
    assert results == ["access-2"]


async def test_what_cannot_be_renewed_says_why_and_shows_no_token() -> None:
    server = Server()
    server.gate.set()
    ended = OAuthCredential(access=Secret("a"), expires_at=0)
    with pytest.raises(errors.CredentialError, match="sign in again") as caught:
        await refresh_oauth_credential(ended, server.refresh)
    assert caught.value.code == "credential_expired"

    server.failing = True
    with pytest.raises(errors.CredentialError, match="failed: ConnectionError") as caught:
        await refresh_oauth_credential(server.ended(), server.refresh)
    assert caught.value.code == "refresh_failed"
    assert "hunter2" not in str(caught.value)

    def wrong(credential: OAuthCredential) -> Any:
        return {"access_token": "hunter2"}

    with pytest.raises(errors.CredentialError, match="must return an OAuthCredential"):
        await refresh_oauth_credential(server.ended(), wrong)
    with pytest.raises(errors.UsageError, match="skew_ms"):
        await refresh_oauth_credential(server.ended(), server.refresh, skew_ms=-1)


async def test_a_refresh_token_that_is_not_replaced_stays() -> None:
    def renew(credential: OAuthCredential) -> OAuthCredential:
        return OAuthCredential(access=Secret("new"))

    new = await refresh_oauth_credential(Server().ended(), renew)
    assert (new.access.reveal(), revealed(new.refresh)) == ("new", "refresh-0")


async def test_the_oauth_resolver_renews_keeps_and_saves() -> None:
    server = Server()
    server.gate.set()
    saved: list[str] = []

    async def save(credential: OAuthCredential) -> None:
        saved.append(credential.access.reveal())
        if len(saved) == 1:
            raise OSError("disk full")

    resolver = OAuthCredentialResolver(
        "vendor", server.ended(), server.refresh, save=save, skew_ms=0, clock=server.clock
    )
    request = CredentialRequest(provider="vendor")
    assert await resolver.resolve(OPENAI) is None
    with pytest.raises(OSError, match="disk full"):
        await resolver.resolve(request)
    assert revealed(await resolver.resolve(request)) == "access-1"
    server.now += 100
    assert revealed(await resolver.resolve(request)) == "access-2"
    assert server.calls == ["refresh-0", "refresh-1"]
    assert saved == ["access-1", "access-2"]
