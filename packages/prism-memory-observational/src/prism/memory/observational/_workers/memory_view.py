"""What of the memory a worker is shown, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from prism.core import ModelConfig
from prism.memory.observational._ledger import Ledger, coverage_tier
from prism.memory.observational._records import RELEVANCES, Observation, Reflection
from prism.memory.observational._settings import MIN_CHUNK_TOKENS, ObservationalMemorySettings

UNKNOWN_WINDOW_SHARE = 60_000
"""Tokens that stand for a fifth of a window that is not known."""

WINDOW_PARTS = 5

T = TypeVar("T", Observation, Reflection)


def window_share(model: ModelConfig) -> int:
    """A fifth of the model's context window, in tokens."""
    window = model.limits.context_window if model.limits is not None else None
    return max(MIN_CHUNK_TOKENS, UNKNOWN_WINDOW_SHARE if window is None else window // WINDOW_PARTS)


def prior_budget(settings: ObservationalMemorySettings, model: ModelConfig) -> int:
    """Tokens of memory that a worker is shown."""
    asked = settings.prior_memory_max_tokens
    return window_share(model) if asked is None else asked


def chunk_budget(settings: ObservationalMemorySettings, model: ModelConfig) -> int:
    """Tokens of messages that the observer is shown at once."""
    asked = settings.observer_chunk_max_tokens
    return max(MIN_CHUNK_TOKENS, window_share(model) if asked is None else asked)


def choose(found: Sequence[T], budget: int, relevance: Callable[[T], int]) -> list[T]:
    """The newest for half of the budget, then the most relevant; in the order of the ledger."""
    chosen: set[int] = set()
    left = budget
    newest = range(len(found) - 1, -1, -1)
    for at in newest:
        cost = int(found[at].token_count)
        if cost > left - budget // 2:
            break
        chosen.add(at)
        left -= cost
    for at in sorted(newest, key=lambda at: (-relevance(found[at]), -at)):
        if at in chosen:
            continue
        cost = int(found[at].token_count)
        if cost > left:
            break
        chosen.add(at)
        left -= cost
    return [found[at] for at in sorted(chosen)]


def known_memory(ledger: Ledger, budget: int, *, tiers: bool) -> str:
    """Reflections and observations in use, as many as there is room for.

    Args:
        ledger: Of the branch.
        budget: Tokens.
        tiers: Say of each observation how well reflections keep it.
    """
    ranks = {relevance: rank for rank, relevance in enumerate(RELEVANCES)}
    reflections = choose(ledger.active_reflections, budget // 2, lambda _: 0)
    spent = int(sum(one.token_count for one in reflections))
    active = ledger.active_observations
    observations = choose(active, budget - spent, lambda one: ranks[one.relevance])
    lines = ["Known reflections:", *(one.line for one in reflections)]
    if not reflections:
        lines.append("none")
    lines += ["", "Known observations:"]
    for one in observations:
        tier = coverage_tier(ledger.citations.get(one.id, 0))
        lines.append(f"{one.line} (kept by reflections: {tier})" if tiers else one.line)
    if not observations:
        lines.append("none")
    missing = len(active) - len(observations) + len(ledger.active_reflections) - len(reflections)
    if missing:
        lines.append(f"({missing} older or less relevant ones are not shown)")
    return "\n".join(lines)
