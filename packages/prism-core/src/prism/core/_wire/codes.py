"""The stable codes and the closed sets of words, in one place.

Read from outside they are plain strings, so that a newer writer's word does no harm; what Prism
itself writes is one of these.
"""

from __future__ import annotations

from typing import Final

RPC_CODES: Final = frozenset({
    "parse_error", "invalid_request", "invalid_id", "duplicate_id", "unknown_command",
    "invalid_params", "line_too_long", "too_deep", "session_busy", "session_not_found",
    "session_exists", "no_active_run", "nothing_to_compact", "nothing_to_continue",
    "command_not_found", "unsupported", "aborted", "store_conflict",
})  # fmt: skip
"""Error codes of RPC replies, beside `PROVIDER_CODES`."""

PROVIDER_CODES: Final = frozenset({
    "rate_limit", "temporarily_unavailable", "server_error", "timeout", "connection",
    "stream_truncated", "malformed_output", "conflict", "aborted", "quota_exhausted", "auth",
    "permission", "not_found", "invalid_request", "replay_invalid", "context_overflow",
    "request_too_large", "unsupported", "content_blocked", "response_too_large",
})  # fmt: skip
"""Error codes of the model's side."""

TOOL_BLOCK_REASONS: Final = frozenset({
    "unknown_tool", "tool_denied", "invalid_arguments", "permission_denied", "validation_failed",
    "skipped", "aborted", "max_tool_rounds",
})  # fmt: skip
"""Why a call was never started."""

STOP_REASONS: Final = frozenset({
    "stop", "tool_use", "length", "context_limit", "refusal", "pause", "error", "aborted",
})  # fmt: skip
"""Why the model stopped."""

RUN_STATUSES: Final = frozenset({
    "completed", "aborted", "failed", "max_tool_rounds", "limit_reached",
})  # fmt: skip
"""How a run ended."""

SESSION_STATUSES: Final = frozenset({"idle", "running", "compacting", "awaiting_approval"})
"""What a session is doing."""

APPROVAL_DECISIONS: Final = frozenset({"allowed", "edited", "denied"})
"""Answers to a request for approval."""
