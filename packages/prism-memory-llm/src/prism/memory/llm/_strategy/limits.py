"""The numbers of a strategy, their defaults and their caps."""

from __future__ import annotations

from typing import Final

import msgspec

from prism.memory.llm._prepare import DEFAULT_KEEP_RECENT_TOKENS, MAX_KEEP_RECENT_TOKENS
from prism.memory.llm._serialize import DEFAULT_MAX_TOOL_RESULT_CHARS, MAX_TOOL_RESULT_CHARS
from prism.memory.llm._tokens import checked_limit

DEFAULT_RESERVE_TOKENS: Final = 16_384
MAX_RESERVE_TOKENS: Final = 131_072

DEFAULT_MAX_SUMMARY_TOKENS: Final = 16_384
MAX_SUMMARY_TOKENS: Final = 131_072
"""Cap of `max_summary_tokens`, and of `maxTokens` in a summary request."""

DEFAULT_MAX_ERROR_BYTES: Final = 1_024
MAX_ERROR_BYTES: Final = 8_192

MAX_SUMMARY_CALLS: Final = 32
"""Most provider calls of one compaction whose summary request was too long for the window."""

UNITS_PER_TOKEN: Final = 4
"""UTF-16 code units that are retained for each token of `max_summary_tokens`."""

_SPARE_EVENTS: Final = 1_024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Checked numbers; see `LlmCompactionStrategy`.

    Raises:
        UsageError: `invalid_limit` for one that is no integer from 1 to its cap.
    """

    reserve_tokens: int = DEFAULT_RESERVE_TOKENS
    keep_recent_tokens: int = DEFAULT_KEEP_RECENT_TOKENS
    max_summary_tokens: int = DEFAULT_MAX_SUMMARY_TOKENS
    max_error_bytes: int = DEFAULT_MAX_ERROR_BYTES
    max_tool_result_chars: int = DEFAULT_MAX_TOOL_RESULT_CHARS

    def __post_init__(self) -> None:
        for name, cap in _CAPS.items():
            checked_limit(name, getattr(self, name), cap=cap)

    @property
    def max_units(self) -> int:
        """UTF-16 code units of a summary that are retained."""
        return self.max_summary_tokens * UNITS_PER_TOKEN

    @property
    def max_events(self) -> int:
        """Events that are read of one answer."""
        return UNITS_PER_TOKEN * self.max_summary_tokens + _SPARE_EVENTS


_CAPS: Final = {
    "reserve_tokens": MAX_RESERVE_TOKENS,
    "keep_recent_tokens": MAX_KEEP_RECENT_TOKENS,
    "max_summary_tokens": MAX_SUMMARY_TOKENS,
    "max_error_bytes": MAX_ERROR_BYTES,
    "max_tool_result_chars": MAX_TOOL_RESULT_CHARS,
}
