"""No known secret is in a request, a summary, an entry, a path or an error."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from prism.core import (
    Agent,
    CompactionError,
    CompactionOptions,
    ErrorInfo,
    ModelConfig,
    ProviderError,
    Secret,
    SecretRedactor,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UsageError,
    encode,
    encode_entry,
)
from prism.core.compaction import CompactionContext
from prism.core.host import ExplicitCredentialResolver
from prism.core.providers import (
    MockProvider,
    ProviderEvent,
    ProviderRequest,
    block_finished,
    done,
    error,
    text_delta,
)
from prism.memory.llm import LlmCompactionStrategy

from .branches import MODEL, Log, Summariser, say, strategy

SECRETS = [
    "hunter2-hunter2",
    'with "quotes" and\nlines',
    "schlüssel-\u2028-ключ",
    "emoji-🔑-secret",
]
MARKS = ["hunter2", "quotes", "schl", "ключ", "emoji-"]


def assert_clean(*values: object) -> None:
    for value in values:
        text = value if isinstance(value, str) else encode(value).decode()
        for mark in MARKS:
            assert mark not in text, text[:2_000]


def giving(provider: MockProvider) -> Callable[[Secret | None], MockProvider]:
    """A factory that gives *provider*."""

    def factory(_: Secret | None) -> MockProvider:
        return provider

    return factory


def soaked_log(secret: str) -> Log:
    """A branch with the secret in every place where text can be."""
    log = Log()
    log.user(f"a {secret} b")
    log.summary(f"the host noted {secret}")
    log.label(f"label {secret}", "e1")
    for number, name in enumerate(("read", "write", "edit")):
        call = ToolCallBlock(
            id=f"c{number}",
            name=name,
            arguments={"path": f"/home/{secret}/{number}", secret: [secret, {"x": secret}]},
        )
        log.message(say("assistant", ThinkingBlock(text=f"I think {secret}"), call))
        log.result(f"c{number}", {"found": secret, secret: "x" * 3_000 + secret})
    odd = ToolCallBlock(id="odd", name="odd", arguments={}, raw_arguments=f'{{"k": "{secret}')
    log.message(say("assistant", f"I say {secret}", odd))
    failed = ErrorInfo(message=f"failed with {secret}", code="x")
    log.message(
        say(
            "tool",
            ToolResultBlock(
                tool_call_id="odd", name="odd", content=[TextBlock(text=secret)], error=failed
            ),
        )
    )
    log.turns(4)
    return log


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("known_by", ["strategy", "context", "credential"])
async def test_no_secret_of_the_branch_leaves_it(secret: str, known_by: str) -> None:
    log = soaked_log(secret)
    provider = Summariser(lambda text: f"Model says {secret}, {text[:200]}")
    options: dict[str, Any] = {"custom_instructions": f"Look at {secret}."}
    fields: dict[str, Any] = {"instructions": f"And at {secret}."}
    if known_by == "strategy":
        options["secrets"] = [secret]
    elif known_by == "context":
        fields["secrets"] = [secret]
    else:
        options["credential"] = ExplicitCredentialResolver({"mock": secret})
        options["summary_provider"] = giving(provider)
    compactor = strategy(provider, **options)
    for _ in range(2):
        result = await compactor.compact(log.context(**fields))
        entry = log.compacted(result)
        assert_clean(entry.summary, encode_entry(entry).decode())
        assert entry.data is not None
        assert len(entry.data["modifiedFiles"]) == 2
        assert_clean(*entry.data["readFiles"], *entry.data["modifiedFiles"])
        log.turns(3)
    assert len(provider.requests) >= 2
    for request in provider.requests:
        assert_clean(request, request.messages[0].text)


@pytest.mark.parametrize("secret", SECRETS)
async def test_an_earlier_summary_that_holds_a_secret_is_redacted_on_its_way(secret: str) -> None:
    log = Log().turns(1)
    log.compaction(f"before {secret}", throughEntryId="e2", readFiles=[f"x/{secret}"])
    log.turns(5)
    provider = Summariser()
    entry = log.compacted(await strategy(provider, secrets=[secret]).compact(log.context()))
    assert_clean(provider.texts[0], entry.summary, encode_entry(entry).decode())


@pytest.mark.parametrize("secret", SECRETS)
async def test_a_secret_is_found_wherever_the_deltas_cut_it(secret: str) -> None:
    text = f"one {secret} two {secret}{secret} three"
    for cut in range(1, len(text)):
        await check_deltas([text[:cut], text[cut:]], secret)
    await check_deltas(list(text), secret)


async def check_deltas(pieces: list[str], secret: str) -> None:
    log = Log().turns(6)
    provider = MockProvider([*(text_delta(piece) for piece in pieces), done()])
    entry = log.compacted(await strategy(provider, secrets=[secret]).compact(log.context()))
    assert_clean(entry.summary)
    assert entry.summary.startswith("one [REDACTED] two [REDACTED]")
    assert entry.summary.endswith("three")


@pytest.mark.parametrize("secret", SECRETS)
async def test_a_summary_that_is_cut_shows_no_beginning_of_a_secret(secret: str) -> None:
    for before in range(25):
        log = Log().turns(6)
        text = "x" * before + secret + "y" * 100
        provider = MockProvider([text_delta(text), done()])
        compactor = strategy(provider, secrets=[secret], max_summary_tokens=6)
        entry = log.compacted(await compactor.compact(log.context()))
        assert len(entry.summary) <= 24
        assert_clean(entry.summary)


@pytest.mark.parametrize("secret", SECRETS)
async def test_a_secret_that_spans_two_calls_is_found_in_the_whole(secret: str) -> None:
    log = Log()
    log.user("a long task")
    for number in range(1, 8):
        log.step(number, name="read", path=f"x/{secret[:5]}")
    block = block_finished(index=0, block=TextBlock(text=f"{secret} is it"))
    provider = MockProvider([block, done()])
    entry = log.compacted(await strategy(provider, secrets=[secret]).compact(log.context()))
    assert secret not in entry.summary


def leaking(secret: str) -> dict[str, Callable[[], dict[str, Any]]]:
    """Options that make a compaction fail with the secret in its error."""

    def failing(_: object) -> Any:
        raise RuntimeError(f"bad key {secret}")

    class Policy:
        name = "policy"

        def apply(self, request: ProviderRequest, context: object) -> ProviderRequest:
            raise UsageError(f"policy saw {secret}", code=secret, details={"reason": secret})

    class Resolver:
        async def resolve(self, request: object) -> Secret | None:
            raise KeyError(secret)

    info = ErrorInfo(
        message="x" * 1_000 + secret,
        code=f"code-{secret}",
        name=secret,
        cause={"secret": secret},
        details={"reason": secret, "requestId": secret, "other": secret},
    )
    chained = ProviderError(f"no {secret}")
    chained.__cause__ = ValueError(secret)
    return {
        "error event": lambda: {"provider": MockProvider([error(info)])},
        "made provider": lambda: {"provider": giving(MockProvider([chained]))},
        "raised": lambda: {"provider": MockProvider([chained])},
        "raised group": lambda: {"provider": MockProvider([ExceptionGroup(secret, [chained])])},
        "factory": lambda: {"provider": failing},
        "policy": lambda: {"provider": Summariser(), "provider_request_policies": [Policy()]},
        "resolver": lambda: {"provider": giving(Summariser()), "credential": Resolver()},
    }


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("where", list(leaking("")))
async def test_no_error_shows_a_secret(secret: str, where: str) -> None:
    options = leaking(secret)[where]()
    with pytest.raises(CompactionError) as caught:
        await strategy(**options, secrets=[secret], max_error_bytes=1_010).compact(
            Log().turns(6).context()
        )
    raised = caught.value
    assert_clean(str(raised), str(raised.code), raised.details or {})
    assert raised.__cause__ is None
    assert raised.__context__ is None
    raised.__traceback__ = None
    assert_clean("".join(traceback.format_exception(raised)))


async def test_the_redactor_of_the_session_holds_for_summaries_too() -> None:
    secret = SECRETS[0]

    def play(request: ProviderRequest) -> Iterable[ProviderEvent]:
        return [text_delta(f"You know, {secret}. " + "a" * 300), done()]

    model = ModelConfig(provider="mock", model="m")
    provider = MockProvider(play)
    compactor = LlmCompactionStrategy(provider=provider, model=model, keep_recent_tokens=300)
    agent = Agent(
        model=model,
        provider=provider,
        redactor=SecretRedactor([secret]),
        compaction=CompactionOptions(strategy=compactor),
    )
    session = agent.session("s1")
    for number in range(6):
        await session.run(f"say {secret} {number}" + "q" * 300)
    result = await session.compact()
    assert_clean(result.summary, *[encode_entry(entry).decode() for entry in result.entries])
    for request in provider.requests:
        assert_clean(request)


@pytest.mark.parametrize("secrets", [[5], "text", ["x" * 70_000]])
async def test_what_is_no_secret_is_refused_before_anything_is_asked(secrets: Any) -> None:
    provider = Summariser()
    log = Log().turns(6)
    context = CompactionContext(session_id="s1", entries=log.entries, secrets=secrets)
    with pytest.raises(UsageError):
        await strategy(provider).compact(context)
    with pytest.raises(UsageError):
        strategy(provider, secrets=secrets)
    assert provider.requests == []


def test_nothing_of_a_strategy_shows_its_secrets() -> None:
    compactor = LlmCompactionStrategy(
        provider=giving(Summariser()),
        model=MODEL,
        credential=ExplicitCredentialResolver({"mock": SECRETS[0]}),
        secrets=[SECRETS[0]],
    )
    assert_clean(repr(compactor))
