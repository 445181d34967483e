"""Thinking levels: each family's bodies, clamps, the names of models, a host's own lines."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest

from prism.core._errors import UsageError
from prism.core.providers import (
    DEFAULT_THINKING,
    THINKING_LEVELS,
    AnthropicProvider,
    GoogleProvider,
    ModelConfig,
    OpenAIChatProvider,
    OpenAIResponsesProvider,
    ProviderOptions,
    ThinkingFamily,
    ThinkingTable,
    apply_thinking_level,
    thinking_compat_for,
    thinking_family_for_model,
)
from prism.core.providers._base import HttpProvider

from .wire import MemoryTransport, ask

CHAT, RESPONSES, MESSAGES, GEMINI = (
    "openai-chat",
    "openai-responses",
    "anthropic-messages",
    "gemini",
)


def effort(value: str) -> dict[str, Any]:
    return {"reasoning_effort": value}


def adaptive(value: str, **thinking: str) -> dict[str, Any]:
    return {
        "thinking": {"type": "adaptive", **thinking},
        "output_config": {"effort": value},
    }


def shown(value: str) -> dict[str, Any]:
    return adaptive(value, display="summarized")


def budget(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def gemini(**config: Any) -> dict[str, Any]:
    return {"generationConfig": {"thinkingConfig": {**config, "includeThoughts": True}}}


def gemini_budget(tokens: int) -> dict[str, Any]:
    return gemini(thinkingBudget=tokens)


def gemini_level(level: str) -> dict[str, Any]:
    return gemini(thinkingLevel=level)


NO_BUDGET = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}
DISABLED = {"thinking": {"type": "disabled"}}


def deepseek(value: str) -> dict[str, Any]:
    return {"thinking": {"type": "enabled"}, "reasoning_effort": value}


def qwen(tokens: int | None = None) -> dict[str, Any]:
    return {"enable_thinking": True} | ({} if tokens is None else {"thinking_budget": tokens})


def qwen_template(*, on: bool) -> dict[str, Any]:
    return {"chat_template_kwargs": {"enable_thinking": on}}


def glm(value: str) -> dict[str, Any]:
    thinking = {"type": "enabled", "clear_thinking": False}
    return {"thinking": thinking, "reasoning_effort": value}


def glm_switch(kind: str) -> dict[str, Any]:
    return {"thinking": {"type": kind, "clear_thinking": False}}


def kimi(kind: str) -> dict[str, Any]:
    return {"thinking": {"type": kind}}


def openrouter(value: str) -> dict[str, Any]:
    return {"reasoning": {"effort": value, "enabled": True}}


# Family, a model of it, its API, and what is sent for off, minimal, low, medium, high, xhigh, max.
# The last column names the levels that the model has not, with what they become.
BODIES: list[tuple[str, str, str, list[dict[str, Any]], dict[str, str]]] = [
    (
        "openai-o", "o3-mini", CHAT,
        [effort(v) for v in ("low", "low", "low", "medium", "high", "high", "high")],
        {"off": "low", "minimal": "low", "xhigh": "high", "max": "high"},
    ),
    (
        "openai-gpt5", "gpt-5-mini-2025-08-07", CHAT,
        [effort(v) for v in ("minimal", "minimal", "low", "medium", "high", "high", "high")],
        {"off": "minimal", "xhigh": "high", "max": "high"},
    ),
    (
        "openai-gpt5-chat", "gpt-5.2-chat-latest", CHAT, [effort("medium")] * 7,
        {level: "medium" for level in THINKING_LEVELS if level != "medium"},
    ),
    (
        "openai-gpt5-pro", "gpt-5-pro", CHAT, [effort("high")] * 7,
        {level: "high" for level in THINKING_LEVELS if level != "high"},
    ),
    (
        "openai-gpt5.1", "gpt-5.1-codex", CHAT,
        [effort(v) for v in ("none", "low", "low", "medium", "high", "high", "high")],
        {"minimal": "low", "xhigh": "high", "max": "high"},
    ),
    (
        "openai-gpt5.2", "gpt-5.4", CHAT,
        [effort(v) for v in ("none", "low", "low", "medium", "high", "xhigh", "xhigh")],
        {"minimal": "low", "max": "xhigh"},
    ),
    (
        "openai-gpt5.2-pro", "gpt-5.2-pro", CHAT,
        [effort(v) for v in ("medium", "medium", "medium", "medium", "high", "xhigh", "xhigh")],
        {"off": "medium", "minimal": "medium", "low": "medium", "max": "xhigh"},
    ),
    (
        "openai-gpt5.5", "gpt-5.5", CHAT,
        [effort(v) for v in ("none", "low", "low", "medium", "high", "xhigh", "xhigh")],
        {"minimal": "low", "max": "xhigh"},
    ),
    (
        "openai-gpt5.6", "gpt-5.6", CHAT,
        [effort(v) for v in ("none", "low", "low", "medium", "high", "xhigh", "max")],
        {"minimal": "low"},
    ),
    (
        "openai-gpt6", "gpt-6-sol", CHAT,
        [effort(v) for v in ("none", "low", "low", "medium", "high", "xhigh", "max")],
        {"minimal": "low"},
    ),
    (
        "openai-gpt6-on", "gpt-6.1-sol", CHAT,
        [effort(v) for v in ("low", "low", "low", "medium", "high", "xhigh", "max")],
        {"off": "low", "minimal": "low"},
    ),
    (
        "gpt-oss", "openai/gpt-oss-120b", CHAT,
        [effort(v) for v in ("low", "low", "low", "medium", "high", "high", "high")],
        {"off": "low", "minimal": "low", "xhigh": "high", "max": "high"},
    ),
    (
        "claude-budget", "claude-haiku-4-5", MESSAGES,
        [{}, *(budget(n) for n in (1_024, 2_048, 8_192, 16_384, 32_768, 32_768))],
        {"max": "xhigh"},
    ),
    (
        "claude-4.6", "claude-sonnet-4-6", MESSAGES,
        [{}, *(adaptive(v) for v in ("low", "low", "medium", "high", "max", "max"))],
        {"minimal": "low", "xhigh": "max"},
    ),
    (
        "claude-4.7", "claude-opus-4-8", MESSAGES,
        [{}, *(shown(v) for v in ("low", "low", "medium", "high", "xhigh", "max"))],
        {"minimal": "low"},
    ),
    (
        "claude-5", "claude-opus-5", MESSAGES,
        [DISABLED, *(shown(v) for v in ("low", "low", "medium", "high", "xhigh", "max"))],
        {"minimal": "low"},
    ),
    (
        "claude-5.5-on", "claude-opus-5-5", MESSAGES,
        [
            {"output_config": {"effort": "low"}},
            *(shown(v) for v in ("low", "low", "medium", "high", "xhigh", "max")),
        ],
        {"off": "low", "minimal": "low"},
    ),
    (
        "claude-sonnet-5.5", "claude-sonnet-5-5", MESSAGES,
        [
            {"thinking": {"type": "between_tools"}},
            *(shown(v) for v in ("low", "low", "medium", "high", "xhigh", "max")),
        ],
        {"off": "minimal", "minimal": "low"},
    ),
    (
        "claude-haiku-5.5", "claude-haiku-5-5", MESSAGES,
        [DISABLED, *(shown(v) for v in ("low", "low", "medium", "high", "high", "high"))],
        {"minimal": "low", "xhigh": "high", "max": "high"},
    ),
    (
        "gemini-2.5-pro", "gemini-2.5-pro", GEMINI,
        [gemini_budget(n) for n in (128, 128, 2_048, 8_192, 32_768, 32_768, 32_768)],
        {"off": "minimal", "xhigh": "high", "max": "high"},
    ),
    (
        "gemini-2.5-flash", "gemini-2.5-flash", GEMINI,
        [NO_BUDGET, *(gemini_budget(n) for n in (128, 2_048, 8_192, 24_576, 24_576, 24_576))],
        {"xhigh": "high", "max": "high"},
    ),
    (
        "gemini-2.5-flash-lite", "gemini-2.5-flash-lite", GEMINI,
        [NO_BUDGET, *(gemini_budget(n) for n in (512, 2_048, 8_192, 24_576, 24_576, 24_576))],
        {"xhigh": "high", "max": "high"},
    ),
    (
        "gemini-3-flash", "gemini-3-flash-preview", GEMINI,
        [
            gemini_level(v)
            for v in ("MINIMAL", "MINIMAL", "LOW", "MEDIUM", "HIGH", "HIGH", "HIGH")
        ],
        {"off": "minimal", "xhigh": "high", "max": "high"},
    ),
    (
        "gemini-3-pro", "gemini-3-pro-preview", GEMINI,
        [gemini_level(v) for v in ("LOW", "LOW", "LOW", "HIGH", "HIGH", "HIGH", "HIGH")],
        {"off": "low", "minimal": "low", "medium": "high", "xhigh": "high", "max": "high"},
    ),
    (
        "gemini-3.1-pro", "gemini-3.7-flash", GEMINI,
        [gemini_level(v) for v in ("LOW", "LOW", "LOW", "MEDIUM", "HIGH", "HIGH", "HIGH")],
        {"off": "low", "minimal": "low", "xhigh": "high", "max": "high"},
    ),
    (
        "gemini-4", "gemini-4-argon", GEMINI,
        [gemini_level(v) for v in ("LOW", "LOW", "LOW", "MEDIUM", "HIGH", "HIGH", "HIGH")],
        {"off": "low", "minimal": "low", "xhigh": "high", "max": "high"},
    ),
    (
        "deepseek", "deepseek-v4-pro", CHAT,
        [DISABLED, *(deepseek(v) for v in ("low", "low", "high", "high", "high", "max"))],
        {"minimal": "low", "medium": "high", "xhigh": "high"},
    ),
    (
        "qwen", "qwen3-32b", CHAT,
        [
            {"enable_thinking": False}, qwen(1_024), qwen(2_048), qwen(8_192),
            qwen(), qwen(), qwen(),
        ],
        {"xhigh": "high", "max": "high"},
    ),
    ("glm", "glm-4.6", CHAT, [glm_switch("disabled"), *[glm_switch("enabled")] * 6], {}),
    (
        "glm-5.2", "glm-5.2", CHAT,
        [DISABLED, *(glm(v) for v in ("minimal", "low", "medium", "high", "xhigh", "max"))],
        {},
    ),
    (
        "glm-5.3", "glm-5.3", CHAT,
        [glm(v) for v in ("low", "low", "low", "high", "high", "max", "max")],
        {"off": "low", "minimal": "low", "medium": "high", "xhigh": "max"},
    ),
    ("kimi", "kimi-k2.5", CHAT, [kimi("disabled"), *[kimi("enabled")] * 6], {}),
    (
        "grok-4.3", "grok-4.3", CHAT,
        [effort(v) for v in ("none", "low", "low", "medium", "high", "high", "high")],
        {"minimal": "low", "xhigh": "high", "max": "high"},
    ),
    (
        "grok-4.5", "grok-4.5", CHAT,
        [effort(v) for v in ("low", "low", "low", "medium", "high", "high", "high")],
        {"off": "low", "minimal": "low", "xhigh": "high", "max": "high"},
    ),
    (
        "grok-3-mini", "grok-3-mini-fast", CHAT,
        [effort(v) for v in ("low", "low", "low", "high", "high", "high", "high")],
        {"off": "low", "minimal": "low", "medium": "high", "xhigh": "high", "max": "high"},
    ),
    (
        "mistral-reasoning", "magistral-medium-latest", CHAT,
        [{}, *[{"prompt_mode": "reasoning"}] * 6],
        {},
    ),
    # These three are named by the provider's id, or by the model's `compat`.
    ("groq-qwen3", "groq/qwen3-32b", CHAT, [effort("none"), *[effort("default")] * 6], {}),
    (
        "openrouter", "openrouter/claude-opus-5", CHAT,
        [
            {"reasoning": {"effort": "none"}},
            *(openrouter(v) for v in ("minimal", "low", "medium", "high", "xhigh", "xhigh")),
        ],
        {"max": "xhigh"},
    ),
    (
        "qwen-template", "vllm/qwen3-32b", CHAT,
        [qwen_template(on=False), *[qwen_template(on=True)] * 6], {},
    ),
]  # fmt: skip


def model_of(name: str, family: str = "") -> ModelConfig:
    provider, _, model = name.rpartition("/")
    compat = {"thinkingFamily": family} if family == "qwen-template" else None
    return ModelConfig(provider=provider or "test", model=model, compat=compat)


@pytest.mark.parametrize(("family", "name", "api", "bodies", "clamps"), BODIES)
def test_each_level_of_each_family_has_its_body_and_clamps_are_told(
    family: str, name: str, api: str, bodies: list[dict[str, Any]], clamps: dict[str, str]
) -> None:
    model = model_of(name, family)
    assert thinking_family_for_model(model) == family
    for level, body in zip(THINKING_LEVELS, bodies, strict=True):
        found = thinking_compat_for(model, level, api=api)
        assert found is not None
        assert (level, found.body) == (level, body)
        assert found.sent == clamps.get(level, level)
        _, notice = apply_thinking_level(ProviderOptions(), model, level, api=api)
        assert found.clamped == (level in clamps) == (notice is not None)
        if notice is not None:
            assert notice.code == "thinking_clamped"
            assert repr(level) in notice.message
            assert repr(clamps[level]) in notice.message


def test_the_table_above_has_every_family() -> None:
    assert {row[0] for row in BODIES} | {"none"} == set(DEFAULT_THINKING.families)


def test_over_responses_an_effort_is_asked_for_with_a_summary() -> None:
    for family, name, *_ in BODIES:
        if family.startswith("openai-"):
            for level in THINKING_LEVELS:
                found = thinking_compat_for(model_of(name), level, api=RESPONSES)
                chat = thinking_compat_for(model_of(name), level, api=CHAT)
                assert found is not None
                assert chat is not None
                wanted = {"effort": chat.body["reasoning_effort"], "summary": "auto"}
                assert found.body == {"reasoning": wanted}
                assert found.sent == chat.sent
    oss = thinking_compat_for(model_of("gpt-oss:20b"), "high", api=RESPONSES)
    assert oss is not None
    assert oss.body == {"reasoning": {"effort": "high"}}


def test_a_family_without_a_body_for_the_api_sends_nothing() -> None:
    claude = model_of("claude-opus-5")
    assert thinking_compat_for(claude, "high", api=CHAT) is None
    assert thinking_compat_for(model_of("some-model"), "high", api=CHAT) is None
    options = ProviderOptions(compat={"mine": 1})
    assert apply_thinking_level(options, claude, "high", api=CHAT) == (options, None)


ADAPTERS: dict[str, type[Any]] = {
    CHAT: OpenAIChatProvider,
    RESPONSES: OpenAIResponsesProvider,
    MESSAGES: AnthropicProvider,
    GEMINI: GoogleProvider,
}


@pytest.mark.parametrize("api", ADAPTERS)
def test_every_family_and_level_builds_a_body_that_goes_out(api: str) -> None:
    provider: HttpProvider = ADAPTERS[api](transport=MemoryTransport())
    built = 0
    for name, family in DEFAULT_THINKING.families.items():
        model = ModelConfig(provider="t", model="m", compat={"thinkingFamily": name})
        for level in THINKING_LEVELS:
            options, _ = apply_thinking_level(ProviderOptions(), model, level, api=api)
            request = msgspec.structs.replace(ask(model="m"), options=options)
            body = json.loads(provider.prepare(request).body)
            fragment = (options.compat or {}).get("thinking", {})
            for key, value in fragment.get("body", {}).items():
                assert body[key] == value
                built += 1
            assert bool(fragment) == (api in family.templates)
    assert built > 20


def test_none_is_read_as_off_and_no_level_sends_nothing() -> None:
    model = model_of("gpt-5.6")
    assert thinking_compat_for(model, "none", api=CHAT) == thinking_compat_for(
        model, "off", api=CHAT
    )
    options = ProviderOptions()
    assert apply_thinking_level(options, model, None, api=CHAT) == (options, None)
    assert apply_thinking_level(options, model, "high", api=None) == (options, None)


@pytest.mark.parametrize("level", ["", "HIGH", "more", 3, True, ["off"]])
def test_an_unknown_level_is_refused(level: Any) -> None:
    with pytest.raises(UsageError, match="Unknown thinking level") as caught:
        thinking_compat_for(model_of("gpt-5"), level, api=CHAT)
    assert caught.value.code == "unknown_thinking_level"


@pytest.mark.parametrize("family", ["gpt9", 3, ["qwen"]])
def test_an_unknown_family_of_a_model_is_refused(family: Any) -> None:
    model = ModelConfig(provider="p", model="m", compat={"thinkingFamily": family})
    with pytest.raises(UsageError, match="unknown thinking family") as caught:
        thinking_compat_for(model, "high", api=CHAT)
    assert caught.value.code == "unknown_thinking_family"


@pytest.mark.parametrize(
    ("provider", "model", "family"),
    [
        ("a", "claude-opus-4-20250514", "claude-budget"),
        ("a", "claude-opus-4-5-20251101", "claude-budget"),
        ("a", "claude-opus-4-6@20260205", "claude-4.6"),
        ("a", "anthropic/claude-opus-4.7", "claude-4.7"),
        ("a", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-budget"),
        ("a", "global.anthropic.claude-fable-5-1-v1:0", "claude-5.5-on"),
        ("a", "us-gov.anthropic.claude-3-7-sonnet-20250219-v1:0", "claude-budget"),
        (
            "a",
            "arn:aws:bedrock:eu:1:inference-profile/eu.anthropic.claude-opus-5",
            "claude-5",
        ),
        ("a", "publishers/anthropic/models/claude-sonnet-5-5", "claude-sonnet-5.5"),
        ("a", "Claude-Opus-5.5", "claude-5.5-on"),
        ("a", "claude-3-5-sonnet-latest", "none"),
        ("a", "openai.gpt-oss-120b-1:0", "gpt-oss"),
        ("a", "qwen.qwen3-32b-v1:0", "qwen"),
        ("a", "gpt-oss:20b", "gpt-oss"),
        ("a", "GPT-5.1", "openai-gpt5.1"),
        ("a", "gpt-5.3-codex", "openai-gpt5.2"),
        ("a", "gpt-5-chat-latest", "none"),
        ("a", "gpt-5.5-pro-2026-04-01", "openai-gpt5.2-pro"),
        ("a", "gpt-6-astra-mini", "openai-gpt6-on"),
        ("a", "gpt-6.2", "openai-gpt6-on"),
        ("a", "gpt-4o", "none"),
        ("a", "gpt-50", "none"),
        ("a", "o1-preview", "openai-o"),
        ("a", "o11", "none"),
        ("a", "gemini-2.5-flash-lite-preview-09-2025", "gemini-2.5-flash-lite"),
        ("a", "models/gemini-3.1-pro-preview", "gemini-3.1-pro"),
        ("a", "gemini-2.0-flash", "none"),
        ("a", "qwen3-235b-a22b-thinking-2507", "none"),
        ("a", "qwen3-235b-a22b-instruct-2507", "none"),
        ("a", "qwen2.5-72b-instruct", "none"),
        ("a", "kimi-k2-thinking", "none"),
        ("a", "deepseek-chat", "none"),
        ("a", "glm-5.1", "glm"),
        ("a", "glm-5", "glm"),
        ("a", "z-ai/glm-5.2", "glm-5.2"),
        ("groq", "qwen/qwen3-32b", "groq-qwen3"),
        ("groq", "openai/gpt-oss-20b", "gpt-oss"),
        ("openrouter", "anthropic/claude-opus-4.7", "openrouter"),
        ("openrouter", "any/thing", "openrouter"),
        ("a", "", "none"),
    ],
)
def test_a_models_name_is_looked_up_without_vendor_region_date_and_tag(
    provider: str, model: str, family: str
) -> None:
    assert thinking_family_for_model(ModelConfig(provider=provider, model=model)) == family


def test_a_models_own_family_goes_before_its_name_and_its_provider() -> None:
    def family(**fields: Any) -> str:
        compat = {"thinkingFamily": fields.pop("of")}
        return thinking_family_for_model(ModelConfig(compat=compat, **fields))

    assert family(provider="openrouter", model="glm-5", of="glm") == "glm"
    assert family(provider="vllm", model="qwen3-32b", of="qwen-template") == "qwen-template"
    assert family(provider="p", model="gpt-5", of="none") == "none"


def test_a_hosts_own_lines_win_over_the_table() -> None:
    mine = ThinkingFamily(
        name="mine",
        levels={"off": ">low", "low": 1, "high": 2},
        templates={CHAT: {"depth": {"steps": "$value"}, "on": True}},
        bodies={CHAT: {"high": {"depth": "all"}}},
        refuses_sampling=True,
        fixed=("-raw",),
    )
    table = DEFAULT_THINKING.extended(
        families={"mine": mine},
        models={"acme": "mine", "gpt-5": "mine", "local/gpt-5": "none"},
        providers={"gate": "mine"},
    )

    def body(provider: str, model: str, level: str) -> Any:
        config = ModelConfig(provider=provider, model=model)
        found = thinking_compat_for(config, level, api=CHAT, thinking=table)
        return None if found is None else (found.sent, found.body, bool(found.drop))

    low = ("low", {"depth": {"steps": 1}, "on": True}, True)
    assert body("p", "acme-2", "off") == low
    assert body("p", "acme-2", "high") == ("high", {"depth": "all"}, True)
    assert body("p", "acme-2", "medium") == ("medium", {}, True)
    assert body("p", "acme-2-raw", "high") is None
    assert body("p", "gpt-5", "low") == low
    assert body("p", "gpt-5.1", "low") == ("low", {"reasoning_effort": "low"}, True)
    assert body("local", "gpt-5", "low") is None
    assert body("gate", "claude-opus-5", "low") == (
        "low",
        {"depth": {"steps": 1}, "on": True},
        True,
    )
    assert "mine" not in DEFAULT_THINKING.families
    assert thinking_family_for_model(ModelConfig(provider="p", model="acme")) == "none"


def test_a_table_that_leads_nowhere_is_refused_when_it_is_made() -> None:
    def family(**levels: Any) -> ThinkingFamily:
        return ThinkingFamily(name="f", levels=levels, templates={})

    for levels in ({"off": ">off"}, {"off": ">low"}, {"off": ">low", "low": ">off"}, {"more": 1}):
        with pytest.raises(UsageError, match="Thinking table") as caught:
            family(**levels)
        assert caught.value.code == "invalid_thinking_table"
    with pytest.raises(UsageError, match="unknown family 'f'"):
        ThinkingTable(families={}, models={"m": "f"})
    with pytest.raises(UsageError, match="unknown family 'f'"):
        DEFAULT_THINKING.extended(providers={"p": "f"})
    alone = ThinkingTable(families={}, models={})
    assert thinking_compat_for(model_of("gpt-5"), "high", api=CHAT, thinking=alone) is None


def test_the_options_are_changed_in_one_place_and_only_in_the_copy() -> None:
    options = ProviderOptions(session_id="s", compat={"mine": [1]}, extra={"body": {"seed": 1}})
    before = copy.deepcopy(options)
    model = model_of("claude-opus-5-5")
    changed, notice = apply_thinking_level(options, model, "off", api=MESSAGES)
    assert options == before
    assert notice is not None
    assert changed == msgspec.structs.replace(options, compat=changed.compat)
    compat = changed.compat or {}
    assert compat == {
        "mine": [1],
        "thinking": {
            "family": "claude-5.5-on",
            "level": "off",
            "sent": "low",
            "body": {"output_config": {"effort": "low"}},
            "drop": [
                "temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty",
                "logprobs", "top_logprobs",
            ],
        },
    }  # fmt: skip
    compat["thinking"]["body"]["output_config"]["effort"] = "max"
    again, _ = apply_thinking_level(changed, model, "off", api=MESSAGES)
    assert (again.compat or {})["thinking"]["body"] == {"output_config": {"effort": "low"}}


def test_sampling_is_kept_while_the_model_does_not_think() -> None:
    for name, level, api, drops in [
        ("gpt-5.6", "off", CHAT, False),
        ("gpt-5.6", "low", CHAT, True),
        ("gpt-6-astra", "off", RESPONSES, True),
        ("claude-sonnet-4-5", "off", MESSAGES, False),
        ("claude-sonnet-4-5", "high", MESSAGES, True),
        ("claude-opus-5", "off", MESSAGES, False),
        ("claude-sonnet-5-5", "off", MESSAGES, True),
        ("gemini-2.5-pro", "high", GEMINI, False),
        ("deepseek-v4", "high", CHAT, False),
    ]:
        found = thinking_compat_for(model_of(name), level, api=api)
        assert found is not None
        assert (name, level, bool(found.drop)) == (name, level, drops)


def test_a_host_that_shows_no_reasoning_asks_for_no_summaries() -> None:
    hidden = ProviderOptions(compat={"thinking": {"show": False}})

    def body(name: str, api: str) -> Any:
        options, _ = apply_thinking_level(hidden, model_of(name), "high", api=api)
        thinking = (options.compat or {})["thinking"]
        assert thinking["show"] is False
        return thinking["body"]

    assert body("gpt-6-sol", RESPONSES) == {"reasoning": {"effort": "high"}}
    assert body("claude-opus-5", MESSAGES) == adaptive("high")
    assert body("gemini-3-pro", GEMINI) == {
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}}
    }


def dropped(provider: HttpProvider, model: ModelConfig, level: str, api: str) -> tuple[Any, Any]:
    options, _ = apply_thinking_level(ProviderOptions(), model, level, api=api)
    request = msgspec.structs.replace(ask(), model=model, options=options)
    call = provider.prepare(request)
    body = json.loads(call.body)
    kept = {key for key in ("temperature", "top_p", "presence_penalty") if key in body}
    return kept, [notice for notice in call.notices if notice.code == "sampling_dropped"]


@pytest.mark.parametrize(
    ("kind", "name", "api"),
    [
        (OpenAIChatProvider, "gpt-5.6", CHAT),
        (OpenAIResponsesProvider, "gpt-5.6", RESPONSES),
        (AnthropicProvider, "claude-sonnet-4-5", MESSAGES),
    ],
)
def test_sampling_is_dropped_from_the_body_with_one_notice(
    kind: type[Any], name: str, api: str
) -> None:
    provider: HttpProvider = kind(transport=MemoryTransport(), base_url="http://compatible.test")
    model = ModelConfig(
        provider="p", model=name, parameters={"temperature": 0.2, "topP": 0.5, "maxTokens": 9_000}
    )
    kept, notices = dropped(provider, model, "high", api)
    assert kept == set()
    assert len(notices) == 1
    assert "temperature, top_p" in notices[0].message
    assert dropped(provider, model, "off", api) == ({"temperature", "top_p"}, [])


@pytest.mark.parametrize(
    ("max_tokens", "limit", "level", "sent", "thinking"),
    [
        # Room is made for the budget beside what was asked for.
        (2_000, None, "high", 18_384, 16_384),
        (2_000, None, "minimal", 2_000, 1_024),
        # As far as the model goes; then the budget gives way.
        (2_000, 10_000, "high", 10_000, 8_976),
        (2_000, 2_048, "high", 2_048, 1_024),
        # And where not even the smallest one has room, there is none.
        (1_000, 2_000, "high", 1_000, None),
        (None, None, "max", 64_000, 32_768),
    ],
)
def test_a_thinking_budget_stays_below_max_tokens(
    max_tokens: int | None, limit: int | None, level: str, sent: int, thinking: int | None
) -> None:
    provider = AnthropicProvider(transport=MemoryTransport())
    model = msgspec.convert(
        {
            "provider": "p",
            "model": "claude-sonnet-4-5",
            "parameters": {} if max_tokens is None else {"maxTokens": max_tokens},
            "limits": {"maxOutputTokens": limit},
        },
        ModelConfig,
    )
    options, _ = apply_thinking_level(ProviderOptions(), model, level, api=MESSAGES)
    call = provider.prepare(msgspec.structs.replace(ask(), model=model, options=options))
    body = json.loads(call.body)
    if thinking is not None:
        assert 1_024 <= body["thinking"]["budget_tokens"] < body["max_tokens"]
    assert body["max_tokens"] == sent
    assert body.get("thinking", {}).get("budget_tokens") == thinking
    assert [notice.code for notice in call.notices] == (
        [] if thinking is not None else ["thinking_clamped"]
    )
