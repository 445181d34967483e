"""Models for jobs beside the conversation."""

from __future__ import annotations

import pytest

from prism.core._errors import UsageError
from prism.core.providers import (
    MockProvider,
    ModelConfig,
    UseCaseModelBinding,
    resolve_use_case_model,
    use_case_credential_provider,
)

CHOSEN = ModelConfig(provider="small", model="mini")
SESSION = ModelConfig(provider="big", model="max", parameters={"temperature": 0})


def test_the_model_that_was_chosen_for_the_job_wins() -> None:
    binding = resolve_use_case_model("summary", explicit=CHOSEN, fallback=SESSION)
    assert binding == UseCaseModelBinding(use_case="summary", model=CHOSEN, source="explicit")


def test_without_one_it_is_the_fallback_and_says_so() -> None:
    binding = resolve_use_case_model("observation", fallback=SESSION)
    assert (binding.model, binding.source) == (SESSION, "fallback")


def test_nothing_of_the_session_comes_with_it() -> None:
    binding = resolve_use_case_model("summary", fallback=SESSION)
    assert binding.thinking_level is None
    assert binding.provider is None


def test_what_was_given_for_the_job_is_kept() -> None:
    provider = MockProvider(id="mine")
    binding = resolve_use_case_model(
        "reflection", explicit=CHOSEN, provider=provider, thinking_level="low"
    )
    assert binding.provider is provider
    assert binding.thinking_level == "low"


def test_a_job_without_any_model_is_named() -> None:
    with pytest.raises(UsageError, match="'titles'") as caught:
        resolve_use_case_model("titles")
    assert caught.value.code == "no_model_for_use_case"


def test_the_credential_is_that_of_who_serves_the_job() -> None:
    alone = resolve_use_case_model("summary", explicit=CHOSEN)
    assert use_case_credential_provider(alone) == "small"
    served = resolve_use_case_model("summary", explicit=CHOSEN, provider=MockProvider(id="gate"))
    assert use_case_credential_provider(served) == "gate"
