"""What every part of a session stands on: its log, its readers, what it is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope

from prism.core._contracts import MiddlewareFailure, SessionPayload
from prism.core._errors import SessionBusy, UsageError
from prism.core._runtime.broadcast import Broadcast
from prism.core._runtime.inbox import Inbox
from prism.core._runtime.log import SessionLog
from prism.core._support.errors import error_info
from prism.core._support.redaction import SecretRedactor
from prism.core._wire import AgentEvent, ExtensionFailed, QueueUpdated, Usage, to_plain

if TYPE_CHECKING:
    from prism.core._runtime.agent import Agent
    from prism.core._runtime.approvals import PendingApproval
    from prism.core._runtime.run_state import RunState


class SessionBase:
    """The state of a session, and what runs and compactions need of it.

    Attributes:
        id: The session's id.
        agent: The agent that made it.
        log: Its entries.
        inbox: What waits to be said to the model.
        approvals: Calls of the active run that wait for somebody's word, by approval id.
        broadcast: Who reads its events.
        is_compacting: Whether a compaction is under way, by itself or within a run.
    """

    def __init__(self, agent: Agent, session_id: str) -> None:
        self.id = session_id
        self.agent = agent
        self.log: SessionLog = SessionLog(
            agent.store, session_id, clock=agent.clock, id_maker=agent.id_maker
        )
        self.inbox: Inbox = Inbox()
        self.approvals: dict[str, PendingApproval] = {}
        self.broadcast: Broadcast = Broadcast()
        self.is_compacting = False
        self._run: RunState | None = None
        self._compaction: CancelScope | None = None
        self._started = False
        self._closing = False
        self._closed = False
        self._close_lock: anyio.Lock | None = None
        self._usage: Usage | None = None
        self._idle: anyio.Event | None = None

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @property
    def leaf_id(self) -> str | None:
        """Where the session stands, as far as it was read."""
        return self.log.history.leaf_id

    @property
    def redactor(self) -> SecretRedactor:
        """The agent's, or the active run's, which knows more."""
        return self.agent.redactor if self._run is None else self._run.redactor

    @property
    def usage(self) -> Usage | None:
        """What the session's turns have used since it was opened, with their cost."""
        return self._usage

    # What it may do now

    def check_open(self) -> None:
        """Refuse to do anything in a session that was closed.

        Raises:
            UsageError: `session_closed`.
        """
        if self._closing:
            raise UsageError(f"Session {self.id!r} is closed.", code="session_closed")

    def check_idle(self) -> None:
        """Refuse what cannot be done beside a run or a compaction.

        Raises:
            UsageError: `session_closed`.
            SessionBusy: A run or a compaction is active.
        """
        self.check_open()
        if self._run is not None:
            raise SessionBusy(f"Session {self.id!r} has an active run.")
        if self._compaction is not None:
            raise SessionBusy(f"Session {self.id!r} is compacting.")

    async def wait_settled(self) -> None:
        """Return when neither a run nor a compaction is active; at once when that is so."""
        while self._run is not None or self._compaction is not None:
            if self._idle is None:
                self._idle = anyio.Event()
            await self._idle.wait()

    def release(self, run: RunState) -> None:
        """The run's bookkeeping is complete and its last event is out."""
        if self._run is run:
            self._run = None
            self.wake()
        if run.reader is not None:
            run.reader.close()

    def wake(self) -> None:
        """Nothing is active any more: tell those who wait for that."""
        if self._idle is not None:
            self._idle.set()
            self._idle = None

    def add_usage(self, usage: Usage) -> None:
        """Count a turn's usage."""
        self._usage = usage if self._usage is None else self._usage + usage

    # Events and hooks

    def emit(self, event: AgentEvent) -> None:
        """Hand an event to every reader, without known secrets."""
        if self.broadcast.readers:
            redactor = self.redactor
            if redactor:
                event = redactor.redact_event(event)
            self.broadcast.send(event)

    def say_queue(self, run: RunState | None) -> None:
        """Tell the readers what waits."""
        if self.broadcast.readers:
            inbox = self.inbox
            self.emit(
                QueueUpdated(
                    session_id=self.id,
                    # A run that has not begun may still be refused; what waits, waits all the same.
                    run_id=run.id if run is not None and run.announced else None,
                    size=len(inbox),
                    steer=[to_plain(item) for item in inbox.steer],
                    follow_up=[to_plain(item) for item in inbox.follow_up],
                )
            )

    async def hook(self, name: str, payload: Any, *, run: RunState | None = None) -> Any:
        """Run a hook's middleware over the payload."""
        middleware = self.agent.middleware
        if middleware is None or not middleware.has(name):
            return payload

        def tell(failure: MiddlewareFailure) -> None:
            event = ExtensionFailed(
                session_id=self.id,
                run_id=None if run is None else run.id,
                extension=failure.name,
                phase=failure.hook,
                error=error_info(failure.error, redact=self.redactor.redact_text),
            )
            if run is None:
                self.emit(event)
            else:
                run.emit(event)

        return await middleware.run(name, payload, on_failure=tell)

    async def start_hooks(self, run: RunState) -> None:
        """`session_start`, before the session's first run."""
        if not self._started:
            await self.hook("session_start", SessionPayload(session_id=self.id), run=run)
            self._started = True
