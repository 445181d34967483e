from __future__ import annotations

import pytest

from prism.core._contracts import Tool
from prism.core._errors import RegistryError, UsageError
from prism.core._wire import Message, ModelConfig, TextBlock, encode
from prism.core.prompt import (
    MAX_SKILL_NAME_CHARS,
    PromptInput,
    Skill,
    SkillRegistry,
    SystemLayer,
    assemble_provider_input,
    compose_system_prompt,
    resolve_active_skills,
    system_layer,
)

REVIEW = Skill(
    name="review",
    description="For pull requests.",
    instructions="Read every line.",
    tools=["shell", "git"],
)
HAIKU = Skill(name="haiku", instructions="Answer in a haiku.")


def test_active_skills_become_named_system_parts_in_the_order_asked_for() -> None:
    registry = SkillRegistry([REVIEW, HAIKU])
    parts = resolve_active_skills(registry, ["haiku", "review", "haiku"])
    assert [(part.name, part.text) for part in parts] == [
        ("skill:haiku", "# Skill: haiku\n\nAnswer in a haiku."),
        ("skill:review", "# Skill: review\n\nRead every line."),
    ]
    assert compose_system_prompt(
        SystemLayer(level="app", parts=parts), system_layer("package", "base")
    ) == ["base", parts[0].text, parts[1].text]


def test_registering_a_skill_activates_nothing() -> None:
    assert resolve_active_skills(SkillRegistry([REVIEW]), []) == []


def test_a_skill_never_activates_a_tool() -> None:
    read = Tool(name="read", execute=lambda arguments, context: None)
    parts = resolve_active_skills(SkillRegistry([REVIEW]), ["review"])
    request = assemble_provider_input(
        PromptInput(
            session_id="s",
            run_id="r",
            system=compose_system_prompt(SystemLayer(level="run", parts=parts)),
            context=(),
            summaries=(),
            messages=[Message(role="user", content=[TextBlock(text="Hi")])],
        ),
        model=ModelConfig(provider="mock", model="demo"),
        tools=[read],
    )
    assert [tool.name for tool in request.tools] == ["read"]
    sent = encode([request.system, request.messages, request.tools])
    assert b"Read every line." in sent
    assert b"shell" not in sent
    assert b"git" not in sent


def test_an_unknown_skill_is_refused_with_the_known_ones() -> None:
    registry = SkillRegistry([REVIEW, HAIKU])
    with pytest.raises(RegistryError, match=r"'revue'\. Known: review, haiku") as caught:
        resolve_active_skills(registry, ["revue"])
    assert caught.value.code == "unknown_name"
    with pytest.raises(RegistryError, match="Known: none"):
        SkillRegistry().unregister("x")


def test_a_registry_knows_its_skills_by_name() -> None:
    registry = SkillRegistry()
    registry.register(HAIKU)
    registry.register(REVIEW)
    assert registry.resolve("review") is REVIEW
    assert (registry.names, len(registry), list(registry)) == (
        ["haiku", "review"],
        2,
        [HAIKU, REVIEW],
    )
    with pytest.raises(RegistryError) as caught:
        registry.register(Skill(name="haiku", instructions="x"))
    assert caught.value.code == "duplicate_name"
    registry.unregister("haiku")
    assert "haiku" not in registry
    assert "review" in registry


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * (MAX_SKILL_NAME_CHARS + 1)])
def test_a_name_that_cannot_be_a_heading_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        Skill(name=name, instructions="x")
    assert caught.value.code == "invalid_name"


def test_a_skill_without_instructions_or_with_one_string_of_tools_is_refused() -> None:
    with pytest.raises(UsageError, match="no instructions"):
        Skill(name="x", instructions=" ")
    with pytest.raises(UsageError, match="list of names"):
        Skill(name="x", instructions="y", tools="shell")
    with pytest.raises(UsageError, match=r"\['review'\]"):
        resolve_active_skills(SkillRegistry([REVIEW]), "review")
