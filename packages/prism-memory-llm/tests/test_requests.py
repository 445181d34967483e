"""What may change a summary request, and where its provider comes from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from prism.core import CompactionError, ProviderOptions, Secret
from prism.core.host import ExplicitCredentialResolver
from prism.core.providers import (
    CredentialRequest,
    PolicyContext,
    ProviderRequest,
    ToolSpec,
    done,
    text_delta,
)
from prism.memory.llm import LlmCompactionStrategy

from .branches import MODEL, Log, Summariser, strategy


class Policy:
    """A request policy made of a function."""

    name = "policy"

    def __init__(self, change: Callable[[ProviderRequest], Any]) -> None:
        self._change = change
        self.contexts: list[PolicyContext] = []

    def apply(self, request: ProviderRequest, context: PolicyContext) -> ProviderRequest:
        self.contexts.append(context)
        return self._change(request)


def limited(max_tokens: Any) -> Policy:
    def change(request: ProviderRequest) -> ProviderRequest:
        return replace(request, model=replace(request.model, parameters={"maxTokens": max_tokens}))

    return Policy(change)


async def test_policies_run_in_order_and_know_the_use_case() -> None:
    def add(text: str) -> Callable[[ProviderRequest], ProviderRequest]:
        return lambda request: replace(request, system=[*request.system, text])

    provider = Summariser()
    policies = [Policy(add("one")), Policy(add("two"))]
    context = Log().turns(6).context(run_id="r1", metadata={"only": "for the strategy"})
    await strategy(provider, provider_request_policies=policies).compact(context)
    assert list(provider.requests[0].system)[1:] == ["one", "two"]
    assert policies[0].contexts == [PolicyContext(session_id="s1", run_id="r1", use_case="summary")]


@pytest.mark.parametrize("value", [1, 131_072])
async def test_a_policy_may_set_the_limit_of_output(value: int) -> None:
    provider = Summariser()
    await strategy(provider, provider_request_policies=[limited(value)]).compact(
        Log().turns(6).context()
    )
    assert (provider.requests[0].model.parameters or {})["maxTokens"] == value


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 0, -5, 131_073, 2**53, 10**400, True, 5.0, "5", None, []]
)
async def test_a_limit_of_output_that_is_none_stops_the_request(value: Any) -> None:
    provider = Summariser()
    compactor = strategy(provider, provider_request_policies=[limited(value), limited(value)])
    with pytest.raises(CompactionError, match="maxTokens must be an integer") as caught:
        await compactor.compact(Log().turns(6).context())
    assert caught.value.code == "invalid_request_option"
    assert provider.requests == []


async def test_the_last_policy_has_the_last_word_on_the_limit() -> None:
    provider = Summariser()
    policies = [limited(0), limited(50)]
    await strategy(provider, provider_request_policies=policies).compact(Log().turns(6).context())
    assert len(provider.requests) == 1


TOOL = ToolSpec(name="x", description="x", parameters={"type": "object"})


def asks_for_tools(request: ProviderRequest) -> Any:
    return replace(request, tools=[TOOL])


def asks_for_an_odd_cache(request: ProviderRequest) -> Any:
    return replace(request, options=ProviderOptions(cache_retention="ever"))


def takes_the_messages(request: ProviderRequest) -> Any:
    return replace(request, messages=[])


def takes_the_limit(request: ProviderRequest) -> Any:
    return replace(request, model=MODEL)


def gives_nothing(_: object) -> Any:
    return None


def fails(_: object) -> Any:
    return 1 / 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (asks_for_tools, "x was added"),
        (asks_for_an_odd_cache, "cache_retention"),
        (takes_the_messages, "removed the messages"),
        (takes_the_limit, "maxTokens must be"),
        (gives_nothing, "gave a NoneType"),
        (fails, "ZeroDivisionError"),
    ],
)
async def test_a_policy_cannot_make_a_request_that_must_not_be_sent(
    change: Callable[[ProviderRequest], Any], said: str
) -> None:
    provider = Summariser()
    compactor = strategy(provider, provider_request_policies=[Policy(change)])
    with pytest.raises(CompactionError, match=said) as caught:
        await compactor.compact(Log().turns(6).context())
    assert caught.value.__context__ is None
    assert provider.requests == []


# Factories


class Closing(Summariser):
    """A summary model that can be closed, and may fail to."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.failure = failure
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        if self.failure is not None:
            raise self.failure


def summariser(_: Secret | None) -> Summariser:
    return Summariser()


def factory_strategy(factory: Any, **options: Any) -> LlmCompactionStrategy:
    return strategy(factory, **options)


async def test_a_factory_gets_the_credential_anew_for_each_compaction() -> None:
    made: list[tuple[Secret | None, Closing]] = []

    def factory(secret: Secret | None) -> Closing:
        made.append((secret, Closing()))
        return made[-1][1]

    resolver = ExplicitCredentialResolver({"mock": "key-1"})
    compactor = factory_strategy(factory, credential=resolver)
    assert made == []
    for _ in range(2):
        await compactor.compact(Log().turns(6).context())
    assert [secret for secret, _ in made] == [Secret("key-1")] * 2
    assert [(len(provider.requests), provider.closed) for _, provider in made] == [(1, 1)] * 2


async def test_a_factory_may_be_async_and_need_no_credential() -> None:
    provider = Closing(RuntimeError("cannot close"))

    async def factory(secret: Secret | None) -> Closing:
        assert secret is None
        return provider

    assert await factory_strategy(factory).compact(Log().turns(6).context()) is not None
    assert provider.closed == 1


async def test_a_class_is_a_factory_too() -> None:
    class Own:
        id = "own"

        def __init__(self, secret: Secret | None) -> None:
            self.secret = secret

        async def generate(self, request: ProviderRequest) -> Any:
            yield text_delta("A summary.")
            yield done()

    assert await factory_strategy(Own).compact(Log().turns(6).context()) is not None


async def test_the_credential_that_is_asked_for_can_be_named() -> None:
    asked: list[CredentialRequest] = []

    class Resolver:
        async def resolve(self, request: CredentialRequest) -> Secret | None:
            asked.append(request)
            return Secret("k")

    named = CredentialRequest(provider="x", name="token")
    for given, wanted in ((None, CredentialRequest(provider="mock")), (named, named)):
        compactor = factory_strategy(summariser, credential=Resolver(), credential_request=given)
        await compactor.compact(Log().turns(6).context())
        assert asked.pop() == wanted


async def test_a_missing_credential_is_named() -> None:
    compactor = factory_strategy(summariser, credential=ExplicitCredentialResolver({"other": "k"}))
    with pytest.raises(CompactionError, match="No credential 'apiKey' for provider 'mock'") as seen:
        await compactor.compact(Log().turns(6).context())
    assert seen.value.code == "missing_credential"


@pytest.mark.parametrize(
    ("factory", "said"),
    [(fails, "ZeroDivisionError"), (gives_nothing, "gave a NoneType")],
)
async def test_a_factory_that_fails_stops_the_compaction(factory: Any, said: str) -> None:
    with pytest.raises(CompactionError, match=said) as caught:
        await factory_strategy(factory).compact(Log().turns(6).context())
    assert caught.value.__context__ is None


async def test_a_provider_of_the_host_is_not_closed() -> None:
    provider = Closing()
    await strategy(provider).compact(Log().turns(6).context())
    assert provider.closed == 0


async def test_nothing_to_fold_makes_no_provider() -> None:
    compactor = factory_strategy(fails)
    assert await compactor.compact(Log().turns(1).context()) is None
