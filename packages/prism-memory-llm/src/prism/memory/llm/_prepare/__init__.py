"""What of a branch is summarised, and what stays: pure, linear in the entries."""

from prism.memory.llm._prepare.plan import (
    DEFAULT_KEEP_RECENT_TOKENS,
    MAX_KEEP_RECENT_TOKENS,
    CutPoint,
    Preparation,
    find_cut_point,
    prepare,
)

__all__ = [
    "DEFAULT_KEEP_RECENT_TOKENS",
    "MAX_KEEP_RECENT_TOKENS",
    "CutPoint",
    "Preparation",
    "find_cut_point",
    "prepare",
]
