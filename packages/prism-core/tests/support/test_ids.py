"""Ids and timestamps."""

import re

import pytest

from prism.core._support.ids import format_timestamp, random_id, system_clock


def test_a_random_id_has_its_prefix_and_80_bits():
    ids = {random_id("entry") for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(re.fullmatch(r"entry_[0-9a-f]{20}", one) for one in ids)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000.123, "2023-11-14T22:13:20.123Z"),
        (1.001, "1970-01-01T00:00:01.001Z"),
        (1.9996, "1970-01-01T00:00:02.000Z"),
        (-0.5, "1969-12-31T23:59:59.500Z"),
        (-62_135_596_800, "0001-01-01T00:00:00.000Z"),
        (253_402_300_799.999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_timestamp_is_iso_8601_in_utc_with_milliseconds(seconds: float, text: str):
    assert format_timestamp(seconds) == text


def test_the_system_clock_is_of_this_age():
    assert format_timestamp(system_clock()) > "2025"
