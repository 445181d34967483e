"""Providers: the contract, helpers for its events, registries, and the adapters.

The adapters are loaded when they are named, and `httpx2` when one is made.
"""

import typing

from prism.core._contracts import (
    BlockFinished,
    CredentialRequest,
    CredentialResolver,
    Done,
    Failed,
    Notice,
    PolicyContext,
    Provider,
    ProviderEvent,
    ProviderRequest,
    RequestPolicy,
    Secret,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    ToolCallReady,
    ToolSpec,
    UsageUpdate,
)
from prism.core._support import lazy as _lazy
from prism.core._wire import (
    THINKING_LEVELS,
    ErrorInfo,
    ModelConfig,
    ProviderOptions,
    Usage,
    is_thinking_level,
    normalize_thinking_level,
)
from prism.core.providers._helpers import (
    block_finished,
    done,
    error,
    notice,
    text_delta,
    thinking_delta,
    tool_call,
    tool_call_delta,
    usage,
)
from prism.core.providers._mock import MockProvider, delay
from prism.core.providers._registry import ModelRegistry, ProviderRegistry

if typing.TYPE_CHECKING:
    from prism.core.providers._anthropic import AnthropicCompat, AnthropicProvider
    from prism.core.providers._gemini import GeminiCompat, GoogleProvider
    from prism.core.providers._http import HttpResponse, HttpTimeouts, HttpTransport
    from prism.core.providers._openai_chat import OpenAIChatCompat, OpenAIChatProvider
    from prism.core.providers._openai_responses import (
        OpenAIResponsesCompat,
        OpenAIResponsesProvider,
    )
    from prism.core.providers._policies import (
        RequestPolicyChain,
        SessionCachePolicy,
        check_request,
        merge_request_options,
    )
    from prism.core.providers._thinking import (
        DEFAULT_THINKING,
        ThinkingCompat,
        ThinkingFamily,
        ThinkingTable,
        apply_thinking_level,
        thinking_compat_for,
        thinking_family_for_model,
    )
    from prism.core.providers._use_case import (
        UseCaseModelBinding,
        resolve_use_case_model,
        use_case_credential_provider,
    )

__all__ = [
    "DEFAULT_THINKING",
    "THINKING_LEVELS",
    "AnthropicCompat",
    "AnthropicProvider",
    "BlockFinished",
    "CredentialRequest",
    "CredentialResolver",
    "Done",
    "ErrorInfo",
    "Failed",
    "GeminiCompat",
    "GoogleProvider",
    "HttpResponse",
    "HttpTimeouts",
    "HttpTransport",
    "MockProvider",
    "ModelConfig",
    "ModelRegistry",
    "Notice",
    "OpenAIChatCompat",
    "OpenAIChatProvider",
    "OpenAIResponsesCompat",
    "OpenAIResponsesProvider",
    "PolicyContext",
    "Provider",
    "ProviderEvent",
    "ProviderOptions",
    "ProviderRegistry",
    "ProviderRequest",
    "RequestPolicy",
    "RequestPolicyChain",
    "Secret",
    "SessionCachePolicy",
    "TextDelta",
    "ThinkingCompat",
    "ThinkingDelta",
    "ThinkingFamily",
    "ThinkingTable",
    "ToolCallChunk",
    "ToolCallReady",
    "ToolSpec",
    "Usage",
    "UsageUpdate",
    "UseCaseModelBinding",
    "apply_thinking_level",
    "block_finished",
    "check_request",
    "delay",
    "done",
    "error",
    "is_thinking_level",
    "merge_request_options",
    "normalize_thinking_level",
    "notice",
    "resolve_use_case_model",
    "text_delta",
    "thinking_compat_for",
    "thinking_delta",
    "thinking_family_for_model",
    "tool_call",
    "tool_call_delta",
    "usage",
    "use_case_credential_provider",
]

__getattr__: _lazy.GetAttribute = _lazy.lazy_names(
    __name__,
    {
        "AnthropicCompat": "_anthropic",
        "AnthropicProvider": "_anthropic",
        "DEFAULT_THINKING": "_thinking",
        "GeminiCompat": "_gemini",
        "GoogleProvider": "_gemini",
        "HttpResponse": "_http",
        "HttpTimeouts": "_http",
        "HttpTransport": "_http",
        "OpenAIChatCompat": "_openai_chat",
        "OpenAIChatProvider": "_openai_chat",
        "OpenAIResponsesCompat": "_openai_responses",
        "OpenAIResponsesProvider": "_openai_responses",
        "RequestPolicyChain": "_policies",
        "SessionCachePolicy": "_policies",
        "ThinkingCompat": "_thinking",
        "ThinkingFamily": "_thinking",
        "ThinkingTable": "_thinking",
        "UseCaseModelBinding": "_use_case",
        "apply_thinking_level": "_thinking",
        "check_request": "_policies",
        "merge_request_options": "_policies",
        "resolve_use_case_model": "_use_case",
        "thinking_compat_for": "_thinking",
        "thinking_family_for_model": "_thinking",
        "use_case_credential_provider": "_use_case",
    },
)
