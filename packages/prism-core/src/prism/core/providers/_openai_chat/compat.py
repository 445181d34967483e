"""What an endpoint of the Chat Completions family can do, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from prism.core._wire import ModelConfig
from prism.core.providers._switches import checked_switches, is_host, resolved_switches


class OpenAIChatCompat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Switches of an endpoint.

    They are set, each over the one before, by what is known of the provider's id, of the host in
    the base URL and of the model, by the provider's `compat` argument and by `ModelConfig.compat`,
    where they may also be written in camelCase.

    Attributes:
        max_tokens_field: Where `parameters.maxTokens` goes.
        stream_usage: Ask for usage with `stream_options`.
        developer_role: Send the system prompt as `developer`.
        store_false: Send `store: false`.
        strict_tools: Send `strict: true` with each tool; the schemas must fit then.
        tool_choice_required: Whether a call can be forced; else `auto` is sent, with a notice.
        tool_result_name: Send the tool's name with its result.
        assistant_after_tool: Put an assistant message between a result and a user message.
        tool_calling: Whether the model takes tools on this endpoint: `always`; only
            `without_reasoning`, which is then turned off, with a notice; or `never`: a request
            with tools is `unsupported`.
        tools_with_history: Send `tools: []` when only the history has calls.
        thinking_in: Where reasoning text is looked for in a delta; the first that is not empty.
        thinking_out: Send reasoning back to the model that wrote it, in the field it came in.
        foreign_thinking: Drop the reasoning of other models, or send it as plain `text`.
        binds_prefix: Leave reasoning out when the conversation before it changed.
        merge_system: Send the parts of the system prompt as one message.
        system_notes: Role of a system message in the middle of the conversation.
        id_style: `openai`: at most 40 characters; `mistral9`: exactly 9 letters and digits.
        trim_leading_space: Drop white space before an answer's first text.
        reasoning_outside_output: Whether `completion_tokens` leaves reasoning out; `None`: told
            by the sum.
        empty_body_overflow: Whether 400 and 413 without a body mean a full context window.
        sampling: Whether `temperature` and the like are taken.
        response_format: How an output schema is asked for; an endpoint that only knows
            `json_object` is not held to it.
        prompt_cache_key: Send `prompt_cache_key`.
        cache_control: Mark cacheable blocks as Anthropic does.
        affinity_header: Header for the cache key.
        auth_header: `authorization` carries `Bearer …`; any other carries the key alone.
        body: Merged into each request's body, except for the parts the adapter owns.
    """

    max_tokens_field: str = "max_tokens"
    stream_usage: bool = True
    developer_role: bool = False
    store_false: bool = False
    strict_tools: bool = False
    tool_choice_required: bool = True
    tool_result_name: bool = False
    assistant_after_tool: bool = False
    tool_calling: Literal["always", "without_reasoning", "never"] = "always"
    tools_with_history: bool = False
    thinking_in: tuple[str, ...] = ("reasoning_content", "reasoning", "reasoning_text")
    thinking_out: bool = True
    foreign_thinking: Literal["drop", "text"] = "drop"
    binds_prefix: bool = False
    merge_system: bool = True
    system_notes: Literal["system", "user"] = "system"
    id_style: Literal["openai", "mistral9"] = "openai"
    trim_leading_space: bool = False
    reasoning_outside_output: bool | None = None
    empty_body_overflow: bool = False
    sampling: bool = True
    response_format: Literal["json_schema", "json_object"] = "json_schema"
    prompt_cache_key: bool = False
    cache_control: bool = False
    affinity_header: str | None = None
    auth_header: str = "authorization"
    body: dict[str, Any] | None = None


_VENDORS: Final[dict[str, dict[str, Any]]] = {
    "openai": {
        "max_tokens_field": "max_completion_tokens",
        "store_false": True,
        "prompt_cache_key": True,
    },
    "azure": {"max_tokens_field": "max_completion_tokens", "auth_header": "api-key"},
    "cerebras": {"max_tokens_field": "max_completion_tokens", "empty_body_overflow": True},
    "mistral": {
        "stream_usage": False,
        "tool_result_name": True,
        "id_style": "mistral9",
        "affinity_header": "x-affinity",
    },
    "deepseek": {"response_format": "json_object"},
    "moonshot": {"tool_choice_required": False, "response_format": "json_object"},
    "qwen": {"trim_leading_space": True},
    "zai": {"trim_leading_space": True, "response_format": "json_object"},
    "minimax": {"trim_leading_space": True},
}

