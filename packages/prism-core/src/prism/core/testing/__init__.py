"""What hosts and Prism's own tests check themselves with."""

from prism.core.testing._event_laws import EventLawError, EventLaws, check_event_laws
from prism.core.testing._provider_conformance import (
    PROVIDER_CASES,
    OpenedProvider,
    ProviderCase,
    ProviderHarness,
    ProviderNeed,
    ProviderStage,
    ScriptedAnswer,
    ScriptedCall,
    provider_cases,
    provider_conformance,
    run_provider_case,
)
from prism.core.testing._store_conformance import (
    STORE_CASES,
    Stage,
    StoreCase,
    StoreHarness,
    run_store_case,
    store_cases,
)

__all__ = [
    "PROVIDER_CASES",
    "STORE_CASES",
    "EventLawError",
    "EventLaws",
    "OpenedProvider",
    "ProviderCase",
    "ProviderHarness",
    "ProviderNeed",
    "ProviderStage",
    "ScriptedAnswer",
    "ScriptedCall",
    "Stage",
    "StoreCase",
    "StoreHarness",
    "check_event_laws",
    "provider_cases",
    "provider_conformance",
    "run_provider_case",
    "run_store_case",
    "store_cases",
]
