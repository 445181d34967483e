"""What a turn costs."""

from __future__ import annotations

import pytest

from prism.core import ModelCost, Usage
from prism.core._support.cost import priced


def test_each_kind_of_token_has_its_price() -> None:
    usage = Usage(
        input_tokens=1_000,
        cache_read_tokens=2_000,
        cache_write_tokens=4_000,
        cache_write_long_tokens=1_000,
        output_tokens=500,
        reasoning_tokens=400,
    )
    cost = ModelCost(input=3, output=15, cache_read=0.3, cache_write=3.75)
    done = priced(usage, cost)
    expected = 1_000 * 3 + 2_000 * 0.3 + 3_000 * 3.75 + 1_000 * 3.75 * 1.6 + 500 * 15
    assert done.cost == pytest.approx(expected / 1_000_000)
    assert done.currency == "USD"
    assert done.output_tokens == 500


def test_cached_input_without_a_price_of_its_own_costs_what_input_costs() -> None:
    usage = Usage(cache_read_tokens=10, cache_write_tokens=10)
    assert priced(usage, ModelCost(input=1, unit=1, currency="EUR")) == Usage(
        cache_read_tokens=10, cache_write_tokens=10, cost=20, currency="EUR"
    )


@pytest.mark.parametrize("cost", [None, ModelCost(), ModelCost(cache_read=1)])
def test_without_prices_there_is_no_cost(cost: ModelCost | None) -> None:
    usage = Usage(input_tokens=1)
    assert priced(usage, cost) is usage


def test_a_cost_of_the_vendors_own_stays() -> None:
    usage = Usage(input_tokens=1, cost=0.5, currency="EUR")
    assert priced(usage, ModelCost(input=1)) is usage


@pytest.mark.parametrize(
    ("unit", "cost"),
    [
        (None, 1),
        (1_000, 1_000),
        ("1000000", 1),
        ("1M", 1),
        ("1k tokens", 1_000),
        ("token", 1_000_000),
        ("1 token", 1_000_000),
        ("0", None),
        (-1, None),
        ("a handful", None),
    ],
)
def test_a_price_is_for_its_unit(unit: int | str | None, cost: int | None) -> None:
    usage = Usage(output_tokens=1_000_000)
    assert priced(usage, ModelCost(output=1, unit=unit)).cost == cost
