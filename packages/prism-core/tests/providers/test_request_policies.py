"""Request policies: merging of options, the chain, the cache policy, and the check at the end."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from prism.core._errors import UsageError
from prism.core.providers import (
    PolicyContext,
    ProviderOptions,
    ProviderRequest,
    RequestPolicy,
    RequestPolicyChain,
    SessionCachePolicy,
    ToolSpec,
    check_request,
    merge_request_options,
)

from .wire import ask

CONTEXT = PolicyContext(session_id="s1", run_id="r1")


class Changes:
    """A policy made of a function."""

    def __init__(
        self, change: Callable[[ProviderRequest, PolicyContext], Any], name: str = "changes"
    ) -> None:
        self.name = name
        self.change = change

    def apply(self, request: ProviderRequest, context: PolicyContext) -> ProviderRequest:
        return self.change(request, context)


def with_options(**fields: Any) -> ProviderRequest:
    return ask(options=ProviderOptions(**fields))


def with_parameters(**parameters: Any) -> ProviderRequest:
    return ask(config={"parameters": parameters})


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="", parameters={"type": "object"})


# Merging


def test_scalars_replace_and_what_is_none_leaves_what_was_there() -> None:
    base = ProviderOptions(session_id="a", timeout_ms=1, cache_retention="long", cache_key="k")
    over = ProviderOptions(session_id="b", cache_retention="none")
    assert merge_request_options(base, over) == ProviderOptions(
        session_id="b", timeout_ms=1, cache_retention="none", cache_key="k"
    )


def test_headers_compat_and_extra_are_merged_by_key() -> None:
    base = ProviderOptions(
        headers={"a": "1", "b": "1"}, compat={"x": {"p": 1}, "y": 1}, extra={"body": {"p": 1}}
    )
    over = ProviderOptions(headers={"b": "2"}, compat={"x": {"q": 2}}, extra={"more": 1})
    before = copy.deepcopy((base, over))
    assert merge_request_options(base, over) == ProviderOptions(
        headers={"a": "1", "b": "2"},
        compat={"x": {"q": 2}, "y": 1},
        extra={"body": {"p": 1}, "more": 1},
    )
    assert (base, over) == before


def test_a_tool_choice_is_replaced_whole() -> None:
    base = ProviderOptions(tool_choice={"name": "a", "strict": True})
    over = ProviderOptions(tool_choice={"name": "b"})
    assert merge_request_options(base, over).tool_choice == {"name": "b"}
    assert merge_request_options(base, ProviderOptions(tool_choice="none")).tool_choice == "none"


def test_either_side_may_be_missing() -> None:
    options = ProviderOptions(session_id="a")
    assert merge_request_options(None, None) == ProviderOptions()
    assert merge_request_options(options, None) == options
    assert merge_request_options(None, options) == options


# The cache policy


def test_the_cache_policy_stamps_what_the_request_has_not_said() -> None:
    policy = SessionCachePolicy()
    assert isinstance(policy, RequestPolicy)
    assert policy.apply(ask(), CONTEXT).options == ProviderOptions(
        session_id="s1", cache_key="s1", cache_retention="short"
    )
    said = ProviderOptions(session_id="mine", cache_key="k", cache_retention="none")
    assert policy.apply(ask(options=said), CONTEXT).options == said


def test_a_key_of_the_policy_stands_for_the_sessions_id_and_for_no_other() -> None:
    policy = SessionCachePolicy(retention="long", key="shared")
    # The runtime has stamped the session's id as key before policies are asked.
    stamped = with_options(session_id="s1", cache_key="s1")
    assert policy.apply(stamped, CONTEXT).options == ProviderOptions(
        session_id="s1", cache_key="shared", cache_retention="long"
    )
    assert policy.apply(with_options(cache_key="own"), CONTEXT).options.cache_key == "own"
    assert stamped.options.cache_key == "s1"


@pytest.mark.parametrize("given", [{"retention": "forever"}, {"retention": ""}, {"key": ""}])
def test_the_cache_policy_refuses_what_cannot_be(given: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        SessionCachePolicy(**given)


# The chain


def test_policies_run_in_order_and_each_sees_what_the_one_before_made() -> None:
    seen: list[tuple[str, str | None, str]] = []

    def step(name: str) -> Changes:
        def change(request: ProviderRequest, context: PolicyContext) -> ProviderRequest:
            seen.append((name, request.options.cache_key, context.session_id))
            return replace(request, options=replace(request.options, cache_key=name))

        return Changes(change, name)

    request = ask()
    chain = RequestPolicyChain([step("a"), RequestPolicyChain([step("b")]), step("c")])
    assert isinstance(chain, RequestPolicy)
    assert chain.apply(request, CONTEXT).options.cache_key == "c"
    assert seen == [("a", None, "s1"), ("b", "a", "s1"), ("c", "b", "s1")]
    assert request == ask()


def test_an_empty_chain_changes_nothing_and_still_checks() -> None:
    assert RequestPolicyChain().apply(ask(), CONTEXT) == ask()
    with pytest.raises(UsageError):
        RequestPolicyChain().apply(with_parameters(maxTokens=0), CONTEXT)


def test_only_the_end_of_the_chain_is_checked() -> None:
    def ruin(request: ProviderRequest, _: PolicyContext) -> ProviderRequest:
        return replace(request, options=replace(request.options, timeout_ms=-1))

    def mend(request: ProviderRequest, _: PolicyContext) -> ProviderRequest:
        return replace(request, options=replace(request.options, timeout_ms=5))

    chain = RequestPolicyChain([Changes(ruin), Changes(mend)])
    assert chain.apply(ask(), CONTEXT).options.timeout_ms == 5
    with pytest.raises(UsageError, match="timeout_ms"):
        RequestPolicyChain([Changes(mend), Changes(ruin)]).apply(ask(), CONTEXT)


def test_what_a_policy_raises_comes_out_and_later_ones_are_not_asked() -> None:
    asked: list[str] = []

    def fail(_: ProviderRequest, __: PolicyContext) -> ProviderRequest:
        raise LookupError("no tenant")

    def late(request: ProviderRequest, _: PolicyContext) -> ProviderRequest:
        asked.append("late")
        return request

    with pytest.raises(LookupError, match="no tenant"):
        RequestPolicyChain([Changes(fail), Changes(late)]).apply(ask(), CONTEXT)
    assert not asked


@pytest.mark.parametrize("value", [None, {}, "request", ProviderOptions()])
def test_a_policy_that_gives_no_request_is_named(value: Any) -> None:
    policy = Changes(lambda _request, _context: value, "mine")
    with pytest.raises(UsageError, match="'mine' gave") as caught:
        RequestPolicyChain([policy]).apply(ask(), CONTEXT)
    assert caught.value.code == "invalid_request"


def test_a_chain_may_take_tools_away_and_add_none() -> None:
    request = ask(tools=[tool("a"), tool("b")])

    def only(*names: str) -> RequestPolicyChain:
        tools = [tool(name) for name in names]
        return RequestPolicyChain([Changes(lambda request, _: replace(request, tools=tools))])

    assert only("b").apply(request, CONTEXT).tools == [tool("b")]
    assert only().apply(request, CONTEXT).tools == []
    with pytest.raises(UsageError, match="c, d was added") as caught:
        only("a", "d", "c").apply(request, CONTEXT)
    assert caught.value.code == "invalid_request_option"


# The check

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize("key", ["maxTokens", "max_tokens"])
@pytest.mark.parametrize(
    "value", [NAN, INFINITY, -INFINITY, True, False, 0, -1, 1.5, 10.0, "10", 1_000_001, 10**400, []]
)
def test_max_tokens_must_be_a_whole_number_within_the_cap(key: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"parameters\.{key}") as caught:
        check_request(with_parameters(**{key: value}))
    assert caught.value.code == "invalid_request_option"
    assert len(caught.value.message) < 200
    assert "1000000" in caught.value.message


@pytest.mark.parametrize("value", [NAN, True, 0, -5, 1.0, "1", 86_400_001])
def test_timeouts_must_be_a_whole_number_within_the_cap(value: Any) -> None:
    with pytest.raises(UsageError, match="timeout_ms must be an integer from 1 to 86400000"):
        check_request(with_options(timeout_ms=value))


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (with_parameters(temperature=NAN), "temperature"),
        (with_parameters(topP=INFINITY), "topP"),
        (with_options(cache_retention="forever"), "cache_retention"),
        (with_options(cache_retention=["short"]), "cache_retention"),
        (with_options(session_id=1), "session_id"),
        (with_options(cache_key=b"k"), "cache_key"),
        (with_options(tool_choice=["a"]), "tool_choice"),
        (with_options(headers={"x": 1}), "headers"),
        (with_options(headers={"x": None}), "headers"),
        (with_options(headers={1: "x"}), "headers"),
        (with_options(headers=[("x", "y")]), "headers"),
        (with_options(compat=["thinking"]), "compat"),
        (with_options(extra={3: 1}), "extra"),
    ],
)
def test_what_no_adapter_can_send_is_refused_by_name(request_: ProviderRequest, named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        check_request(request_)
    assert caught.value.code == "invalid_request_option"


def test_values_of_headers_are_not_in_the_message() -> None:
    with pytest.raises(UsageError) as caught:
        check_request(with_options(headers={"authorization": b"Bearer secret-1"}))
    assert "secret-1" not in str(caught.value)


def test_a_request_that_can_be_sent_passes() -> None:
    check_request(ask())
    check_request(
        ask(
            tools=[tool("a")],
            options=ProviderOptions(
                session_id="s",
                cache_key="k",
                cache_retention="long",
                headers={"x": "y"},
                timeout_ms=86_400_000,
                tool_choice={"name": "a"},
                compat={"thinking": {"body": {}}},
                extra={"body": {"seed": 1}},
            ),
            config={
                "parameters": {
                    "maxTokens": 1_000_000, "max_tokens": None, "temperature": 0.5, "stop": ["x"],
                }
            },
        ),
        granted=frozenset({"a", "b"}),
    )  # fmt: skip
