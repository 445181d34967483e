"""Which body asks which model to think how much. Data alone; read in November 2026.

A row of `LEVELS` gives, per family, what each level becomes. A plain value goes into the family's
template; `>low` means that the model has no such level and gets that of `low`; `None` sends
nothing. `BODIES` holds the levels for which the template is of no use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

_ByKey: TypeAlias = Mapping[str, Mapping[str, Any]]

VALUE: Final = "$value"
"""Stands in a template for the level's value."""

SHOW_KEYS: Final = frozenset({"summary", "display", "includeThoughts"})
"""Keys of templates that make the reasoning readable; left out when nobody wants to read it."""

_EFFORT: Final[_ByKey] = {
    "openai-chat": {"reasoning_effort": VALUE},
    "openai-responses": {"reasoning": {"effort": VALUE, "summary": "auto"}},
}
_EFFORT_ALONE: Final[_ByKey] = {
    "openai-chat": {"reasoning_effort": VALUE},
    "openai-responses": {"reasoning": {"effort": VALUE}},
}
_EFFORT_CHAT: Final[_ByKey] = {"openai-chat": {"reasoning_effort": VALUE}}
_CLAUDE_BUDGET: Final[_ByKey] = {
    "anthropic-messages": {"thinking": {"type": "enabled", "budget_tokens": VALUE}}
}
_CLAUDE_ADAPTIVE: Final[_ByKey] = {
    "anthropic-messages": {"thinking": {"type": "adaptive"}, "output_config": {"effort": VALUE}}
}
_CLAUDE_SHOWN: Final[_ByKey] = {
    "anthropic-messages": {
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": VALUE},
    }
}
_GEMINI_BUDGET: Final[_ByKey] = {
    "gemini": {
        "generationConfig": {"thinkingConfig": {"thinkingBudget": VALUE, "includeThoughts": True}}
    }
}
_GEMINI_LEVEL: Final[_ByKey] = {
    "gemini": {
        "generationConfig": {"thinkingConfig": {"thinkingLevel": VALUE, "includeThoughts": True}}
    }
}
_SWITCH_AND_EFFORT: Final[_ByKey] = {
    "openai-chat": {"thinking": {"type": "enabled"}, "reasoning_effort": VALUE}
}
_GLM_AND_EFFORT: Final[_ByKey] = {
    "openai-chat": {
        "thinking": {"type": "enabled", "clear_thinking": False},
        "reasoning_effort": VALUE,
    }
}
_OPENROUTER: Final[_ByKey] = {"openai-chat": {"reasoning": {"effort": VALUE, "enabled": True}}}

