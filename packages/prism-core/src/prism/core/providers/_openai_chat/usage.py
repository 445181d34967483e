"""Usage as the vendors of the Chat Completions family count it, in Prism's disjoint parts."""

from __future__ import annotations

import math
from typing import Any

from prism.core._wire import Usage
from prism.core.providers._json import as_object
from prism.core.providers._openai_chat.compat import OpenAIChatCompat


def read_usage(raw: dict[str, Any], compat: OpenAIChatCompat) -> Usage:
    """Counts that are missing stay absent, but for the sum of those that are there."""
    prompt = _count(raw.get("prompt_tokens"))
    output = _count(raw.get("completion_tokens"))
    prompt_details = as_object(raw.get("prompt_tokens_details"))
    cached = _first(
        prompt_details.get("cached_tokens"),
        raw.get("cached_tokens"),
        raw.get("prompt_cache_hit_tokens"),
    )
    written = _first(
        prompt_details.get("cache_write_tokens"), raw.get("cache_creation_input_tokens")
    )
    reasoning = _count(as_object(raw.get("completion_tokens_details")).get("reasoning_tokens"))
    if output is not None and reasoning:
        outside = compat.reasoning_outside_output
        if outside is None:
            total = _count(raw.get("total_tokens"))
            outside = total is not None and total - (prompt or 0) - output == reasoning
        if outside:
            output += reasoning
    uncached = None if prompt is None else max(0, prompt - (cached or 0) - (written or 0))
    parts = [part for part in (uncached, cached, written, output) if part is not None]
    cost: Any = raw.get("cost")
    has_cost = type(cost) in {int, float} and math.isfinite(cost)
    return Usage(
        input_tokens=uncached,
        output_tokens=output,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        total_tokens=sum(parts) if parts else None,
        cost=cost if has_cost else None,
        currency="USD" if has_cost else None,
    )


def _count(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def _first(*values: Any) -> int | None:
    return next((count for value in values if (count := _count(value)) is not None), None)
