"""What a turn cost, from its tokens and the model's prices."""

from __future__ import annotations

import re
from typing import Final

from msgspec import structs

from prism.core._wire import ModelCost, Usage

DEFAULT_UNIT: Final = 1_000_000
"""Tokens that a price is for, when the model's cost does not say."""

LONG_WRITE_FACTOR: Final = 1.6
"""A cache write that is kept long, beside a short one: vendors ask 2 against 1.25 times the input
price (`ModelCost` has one price for both)."""


def priced(usage: Usage, cost: ModelCost | None) -> Usage:
    """*usage* with its cost; unchanged when it has one already, or when no price is known.

    A kind of input without a price of its own costs what input costs, so that a limit on cost
    errs on the safe side. A unit that is not understood is no price.
    """
    if cost is None or usage.cost is not None:
        return usage
    if cost.input is None and cost.output is None:
        return usage
    unit = _tokens_of(cost.unit)
    if unit is None:
        return usage
    price_in = cost.input or 0
    price_read = price_in if cost.cache_read is None else cost.cache_read
    price_write = price_in if cost.cache_write is None else cost.cache_write
    long_writes = usage.cache_write_long_tokens or 0
    short_writes = max(0, (usage.cache_write_tokens or 0) - long_writes)
    total = (
        (usage.input_tokens or 0) * price_in
        + (usage.cache_read_tokens or 0) * price_read
        + short_writes * price_write
        + long_writes * price_write * LONG_WRITE_FACTOR
        + (usage.output_tokens or 0) * (cost.output or 0)
    )
    return structs.replace(usage, cost=total / unit, currency=cost.currency or "USD")


_UNIT: Final = re.compile(r"(?:(\d+) ?([km]?)|token)(?: ?tokens?)?", re.IGNORECASE)
_FACTORS: Final = {"": 1, "k": 1_000, "m": 1_000_000}


def _tokens_of(unit: int | str | None) -> int | None:
    """`1000000`, `"1000000"`, `"1M"`, `"1k tokens"`, `"token"`."""
    if unit is None:
        return DEFAULT_UNIT
    if isinstance(unit, int):
        return unit if unit > 0 else None
    match = _UNIT.fullmatch(unit.strip())
    if match is None:
        return None
    return int(match[1]) * _FACTORS[match[2].lower()] or None if match[1] else 1
