from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from prism.core._errors import UsageError
from prism.core.prompt import render_prompt_template


def test_placeholders_are_replaced_with_or_without_spaces() -> None:
    text = render_prompt_template(
        "{{who}} is {{ age }} and {{ size_m }} m; {{who}}!",
        {"who": "Ada", "age": 36, "size_m": 1.7, "unused": "x"},
    )
    assert text == "Ada is 36 and 1.7 m; Ada!"


def test_a_value_is_never_a_template() -> None:
    assert render_prompt_template("{{a}}", {"a": r"{{b}} {c} \{{ \1", "b": "no"}) == (
        r"{{b}} {c} \{{ \1"
    )


def test_a_dot_reaches_into_nothing() -> None:
    class Host:
        key = "hidden"

    values: Any = {"host": Host(), "user.name": "Ada"}
    assert render_prompt_template("{{user.name}}", values) == "Ada"
    for template in ("{{host.key}}", "{{host.__class__}}"):
        with pytest.raises(UsageError) as caught:
            render_prompt_template(template, values)
        assert caught.value.code == "unknown_placeholder"
    assert render_prompt_template("{host.key} {0} %s $host", values) == "{host.key} {0} %s $host"


def test_every_missing_name_is_named_beside_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        render_prompt_template("{{b}} {{a}} {{b}} {{c}}", {"c": "x", "aa": "y"})
    assert caught.value.code == "unknown_placeholder"
    assert caught.value.details == {"missing": ["b", "a"], "known": ["aa", "c"]}
    assert str(caught.value) == "The template asks for 'b', 'a'; there are values for: aa, c."


@pytest.mark.parametrize(
    "template",
    ["x\n{{ 1 }}", "\n{{a b}}", "\n{{a", "\n{{}}", "\n{{a()}}", "\n{{{a}}}", "\n{{a\n}}"],
)
def test_braces_that_begin_no_placeholder_are_refused_with_their_line(template: str) -> None:
    with pytest.raises(UsageError, match=r"line 2") as caught:
        render_prompt_template(template, {"a": "x"})
    assert caught.value.code == "invalid_template"


def test_a_backslash_makes_literal_braces() -> None:
    assert render_prompt_template(r"\{{a}} {{a}} }} {a} \x", {"a": "1"}) == r"{{a}} 1 }} {a} \x"


@pytest.mark.parametrize("value", [None, True, ["x"], b"x"])
def test_a_value_that_is_no_string_or_number_is_refused_when_it_is_used(value: object) -> None:
    values: Any = {"a": value}
    with pytest.raises(UsageError, match="'a' must be a string or a number"):
        render_prompt_template("{{a}}", values)
    assert render_prompt_template("b", values) == "b"


@given(st.text(), st.text())
def test_any_text_goes_in_and_comes_out_unchanged(before: str, value: str) -> None:
    literal = before.replace("{{", r"\{{").replace("{", "(").replace(r"\((", r"\{{")
    expected = literal.replace(r"\{{", "{{")
    assert render_prompt_template(literal + "{{v}}", {"v": value}) == expected + value


def test_a_hostile_template_takes_linear_time() -> None:
    with pytest.raises(UsageError):
        render_prompt_template("{{" + " " * 500_000 + "{{" * 500_000, {})
