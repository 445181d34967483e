"""Which model does a job that is not the conversation itself."""

from __future__ import annotations

import msgspec

from prism.core._contracts import Provider
from prism.core._errors import UsageError
from prism.core._wire import ModelConfig


class UseCaseModelBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A job's model, who serves it, and where the choice came from.

    Attributes:
        use_case: `summary`, `observation`, `reflection`, or the host's own.
        source: `explicit` or `fallback`.
    """

    use_case: str
    model: ModelConfig
    source: str
    provider: Provider | None = None
    thinking_level: str | None = None


def resolve_use_case_model(
    use_case: str,
    *,
    explicit: ModelConfig | None = None,
    fallback: ModelConfig | None = None,
    provider: Provider | None = None,
    thinking_level: str | None = None,
) -> UseCaseModelBinding:
    """The model of a job: the one that was chosen for it, else the session's or the host's.

    Nothing of the session's own requests comes with it: no thinking level, tools or tool choice.
    It is never written to a branch: a worker's model is not the conversation's.

    Raises:
        UsageError: `no_model_for_use_case`.
    """
    model = explicit or fallback
    if model is None:
        raise UsageError(
            f"There is no model for {use_case!r}: give one for it, or a fallback.",
            code="no_model_for_use_case",
        )
    return UseCaseModelBinding(
        use_case=use_case,
        model=model,
        source="fallback" if explicit is None else "explicit",
        provider=provider,
        thinking_level=thinking_level,
    )


def use_case_credential_provider(binding: UseCaseModelBinding) -> str:
    """The provider id under which the job's credential is asked for."""
    return binding.provider.id if binding.provider is not None else binding.model.provider