TEMPLATES: Final[Mapping[str, _ByKey]] = {
    "openai-o": _EFFORT,
    "openai-gpt5": _EFFORT,
    "openai-gpt5-chat": _EFFORT,
    "openai-gpt5-pro": _EFFORT,
    "openai-gpt5.1": _EFFORT,
    "openai-gpt5.2": _EFFORT,
    "openai-gpt5.2-pro": _EFFORT,
    "openai-gpt5.5": _EFFORT,
    "openai-gpt5.6": _EFFORT,
    "openai-gpt6": _EFFORT,
    "openai-gpt6-on": _EFFORT,
    "gpt-oss": _EFFORT_ALONE,
    "claude-budget": _CLAUDE_BUDGET,
    "claude-4.6": _CLAUDE_ADAPTIVE,
    "claude-4.7": _CLAUDE_SHOWN,
    "claude-5": _CLAUDE_SHOWN,
    "claude-5.5-on": _CLAUDE_SHOWN,
    "claude-sonnet-5.5": _CLAUDE_SHOWN,
    "claude-haiku-5.5": _CLAUDE_SHOWN,
    "gemini-2.5-pro": _GEMINI_BUDGET,
    "gemini-2.5-flash": _GEMINI_BUDGET,
    "gemini-2.5-flash-lite": _GEMINI_BUDGET,
    "gemini-3-flash": _GEMINI_LEVEL,
    "gemini-3-pro": _GEMINI_LEVEL,
    "gemini-3.1-pro": _GEMINI_LEVEL,
    "gemini-4": _GEMINI_LEVEL,
    "deepseek": _SWITCH_AND_EFFORT,
    "qwen": {"openai-chat": {"enable_thinking": True, "thinking_budget": VALUE}},
    "qwen-template": {"openai-chat": {"chat_template_kwargs": {"enable_thinking": VALUE}}},
    "glm": {"openai-chat": {"thinking": {"type": VALUE, "clear_thinking": False}}},
    "glm-5.2": _GLM_AND_EFFORT,
    "glm-5.3": _GLM_AND_EFFORT,
    "kimi": {"openai-chat": {"thinking": {"type": VALUE}}},
    "grok-4.3": _EFFORT_CHAT,
    "grok-4.5": _EFFORT_CHAT,
    "grok-3-mini": _EFFORT_CHAT,
    "groq-qwen3": _EFFORT_CHAT,
    "openrouter": _OPENROUTER,
    "mistral-reasoning": {"openai-chat": {"prompt_mode": VALUE}},
    "none": {},
}
"""The part of a request's body, by family and API."""

LEVELS: Final[Mapping[str, tuple[Any, ...]]] = {
    # family: off, minimal, low, medium, high, xhigh, max
    "openai-o": (">low", ">low", "low", "medium", "high", ">high", ">high"),
    "openai-gpt5": (">minimal", "minimal", "low", "medium", "high", ">high", ">high"),
    "openai-gpt5-chat": (">medium",) * 3 + ("medium",) + (">medium",) * 3,
    "openai-gpt5-pro": (">high",) * 4 + ("high",) + (">high",) * 2,
    "openai-gpt5.1": ("none", ">low", "low", "medium", "high", ">high", ">high"),
    "openai-gpt5.2": ("none", ">low", "low", "medium", "high", "xhigh", ">xhigh"),
    "openai-gpt5.2-pro": (">medium", ">medium", ">medium", "medium", "high", "xhigh", ">xhigh"),
    "openai-gpt5.5": ("none", ">low", "low", "medium", "high", "xhigh", ">xhigh"),
    "openai-gpt5.6": ("none", ">low", "low", "medium", "high", "xhigh", "max"),
    "openai-gpt6": ("none", ">low", "low", "medium", "high", "xhigh", "max"),
    "openai-gpt6-on": (">low", ">low", "low", "medium", "high", "xhigh", "max"),
    "gpt-oss": (">low", ">low", "low", "medium", "high", ">high", ">high"),
    "claude-budget": (None, 1_024, 2_048, 8_192, 16_384, 32_768, ">xhigh"),
    "claude-4.6": (None, ">low", "low", "medium", "high", ">max", "max"),
    "claude-4.7": (None, ">low", "low", "medium", "high", "xhigh", "max"),
    "claude-5": ("disabled", ">low", "low", "medium", "high", "xhigh", "max"),
    "claude-5.5-on": (">low", ">low", "low", "medium", "high", "xhigh", "max"),
    # It cannot be off, only think less often than at its lowest effort.
    "claude-sonnet-5.5": (">minimal", ">low", "low", "medium", "high", "xhigh", "max"),
    # Whether it takes xhigh and max is not known; high it does.
    "claude-haiku-5.5": ("disabled", ">low", "low", "medium", "high", ">high", ">high"),
    "gemini-2.5-pro": (">minimal", 128, 2_048, 8_192, 32_768, ">high", ">high"),
    "gemini-2.5-flash": (0, 128, 2_048, 8_192, 24_576, ">high", ">high"),
    "gemini-2.5-flash-lite": (0, 512, 2_048, 8_192, 24_576, ">high", ">high"),
    "gemini-3-flash": (">minimal", "MINIMAL", "LOW", "MEDIUM", "HIGH", ">high", ">high"),
    "gemini-3-pro": (">low", ">low", "LOW", ">high", "HIGH", ">high", ">high"),
    "gemini-3.1-pro": (">low", ">low", "LOW", "MEDIUM", "HIGH", ">high", ">high"),
    "gemini-4": (">low", ">low", "LOW", "MEDIUM", "HIGH", ">high", ">high"),
    "deepseek": ("disabled", ">low", "low", ">high", "high", ">high", "max"),
    "qwen": (False, 1_024, 2_048, 8_192, True, ">high", ">high"),
    "qwen-template": (False, True, True, True, True, True, True),
    "glm": ("disabled",) + ("enabled",) * 6,
    "glm-5.2": ("disabled", "minimal", "low", "medium", "high", "xhigh", "max"),
    "glm-5.3": (">low", ">low", "low", ">high", "high", ">max", "max"),
    "kimi": ("disabled",) + ("enabled",) * 6,
    "grok-4.3": ("none", ">low", "low", "medium", "high", ">high", ">high"),
    "grok-4.5": (">low", ">low", "low", "medium", "high", ">high", ">high"),
    "grok-3-mini": (">low", ">low", "low", ">high", "high", ">high", ">high"),
    "groq-qwen3": ("none",) + ("default",) * 6,
    "openrouter": ("none", "minimal", "low", "medium", "high", "xhigh", ">xhigh"),
    "mistral-reasoning": (None,) + ("reasoning",) * 6,
    "none": (None,) * 7,
}  # fmt: skip
"""What each of `THINKING_LEVELS` becomes, by family."""

