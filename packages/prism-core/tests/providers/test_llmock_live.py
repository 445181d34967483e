"""A mock of four vendors, written by others, breaks answers and grades what Prism does then."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import pytest

from prism.core import Agent, ModelConfig, RunResult
from prism.core._errors import ProviderError
from prism.core.providers import (
    AnthropicProvider,
    GoogleProvider,
    HttpTimeouts,
    OpenAIChatProvider,
    OpenAIResponsesProvider,
)

pytestmark = pytest.mark.live

WIRES: dict[str, tuple[Callable[..., Any], str]] = {
    "chat": (OpenAIChatProvider, "/v1"),
    "responses": (OpenAIResponsesProvider, "/v1"),
    "anthropic": (AnthropicProvider, "/anthropic"),
    "gemini": (GoogleProvider, "/gemini"),
}
PATIENCE_SECONDS = 30
PROMPT = "Tell me a story of a parser and its tests, please."

wires = pytest.mark.parametrize("wire", WIRES)


class Mock:
    """The grader, emptied for one test."""

    def __init__(self, wire: str) -> None:
        url = os.environ.get("PRISM_LIVE_LLMOCK_URL")
        if url is None:
            pytest.fail("PRISM_LIVE_LLMOCK_URL is not set: run `nox -s live`, which serves it.")
        self.url = url
        self.wire = wire

    async def admin(self, method: str, path: str, body: Any = None) -> Any:
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.request(method, f"{self.url}/_llmock/{path}", json=body)
            answer.raise_for_status()
            return answer.json()

    async def breaks(self, *behaviors: dict[str, Any]) -> None:
        await self.admin("POST", "reset")
        await self.admin("POST", "scenario", {"behaviors": list(behaviors)})

    async def run(self, *, idle_ms: int = 5_000) -> RunResult:
        """One run of one fresh session."""
        make, path = WIRES[self.wire]
        provider = make(
            id="p",
            base_url=self.url + path,
            credential="key-123",
            timeouts=HttpTimeouts(idle_ms=idle_ms),
        )
        agent = Agent(model=ModelConfig(provider="p", model="mock-model"), provider=provider)
        try:
            with anyio.fail_after(PATIENCE_SECONDS):
                return await agent.session("s").run(PROMPT)
        finally:
            await provider.aclose()

    async def verdict(self, *, attempts: int, most_warnings: int = 0) -> None:
        """It passes, and counts what it should have seen.

        The rest of a malformed stream may be sent before its reader has closed the connection:
        then the grader warns, because it cannot see that it was.
        """
        found = await self.admin("GET", "verdict")
        assert found["passed"], found["findings"]
        assert found["warnings"] <= most_warnings, found["findings"]
        assert found["attempts"] == attempts


@wires
async def test_a_rate_limit_is_waited_for(wire: str) -> None:
    mock = Mock(wire)
    await mock.breaks({"type": "fail", "status": 429, "retry_after": 1})
    start = anyio.current_time()
    assert (await mock.run()).text
    assert anyio.current_time() - start >= 1
    await mock.verdict(attempts=2)


@wires
@pytest.mark.parametrize("status", [500, 503, 529])
async def test_a_server_that_fails_is_asked_again(wire: str, status: int) -> None:
    mock = Mock(wire)
    await mock.breaks({"type": "fail", "status": status})
    assert (await mock.run()).text
    await mock.verdict(attempts=2)


@wires
async def test_a_server_that_is_down_is_given_up_after_three_attempts(wire: str) -> None:
    mock = Mock(wire)
    await mock.breaks({"type": "fail", "status": 503, "times": None})
    with pytest.raises(ProviderError) as caught:
        await mock.run()
    assert caught.value.code == "temporarily_unavailable"
    await mock.verdict(attempts=3)


@wires
@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed", "stall"])
async def test_a_stream_that_breaks_before_any_text_is_asked_for_again(
    wire: str, kind: str
) -> None:
    mock = Mock(wire)
    fault = {"type": "stream_fault", "kind": kind, "after_chunks": 0, "stall_seconds": 20}
    await mock.breaks(fault)
    assert (await mock.run(idle_ms=400)).text
    await mock.verdict(attempts=2, most_warnings=int(kind == "malformed"))


@wires
@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed", "stall"])
async def test_a_stream_that_breaks_after_text_fails_loudly_and_the_host_may_ask_again(
    wire: str, kind: str
) -> None:
    mock = Mock(wire)
    fault = {"type": "stream_fault", "kind": kind, "after_chunks": 6, "stall_seconds": 20}
    reply = {"type": "reply", "text": "one two three four five six seven eight nine ten"}
    await mock.breaks(fault, {**reply, "times": 2})
    with pytest.raises(ProviderError) as caught:
        await mock.run(idle_ms=400)
    codes = {"malformed": "malformed_output", "stall": "timeout"}
    assert caught.value.code == codes.get(kind, "stream_truncated")
    assert (await mock.run()).text == reply["text"]
    await mock.verdict(attempts=2, most_warnings=int(kind == "malformed"))


@wires
async def test_an_overflow_is_known_and_not_retried(wire: str) -> None:
    mock = Mock(wire)
    await mock.breaks(
        {
            "type": "fail",
            "status": 400,
            "code": "context_length_exceeded",
            "message": "This model's maximum context length was exceeded.",
        }
    )
    with pytest.raises(ProviderError) as caught:
        await mock.run()
    assert caught.value.code == "context_overflow"
    await mock.verdict(attempts=1)


@wires
@pytest.mark.parametrize(
    ("status", "code"), [(401, "auth"), (403, "permission"), (404, "not_found")]
)
async def test_a_refusal_is_not_retried(wire: str, status: int, code: str) -> None:
    mock = Mock(wire)
    await mock.breaks({"type": "fail", "status": status})
    with pytest.raises(ProviderError) as caught:
        await mock.run()
    assert caught.value.code == code
    assert "key-123" not in str(caught.value)
    await mock.verdict(attempts=1)
