"""The HTTP seam, against a real server on the loopback interface and against `httpx2` itself."""

from __future__ import annotations

import gc
import gzip
import socket
import subprocess
import sys
from contextlib import ExitStack, aclosing, suppress
from importlib import metadata
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest

from prism.core import Agent, MessageDelta, ModelConfig, RunAborted
from prism.core._errors import UsageError
from prism.core.providers import (
    CredentialRequest,
    Done,
    HttpTimeouts,
    OpenAIChatProvider,
    ProviderEvent,
    ProviderOptions,
    Secret,
    TextDelta,
)

from .loopback import OK, Exchange, Server, unused_url
from .wire import Answer, MemoryTransport, Reading, ask, collect, read, sse

HI = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
PATIENCE_SECONDS = 5


async def answer(exchange: Exchange) -> None:
    await exchange.start()
    for part in (HI, STOP, DONE):
        await exchange.chunk(part)
    await exchange.end()


async def say_hi_and_wait(exchange: Exchange) -> None:
    await exchange.start()
    await exchange.chunk(HI)
    await exchange.until_client_goes()


async def read_from(respond: Any, **provider: Any) -> tuple[Reading, Server]:
    server = Server(respond)
    events: list[ProviderEvent] = []
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            await server.start(tasks)
            asked = OpenAIChatProvider(base_url=server.url, **provider)
            events += await collect(asked)
            await asked.aclose()
            tasks.cancel_scope.cancel()
    return read(events), server


async def test_an_answer_streams_and_its_connection_is_used_again() -> None:
    server = Server(answer)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            await server.start(tasks)
            provider = OpenAIChatProvider(base_url=server.url, credential="key-123")
            for _ in range(3):
                reading = read(await collect(provider))
                assert (reading.text, reading.stop) == ("Hi", "stop")
            assert server.connections == 1
            await provider.aclose()
            await server.gone.wait()
            tasks.cancel_scope.cancel()
    head = server.exchanges[0].head.lower()
    assert head.startswith(b"post /v1/chat/completions http/1.1")
    assert b"authorization: bearer key-123" in head
    assert b"accept-encoding: identity" in head


async def test_a_consumer_that_takes_the_last_event_and_leaves_keeps_the_connection() -> None:
    server = Server(answer)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            await server.start(tasks)
            provider = OpenAIChatProvider(base_url=server.url)
            for _ in range(2):
                async with aclosing(provider.generate(ask())) as events:
                    async for event in events:
                        if isinstance(event, Done):
                            break
            assert server.connections == 1
            await provider.aclose()
            tasks.cancel_scope.cancel()


async def test_leaving_early_closes_the_connection() -> None:
    server = Server(say_hi_and_wait)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            await server.start(tasks)
            provider = OpenAIChatProvider(base_url=server.url)
            async with aclosing(provider.generate(ask())) as events:
                async for event in events:
                    assert event == TextDelta(text="Hi", index=0)
                    break
            await server.gone.wait()
            gc.collect()  # a generator that was left open would be told of here
            await anyio.lowlevel.checkpoint()
            await provider.aclose()
            tasks.cancel_scope.cancel()


async def test_cancelling_closes_the_connection_and_frees_its_place() -> None:
    server = Server(say_hi_and_wait)
    limits = httpx2.Limits(max_connections=1)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with httpx2.AsyncClient(limits=limits) as client, anyio.create_task_group() as tasks:
            await server.start(tasks)
            provider = OpenAIChatProvider(base_url=server.url, client=client)
            for _ in range(2):
                with anyio.CancelScope() as scope:
                    async with aclosing(provider.generate(ask())) as events:
                        async for _event in events:
                            scope.cancel()
                assert scope.cancelled_caught
                await server.gone.wait()
                server.gone = anyio.Event()
            tasks.cancel_scope.cancel()
    assert server.connections == 2


@pytest.mark.parametrize("how", ["abort", "cancel", "leave"])
async def test_a_run_that_is_left_closes_its_connection(how: str) -> None:
    server = Server(say_hi_and_wait)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            await server.start(tasks)
            provider = OpenAIChatProvider(id="p", base_url=server.url)
            agent = Agent(model=ModelConfig(provider="p", model="m"), provider=provider)
            session = agent.session("s")
            with anyio.CancelScope() as scope, suppress(RunAborted):
                async with session.stream("Hi") as events:
                    async for event in events:
                        if not isinstance(event, MessageDelta):
                            continue
                        if how == "abort":
                            session.abort()
                        elif how == "cancel":
                            scope.cancel()
                        else:
                            break
            await server.gone.wait()
            await provider.aclose()
            tasks.cancel_scope.cancel()
    assert server.connections == 1


