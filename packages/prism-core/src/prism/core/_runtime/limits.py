"""Whether a run has used what it may use."""

from __future__ import annotations

from prism.core._wire import Usage, UsageLimits


def reached_limit(
    limits: UsageLimits | None, *, usage: Usage | None, requests: int, tool_calls: int
) -> str | None:
    """Which limit is reached, in words; `None` when none is."""
    if limits is None:
        return None
    spent = usage or Usage()
    tokens_in = (
        (spent.input_tokens or 0) + (spent.cache_read_tokens or 0) + (spent.cache_write_tokens or 0)
    )
    tokens_out = spent.output_tokens or 0
    checks: list[tuple[str, float | None, float]] = [
        ("max_requests", limits.max_requests, requests),
        ("max_input_tokens", limits.max_input_tokens, tokens_in),
        ("max_output_tokens", limits.max_output_tokens, tokens_out),
        ("max_total_tokens", limits.max_total_tokens, tokens_in + tokens_out),
        ("max_cost", limits.max_cost, spent.cost or 0),
        ("max_tool_calls", limits.max_tool_calls, tool_calls),
    ]
    for name, limit, used in checks:
        if limit is not None and used >= limit:
            return f"{name} of {limit} is reached ({used} used)."
    return None
