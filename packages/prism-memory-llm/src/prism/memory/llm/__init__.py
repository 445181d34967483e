"""Compaction of long sessions by a summary model that the host names.

Importing it, making a strategy and loading the extension have no effect: a session compacts with a
strategy when the host passes it in.
"""

from prism.memory.llm._extension import llm_compaction_extension
from prism.memory.llm._file_ops import (
    MAX_FILES,
    FileOperations,
    collect_file_operations,
    format_file_operations,
)
from prism.memory.llm._prepare import (
    DEFAULT_KEEP_RECENT_TOKENS,
    MAX_KEEP_RECENT_TOKENS,
    CutPoint,
    Preparation,
    find_cut_point,
    prepare,
)
from prism.memory.llm._prompts import (
    CODING_FOCUS,
    SUMMARY_PROMPT,
    SUMMARY_SYSTEM_PROMPT,
    TURN_PREFIX_HEADING,
    TURN_PREFIX_PROMPT,
    UPDATE_PROMPT,
    SummaryPrompts,
)
from prism.memory.llm._serialize import (
    DEFAULT_MAX_TOOL_RESULT_CHARS,
    MAX_TOOL_RESULT_CHARS,
    serialize_conversation,
)
from prism.memory.llm._strategy import (
    DEFAULT_MAX_ERROR_BYTES,
    DEFAULT_MAX_SUMMARY_TOKENS,
    DEFAULT_RESERVE_TOKENS,
    MAX_ERROR_BYTES,
    MAX_RESERVE_TOKENS,
    MAX_SUMMARY_CALLS,
    MAX_SUMMARY_TOKENS,
    CodingCompactionStrategy,
    CodingOptions,
    LlmCompactionOptions,
    LlmCompactionStrategy,
    ProviderFactory,
    ProviderSource,
)
from prism.memory.llm._tokens import (
    estimate_entry_tokens,
    estimate_message_tokens,
    estimate_text_tokens,
)

__all__ = [
    "CODING_FOCUS",
    "DEFAULT_KEEP_RECENT_TOKENS",
    "DEFAULT_MAX_ERROR_BYTES",
    "DEFAULT_MAX_SUMMARY_TOKENS",
    "DEFAULT_MAX_TOOL_RESULT_CHARS",
    "DEFAULT_RESERVE_TOKENS",
    "MAX_ERROR_BYTES",
    "MAX_FILES",
    "MAX_KEEP_RECENT_TOKENS",
    "MAX_RESERVE_TOKENS",
    "MAX_SUMMARY_CALLS",
    "MAX_SUMMARY_TOKENS",
    "MAX_TOOL_RESULT_CHARS",
    "SUMMARY_PROMPT",
    "SUMMARY_SYSTEM_PROMPT",
    "TURN_PREFIX_HEADING",
    "TURN_PREFIX_PROMPT",
    "UPDATE_PROMPT",
    "CodingCompactionStrategy",
    "CodingOptions",
    "CutPoint",
    "FileOperations",
    "LlmCompactionOptions",
    "LlmCompactionStrategy",
    "Preparation",
    "ProviderFactory",
    "ProviderSource",
    "SummaryPrompts",
    "collect_file_operations",
    "estimate_entry_tokens",
    "estimate_message_tokens",
    "estimate_text_tokens",
    "find_cut_point",
    "format_file_operations",
    "llm_compaction_extension",
    "prepare",
    "serialize_conversation",
]