_DISABLED: Final[Mapping[str, Any]] = {"thinking": {"type": "disabled"}}
_NO_BUDGET: Final[_ByKey] = {
    "gemini": {"off": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}}
}

BODIES: Final[Mapping[str, Mapping[str, _ByKey]]] = {
    "claude-5": {"anthropic-messages": {"off": _DISABLED}},
    "claude-haiku-5.5": {"anthropic-messages": {"off": _DISABLED}},
    "claude-5.5-on": {"anthropic-messages": {"off": {"output_config": {"effort": "low"}}}},
    "claude-sonnet-5.5": {"anthropic-messages": {"off": {"thinking": {"type": "between_tools"}}}},
    "gemini-2.5-flash": _NO_BUDGET,
    "gemini-2.5-flash-lite": _NO_BUDGET,
    "deepseek": {"openai-chat": {"off": _DISABLED}},
    "glm-5.2": {"openai-chat": {"off": _DISABLED}},
    # Without a budget it is the model's own limit; a larger one is refused.
    "qwen": {"openai-chat": {"off": {"enable_thinking": False}, "high": {"enable_thinking": True}}},
    "openrouter": {"openai-chat": {"off": {"reasoning": {"effort": "none"}}}},
}
"""Bodies of single levels, by family, API and level."""

NO_SAMPLING: Final = frozenset({
    "openai-o", "openai-gpt5", "openai-gpt5-chat", "openai-gpt5-pro", "openai-gpt5.1",
    "openai-gpt5.2", "openai-gpt5.2-pro", "openai-gpt5.5", "openai-gpt5.6", "openai-gpt6",
    "openai-gpt6-on", "claude-budget", "claude-4.6", "claude-4.7", "claude-5", "claude-5.5-on",
    "claude-sonnet-5.5", "claude-haiku-5.5",
})  # fmt: skip
"""Families that refuse sampling parameters while they think."""

SAMPLING_KEYS: Final = (
    "temperature",
    "top_p",
    "top_k",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
)

FIXED: Final[Mapping[str, tuple[str, ...]]] = {
    "qwen": ("-thinking", "-instruct"),
    "groq-qwen3": ("-thinking", "-instruct"),
}
"""Parts of names of models that always or never think, whatever their family is asked."""

