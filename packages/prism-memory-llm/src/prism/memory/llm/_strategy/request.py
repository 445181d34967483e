"""The summary request: built, changed by the host's policies, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from prism.core import CompactionError, Message, ModelConfig, ProviderOptions, TextBlock
from prism.core.providers import (
    PolicyContext,
    ProviderRequest,
    RequestPolicy,
    apply_thinking_level,
    check_request,
)
from prism.memory.llm._strategy.failures import Failures
from prism.memory.llm._strategy.limits import MAX_SUMMARY_TOKENS
from prism.memory.llm._strategy.source import USE_CASE
from prism.memory.llm._tokens import is_limit


class RequestMaker(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the requests of one compaction.

    Attributes:
        api: The provider's wire, on which the form of a thinking level depends.
        session_id: The agent's own session: its requests and these share a cache.
    """

    model: ModelConfig
    api: str | None
    session_id: str
    run_id: str | None
    options: ProviderOptions
    policies: Sequence[Any]
    thinking_level: str | None
    failures: Any

    def build(self, *, system: str, text: str, max_tokens: int) -> ProviderRequest:
        """One request.

        Raises:
            CompactionError: A policy failed, or made a request that must not be sent:
                `invalid_request_option`.
        """
        model = replace(
            self.model, parameters={**(self.model.parameters or {}), "maxTokens": max_tokens}
        )
        request = ProviderRequest(
            model=model,
            system=(system,),
            messages=(Message(role="user", content=[TextBlock(text=text)]),),
            options=self._options_for(model),
        )
        context = PolicyContext(session_id=self.session_id, run_id=self.run_id, use_case=USE_CASE)
        for policy in self.policies:
            request = _applied(policy, request, context, self.failures)
        return _checked(request, self.failures)

    def _options_for(self, model: ModelConfig) -> ProviderOptions:
        options = replace(
            self.options,
            session_id=self.options.session_id or self.session_id,
            cache_key=self.options.cache_key or self.session_id,
        )
        failures: Failures = self.failures
        # A level that the model has not is clamped; there is nobody to be told.
        return failures.guarded(
            "The thinking level cannot be asked for",
            lambda: apply_thinking_level(options, model, self.thinking_level, api=self.api)[0],
        )


def _applied(
    policy: RequestPolicy, request: ProviderRequest, context: PolicyContext, failures: Failures
) -> ProviderRequest:
    def apply() -> object:
        return policy.apply(request, context)

    changed = failures.guarded("A request policy failed", apply)
    if not isinstance(changed, ProviderRequest):
        raise _refused(f"a request policy gave a {type(changed).__name__} instead of a request")
    return changed


def _checked(request: ProviderRequest, failures: Failures) -> ProviderRequest:
    """What must hold whatever the policies did."""
    max_tokens = (request.model.parameters or {}).get("maxTokens")
    if not is_limit(max_tokens, cap=MAX_SUMMARY_TOKENS):
        shown = repr(max_tokens)[:40] if isinstance(max_tokens, int | float) else "no number"
        raise _refused(f"maxTokens must be an integer from 1 to {MAX_SUMMARY_TOKENS}, not {shown}")
    if not request.messages:
        raise _refused("a request policy removed the messages")
    failures.guarded(
        "The summary request was not sent", lambda: check_request(request, granted=frozenset())
    )
    return request


def _refused(reason: str) -> CompactionError:
    return CompactionError(
        f"The summary request was not sent: {reason}.",
        code="invalid_request_option",
        details={"reason": reason},
    )
