"""A recorded conversation with tools, run again as the loop that it was: two rounds of calls."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from prism.core import (
    Agent,
    AgentEvent,
    MessageEntry,
    ModelConfig,
    ProviderOptions,
    RunResult,
    TextBlock,
    ToolResultBlock,
)
from prism.core.providers import HttpTimeouts, OpenAIChatProvider
from prism.core.providers._http import HttpResponse, HttpxTransport
from prism.core.testing import EventLaws
from prism.core.tools import Tool

from .recordings import Recording, recorded
from .wire import Answer, MemoryTransport, pieces

conversation = recorded(
    "openai-chat--tool_call_agent_turn1",
    "openai-chat--tool_call_agent_turn2",
    "openai-chat--text_with_usage",  # its text is the last word, so that the loop has an end
)

RESULTS = {"get_country": "Mexico", "get_product_name": "Pydantic AI", "get_weather": "sunny"}


def tools_of(request: Mapping[str, Any]) -> list[Tool]:
    """The tools that were recorded, with the results that they gave."""

    def make(spec: dict[str, Any]) -> Tool:
        name: str = spec["name"]

        async def execute(arguments: dict[str, Any], context: object) -> str:
            assert name != "get_weather" or arguments == {"city": "Mexico City"}
            return RESULTS[name]

        return Tool(
            name=name,
            description=spec["description"],
            parameters=spec["parameters"],
            execute=execute,
        )

    return [make(one["function"]) for one in request["tools"]]


async def run_again(
    turns: list[Recording], provider: OpenAIChatProvider
) -> tuple[RunResult, list[MessageEntry]]:
    """Ask what was asked, with the tools that there were."""
    request = turns[0].request
    assert request is not None
    agent = Agent(
        model=ModelConfig(provider="openai-chat", model=request["model"]),
        provider=provider,
        tools=tools_of(request),
        options=ProviderOptions(tool_choice="required"),
    )
    session = agent.session("s1")
    laws = EventLaws()
    events: list[AgentEvent] = []
    async with session.stream(request["messages"][0]["content"]) as stream:
        async for event in stream:
            laws.feed(event)
            events.append(event)
    laws.close()
    await agent.aclose()
    assert stream.result is not None
    return stream.result, [e for e in await session.entries() if isinstance(e, MessageEntry)]


def assert_two_rounds(
    turns: list[Recording], result: RunResult, path: list[MessageEntry], bodies: list[Any]
) -> None:
    assert result.status == "completed"
    assert result.text == turns[2].expected["text"]
    said = [entry.message for entry in path]
    assert [message.role for message in said] == [
        *("user", "assistant", "tool", "tool"),
        *("assistant", "tool", "assistant"),
    ]
    for turn, answer in zip(turns, (said[1], said[4], said[6]), strict=True):
        calls = [(call.id, call.name, call.arguments) for call in answer.tool_calls]
        wanted = turn.expected.get("tool_calls", [])
        assert calls == [(call["id"], call["name"], call["args"]) for call in wanted]
    assert [result_of(message.content[0]) for message in (said[2], said[3], said[5])] == [
        *("Mexico", "Pydantic AI"),
        "sunny",
    ]
    assert result.usage is not None
    used = [turn.expected["usage"]["total_tokens"] for turn in turns]
    assert result.usage.total_tokens == sum(used)

    # What the recorded client sent, we send.
    assert len(bodies) == 3
    for turn, body in zip(turns[:2], bodies[:2], strict=True):
        assert turn.request is not None
        assert [meaning(one) for one in body["messages"]] == [
            meaning(one) for one in turn.request["messages"]
        ]
        assert body["model"] == turn.request["model"]
        assert body["tool_choice"] == "required"
        assert [one["function"]["name"] for one in body["tools"]] == [
            one["function"]["name"] for one in turn.request["tools"]
        ]


def result_of(block: object) -> str:
    assert isinstance(block, ToolResultBlock)
    if block.content is None:
        return str(block.result)
    return "".join(inner.text for inner in block.content if isinstance(inner, TextBlock))


def meaning(message: dict[str, Any]) -> tuple[Any, ...]:
    """A message of the wire without what may be written in two ways."""
    calls = [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls", [])
    ]
    return message["role"], message.get("content") or "", message.get("tool_call_id"), calls


@pytest.mark.parametrize("size", [None, 7])
@conversation
async def test_the_recorded_calls_run_as_a_loop_of_two_rounds(
    turns: list[Recording], size: int | None
) -> None:
    transport = MemoryTransport(
        *[Answer(pieces(turn.body, size), headers=turn.headers) for turn in turns]
    )
    provider = OpenAIChatProvider(transport=transport)
    result, path = await run_again(turns, provider)
    assert_two_rounds(turns, result, path, [sent.body for sent in transport.sent])


class Replay:
    """Sends each request to the next of the recordings of a replay server."""

    def __init__(self, url: str, names: list[str]) -> None:
        self._inner = HttpxTransport()
        self._url = url
        self._names = names

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes,
        timeouts: HttpTimeouts,
    ) -> HttpResponse:
        assert url == f"{self._url}/chat/completions"
        url = f"{self._url}/r/{self._names.pop(0)}/chat/completions"
        return await self._inner.send(
            method, url, headers=headers, content=content, timeouts=timeouts
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.mark.live
@pytest.mark.parametrize("cut", ["", "@split=7"])
@conversation
async def test_the_recorded_calls_run_as_a_loop_of_two_rounds_over_http(
    turns: list[Recording], cut: str
) -> None:
    url = os.environ.get("PRISM_LIVE_REPLAY_URL")
    if url is None:
        pytest.fail("PRISM_LIVE_REPLAY_URL is not set: run `nox -s live`, which serves it.")
    async with httpx2.AsyncClient(trust_env=False) as client:
        await client.post(f"{url}/reset")
        replay = Replay(url, [turn.id + cut for turn in turns])
        provider = OpenAIChatProvider(base_url=url, transport=replay)
        result, path = await run_again(turns, provider)
        await replay.aclose()
        log = (await client.get(f"{url}/log")).json()
    assert [one["id"] for one in log] == [turn.id for turn in turns]
    assert_two_rounds(turns, result, path, [one["body"] for one in log])
