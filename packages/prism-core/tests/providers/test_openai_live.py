"""Both of OpenAI's wires against a real server: llama.cpp with a small model."""

from __future__ import annotations

import os
from typing import Any

import pytest

from prism.core import Agent, ModelConfig
from prism.core.providers import OpenAIChatProvider, OpenAIResponsesProvider, TextDelta, ToolSpec

from .wire import ask, collect, read, user

pytestmark = [
    pytest.mark.live,
    pytest.mark.parametrize("make", [OpenAIChatProvider, OpenAIResponsesProvider]),
]

BRIEF: dict[str, Any] = {"parameters": {"maxTokens": 16, "temperature": 0}}
ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
)


def live(make: Any) -> Any:
    base_url = os.environ.get("PRISM_LIVE_BASE_URL")
    if base_url is None:
        pytest.fail("PRISM_LIVE_BASE_URL is not set: run `nox -s live`, which serves a model.")
    return make(id="local", base_url=base_url)


async def test_a_local_model_answers(make: Any) -> None:
    provider = live(make)
    request = ask(user("Say hello."), model="local", system=["You are brief."], config=BRIEF)
    events = await collect(provider, request)
    await provider.aclose()
    reading = read(events)
    assert reading.error is None
    assert reading.stop in {"stop", "length"}
    assert any(isinstance(event, TextDelta) for event in events)
    assert reading.usage is not None
    assert reading.usage.output_tokens


async def test_a_local_model_takes_tools_and_a_history_with_calls(make: Any) -> None:
    provider = live(make)
    events = await collect(
        provider, ask(user("Say hello."), model="local", tools=[ADD], config=BRIEF)
    )
    await provider.aclose()
    assert read(events).error is None


async def test_a_session_goes_on_over_several_turns(make: Any) -> None:
    provider = live(make)
    agent = Agent(
        model=ModelConfig(provider="local", model="local", parameters=BRIEF["parameters"]),
        provider=provider,
    )
    session = agent.session("s")
    texts = [(await session.run(f"Count to {number}.")).text for number in (2, 3, 4)]
    await provider.aclose()
    assert all(texts)


async def test_a_conversation_that_is_too_long_is_an_overflow(make: Any) -> None:
    provider = live(make)
    request = ask(user("word " * 20_000), model="local", config={"parameters": {"maxTokens": 8}})
    reading = read(await collect(provider, request))
    await provider.aclose()
    assert reading.code == "context_overflow"
    assert reading.error is not None
    assert reading.error.details is not None
    assert reading.error.details["used"] > reading.error.details["limit"]
