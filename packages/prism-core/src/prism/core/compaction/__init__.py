"""Shrinking what the model sees: the contract, the default strategy, and what strategies need.

A strategy turns older entries of a branch into the summary of one compaction entry. Entries are
never deleted: what the model sees of a branch is rebuilt from its latest valid compaction.
"""

from prism.core._contracts import (
    CompactionContext,
    CompactionOptions,
    CompactionResult,
    CompactionStrategy,
)
from prism.core._support.branch import (
    Branch,
    Compacted,
    Problem,
    SessionContext,
    branch_entries,
    count_context_entries,
    latest_compaction,
    list_branches,
    rebuild_session_context,
    whole_groups,
)
from prism.core._support.pairs import repair_pairs
from prism.core._support.tokens import estimate_message_tokens, estimate_text_tokens
from prism.core._wire import CompactionData
from prism.core.compaction._default import (
    MAX_KEEP_RECENT_ENTRIES,
    MAX_SUMMARY_CHARS,
    DefaultCompactionStrategy,
)
from prism.core.compaction._plan import CompactionPlan, plan_compaction
from prism.core.compaction._validate import validate_compaction

__all__ = [
    "MAX_KEEP_RECENT_ENTRIES",
    "MAX_SUMMARY_CHARS",
    "Branch",
    "Compacted",
    "CompactionContext",
    "CompactionData",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionResult",
    "CompactionStrategy",
    "DefaultCompactionStrategy",
    "Problem",
    "SessionContext",
    "branch_entries",
    "count_context_entries",
    "estimate_message_tokens",
    "estimate_text_tokens",
    "latest_compaction",
    "list_branches",
    "plan_compaction",
    "rebuild_session_context",
    "repair_pairs",
    "validate_compaction",
    "whole_groups",
]
