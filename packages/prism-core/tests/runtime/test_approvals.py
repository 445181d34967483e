"""Calls that wait for somebody's word, within a run and over a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from prism.core import (
    MiddlewareRegistry,
    RunAborted,
    SecretRedactor,
    Session,
    SessionEntry,
    ToolApprovalRequested,
    ToolApprovalResolved,
    ToolCallBlock,
    ToolExecutionStarted,
    UsageError,
    tool,
)
from prism.core._contracts import (
    PermissionDecision,
    PermissionRequest,
    SessionStore,
    ToolCallPayload,
)
from prism.core._wire import CustomEntry
from prism.core.providers import done, text_delta, tool_call
from prism.core.stores import JsonlSessionStore, MemorySessionStore

from .harness import Stage, WatchedStore, of, provider_of, results, said, sent, types

ran: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_has_run() -> None:
    ran.clear()


@tool
async def pay(amount: int) -> str:
    """Pay."""
    ran.append(amount)
    return f"paid {amount}"


class Ask:
    """Asks for every call, or gives another verdict."""

    def __init__(self, verdict: Any = "ask") -> None:
        self.verdict = verdict

    async def decide(self, request: PermissionRequest) -> PermissionDecision:
        return PermissionDecision(verdict=self.verdict, reason="money")


def asks(*amounts: int) -> list[list[Any]]:
    calls = [
        tool_call(id=f"c{number}", name="pay", arguments={"amount": amount})
        for number, amount in enumerate(amounts, 1)
    ]
    end = [text_delta("end"), done()]
    return [[*calls, done()], end, end, end]


def asking(stage: Stage, *amounts: int, **options: Any) -> Session:
    options.setdefault("permissions", Ask())
    options.setdefault("tools", [pay])
    return stage.session(asks(*amounts), **options)


def records(path: list[Any]) -> list[dict[str, Any]]:
    return [entry.data for entry in of(CustomEntry, path)]


async def answered(session: Session, answer: Callable[[str], Any]) -> Any:
    """Run the session; *answer* is called with each approval id as it is asked for."""
    outcome: list[Any] = []

    async def run() -> None:
        outcome.append(await session.run("Go", approvals="wait"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        seen: set[str] = set()
        while not outcome:
            await anyio.sleep(0.1)
            for key in (await session.state()).pending_approvals:
                if key not in seen:
                    seen.add(key)
                    await answer(key)
    return outcome[0]


async def test_an_allowed_call_runs(stage: Stage) -> None:
    session = asking(stage, 5)
    statuses: list[str] = []

    async def answer(key: str) -> None:
        statuses.append((await session.state()).status)
        await session.answer_approval(key, "allowed", reason="fine")

    assert (await answered(session, answer)).text == "end"
    assert ran == [5]
    assert statuses == ["awaiting_approval"]
    events = stage.events(session)
    (requested,) = of(ToolApprovalRequested, events)
    (resolved,) = of(ToolApprovalResolved, events)
    assert requested.call.arguments == {"amount": 5}
    assert requested.reason == "money"
    assert (resolved.approval_id, resolved.decision) == (requested.approval_id, "allowed")
    assert (resolved.by, resolved.reason) == ("host", "fine")
    kinds = types(events)
    assert kinds.index("tool_approval_resolved") < kinds.index("tool_execution_started")
    assert records(await session.entries()) == [
        {
            "type": "prism.approval",
            "approvalId": requested.approval_id,
            "toolCallId": "c1",
            "state": state,
            "reason": reason,
        }
        for state, reason in (("requested", "money"), ("allowed", "fine"))
    ]
    assert (await session.state()).pending_approvals == []


async def test_a_denied_call_does_not_run_and_the_model_reads_why(stage: Stage) -> None:
    session = asking(stage, 5)

    async def answer(key: str) -> None:
        await session.answer_approval(key, "denied", reason="too much")

    await answered(session, answer)
    assert ran == []
    block = results(await session.entries())["c1"]
    assert block.error is not None
    assert block.error.code == "permission_denied"
    assert "too much" in block.error.message


async def test_an_edited_call_runs_with_the_other_arguments(stage: Stage) -> None:
    session = asking(stage, 5)

    async def answer(key: str) -> None:
        await session.answer_approval(key, "edited", arguments={"amount": 1})

    await answered(session, answer)
    assert ran == [1]
    (started,) = of(ToolExecutionStarted, stage.events(session))
    assert started.call.arguments == {"amount": 1}
    assert records(await session.entries())[-1]["arguments"] == {"amount": 1}
    assert said(await session.entries())[2] == "tool: c1 paid 1"


async def test_edited_arguments_are_validated_again_and_the_approval_stays_open(
    stage: Stage,
) -> None:
    session = asking(stage, 5)
    codes: list[Any] = []

    async def answer(key: str) -> None:
        for wrong in ({"amount": "much"}, {}, {"amount": 1, "to": "me"}):
            with pytest.raises(UsageError) as caught:
                await session.answer_approval(key, "edited", arguments=wrong)
            codes.append(caught.value.code)
        assert list((await session.state()).pending_approvals) == [key]
        await session.answer_approval(key, "edited", arguments={"amount": 2})

    await answered(session, answer)
    assert codes == ["invalid_arguments"] * 3
    assert ran == [2]


async def test_nobody_is_waited_for_unless_the_run_says_so(stage: Stage) -> None:
    session = asking(stage, 5)
    assert (await session.run("Go")).text == "end"
    assert ran == []
    events = stage.events(session)
    (resolved,) = of(ToolApprovalResolved, events)
    assert (resolved.decision, resolved.by) == ("denied", "policy")
    assert of(ToolApprovalRequested, events)[0].approval_id == resolved.approval_id
    assert results(await session.entries())["c1"].error is not None


async def test_several_calls_are_asked_for_at_once_and_answered_in_any_order(stage: Stage) -> None:
    session = asking(stage, 1, 2, 3)
    keys: list[str] = []

    async def answer(key: str) -> None:
        keys.append(key)
        if len(keys) == 3:
            await session.answer_approval(keys[2], "allowed")
            await session.answer_approval(keys[0], "denied")
            await anyio.sleep(1)
            assert ran == []
            await session.answer_approval(keys[1], "allowed")

    await answered(session, answer)
    assert sorted(ran) == [2, 3]
    assert list(results(await session.entries())) == ["c1", "c2", "c3"]


@pytest.mark.parametrize(
    "wrong",
    [
        ("nosuch", "allowed", {}),
        (None, "maybe", {}),
        (None, "edited", {}),
        (None, "allowed", {"arguments": {"amount": 1}}),
        (None, "edited", {"arguments": [1]}),
        (None, "denied", {"reason": 3}),
    ],
    ids=range(6),
)
async def test_a_wrong_answer_is_refused_and_does_nothing(stage: Stage, wrong: Any) -> None:
    session = asking(stage, 5)

    async def answer(key: str) -> None:
        with pytest.raises(UsageError):
            await session.answer_approval(wrong[0] or key, wrong[1], **wrong[2])
        await session.answer_approval(key, "allowed")
        with pytest.raises(UsageError) as caught:
            await session.answer_approval(key, "denied")
        assert caught.value.code == "approval_not_found"

    await answered(session, answer)
    assert ran == [5]


async def test_two_answers_at_once_are_one_answer_and_one_refusal() -> None:
    stage = Stage(suspend=True)
    session = asking(stage, 5)
    refused: list[Any] = []

    async def answer(key: str) -> None:
        async def one(decision: str) -> None:
            try:
                await session.answer_approval(key, decision)
            except UsageError as error:
                refused.append(error.code)

        async with anyio.create_task_group() as group:
            group.start_soon(one, "allowed")
            group.start_soon(one, "denied")

    await answered(session, answer)
    assert refused == ["approval_not_found"]
    states = [record["state"] for record in records(await session.entries())]
    assert states[0] == "requested"
    assert (states[1] == "allowed") == (ran == [5])
    assert len(states) == 2
    stage.finish()


async def test_an_abort_denies_what_is_open(stage: Stage) -> None:
    session = asking(stage, 5, 6)

    async def run() -> None:
        with pytest.raises(RunAborted):
            await session.run("Go", approvals="wait")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.1)
        (key, _) = (await session.state()).pending_approvals
        session.abort()
        await session.wait_settled()
        with pytest.raises(UsageError, match="open"):
            await session.answer_approval(key, "allowed")
    assert ran == []
    assert (await session.state()).pending_approvals == []
    resolved = of(ToolApprovalResolved, stage.events(session))
    assert [(event.decision, event.by) for event in resolved] == [("denied", "abort")] * 2
    assert said(await session.entries())[2:] == ["tool: c1 aborted", "tool: c2 aborted"]


async def test_steering_comes_before_an_answer(stage: Stage) -> None:
    session = asking(stage, 5)
    async with anyio.create_task_group() as group:

        async def run() -> None:
            await session.run("Go", approvals="wait")

        group.start_soon(run)
        await anyio.sleep(0.1)
        session.steer("Never mind")
    assert ran == []
    assert said(await session.entries())[2:] == [
        "tool: c1 skipped",
        "user: Never mind",
        "assistant: end",
    ]
    (resolved,) = of(ToolApprovalResolved, stage.events(session))
    assert (resolved.decision, resolved.by) == ("denied", "steer")


async def test_an_approval_is_asked_for_what_will_really_run(stage: Stage) -> None:
    hooks = MiddlewareRegistry()

    def double(payload: ToolCallPayload) -> ToolCallPayload:
        call = payload.call
        return ToolCallPayload(
            session_id=payload.session_id,
            run_id=payload.run_id,
            call=ToolCallBlock(
                id=call.id, name=call.name, arguments={"amount": call.arguments["amount"] * 2}
            ),
        )

    hooks.use("tool_call", double)
    session = asking(stage, 5, middleware=hooks)

    async def answer(key: str) -> None:
        await session.answer_approval(key, "allowed")

    await answered(session, answer)
    assert of(ToolApprovalRequested, stage.events(session))[0].call.arguments == {"amount": 10}
    assert ran == [10]


async def test_a_call_that_could_not_run_is_not_asked_for(stage: Stage) -> None:
    session = stage.session(
        [
            [
                tool_call(id="c1", name="pay", arguments={"amount": "x"}),
                tool_call(id="c2", name="nosuch"),
                done(),
            ],
            [text_delta("end"), done()],
        ],
        tools=[pay],
        permissions=Ask(),
    )
    await session.run("Go", approvals="wait")
    assert of(ToolApprovalRequested, stage.events(session)) == []


async def test_secrets_are_in_no_record_and_the_tool_still_gets_them(stage: Stage) -> None:
    @tool
    async def use(key: str) -> None:
        """Use a key."""
        got.append(key)

    got: list[str] = []
    session = stage.session(
        [[tool_call(id="c1", name="use", arguments={"key": "hunter2"}), done()], [done()]],
        tools=[use],
        permissions=Ask(),
        redactor=SecretRedactor(["hunter2"]),
        secrets=["hunter2"],
    )

    async def answer(key: str) -> None:
        await session.answer_approval(key, "allowed", reason="hunter2 it is")

    await answered(session, answer)
    assert got == ["hunter2"]
    assert "hunter2" not in repr(records(await session.entries()))


# Over a restart


@pytest.fixture(params=["memory", "jsonl"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], WatchedStore]:
    """Opens the same sessions again, as another process would."""
    memory = MemorySessionStore()

    def reopen() -> WatchedStore:
        inner: SessionStore = memory
        if request.param == "jsonl":
            inner = JsonlSessionStore(tmp_path)
        return WatchedStore(inner)

    return reopen


async def die_asking(stage: Stage, store: WatchedStore, *amounts: int, **options: Any) -> list[str]:
    """A process that dies while it asks: what it had stored is copied, and then it is cancelled."""
    first = Stage()
    first.ids = stage.ids
    session = first.session(
        asks(*amounts), store=WatchedStore(), id="s1", tools=[pay], permissions=Ask(), **options
    )
    keys: list[str] = []
    stored: list[SessionEntry] = []
    async with anyio.create_task_group() as group:

        async def run() -> None:
            await session.run("Go", approvals="wait")

        group.start_soon(run)
        await anyio.sleep(1)
        keys.extend((await session.state()).pending_approvals)
        stored = [item.entry for item in await session.agent.store.entries("s1")]
        group.cancel_scope.cancel()
    await store.append("s1", stored, expected_version=0)
    return keys


def reopened(stage: Stage, store: WatchedStore, **options: Any) -> Session:
    """The session in another process, whose model answers `end`."""
    options.setdefault("permissions", Ask())
    return stage.session([text_delta("end"), done()], store=store, tools=[pay], **options)


async def test_an_open_approval_stands_after_a_restart_and_continue_runs_the_call(
    stage: Stage, kept: Callable[[], WatchedStore]
) -> None:
    stage.may_stay_open("s1")  # as the first of the two restarts leaves it
    keys = await die_asking(stage, kept(), 5, 6)
    session = reopened(stage, kept())
    state = await session.state()
    assert (state.status, list(state.pending_approvals)) == ("idle", keys)
    await session.answer_approval(keys[0], "allowed")
    await session.answer_approval(keys[1], "edited", arguments={"amount": 1})
    assert (await session.state()).pending_approvals == []
    assert ran == []

    # The answers stand after another restart too.
    session = reopened(stage, kept())
    result = await session.continue_()
    assert result.text == "end"
    assert sorted(ran) == [1, 5]
    assert said(await session.entries()) == [
        "user: Go",
        "assistant: [c1] [c2]",
        "tool: c1 paid 5",
        "tool: c2 paid 1",
        "assistant: end",
    ]
    assert sent(provider_of(session).requests[0])[-2:] == ["tool: c1 paid 5", "tool: c2 paid 1"]


async def test_a_new_prompt_denies_what_is_open_first(
    stage: Stage, kept: Callable[[], WatchedStore]
) -> None:
    (key,) = await die_asking(stage, kept(), 5)
    session = reopened(stage, kept())
    await session.run("Something else")
    assert ran == []
    (resolved,) = of(ToolApprovalResolved, stage.events(session))
    assert (resolved.approval_id, resolved.decision, resolved.by) == (key, "denied", "prompt")
    assert said(await session.entries()) == [
        "user: Go",
        "assistant: [c1]",
        "tool: c1 permission_denied",
        "user: Something else",
        "assistant: end",
    ]
    assert "warning" not in types(stage.events(session))
    with pytest.raises(UsageError):
        await session.answer_approval(key, "allowed")


async def test_continue_asks_again_for_what_is_still_open(
    stage: Stage, kept: Callable[[], WatchedStore]
) -> None:
    keys = await die_asking(stage, kept(), 5, 6)
    session = reopened(stage, kept())
    await session.answer_approval(keys[1], "denied", reason="no")

    async with anyio.create_task_group() as group:

        async def run() -> None:
            await session.continue_(approvals="wait")

        group.start_soon(run)
        await anyio.sleep(1)
        assert list((await session.state()).pending_approvals) == keys[:1]
        await session.answer_approval(keys[0], "allowed")
    assert ran == [5]
    assert said(await session.entries())[2:4] == ["tool: c1 paid 5", "tool: c2 permission_denied"]


async def test_continue_without_waiting_denies_what_is_still_open(
    stage: Stage, kept: Callable[[], WatchedStore]
) -> None:
    await die_asking(stage, kept(), 5)
    session = reopened(stage, kept())
    await session.continue_()
    assert ran == []
    assert said(await session.entries())[2] == "tool: c1 permission_denied"


async def test_a_policy_that_says_no_by_now_is_heard_also_for_an_allowed_call(
    stage: Stage, kept: Callable[[], WatchedStore]
) -> None:
    (key,) = await die_asking(stage, kept(), 5)
    session = reopened(stage, kept(), permissions=Ask("deny"))
    await session.answer_approval(key, "allowed")
    await session.continue_()
    assert ran == []


async def test_what_was_approved_is_what_runs_after_a_restart(
    stage: Stage, kept: Callable[[], WatchedStore]
) -> None:
    hooks = MiddlewareRegistry()

    def double(payload: ToolCallPayload) -> ToolCallPayload:
        call = payload.call
        return ToolCallPayload(
            session_id=payload.session_id,
            run_id=payload.run_id,
            call=ToolCallBlock(
                id=call.id, name=call.name, arguments={"amount": call.arguments["amount"] * 2}
            ),
        )

    hooks.use("tool_call", double)
    (key,) = await die_asking(stage, kept(), 5, middleware=hooks)
    session = reopened(stage, kept(), middleware=hooks)
    await session.answer_approval(key, "allowed")
    await session.continue_()
    assert ran == [10]


async def test_a_fork_of_a_session_that_asks_can_be_answered_by_itself(stage: Stage) -> None:
    session = asking(stage, 5)
    forks: list[Session] = []

    async def answer(key: str) -> None:
        forks.append(stage.watch(await session.fork(id="fork")))
        await session.answer_approval(key, "denied")

    await answered(session, answer)
    (fork,) = forks
    (key,) = (await fork.state()).pending_approvals
    assert ran == []
    await fork.answer_approval(key, "allowed")
    await fork.continue_()
    assert ran == [5]
