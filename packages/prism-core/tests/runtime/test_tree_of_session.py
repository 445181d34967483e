"""Forks, clones, the leaf, records of the host's own, and two writers on one session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from prism.core import (
    AgentFinished,
    CustomEntry,
    EncodeError,
    ErrorEvent,
    LabelEntry,
    LeafMoved,
    MessageEntry,
    MetadataEntry,
    ModelConfig,
    SecretRedactor,
    Session,
    SessionEntry,
    SessionExists,
    StoreConflict,
    StoreError,
    UsageError,
    Warned,
    tool,
)
from prism.core._contracts import SessionStore, StoredEntry
from prism.core.providers import delay, done, text_delta, tool_call
from prism.core.stores import JsonlSessionStore, MemorySessionStore

from .harness import Stage, WatchedStore, in_asyncio, of, provider_of, said, sent, ticks

END = [text_delta("end"), done()]


async def talked(stage: Stage, runs: int = 2, **options: Any) -> Session:
    session = stage.session(END, **options)
    for number in range(runs):
        await session.run(f"{number}")
    return session


async def ids(session: Session) -> list[str]:
    return [entry.id for entry in await session.entries()]


# The leaf


async def test_checkout_stands_at_an_entry_also_after_reopening(stage: Stage) -> None:
    session = await talked(stage)
    path = await ids(session)
    await session.checkout(path[1])
    assert await ids(session) == path[:2]
    assert (await session.state()).leaf_id == path[1]
    marker = stage.store.entries_of["s1"][-1]
    assert isinstance(marker, MetadataEntry)
    assert (marker.data, marker.parent_id) == ({"type": "leaf", "leafId": path[1]}, path[1])

    again = stage.session(END)
    assert await ids(again) == path[:2]
    await again.run("other")
    assert said(await again.entries()) == [
        "user: 0",
        "assistant: end",
        "user: other",
        "assistant: end",
    ]
    assert sent(provider_of(again).requests[0]) == ["user: 0", "assistant: end", "user: other"]
    branches = await again.branches()
    assert [branch.leaf_id for branch in branches] == [path[-1], again.leaf_id]
    assert marker.id not in [node.id for node in await again.tree()]


async def test_checkout_of_the_empty_root_begins_anew(stage: Stage) -> None:
    session = await talked(stage)
    await session.checkout(None)
    assert await session.entries() == []
    assert "leafId" not in (stage.store.entries_of["s1"][-1].data or {})  # type: ignore[union-attr]
    again = stage.session(END)
    assert await again.entries() == []
    await again.run("first again")
    assert said(await again.entries()) == ["user: first again", "assistant: end"]


async def test_checkout_of_nothing_known_is_refused(stage: Stage) -> None:
    session = await talked(stage)
    before = len(stage.store.entries_of["s1"])
    with pytest.raises(UsageError) as caught:
        await session.checkout("nowhere")
    assert caught.value.code == "entry_not_found"
    assert len(stage.store.entries_of["s1"]) == before


async def test_the_model_follows_the_branch(stage: Stage) -> None:
    big = ModelConfig(provider="mock", model="big")
    session = await talked(stage, 1)
    root = session.leaf_id
    await session.run("big one", model=big, thinking_level="high")
    assert (await session.state()).model == big
    big_leaf = session.leaf_id
    await session.checkout(root)
    state = await session.state()
    assert (state.model.model, state.thinking_level) == ("m", None)
    await session.run("small one")
    assert provider_of(session).requests[-1].model.model == "m"
    for back in (session, stage.session(END)):
        await back.checkout(big_leaf)
        state = await back.state()
        assert (state.model, state.thinking_level) == (big, "high")
    await session.reload()
    await session.run("big again")
    assert provider_of(session).requests[-1].model == big


async def test_labels_name_entries_and_are_cleared(stage: Stage) -> None:
    session = await talked(stage)
    path = await ids(session)
    first = await session.label("start", target_id=path[0])
    assert first.parent_id == path[-1]
    assert session.leaf_id == first.id
    await session.label("here")
    labels = {node.id: node.label for node in await session.tree()}
    assert labels[path[0]] == "start"
    assert labels[path[-1]] == "here"  # a label is no place of its own
    assert labels[first.id] is None
    await session.label(None, target_id=path[0])
    assert {node.id: node.label for node in await session.tree()}[path[0]] is None
    for wrong in ("nowhere", ""):
        with pytest.raises(UsageError) as caught:
            await session.label("x", target_id=wrong)
        assert caught.value.code == "entry_not_found"
    with pytest.raises(UsageError):
        await session.label(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        await stage.session(END, id="empty").label("x")


async def test_a_label_holds_no_secret(stage: Stage) -> None:
    session = await talked(stage, 1, redactor=SecretRedactor(["hunter2"]))
    assert (await session.label("hunter2")).label == "[REDACTED]"


# Records


async def test_records_go_under_the_leaf_also_during_a_run_and_are_never_sent(
    stage: Stage,
) -> None:
    session = stage.session([[text_delta("a"), delay(100), done()], END])
    entries: list[CustomEntry] = []
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Hi")
        await anyio.sleep(0.05)
        entries.append(await session.append_custom({"type": "note", "n": 1}))
    path = await session.entries()
    assert [type(item).__name__ for item in path] == ["MessageEntry", "CustomEntry", "MessageEntry"]
    assert path[1] == entries[0]
    assert path[2].parent_id == entries[0].id
    await session.run("And?")
    assert sent(provider_of(session).requests[1]) == ["user: Hi", "assistant: a", "user: And?"]


async def test_a_record_can_insist_on_its_branch(stage: Stage) -> None:
    session = await talked(stage)
    path = await ids(session)
    await session.append_custom({"type": "x"}, require_on_path=[path[3]])
    await session.checkout(path[1])
    with pytest.raises(LeafMoved) as caught:
        await session.append_custom({"type": "x"}, require_on_path=[path[0], path[3]])
    assert caught.value.code == "leaf_moved"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"type": ""},
        {"type": 3},
        {"type": "x", "n": float("nan")},
        {"type": "x", "o": object()},
        [],
    ],
    ids=range(6),
)
async def test_a_record_that_is_none_is_refused(stage: Stage, wrong: Any) -> None:
    session = await talked(stage, 1)
    before = len(await session.entries())
    with pytest.raises((UsageError, EncodeError)):
        await session.append_custom(wrong)
    assert len(await session.entries()) == before


async def test_a_record_is_a_copy_without_secrets(stage: Stage) -> None:
    session = await talked(stage, 1, redactor=SecretRedactor(["hunter2"]))
    data = {"type": "x", "list": ["hunter2"]}
    entry = await session.append_custom(data)
    data["list"] = []
    assert entry.data == {"type": "x", "list": ["[REDACTED]"]}


async def test_records_from_many_tasks_are_one_path(stage: Stage) -> None:
    session = Stage(suspend=True).session([[text_delta("a"), delay(100), done()]])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Hi")
        for number in range(20):
            group.start_soon(session.append_custom, {"type": "note", "n": number})
    path = await session.entries()
    assert len(path) == 22
    assert len(of(CustomEntry, path)) == 20


@pytest.mark.parametrize("what", ["reload", "checkout"])
async def test_a_record_that_comes_while_the_session_is_read_is_not_lost(what: str) -> None:
    for steps in range(8):
        stage = Stage()
        session = await talked(stage)
        stage.store.slow_reads = True
        async with anyio.create_task_group() as group:
            if what == "reload":
                group.start_soon(session.reload)
            else:
                group.start_soon(session.checkout, session.leaf_id)
            await ticks(steps)
            await session.append_custom({"type": "note"})
        assert len(of(CustomEntry, stage.store.entries_of["s1"])) == 1
        if what == "reload":
            assert len(of(CustomEntry, await session.entries())) == 1
        await session.run("still works")
        assert await ids(stage.agent(END).session("s1")) == await ids(session)
        stage.finish()


@pytest.mark.parametrize("what", ["custom", "label", "checkout"])
async def test_a_cancellation_does_not_cut_an_append_in_two(what: str) -> None:
    """The store and the session agree also when the caller was cancelled, natively too."""
    for native in (False, True):
        for steps in range(12):
            stage = Stage(suspend=True)
            session = stage.session(END)
            await session.run("Hi")
            calls: dict[str, Callable[[], Any]] = {
                "custom": lambda: session.append_custom({"type": "x"}),  # noqa: B023
                "label": lambda: session.label("x"),  # noqa: B023
                "checkout": lambda: session.checkout(None),  # noqa: B023
            }
            if native and in_asyncio():
                import asyncio  # noqa: TID251 - a native cancel is what is tested

                task = asyncio.ensure_future(calls[what]())
                for _ in range(steps):
                    await checkpoint()
                task.cancel()
                await asyncio.wait([task])
            else:
                async with anyio.create_task_group() as group:
                    group.start_soon(calls[what])
                    for _ in range(steps):
                        await checkpoint()
                    group.cancel_scope.cancel()
            await session.run("still works")
            reopened = stage.agent(END).session("s1")
            assert await ids(reopened) == await ids(session)
            stage.finish()


# Forks and clones


async def test_a_fork_holds_the_path_and_its_labels_under_the_same_ids(stage: Stage) -> None:
    session = await talked(stage)
    path = await ids(session)
    await session.label("kept", target_id=path[0])
    await session.label("off", target_id=path[3])
    source = await session.agent.store.entries("s1")
    fork = stage.watch(await session.fork(path[1], id="f1"))
    assert await ids(fork) == path[:2]
    assert fork.id == "f1"
    labels = {node.id: node.label for node in await fork.tree() if node.label}
    assert labels == {path[0]: "kept"}
    assert {entry.session_id for entry in await fork.entries()} == {"f1"}
    await fork.run("elsewhere")
    assert said(await fork.entries()) == [
        "user: 0",
        "assistant: end",
        "user: elsewhere",
        "assistant: end",
    ]
    assert await session.agent.store.entries("s1") == source


async def test_a_fork_without_a_leaf_is_of_the_current_one(stage: Stage) -> None:
    session = await talked(stage)
    fork = await session.fork()
    assert fork.id.startswith("session_")
    assert await ids(fork) == await ids(session)


async def test_a_clone_holds_every_entry_and_stands_where_it_is_told(stage: Stage) -> None:
    session = await talked(stage)
    path = await ids(session)
    await session.checkout(path[1])
    await session.run("other branch")
    await session.label("left", target_id=path[3])
    source = await session.agent.store.entries("s1")
    clone = stage.watch(await session.clone(id="c1"))
    assert await ids(clone) == await ids(session)
    assert {node.id: node.label for node in await clone.tree() if node.label} == {path[3]: "left"}
    assert [branch.leaf_id for branch in await clone.branches()] == [
        branch.leaf_id for branch in await session.branches()
    ]
    elsewhere = await session.clone(id="c2", leaf_id=path[3])
    assert await ids(elsewhere) == path
    await clone.run("in the clone alone")
    assert await session.agent.store.entries("s1") == source
    await session.checkout(None)
    root = await session.clone(id="c3")
    assert await root.entries() == []
    assert len(await root.tree()) == len(await session.tree())


@pytest.mark.parametrize("how", ["fork", "clone"])
async def test_an_id_that_is_taken_is_refused(stage: Stage, how: str) -> None:
    session = await talked(stage)
    await talked(stage, 1, id="taken")
    empty = stage.session(END, id="empty")

    async def copy(source: Session, key: str) -> Session:
        return await (source.fork(id=key) if how == "fork" else source.clone(id=key))

    for source, key in ((session, "taken"), (session, "s1"), (empty, "taken")):
        with pytest.raises(SessionExists) as caught:
            await copy(source, key)
        assert caught.value.code == "session_exists"
    await copy(session, "new")
    with pytest.raises(SessionExists):
        await copy(session, "new")  # also when it would hold the very same entries
    with pytest.raises(UsageError):
        await copy(session, "")


@pytest.mark.parametrize("how", ["fork", "clone"])
async def test_an_unknown_leaf_is_refused(stage: Stage, how: str) -> None:
    session = await talked(stage)
    with pytest.raises(UsageError) as caught:
        await (session.fork("nowhere") if how == "fork" else session.clone(leaf_id="nowhere"))
    assert caught.value.code == "entry_not_found"


@pytest.mark.parametrize("how", ["fork", "clone"])
async def test_a_copy_during_a_run_holds_what_is_stored_and_can_go_on(
    stage: Stage, how: str
) -> None:
    @tool
    async def nap() -> None:
        """Sleep."""
        await anyio.sleep(1)

    stage.may_stay_open("copy")
    copies: list[Session] = []
    session = stage.session([[tool_call(id="c1", name="nap"), done()], END, END], tools=[nap])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Hi")
        await anyio.sleep(0.5)
        made = await (session.fork(id="copy") if how == "fork" else session.clone(id="copy"))
        copies.append(stage.watch(made))
        await made.run("Already?")
    (copy,) = copies
    assert said(await copy.entries()) == [
        "user: Hi",
        "assistant: [c1]",
        "user: Already?",
        "assistant: end",
    ]
    assert sent(provider_of(copy).requests[1]) == [
        "user: Hi",
        "assistant: [c1]",
        "tool: c1 interrupted",
        "user: Already?",
    ]
    assert said(await session.entries())[-1] == "assistant: end"


# Two writers


@pytest.fixture(params=["memory", "jsonl"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], WatchedStore]:
    """Opens one session directory, or one store, for another writer."""
    memory = MemorySessionStore()

    def open_store() -> WatchedStore:
        inner: SessionStore = memory
        if request.param == "jsonl":
            inner = JsonlSessionStore(tmp_path)
        return WatchedStore(inner)

    return open_store


async def test_the_second_writer_gets_a_conflict_reloads_and_nothing_is_lost(
    stage: Stage, shared: Callable[[], WatchedStore]
) -> None:
    one = stage.session(END, store=shared())
    two = stage.session(END, store=shared())
    await one.run("one")
    await two.run("two")  # it is read at its first use
    with pytest.raises(StoreConflict) as caught:
        await one.run("three")
    assert caught.value.code == "version_conflict"
    assert provider_of(one).requests[1:] == []
    (told,) = of(ErrorEvent, stage.events(one))
    assert told.error.code == "version_conflict"
    assert of(AgentFinished, stage.events(one))[-1].status == "failed"
    for refused in (
        one.append_custom({"type": "x"}),
        one.label("x"),
        one.checkout(None),
    ):
        with pytest.raises(StoreConflict):
            await refused
    await one.reload()
    await one.run("three")
    assert said(await one.entries()) == [
        "user: one",
        "assistant: end",
        "user: two",
        "assistant: end",
        "user: three",
        "assistant: end",
    ]
    assert sent(provider_of(one).requests[-1])[:3] == ["user: one", "assistant: end", "user: two"]
    await two.reload()
    assert await ids(two) == await ids(one)


async def test_a_writer_that_comes_between_a_call_and_its_result_hides_nothing(
    stage: Stage, shared: Callable[[], WatchedStore]
) -> None:
    @tool
    async def nap() -> None:
        """Sleep."""
        await anyio.sleep(1)

    stage.may_stay_open("s1")
    one = stage.session(
        [[tool_call(id="c1", name="nap"), done()], END], tools=[nap], store=shared()
    )
    two = stage.session(END, store=shared())

    async def run() -> None:
        with pytest.raises(StoreConflict):
            await one.run("one")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.5)
        await two.run("two")
    assert of(AgentFinished, stage.events(one))[-1].status == "failed"
    await one.reload()
    assert said(await one.entries()) == [
        "user: one",
        "assistant: [c1]",
        "user: two",
        "assistant: end",
    ]
    await one.run("three")
    assert sent(provider_of(one).requests[-1]) == [
        "user: one",
        "assistant: [c1]",
        "tool: c1 interrupted",
        "user: two",
        "assistant: end",
        "user: three",
    ]


async def test_a_store_that_fails_leaves_the_session_as_it_was(stage: Stage) -> None:
    session = await talked(stage, 1)
    before = await ids(session)

    def fail(entries: Any) -> None:
        raise StoreError("the disk is full", code="disk_full")

    stage.store.before_append = fail
    with pytest.raises(StoreError, match="disk is full"):
        await session.run("more")
    assert await ids(session) == before
    stage.store.before_append = lambda _: None
    await session.run("again")
    assert said(await session.entries())[2:] == ["user: again", "assistant: end"]


async def test_a_store_that_fails_in_the_middle_still_gives_every_event_its_end(
    stage: Stage,
) -> None:
    @tool
    async def look() -> int:
        """Look."""
        return 1

    for nth in range(2, 6):
        inner = Stage()
        inner.may_stay_open("s1")
        session = inner.session(
            [[text_delta("a"), tool_call(id="c1", name="look"), done()], END, END, END],
            tools=[look],
        )
        count = 0

        def fail(entries: Any, nth: int = nth) -> None:
            nonlocal count
            count += 1
            if count >= nth:
                raise StoreError("the disk is full")

        inner.store.before_append = fail
        if nth < 5:
            with pytest.raises(StoreError):
                await session.run("Hi")
        else:
            await session.run("Hi")
        inner.store.before_append = lambda _: None
        await session.run("And?")
        inner.finish()


async def test_what_was_read_is_what_was_written_with_every_kind_of_text(
    stage: Stage, shared: Callable[[], WatchedStore]
) -> None:
    hostile = "nul \0 half \ud83d line \u2028 😀"
    one = stage.session([text_delta(hostile), done()], store=shared())
    await one.run(hostile)
    two = stage.session(END, store=shared())
    messages = [entry.message.text for entry in of(MessageEntry, await two.entries())]
    assert messages == [hostile, hostile]
    assert of(LabelEntry, await two.entries()) == []


async def test_a_history_with_a_hole_or_a_compaction_that_says_nothing_is_told_and_used(
    stage: Stage,
) -> None:
    session = await talked(stage, 3)
    compacted = await session.compact(keep_recent_entries=2)
    assert compacted.entries
    entries = [item.entry for item in await stage.store.inner.entries("s1")]

    class Holed(MemorySessionStore):
        """A store whose first entries are gone."""

        def __init__(self, gone: int) -> None:
            super().__init__()
            self.gone = gone

        async def iter_entries(
            self, session_id: str, *, after: int = 0
        ) -> AsyncIterator[StoredEntry]:
            for position, entry in enumerate(entries[self.gone :], 1):
                yield StoredEntry(position=position, entry=entry, raw=b"{}")

        def append_nowait(
            self,
            session_id: str,
            entries: Sequence[SessionEntry],
            *,
            expected_version: int | None = None,
        ) -> int:
            return 1

    for gone, codes in ((1, ["missing_parent"]), (5, ["missing_parent", "invalid_compaction"])):
        holed = stage.agent(END, store=Holed(gone)).session("s1")
        async with holed.subscribe() as events:
            await holed.run("Hi")
            await holed.aclose()
            warned = [event.code async for event in events if isinstance(event, Warned)]
        assert warned == codes
        assert sent(provider_of(holed).requests[0])[-1] == "user: Hi"
