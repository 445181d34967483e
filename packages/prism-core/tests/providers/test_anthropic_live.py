"""The Messages wire against a real server: llama.cpp with a small model."""

from __future__ import annotations

import os

import pytest

from prism.core.providers import AnthropicProvider, TextDelta, ToolSpec

from .wire import ask, collect, read, user

pytestmark = pytest.mark.live


def live_provider() -> AnthropicProvider:
    base_url = os.environ.get("PRISM_LIVE_BASE_URL")
    if base_url is None:
        pytest.fail("PRISM_LIVE_BASE_URL is not set: run `nox -s live`, which serves a model.")
    return AnthropicProvider(base_url=base_url)


async def test_a_local_model_answers() -> None:
    provider = live_provider()
    request = ask(
        user("Say hello."),
        model="local",
        system=["You are brief."],
        config={"parameters": {"maxTokens": 16, "temperature": 0}},
    )
    events = await collect(provider, request)
    await provider.aclose()
    reading = read(events)
    assert reading.error is None
    assert reading.stop in {"stop", "length"}
    assert any(isinstance(event, TextDelta) for event in events)
    assert reading.usage is not None
    assert reading.usage.output_tokens


async def test_a_local_model_takes_tools() -> None:
    provider = live_provider()
    tool = ToolSpec(
        name="add",
        description="Add two numbers.",
        parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
    )
    config = {"parameters": {"maxTokens": 8, "temperature": 0}}
    events = await collect(
        provider, ask(user("Say hello."), model="local", tools=[tool], config=config)
    )
    await provider.aclose()
    assert read(events).error is None


async def test_a_conversation_that_is_too_long_is_an_overflow() -> None:
    provider = live_provider()
    config = {"parameters": {"maxTokens": 8}}
    events = await collect(provider, ask(user("word " * 20_000), model="local", config=config))
    await provider.aclose()
    reading = read(events)
    assert reading.code == "context_overflow"
    assert reading.error is not None
    assert reading.error.details is not None
    assert reading.error.details["used"] > reading.error.details["limit"]
