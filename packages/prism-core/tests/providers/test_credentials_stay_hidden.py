"""A provider's key is in no event, error, repr, log or store, whatever the vendor answers."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from prism.core import Agent, AgentEvent, ModelConfig, ProviderError
from prism.core._contracts import CredentialRequest
from prism.core._wire import encode, encode_entry
from prism.core.providers import Failed, ProviderOptions, Secret
from prism.core.stores import JsonlSessionStore

from .loopback import OK, Exchange, Server, unused_url
from .vendors import ADAPTERS, SECRET
from .wire import ask, collect

HEADS = {
    "plain": "content-type: text/plain",
    "json": "content-type: application/json",
}
ECHO = f"Incorrect API key provided: {SECRET}. Find your key in the dashboard."


def response(status: int, body: str, *headers: str) -> bytes:
    data = body.encode()
    lines = [f"HTTP/1.1 {status} Answer", f"content-length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data


def error_body(**fields: Any) -> str:
    return json.dumps({"error": {"message": ECHO, **fields}})


def stream(*events: Any) -> bytes:
    parts = [f"event: {event.get('type', 'x')}\ndata: {json.dumps(event)}\n\n" for event in events]
    return OK + b"connection: close\r\n\r\n" + "".join(parts).encode()


ANSWERS: dict[str, bytes] = {
    "message": response(401, error_body(), HEADS["json"]),
    "code": response(400, error_body(code=SECRET, type=SECRET, status=SECRET), HEADS["json"]),
    "keys": response(400, json.dumps({"error": {SECRET: SECRET, "message": SECRET}})),
    "list": response(400, json.dumps([{"error": {"message": ECHO, "details": [SECRET]}}])),
    "nested": response(403, json.dumps({"detail": error_body()}), HEADS["json"]),
    "metadata": response(429, error_body(metadata={"raw": ECHO}), HEADS["json"]),
    "html": response(500, f"<html><body>{ECHO}</body></html>", "content-type: text/html"),
    "bearer": response(403, f"authorization: Bearer {SECRET}", HEADS["plain"]),
    "escaped": response(400, error_body().replace("k-test", "k\\u002dtest"), HEADS["json"]),
    "cut": response(400, error_body(message="x" * 1_010 + SECRET), HEADS["json"]),
    "long": response(500, "x" * 65_520 + SECRET, HEADS["plain"]),
    "overflow": response(
        400,
        error_body(message=f"{SECRET}: prompt is too long: 9 tokens > 5 maximum"),
        HEADS["json"],
    ),
    "request id": response(500, "{}", f"x-request-id: {SECRET}", f"request-id: {SECRET}"),
    "retry after": response(429, "{}", f"retry-after: {SECRET}", f"www-authenticate: {SECRET}"),
    "redirect": response(302, "", f"location: http://127.0.0.1:1/?key={SECRET}"),
    "type of content": response(200, ECHO, f"content-type: text/html; key={SECRET}"),
    "no stream": response(200, error_body(), HEADS["json"]),
    "stream error": stream({"type": "error", "error": {"message": ECHO, "type": SECRET}}),
    "failed response": stream(
        {
            "type": "response.failed",
            "response": {"error": {"code": SECRET, "message": ECHO}},
        }
    ),
    "broken event": OK + b"connection: close\r\n\r\ndata: {" + SECRET.encode() + b"\n\n",
    "broken frame": OK + b"transfer-encoding: chunked\r\n\r\n" + SECRET.encode() + b"\r\n",
    "broken head": f"HTTP/1.1 {SECRET}\r\n\r\n".encode(),
    "nothing": b"",
}


def hidden(*values: object) -> None:
    """No part of the key that one could recognise is in the values."""
    for value in values:
        text = value if isinstance(value, str) else repr(value)
        assert SECRET[:12] not in text, text
        assert SECRET[-12:] not in text, text


def hidden_in_logs(caplog: pytest.LogCaptureFixture) -> None:
    for record in caplog.records:
        if record.name.startswith("httpcore2") and record.msg.startswith("receive_"):
            continue  # the HTTP library's trace of what the vendor sent, at the level DEBUG
        hidden(record.getMessage(), record.args, record.__dict__.get("exc_text") or "")


def hidden_in_error(error: BaseException) -> None:
    seen: BaseException | None = error
    hidden("".join(traceback.format_exception(error)))
    while seen is not None:
        hidden(str(seen), seen.args, getattr(seen, "details", None), getattr(seen, "code", None))
        seen = seen.__cause__ or seen.__context__


def provider_of(name: str, url: str, **fields: Any) -> Any:
    fields.setdefault("credential", SECRET)
    return ADAPTERS[name][0](base_url=url, **fields)


def answering(*answers: bytes) -> Callable[[Exchange], Any]:
    """Gives the answers one after the other, and hangs up after each."""
    left = iter(answers)

    async def respond(exchange: Exchange) -> None:
        assert SECRET.encode() in exchange.head
        assert SECRET.encode() not in exchange.head.partition(b"\r\n")[0]
        assert SECRET.encode() not in exchange.body
        await exchange.send(next(left))
        await exchange.stream.aclose()

    return respond


@pytest.mark.parametrize("name", ADAPTERS)
async def test_a_key_stays_hidden_whatever_the_vendor_answers(
    name: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    store = JsonlSessionStore(tmp_path)
    async with anyio.create_task_group() as tasks:
        server = Server(answering(*ANSWERS.values()))
        await server.start(tasks)
        provider = provider_of(name, server.url)
        hidden(provider)
        model = ModelConfig(provider="p", model="m")
        agent = Agent(model=model, provider=provider, store=store, retry=False)
        for answer in ANSWERS:
            await ask_and_look(agent, answer)
        hidden(provider, provider.__dict__, str(provider))
        await agent.aclose()
        assert len(server.exchanges) == len(ANSWERS)
        tasks.cancel_scope.cancel()
    files = [path async for path in anyio.Path(tmp_path).iterdir()]
    assert len(files) >= len(ANSWERS)
    hidden(*[await path.read_text("utf-8") for path in files])
    assert caplog.records
    hidden_in_logs(caplog)


async def ask_and_look(agent: Agent, answer: str) -> None:
    """Run a session that fails, and look for the key in all that is left of it."""
    session = agent.session(answer)
    events: list[AgentEvent] = []
    results: list[object] = []
    with pytest.raises(ProviderError) as caught:  # noqa: PT012 - the loop is what raises
        async with session.stream("Hi") as run:
            try:
                async for event in run:
                    events.append(event)  # noqa: PERF401
            finally:
                results.append(run.result)
    assert events
    hidden_in_error(caught.value)
    hidden(*(encode(event).decode() for event in events), *events, *results)
    entries = await session.entries()
    hidden(*(encode_entry(entry).decode() for entry in entries), await session.state())
    await session.aclose()


@pytest.mark.parametrize("name", ADAPTERS)
async def test_a_key_stays_hidden_when_nobody_answers(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider = provider_of(name, await unused_url())
    (event,) = await collect(provider)
    await provider.aclose()
    assert isinstance(event, Failed)
    assert event.error.code == "connection"
    hidden(event, encode(event.error).decode())
    hidden_in_logs(caplog)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("key", [f"{SECRET}\n", f"{SECRET}é", f"{SECRET}\0", SECRET * 10_000])
async def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(
    name: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider = provider_of(name, await unused_url(), credential=key)
    (event,) = await collect(provider)
    assert isinstance(event, Failed)
    assert event.error.code == "auth"
    hidden(event, provider)
    hidden_in_logs(caplog)


class Resolver:
    """Gives the key, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails

    async def resolve(self, request: CredentialRequest) -> Secret | None:
        if self.fails:
            raise ProviderError("The vault is closed.", code="auth")
        return Secret(SECRET)


