"""What runtime tests are made of: watched sessions, suspending stores, virtual time, steps.

A `Stage` makes agents whose ids and timestamps are the same each time, and sessions whose every
event is fed to the law checker at the moment it is emitted, against the ids that are stored at
that moment. When a test ends, the stores are checked too.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - its clock and its scheduler are what this controls
import selectors
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import Context
from typing import Any, Self, TypeVar

import anyio
import trio
from anyio.lowlevel import checkpoint

from prism.core import (
    Agent,
    AgentEvent,
    ModelConfig,
    OpaqueEntry,
    RunStream,
    Session,
    SessionEntry,
    Subscription,
    decode_entry,
    event_type,
)
from prism.core._contracts import ProviderRequest, SessionInfo, SessionStore, StoredEntry
from prism.core._support.branch import branch_entries
from prism.core._wire import (
    CustomEntry,
    LabelEntry,
    Message,
    MessageEntry,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.providers import MockProvider, ProviderRegistry
from prism.core.stores import MemorySessionStore
from prism.core.testing import EventLaws

E = TypeVar("E")

MODEL = ModelConfig(provider="mock", model="m")


class Ids:
    """`prefix_1`, `prefix_2` …"""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __call__(self, prefix: str) -> str:
        self._counts[prefix] += 1
        return f"{prefix}_{self._counts[prefix]}"


class Clock:
    """One millisecond later each time it is read."""

    def __init__(self) -> None:
        self._now_ms = 1_800_000_000_000

    def __call__(self) -> float:
        self._now_ms += 1
        return self._now_ms / 1000


class WatchedStore:
    """A store that knows what it holds at any moment, and can wait or fail on demand.

    Args:
        inner: Who stores.
        suspend: Wait before and after each append and at each read, as a store with a thread does.

    Attributes:
        ids: Of what is stored, by session.
        entries_of: The entries, by session, in append order.
        before_append: Called with each batch before it is stored; what it raises, `append` raises.
        slow_reads: Wait at each read, and not when something is appended.
    """

    def __init__(self, inner: SessionStore | None = None, *, suspend: bool = False) -> None:
        self.inner: Any = MemorySessionStore() if inner is None else inner
        self.suspend = suspend
        self.ids: dict[str, set[str]] = {}
        self.entries_of: dict[str, list[SessionEntry]] = {}
        self.slow_reads = suspend
        self.before_append: Callable[[Sequence[SessionEntry]], None] = lambda _: None

    def _note(self, session_id: str, entries: Sequence[SessionEntry]) -> None:
        known = self.ids.setdefault(session_id, set())
        kept = self.entries_of.setdefault(session_id, [])
        for entry in entries:
            if entry.id not in known:
                # Copies are appended as the JSON text that they are in the source.
                kept.append(decode_entry(entry.raw) if isinstance(entry, OpaqueEntry) else entry)
        known.update(entry.id for entry in entries)

    async def append(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int:
        if self.suspend:
            await checkpoint()
        self.before_append(entries)
        version: int = await self.inner.append(
            session_id, entries, expected_version=expected_version
        )
        self._note(session_id, entries)
        if self.suspend:
            await checkpoint()
        return version

    def append_nowait(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int | None:
        if self.suspend:
            return None
        self.before_append(entries)
        version: int | None = self.inner.append_nowait(
            session_id, entries, expected_version=expected_version
        )
        if version is not None:
            self._note(session_id, entries)
        return version

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[StoredEntry]:
        if self.slow_reads:
            await checkpoint()
        found: list[StoredEntry] = await self.inner.entries(session_id, after=after, limit=limit)
        if self.slow_reads:
            await checkpoint()
        return found

    async def iter_entries(self, session_id: str, *, after: int = 0) -> AsyncIterator[StoredEntry]:
        for stored in await self.entries(session_id, after=after):
            self._note(session_id, [stored.entry])
            yield stored

    async def entry(self, session_id: str, entry_id: str) -> StoredEntry | None:
        found: StoredEntry | None = await self.inner.entry(session_id, entry_id)
        return found

    async def sessions(self) -> list[SessionInfo]:
        found: list[SessionInfo] = await self.inner.sessions()
        return found

    async def aclose(self) -> None:
        await self.inner.aclose()


class Watch(Subscription):
    """A reader that checks each event while it is emitted, and keeps them all.

    What it finds wrong is raised when the test ends: raised at once, the run would swallow it.
    """

    def __init__(self, secrets: Sequence[str], stored_ids: set[str]) -> None:
        super().__init__()
        self.laws = EventLaws(secrets=secrets, stored_ids=stored_ids)
        self.events: list[AgentEvent] = []
        self.broken: AssertionError | None = None

    def push(self, event: AgentEvent) -> None:
        self.events.append(event)
        if self.broken is None:
            try:
                self.laws.feed(event)
            except AssertionError as error:
                self.broken = error

    def finish(self) -> None:
        if self.broken is not None:
            raise self.broken
        self.laws.close()


class Stage:
    """Makes what a test needs, and checks it all at the end.

    Attributes:
        store: Where the sessions of its agents live, unless they are given another store.
    """

    def __init__(self, *, suspend: bool = False) -> None:
        self.ids = Ids()
        self.clock = Clock()
        self.store = WatchedStore(suspend=suspend)
        self._watches: list[tuple[Session, Watch]] = []
        self._stores: dict[int, WatchedStore] = {}
        self._may_be_open: set[str] = set()

    def agent(self, provider: Any = None, **options: Any) -> Agent:
        """An agent; *provider* may also be the script of a `MockProvider`."""
        if not isinstance(provider, ProviderRegistry) and not hasattr(provider, "id"):
            provider = MockProvider(provider)
        options.setdefault("model", MODEL)
        options.setdefault("store", self.store)
        options.setdefault("id_maker", self.ids)
        options.setdefault("clock", self.clock)
        return Agent(provider=provider, **options)

    def session(
        self,
        provider: Any = None,
        *,
        id: str = "s1",  # noqa: A002
        secrets: Sequence[str] = (),
        **options: Any,
    ) -> Session:
        """A watched session of a new agent."""
        agent = provider if isinstance(provider, Agent) else self.agent(provider, **options)
        return self.watch(agent.session(id), secrets=secrets)

    def watch(self, session: Session, *, secrets: Sequence[str] = ()) -> Session:
        """Check every event of *session* from here on."""
        store = session.agent.store
        assert isinstance(store, WatchedStore)
        self._stores[id(store)] = store
        watch = Watch(secrets, store.ids.setdefault(session.id, set()))
        session.broadcast.readers.append(watch)
        self._watches.append((session, watch))
        return session

    def events(self, session: Session) -> list[AgentEvent]:
        """All events of *session* so far."""
        return next(watch.events for known, watch in self._watches if known is session)

    def may_stay_open(self, session_id: str) -> None:
        """The session's last calls may have no result: its process died, or somebody is asked."""
        self._may_be_open.add(session_id)

    def finish(self) -> None:
        """Check that the laws held and that the stores are consistent."""
        for _, watch in self._watches:
            watch.finish()
        for store in self._stores.values():
            for session_id, entries in store.entries_of.items():
                check_entries(entries, may_be_open=session_id in self._may_be_open)


