"""What hosts and Prism's own tests check themselves with."""

from prism.core.testing._store_conformance import (
    STORE_CASES,
    Stage,
    StoreCase,
    StoreHarness,
    run_store_case,
    store_cases,
)

__all__ = [
    "STORE_CASES",
    "Stage",
    "StoreCase",
    "StoreHarness",
    "run_store_case",
    "store_cases",
]
