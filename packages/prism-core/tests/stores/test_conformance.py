"""Our stores pass the suite that hosts run on theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from prism.core.stores import JsonlSessionStore, MemorySessionStore, SqliteSessionStore
from prism.core.testing import StoreCase, StoreHarness, run_store_case, store_cases


@pytest.mark.parametrize("case", store_cases(persistent=False, shared=False), ids=str)
async def test_the_memory_store_keeps_the_contract(case: StoreCase) -> None:
    harness = StoreHarness(open=MemorySessionStore, persistent=False, shared=False, exact_text=True)
    await run_store_case(case, harness)


@pytest.mark.parametrize("case", store_cases(processes=True), ids=str)
async def test_the_jsonl_store_keeps_the_contract(case: StoreCase, tmp_path: Path) -> None:
    directory = tmp_path / "sessions"
    harness = StoreHarness(
        open=lambda: JsonlSessionStore(directory),
        process=("prism.core.stores:JsonlSessionStore", str(directory)),
        exact_text=True,
    )
    await run_store_case(case, harness)


@pytest.mark.parametrize("case", store_cases(processes=True), ids=str)
async def test_the_sqlite_store_keeps_the_contract(case: StoreCase, tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "db.sqlite"
    harness = StoreHarness(
        open=lambda: SqliteSessionStore(path),
        process=("prism.core.stores:SqliteSessionStore", str(path)),
    )
    await run_store_case(case, harness)


def test_the_suite_has_a_case_for_each_sentence_of_the_contract() -> None:
    names = [case.name for case in store_cases(processes=True)]
    assert len(names) == len(set(names))
    assert len(names) >= 30
