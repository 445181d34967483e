"""The checker itself: what keeps the laws passes, and each broken law is found."""

from __future__ import annotations

from typing import Any

import pytest

from prism.core import (
    AgentEvent,
    AgentFinished,
    AgentStarted,
    CompactionFinished,
    CompactionStarted,
    ErrorInfo,
    Message,
    MessageDelta,
    MessageFinished,
    MessageStarted,
    RetryScheduled,
    SessionSettled,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolCallDelta,
    ToolExecutionBlocked,
    ToolExecutionError,
    ToolExecutionFinished,
    ToolExecutionProgress,
    ToolExecutionStarted,
    ToolResult,
    TurnFinished,
    TurnStarted,
    Warned,
    WorkerFinished,
    WorkerStarted,
)
from prism.core.testing import EventLawError, EventLaws, check_event_laws

ERROR = ErrorInfo(message="no")
CALLS = [ToolCallBlock(id=f"c{n}", name="t", arguments={"n": n}) for n in range(2)]


def make(kind: type[Any], **fields: Any) -> Any:
    return kind(session_id="s", run_id="r", **fields)


def message(*blocks: Any) -> Message:
    return Message(role="assistant", content=list(blocks))


STARTED = make(AgentStarted)
TURN = make(TurnStarted, turn=1)
OPENED = make(MessageStarted, message=message())
A = make(MessageDelta, content=TextBlock(text="a"), index=0)
B = make(MessageDelta, content=TextBlock(text="b"), index=0)
GIVEN = [make(MessageDelta, content=call, index=n) for n, call in enumerate(CALLS, 1)]
CLOSED = make(MessageFinished, message=message(TextBlock(text="ab"), *CALLS), entry_id="e1")
RUNS = [make(ToolExecutionStarted, call=call) for call in CALLS]
ENDS = [
    make(ToolExecutionFinished, result=ToolResult(tool_call_id=call.id, name="t")) for call in CALLS
]
TURNED = make(TurnFinished, turn=1)
FINISHED = make(AgentFinished, status="completed")
SETTLED = make(SessionSettled)
GOOD: list[AgentEvent] = [
    STARTED, TURN, OPENED, A, B, *GIVEN, CLOSED, *RUNS, *ENDS, TURNED, FINISHED, SETTLED,
]  # fmt: skip


def test_a_stream_that_keeps_the_laws_passes() -> None:
    check_event_laws(GOOD)
    partial = make(
        MessageFinished, message=message(TextBlock(text="a"), CALLS[0]), entry_id="e", partial=True
    )
    check_event_laws(
        [
            STARTED,
            TURN,
            make(RetryScheduled, attempt=2, delay_ms=1, error=ERROR),
            OPENED,
            make(ToolCallDelta, index=0, arguments_text="{"),
            make(MessageDelta, content=TextBlock(text="a"), index=1),
            make(MessageDelta, content=CALLS[0], index=2),
            partial,
            make(ToolExecutionBlocked, tool_call_id="c0", name="t", reason="aborted", error=ERROR),
            TURNED,
            FINISHED,
            SETTLED,
            WorkerStarted(session_id="s", worker="observer"),
            WorkerFinished(session_id="s", worker="observer", status="ok", counts={}),
        ]
    )


def without(*events: AgentEvent) -> list[AgentEvent]:
    return [event for event in GOOD if not any(event is each for each in events)]


def swapped(one: AgentEvent, two: AgentEvent) -> list[AgentEvent]:
    return [two if event is one else one if event is two else event for event in GOOD]


def after(place: AgentEvent, *more: AgentEvent) -> list[AgentEvent]:
    at = GOOD.index(place) + 1
    return [*GOOD[:at], *more, *GOOD[at:]]


BROKEN: dict[str, list[AgentEvent]] = {
    "a run without an end": GOOD[:-2],
    "a run that ends twice": after(FINISHED, FINISHED),
    "a run within a run": after(STARTED, STARTED),
    "an event after its run": [*GOOD, make(Warned, code="x", message="y")],
    "a turn without a run": without(STARTED),
    "a turn without an end": without(TURNED),
    "a turn that does not begin": without(TURN),
    "a turn with another number": [make(TurnStarted, turn=2) if e is TURN else e for e in GOOD],
    "a message outside a turn": [STARTED, OPENED],
    "a message without an end": without(CLOSED),
    "a message that does not begin": without(OPENED),
    "a message that begins twice": after(OPENED, OPENED),
    "a message that begins with content": [
        make(MessageStarted, message=message(TextBlock(text="x"))) if e is OPENED else e
        for e in GOOD
    ],
    "a delta that is missing": without(B),
    "a delta too many": after(B, B),
    "a call that was not given as it is": [
        make(MessageDelta, content=CALLS[1], index=1) if e is GIVEN[0] else e for e in GOOD
    ],
    "a block that was streamed and is not there": after(
        B, make(MessageDelta, content=ThinkingBlock(text="x"), index=7)
    ),
    "a call without an end": without(ENDS[0]),
    "a call that ends twice": after(ENDS[1], make(ToolExecutionError, call=CALLS[1], error=ERROR)),
    "a call that starts twice": after(RUNS[0], RUNS[0]),
    "a call that was never answered": without(RUNS[1], ENDS[1]),
    "calls out of order": swapped(RUNS[0], RUNS[1]),
    "a call that started and is blocked": after(
        ENDS[0],
        make(ToolExecutionBlocked, tool_call_id="c0", name="t", reason="aborted", error=ERROR),
    ),
    "progress of a call that does not run": after(
        CLOSED, make(ToolExecutionProgress, tool_call_id="c0", name="t")
    ),
    "a tool event outside its turn": [STARTED, RUNS[0]],
    "a retry after output": after(A, make(RetryScheduled, attempt=2, delay_ms=1, error=ERROR)),
    "a retry outside a turn": after(
        STARTED, make(RetryScheduled, attempt=2, delay_ms=1, error=ERROR)
    ),
    "a compaction without an end": after(SETTLED, CompactionStarted(session_id="s")),
    "a compaction that does not begin": after(
        STARTED, make(CompactionFinished, summary="x", entry_id="e1")
    ),
    "a worker without an end": after(SETTLED, WorkerStarted(session_id="s", worker="observer")),
    "a worker that does not begin": after(
        SETTLED, WorkerFinished(session_id="s", worker="observer", status="ok", counts={})
    ),
    "an event of another run": after(
        TURN, MessageStarted(session_id="s", run_id="other", message=message())
    ),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_law_is_found(name: str) -> None:
    with pytest.raises(EventLawError):
        check_event_laws(BROKEN[name])


def test_an_entry_that_is_not_stored_is_found() -> None:
    EventLaws(stored_ids={"e1"}).feed_all(GOOD)
    with pytest.raises(EventLawError, match="'e1' is not stored"):
        EventLaws(stored_ids=set()).feed_all(GOOD)


@pytest.mark.parametrize("secret", ["hunter2", 'qu"ote', "ümlaut", "lin\ne"])
def test_a_secret_is_found_also_when_it_was_split_over_deltas(secret: str) -> None:
    with pytest.raises(EventLawError, match="secret"):
        EventLaws(secrets=[secret]).feed(make(Warned, code="x", message=f"it is {secret}"))
    parts = [
        make(ToolCallDelta, index=0, arguments_text=secret[:3]),
        make(ToolCallDelta, index=0, arguments_text=secret[3:]),
    ]
    closed = make(MessageFinished, message=message(), partial=True, entry_id="e1")
    with pytest.raises(EventLawError, match="secret"):
        check_event_laws([STARTED, TURN, OPENED, *parts, closed], secrets=[secret])