async def test_a_server_that_lingers_after_the_end_delays_nothing() -> None:
    async def linger(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.chunk(HI + STOP + DONE)
        await exchange.until_client_goes()

    server = Server(linger)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            await server.start(tasks)
            provider = OpenAIChatProvider(base_url=server.url)
            assert read(await collect(provider)).stop == "stop"
            await server.gone.wait()
            await provider.aclose()
            tasks.cancel_scope.cancel()


async def test_silence_in_the_middle_is_a_timeout() -> None:
    reading, _ = await read_from(say_hi_and_wait, timeouts=HttpTimeouts(idle_ms=50))
    assert (reading.text, reading.code) == ("Hi", "timeout")
    assert reading.error is not None
    assert "sent nothing for 50 ms" in reading.error.message


async def test_silence_from_the_start_is_a_timeout() -> None:
    reading, _ = await read_from(Exchange.until_client_goes, timeouts=HttpTimeouts(idle_ms=50))
    assert reading.code == "timeout"


async def test_one_request_may_be_less_patient() -> None:
    transport = MemoryTransport(Answer([sse()]))
    provider = OpenAIChatProvider(transport=transport)
    await collect(provider, ask(options=ProviderOptions(timeout_ms=77)))
    assert transport.sent[0].timeouts == HttpTimeouts(idle_ms=77)
    wrong = await collect(provider, ask(options=ProviderOptions(timeout_ms=0)))
    assert read(wrong).code == "invalid_limit"
    with pytest.raises(UsageError, match="connect_ms"):
        HttpTimeouts(connect_ms=0)


async def test_a_body_without_its_last_chunk_is_truncated() -> None:
    async def drop(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.chunk(HI)
        await exchange.stream.aclose()

    reading, _ = await read_from(drop)
    assert (reading.text, reading.code) == ("Hi", "stream_truncated")


async def test_a_body_that_ends_with_its_connection_is_truncated_without_an_end() -> None:
    async def close(exchange: Exchange) -> None:
        await exchange.send(OK + b"connection: close\r\n\r\n" + HI + STOP[:40])
        await exchange.stream.aclose()

    reading, _ = await read_from(close)
    assert (reading.text, reading.code) == ("Hi", "stream_truncated")


async def test_broken_framing_is_truncated() -> None:
    async def garble(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.chunk(HI)
        await exchange.send(b"no chunk size\r\n")
        await exchange.until_client_goes()

    reading, _ = await read_from(garble)
    assert (reading.text, reading.code) == ("Hi", "stream_truncated")


async def test_an_unreachable_server_is_named() -> None:
    url = await unused_url()
    provider = OpenAIChatProvider(base_url=url)
    with anyio.fail_after(PATIENCE_SECONDS):
        error = read(await collect(provider)).error
    await provider.aclose()
    assert error is not None
    assert error.code == "connection"
    assert url.removesuffix("/v1") in error.message
    assert "base_url" in error.message


async def test_a_server_that_takes_no_connection_is_a_timeout() -> None:
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        with suppress(TimeoutError):
            while True:  # until its queue is full
                sockets.enter_context(socket.create_connection(listener.getsockname(), 0.05))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        provider = OpenAIChatProvider(base_url=url, timeouts=HttpTimeouts(connect_ms=50))
        with anyio.fail_after(PATIENCE_SECONDS):
            error = read(await collect(provider)).error
        await provider.aclose()
    assert error is not None
    assert error.code == "timeout"
    assert error.message == f"{url} did not accept a connection within 50 ms."


async def test_a_redirect_is_not_followed() -> None:
    async def redirect(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 307 Elsewhere\r\nlocation: /v2\r\ncontent-length: 0\r\n\r\n")

    reading, server = await read_from(redirect, credential="key-123")
    assert reading.code == "invalid_request"
    assert len(server.exchanges) == 1


async def test_a_hosts_client_that_follows_redirects_follows_none_with_our_credential() -> None:
    asked: list[httpx2.Request] = []

    def redirect(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(308, headers={"location": "https://elsewhere.test/"})

    transport = httpx2.MockTransport(redirect)
    async with httpx2.AsyncClient(transport=transport, follow_redirects=True) as client:
        provider = OpenAIChatProvider(
            base_url="https://vendor.test/v1", client=client, credential="key-123"
        )
        error = read(await collect(provider)).error
    assert error is not None
    assert (error.code, error.status) == ("invalid_request", 308)
    assert [request.url.host for request in asked] == ["vendor.test"]


@pytest.mark.parametrize("excluded", [False, True])
async def test_proxies_of_the_environment_are_used(
    *, excluded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await unused_url() if excluded else "http://vendor.test/v1"
    for name in ("ALL_PROXY", "all_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    proxy = Server(answer)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            await proxy.start(tasks)
            monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
            monkeypatch.setenv("NO_PROXY", "127.0.0.1" if excluded else "")
            provider = OpenAIChatProvider(base_url=url)
            reading = read(await collect(provider))
            assert (reading.text, reading.code) == (
                ("", "connection") if excluded else ("Hi", None)
            )
            await provider.aclose()
            tasks.cancel_scope.cancel()
    assert proxy.connections == len(proxy.exchanges) == (0 if excluded else 1)
    for exchange in proxy.exchanges:
        assert exchange.head.startswith(b"POST http://vendor.test/v1/chat/completions HTTP/1.1")


async def test_a_refusal_carries_its_status_its_words_and_its_wait() -> None:
    async def refuse(exchange: Exchange) -> None:
        body = b'{"error":{"message":"busy, key-123","type":"overloaded_error"}}'
        await exchange.send(
            b"HTTP/1.1 529 Busy\r\nretry-after: 3\r\nx-request-id: r1\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )

    reading, server = await read_from(refuse, credential="key-123")
    error = reading.error
    assert error is not None
    assert (error.code, error.status, error.retry_after_ms) == (
        "temporarily_unavailable",
        529,
        3_000,
    )
    assert error.message == "busy, [REDACTED]"
    assert error.details == {"vendorCode": "overloaded_error", "requestId": "r1"}
    assert server.connections == 1


async def test_a_compressed_stream_is_read_although_nobody_asked_for_one() -> None:
    async def compress(exchange: Exchange) -> None:
        body = gzip.compress(HI + STOP + DONE)
        await exchange.send(
            OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )

    assert (await read_from(compress))[0].text == "Hi"


# --- clients ----------------------------------------------------------------------------------


def stub(respond: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.MockTransport(respond))


async def test_a_hosts_client_is_used_and_left_open() -> None:
    asked: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, content=HI + STOP + DONE)

    async with stub(respond) as client:
        provider = OpenAIChatProvider(
            base_url="https://vendor.test/v1?api-version=1", client=client
        )
        assert read(await collect(provider)).text == "Hi"
        await provider.aclose()
        assert read(await collect(provider)).text == "Hi"
    assert str(asked[0].url) == "https://vendor.test/v1/chat/completions?api-version=1"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (httpx2.ConnectTimeout("x"), "timeout"),
        (httpx2.ReadTimeout("x"), "timeout"),
        (httpx2.WriteTimeout("x"), "timeout"),
        (httpx2.PoolTimeout("x"), "timeout"),
        (httpx2.ConnectError("x"), "connection"),
        (httpx2.ReadError(""), "connection"),
        (httpx2.WriteError("x"), "connection"),
        (httpx2.ProxyError("x"), "connection"),
        (httpx2.RemoteProtocolError("x"), "connection"),
        (httpx2.LocalProtocolError("Illegal header value b'key-123'"), "invalid_request"),
        (httpx2.UnsupportedProtocol("x"), "invalid_request"),
        (httpx2.InvalidURL("https://key-123"), "invalid_request"),
        (httpx2.DecodingError("x"), "malformed_output"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
async def test_every_failure_of_the_client_has_a_code(failure: Exception, code: str) -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        raise failure

    async with stub(respond) as client:
        provider = OpenAIChatProvider(base_url="https://vendor.test/v1", client=client)
        events = await collect(provider)
    assert read(events).code == code
    assert "key-123" not in repr(events)
    assert "https://vendor.test" in repr(events)


@pytest.mark.parametrize("backends", [("asyncio", "trio"), ("trio", "asyncio")])
def test_one_provider_serves_several_event_loops(backends: tuple[str, str]) -> None:
    made: list[OpenAIChatProvider] = []

    async def main() -> None:
        server = Server(answer)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                await server.start(tasks)
                if not made:
                    made.append(OpenAIChatProvider(base_url=server.url))
                provider = made[0]
                provider.base_url = server.url
                assert read(await collect(provider)).text == "Hi"
                await provider.aclose()
                tasks.cancel_scope.cancel()

    for backend in backends:
        anyio.run(main, backend=backend)


@pytest.mark.parametrize("extra", ["openai", "anthropic", "google"])
def test_the_extra_of_a_vendor_is_another_name_of_the_http_one(extra: str) -> None:
    needs: dict[str, list[str]] = {}
    for need in metadata.requires("prism-core") or ():
        package, _, condition = need.replace('"', "'").partition(";")
        needs.setdefault(condition.strip(), []).append(package.strip())
    assert needs[f"extra == '{extra}'"] == needs["extra == 'http'"]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(UsageError, match=r"prism-core\[http\]") as caught:
        OpenAIChatProvider()
    assert caught.value.code == "missing_extra"


def test_naming_the_adapter_loads_no_http_client() -> None:
    probe = (
        "import sys, prism.core.providers as p; print('httpx2' in sys.modules, end=' ');"
        "p.OpenAIChatProvider; print('httpx2' in sys.modules, end=' ');"
        "p.OpenAIChatProvider(); print('httpx2' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False", "False", "True"]


# --- credentials and headers ------------------------------------------------------------------


class Rotating:
    """Gives another key each time."""

    def __init__(self, *keys: str | None) -> None:
        self.keys = list(keys)
        self.requests: list[CredentialRequest] = []

    async def resolve(self, request: CredentialRequest) -> Secret | None:
        self.requests.append(request)
        key = self.keys.pop(0)
        return None if key is None else Secret(key)


async def test_a_credential_is_resolved_for_each_request() -> None:
    resolver = Rotating("key-1", "key-2")
    transport = MemoryTransport(Answer([sse()]))
    provider = OpenAIChatProvider(id="mine", credential_resolver=resolver, transport=transport)
    await collect(provider)
    await collect(provider)
    assert resolver.requests == [CredentialRequest(provider="mine", name="apiKey")] * 2
    sent = [request.headers["authorization"] for request in transport.sent]
    assert sent == ["Bearer key-1", "Bearer key-2"]
    assert "key" not in repr(vars(provider))


async def test_a_resolver_without_a_credential_fails_the_turn() -> None:
    transport = MemoryTransport(Answer([sse()]))
    provider = OpenAIChatProvider(credential_resolver=Rotating(None), transport=transport)
    reading = read(await collect(provider))
    assert reading.code == "auth"
    assert reading.error is not None
    assert reading.error.details == {"reason": "missing_credential"}
    assert transport.sent == []


@pytest.mark.parametrize("key", ["key-1\n", "key\u00e9", "", "x" * 70_000])
async def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    transport = MemoryTransport(Answer([sse()]))
    events = await collect(OpenAIChatProvider(credential=key, transport=transport))
    assert read(events).code == "auth"
    assert transport.sent == []
    assert not key or key.strip() not in repr(events)


async def test_a_key_may_go_into_a_header_of_its_own() -> None:
    transport = MemoryTransport(Answer([sse()]))
    provider = OpenAIChatProvider(
        base_url="https://x.openai.azure.com/openai/v1", credential="k", transport=transport
    )
    await collect(provider)
    assert transport.sent[0].headers["api-key"] == "k"
    assert "authorization" not in transport.sent[0].headers


async def test_headers_of_the_request_win_but_never_over_the_credential() -> None:
    transport = MemoryTransport(Answer([sse()]))
    provider = OpenAIChatProvider(
        credential="k", headers={"X-One": "1", "X-Two": "2"}, transport=transport
    )
    options = ProviderOptions(
        headers={"x-two": "two", "authorization": "mine"},
        extra={"headers": {"x-three": "3"}},
    )
    await collect(provider, ask(options=options))
    headers = transport.sent[0].headers
    assert (headers["x-one"], headers["x-two"], headers["x-three"]) == ("1", "two", "3")
    assert headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    "headers",
    [{"content-length": "1"}, {"Host": "x"}, {"a b": "1"}, {"a": "b\r\nc: d"}, {"a": "é"}],
)
async def test_headers_that_break_http_are_refused(headers: dict[str, str]) -> None:
    transport = MemoryTransport(Answer([sse()]))
    provider = OpenAIChatProvider(transport=transport)
    reading = read(await collect(provider, ask(options=ProviderOptions(headers=headers))))
    assert reading.code == "invalid_request"
    assert transport.sent == []
    with pytest.raises(UsageError):
        OpenAIChatProvider(headers=headers, transport=transport)


@pytest.mark.parametrize(
    "url", ["", "vendor.test/v1", "ftp://vendor.test", "https://", "https://[", "http://x:99999/"]
)
def test_a_wrong_base_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="base_url"):
        OpenAIChatProvider(base_url=url, transport=MemoryTransport())


def test_a_password_in_the_base_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="password") as caught:
        OpenAIChatProvider(base_url="https://me:hunter2@vendor.test", transport=MemoryTransport())
    assert "hunter2" not in str(caught.value)


async def test_two_ways_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="credential"):
        OpenAIChatProvider(credential="k", credential_resolver=Rotating())
    async with httpx2.AsyncClient() as client:
        with pytest.raises(UsageError, match="transport"):
            OpenAIChatProvider(client=client, transport=MemoryTransport())
