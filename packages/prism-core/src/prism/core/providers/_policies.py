"""Request policies: what may still be changed before a request is sent, and what may not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final, cast

from msgspec import structs

from prism.core._contracts import PolicyContext, ProviderRequest, RequestPolicy
from prism.core._errors import UsageError
from prism.core._support.limits import positive_int
from prism.core._wire import ProviderOptions
from prism.core.providers._json import is_object

MAX_OUTPUT_TOKENS_CAP: Final = 1_000_000
"""Largest `maxTokens` that a request may carry; no model writes as much in one answer."""

MAX_TIMEOUT_MS: Final = 86_400_000
"""Longest silence that a request may allow: one day."""

CACHE_RETENTIONS: Final = ("none", "short", "long")

_TOKEN_LIMITS: Final = ("maxTokens", "max_tokens")


def merge_request_options(
    base: ProviderOptions | None, over: ProviderOptions | None
) -> ProviderOptions:
    """*over* on *base*: scalars and the tool choice replace, the rest is merged by key.

    That is `headers`, `compat` and `extra`; what lies deeper in them is replaced whole. `None`
    leaves what *base* has.
    """
    if base is None or over is None:
        return over or base or ProviderOptions()
    changed: dict[str, Any] = {}
    for name in ProviderOptions.__struct_fields__:
        value = getattr(over, name)
        if value is None:
            continue
        before = getattr(base, name)
        if name in {"headers", "compat", "extra"} and is_object(value) and is_object(before):
            value = {**before, **value}
        changed[name] = value
    return structs.replace(base, **changed)


class SessionCachePolicy:
    """Says which requests share a cached prefix, and how long it is kept.

    A session's requests carry its id as their cache key with no policy too. A key or a retention
    that the host's `ProviderOptions` name is left as it is.

    Args:
        retention: `none`, `short` or `long`; default `short`.
        key: For requests whose key would be their session's id, so that sessions with one system
            prompt share its cache; default: that id.

    Raises:
        UsageError: An unknown retention, or an empty key.
    """

    name: Final = "session-cache"

    def __init__(self, *, retention: str = "short", key: str | None = None) -> None:
        if retention not in CACHE_RETENTIONS:
            raise UsageError(
                f"retention must be one of {', '.join(CACHE_RETENTIONS)}, not {retention!r}."
            )
        if key is not None and not key:
            raise UsageError("key must be a string that is not empty.")
        self._retention = retention
        self._key = key

    def apply(self, request: ProviderRequest, context: PolicyContext) -> ProviderRequest:
        """The request with what it has not said itself."""
        options = request.options
        session_id = options.session_id or context.session_id
        key = options.cache_key or session_id
        if self._key is not None and key == session_id:
            key = self._key
        return structs.replace(
            request,
            options=structs.replace(
                options,
                session_id=session_id,
                cache_key=key,
                cache_retention=options.cache_retention or self._retention,
            ),
        )


class RequestPolicyChain:
    """Policies in order, and a check of what they made.

    A chain is a policy itself. What the policies give is validated once, after the last of them.
    """

    def __init__(self, policies: Iterable[RequestPolicy] = (), *, name: str = "chain") -> None:
        self.name = name
        self.policies: tuple[RequestPolicy, ...] = tuple(policies)

    def apply(self, request: ProviderRequest, context: PolicyContext) -> ProviderRequest:
        """The request to send; what a policy raises, it raises.

        Raises:
            UsageError: `invalid_request_option`, naming the option; `invalid_request`, naming a
                policy that gave no request.
        """
        changed = request
        for policy in self.policies:
            changed = apply_policy(policy, changed, context)
        check_request(changed, granted=frozenset(tool.name for tool in request.tools))
        return changed


def apply_policy(
    policy: RequestPolicy, request: ProviderRequest, context: PolicyContext
) -> ProviderRequest:
    """What one policy makes of the request.

    Raises:
        UsageError: `invalid_request`, when it gives something else.
    """
    changed = cast("object", policy.apply(request, context))
    if not isinstance(changed, ProviderRequest):
        raise UsageError(
            f"Request policy {policy.name!r} gave {type(changed).__name__} where a "
            "ProviderRequest has to be.",
            code="invalid_request",
        )
    return changed


def check_request(request: ProviderRequest, *, granted: frozenset[str] | None = None) -> None:
    """Refuse a request that no adapter should have to send.

    Args:
        request: After all policies and middleware.
        granted: Names of the tools that it may have; `None` allows all.

    Raises:
        UsageError: `invalid_request_option`, naming the option. Values that may be secrets, as
            those of headers, are not in the message.
    """
    options = request.options
    for name in ("session_id", "cache_key"):
        if not isinstance(getattr(options, name), str | None):
            raise _invalid(f"{name} must be a string")
    if options.timeout_ms is not None:
        _checked_int("timeout_ms", options.timeout_ms, MAX_TIMEOUT_MS)
    retention: object = options.cache_retention
    if retention is not None and retention not in CACHE_RETENTIONS:
        raise _invalid(f"cache_retention must be one of {', '.join(CACHE_RETENTIONS)}")
    choice = cast("object", options.tool_choice)
    if not isinstance(choice, str | dict | None):
        raise _invalid("tool_choice must be a string, or an object with a name")
    headers = _checked_object("headers", options.headers)
    for key, value in headers.items():
        if not isinstance(value, str):
            raise _invalid(f"headers must be strings, and {key!r} is not")
    _checked_object("compat", options.compat)
    _checked_object("extra", options.extra)
    for key, value in _checked_object("parameters", request.model.parameters).items():
        if key in _TOKEN_LIMITS and value is not None:
            _checked_int(f"parameters.{key}", value, MAX_OUTPUT_TOKENS_CAP)
        elif isinstance(value, float) and not isfinite(value):
            raise _invalid(f"parameters.{key} must be a finite number")
    if granted is not None:
        added = sorted({tool.name for tool in request.tools} - granted)
        if added:
            raise _invalid(f"tools may only be taken away, and {', '.join(added)} was added")


def _checked_object(name: str, value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(
        isinstance(key, str) for key in cast("dict[object, object]", value)
    ):
        raise _invalid(f"{name} must be an object whose keys are strings")
    return cast("dict[str, Any]", value)


def _checked_int(name: str, value: object, cap: int) -> None:
    try:
        positive_int(name, value, cap=cap)
    except UsageError as error:
        raise UsageError(
            error.message, code="invalid_request_option", details=error.details
        ) from None


def _invalid(message: str) -> UsageError:
    return UsageError(f"{message}.", code="invalid_request_option")
