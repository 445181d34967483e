"""The conformance suite of providers: cases that any provider must pass, ours and a host's."""

from __future__ import annotations

from typing import Final

from prism.core.testing._provider_conformance import _answering, _asking, _failing, _leaving
from prism.core.testing._provider_conformance._harness import (
    OpenedProvider,
    ProviderCase,
    ProviderHarness,
    ProviderNeed,
    ProviderStage,
    ScriptedAnswer,
    ScriptedCall,
    run_provider_case,
)

PROVIDER_CASES: Final = (
    *_answering.CASES,
    *_failing.CASES,
    *_leaving.CASES,
    *_asking.CASES,
)
"""Every case, those that need what a wire may not have included."""


def provider_cases(*without: ProviderNeed) -> list[ProviderCase]:
    """The cases that apply to a provider, for `pytest.mark.parametrize`.

    ```python
    @pytest.mark.parametrize("case", provider_cases("thinking"), ids=str)
    async def test_my_provider_keeps_the_contract(case: ProviderCase) -> None:
        await run_provider_case(case, ProviderHarness(open=open_mine, thinking=False))
    ```

    Args:
        *without: What the harness does not offer; see `ProviderHarness`.
    """
    return [case for case in PROVIDER_CASES if not case.needs & set(without)]


async def provider_conformance(harness: ProviderHarness) -> list[str]:
    """Hold a provider to every case that its harness offers, and tell of all that it breaks.

    Returns:
        The names of the cases that it keeps.

    Raises:
        ExceptionGroup: Of one `AssertionError` for each case that it does not keep, with the
            name of the case as its note.
    """
    kept: list[str] = []
    broken: list[Exception] = []
    for case in PROVIDER_CASES:
        if not all(harness.offers(need) for need in case.needs):
            continue
        try:
            await run_provider_case(case, harness)
        except Exception as error:  # noqa: BLE001 - all that is broken is told at once
            error.add_note(case.name)
            broken.append(error)
        else:
            kept.append(case.name)
    if broken:
        raise ExceptionGroup("The provider breaks its contract", broken)
    return kept


__all__ = [
    "PROVIDER_CASES",
    "OpenedProvider",
    "ProviderCase",
    "ProviderHarness",
    "ProviderNeed",
    "ProviderStage",
    "ScriptedAnswer",
    "ScriptedCall",
    "provider_cases",
    "provider_conformance",
    "run_provider_case",
]
