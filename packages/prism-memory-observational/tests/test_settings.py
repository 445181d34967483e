"""Where settings come from, and what they may be."""

from __future__ import annotations

from typing import Any

import pytest

from prism.core import UsageError
from prism.core.host import StaticSettings
from prism.memory.observational import ObservationalMemorySettings, resolve_settings


def from_file(**values: Any) -> StaticSettings:
    return StaticSettings({"observational-memory": values})


def test_without_settings_the_defaults_hold() -> None:
    found = resolve_settings()
    assert found.values == ObservationalMemorySettings()
    assert found.warnings == ()
    assert found.values.observe_after_tokens == 10_000
    assert found.values.reflect_after_tokens == 20_000
    assert found.values.compact_after_tokens == 81_000
    assert found.values.observations_pool_max_tokens == 20_000
    assert found.values.observations_pool_target_tokens == 10_000
    assert found.values.agent_max_turns == 16
    assert found.values.passive is False
    assert found.values.debug_log is None


def test_the_host_wins_over_the_settings_and_each_value_tells_its_origin() -> None:
    provider = from_file(observeAfterTokens=500, reflect_after_tokens=900)
    found = resolve_settings(provider, reflect_after_tokens=1_000)
    described = found.describe()
    assert (described["observe_after_tokens"].value, described["observe_after_tokens"].origin) == (
        500,
        "settings",
    )
    assert described["reflect_after_tokens"].origin == "host"
    assert described["compact_after_tokens"].origin == "default"


@pytest.mark.parametrize("bad", [True, 1.0, 0, -1, "5", float("nan"), None, 10**40, [1]])
def test_a_bad_value_of_a_file_is_left_out_with_a_warning(bad: Any) -> None:
    found = resolve_settings(from_file(observeAfterTokens=bad))
    assert found.values.observe_after_tokens == 10_000
    assert len(found.warnings) == 1
    assert "observe_after_tokens must be an integer" in found.warnings[0]


@pytest.mark.parametrize("bad", [True, 1.0, 0, -1, "5", float("nan")])
def test_a_bad_value_of_the_host_raises(bad: Any) -> None:
    with pytest.raises(UsageError, match="observe_after_tokens must be an integer") as raised:
        resolve_settings(observe_after_tokens=bad)
    assert raised.value.code == "invalid_setting"


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("agent_max_turns", 65),
        ("max_calls_per_turn", 257),
        ("max_calls_per_run", 1_025),
        ("max_payload_bytes", 1024 * 1024 + 1),
        ("max_transcript_bytes", 8 * 1024 * 1024 + 1),
        ("max_retries", 3),
        ("retry_budget_ms", 15_001),
        ("compact_after_ratio", 1.0),
        ("compact_after_ratio", 1),
        ("compact_after_ratio", float("inf")),
        ("passive", "yes"),
        ("debug_log", True),
        ("keep_recent_entries", 0),
    ],
)
def test_limits_have_caps(name: str, bad: Any) -> None:
    with pytest.raises(UsageError, match=name):
        resolve_settings(**{name: bad})


def test_an_unknown_name_raises_for_the_host_and_warns_for_a_file() -> None:
    with pytest.raises(UsageError, match="no setting"):
        resolve_settings(observe_after=1)
    assert "no setting" in resolve_settings(from_file(observeAfter=1)).warnings[0]


def test_settings_that_are_no_object_are_ignored_with_a_warning() -> None:
    found = resolve_settings(StaticSettings({"observational-memory": [1]}))
    assert found.values == ObservationalMemorySettings()
    assert found.warnings


def test_the_target_must_be_below_the_maximum() -> None:
    with pytest.raises(UsageError, match="must be less than"):
        resolve_settings(observations_pool_max_tokens=100, observations_pool_target_tokens=100)
    found = resolve_settings(from_file(observationsPoolTargetTokens=30_000))
    assert found.values.observations_pool_target_tokens == 10_000
    assert found.warnings
    # A maximum that was set alone brings its target along.
    alone = resolve_settings(observations_pool_max_tokens=600)
    assert alone.values.observations_pool_target_tokens == 300
    assert alone.warnings == ()


def test_compaction_must_come_after_more_than_is_kept() -> None:
    with pytest.raises(UsageError, match="compact_after_tokens"):
        resolve_settings(compact_after_tokens=32)
    found = resolve_settings(from_file(compactAfterTokens=8))
    assert found.values.compact_after_tokens == 81_000
    assert found.warnings


def test_the_debug_log_of_the_original_is_off_or_needs_a_path() -> None:
    assert resolve_settings(from_file(debugLog=False)).warnings == ()
    assert "a path" in resolve_settings(from_file(debugLog=True)).warnings[0]