@pytest.mark.parametrize("name", ADAPTERS)
async def test_a_key_of_a_resolver_stays_hidden_too(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with anyio.create_task_group() as tasks:
        server = Server(answering(ANSWERS["message"]))
        await server.start(tasks)
        provider = provider_of(name, server.url, credential=None, credential_resolver=Resolver())
        events = await collect(provider)
        assert isinstance(events[-1], Failed)
        hidden(*events, provider, provider.__dict__)
        await provider.aclose()
        tasks.cancel_scope.cancel()
    closed = provider_of(
        name, await unused_url(), credential=None, credential_resolver=Resolver(fails=True)
    )
    hidden(*await collect(closed))
    hidden_in_logs(caplog)


@pytest.mark.parametrize("where", ["provider", "options"])
@pytest.mark.parametrize("name", ADAPTERS)
async def test_a_key_that_is_given_as_a_header_stays_hidden(
    name: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"X-Gateway-Token": SECRET}
    async with anyio.create_task_group() as tasks:
        server = Server(answering(ANSWERS["message"]))
        await server.start(tasks)
        given = {"headers": headers} if where == "provider" else {}
        provider = provider_of(name, server.url, credential=None, **given)
        options = ProviderOptions(headers=headers if where == "options" else None)
        events = await collect(provider, ask(options=options))
        assert isinstance(events[-1], Failed)
        hidden(*events, provider)
        await provider.aclose()
        tasks.cancel_scope.cancel()
    hidden_in_logs(caplog)
