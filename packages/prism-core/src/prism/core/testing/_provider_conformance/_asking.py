"""Requests: what a provider takes, and that it leaves it as it is; a whole run at the end."""

from __future__ import annotations

import copy
from typing import Any, Final

from prism.core._contracts import Provider, ToolSpec
from prism.core._runtime import Agent
from prism.core._wire import (
    THINKING_LEVELS,
    AgentEvent,
    ErrorInfo,
    ImageBlock,
    Message,
    ModelRef,
    ProviderOptions,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Warned,
)
from prism.core.providers import apply_thinking_level
from prism.core.testing._event_laws import check_event_laws
from prism.core.testing._provider_conformance._answering import ADD, HELLO, calling
from prism.core.testing._provider_conformance._harness import (
    ProviderStage,
    ScriptedAnswer,
    case,
    cases_of,
    user,
)
from prism.core.testing._provider_conformance._reading import hear
from prism.core.testing._store_conformance._harness import expect, expect_equal
from prism.core.tools import tool

_PNG: Final = "iVBORw0KGgo="
_WRONG: Final = frozenset({
    "late_delta", "malformed_output", "event_after_end", "unknown_provider_event",
    "provider_failed_after_end", "provider_close_failed",
})  # fmt: skip


def add_spec() -> ToolSpec:
    """A tool; made anew each time, so that no provider changes it for the next case."""
    numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    return ToolSpec(
        name="add",
        description="Add two numbers.",
        parameters={"type": "object", "properties": numbers, "required": ["a", "b"]},
    )


def history() -> tuple[Message, ...]:
    """A conversation that another model of another vendor had."""
    elsewhere = ModelRef(provider="elsewhere", model="other", api="other-api")
    return (
        user("Look at this."),
        Message(
            role="assistant",
            content=[
                ThinkingBlock(
                    text="Hm.",
                    signature="c2lnbmF0dXJl",
                    replay=Replay(api="other-api", kind="signature", data="c2lnbmF0dXJl"),
                ),
                TextBlock(text="I look."),
                ToolCallBlock(id="fc_1|call/with:signs_", name="add", arguments={"a": 1, "b": 2}),
                ToolCallBlock(id="x" * 90, name="add", arguments={}, raw_arguments='{"a": '),
            ],
            model=elsewhere,
        ),
        Message(
            role="tool",
            content=[
                ToolResultBlock(
                    tool_call_id="fc_1|call/with:signs_",
                    name="add",
                    result=3,
                    content=[TextBlock(text="3"), ImageBlock(mime_type="image/png", data=_PNG)],
                )
            ],
        ),
        Message(
            role="tool",
            content=[
                ToolResultBlock(
                    tool_call_id="x" * 90,
                    name="add",
                    error=ErrorInfo(message="Those are no arguments.", code="invalid_arguments"),
                )
            ],
        ),
        Message(role="assistant", content=[TextBlock(text="Three.")], model=elsewhere),
        user("Half a character: \ud83d, and NUL: \0.", ""),
    )


@case()
async def a_provider_says_who_it_is(stage: ProviderStage) -> None:
    provider: Any = await stage.open(HELLO)
    expect(isinstance(provider, Provider), "It lacks a part of the Provider protocol.")
    expect(isinstance(provider.id, str) and bool(provider.id), f"Its id is {provider.id!r}.")
    api = getattr(provider, "api", None)
    expect(api is None or (isinstance(api, str) and bool(api)), f"Its api is {api!r}.")


@case()
async def a_conversation_of_another_vendor_is_taken(stage: ProviderStage) -> None:
    request = stage.ask(*history(), tools=[add_spec()], system=["Be brief.", "Be kind."])
    heard = await hear(await stage.open(HELLO), request)
    expect(heard.error is None, f"The conversation was refused: {heard.error}.")
    expect_equal(heard.text, "Hello", "The answer")


@case()
async def a_request_is_left_as_it_was(stage: ProviderStage) -> None:
    options = ProviderOptions(
        session_id="s",
        cache_key="k",
        cache_retention="long",
        headers={"x-trace": "1"},
        tool_choice="auto",
        compat={"other": {"deep": [1]}},
        extra={"other": {"deep": [1]}},
    )
    request = stage.ask(*history(), tools=[add_spec()], system=["Be brief."], options=options)
    before = copy.deepcopy(request)
    provider = await stage.open(calling(ADD) if stage.harness.calls else HELLO)
    for _ in range(2):
        await hear(provider, request)
        expect(request == before, "The provider changed the request.")


@case()
async def switches_for_others_are_passed_over(stage: ProviderStage) -> None:
    options = ProviderOptions(compat={"of-another": True}, extra={"of-another": {"x": 1}})
    heard = await hear(await stage.open(HELLO), stage.ask(options=options))
    expect(heard.error is None, f"They were refused: {heard.error}.")


@case()
async def each_thinking_level_can_be_asked_for(stage: ProviderStage) -> None:
    provider = await stage.open(HELLO)
    api = getattr(provider, "api", None)
    for level in THINKING_LEVELS:
        options, _ = apply_thinking_level(ProviderOptions(), stage.harness.model, level, api=api)
        heard = await hear(provider, stage.ask(options=options))
        expect(heard.error is None, f"The level {level} was refused: {heard.error}.")


async def _run(
    stage: ProviderStage, *answers: ScriptedAnswer, **options: Any
) -> tuple[Any, list[AgentEvent]]:
    provider = await stage.open(*answers)
    agent = Agent(model=stage.harness.model, provider=provider, **options)
    events: list[AgentEvent] = []
    session = agent.session("s")
    async with session.stream("Hi") as stream:
        async for event in stream:
            events.append(event)  # noqa: PERF401 - the result is read inside the context
        result = stream.result
    await session.aclose()
    check_event_laws(events)
    for event in events:
        expect(
            not (isinstance(event, Warned) and event.code in _WRONG),
            f"The runtime warns of the provider: {event}.",
        )
    return result, events


@case()
async def a_session_gets_the_answer(stage: ProviderStage) -> None:
    result, _ = await _run(stage, HELLO)
    expect_equal((result.status, result.text), ("completed", "Hello"), "The run")


@case("calls")
async def a_session_answers_the_calls(stage: ProviderStage) -> None:
    asked: list[tuple[int, int]] = []

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        asked.append((a, b))
        return a + b

    result, _ = await _run(stage, calling(ADD), ScriptedAnswer(text=("3",)), tools=[add])
    expect_equal(asked, [(1, 2)], "What the tool was asked")
    expect_equal((result.status, result.text), ("completed", "3"), "The run")


CASES: Final = cases_of(globals())
