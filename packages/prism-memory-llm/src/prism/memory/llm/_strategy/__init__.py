"""The strategies, and how they ask a summary model."""

from prism.memory.llm._strategy.coding import CodingCompactionStrategy
from prism.memory.llm._strategy.limits import (
    DEFAULT_MAX_ERROR_BYTES,
    DEFAULT_MAX_SUMMARY_TOKENS,
    DEFAULT_RESERVE_TOKENS,
    MAX_ERROR_BYTES,
    MAX_RESERVE_TOKENS,
    MAX_SUMMARY_CALLS,
    MAX_SUMMARY_TOKENS,
)
from prism.memory.llm._strategy.options import CodingOptions, LlmCompactionOptions
from prism.memory.llm._strategy.source import ProviderFactory, ProviderSource
from prism.memory.llm._strategy.strategy import LlmCompactionStrategy

__all__ = [
    "DEFAULT_MAX_ERROR_BYTES",
    "DEFAULT_MAX_SUMMARY_TOKENS",
    "DEFAULT_RESERVE_TOKENS",
    "MAX_ERROR_BYTES",
    "MAX_RESERVE_TOKENS",
    "MAX_SUMMARY_CALLS",
    "MAX_SUMMARY_TOKENS",
    "CodingCompactionStrategy",
    "CodingOptions",
    "LlmCompactionOptions",
    "LlmCompactionStrategy",
    "ProviderFactory",
    "ProviderSource",
]
