"""A run whose answer is a value of a type: `session.run(…, output=SomeStruct)`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import anyio
import msgspec
import pytest

from prism.core import (
    ErrorEvent,
    ModelConfig,
    ProviderError,
    ProviderOptions,
    SecretRedactor,
    Session,
    ToolExecutionBlocked,
    ToolExecutionStarted,
    UsageError,
    UsageLimits,
    Warned,
    tool,
)
from prism.core._runtime.output import FINAL_TOOL, MAX_OUTPUT_TRIES, type_schema
from prism.core.host import StaticPermissionPolicy
from prism.core.providers import (
    AnthropicProvider,
    GoogleProvider,
    MockProvider,
    OpenAIChatProvider,
    OpenAIResponsesProvider,
    delay,
    done,
    text_delta,
    tool_call,
    tool_call_delta,
)

from .harness import Stage, of, provider_of, said, sent


class Animal(msgspec.Struct):
    name: str
    legs: int


OTTER = Animal(name="Otter", legs=4)
OTTER_JSON = '{"name": "Otter", "legs": 4}'
OTTER_ARGUMENTS: dict[str, Any] = {"name": "Otter", "legs": 4}


@tool
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def final(call_id: str = "f1", **arguments: Any) -> Any:
    return tool_call(id=call_id, name=FINAL_TOOL, arguments=arguments or OTTER_ARGUMENTS)


def holding(script: Any) -> MockProvider:
    """A provider that can be held to a schema."""
    return MockProvider(script, supports_output_schema=True)


# With the provider's own schema mode


async def test_a_provider_with_a_schema_mode_gets_the_schema_and_answers_with_json(
    stage: Stage,
) -> None:
    session = stage.session(holding([text_delta(OTTER_JSON), done()]))
    result = await session.run("Which animal?", output=Animal)
    assert result.status == "completed"
    assert result.output == OTTER
    assert result.text == OTTER_JSON
    (request,) = provider_of(session).requests
    assert request.output_schema is not None
    assert request.output_schema["required"] == ["name", "legs"]
    assert request.output_schema["additionalProperties"] is False
    assert request.tools == ()
    assert request.options.tool_choice is None


async def test_without_output_nothing_is_asked_for(stage: Stage) -> None:
    session = stage.session(holding([text_delta(OTTER_JSON), done()]))
    result = await session.run("Hi")
    assert result.output is None
    assert provider_of(session).requests[0].output_schema is None


async def test_calls_come_before_the_answer(stage: Stage) -> None:
    session = stage.session(
        holding(
            [
                [tool_call(id="c1", name="look", arguments={"place": "river"}), done()],
                [text_delta(OTTER_JSON), done()],
            ]
        ),
        tools=[look],
    )
    result = await session.run("Which animal?", output=Animal)
    assert result.output == OTTER
    schemas = [request.output_schema for request in provider_of(session).requests]
    assert schemas[0] == schemas[1] is not None


async def test_what_is_wrong_goes_back_to_the_model(stage: Stage) -> None:
    session = stage.session(
        holding(
            [
                [text_delta('{"name": "Otter", "legs": "four"}'), done()],
                [text_delta("An otter!"), done()],
                [text_delta(f"```json\n{OTTER_JSON}\n```"), done()],
            ]
        )
    )
    result = await session.run("Which animal?", output=Animal)
    assert result.output == OTTER
    spoken = said(await session.entries())
    assert len(spoken) == 6
    assert "Expected `int`, got `str` - at `$.legs`" in spoken[2]
    assert spoken[4].startswith("user: Your answer is not valid")


@pytest.mark.parametrize("text", ["An otter!", '{"name": "Otter"}', "", "null"])
async def test_a_model_that_does_not_get_it_right_fails_the_run(stage: Stage, text: str) -> None:
    session = stage.session(holding([text_delta(text), done()]))
    with pytest.raises(ProviderError) as caught:
        await session.run("Which animal?", output=Animal)
    assert caught.value.code == "invalid_output"
    assert caught.value.details == {"limit": MAX_OUTPUT_TRIES}
    assert len(provider_of(session).requests) == MAX_OUTPUT_TRIES
    (error,) = of(ErrorEvent, stage.events(session))
    assert error.error.code == "invalid_output"
    # The session goes on.
    assert (await session.run("Never mind")).status == "completed"


async def test_a_refusal_is_not_argued_with(stage: Stage) -> None:
    session = stage.session(holding([text_delta("No."), done(stop_reason="refusal")]))
    with pytest.raises(ProviderError, match="refused") as caught:
        await session.run("Which animal?", output=Animal)
    assert caught.value.code == "invalid_output"
    assert len(provider_of(session).requests) == 1


async def test_an_answer_that_was_cut_is_told_so(stage: Stage) -> None:
    session = stage.session(
        holding(
            [
                [text_delta('{"name": "Ott'), done(stop_reason="length")],
                [text_delta(OTTER_JSON), done()],
            ]
        )
    )
    result = await session.run("Which animal?", output=Animal)
    assert result.output == OTTER
    assert "cut at its length limit" in sent(provider_of(session).requests[1])[-1]


# With the final tool


async def test_any_other_provider_gets_a_tool_to_answer_with(stage: Stage) -> None:
    session = stage.session(
        [
            [tool_call(id="c1", name="look", arguments={"place": "river"}), done()],
            [text_delta("It is this one."), final(), done()],
        ],
        tools=[look],
    )
    result = await session.run("Which animal?", output=Animal)
    assert result.status == "completed"
    assert result.output == OTTER
    assert result.text == "It is this one."
    requests = provider_of(session).requests
    assert len(requests) == 2
    assert [spec.name for spec in requests[0].tools] == ["look", FINAL_TOOL]
    assert requests[0].options.tool_choice == "required"
    assert requests[0].output_schema is None
    assert said(await session.entries())[-1] == "tool: f1 The answer was taken."


async def test_the_tool_is_the_runs_alone(stage: Stage) -> None:
    session = stage.session([[final(), done()], [text_delta("x"), done()]], tools=[look])
    await session.run("Which animal?", output=Animal)
    await session.run("Thanks")
    assert FINAL_TOOL not in session.agent.tools
    request = provider_of(session).requests[1]
    assert [spec.name for spec in request.tools] == ["look"]
    assert request.options.tool_choice is None


async def test_a_tool_choice_of_the_hosts_stays(stage: Stage) -> None:
    session = stage.session([final(), done()])
    await session.run("Hi", output=Animal, options=ProviderOptions(tool_choice="auto"))
    assert provider_of(session).requests[0].options.tool_choice == "auto"


async def test_a_wrong_final_answer_is_an_error_result_and_another_may_come(stage: Stage) -> None:
    session = stage.session(
        [
            [final("f1", name="Otter"), done()],
            [tool_call_delta(index=0, id="f2", name=FINAL_TOOL, arguments_text='{"na'), done()],
            [final("f3"), done()],
        ]
    )
    result = await session.run("Which animal?", output=Animal)
    assert result.output == OTTER
    blocked = of(ToolExecutionBlocked, stage.events(session))
    assert [event.reason for event in blocked] == ["invalid_arguments", "invalid_arguments"]
    assert "missing required field `legs`" in blocked[0].error.message


@pytest.mark.parametrize(
    "answer",
    [[final("", name=1)], [tool_call_delta(index=0, name=FINAL_TOOL, arguments_text="{")]],
    ids=["invalid", "unparsed"],
)
async def test_too_many_wrong_final_answers_fail_the_run(stage: Stage, answer: list[Any]) -> None:
    session = stage.session([*answer, done()])
    with pytest.raises(ProviderError) as caught:
        await session.run("Which animal?", output=Animal)
    assert caught.value.code == "invalid_output"
    assert len(provider_of(session).requests) == MAX_OUTPUT_TRIES


async def test_text_in_place_of_the_call_is_asked_for_again(stage: Stage) -> None:
    session = stage.session([[text_delta("An otter."), done()], [final(), done()]])
    result = await session.run("Which animal?", output=Animal)
    assert result.output == OTTER
    assert FINAL_TOOL in said(await session.entries())[2]


async def test_json_in_place_of_the_call_is_good_enough(stage: Stage) -> None:
    session = stage.session([text_delta(OTTER_JSON), done()])
    result = await session.run("Which animal?", output=Animal)
    assert result.output == OTTER


async def test_other_calls_of_the_final_message_still_get_their_results(stage: Stage) -> None:
    session = stage.session(
        [
            tool_call(id="c1", name="look", arguments={"place": "river"}),
            final(),
            tool_call(id="c2", name="look", arguments={"place": "lake"}),
            final("f2", name="Lion", legs=4),
            done(),
        ],
        tools=[look],
    )
    result = await session.run("Which animal?", output=Animal)
    assert result.output == OTTER
    assert len(provider_of(session).requests) == 1
    assert said(await session.entries())[2:] == [
        "tool: c1 nothing in river",
        "tool: f1 The answer was taken.",
        "tool: c2 nothing in lake",
        "tool: f2 already_answered",
    ]


async def test_to_answer_needs_no_permission(stage: Stage) -> None:
    session = stage.session([final(), done()], permissions=StaticPermissionPolicy(default="deny"))
    assert (await session.run("Hi", output=Animal)).output == OTTER


async def test_a_tool_of_the_same_name_is_refused(stage: Stage) -> None:
    @tool(name=FINAL_TOOL)
    async def mine() -> None:
        """Mine."""

    session = stage.session(holding([text_delta(OTTER_JSON), done()]), tools=[mine])
    assert (await session.run("Hi", output=Animal)).output == OTTER
    other = stage.session([final(), done()], id="s2", tools=[mine])
    with pytest.raises(UsageError, match=FINAL_TOOL) as caught:
        await other.run("Hi", output=Animal)
    assert caught.value.code == "duplicate_name"
    assert stage.events(other) == []


# Limits


async def test_a_final_answer_is_taken_also_at_the_last_round(stage: Stage) -> None:
    session = stage.session(
        [tool_call(id="c1", name="look", arguments={"place": "sea"}), final(), done()], tools=[look]
    )
    result = await session.run("Hi", output=Animal, max_tool_rounds=0)
    assert (result.status, result.output) == ("completed", OTTER)
    assert [event.call.name for event in of(ToolExecutionStarted, stage.events(session))] == [
        FINAL_TOOL
    ]
    assert said(await session.entries())[2] == "tool: c1 max_tool_rounds"


async def test_a_final_answer_is_taken_also_when_a_limit_is_reached(stage: Stage) -> None:
    session = stage.session([final(), done()], limits=UsageLimits(max_requests=1))
    result = await session.run("Hi", output=Animal)
    assert (result.status, result.output) == ("completed", OTTER)
    assert not of(Warned, stage.events(session))


@pytest.mark.parametrize("holds", [True, False])
async def test_a_limit_ends_also_the_asking_again(stage: Stage, holds: Any) -> None:
    provider = MockProvider([text_delta("An otter."), done()], supports_output_schema=holds)
    session = stage.session(provider, limits=UsageLimits(max_requests=1))
    result = await session.run("Hi", output=Animal)
    assert (result.status, result.output) == ("limit_reached", None)
    assert len(await session.entries()) == 2


# Ways to run


async def test_a_streams_result_has_the_value(stage: Stage) -> None:
    session = stage.session(holding([text_delta(OTTER_JSON), done()]))
    async with session.stream("Which animal?", output=Animal) as events:
        async for _ in events:
            pass
    assert events.result is not None
    assert events.result.output == OTTER


async def test_an_idle_follow_up_and_a_continued_run_give_the_value_too(stage: Stage) -> None:
    session = stage.session(
        holding([[text_delta("{"), done(stop_reason="length")], [text_delta(OTTER_JSON), done()]])
    )
    first = await session.run("Which animal?")
    assert first.output is None
    assert (await session.continue_(output=Animal)).output == OTTER
    again = stage.session(holding([text_delta(OTTER_JSON), done()]), id="s2")
    result = await again.follow_up("Which animal?", output=Animal)
    assert result is not None
    assert result.output == OTTER


@pytest.mark.parametrize("holds", [True, False])
async def test_input_that_joins_the_run_gets_an_answer_of_the_same_type(
    stage: Stage, holds: Any
) -> None:
    lion = {"name": "Lion", "legs": 4}
    scripts: list[list[Any]] = [
        [delay(10), text_delta(OTTER_JSON), done()],
        [text_delta(msgspec.json.encode(lion).decode()), done()],
    ]
    if not holds:
        scripts = [[delay(10), final(), done()], [final("f2", **lion), done()]]
    session = stage.session(MockProvider(scripts, supports_output_schema=holds))
    outputs: list[Any] = []

    async def ask() -> None:
        outputs.append((await session.run("Which animal?", output=Animal)).output)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.sleep(0.005)
        await session.follow_up("And without water?")
    assert outputs == [Animal(name="Lion", legs=4)]
    assert "user: And without water?" in said(await session.entries())


async def test_the_value_holds_no_known_secret(stage: Stage) -> None:
    for number, holds in enumerate((True, False)):
        secret = "otter-4711"  # noqa: S105
        answer = final(name=secret, legs=4)
        if holds:
            answer = text_delta('{"name": "otter-4711", "legs": 4}')
        session = stage.session(
            MockProvider([answer, done()], supports_output_schema=holds),
            id=f"s{number}",
            secrets=[secret],
            redactor=SecretRedactor([secret]),
        )
        result = await session.run("Which animal?", output=Animal)
        assert result.output == Animal(name="[REDACTED]", legs=4)


# Types


class Tree(msgspec.Struct):
    name: str
    below: list[Tree] = []


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (Literal["yes", "no"], '{"value": "no"}', "no"),
        (Annotated[int, msgspec.Meta(ge=1)], '{"value": 3}', 3),
        (Tree, '{"name": "a", "below": [{"name": "b"}]}', Tree("a", [Tree("b")])),
        (Animal | None, f'{{"value": {OTTER_JSON}}}', OTTER),
    ],
    ids=["list", "literal", "constrained", "recursive", "optional"],
)
async def test_any_type_that_has_a_schema_will_do(
    stage: Stage, kind: Any, text: str, value: Any
) -> None:
    session = stage.session(holding([text_delta(text), done()]))
    assert (await session.run("Hi", output=kind)).output == value
    schema = provider_of(session).requests[0].output_schema
    assert schema is not None
    assert schema["type"] == "object"


async def test_an_object_with_any_properties_is_asked_for_with_the_tool(stage: Stage) -> None:
    provider = holding([final(otter=4), done()])
    session = stage.session(provider)
    assert (await session.run("Hi", output=dict[str, int])).output == {"otter": 4}


@pytest.mark.parametrize("kind", [object(), Session, dict[int, Session], Animal | Tree])
async def test_a_type_without_a_schema_is_refused_at_once(stage: Stage, kind: Any) -> None:
    session = stage.session()
    with pytest.raises(UsageError, match="JSON Schema"):
        await session.run("Hi", output=kind)
    assert stage.events(session) == []


def test_a_schema_has_its_own_part_at_the_top() -> None:
    assert type_schema(Animal)["properties"]["legs"] == {"type": "integer"}
    tree = type_schema(Tree)
    assert tree["properties"]["below"]["items"] == {"$ref": "#/$defs/Tree"}
    assert "Tree" in tree["$defs"]


# Which provider has a schema mode


@pytest.mark.parametrize(
    ("provider", "model", "holds"),
    [
        (OpenAIResponsesProvider(), "gpt-6", True),
        (AnthropicProvider(), "claude-opus-5", True),
        (AnthropicProvider(), "claude-sonnet-4", False),
        (AnthropicProvider(base_url="https://gateway.test"), "claude-opus-5", False),
        (GoogleProvider(), "gemini-3-pro", True),
        (GoogleProvider(), "gemini-2.5-pro", False),
        (OpenAIChatProvider(), "gpt-6", True),
        (OpenAIChatProvider(id="deepseek"), "deepseek-v4", False),
        (OpenAIChatProvider(compat={"response_format": "json_object"}), "m", False),
        (MockProvider(), "m", False),
    ],
)
async def test_an_adapter_says_whether_it_can_hold_the_model(
    provider: Any, model: str, holds: Any
) -> None:
    supports = provider.supports_output_schema
    config = ModelConfig(provider=provider.id, model=model)
    assert (supports(config) if callable(supports) else supports) is holds
