from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from prism.core._errors import RegistryError, UsageError
from prism.core.prompt import (
    SYSTEM_LEVELS,
    SystemLayer,
    SystemLevel,
    SystemPart,
    compose_system_prompt,
    merge_system_prompt,
    system_layer,
)


def test_layers_are_applied_by_level_whatever_order_they_come_in() -> None:
    layers = [system_layer(level, level) for level in ("run", "user", "package", "app")]
    assert compose_system_prompt(*layers) == ["package", "app", "user", "run"]


def test_layers_of_one_level_keep_their_order() -> None:
    assert compose_system_prompt(
        system_layer("package", "one"), system_layer("package", ["two", "three"])
    ) == ["one", "two", "three"]


def test_prepended_parts_stand_before_all_earlier_layers_in_their_own_order() -> None:
    assert compose_system_prompt(
        system_layer("app", "base"),
        system_layer(
            "user",
            [
                SystemPart(text="first", mode="prepend"),
                "last",
                SystemPart(text="second", mode="prepend"),
            ],
        ),
    ) == ["first", "second", "base", "last"]


def test_a_part_that_replaces_another_stands_in_its_place_under_its_name() -> None:
    merged = merge_system_prompt(
        system_layer("package", [SystemPart(text="be brief", name="style"), "rules"]),
        system_layer("user", SystemPart(text="be long", name="style", mode="replace")),
        system_layer("run", SystemPart(text="be funny", name="style", mode="replace")),
    )
    assert merged == [SystemPart(text="be funny", name="style"), SystemPart(text="rules")]


def test_a_disabled_part_is_gone_and_its_name_is_free_again() -> None:
    assert compose_system_prompt(
        system_layer("package", SystemPart(text="old", name="style")),
        system_layer(
            "app",
            [SystemPart(name="style", mode="disable"), SystemPart(text="new", name="style")],
        ),
    ) == ["new"]


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (SystemPart(text="only this", mode="replace"), ["only this", "after"]),
        (SystemPart(mode="disable"), ["after"]),
    ],
)
def test_without_a_name_a_part_replaces_or_disables_the_whole_prompt_so_far(
    change: SystemPart, left: list[str]
) -> None:
    assert (
        compose_system_prompt(
            system_layer("package", [SystemPart(text="a", name="a"), "b"]),
            system_layer("run", [SystemPart(text="c", mode="prepend"), change, "after"]),
        )
        == left
    )


@pytest.mark.parametrize("mode", ["replace", "disable"])
def test_a_name_that_is_not_there_is_refused_with_those_that_are(mode: str) -> None:
    part = msgspec.convert({"name": "stile", "mode": mode}, SystemPart)
    with pytest.raises(RegistryError, match=r"'settings\.toml'.*'stile'.*style, tone") as caught:
        compose_system_prompt(
            system_layer(
                "package", [SystemPart(text="x", name="tone"), SystemPart(text="y", name="style")]
            ),
            system_layer("user", part, source="settings.toml"),
        )
    assert caught.value.code == "unknown_name"
    assert caught.value.details == {"name": "stile", "known": ["style", "tone"]}


def test_a_name_that_is_taken_is_refused_with_both_sources() -> None:
    with pytest.raises(RegistryError, match=r"'style' of 'house' .* from 'git'") as caught:
        compose_system_prompt(
            system_layer("package", SystemPart(text="x", name="style"), source="git"),
            system_layer("package", SystemPart(text="y", name="style"), source="house"),
        )
    assert caught.value.code == "duplicate_name"


def test_blank_parts_are_left_out_and_other_text_is_kept_to_the_byte() -> None:
    assert compose_system_prompt(system_layer("app", ["", " \n", " kept \n"])) == [" kept \n"]
    assert compose_system_prompt() == []
    assert compose_system_prompt(system_layer("app", None)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": "x", "mode": "insert"},
        {"text": "x", "name": " "},
        {"text": "x", "name": "y", "mode": "disable"},
    ],
)
def test_a_part_that_means_nothing_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        SystemPart(**wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, SystemPart)


def test_a_layer_of_an_unknown_level_or_of_other_things_is_refused() -> None:
    with pytest.raises(UsageError, match="package, app, user, run"):
        SystemLayer(level="team", parts=[])  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="not int"):
        system_layer("app", [1])  # pyright: ignore[reportArgumentType]


levels = st.sampled_from(SYSTEM_LEVELS)
parts = st.builds(
    SystemPart, text=st.text(max_size=5), mode=st.sampled_from(["append", "prepend", "replace"])
)


@given(st.lists(st.tuples(levels, st.lists(parts, max_size=4)), max_size=6))
def test_a_merged_prompt_can_be_a_layer_and_means_the_same(
    drawn: list[tuple[SystemLevel, list[SystemPart]]],
) -> None:
    layers = [SystemLayer(level=level, parts=found) for level, found in drawn]
    merged = merge_system_prompt(*layers)
    assert merge_system_prompt(SystemLayer(level="package", parts=merged)) == merged
    assert compose_system_prompt(*layers) == [part.text for part in merged]
