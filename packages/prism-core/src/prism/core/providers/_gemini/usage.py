"""Usage as the Gemini API counts it, in Prism's disjoint parts."""

from __future__ import annotations

from typing import Any

from prism.core._wire import Usage
from prism.core.providers._json import as_count


def read_usage(raw: dict[str, Any]) -> Usage:
    """The vendor counts the cached part in the prompt, and thoughts beside the answer."""
    prompt = _sum(raw, "promptTokenCount", "toolUsePromptTokenCount")
    cached = as_count(raw.get("cachedContentTokenCount"))
    output = _sum(raw, "candidatesTokenCount", "thoughtsTokenCount")
    uncached = None if prompt is None else max(0, prompt - (cached or 0))
    parts = [part for part in (uncached, cached, output) if part is not None]
    return Usage(
        input_tokens=uncached,
        output_tokens=output,
        cache_read_tokens=cached,
        reasoning_tokens=as_count(raw.get("thoughtsTokenCount")),
        total_tokens=sum(parts) if parts else None,
    )


def _sum(raw: dict[str, Any], *names: str) -> int | None:
    counts = [count for name in names if (count := as_count(raw.get(name))) is not None]
    return sum(counts) if counts else None