def check_entries(entries: Sequence[SessionEntry], *, may_be_open: bool = False) -> None:
    """Parents are stored before their children, and each call has exactly one result."""
    seen: set[str] = set()
    for entry in entries:
        assert entry.parent_id is None or entry.parent_id in seen, f"{entry!r} has no parent"
        assert entry.id not in seen
        seen.add(entry.id)
    if entries:
        check_pairs(branch_entries(entries), may_be_open=may_be_open)


def check_pairs(path: Sequence[SessionEntry], *, may_be_open: bool = False) -> None:
    """Each call of the branch has one result, in call order, with only records between them."""
    open_calls: list[str] = []
    for entry in path:
        if isinstance(entry, MessageEntry):
            message = entry.message
            if message.role == "tool":
                (block,) = message.content
                assert isinstance(block, ToolResultBlock)
                assert open_calls, f"a result without a call: {entry!r}"
                assert block.tool_call_id == open_calls.pop(0), f"not in call order: {entry!r}"
                continue
            assert not open_calls or may_be_open, f"{open_calls} have no result before {entry!r}"
            open_calls = [call.id for call in message.tool_calls]
        elif not isinstance(entry, CustomEntry | LabelEntry):
            assert not open_calls or may_be_open, f"{entry!r} stands between a call and its result"
    assert not open_calls or may_be_open, f"{open_calls} have no result"


# Reading what happened


def types(events: Sequence[AgentEvent]) -> list[str]:
    """The types of the events, in order."""
    return [event_type(event) for event in events]


def of(kind: type[E], items: Sequence[object]) -> list[E]:
    """The events or entries of one class."""
    return [item for item in items if isinstance(item, kind)]


