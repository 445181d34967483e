"""The suite finds what is wrong with a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from prism.core._contracts import SessionInfo, SessionStore, StoredEntry
from prism.core._errors import StoreConflict, UsageError
from prism.core._wire import SessionEntry
from prism.core.stores import MemorySessionStore
from prism.core.testing import STORE_CASES, StoreHarness, run_store_case, store_cases


class Sound:
    """Passes everything on; the others break one thing each."""

    def __init__(self) -> None:
        self.inner = MemorySessionStore()

    async def append(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int:
        return await self.inner.append(session_id, entries, expected_version=expected_version)

    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[StoredEntry]:
        return await self.inner.entries(session_id, after=after, limit=limit)

    def iter_entries(self, session_id: str, *, after: int = 0) -> AsyncIterator[StoredEntry]:
        return self.inner.iter_entries(session_id, after=after)

    async def entry(self, session_id: str, entry_id: str) -> StoredEntry | None:
        return await self.inner.entry(session_id, entry_id)

    async def sessions(self) -> list[SessionInfo]:
        return await self.inner.sessions()

    async def aclose(self) -> None:
        await self.inner.aclose()


class SortsByTimestamp(Sound):
    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[StoredEntry]:
        found = await super().entries(session_id, after=after, limit=limit)
        return sorted(found, key=lambda one: one.entry.timestamp)


class ForgetsVersions(Sound):
    async def append(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int:
        return await super().append(session_id, entries)


class StoresHalfABatch(Sound):
    async def append(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int:
        version = await super().append(session_id, entries[:0], expected_version=expected_version)
        for one in entries:
            version = await super().append(session_id, [one])
        return version


class TakesIdsForOne(Sound):
    async def entries(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[StoredEntry]:
        return await super().entries(session_id.lower(), after=after, limit=limit)


class ConflictsOnRetry(Sound):
    async def append(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        *,
        expected_version: int | None = None,
    ) -> int:
        if expected_version is not None and expected_version != len(await self.entries(session_id)):
            raise StoreConflict("stale")
        return await super().append(session_id, entries, expected_version=expected_version)


async def failures(store: type[Sound]) -> set[str]:
    harness = StoreHarness(
        open=lambda: cast("SessionStore", store()), persistent=False, shared=False
    )
    failed: set[str] = set()
    for case in store_cases(persistent=False, shared=False):
        try:
            await run_store_case(case, harness)
        except (AssertionError, StoreConflict, ExceptionGroup):
            failed.add(case.name)
    return failed


@pytest.mark.parametrize(
    ("store", "finding"),
    [
        (SortsByTimestamp, "equal_and_falling_timestamps_do_not_change_the_order"),
        (ForgetsVersions, "a_version_that_moved_is_a_conflict"),
        (StoresHalfABatch, "a_value_that_json_cannot_hold_refuses_the_whole_batch"),
        (TakesIdsForOne, "hostile_session_ids_are_kept_apart"),
        (ConflictsOnRetry, "the_same_batch_again_is_accepted_with_a_stale_version"),
    ],
)
async def test_a_broken_store_fails_the_case_that_names_its_fault(
    store: type[Sound], finding: str
) -> None:
    assert finding in await failures(store)


async def test_a_store_that_passes_everything_on_passes() -> None:
    assert await failures(Sound) == set()


async def test_a_case_that_does_not_apply_is_refused_with_what_it_needs() -> None:
    (case,) = [one for one in STORE_CASES if "process" in one.needs and "killed" in one.name]
    with pytest.raises(UsageError, match="persistent"):
        await run_store_case(case, StoreHarness(open=MemorySessionStore, persistent=False))