_IDS: Final[dict[str, str]] = {
    **{vendor: vendor for vendor in _VENDORS},
    "kimi": "moonshot",
    "moonshotai": "moonshot",
    "dashscope": "qwen",
    "zhipu": "zai",
}

_HOSTS: Final[tuple[tuple[str, str], ...]] = (
    ("api.openai.com", "openai"),
    ("openai.azure.com", "azure"),
    ("cognitiveservices.azure.com", "azure"),
    ("api.cerebras.ai", "cerebras"),
    ("api.deepseek.com", "deepseek"),
    ("api.mistral.ai", "mistral"),
    ("api.moonshot.ai", "moonshot"),
    ("api.moonshot.cn", "moonshot"),
    ("aliyuncs.com", "qwen"),
    ("api.z.ai", "zai"),
    ("bigmodel.cn", "zai"),
    ("api.minimax.io", "minimax"),
    ("api.minimaxi.com", "minimax"),
)

# Models that break on a switch at whichever host they run.
_MODELS: Final[tuple[tuple[re.Pattern[str], dict[str, Any]], ...]] = (
    (re.compile(r"kimi|qwen.*coder|gpt-oss", re.IGNORECASE), {"tool_choice_required": False}),
)
_OPENAI_REASONING: Final = re.compile(r"^(?:o\d|gpt-(?:[5-9]|\d\d))(?!.*chat)", re.IGNORECASE)
# These call tools over the Responses API: some of them only there, some here without reasoning.
_NO_TOOLS_IN_CHAT: Final = re.compile(r"^gpt-6(?:-astra|\.[12])(?!\d)", re.IGNORECASE)
_TOOLS_OR_REASONING: Final = re.compile(r"^gpt-6-(?:sol|luna)", re.IGNORECASE)
_CLAUDE_AT_OPENROUTER: Final = re.compile(r"^~?anthropic/", re.IGNORECASE)
_BINDING_AT_OPENROUTER: Final = re.compile(r"^~?(?:anthropic|openai)/", re.IGNORECASE)


def checked_compat(compat: Mapping[str, Any] | None) -> dict[str, Any]:
    """The switches that *compat* sets.

    Raises:
        UsageError: An unknown switch, or a value of the wrong type.
    """
    return checked_switches(OpenAIChatCompat, compat)


def resolve_compat(
    provider_id: str, base_url: str, given: Mapping[str, Any], model: ModelConfig
) -> OpenAIChatCompat:
    """The switches for one model.

    Raises:
        ProviderError: `invalid_request`, when `ModelConfig.compat` has a wrong value.
    """
    host = urlsplit(base_url).hostname or ""
    name = model.model
    switches: dict[str, Any] = dict(_VENDORS.get(_IDS.get(provider_id, ""), {}))
    vendor = next((name for end, name in _HOSTS if is_host(host, end)), None)
    if vendor is not None:
        switches |= _VENDORS[vendor]
    if is_host(host, "api.openai.com") and _OPENAI_REASONING.search(name):
        switches |= {"developer_role": True, "sampling": False}
    if vendor in {"openai", "azure"}:
        if _NO_TOOLS_IN_CHAT.search(name):
            switches["tool_calling"] = "never"
        elif _TOOLS_OR_REASONING.search(name):
            switches["tool_calling"] = "without_reasoning"
    if is_host(host, "openrouter.ai") and _CLAUDE_AT_OPENROUTER.search(name):
        switches["cache_control"] = True
    if is_host(host, "openrouter.ai") and _BINDING_AT_OPENROUTER.search(name):
        switches["binds_prefix"] = True
    for pattern, known in _MODELS:
        if pattern.search(name):
            switches |= known
    return resolved_switches(OpenAIChatCompat, known=switches, given=given, model=model.compat)
