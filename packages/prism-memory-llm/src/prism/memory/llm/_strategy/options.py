"""The arguments of the strategies, for code that passes them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from prism.core import ModelConfig, ProviderOptions, Secret
from prism.core.providers import CredentialRequest, CredentialResolver, RequestPolicy
from prism.memory.llm._prompts import SummaryPrompts
from prism.memory.llm._strategy.source import ProviderSource


class CodingOptions(TypedDict, total=False):
    """The arguments of `CodingCompactionStrategy`, as `LlmCompactionStrategy` explains them."""

    provider: ProviderSource | None
    summary_provider: ProviderSource | None
    model: ModelConfig | None
    summary_model: ModelConfig | None
    credential: CredentialResolver | None
    credential_request: CredentialRequest | None
    provider_options: ProviderOptions | None
    provider_request_policies: Sequence[RequestPolicy]
    custom_instructions: str | None
    thinking_level: str | None
    reserve_tokens: int
    keep_recent_tokens: int
    max_summary_tokens: int | None
    max_output_tokens: int | None
    max_error_bytes: int
    max_tool_result_chars: int
    secrets: Sequence[str | Secret]
    prompts: SummaryPrompts | None
    clock: Callable[[], float]
    new_id: Callable[[str], str]


class LlmCompactionOptions(CodingOptions, total=False):
    """The arguments of `LlmCompactionStrategy`."""

    track_file_operations: bool
    include_file_operations: bool
    name: str
