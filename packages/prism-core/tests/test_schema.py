from __future__ import annotations

import sys
from typing import Any

import pytest

from prism.core._errors import UsageError
from prism.core._support.schema import (
    MAX_REPORTED,
    check_schema,
    check_schema_available,
    json_path,
    validate_against_schema,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 3},
        "unit": {"enum": ["km", "mi"]},
        "either": {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
            ]
        },
        "names": {"$ref": "#/$defs/names"},
    },
    "patternProperties": {"^x-": {}},
    "required": ["count"],
    "additionalProperties": False,
    "$defs": {"names": {"type": "array", "items": {"type": "string", "maxLength": 4}}},
}


def problems(value: object, schema: dict[str, Any] = SCHEMA) -> list[tuple[str, str]]:
    with pytest.raises(UsageError) as caught:
        validate_against_schema(value, schema)
    assert caught.value.code == "invalid_arguments"
    assert caught.value.details is not None
    return [(each["path"], each["message"]) for each in caught.value.details["problems"]]


def test_a_value_that_matches_is_accepted() -> None:
    validate_against_schema({"count": 3, "either": {"x": 1}, "names": ["a"], "x-y": 0}, SCHEMA)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], [("$", "must be object, not array")]),
        ({}, [("$", 'lacks the properties "count"')]),
        ({"count": True}, [("$.count", "must be integer, not boolean")]),
        ({"count": 1}, [("$.count", "does not satisfy minimum 3")]),
        ({"count": 3, "unit": "ft"}, [("$.unit", 'must be one of ["km","mi"]')]),
        ({"count": 3, "a b": 1, "x-y": 1}, [("$", 'has unknown properties "a b"')]),
        ({"count": 3, "either": {"x": ""}}, [("$.either.x", "must be integer, not string")]),
        (
            {"count": None, "names": ["fine", "too long", 1.5]},
            [
                ("$.count", "must be integer, not null"),
                ("$.names[1]", "does not satisfy maxLength 4"),
                ("$.names[2]", "must be string, not number"),
            ],
        ),
    ],
)
def test_every_mismatch_is_told_with_its_place_and_what_was_expected(
    value: object, expected: list[tuple[str, str]]
) -> None:
    assert problems(value) == expected


def test_the_message_never_quotes_a_value() -> None:
    with pytest.raises(UsageError) as caught:
        validate_against_schema({"count": "hunter2", "unit": "hunter2", "either": 5}, SCHEMA)
    assert "hunter2" not in str(caught.value)
    assert str(caught.value).startswith("Does not match the schema: $.count: must be integer")


def test_many_mismatches_are_counted_and_not_all_told() -> None:
    schema: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
    assert len(problems(list(range(30)), schema)) == MAX_REPORTED
    with pytest.raises(UsageError, match=f"and {30 - MAX_REPORTED} more"):
        validate_against_schema(list(range(30)), schema)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "thing"}, r"\$\.type: it must be one of"),
        ({"type": "string", "pattern": "("}, r"\$\.pattern"),
        ({"type": "object", "properties": {"a": {"minimum": "1"}}}, r"\$\.properties\.a\.minimum"),
    ],
)
def test_a_schema_that_is_wrong_is_refused_with_the_place(
    schema: dict[str, Any], place: str
) -> None:
    for check in (lambda: check_schema(schema), lambda: validate_against_schema("", schema)):
        with pytest.raises(UsageError, match=place) as caught:
            check()
        assert caught.value.code == "invalid_schema"


@pytest.mark.parametrize("reference", ["https://example.invalid/schema.json", "#/$defs/none"])
def test_a_reference_out_of_the_schema_is_refused_and_not_fetched(reference: str) -> None:
    with pytest.raises(UsageError, match="which it does not hold") as caught:
        validate_against_schema({}, {"type": "object", "properties": {}, "$ref": reference})
    assert caught.value.code == "invalid_schema"


def test_a_schema_that_is_changed_in_place_counts_as_it_is_now() -> None:
    schema: dict[str, Any] = {"type": "string", "maxLength": 1}
    validate_against_schema("a", schema)
    schema["maxLength"] = 2
    validate_against_schema("ab", schema)
    schema["description"] = "x" * 100_000  # too large to be kept compiled
    validate_against_schema("ab", schema)


def test_a_schema_that_is_not_json_is_refused() -> None:
    with pytest.raises(UsageError, match="not JSON"):
        validate_against_schema(1, {"const": object()})


def test_a_value_that_nests_without_end_is_refused() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    schema: dict[str, Any] = {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}
    assert problems(value, schema) == [("$", "nests too deep, or holds a number that is too large")]


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        ({"type": "object"}, {"a": 1}, [1]),
        ({"type": "object", "description": "d", "required": []}, {}, None),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {}, {"a": 1}),
    ],
)
def test_trivial_schemas_need_no_library(
    monkeypatch: pytest.MonkeyPatch, schema: dict[str, Any], accepted: object, refused: object
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    check_schema_available(schema)
    check_schema(schema)
    validate_against_schema(accepted, schema)
    assert len(problems(refused, schema)) == 1


def test_without_the_library_other_schemas_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    check_schema_available(SCHEMA)
    check_schema_available(None)
    schema: dict[str, Any] = {"type": "object", "properties": {"not-cached": {"type": "string"}}}
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    for check in (
        lambda: check_schema_available(schema),
        lambda: check_schema(schema),
        lambda: validate_against_schema({}, schema),
    ):
        with pytest.raises(UsageError, match=r"prism-core\[schema\]") as caught:
            check()
        assert caught.value.code == "missing_extra"


def test_paths_quote_what_is_no_plain_name() -> None:
    assert json_path(["a", 0, "b c", 'd"']) == '$.a[0]["b c"]["d\\""]'
