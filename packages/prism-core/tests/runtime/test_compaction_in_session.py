"""Compaction as a session does it: the order of things, what is refused, what stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from prism.core import (
    CompactionEntry,
    CompactionError,
    CompactionFailed,
    CompactionFinished,
    CompactionOptions,
    CompactionStarted,
    ErrorEvent,
    MessageEntry,
    MiddlewareRegistry,
    NothingToCompact,
    ProviderError,
    RunAborted,
    SecretRedactor,
    Session,
    SessionBusy,
    StoreConflict,
    Usage,
    UsageError,
    UsageReported,
    tool,
)
from prism.core._contracts import (
    CompactionContext,
    CompactionPayload,
    CompactionRequestPayload,
    CompactionResult,
)
from prism.core._wire import CustomEntry
from prism.core.compaction import DefaultCompactionStrategy
from prism.core.host import PermissionRule, StaticPermissionPolicy
from prism.core.providers import delay, done, error, text_delta, tool_call

from .harness import Stage, of, provider_of, said, sent, types

END = [text_delta("end"), done()]


class Strategy:
    """Folds everything up to the entry before the last *keep* ones into `sum`."""

    def __init__(
        self,
        *,
        keep: int = 1,
        change: Callable[[CompactionResult], Any] = lambda result: result,
        wait_ms: int = 0,
        summary: str = "sum",
    ) -> None:
        self.name = "test"
        self.contexts: list[CompactionContext] = []
        self._keep = keep
        self._change = change
        self._wait_ms = wait_ms
        self._summary = summary

    async def compact(self, context: CompactionContext) -> Any:
        self.contexts.append(context)
        await anyio.sleep(self._wait_ms / 1000)
        entry = CompactionEntry(
            id="made",
            session_id=context.session_id,
            timestamp="2026-01-01T00:00:00.000Z",
            parent_id=context.leaf_id,
            summary=self._summary,
            data={"throughEntryId": context.entries[-1 - self._keep].id, "own": 1},
        )
        return self._change(
            CompactionResult(
                summary=entry.summary, entries=[entry], tokens_before=9, tokens_after=3
            )
        )


async def talked(stage: Stage, runs: int = 3, **options: Any) -> Session:
    """A session with some runs in it."""
    session = stage.session(END, **options)
    for number in range(runs):
        await session.run(f"{number}", compaction=False)
    return session


async def test_a_compaction_appends_one_entry_between_its_events(stage: Stage) -> None:
    session = await talked(stage)
    before = await session.entries()
    result = await session.compact(keep_recent_entries=2)
    entries = await session.entries()
    assert entries[:-1] == before
    entry = entries[-1]
    assert isinstance(entry, CompactionEntry)
    assert result.entries == [entry]
    assert entry.parent_id == before[-1].id
    started, finished = stage.events(session)[-2:]
    assert isinstance(started, CompactionStarted)
    assert (started.trigger, started.strategy) == ("manual", "default-compaction")
    assert isinstance(finished, CompactionFinished)
    assert (finished.entry_id, finished.summary) == (entry.id, entry.summary)
    assert (finished.trigger, finished.strategy) == ("manual", "default-compaction")
    assert finished.tokens_before is not None
    await session.run("more")
    request = provider_of(session).requests[-1]
    assert sent(request)[1:] == ["user: 2", "assistant: end", "user: more"]
    assert entry.summary in sent(request)[0]


async def test_nothing_to_fold_appends_nothing_and_is_raised(stage: Stage) -> None:
    for runs in (0, 1):
        session = await talked(stage, runs, id=f"s{runs}")
        before = await session.entries()
        with pytest.raises(NothingToCompact):
            await session.compact()
        assert await session.entries() == before
        started, failed = stage.events(session)[-2:]
        assert isinstance(started, CompactionStarted)
        assert isinstance(failed, CompactionFailed)
        assert failed.error.code == "nothing_to_compact"


async def test_middleware_rewrites_what_the_strategy_sees_and_what_it_gave(stage: Stage) -> None:
    order: list[str] = []
    hooks = MiddlewareRegistry()

    def request(payload: CompactionRequestPayload) -> CompactionRequestPayload:
        order.append("request")
        context = payload.context
        return CompactionRequestPayload(
            context=CompactionContext(
                session_id=context.session_id,
                entries=[entry for entry in context.entries if isinstance(entry, MessageEntry)][2:],
            )
        )

    def result(payload: CompactionPayload) -> CompactionPayload:
        order.append("result")
        assert len(payload.context.entries) == 6
        (entry,) = payload.result.entries
        changed = CompactionEntry(
            id=entry.id,
            session_id=entry.session_id,
            timestamp=entry.timestamp,
            parent_id=entry.parent_id,
            summary=f"better {entry.summary}",
            data=entry.data,
        )
        return CompactionPayload(
            context=payload.context,
            result=CompactionResult(summary=changed.summary, entries=[changed]),
        )

    hooks.use("compaction_request", request)
    hooks.use("compaction", result)
    strategy = Strategy()
    session = await talked(stage, middleware=hooks, compaction=CompactionOptions(strategy=strategy))
    given = await session.compact()
    assert order == ["request", "result"]
    assert len(strategy.contexts[0].entries) == 4
    assert given.summary == "better sum"
    assert of(CompactionFinished, stage.events(session))[0].summary == "better sum"


def _with(**fields: Any) -> Callable[[CompactionResult], Any]:
    """A result whose entry has these fields instead."""

    def change(result: CompactionResult) -> CompactionResult:
        (entry,) = result.entries
        given: dict[str, Any] = {
            "id": entry.id,
            "session_id": entry.session_id,
            "timestamp": entry.timestamp,
            "parent_id": entry.parent_id,
            "summary": entry.summary,
            "data": entry.data,
            **fields,
        }
        return CompactionResult(summary=given["summary"], entries=[CompactionEntry(**given)])

    return change


def _none(result: CompactionResult) -> CompactionResult:
    return CompactionResult(summary="x", entries=[])


def _two(result: CompactionResult) -> CompactionResult:
    return CompactionResult(summary="x", entries=[*result.entries, *result.entries])


def _text(result: CompactionResult) -> str:
    return "a summary"


@pytest.mark.parametrize(
    "change",
    [
        _with(summary=" "),
        _with(data={"throughEntryId": "nowhere"}),
        _with(data={"throughEntryId": "entry_2", "keepEntryIds": ["entry_3", "entry_1"]}),
        _with(session_id="other"),
        _with(parent_id=None),
        _none,
        _two,
        _text,
    ],
    ids=["blank", "nowhere", "order", "session", "parent", "none", "two", "text"],
)
async def test_a_result_that_cannot_be_appends_nothing(
    stage: Stage, change: Callable[[CompactionResult], Any]
) -> None:
    session = await talked(stage, compaction=CompactionOptions(strategy=Strategy(change=change)))
    before = await session.entries()
    with pytest.raises(CompactionError) as caught:
        await session.compact()
    assert caught.value.code == "invalid_compaction"
    assert await session.entries() == before
    assert isinstance(stage.events(session)[-1], CompactionFailed)
    assert (await session.state()).status == "idle"
    assert (await session.run("more")).text == "end"


async def test_a_strategy_that_raises_is_a_compaction_error_without_its_secrets(
    stage: Stage,
) -> None:
    class Broken:
        name = "broken"

        async def compact(self, context: CompactionContext) -> Any:
            raise LookupError("no hunter2")

    session = await talked(stage, redactor=SecretRedactor(["hunter2"]), secrets=["hunter2"])
    with pytest.raises(CompactionError, match=r"Strategy 'broken' failed: no .REDACTED.") as caught:
        await session.compact(strategy=Broken())
    assert isinstance(caught.value.__cause__, LookupError)
    (failed,) = of(CompactionFailed, stage.events(session))
    assert failed.error.code == "compaction_failed"


async def test_a_strategys_secrets_are_not_in_its_summary(stage: Stage) -> None:
    session = await talked(
        stage,
        compaction=CompactionOptions(strategy=Strategy(summary="hunter2 said hi"), secrets=["hi"]),
        redactor=SecretRedactor(["hunter2"]),
    )
    result = await session.compact(secrets=["said"])
    assert result.summary == "[REDACTED] [REDACTED] [REDACTED]"


async def test_the_context_holds_explicit_options_and_no_more(stage: Stage) -> None:
    strategy = Strategy()
    session = await talked(stage, compaction=CompactionOptions(metadata={"k": 1}))
    await session.compact(
        CompactionOptions(strategy=strategy, instructions="be short", max_summary_chars=10),
        keep_recent_entries=3,
    )
    (context,) = strategy.contexts
    assert (context.session_id, context.trigger, context.run_id) == ("s1", "manual", None)
    assert (context.instructions, context.metadata) == ("be short", {"k": 1})
    assert (context.keep_recent_entries, context.max_summary_chars) == (3, 10)
    assert context.protected_entry_ids == ()


async def test_what_a_compaction_costs_is_told_and_is_no_turn(stage: Stage) -> None:
    strategy = Strategy(
        change=lambda result: CompactionResult(
            summary=result.summary, entries=result.entries, usage=Usage(output_tokens=4)
        )
    )
    session = await talked(stage, compaction=CompactionOptions(strategy=strategy))
    await session.compact()
    (event,) = of(UsageReported, stage.events(session))
    assert (event.source, event.usage) == ("compaction", Usage(output_tokens=4))
    assert (await session.state()).usage is None


# Beside other things


async def test_a_compaction_is_refused_while_a_run_is_active_and_the_other_way_round(
    stage: Stage,
) -> None:
    session = stage.session([text_delta("a"), delay(100), done()])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Hi")
        await anyio.sleep(0.05)
        with pytest.raises(SessionBusy):
            await session.compact()
        await session.wait_settled()

        async def compact() -> None:
            await session.compact(strategy=Strategy(wait_ms=100))

        group.start_soon(compact)
        await anyio.sleep(0.05)
        for refused in (
            session.run("x"),
            session.compact(),
            session.checkout(None),
            session.continue_(),
        ):
            with pytest.raises(SessionBusy, match="compacting"):
                await refused
        state = await session.state()
        assert (state.status, state.run_id) == ("compacting", None)
        await session.wait_settled()
        assert (await session.state()).status == "idle"


async def test_the_state_says_compacting_before_the_first_event(stage: Stage) -> None:
    session = await talked(stage, 2)
    statuses: list[tuple[str, str]] = []
    hear = session.broadcast.readers[0].push

    def push(event: Any) -> None:
        hear(event)
        busy = session.is_compacting
        statuses.append((types([event])[0], "compacting" if busy else "idle"))

    session.broadcast.readers[0].push = push
    await session.compact(keep_recent_entries=1)
    assert statuses == [("compaction_started", "compacting"), ("compaction_finished", "compacting")]
    assert (await session.state()).status == "idle"


async def test_a_compaction_within_a_run_is_in_the_state_too(stage: Stage) -> None:
    session = await talked(
        stage, compaction=CompactionOptions(threshold_entries=2, strategy=Strategy(wait_ms=100))
    )
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Hi")
        await anyio.sleep(0.05)
        state = await session.state()
        assert state.status == "compacting"
        assert state.run_id is not None


async def test_input_that_arrives_during_a_compaction_is_queued_and_never_dropped(
    stage: Stage,
) -> None:
    session = await talked(stage)
    followed: list[Any] = []

    async def compact() -> None:
        await session.compact(strategy=Strategy(wait_ms=100))

    async def follow() -> None:
        followed.append(await session.follow_up("followed", max_tool_rounds=3))

    async with anyio.create_task_group() as group:
        group.start_soon(compact)
        await anyio.sleep(0.05)
        session.steer("steered")
        group.start_soon(follow)
        group.start_soon(follow)
    assert of(CompactionFinished, stage.events(session))
    assert {result if result is None else result.status for result in followed} <= {
        "completed",
        None,
    }
    users = [line for line in said(await session.entries()) if line.startswith("user")]
    assert users[3:].count("user: steered") == 1
    assert users[3:].count("user: followed") == 2


async def test_steering_at_the_first_event_of_a_compaction_is_queued(stage: Stage) -> None:
    session = await talked(stage)
    hear = session.broadcast.readers[0].push

    def push(event: Any) -> None:
        hear(event)
        if isinstance(event, CompactionStarted):
            session.steer("at once")

    session.broadcast.readers[0].push = push
    await session.compact(keep_recent_entries=1)
    assert (await session.state()).steer == 1
    await session.run("Hi")
    assert said(await session.entries())[-3:] == ["user: Hi", "user: at once", "assistant: end"]


async def test_records_that_are_appended_meanwhile_are_in_nobodys_way(stage: Stage) -> None:
    session = await talked(stage)

    class Recording(DefaultCompactionStrategy):
        async def compact(self, context: CompactionContext) -> CompactionResult | None:
            await session.append_custom({"type": "note"})
            await session.label("here")
            return await super().compact(context)

    await session.compact(strategy=Recording(keep_recent_entries=1))
    entries = await session.entries()
    assert isinstance(entries[-1], CompactionEntry)
    assert isinstance(entries[-3], CustomEntry)
    assert entries[-1].parent_id == entries[-2].id


async def test_a_compaction_can_be_aborted_and_cancelled(stage: Stage) -> None:
    session = await talked(stage)
    before = await session.entries()

    async def compact() -> None:
        with pytest.raises(RunAborted):
            await session.compact(strategy=Strategy(wait_ms=1_000))

    async with anyio.create_task_group() as group:
        group.start_soon(compact)
        await anyio.sleep(0.05)
        assert session.abort("no need") is True
        told = stage.events(session)[-1]
        assert isinstance(told, ErrorEvent)
        assert (told.error.code, told.error.details) == ("aborted", {"reason": "no need"})
        assert session.abort() is False
    with anyio.move_on_after(0.05) as scope:
        await session.compact(strategy=Strategy(wait_ms=1_000))
    assert scope.cancelled_caught
    failed = of(CompactionFailed, stage.events(session))
    assert [event.error.code for event in failed] == ["aborted", "aborted"]
    assert await session.entries() == before
    assert (await session.run("more")).text == "end"


async def test_what_waits_for_an_approval_is_not_compacted_away(stage: Stage) -> None:
    @tool
    async def look() -> int:
        """Look."""
        return 1

    stage.may_stay_open("s1")
    options: dict[str, Any] = {
        "tools": [look],
        "permissions": StaticPermissionPolicy([PermissionRule(verdict="ask")]),
    }
    first = stage.session([[tool_call(id="c1", name="look"), done()], END], **options)

    async with anyio.create_task_group() as group:

        async def run() -> None:
            await first.run("Hi", approvals="wait")

        group.start_soon(run)
        await anyio.sleep(1)
        second = stage.agent(END, **options).session("s1")
        with pytest.raises(SessionBusy, match="approval"):
            await second.compact(keep_recent_entries=1)
        group.cancel_scope.cancel()


async def test_another_writer_is_a_conflict_and_nothing_is_appended(stage: Stage) -> None:
    session = await talked(stage)
    other = stage.agent(END).session("s1")
    await other.run("elsewhere")
    with pytest.raises(StoreConflict):
        await session.compact(strategy=Strategy())
    (failed,) = of(CompactionFailed, stage.events(session))
    assert failed.error.code == "version_conflict"
    await session.reload()
    await session.compact(strategy=Strategy())


# By itself


async def test_auto_compaction_begins_above_the_threshold_and_not_at_it(stage: Stage) -> None:
    # Four messages, and the input makes five.
    for threshold, times in ((5, 0), (4, 1)):
        session = await talked(stage, 2, id=f"t{threshold}")
        options = CompactionOptions(threshold_entries=threshold, keep_recent_entries=1)
        await session.run("Hi", compaction=options)
        started = of(CompactionStarted, stage.events(session))
        assert [event.trigger for event in started] == ["auto"] * times


async def test_it_comes_after_the_input_and_before_the_first_request_once_a_run(
    stage: Stage,
) -> None:
    @tool
    async def look() -> int:
        """Look."""
        return 1

    rounds = [[tool_call(id=f"c{n}", name="look"), done()] for n in range(5)]
    session = stage.session(
        [END, *rounds, END],
        tools=[look],
        compaction=CompactionOptions(threshold_entries=2, keep_recent_entries=1),
    )
    await session.run("one")
    result = await session.run("two")
    kinds = types(stage.events(session))
    second = kinds.index("compaction_started")
    assert kinds[second - 1] == "agent_started"
    assert kinds[second + 1] == "compaction_finished"
    assert kinds[second + 2] == "turn_started"
    assert kinds.count("compaction_started") == 1
    entry = of(CompactionEntry, await session.entries())[0]
    assert entry.id in result.entry_ids
    assert entry.run_id == result.run_id


async def test_it_counts_what_is_in_force_and_so_not_on_every_run(stage: Stage) -> None:
    session = stage.session(
        END, compaction=CompactionOptions(threshold_entries=6, keep_recent_entries=2)
    )
    counts: list[int] = []
    for number in range(12):
        await session.run(f"{number}")
        counts.append(len(of(CompactionEntry, await session.entries())))
    # Six entries are passed by the fourth input; then the compaction and two kept ones count.
    assert counts == [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]


async def test_records_labels_and_checkouts_do_not_count(stage: Stage) -> None:
    session = await talked(stage, 1)
    for _ in range(5):
        await session.append_custom({"type": "note"})
        await session.label("x")
    await session.run("Hi", compaction=CompactionOptions(threshold_entries=3))
    assert of(CompactionStarted, stage.events(session)) == []


async def test_it_never_follows_a_compaction_at_once(stage: Stage) -> None:
    cut = [text_delta("cut"), done(stop_reason="length")]
    session = stage.session([END, END, cut, END, END])
    for number in range(3):
        await session.run(f"{number}")
    await session.compact(keep_recent_entries=4)
    await session.append_custom({"type": "note"})
    await session.checkout(session.leaf_id)
    options = CompactionOptions(threshold_entries=1, keep_recent_entries=1)
    await session.continue_(compaction=options)  # what was counted last is the compaction
    assert len(of(CompactionStarted, stage.events(session))) == 1
    await session.run("more", compaction=options)
    assert len(of(CompactionStarted, stage.events(session))) == 2


async def test_the_input_of_the_run_is_always_kept(stage: Stage) -> None:
    strategy = Strategy(keep=0)
    session = await talked(
        stage, 2, compaction=CompactionOptions(threshold_entries=1, strategy=strategy)
    )
    await session.run("keep me")
    entries = await session.entries()
    (entry,) = of(CompactionEntry, entries)
    assert entry.data is not None
    kept = next(
        item
        for item in entries
        if isinstance(item, MessageEntry) and item.message.text == "keep me"
    )
    assert strategy.contexts[0].protected_entry_ids == (kept.id,)
    assert entry.data["keepEntryIds"] == [kept.id]
    assert entry.data["own"] == 1
    assert sent(provider_of(session).requests[-1])[1:] == ["user: keep me"]


async def test_a_run_without_input_keeps_what_it_answers(stage: Stage) -> None:
    strategy = Strategy(keep=0)
    session = stage.session([END, [error("no", code="auth")], END])
    await session.run("one")
    with pytest.raises(ProviderError):
        await session.run("keep me")
    await session.continue_(compaction=CompactionOptions(threshold_entries=1, strategy=strategy))
    assert sent(provider_of(session).requests[-1])[1:] == ["user: keep me"]


async def test_a_failure_is_an_event_and_the_run_goes_on(stage: Stage) -> None:
    strategy = Strategy(change=lambda result: None)
    session = await talked(
        stage, compaction=CompactionOptions(threshold_entries=1, strategy=strategy)
    )
    assert (await session.run("Hi")).text == "end"
    (failed,) = of(CompactionFailed, stage.events(session))
    assert (failed.trigger, failed.error.code) == ("auto", "nothing_to_compact")
    assert failed.run_id is not None


async def test_compaction_false_turns_it_off_for_a_run(stage: Stage) -> None:
    session = await talked(stage, compaction=CompactionOptions(threshold_entries=1))
    await session.run("Hi", compaction=False)
    assert of(CompactionStarted, stage.events(session)) == []


async def test_a_runs_options_are_over_the_agents(stage: Stage) -> None:
    strategy = Strategy()
    session = await talked(
        stage,
        compaction=CompactionOptions(strategy=strategy, metadata={"k": 1}, secrets=["a"]),
    )
    await session.run(
        "Hi", compaction=CompactionOptions(threshold_entries=1, secrets=["b"], instructions="x")
    )
    (context,) = strategy.contexts
    assert (context.metadata, context.instructions) == ({"k": 1}, "x")
    assert set(context.secrets) == {"a", "b"}


async def test_a_compaction_never_stands_between_a_call_and_its_result(stage: Stage) -> None:
    @tool
    async def look() -> int:
        """Look."""
        return 1

    session = stage.session(
        [END, END, [tool_call(id="c1", name="look"), done()], END, END],
        tools=[look],
        permissions=StaticPermissionPolicy([PermissionRule(verdict="ask")]),
        compaction=CompactionOptions(threshold_entries=2, keep_recent_entries=1),
    )
    await session.run("one", compaction=False)
    await session.run("two", compaction=False)
    forks: list[Session] = []
    async with anyio.create_task_group() as group:

        async def run() -> None:
            await session.run("three", approvals="wait", compaction=False)

        group.start_soon(run)
        await anyio.sleep(1)
        forks.append(stage.watch(await session.fork(id="fork")))
        (key,) = (await session.state()).pending_approvals
        await session.answer_approval(key, "denied")
    (fork,) = forks
    (key,) = (await fork.state()).pending_approvals
    await fork.answer_approval(key, "allowed")
    result = await fork.continue_()
    assert result.status == "completed"
    kinds = [type(entry).__name__ for entry in await fork.entries()]
    assert "CompactionEntry" in kinds


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold_entries": 0},
        {"threshold_entries": True},
        {"threshold_entries": 2.0},
        {"on_overflow": "explode"},
        {"strategy": object()},
        {"secrets": "abc"},
        {"nonsense": 1},
        {"keep_recent_entries": 0},
        {"max_summary_chars": -1},
    ],
)
async def test_wrong_options_are_refused(stage: Stage, wrong: dict[str, Any]) -> None:
    session = await talked(stage)
    before = await session.entries()
    with pytest.raises(UsageError):
        await session.compact(**wrong)
    assert await session.entries() == before
    assert (await session.state()).status == "idle"


async def test_a_hundred_compactions_keep_every_message_visible_or_covered(stage: Stage) -> None:
    session = stage.session(
        END, compaction=CompactionOptions(threshold_entries=3, keep_recent_entries=2)
    )
    for number in range(60):
        await session.run(f"word{number}")
        await checkpoint()
    compactions = of(CompactionEntry, await session.entries())
    assert len(compactions) > 40
    request = sent(provider_of(session).requests[-1])
    assert request[-1] == "user: word59"
    assert len(request) <= 5
