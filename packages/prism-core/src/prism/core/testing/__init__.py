"""What hosts and Prism's own tests check themselves with."""

from prism.core.testing._event_laws import EventLawError, EventLaws, check_event_laws
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
    "EventLawError",
    "EventLaws",
    "Stage",
    "StoreCase",
    "StoreHarness",
    "check_event_laws",
    "run_store_case",
    "store_cases",
]
