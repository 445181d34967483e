"""A real HTTP server on the loopback interface, scripted by the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup

Respond = Callable[["Exchange"], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


class Exchange:
    """One request, and the connection to answer it on."""

    def __init__(self, stream: SocketStream, head: bytes, body: bytes) -> None:
        self.stream = stream
        self.head = head
        self.body = body

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def start(self) -> None:
        await self.send(OK + b"transfer-encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def until_client_goes(self) -> None:
        """Returns when the client closed the connection."""
        try:
            while True:
                await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


class Server:
    """Answers each request by *respond*; start it in a task group of the test."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self.gone = anyio.Event()
        self.url = ""

    async def start(self, tasks: TaskGroup) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.url = _url_of(listener)
        tasks.start_soon(self._listen, listener)

    async def _listen(self, listener: Listener[SocketStream]) -> None:
        async with listener:
            await listener.serve(self._serve)

    async def _serve(self, stream: SocketStream) -> None:
        self.connections += 1
        async with stream:
            try:
                while (exchange := await _read_request(stream)) is not None:
                    self.exchanges.append(exchange)
                    await self._respond(exchange)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
        self.gone.set()


async def _read_request(stream: SocketStream) -> Exchange | None:
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        (length,) = [
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        while len(body) < length:
            body += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return None
    return Exchange(stream, head, body)


async def unused_url() -> str:
    """An address of this machine where nobody listens."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        return _url_of(listener)


def _url_of(listener: Listener[SocketStream]) -> str:
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610
    return f"http://127.0.0.1:{port}/v1"
