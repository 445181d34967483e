"""Options that are data alone: what a request carries, and what a run may cost."""

from __future__ import annotations

from typing import Any

from prism.core._wire.base import WireStruct


class ProviderOptions(WireStruct, frozen=True, kw_only=True):
    """How one provider request is to be sent.

    Attributes:
        session_id: For the vendor's routing and caching.
        cache_key: Requests with the same key share a cached prefix.
        cache_retention: `none`, `short` or `long`; `None` is the adapter's default.
        headers: Extra HTTP headers; never secrets.
        timeout_ms: How long the stream may be silent.
        tool_choice: `auto`, `none`, `required` or the name of a tool as `{"name": …}`.
        compat: What this request asks of the adapter, such as `thinking`.
        extra: `body` is merged into the vendor's request body by adapters that say so.
    """

    session_id: str | None = None
    cache_key: str | None = None
    cache_retention: str | None = None
    headers: dict[str, str] | None = None
    timeout_ms: int | None = None
    tool_choice: str | dict[str, Any] | None = None
    compat: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None


class UsageLimits(WireStruct, frozen=True, kw_only=True):
    """Ends a run with the status `limit_reached` when one of these is reached.

    Attributes:
        max_requests: Provider turns.
        max_input_tokens: Sum over the run, cached input included.
        max_output_tokens: Sum over the run.
        max_total_tokens: Sum over the run.
        max_cost: In the model's currency.
        max_tool_calls: Calls that were started.
    """

    max_requests: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None
    max_cost: int | float | None = None
    max_tool_calls: int | None = None
