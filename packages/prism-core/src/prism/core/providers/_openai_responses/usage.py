"""Usage as the Responses API counts it, in Prism's disjoint parts."""

from __future__ import annotations

import math
from typing import Any

from prism.core._wire import Usage
from prism.core.providers._json import as_object


def read_usage(raw: dict[str, Any]) -> Usage:
    """Counts that are missing stay absent, but for the sum of those that are there."""
    given = _count(raw.get("input_tokens"))
    output = _count(raw.get("output_tokens"))
    details = as_object(raw.get("input_tokens_details"))
    cached = _count(details.get("cached_tokens"))
    written = _count(details.get("cache_write_tokens"))
    uncached = None if given is None else max(0, given - (cached or 0) - (written or 0))
    parts = [part for part in (uncached, cached, written, output) if part is not None]
    cost: Any = raw.get("cost")  # OpenRouter's
    has_cost = type(cost) in {int, float} and math.isfinite(cost)
    return Usage(
        input_tokens=uncached,
        output_tokens=output,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        cache_write_long_tokens=_count(
            as_object(details.get("cache_write_tokens_details")).get("ttl_12h_tokens")
        ),
        reasoning_tokens=_count(
            as_object(raw.get("output_tokens_details")).get("reasoning_tokens")
        ),
        total_tokens=sum(parts) if parts else None,
        cost=cost if has_cost else None,
        currency="USD" if has_cost else None,
    )


def _count(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None
