"""A request's options, and what may become of it before it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from prism.core._contracts import PolicyContext, ProviderRequest
from prism.core._wire import ModelConfig, ProviderOptions
from prism.core.providers import RequestPolicyChain, check_request

if TYPE_CHECKING:
    from prism.core._runtime.run_state import RunState


def request_options(run: RunState) -> ProviderOptions:
    """The options of the run's next request: the agent's, the run's, the thinking level's."""
    options = run.agent.options_for(run.session_id, run.options)
    if run.final_tool is not None and options.tool_choice is None:
        # Text alone could not end the run.
        options = structs.replace(options, tool_choice="required")
    return _thinking(run, run.model, options)


def apply_policies(run: RunState, request: ProviderRequest) -> ProviderRequest:
    """What the agent's request policies make of the request.

    Raises:
        UsageError: `invalid_request_option`, `invalid_request`.
    """
    policies = run.agent.request_policies
    if not policies:
        return request
    context = PolicyContext(session_id=run.session_id, run_id=run.id, metadata=run.options.metadata)
    return RequestPolicyChain(policies).apply(request, context)


def finish_request(
    run: RunState, built: ProviderRequest, changed: ProviderRequest
) -> ProviderRequest:
    """The request to send, after policies and middleware.

    A thinking level that was put in the words of one model is put in those of the model that it
    goes to.

    Raises:
        UsageError: `invalid_request_option`.
    """
    if changed.model != built.model:
        before, after = built.options.compat or {}, changed.options.compat or {}
        if after.get("thinking") == before.get("thinking"):
            compat = {key: value for key, value in after.items() if key != "thinking"}
            own = run.agent.options_for(run.session_id, run.options).compat or {}
            if "thinking" in own:
                compat["thinking"] = own["thinking"]
            options = structs.replace(changed.options, compat=compat or None)
            changed = structs.replace(changed, options=_thinking(run, changed.model, options))
    # What nobody changed is the same in every turn, so it is checked in the first.
    if changed is not built or not run.request_checked:
        check_request(changed, granted=frozenset(run.tools))
        run.request_checked = changed is built
    return changed


def _thinking(run: RunState, model: ModelConfig, options: ProviderOptions) -> ProviderOptions:
    """The options with the run's thinking level; that it was clamped is told once a run."""
    history = run.session.log.history
    level = run.options.thinking_level or history.thinking_level or run.agent.thinking_level
    api = getattr(run.provider, "api", None)
    if level is None or api is None:
        return options
    # Only a run that asks for a level needs the table of models.
    from prism.core.providers import DEFAULT_THINKING, apply_thinking_level

    table = run.agent.thinking or DEFAULT_THINKING
    options, notice = apply_thinking_level(options, model, level, api=api, thinking=table)
    if notice is not None and not run.told_clamp:
        run.told_clamp = True
        run.warn(notice.code, notice.message)
    return options
