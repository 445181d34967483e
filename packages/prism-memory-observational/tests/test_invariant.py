"""What holds after anything, in any order: fuzzed on two stores."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from prism.core import (
    CompactionEntry,
    MessageEntry,
    NothingToCompact,
    SessionEntry,
    Tool,
    encode,
    rebuild_session_context,
)
from prism.core.compaction import (
    CompactionResult,
    DefaultCompactionStrategy,
    latest_compaction,
)
from prism.core.providers import MockProvider, ProviderRequest, done, error, text_delta, tool_call
from prism.core.stores import MemorySessionStore, SqliteSessionStore
from prism.memory.observational import (
    FlushResult,
    MemoryHooks,
    ObservationalCompactionStrategy,
    build_projection,
    drops_record,
    fold_ledger,
    is_memory_id,
    is_source,
    make_observation,
    observations_record,
    supersession_record,
)

from .workers import (
    STOP,
    Workers,
    entry_ids,
    is_first,
    memory_of,
    note,
    note_each,
    observe,
    session_of,
)


def talk(request: ProviderRequest) -> Iterable[Any]:
    """A model that calls a tool when it is told to."""
    last = request.messages[-1]
    if last.role == "user" and "call" in last.text:
        number = len(request.messages)
        return [
            text_delta("I look."),
            tool_call(id=f"a{number}", name="look", arguments={"at": "x"}),
            tool_call(id=f"b{number}", name="look", arguments={"at": "y"}),
            done(),
        ]
    return [text_delta("I see."), done()]


LOOK = Tool(name="look", execute=lambda _arguments, _context: "seen", validate=dict)


def lossy(request: ProviderRequest) -> list[Any]:
    """Notes every other message, the newest first, and then claims that there is no more."""
    if not is_first(request):
        return STOP
    return observe(*(note(f"saw {key}", key) for key in reversed(entry_ids(request)[::2])))


def half(request: ProviderRequest) -> list[Any]:
    """Notes the first message, names one that is none, and breaks off."""
    if not is_first(request):
        return [error("gone", code="not_found")]
    return observe(note("first", entry_ids(request)[0]), note("bad", "entry_none"))


def broken_off(request: ProviderRequest) -> list[Any]:
    """Notes the second message, and fails."""
    if not is_first(request):
        return [error("gone", code="not_found")]
    return observe(note("second", entry_ids(request)[:2][-1]))


COVERING: dict[str, Any] = {
    "perfect": note_each,
    "lossy": lossy,
    "half": half,
    "broken off": broken_off,
    "nothing": [observe(), STOP],
}
FAILING: dict[str, Any] = {
    "prose": [[text_delta("All is well."), done()]],
    "bad ids": [observe(note("x", "entry_none")), STOP],
    "error": [[error("no", code="auth")]],
    "raises": [[ValueError("a bug")]],
}


def summary_of(entries: list[SessionEntry], through: str | None = None) -> bytes:
    """All of a fold that is data, as bytes."""
    ledger = fold_ledger(entries, through_entry_id=through)
    return encode(
        {
            "observations": list(ledger.observations),
            "reflections": list(ledger.reflections),
            "dropped": list(ledger.dropped_ids),
            "superseded": dict(ledger.superseded),
            "frontiers": [ledger.observed, ledger.reflected, ledger.dropped],
            "problems": [ledger.malformed, ledger.unsupported, list(ledger.dangling)],
        }
    )


class MemoryMachine(RuleBasedStateMachine):
    """Appends, drops, compactions, branch switches, crashes and failing workers."""

    sqlite = False

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self.portal = self._stack.enter_context(start_blocking_portal())
        if self.sqlite:
            directory = self._stack.enter_context(tempfile.TemporaryDirectory())
            self.store: Any = SqliteSessionStore(Path(directory) / "s.db")
        else:
            self.store = MemorySessionStore()
        self.folds: dict[str, bytes] = {}
        self.open()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.portal.call(function, *args)

    def open(self) -> None:
        self.session = session_of(self.store, provider=MockProvider(talk), tools=[LOOK])

    def entries(self) -> list[SessionEntry]:
        found: list[SessionEntry] = self.call(self.session.entries)
        return found

    def append(self, data: dict[str, Any]) -> None:
        self.call(self.session.append_custom, data)

    def teardown(self) -> None:
        self.call(self.store.aclose)
        self._stack.close()

    @initialize()
    def begin(self) -> None:
        self.say(turns=1, calls=False)

    @rule(turns=st.integers(1, 4), calls=st.booleans())
    def say(self, *, turns: int, calls: bool) -> None:
        for _ in range(turns):
            self.call(self.session.run, "call it" if calls else "say it")

    def flush(self, script: Any, **options: Any) -> FlushResult:
        memory = memory_of(
            self.session,
            Workers(script),
            reflect_after_tokens=200,
            observations_pool_max_tokens=400,
            observations_pool_target_tokens=200,
            **options,
        )
        result: FlushResult = self.call(memory.flush)
        return result

    @rule(kind=st.sampled_from(sorted(COVERING)), cap=st.sampled_from([None, 256]))
    def observe(self, kind: str, cap: int | None) -> None:
        before = fold_ledger(self.entries()).observed
        options = {} if cap is None else {"observer_chunk_max_tokens": cap}
        result = self.flush(COVERING[kind], **options)
        after = fold_ledger(self.entries()).observed
        assert after.place >= before.place
        if result.observer.status == "recorded":
            assert after.place > before.place

    @rule(kind=st.sampled_from(sorted(FAILING)))
    def fail(self, kind: str) -> None:
        before = fold_ledger(self.entries()).observed
        result = self.flush(FAILING[kind])
        assert result.observer.status in {"failed", "not_due"}
        assert fold_ledger(self.entries()).observed == before

    @rule(at=st.integers(0, 1_000))
    def move_while_observing(self, at: int) -> None:
        entries = self.entries()
        target = entries[at % len(entries)].id

        async def move(_output: Any) -> None:
            if self.session.leaf_id != target:
                await self.session.checkout(target)

        self.flush(note_each, hooks=MemoryHooks(after=move))

    @rule(keep=st.integers(1, 4), limit=st.sampled_from([150, 400, 20_000]))
    def compact(self, keep: int, limit: int) -> None:
        strategy = ObservationalCompactionStrategy(
            keep_recent_entries=keep, observations_pool_max_tokens=limit
        )
        self.try_compact(strategy)

    @rule()
    def compact_otherwise(self) -> None:
        self.try_compact(DefaultCompactionStrategy(keep_recent_entries=2))

    def try_compact(self, strategy: Any) -> None:
        async def work() -> Any:
            try:
                return await self.session.compact(strategy=strategy)
            except NothingToCompact:
                return None

        before = [
            entry
            for entry in self.entries()
            if isinstance(entry, CompactionEntry) and "memory" in (entry.data or {})
        ]
        result: CompactionResult | None = self.call(work)
        if result is None:
            return
        memory: Any = (result.entries[0].data or {}).get("memory")
        if memory is not None and not memory["fullFold"] and before:
            assert result.summary.startswith(before[-1].summary)

    @rule(at=st.integers(0, 1_000))
    def drop(self, at: int) -> None:
        ledger = fold_ledger(self.entries())
        if ledger.observations:
            one = ledger.observations[at % len(ledger.observations)]
            self.append(drops_record([one.id, "aaaaaaaaaaaa"], ledger.observed.entry_id or "none"))

    @rule(at=st.integers(0, 1_000))
    def supersede(self, at: int) -> None:
        ledger = fold_ledger(self.entries())
        if ledger.reflections:
            one = ledger.reflections[at % len(ledger.reflections)]
            self.append(supersession_record([one.id], ledger.observed.entry_id or "none"))

    @rule(
        bad=st.sampled_from([None, {}, {"id": "x", "sourceEntryIds": ["none"]}, "first"]),
        marker=st.sampled_from(["last", "none", 3]),
    )
    def append_something_bad(self, bad: Any, marker: Any) -> None:
        messages = [entry for entry in self.entries() if isinstance(entry, MessageEntry)]
        if not messages:
            return
        one = make_observation(
            content="by hand",
            timestamp=messages[-1].timestamp,
            relevance="low",
            source_entry_ids=[messages[-1].id],
        )
        data = observations_record([one], "x")
        if bad == "first":
            bad = {"id": "y", "sourceEntryIds": [messages[0].id]}
        data["observations"].append(bad)
        data["coversUpToId"] = messages[-1].id if marker == "last" else marker
        self.append(data)

    @rule(at=st.integers(0, 1_000))
    def switch(self, at: int) -> None:
        tree = self.call(self.session.tree)
        self.call(self.session.checkout, tree[at % len(tree)].id)

    @rule()
    def crash(self) -> None:
        self.open()

    @invariant()
    def ids_are_unique_per_kind(self) -> None:
        ledger = fold_ledger(self.entries())
        observations = [one.id for one in ledger.observations]
        reflections = [one.id for one in ledger.reflections]
        assert len(set(observations + reflections)) == len(observations) + len(reflections)
        assert all(is_memory_id(one) for one in observations + reflections)

    @invariant()
    def every_source_is_raw_covered_or_reported(self) -> None:
        entries = self.entries()
        compacted = latest_compaction(entries)
        if compacted is None:
            return
        data = compacted.entry.data or {}
        if "memory" not in data:
            return  # another strategy's summary covers all that is not raw
        reported = set(data.get("uncoveredEntryIds") or ())
        observed = fold_ledger(entries).observed.place
        for place, entry in enumerate(entries):
            raw = place > compacted.through or place in compacted.keep
            assert not is_source(entry) or raw or place <= observed or entry.id in reported

    @invariant()
    def what_is_visible_was_recorded(self) -> None:
        entries = self.entries()
        found = build_projection(entries)
        if found.visible is not None:
            ledger = found.ledger
            assert {one.id for one in found.visible.observations} <= set(ledger.observations_by_id)
            assert {one.id for one in found.visible.reflections} <= set(ledger.reflections_by_id)

    @invariant()
    def the_fold_of_a_prefix_never_changes(self) -> None:
        entries = self.entries()
        for entry in entries:
            if entry.id in self.folds:
                assert summary_of(entries, entry.id) == self.folds[entry.id]
        if entries:
            self.folds.setdefault(entries[-1].id, summary_of(entries))

    @invariant()
    def the_model_has_a_context(self) -> None:
        context = rebuild_session_context(self.entries())
        assert all(summary.strip() for summary in context.summaries)


class SqliteMachine(MemoryMachine):
    """The same on a file."""

    sqlite = True


TestInMemory = MemoryMachine.TestCase
TestInMemory.settings = settings(max_examples=40, stateful_step_count=25)
TestOnSqlite = SqliteMachine.TestCase
TestOnSqlite.settings = settings(max_examples=10, stateful_step_count=20)
