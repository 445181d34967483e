"""The laws of the event stream, as a checker that any test can feed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prism.core._wire import (
    AgentEvent,
    AgentFinished,
    AgentStarted,
    CompactionFailed,
    CompactionFinished,
    CompactionStarted,
    Message,
    MessageDelta,
    MessageFinished,
    MessageStarted,
    RetryScheduled,
    SessionSettled,
    TextBlock,
    ThinkingBlock,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolCallBlock,
    ToolCallDelta,
    ToolExecutionBlocked,
    ToolExecutionError,
    ToolExecutionFinished,
    ToolExecutionProgress,
    ToolExecutionStarted,
    TurnFinished,
    TurnStarted,
    WorkerFinished,
    WorkerStarted,
    encode,
    encode_ascii,
    event_type,
    parse_json,
)


class EventLawError(AssertionError):
    """An event stream broke a law."""


class EventLaws:
    """Checks the events of one session as they come.

    Feed it every event of a session in order, from before the first run on, and `close` it when
    the session is idle. It holds: each `*_started` has exactly one end; ends nest; `agent_finished`
    is the last event of its run but for `session_settled`; deltas joined per index equal the
    finished blocks; a retried attempt leaves no `message_started`; tool events lie inside their
    turn; calls start in source order, those that started end once, those that did not are only
    blocked, and each call of a message is one or the other before its turn ends; no event holds a
    known secret, nor do deltas when they are joined.

    Args:
        secrets: Strings that must be in no event.
        stored_ids: Ids of the entries that are in the store so far, kept up to date by the caller;
            every `entryId` must be among them. `None` skips that law.
    """

    def __init__(self, *, secrets: Sequence[str] = (), stored_ids: set[str] | None = None) -> None:
        # As JSON writes them, with and without escapes of what is not ASCII.
        forms = {write(secret)[1:-1] for secret in secrets for write in (encode, encode_ascii)}
        self._secrets = sorted(forms)
        self._stored_ids = stored_ids
        self._run: str | None = None
        self._finished: set[str] = set()
        self._turn: int | None = None
        self._turns = 0
        self._message = False
        self._deltas: dict[int, list[str]] = {}
        self._call_deltas: dict[int, list[str]] = {}
        self._calls_given: dict[int, ToolCallBlock] = {}
        self._running: set[str] = set()
        self._answered: set[str] = set()
        self._calls: list[str] = []
        self._last_call = -1
        self._compacting = False
        self._workers: dict[str, int] = {}
        self._approvals: set[str] = set()
        self.count: int = 0

    def feed(self, event: AgentEvent) -> None:
        """Check the next event.

        Raises:
            EventLawError: Which law it broke.
        """
        self.count += 1
        self._check_secrets(event)
        self._check_run(event)
        match event:
            case AgentStarted():
                self._require(self._run is None, event, "a run is open already")
                self._run = event.run_id
                self._turns = 0
            case AgentFinished():
                self._end_run(event)
            case TurnStarted():
                self._require(self._turn is None, event, "a turn is open already")
                self._require(event.turn == self._turns + 1, event, "turns count from 1")
                self._turn = self._turns = event.turn
                self._calls = []
                self._last_call = -1
            case TurnFinished():
                self._require(self._turn == event.turn, event, "it is not the open turn")
                self._require(not self._message, event, "a message is open in it")
                self._require(not self._running, event, "calls are running in it")
                left = [call_id for call_id in self._calls if call_id not in self._answered]
                self._require(not left, event, f"its calls {left} were not answered")
                self._turn = None
            case MessageStarted() | MessageDelta() | ToolCallDelta() | MessageFinished():
                self._feed_message(event)
            case CompactionStarted():
                self._require(not self._compacting, event, "a compaction is open already")
                self._compacting = True
            case CompactionFinished() | CompactionFailed():
                self._require(self._compacting, event, "no compaction is open")
                self._compacting = False
            case RetryScheduled():
                self._require(self._turn is not None, event, "it is outside a turn")
                self._require(not self._message, event, "the attempt had started a message")
            case WorkerStarted():
                self._workers[event.worker] = self._workers.get(event.worker, 0) + 1
            case WorkerFinished():
                open_now = self._workers.get(event.worker, 0)
                self._require(open_now > 0, event, "that worker had not started")
                self._workers[event.worker] = open_now - 1
            case ToolApprovalRequested():
                self._approvals.add(event.approval_id)
            case ToolApprovalResolved():
                self._approvals.discard(event.approval_id)
            case _:
                self._feed_tool(event)
        self._check_entry_id(event)

    def feed_all(self, events: Iterable[AgentEvent]) -> None:
        """Check several events, then that nothing is left open."""
        for event in events:
            self.feed(event)
        self.close()

    def close(self) -> None:
        """Check that nothing is left open.

        Raises:
            EventLawError: What is.
        """
        left = [
            name
            for name, is_open in (
                ("run", self._run is not None),
                ("turn", self._turn is not None),
                ("message", self._message),
                ("compaction", self._compacting),
                ("worker", any(self._workers.values())),
                ("call", bool(self._running)),
            )
            if is_open
        ]
        if left:
            raise EventLawError(f"Left open at the end: {', '.join(left)}.")

    def _require(self, holds: bool, event: AgentEvent, why: str) -> None:  # noqa: FBT001
        if not holds:
            raise EventLawError(f"Event {self.count} ({event_type(event)}): {why}. {event!r}")

    def _check_secrets(self, event: AgentEvent) -> None:
        if self._secrets:
            text = encode(event)
            for secret in self._secrets:
                self._require(secret not in text, event, "it holds a known secret")

    def _check_run(self, event: AgentEvent) -> None:
        run_id = event.run_id
        if run_id is not None and run_id in self._finished:
            self._require(isinstance(event, SessionSettled), event, "its run had finished already")
        in_run = isinstance(
            event,
            TurnStarted | TurnFinished | MessageStarted | MessageDelta | MessageFinished
            | ToolExecutionStarted | ToolExecutionFinished | ToolExecutionError
            | ToolExecutionBlocked,
        )  # fmt: skip
        if in_run:
            self._require(self._run is not None, event, "it is outside a run")
            self._require(run_id == self._run, event, "it belongs to another run")

    def _check_entry_id(self, event: AgentEvent) -> None:
        entry_id = getattr(event, "entry_id", None)
        if entry_id is not None and self._stored_ids is not None:
            self._require(
                entry_id in self._stored_ids, event, f"entry {entry_id!r} is not stored yet"
            )

    def _end_run(self, event: AgentFinished) -> None:
        self._require(self._run == event.run_id, event, "it is not the open run")
        self._require(self._turn is None, event, "a turn is open in it")
        self._require(not self._message, event, "a message is open in it")
        self._require(not self._running, event, "calls are running in it")
        self._require(not self._compacting, event, "a compaction is open in it")
        if event.run_id is not None:
            self._finished.add(event.run_id)
        self._run = None
        self._answered.clear()

    # Messages

    def _feed_message(
        self, event: MessageStarted | MessageDelta | ToolCallDelta | MessageFinished
    ) -> None:
        if isinstance(event, MessageStarted):
            self._require(self._turn is not None, event, "it is outside a turn")
            self._require(not self._message, event, "a message is open already")
            self._require(event.message.content == [], event, "its content is not empty")
            self._message = True
            self._deltas.clear()
            self._call_deltas.clear()
            self._calls_given.clear()
            return
        self._require(self._message, event, "no message is open")
        if isinstance(event, MessageFinished):
            self._message = False
            self._calls = [call.id for call in event.message.tool_calls]
            self._check_blocks(event, event.message, partial=bool(event.partial))
        elif isinstance(event, ToolCallDelta):
            self._call_deltas.setdefault(event.index, []).append(event.arguments_text)
        else:
            assert event.index is not None  # noqa: S101
            content = event.content
            if isinstance(content, TextBlock | ThinkingBlock):
                self._deltas.setdefault(event.index, []).append(content.text)
            elif isinstance(content, ToolCallBlock):
                known = self._calls_given.setdefault(event.index, content)
                self._require(known == content, event, "a call was given twice, differently")

    def _check_blocks(self, event: AgentEvent, message: Message, *, partial: bool) -> None:
        for texts in (*self._deltas.values(), *self._call_deltas.values()):
            whole = encode("".join(texts))
            for secret in self._secrets:
                self._require(secret not in whole, event, "its deltas hold a known secret")
        given = {*self._deltas, *self._call_deltas, *self._calls_given}
        left_out: set[int] = set()
        # Calls that were not complete are left out of a message that was cut short.
        if partial or message.stop_reason in {"length", "context_limit"}:
            left_out = {place for place in self._call_deltas if place not in self._calls_given}
            if partial and event.entry_id is None:  # type: ignore[union-attr]
                return
        # The places of the blocks in the stream; some blocks, such as hidden thinking, have no
        # deltas.
        places = [
            place for place in range(len(message.content) + len(left_out)) if place not in left_out
        ]
        missing = given - left_out - set(places[: len(message.content)])
        self._require(not missing, event, f"the blocks at {sorted(missing)} are not in it")
        for place, block in enumerate(message.content):
            index = places[place]
            if isinstance(block, TextBlock | ThinkingBlock):
                joined = "".join(self._deltas.get(index, []))
                self._require(joined == block.text, event, f"block {place} is not its deltas")
            elif isinstance(block, ToolCallBlock):
                self._check_call(event, index, block)

    def _check_call(self, event: AgentEvent, index: int, call: ToolCallBlock) -> None:
        given = self._calls_given.get(index)
        text = "".join(self._call_deltas.get(index, []))
        if given is not None:
            self._require(given == call, event, f"call {call.id!r} is not what was streamed")
            if text and call.raw_arguments is not None:
                self._require(text == call.raw_arguments, event, "raw arguments differ")
            return
        if call.raw_arguments is not None:
            self._require(text == call.raw_arguments, event, "raw arguments differ")
        else:
            streamed: Any = parse_json(text) if text.strip() else {}
            self._require(streamed == call.arguments, event, "arguments differ")

    # Tools

    def _feed_tool(self, event: AgentEvent) -> None:
        match event:
            case ToolExecutionStarted():
                self._require(self._turn is not None, event, "it is outside a turn")
                call_id = event.call.id
                self._require(call_id not in self._running, event, "the call runs already")
                self._require(call_id not in self._answered, event, "the call ended already")
                if call_id in self._calls:
                    place = self._calls.index(call_id)
                    self._require(place > self._last_call, event, "calls start in source order")
                    self._last_call = place
                self._running.add(call_id)
            case ToolExecutionProgress():
                self._require(event.tool_call_id in self._running, event, "the call is not running")
            case ToolExecutionFinished():
                self._end_call(event, event.result.tool_call_id)
            case ToolExecutionError():
                self._end_call(event, event.call.id)
            case ToolExecutionBlocked():
                self._require(self._turn is not None, event, "it is outside a turn")
                call_id = event.tool_call_id
                self._require(call_id not in self._running, event, "the call had started")
                self._require(call_id not in self._answered, event, "the call ended already")
                self._answered.add(call_id)
            case _:
                pass

    def _end_call(self, event: AgentEvent, call_id: str) -> None:
        self._require(self._turn is not None, event, "it is outside a turn")
        self._require(call_id in self._running, event, "the call is not running")
        self._running.discard(call_id)
        self._answered.add(call_id)


def check_event_laws(events: Iterable[AgentEvent], *, secrets: Sequence[str] = ()) -> None:
    """Check the whole event stream of a session.

    Raises:
        EventLawError: Which law it broke, and where.
    """
    EventLaws(secrets=secrets).feed_all(events)
