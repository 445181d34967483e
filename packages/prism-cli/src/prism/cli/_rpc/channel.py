"""One open session: its events on their way out, and replies at their place among them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskStatus

from prism.cli._rpc.protocol import RequestId
from prism.cli._streams import Output
from prism.core import (
    AgentEvent,
    AgentStarted,
    MessageDelta,
    OpaqueEvent,
    PrismError,
    RunResult,
    Session,
    Subscription,
    ToolApprovalRequested,
    Warned,
    encode_ascii,
)


class ActiveRun:
    """A run that a request started.

    Attributes:
        request_id: The request.
        joined: Requests whose input joined it; they are answered at its end.
    """

    __slots__ = ("joined", "request_id")

    def __init__(self, request_id: RequestId) -> None:
        self.request_id = request_id
        self.joined: list[RequestId] = []


class Cause:
    """A request that is at work, and the run that it started.

    Attributes:
        over: Whether it causes nothing any more.
        run_id: The run that it started.
        runs: Whether it starts a run of its own.
    """

    __slots__ = ("over", "request_id", "run_id", "runs")

    def __init__(self, request_id: RequestId, *, runs: bool) -> None:
        self.request_id = request_id
        self.runs = runs
        self.over = False
        self.run_id: str | None = None


class _Mark(OpaqueEvent):
    """A place among the events at which something is to be done; never written."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__(type="mark", raw=b"{}")
        self.act = act


class Channel:
    """Writes the events of a session, each with the id of the request that caused it.

    Attributes:
        session: The session.
        active: The run that a request started, while it goes on.
        on_approval: Called for a request for approval, once nobody can answer any more.
    """

    def __init__(
        self, session: Session, output: Output, redact: Callable[[AgentEvent], AgentEvent] | None
    ) -> None:
        self.session = session
        self.active: ActiveRun | None = None
        self.on_approval: Callable[[Channel, str], None] | None = None
        self._output = output
        self._redact = redact
        self._events: Subscription | None = None
        self._causes: list[Cause] = []
        self._heads: dict[str | None, bytes] = {}

    async def run(self, active: ActiveRun, work: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """Run; until the end, input may join *active*."""
        self.active = active
        try:
            return await work()
        finally:
            if self.active is active:
                self.active = None

    def begin(self, request_id: RequestId, *, runs: bool) -> Cause:
        """Events from here on may be caused by this request."""
        cause = Cause(request_id, runs=runs)
        self.mark(lambda: self._begin(cause))
        return cause

    def end(self, cause: Cause, act: Callable[[], object]) -> None:
        """After the events so far: the request is over; do what there is to do then."""

        def finish() -> None:
            self.drop(cause)
            act()

        self.mark(finish)

    def drop(self, cause: Cause) -> None:
        """The request is over at once: what waits to be written does not carry its id."""
        cause.over = True
        if cause in self._causes:
            self._causes.remove(cause)
        self._heads.clear()

    def mark(self, act: Callable[[], object]) -> None:
        """Do something once all events so far are written."""
        if self._events is None:
            act()
        else:
            self._events.push(_Mark(act))

    def _begin(self, cause: Cause) -> None:
        if cause.over:
            return
        self._causes.append(cause)
        self._heads.clear()

    async def pump(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Write the session's events until it is closed; waits when the client is slow."""
        output = self._output
        async with self.session.subscribe() as events:
            self._events = events
            task_status.started()
            async for event in events:
                if type(event) is _Mark:
                    event.act()
                elif output.put(self._line(event)):
                    continue
                if output.pending_bytes:
                    await output.drain()
            self._events = None

    def _line(self, event: AgentEvent) -> bytes:
        if type(event) is not MessageDelta:
            self._notice(event)
        run_id = event.run_id
        head = self._heads.get(run_id)
        if head is None:
            head = self._heads[run_id] = self._head(run_id)
        if self._redact is not None:
            event = self._redact(event)
        try:
            return head + encode_ascii(event) + b"}\n"
        except PrismError as error:
            told = Warned(
                session_id=self.session.id,
                run_id=run_id,
                code="unwritable_event",
                message=f"An event cannot be written as JSON: {error}",
            )
            return head + encode_ascii(told) + b"}\n"

    def _notice(self, event: AgentEvent) -> None:
        if isinstance(event, AgentStarted):
            self._adopt(event.run_id)
        elif self.on_approval is not None and isinstance(event, ToolApprovalRequested):
            self.on_approval(self, event.approval_id)

    def _adopt(self, run_id: str | None) -> None:
        """A run begins: it belongs to the first request that waits for one."""
        for cause in self._causes:
            if cause.runs and cause.run_id is None:
                cause.run_id = run_id
                break
        self._heads.clear()

    def _head(self, run_id: str | None) -> bytes:
        request_id = self._cause_of(run_id)
        parts = [
            b'{"type":"event","id":',
            encode_ascii(request_id),
            b',"sessionId":',
            encode_ascii(self.session.id),
        ]
        if run_id is not None:
            parts += [b',"runId":', encode_ascii(run_id)]
        return b"".join([*parts, b',"event":'])

    def _cause_of(self, run_id: str | None) -> RequestId | None:
        if run_id is not None:
            for cause in self._causes:
                if cause.run_id == run_id:
                    return cause.request_id
        for cause in reversed(self._causes):
            if not cause.runs:
                return cause.request_id
        return None
