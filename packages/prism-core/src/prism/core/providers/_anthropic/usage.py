"""Usage as the Messages API counts it, in Prism's disjoint parts."""

from __future__ import annotations

from typing import Any

from prism.core._wire import Usage
from prism.core.providers._json import as_count, as_object


def read_usage(raw: dict[str, Any]) -> Usage:
    """The vendor's parts are disjoint already; counts that are missing stay absent."""
    uncached = as_count(raw.get("input_tokens"))
    cached = as_count(raw.get("cache_read_input_tokens"))
    written = as_count(raw.get("cache_creation_input_tokens"))
    output = as_count(raw.get("output_tokens"))
    kept_long = as_count(as_object(raw.get("cache_creation")).get("ephemeral_1h_input_tokens"))
    thought = as_count(as_object(raw.get("output_tokens_details")).get("thinking_tokens"))
    parts = [part for part in (uncached, cached, written, output) if part is not None]
    return Usage(
        input_tokens=uncached,
        output_tokens=output,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        cache_write_long_tokens=kept_long,
        reasoning_tokens=thought,
        total_tokens=sum(parts) if parts else None,
    )


def merge_usage(raw: dict[str, Any], update: dict[str, Any]) -> None:
    """Take from *update* what is not null: it is cumulative, but some hosts leave parts out."""
    raw.update({name: value for name, value in update.items() if value is not None})
