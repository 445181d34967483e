"""What a run's requests carry: options, the thinking level, what policies and middleware made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from prism.core import (
    MiddlewareRegistry,
    ModelChangeEntry,
    ModelConfig,
    Session,
    UsageError,
    Warned,
    tool,
)
from prism.core._contracts import PolicyContext, ProviderRequest
from prism.core.providers import (
    MockProvider,
    ProviderOptions,
    RequestPolicyChain,
    SessionCachePolicy,
    ToolSpec,
    done,
    error,
    text_delta,
    tool_call,
)

from .harness import Stage, of

GPT = ModelConfig(provider="mock", model="gpt-5.6")
CODEX = ModelConfig(provider="mock", model="gpt-5.1")
CLAUDE = ModelConfig(provider="mock", model="claude-opus-5")


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Wire(MockProvider):
    """A scripted provider that speaks a wire."""

    def __init__(self, script: Any = None, *, api: str | None = "openai-chat") -> None:
        super().__init__(script)
        self.api = api


class Policy:
    """A policy made of a function."""

    name = "mine"

    def __init__(self, change: Callable[[ProviderRequest], Any]) -> None:
        self.change = change
        self.contexts: list[PolicyContext] = []

    def apply(self, request: ProviderRequest, context: PolicyContext) -> ProviderRequest:
        self.contexts.append(context)
        return self.change(request)


def options_of(provider: MockProvider) -> ProviderOptions:
    return provider.requests[-1].options


def thinking_of(provider: MockProvider) -> Any:
    return (options_of(provider).compat or {}).get("thinking")


def clamps(stage: Stage, session: Session) -> list[Warned]:
    warned = of(Warned, stage.events(session))
    return [event for event in warned if event.code == "thinking_clamped"]


# Session id, cache key, and the options of agent and run


async def test_session_id_and_cache_key_are_stamped_without_any_policy(stage: Stage) -> None:
    provider = MockProvider()
    await stage.session(provider, id="talk").run("Hi")
    assert options_of(provider) == ProviderOptions(session_id="talk", cache_key="talk")


async def test_what_the_host_names_itself_is_kept(stage: Stage) -> None:
    provider = MockProvider()
    session = stage.session(provider, options=ProviderOptions(session_id="own"))
    await session.run("Hi", options=ProviderOptions(cache_key="shared"))
    assert options_of(provider) == ProviderOptions(session_id="own", cache_key="shared")
    await session.run("Hi")
    assert options_of(provider).cache_key == "s1"


async def test_the_options_of_a_run_are_merged_over_the_agents(stage: Stage) -> None:
    provider = MockProvider()
    base = ProviderOptions(
        headers={"a": "1", "b": "1"},
        compat={"x": 1},
        extra={"body": {"seed": 1}},
        timeout_ms=5,
        tool_choice={"name": "add"},
    )
    session = stage.session(provider, options=base)
    over = ProviderOptions(headers={"b": "2"}, compat={"y": 2}, tool_choice="none")
    await session.run("Hi", options=over)
    assert options_of(provider) == ProviderOptions(
        session_id="s1",
        cache_key="s1",
        headers={"a": "1", "b": "2"},
        compat={"x": 1, "y": 2},
        extra={"body": {"seed": 1}},
        timeout_ms=5,
        tool_choice="none",
    )


# The thinking level


async def test_the_level_of_the_run_goes_before_the_branchs_and_that_before_the_agents(
    stage: Stage,
) -> None:
    provider = Wire()
    session = stage.session(provider, model=GPT, thinking_level="low")
    await session.run("One")
    assert thinking_of(provider)["body"] == {"reasoning_effort": "low"}
    await session.run("Two", thinking_level="high")
    assert thinking_of(provider)["body"] == {"reasoning_effort": "high"}
    await session.run("Three")
    assert thinking_of(provider)["body"] == {"reasoning_effort": "high"}
    reopened = stage.watch(session.agent.session("s1"))
    await reopened.run("Four")
    assert thinking_of(provider)["body"] == {"reasoning_effort": "high"}
    changes = [e for e in await session.entries() if isinstance(e, ModelChangeEntry)]
    assert [entry.thinking_level for entry in changes] == ["high"]


async def test_a_branch_that_was_left_takes_its_level_with_it(stage: Stage) -> None:
    provider = Wire()
    session = stage.session(provider, model=GPT)
    await session.run("One")
    leaf = (await session.state()).leaf_id
    assert leaf is not None
    await session.run("Two", thinking_level="high")
    await session.checkout(leaf)
    await session.run("Three")
    assert thinking_of(provider) is None


async def test_without_a_level_nothing_is_asked(stage: Stage) -> None:
    provider = Wire()
    await stage.session(provider, model=GPT).run("Hi")
    assert options_of(provider).compat is None


async def test_a_provider_that_names_no_wire_gets_no_body(stage: Stage) -> None:
    for provider in (MockProvider(), Wire(api=None), Wire(api="other")):
        session = stage.session(provider, id=stage.ids("s"), model=GPT, thinking_level="high")
        await session.run("Hi")
        assert options_of(provider).compat is None


async def test_none_is_read_as_off(stage: Stage) -> None:
    provider = Wire()
    await stage.session(provider, model=GPT).run("Hi", thinking_level="none")
    assert thinking_of(provider)["level"] == "off"
    assert thinking_of(provider)["body"] == {"reasoning_effort": "none"}


async def test_a_clamp_is_told_once_a_run(stage: Stage) -> None:
    script = [[tool_call(id="c1", name="add", arguments={"a": 1, "b": 2}), done()]]
    script += [[text_delta("3"), done()]] * 2
    provider = Wire(script)
    session = stage.session(provider, model=CODEX, tools=[add], thinking_level="max")
    await session.run("1 + 2?")
    assert len(provider.requests) == 2
    for request in provider.requests:
        assert (request.options.compat or {})["thinking"]["sent"] == "high"
    (warning,) = clamps(stage, session)
    assert "'max'" in warning.message
    assert "'high'" in warning.message
    await session.run("Again")
    assert len(clamps(stage, session)) == 2


async def test_a_level_that_the_model_has_is_not_told(stage: Stage) -> None:
    session = stage.session(Wire(), model=GPT, thinking_level="max")
    await session.run("Hi")
    assert not of(Warned, stage.events(session))


async def test_the_level_is_put_anew_for_another_model_of_the_branch(stage: Stage) -> None:
    provider = Wire()
    session = stage.session(provider, model=GPT, thinking_level="max")
    await session.run("Hi")
    await session.run("Hi", model=CODEX)
    assert thinking_of(provider)["family"] == "openai-gpt5.1"
    assert len(clamps(stage, session)) == 1


async def test_other_switches_of_the_host_stay_beside_the_level(stage: Stage) -> None:
    provider = Wire(api="openai-responses")
    options = ProviderOptions(compat={"mine": 1, "thinking": {"show": False}})
    session = stage.session(provider, model=GPT, options=options)
    await session.run("Hi", thinking_level="low")
    assert (options_of(provider).compat or {})["mine"] == 1
    assert thinking_of(provider)["body"] == {"reasoning": {"effort": "low"}}


async def test_an_unknown_family_fails_the_run_before_anything_is_sent(stage: Stage) -> None:
    provider = Wire()
    model = replace(GPT, compat={"thinkingFamily": "gpt9"})
    session = stage.session(provider, model=model, thinking_level="low")
    with pytest.raises(UsageError, match="gpt9") as caught:
        await session.run("Hi")
    assert caught.value.code == "unknown_thinking_family"
    assert not provider.requests


async def test_a_repaired_request_keeps_its_level(stage: Stage) -> None:
    provider = Wire([[error("no", code="replay_invalid")], [text_delta("Hi"), done()]])
    session = stage.session(provider, model=CODEX, thinking_level="max")
    await session.run("Hi")
    assert len(provider.requests) == 2
    assert thinking_of(provider)["sent"] == "high"
    assert len(clamps(stage, session)) == 1


# Policies


async def test_policies_see_the_stamped_options_and_the_level_and_run_in_order(
    stage: Stage,
) -> None:
    provider = Wire()
    first = Policy(lambda request: request)

    def second(request: ProviderRequest) -> ProviderRequest:
        assert request.options.session_id == request.options.cache_key == "s1"
        assert (request.options.compat or {})["thinking"]["level"] == "low"
        return replace(request, options=replace(request.options, cache_key="second"))

    def third(request: ProviderRequest) -> ProviderRequest:
        assert request.options.cache_key == "second"
        return replace(request, options=replace(request.options, timeout_ms=7))

    policies = [first, RequestPolicyChain([Policy(second), Policy(third)])]
    session = stage.session(provider, model=GPT, thinking_level="low", request_policies=policies)
    await session.run("Hi", metadata={"tenant": "t"})
    assert (options_of(provider).cache_key, options_of(provider).timeout_ms) == ("second", 7)
    (context,) = first.contexts
    assert (context.session_id, context.use_case) == ("s1", "chat")
    assert context.metadata == {"tenant": "t"}
    assert context.run_id is not None


async def test_the_cache_policy_has_its_say_in_a_run(stage: Stage) -> None:
    provider = MockProvider()
    policy = SessionCachePolicy(retention="long", key="team")
    await stage.session(provider, request_policies=[policy]).run("Hi")
    assert options_of(provider) == ProviderOptions(
        session_id="s1", cache_key="team", cache_retention="long"
    )


async def test_what_a_policy_raises_fails_the_run(stage: Stage) -> None:
    def fail(_: ProviderRequest) -> ProviderRequest:
        raise LookupError("no tenant")

    provider = MockProvider()
    session = stage.session(provider, request_policies=[Policy(fail)])
    with pytest.raises(LookupError, match="no tenant"):
        await session.run("Hi")
    assert not provider.requests


async def test_a_policy_that_gives_no_request_fails_the_run(stage: Stage) -> None:
    session = stage.session(request_policies=[Policy(lambda _: None)])
    with pytest.raises(UsageError, match="'mine' gave NoneType"):
        await session.run("Hi")


async def test_policies_may_take_tools_away_and_add_none(stage: Stage) -> None:
    spec = ToolSpec(name="evil", description="", parameters={"type": "object"})
    provider = MockProvider()
    session = stage.session(
        provider, tools=[add], request_policies=[Policy(lambda r: replace(r, tools=[]))]
    )
    await session.run("Hi")
    assert provider.requests[-1].tools == []
    more = Policy(lambda request: replace(request, tools=[*request.tools, spec]))
    session = stage.session(provider, id="s2", tools=[add], request_policies=[more])
    with pytest.raises(UsageError, match="evil was added") as caught:
        await session.run("Hi")
    assert caught.value.code == "invalid_request_option"
    assert len(provider.requests) == 1


async def test_a_policy_that_turns_to_another_model_gets_the_level_in_its_words(
    stage: Stage,
) -> None:
    provider = Wire(api="anthropic-messages")
    session = stage.session(
        provider,
        model=GPT,
        thinking_level="max",
        request_policies=[Policy(lambda request: replace(request, model=CLAUDE))],
    )
    await session.run("Hi")
    assert provider.requests[-1].model == CLAUDE
    assert thinking_of(provider)["family"] == "claude-5"
    assert thinking_of(provider)["body"]["output_config"] == {"effort": "max"}


async def test_a_level_that_a_policy_wrote_itself_is_left_as_it_is(stage: Stage) -> None:
    own = {"thinking": {"body": {"reasoning_effort": "weird"}}}
    provider = Wire()

    def change(request: ProviderRequest) -> ProviderRequest:
        return replace(request, model=CODEX, options=replace(request.options, compat=own))

    session = stage.session(
        provider, model=GPT, thinking_level="max", request_policies=[Policy(change)]
    )
    await session.run("Hi")
    assert options_of(provider).compat == own


# The check at the end


async def test_middleware_has_its_say_after_the_policies(stage: Stage) -> None:
    def change(payload: Any) -> Any:
        assert payload.request.options.cache_key == "policy"
        options = replace(payload.request.options, cache_key="middleware")
        return replace(payload, request=replace(payload.request, options=options))

    hooks = MiddlewareRegistry()
    hooks.use("provider_request", change)
    provider = MockProvider()
    policy = Policy(lambda r: replace(r, options=replace(r.options, cache_key="policy")))
    await stage.session(provider, request_policies=[policy], middleware=hooks).run("Hi")
    assert options_of(provider).cache_key == "middleware"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"timeout_ms": True}, "timeout_ms"),
        ({"cache_retention": "forever"}, "cache_retention"),
        ({"headers": {"x": 1}}, "headers"),
    ],
)
@pytest.mark.parametrize("by", ["host", "policy", "middleware"])
async def test_a_request_is_checked_whoever_made_it(
    stage: Stage, by: str, changes: dict[str, Any], named: str
) -> None:
    def change(request: ProviderRequest) -> ProviderRequest:
        return replace(request, options=replace(request.options, **changes))

    given: dict[str, Any] = {}
    if by == "host":
        given["options"] = ProviderOptions(**changes)
    elif by == "policy":
        given["request_policies"] = [Policy(change)]
    else:
        hooks = given["middleware"] = MiddlewareRegistry()
        hooks.use("provider_request", lambda p: replace(p, request=change(p.request)))
    provider = MockProvider()
    session = stage.session(provider, **given)
    with pytest.raises(UsageError, match=named) as caught:
        await session.run("Hi")
    assert caught.value.code == "invalid_request_option"
    assert not provider.requests
    # The session takes a new prompt at once.
    assert (await session.state()).status == "idle"


@pytest.mark.parametrize("value", [float("nan"), True, 10**30, "many"])
async def test_max_tokens_of_the_model_are_checked(stage: Stage, value: Any) -> None:
    provider = MockProvider()
    model = replace(GPT, parameters={"maxTokens": value})
    with pytest.raises(UsageError, match="maxTokens"):
        await stage.session(provider, model=model).run("Hi")
    assert not provider.requests


async def test_the_agents_own_options_are_never_changed(stage: Stage) -> None:
    base = ProviderOptions(compat={"x": 1}, headers={"a": "b"})
    session = stage.session(Wire(), model=GPT, options=base, thinking_level="low")
    await session.run("Hi", options=ProviderOptions(headers={"c": "d"}))
    assert base == ProviderOptions(compat={"x": 1}, headers={"a": "b"})
