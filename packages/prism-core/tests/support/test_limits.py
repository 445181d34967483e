"""Checks of numbers, and cutting by bytes."""

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prism.core._errors import UsageError
from prism.core._support.limits import non_negative_number, positive_int, truncate_utf8


def test_a_limit_is_an_int_from_one_to_its_cap():
    assert positive_int("n", 1, cap=10) == 1
    assert positive_int("n", 10, cap=10) == 10


@pytest.mark.parametrize("value", [0, -1, 11, True, 1.0, "5", None, math.nan, []])
def test_anything_else_is_refused_by_name_with_the_cap(value: Any):
    with pytest.raises(UsageError, match=r"^n must be an integer from 1 to 10, not ") as caught:
        positive_int("n", value, cap=10)
    assert caught.value.code == "invalid_limit"
    assert caught.value.details == {"name": "n", "limit": 10}


def test_a_refusal_shows_numbers_and_only_the_type_of_all_else():
    for value, shown in (
        (11, "not 11."),
        (True, "not True."),
        ("sk-secret", "not a value of type str."),
        (10**5000, "not an integer of 16610 bits."),
    ):
        with pytest.raises(UsageError) as caught:
            positive_int("n", value, cap=10)
        assert str(caught.value).endswith(shown)


def test_a_number_is_finite_and_from_zero_to_its_cap():
    for value in (0, 0.5, 10):
        assert non_negative_number("n", value, cap=10) == value


@pytest.mark.parametrize("value", [-0.1, 10.5, math.nan, math.inf, True, "5", None])
def test_any_other_number_is_refused(value: Any):
    with pytest.raises(UsageError, match=r"^n must be a number from 0 to 10, not ") as caught:
        non_negative_number("n", value, cap=10)
    assert caught.value.code == "invalid_limit"


@given(
    text=st.text(st.characters(exclude_categories=()), max_size=30),
    max_bytes=st.integers(0, 40),
    marker=st.sampled_from(["…", "", "[cut]"]),
)
def test_a_cut_text_fits_keeps_whole_characters_and_ends_with_the_marker(
    text: str, max_bytes: int, marker: str
):
    def size(value: str) -> int:
        return len(value.encode("utf-8", "surrogatepass"))

    cut = truncate_utf8(text, max_bytes, marker=marker)
    assert size(cut) <= max_bytes
    if size(text) <= max_bytes:
        assert cut == text
    elif size(marker) <= max_bytes:
        assert cut.endswith(marker)
        kept = cut.removesuffix(marker)
        assert text.startswith(kept)
        assert size(kept + text[len(kept)] + marker) > max_bytes
    else:
        assert text.startswith(cut)


def test_lone_surrogates_survive_the_cut():
    assert truncate_utf8("\ud800\ud800\ud800", 8, marker="") == "\ud800\ud800"
