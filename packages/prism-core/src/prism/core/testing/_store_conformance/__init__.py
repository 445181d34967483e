"""The conformance suite of session stores: cases that any store must pass, ours and a host's."""

from typing import Final

from prism.core.testing._store_conformance import _appending, _reading, _texts, _together
from prism.core.testing._store_conformance._harness import (
    Need,
    Stage,
    StoreCase,
    StoreHarness,
    run_store_case,
)

STORE_CASES: Final = (*_appending.CASES, *_reading.CASES, *_texts.CASES, *_together.CASES)
"""Every case, those that need a shared or persistent store included."""


def store_cases(
    *,
    persistent: bool = True,
    shared: bool = True,
    threads: bool = True,
    processes: bool = False,
) -> list[StoreCase]:
    """The cases that apply to a store, for `pytest.mark.parametrize`.

    ```python
    @pytest.mark.parametrize("case", store_cases(), ids=str)
    async def test_my_store_keeps_the_contract(case: StoreCase, tmp_path: Path) -> None:
        await run_store_case(case, StoreHarness(open=lambda: MyStore(tmp_path)))
    ```

    Args:
        persistent: Also those that close the store and open it again.
        shared: Also those that have two stores open on one place.
        threads: Also those that use a store from several threads.
        processes: Also those that start processes; the harness then says how they open it.
    """
    offered: set[Need] = set()
    if persistent:
        offered.add("persistent")
    if shared:
        offered.add("shared")
    if threads:
        offered.add("threads")
    if processes:
        offered.add("process")
    return [case for case in STORE_CASES if case.needs <= offered]


__all__ = [
    "STORE_CASES",
    "Stage",
    "StoreCase",
    "StoreHarness",
    "run_store_case",
    "store_cases",
]
