"""What a store is held to is a list of cases; a harness says how to open the store."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import msgspec
from anyio import CancelScope

from prism.core._contracts import SessionStore, StoredEntry
from prism.core._errors import PrismError, StoreError, UsageError
from prism.core._wire import Message, MessageEntry, TextBlock

Need: TypeAlias = Literal["persistent", "shared", "threads", "process"]


class StoreHarness(msgspec.Struct, frozen=True, kw_only=True):
    """How the suite opens the store that it tests, and what the store promises.

    Attributes:
        open: Opens a store on one place that is empty at first; called again, another store on
            that same place. May be async.
        persistent: A store opened after the first was closed holds what that one held.
        shared: Two stores that are open at once see each other's entries.
        threads: One store may be used from several threads, each with an event loop.
        process: How another process opens the place: a callable as `module:name`, and the text
            that it is called with. `None`: no other process can.
        exact_text: JSON texts come back byte for byte, not only as equal JSON.
    """

    open: Callable[[], SessionStore | Awaitable[SessionStore]]
    persistent: bool = True
    shared: bool = True
    threads: bool = True
    process: tuple[str, str] | None = None
    exact_text: bool = False

    def offers(self, need: Need) -> bool:
        """Whether the store promises what a case needs."""
        return self.process is not None if need == "process" else bool(getattr(self, need))


class Stage:
    """What a case works with: an open store, and others on the same place.

    Attributes:
        store: The store under test, open.
    """

    def __init__(self, harness: StoreHarness, store: SessionStore) -> None:
        self.harness = harness
        self.store: SessionStore = store
        self._opened = [store]

    async def another(self) -> SessionStore:
        """Open one more store on the same place."""
        store = await open_store(self.harness)
        self._opened.append(store)
        return store

    async def reopen(self) -> None:
        """Close every store and open a new one."""
        await self.close()
        self.store = await self.another()

    async def close(self) -> None:
        """Close every store."""
        while self._opened:
            await self._opened.pop().aclose()


class StoreCase(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that every store does.

    Attributes:
        name: The sentence that the case proves, with underscores.
        needs: What the store must promise for the case to apply.
        run: Raises `AssertionError` when the store does something else.
    """

    name: str
    run: Callable[[Stage], Awaitable[None]]
    needs: frozenset[Need] = frozenset()

    def __str__(self) -> str:
        return self.name


def case(*needs: Need) -> Callable[[Callable[[Stage], Awaitable[None]]], StoreCase]:
    """Make a case of an async function that takes a stage."""

    def make(run: Callable[[Stage], Awaitable[None]]) -> StoreCase:
        return StoreCase(name=getattr(run, "__name__", "case"), run=run, needs=frozenset(needs))

    return make


def cases_of(names: dict[str, Any]) -> tuple[StoreCase, ...]:
    """The cases among a module's names, in the order in which they were written."""
    return tuple(value for value in names.values() if isinstance(value, StoreCase))


async def open_store(harness: StoreHarness) -> SessionStore:
    """Open a store as the harness says."""
    opened = harness.open()
    if inspect.isawaitable(opened):
        opened = await opened
    return opened


async def run_store_case(case: StoreCase, harness: StoreHarness) -> None:
    """Hold a store to one case.

    Raises:
        AssertionError: The store does not do what the case says.
        UsageError: The case needs what the harness does not offer; `store_cases` leaves such
            cases out.
    """
    for need in sorted(case.needs):
        if not harness.offers(need):
            raise UsageError(f"The case {case.name} needs a harness with {need}.")
    stage = Stage(harness, await open_store(harness))
    try:
        await case.run(stage)
    finally:
        with CancelScope(shield=True):
            await stage.close()


# Words of the cases


def expect(holds: bool, otherwise: str) -> None:  # noqa: FBT001
    """Fail with a sentence.

    Raises:
        AssertionError: *holds* is false. Not an `assert`, which `python -O` leaves out.
    """
    if not holds:
        raise AssertionError(otherwise)


def expect_equal(found: object, wanted: object, what: str) -> None:
    """Fail when two values differ.

    Raises:
        AssertionError: They do.
    """
    expect(found == wanted, f"{what}: found {brief(found)}, wanted {brief(wanted)}.")


def brief(value: object) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


@contextmanager
def refused(code: str, kind: type[PrismError] = StoreError) -> Generator[None]:
    """The block must raise an error of that class and code.

    Raises:
        AssertionError: It does not.
    """
    try:
        yield
    except PrismError as error:
        if not isinstance(error, kind) or error.code != code:
            raise AssertionError(
                f"Raised was {type(error).__name__} {error.code!r};"
                f" wanted {kind.__name__} {code!r}."
            ) from error
    else:
        raise AssertionError(f"Nothing was raised; wanted {kind.__name__} {code!r}.")


def message(
    entry_id: str,
    parent_id: str | None = None,
    *,
    session_id: str = "s",
    text: str = "Hi",
    role: str = "user",
    timestamp: str = "2026-01-02T03:04:05.678Z",
) -> MessageEntry:
    """A message entry."""
    return MessageEntry(
        id=entry_id,
        session_id=session_id,
        timestamp=timestamp,
        parent_id=parent_id,
        message=Message(role=role, content=[TextBlock(text=text)]),
    )


def chain(count: int, *, prefix: str = "e", session_id: str = "s") -> list[MessageEntry]:
    """Messages that follow one another, with the ids `e1`, `e2` and so on."""
    return [
        message(
            f"{prefix}{number}",
            f"{prefix}{number - 1}" if number > 1 else None,
            session_id=session_id,
            text=f"Message {number}",
        )
        for number in range(1, count + 1)
    ]


def ids(stored: list[StoredEntry]) -> list[str]:
    """The ids of what was read."""
    return [one.entry.id for one in stored]


async def expect_stored(store: SessionStore, wanted: list[str], *, session_id: str = "s") -> None:
    """The session holds these ids in this order, at positions from 1.

    Raises:
        AssertionError: It does not.
    """
    stored = await store.entries(session_id)
    expect_equal(ids(stored), wanted, "The stored ids")
    positions = [one.position for one in stored]
    expect_equal(positions, list(range(1, len(wanted) + 1)), "The positions")


def plain(raw: bytes) -> Any:
    """A JSON text as data."""
    return json.loads(raw)
