"""The RPC server: requests in, replies and events out, and an orderly end in every case."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio import CancelScope, get_cancelled_exc_class
from anyio.abc import TaskGroup, TaskStatus

from prism.cli._host import Host
from prism.cli._rpc.channel import ActiveRun, Channel
from prism.cli._rpc.dispatch import COMMANDS, LATER, Handler
from prism.cli._rpc.framing import Framer, LineTooLong
from prism.cli._rpc.protocol import (
    MAX_IN_FLIGHT,
    MAX_SESSIONS,
    Request,
    RequestId,
    RpcError,
    describe_failure,
    read_request,
    refused,
)
from prism.cli._signals import GRACE_SECONDS, OUTPUT_GRACE_SECONDS, exit_status, watch_signals
from prism.cli._streams import EXIT_READER_GONE, Input, Output, output_status
from prism.core import (
    ErrorInfo,
    ModelConfig,
    PrismError,
    RpcResponse,
    RunAborted,
    RunResult,
    Session,
    UsageError,
    encode_ascii,
)

MAX_TURNS: Final = 16
"""Requests in a row that are answered without a turn of the event loop."""

MAX_PENDING_BYTES: Final = 16 * 1024 * 1024
"""What may wait for a client that does not read, before no more of its requests are taken."""

GONE: Final = "the client has gone"
INPUT_CLOSED: Final = "the client has closed its input"


class Server:
    """Serves one client until it closes its input, goes away, or a signal comes.

    Attributes:
        host: Makes the sessions.
        output: The one writer.
        channels: The open sessions by id.
        current: The session that requests are about.
        model: The model of the runs to come; `None`: each session's own.
        stopping: Whether what is at work is to end.
    """

    def __init__(self, host: Host, *, stdin: int, stdout: int) -> None:
        self.host = host
        self.output = Output(stdout, on_close=self._on_output_closed)
        self.channels: dict[str, Channel] = {}
        self.model: ModelConfig | None = host.model
        self._stdin = stdin
        self._current: Channel | None = None
        self._group: TaskGroup | None = None
        self._in_flight: set[tuple[bool, RequestId]] = set()
        self._answered: anyio.Event | None = None
        self._reading = CancelScope()
        self._working: set[CancelScope] = set()
        self._input_closed = False
        self.stopping = False
        self._signal: int | None = None

    # The life of the server

    async def serve(self) -> int:
        """Serve to the end; the exit status.

        Raises:
            Exception: What the app raised when it was asked for the first session.
        """
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            self._group = group
            await group.start(watch_signals, self._on_signal)
            group.start_soon(self._flush)
            group.start_soon(self.output.watch)
            try:
                with self._reading:
                    session = await self.host.open_session(self.host.options.session)
                    self._current = await self.open_channel(session)
                    await self._read()
            except Exception as error:  # noqa: BLE001 - handed over as a value, without a group
                failure = error
            self._input_closed = True
            await self._deny_approvals()
            await self._wait_answered()
            await self._close()
            await self.output.drain()
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if self._signal is not None:
            return exit_status(self._signal)
        return output_status(self.output) if self.output.closed else 0

    async def _read(self) -> None:
        source = Input(self._stdin)
        framer = Framer()
        turns = 0
        while True:
            chunk = None
            if turns < MAX_TURNS and not self._in_flight and not self.output.pending_bytes:
                turns += 1
                chunk = source.read_soon()
            if chunk is None:
                turns = 0
                chunk = await source.read()
            if not chunk:
                break
            for number, line in enumerate(framer.feed(chunk), 1):
                await self._handle(line)
                if self.output.pending_bytes > MAX_PENDING_BYTES:
                    await self.output.drain()
                elif number % MAX_TURNS == 0:
                    await anyio.lowlevel.checkpoint()
        for line in framer.end():
            await self._handle(line)

    async def _flush(self) -> None:
        """Write what waits for the client when no one else does."""
        while True:
            await self.output.wait_blocked()
            await self.output.drain()

    async def _wait_answered(self) -> None:
        while self._in_flight:
            self._answered = anyio.Event()
            await self._answered.wait()

    async def _close(self) -> None:
        try:
            for channel in list(self.channels.values()):
                await channel.session.aclose()
            await self.host.aclose()
        except Exception as error:  # noqa: BLE001 - an app's own code; the client is served already
            self.host.complain(error)

    def _on_signal(self, signum: int) -> None:
        self._signal = signum
        self._stop("interrupted")

    def _on_output_closed(self) -> None:
        if not self.stopping:
            self._stop(GONE)
            self.group.start_soon(self._exit_later)

    def _stop(self, reason: str) -> None:
        """End what is at work, answer it, and take no more requests."""
        self.stopping = True
        self._reading.cancel()
        for channel in self.channels.values():
            channel.session.abort(reason)
        for scope in self._working:
            scope.cancel()
        self.group.start_soon(self._abandon_output)

    async def _abandon_output(self) -> None:
        await anyio.sleep(OUTPUT_GRACE_SECONDS)
        self.output.abandon()

    async def _exit_later(self) -> None:
        """Nobody is left who could stop a process that does not end by itself."""
        await anyio.sleep(GRACE_SECONDS)
        os._exit(EXIT_READER_GONE)

    async def _deny_approvals(self) -> None:
        """Nobody can answer any more."""
        for channel in list(self.channels.values()):
            channel.on_approval = self._deny_soon
            state = await channel.session.state()
            if state.status == "awaiting_approval":
                for approval_id in state.pending_approvals:
                    await self._deny(channel, approval_id)

    def _deny_soon(self, channel: Channel, approval_id: str) -> None:
        self.group.start_soon(self._deny, channel, approval_id)

    async def _deny(self, channel: Channel, approval_id: str) -> None:
        with suppress(PrismError):  # answered meanwhile
            await channel.session.answer_approval(approval_id, "denied", reason=INPUT_CLOSED)

    # Sessions

    @property
    def group(self) -> TaskGroup:
        """Of everything that runs beside the reading."""
        assert self._group is not None  # noqa: S101
        return self._group

    @property
    def current(self) -> Channel:
        """The session that requests are about."""
        assert self._current is not None  # noqa: S101
        return self._current

    @current.setter
    def current(self, channel: Channel) -> None:
        self._current = channel

    async def open_channel(self, session: Session) -> Channel:
        """Send a session's events to the client from here on."""
        known = self.channels.get(session.id)
        if known is not None:
            return known
        self.check_room()
        redactor = self.host.redactor
        channel = Channel(session, self.output, None if redactor is None else redactor.redact_event)
        await self.group.start(channel.pump)
        self.channels[session.id] = channel
        return channel

    def check_room(self) -> None:
        """Refuse one more session when too many are open.

        Raises:
            UsageError: `unsupported`.
        """
        if len(self.channels) >= MAX_SESSIONS:
            raise UsageError(f"{MAX_SESSIONS} sessions are open already.", code="unsupported")

    # Requests

    async def _handle(self, line: bytes | LineTooLong) -> None:
        try:
            request, command = self._accept(line)
        except RpcError as error:
            self._answer((error.details or {}).get("id"), error=error)
            return
        try:
            result = await command(self, request)
        except get_cancelled_exc_class():
            self.fail(request.id, RunAborted("The server was stopped."))
            raise
        except Exception as error:  # noqa: BLE001 - a host's code may raise anything; it is answered
            self.fail(request.id, error)
        else:
            if result is not LATER:
                self.reply(request.id, result)

    def _accept(self, line: bytes | LineTooLong) -> tuple[Request, Handler]:
        """The request of a line, and what does it; it is in flight from here on."""
        if isinstance(line, LineTooLong):
            raise RpcError("A line is longer than 16 MiB.", code="line_too_long")
        request = read_request(line)
        command = COMMANDS.get(request.command)
        if command is None:
            raise refused(request.id, f"No command {request.command!r}.", "unknown_command")
        request_id = request.id
        key = (isinstance(request_id, str), request_id)
        if key in self._in_flight:
            raise refused(
                request_id, "A request with this id waits for its response.", "duplicate_id"
            )
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            raise refused(
                request_id, f"{MAX_IN_FLIGHT} requests wait for their response.", "session_busy"
            )
        self._in_flight.add(key)
        return request, command

    def reply(self, request_id: RequestId, result: Any) -> None:
        """Answer a request."""
        self._release(request_id)
        self._answer(request_id, result=result)

    def fail(self, request_id: RequestId, error: Exception) -> None:
        """Answer a request that failed."""
        self._release(request_id)
        self._answer(request_id, error=error)

    def _release(self, request_id: RequestId) -> None:
        self._in_flight.discard((isinstance(request_id, str), request_id))
        if not self._in_flight and self._answered is not None:
            self._answered.set()
            self._answered = None

    def _answer(
        self, request_id: RequestId | None, *, result: Any = None, error: Exception | None = None
    ) -> None:
        if error is None:
            response = RpcResponse(id=request_id, ok=True, result=result)
        else:
            response = RpcResponse(id=request_id, ok=False, error=describe_failure(error))
        redactor = self.host.redactor
        if redactor is not None:
            response = redactor.redact_value(response)
        try:
            line = encode_ascii(response)
        except PrismError as problem:
            info = ErrorInfo(code="invalid_value", message=f"The result is not JSON: {problem}")
            line = encode_ascii(RpcResponse(id=request_id, ok=False, error=info))
        self.output.put(line + b"\n")

    # Work beside the reading

    async def start_run(
        self,
        channel: Channel,
        request_id: RequestId,
        run: Callable[[ActiveRun], Awaitable[RunResult | None]],
        **more: Any,
    ) -> None:
        """Start a run that answers the request at its end; returns once it is under way.

        Args:
            channel: Whose session runs.
            request_id: The request.
            run: Runs, by `Channel.run`; `None` says that the request is answered elsewhere.
            more: Fields for the result.
        """
        await self._start(self._run, channel, request_id, run, more)

    async def _start(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Hand a request over: from here on it is answered there, also when reading is over."""
        with CancelScope(shield=True):
            await self.group.start(work, *arguments)

    async def _run(
        self,
        channel: Channel,
        request_id: RequestId,
        run: Callable[[ActiveRun], Awaitable[RunResult | None]],
        more: dict[str, Any],
        *,
        task_status: TaskStatus[None],
    ) -> None:
        cause = channel.begin(request_id, runs=True)
        active = ActiveRun(request_id)
        result: RunResult | None = None
        failure: Exception | None = None
        # The caller goes on at the next turn of the event loop, and finds the run under way.
        task_status.started()
        try:
            result = await run(active)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the response
            failure = error

        def answer() -> None:
            if failure is not None:
                for waiting in (request_id, *active.joined):
                    self.fail(waiting, failure)
            elif result is not None:
                self.reply(request_id, {**more, **run_fields(result)})
                for waiting in active.joined:
                    self.reply(waiting, run_fields(result))

        channel.end(cause, answer)

    async def start_work(
        self, channel: Channel, request_id: RequestId, work: Callable[[], Awaitable[Any]]
    ) -> None:
        """Start something that answers the request with its result; a signal cancels it."""
        await self._start(self._work, channel, request_id, work)

    async def _work(
        self,
        channel: Channel,
        request_id: RequestId,
        work: Callable[[], Awaitable[Any]],
        *,
        task_status: TaskStatus[None],
    ) -> None:
        cause = channel.begin(request_id, runs=False)
        result: Any = None
        failure: Exception | None = RunAborted("The server was stopped.")
        with CancelScope() as scope:
            self._working.add(scope)
            task_status.started()
            try:
                result = await work()
                failure = None
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the response
                failure = error
        self._working.discard(scope)

        def answer() -> None:
            if failure is None:
                self.reply(request_id, result)
            else:
                self.fail(request_id, failure)

        channel.end(cause, answer)


def run_fields(result: RunResult) -> dict[str, Any]:
    """The result of a request that ran."""
    fields: dict[str, Any] = {
        "sessionId": result.session_id,
        "runId": result.run_id,
        "status": result.status,
        "text": result.text,
        "leafId": result.leaf_id,
    }
    if result.usage is not None:
        fields["usage"] = result.usage
    return fields


async def serve(host: Host, *, stdin: int, stdout: int) -> int:
    """Serve the client at the other end of two descriptors; the exit status."""
    server = Server(host, stdin=stdin, stdout=stdout)
    try:
        return await server.serve()
    finally:
        server.output.close()