MODELS: Final[Mapping[str, str]] = {
    "o1": "openai-o", "o3": "openai-o", "o4-mini": "openai-o",
    "gpt-5": "openai-gpt5", "gpt-5-chat": "none", "gpt-5-pro": "openai-gpt5-pro",
    "gpt-5-1": "openai-gpt5.1", "gpt-5-1-chat": "openai-gpt5-chat",
    "gpt-5-2": "openai-gpt5.2", "gpt-5-3": "openai-gpt5.2", "gpt-5-4": "openai-gpt5.2",
    "gpt-5-2-chat": "openai-gpt5-chat", "gpt-5-2-pro": "openai-gpt5.2-pro",
    "gpt-5-3-chat": "openai-gpt5-chat", "gpt-5-3-pro": "openai-gpt5.2-pro",
    "gpt-5-4-chat": "openai-gpt5-chat", "gpt-5-4-pro": "openai-gpt5.2-pro",
    "gpt-5-5": "openai-gpt5.5", "gpt-5-5-pro": "openai-gpt5.2-pro",
    "gpt-5-6": "openai-gpt5.6",
    "gpt-6": "openai-gpt6", "gpt-6-astra": "openai-gpt6-on",
    "gpt-6-1": "openai-gpt6-on", "gpt-6-2": "openai-gpt6-on",
    "gpt-oss": "gpt-oss",
    "claude-3-7": "claude-budget", "claude-opus-4": "claude-budget",
    "claude-sonnet-4": "claude-budget", "claude-haiku-4-5": "claude-budget",
    "claude-opus-4-6": "claude-4.6", "claude-sonnet-4-6": "claude-4.6",
    "claude-opus-4-7": "claude-4.7", "claude-opus-4-8": "claude-4.7",
    "claude-sonnet-5": "claude-5", "claude-opus-5": "claude-5",
    "claude-opus-5-5": "claude-5.5-on", "claude-fable-5": "claude-5.5-on",
    "claude-mythos-5": "claude-5.5-on", "claude-sonnet-5-5": "claude-sonnet-5.5",
    "claude-haiku-5-5": "claude-haiku-5.5",
    "gemini-2-5-pro": "gemini-2.5-pro", "gemini-2-5-flash": "gemini-2.5-flash",
    "gemini-2-5-flash-lite": "gemini-2.5-flash-lite",
    "gemini-2-5-flash-image": "none",
    "gemini-3-flash": "gemini-3-flash", "gemini-3-1-flash": "gemini-3-flash",
    "gemini-3-pro": "gemini-3-pro", "gemini-3-1-pro": "gemini-3.1-pro",
    "gemini-3-7-flash": "gemini-3.1-pro", "gemini-4": "gemini-4",
    "deepseek-v4": "deepseek", "deepseek-flash": "deepseek", "deepseek-pro": "deepseek",
    "qwen3": "qwen", "qwen-plus": "qwen", "qwen-max": "qwen", "qwen-flash": "qwen",
    "qwen-turbo": "qwen", "groq/qwen3": "groq-qwen3",
    "glm-4-5": "glm", "glm-4-6": "glm", "glm-4-7": "glm", "glm-5": "glm", "glm-5-1": "glm",
    "glm-5-2": "glm-5.2", "glm-5-3": "glm-5.3",
    "kimi-k2-5": "kimi", "kimi-k2-6": "kimi", "kimi-k3": "kimi",
    "grok-4-3": "grok-4.3", "grok-4-5": "grok-4.5", "grok-3-mini": "grok-3-mini",
    "magistral": "mistral-reasoning",
}  # fmt: skip
"""Family by the longest prefix of a model's name, dots written as dashes; of one provider's
models alone after `provider/`."""

PROVIDERS: Final[Mapping[str, str]] = {"openrouter": "openrouter"}
"""Providers that translate one form for every model."""
