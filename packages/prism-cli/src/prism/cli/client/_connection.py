"""Requests out, responses and events in, over any pair of byte streams."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream

from prism.cli._rpc.framing import Framer, LineTooLong
from prism.core import (
    AgentEvent,
    ErrorInfo,
    PrismError,
    RpcEvent,
    RpcRequest,
    decode_event,
    encode_ascii,
    parse_json,
)

READ_BYTES: Final = 65_536

MAX_LINE_BYTES: Final = 1 << 30
"""Longest line that is read: what a server may hold of one session, and more."""


class RpcFailure(PrismError):  # noqa: N818
    """The server answered a request with an error; `info` is what it said."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(
            info.message,
            code="error" if info.code is None else info.code,
            details=info.details,
            status=info.status,
            retry_after_ms=info.retry_after_ms,
        )
        self.info = info


class RpcConnectionError(PrismError):
    """The server has gone, or said something that is not the protocol."""

    default_code = "connection"


class _Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Any line that a server writes."""

    id: str | int | float | None
    ok: bool | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()
    session_id: str | None = None
    run_id: str | None = None
    event: msgspec.Raw = msgspec.Raw()


class _Pending:
    """A request that waits for its response."""

    __slots__ = ("answered", "error", "result")

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.error: PrismError | None = None
        self.result: bytes = b"null"


class EventStream:
    """Events as they come: iterate it. It ends when the connection does.

    What is not read waits in memory: leave the stream when you do not read it.
    """

    def __init__(self) -> None:
        self._buffer: deque[RpcEvent] = deque()
        self._arrived = anyio.Event()
        self._closed = False

    def push(self, event: RpcEvent) -> None:
        """Add an event."""
        self._buffer.append(event)
        self._arrived.set()

    def close(self) -> None:
        """End the iteration after what has come."""
        self._closed = True
        self._arrived.set()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> RpcEvent:
        while not self._buffer:
            if self._closed:
                raise StopAsyncIteration
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._buffer.popleft()


class Connection:
    """Speaks the protocol over two byte streams; `listen` has to run beside it.

    Args:
        send: To the server's stdin.
        receive: From its stdout.
    """

    def __init__(self, send: ByteSendStream, receive: ByteReceiveStream) -> None:
        self._send = send
        self._receive = receive
        self._sending = anyio.Lock()
        self._pending: dict[str | int | float, _Pending] = {}
        self._streams: list[EventStream] = []
        self._next_id = 0
        self._gone: RpcConnectionError | None = None
        self.refusals: list[ErrorInfo] = []
        """Errors that the server could not tie to a request."""

    def new_id(self) -> str:
        """An id that no request has had."""
        self._next_id += 1
        return str(self._next_id)

    async def request(
        self,
        command: str,
        params: dict[str, Any] | None = None,
        *,
        id: str | int | float | None = None,  # noqa: A002
    ) -> bytes:
        """Send a request and wait for its response.

        Returns:
            The result, as JSON text.

        Raises:
            RpcFailure: The server answered with an error.
            RpcConnectionError: It has gone.
        """
        if self._gone is not None:
            raise self._gone
        request_id = self.new_id() if id is None else id
        pending = self._pending[request_id] = _Pending()
        try:
            await self._write(RpcRequest(id=request_id, command=command, params=params or None))
            await pending.answered.wait()
        finally:
            self._pending.pop(request_id, None)
        if pending.error is not None:
            raise pending.error
        return pending.result

    async def _write(self, request: RpcRequest) -> None:
        try:
            async with self._sending:
                await self._send.send(encode_ascii(request) + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise self._gone or RpcConnectionError("The server does not read any more.") from None

    @asynccontextmanager
    async def events(self) -> AsyncGenerator[EventStream]:
        """All events from here on."""
        stream = EventStream()
        if self._gone is not None:
            stream.close()
        self._streams.append(stream)
        try:
            yield stream
        finally:
            self._streams.remove(stream)

    async def listen(self) -> None:
        """Read what the server writes, until it ends; then fail what still waits."""
        reason = "The server has closed its output."
        framer = Framer(MAX_LINE_BYTES)
        try:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while True:
                    for line in framer.feed(await self._receive.receive(READ_BYTES)):
                        self._take(line)
        except PrismError as error:
            reason = f"The server wrote a line that is not the protocol: {error}"
        finally:
            self._end(RpcConnectionError(reason))

    def _take(self, text: bytes | LineTooLong) -> None:
        if isinstance(text, LineTooLong):
            raise RpcConnectionError("a line is longer than 1 GiB.")
        line = _read_line(text)
        if line.ok is None:
            event = decode_event(bytes(line.event))
            told = RpcEvent(
                id=line.id, session_id=line.session_id or "", run_id=line.run_id, event=event
            )
            for stream in self._streams:
                stream.push(told)
            return
        error = _read_error(bytes(line.error)) if not line.ok else None
        pending = None if line.id is None else self._pending.get(line.id)
        if pending is None:
            if error is not None:
                self.refusals.append(error)
            return
        if error is not None:
            pending.error = RpcFailure(error)
        elif bytes(line.result):
            pending.result = bytes(line.result)
        pending.answered.set()

    def _end(self, error: RpcConnectionError) -> None:
        self._gone = error
        for pending in self._pending.values():
            pending.error = error
            pending.answered.set()
        for stream in self._streams:
            stream.close()

    async def close_input(self) -> None:
        """Tell the server that nothing more comes; what is at work still ends."""
        async with self._sending:
            await self._send.aclose()


_decoder = msgspec.json.Decoder(_Line)
_error_decoder = msgspec.json.Decoder(ErrorInfo)


def _read_line(text: bytes) -> _Line:
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise RpcConnectionError(f"{error} in {text[:80]!r}") from None


def _read_error(text: bytes) -> ErrorInfo:
    try:
        return _error_decoder.decode(text)
    except msgspec.DecodeError:  # such as a lone surrogate
        return msgspec.convert(parse_json(text), ErrorInfo)


def event_of(told: RpcEvent) -> AgentEvent:
    """The event inside its envelope."""
    event: AgentEvent = told.event
    return event