def said(path: Sequence[SessionEntry]) -> list[str]:
    """The messages of a branch in short: `user: Hi`, `assistant: [c1]`, `tool: c1 ok` …"""
    return [short(entry.message) for entry in path if isinstance(entry, MessageEntry)]


def sent(request: ProviderRequest) -> list[str]:
    """The messages of a request in short."""
    return [short(message) for message in request.messages]


def short(message: Message) -> str:
    """One message in short."""
    words: list[str] = []
    for block in message.content:
        if isinstance(block, TextBlock):
            words.append(block.text)
        elif isinstance(block, ToolCallBlock):
            words.append(f"[{block.id}]")
        elif isinstance(block, ToolResultBlock):
            outcome = block.error.code if block.error is not None else block.result
            if block.error is None and block.content:
                outcome = "".join(getattr(inner, "text", "?") for inner in block.content)
            words.append(f"{block.tool_call_id} {outcome}")
        else:
            words.append(f"<{type(block).__name__}>")
    return f"{message.role}: {' '.join(words)}"


def results(path: Sequence[SessionEntry]) -> dict[str, ToolResultBlock]:
    """The results of a branch, by call id."""
    return {
        block.tool_call_id: block
        for entry in path
        if isinstance(entry, MessageEntry)
        for block in entry.message.content
        if isinstance(block, ToolResultBlock)
    }


def provider_of(session: Session) -> MockProvider:
    """The provider that the session's agent was given."""
    provider = session.agent.provider
    assert isinstance(provider, MockProvider)
    return provider


async def read(
    session: Session,
    into: list[AgentEvent],
    *,
    on_event: Callable[[AgentEvent], None] = lambda _: None,
    before: Callable[[], Awaitable[None]] | None = None,
    pause: float = 0,
) -> RunStream:
    """Run the session as a stream.

    Args:
        session: It is told `Hi`.
        into: Where the events go.
        on_event: Called with each of them.
        before: Awaited before the first one is read.
        pause: Seconds after each.
    """
    async with session.stream("Hi") as events:
        if before is not None:
            await before()
        async for event in events:
            into.append(event)
            on_event(event)
            if pause:
                await anyio.sleep(pause)
    return events


async def ticks(count: int = 10) -> None:
    """Let everything else run for a while; takes no virtual time."""
    for _ in range(count):
        await checkpoint()


def now() -> float:
    """Virtual seconds."""
    return anyio.current_time()


# Virtual time and steps on asyncio


class _JumpingSelector(selectors.DefaultSelector):
    """Does not wait for time to pass; waits for real where only a thread can go on."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self.loop.jump(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next deadline when nothing else is to be done."""

    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self._now = 1_000.0
        self.after_step: Callable[[], None] | None = None
        super().__init__(selector)

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        def step(*args: Any) -> None:
            callback(*args)
            if self.after_step is not None:
                self.after_step()

        return super().call_soon(step, *args, context=context)


class Steps:
    """Counts the steps of the scheduler, and does something after one of them.

    A step is what runs between two points at which a task can wait: with a number for each, a
    test can cancel at every one of them.
    """

    def __init__(self) -> None:
        self.count = 0
        self._at = -1
        self._action: Callable[[], object] = lambda: None
        self.error: BaseException | None = None

    def arm(self, at: int, action: Callable[[], object]) -> None:
        """Call *action* after step number *at* from here on."""
        self.count = 0
        self._at = at
        self._action = action

    def disarm(self) -> int:
        """Do nothing any more; the number of steps since `arm`."""
        self._at = -1
        return self.count

    def step(self) -> None:
        self.count += 1
        if self.count == self._at:
            try:
                self._action()
            except BaseException as error:  # noqa: BLE001 - shown by the test, not by the loop
                self.error = error

    def __enter__(self) -> Self:
        if in_asyncio():
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.after_step = self.step
        else:
            self._instrument = _Instrument(self)
            trio.lowlevel.add_instrument(self._instrument)
        return self

    def __exit__(self, *_: object) -> None:
        if in_asyncio():
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.after_step = None
        else:
            trio.lowlevel.remove_instrument(self._instrument)
        if self.error is not None:
            raise self.error


class _Instrument(trio.abc.Instrument):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps.step()


def in_asyncio() -> bool:
    """Whether the test runs on asyncio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def running_tasks() -> int:
    """How many tasks there are."""
    return len(anyio.get_running_tasks())
