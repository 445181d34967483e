"""An RPC server in the test's own event loop, and both ends of its lines."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, TaskGroup

from prism.cli._host import Host, HostOptions
from prism.cli._rpc.server import serve
from prism.cli.client import Connection, RpcClient
from prism.core import Agent, ModelConfig, Session, decode_event, encode
from prism.core.host import CommandDefinition
from prism.core.providers import MockProvider, Provider
from prism.core.stores import MemorySessionStore, SessionStore
from prism.core.testing import EventLaws

MODEL = ModelConfig(provider="mock", model="demo")


class ScriptedApp:
    """An app around one agent."""

    def __init__(
        self,
        provider: Provider | None = None,
        *,
        commands: Iterable[CommandDefinition] = (),
        store: SessionStore | None = None,
        **agent: Any,
    ) -> None:
        self.agent = Agent(
            model=MODEL,
            provider=MockProvider() if provider is None else provider,
            store=MemorySessionStore() if store is None else store,
            **agent,
        )
        self.commands = list(commands)
        self.seen: list[HostOptions] = []

    def create_session(self, options: HostOptions) -> Session:
        self.seen.append(options)
        return self.agent.session(options.session)

    async def aclose(self) -> None:
        """The test may still want the store."""


class SocketSender(ByteSendStream):
    def __init__(self, end: socket.socket) -> None:
        self._end = end

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            await anyio.wait_writable(self._end)
            with suppress(BlockingIOError):
                rest = rest[self._end.send(rest, socket.MSG_DONTWAIT) :]

    async def aclose(self) -> None:
        self._end.close()
        await anyio.lowlevel.checkpoint()


class SocketReceiver(ByteReceiveStream):
    def __init__(self, end: socket.socket) -> None:
        self._end = end

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await anyio.wait_readable(self._end)
        data = self._end.recv(max_bytes)
        if not data:
            raise anyio.EndOfStream
        return data

    async def aclose(self) -> None:
        self._end.close()
        await anyio.lowlevel.checkpoint()


class Wire:
    """What a client writes and reads, line by line.

    Attributes:
        lines: Everything that was read so far.
    """

    def __init__(self, sender: SocketSender, receiver: SocketReceiver, served: Served) -> None:
        self.lines: list[dict[str, Any]] = []
        self._served = served
        self._sender = sender
        self._receiver = receiver
        self._partial = b""
        self._unread: list[dict[str, Any]] = []

    async def send(self, *requests: dict[str, Any] | bytes) -> None:
        """Send requests in one write; bytes as they are."""
        parts = [r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in requests]
        await self._sender.send(b"".join(parts))

    async def ask(self, request_id: Any, command: str, **params: Any) -> dict[str, Any]:
        """Send a request and read up to its response."""
        await self.send({"id": request_id, "command": command, "params": params})
        return await self.response(request_id)

    async def line(self) -> dict[str, Any]:
        """The next line."""
        while not self._unread:
            data = await self._receiver.receive()
            *lines, self._partial = (self._partial + data).split(b"\n")
            assert all(line.isascii() for line in lines)
            self._unread += [json.loads(line) for line in lines]
        line = self._unread.pop(0)
        self.lines.append(line)
        return line

    async def response(self, request_id: Any) -> dict[str, Any]:
        """Read up to the response with this id."""
        while True:
            line = await self.line()
            if "ok" in line and line["id"] == request_id and type(line["id"]) is type(request_id):
                return line

    async def event(self, kind: str) -> dict[str, Any]:
        """Read up to the next event of this type."""
        while True:
            line = await self.line()
            if "event" in line and line["event"]["type"] == kind:
                return line

    @property
    def status(self) -> int | None:
        """The server's exit status, once it has ended."""
        return self._served.status

    async def close_input(self) -> None:
        await self._sender.aclose()

    async def rest(self) -> list[dict[str, Any]]:
        """Read to the end."""
        before = len(self.lines)
        try:
            while True:
                await self.line()
        except anyio.EndOfStream:
            return self.lines[before:]

    def types(self) -> list[str]:
        """The lines in short: an event's type, `ok …` or `error …`."""
        return [short(line) for line in self.lines]


def short(line: dict[str, Any]) -> str:
    if "ok" in line:
        return f"{'ok' if line['ok'] else line['error'].get('code')} {line['id']}"
    return str(line["event"]["type"])


class Served:
    """A server in a task of the test, from entering the context to leaving it."""

    def __init__(self, app: Any, options: dict[str, Any]) -> None:
        self._host = Host(HostOptions(mode="rpc", **options), app=app)
        self._ends: list[socket.socket] = []
        self._group = anyio.create_task_group()
        self.status: int | None = None

    async def start(self) -> tuple[SocketSender, SocketReceiver, TaskGroup]:
        """The client's ends, and the group that the server runs in."""
        to_server, server_in = socket.socketpair()
        server_out, from_server = socket.socketpair()
        self._ends = [to_server, from_server]
        await self._group.__aenter__()
        self._group.start_soon(self._serve, server_in, server_out)
        return SocketSender(to_server), SocketReceiver(from_server), self._group

    async def _serve(self, server_in: socket.socket, server_out: socket.socket) -> None:
        with server_in, server_out:
            self.status = await serve(
                self._host, stdin=server_in.fileno(), stdout=server_out.fileno()
            )

    async def end(self, *error: Any) -> bool | None:
        """Wait for the server, or cancel it after an error in the test."""
        try:
            return await self._group.__aexit__(*error)
        finally:
            for end in self._ends:
                end.close()


class serving:  # noqa: N801 - reads as what it does
    """Serve an app; on leaving, the input is closed and the rest is read and checked."""

    def __init__(self, app: Any, **options: Any) -> None:
        self._served = Served(app, options)

    async def __aenter__(self) -> Wire:
        sender, receiver, _ = await self._served.start()
        self._wire = Wire(sender, receiver, self._served)
        return self._wire

    async def __aexit__(self, *error: object) -> bool | None:
        if error[0] is None:
            with anyio.fail_after(10):
                await self._wire.close_input()
                await self._wire.rest()
        ended = await self._served.end(*error)
        if error[0] is None:
            check_laws(self._wire.lines)
        return ended


class connected:  # noqa: N801 - reads as what it does
    """Serve an app to the typed client."""

    def __init__(self, app: Any, **options: Any) -> None:
        self._served = Served(app, options)

    async def __aenter__(self) -> RpcClient:
        sender, receiver, group = await self._served.start()
        self._client = RpcClient(Connection(sender, receiver))
        group.start_soon(self._client.connection.listen)
        return self._client

    async def __aexit__(self, *error: object) -> bool | None:
        if error[0] is None:
            await self._client.connection.close_input()
        return await self._served.end(*error)


def check_laws(lines: Sequence[dict[str, Any]]) -> None:
    """Each session's events keep the laws; a run's carry one id and come before its response."""
    laws: dict[str, EventLaws] = {}
    answered: set[tuple[str, Any]] = set()
    for line in lines:
        key = (type(line["id"]).__name__, line["id"])
        if "ok" in line:
            duplicate = not line["ok"] and line["error"].get("code") == "duplicate_id"
            if line["id"] is not None and not duplicate:
                assert key not in answered, f"{line['id']} is answered twice"
                answered.add(key)
            continue
        assert line["sessionId"] == line["event"]["sessionId"]
        assert line.get("runId") == line["event"].get("runId")
        assert line["id"] is None or key not in answered, f"an event after the response: {line}"
        event = decode_event(encode(line["event"]))
        laws.setdefault(line["sessionId"], EventLaws()).feed(event)
    for checker in laws.values():
        checker.close()
