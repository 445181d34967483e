"""What an endpoint of the Messages family and its model can do, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from prism.core._wire import ModelConfig
from prism.core.providers._switches import is_host, resolved_switches

OLD_VERSION: Final = "2023-06-01"
"""The API version that compatible hosts speak, and that takes sampling parameters."""

VERSION: Final = "2026-10-21"
"""The API version of Anthropic's own host."""

DROP_BLOCK_BETA: Final = "thinking-binding-controls-2026-08-01"
"""Without it `drop_block` is refused."""

_DEFAULT_MAX_TOKENS: Final = 32_000


class AnthropicCompat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Switches of an endpoint.

    They are set, each over the one before, by what is known of the host in the base URL and of
    the model, by the provider's `compat` argument and by `ModelConfig.compat`, where they may
    also be written in camelCase.

    Attributes:
        version: The `anthropic-version` header. A request with sampling parameters goes out with
            the old version, because the new one refuses them.
        auth_header: `authorization` carries `Bearer …`; `x-api-key` carries the key alone.
        betas: For the `anthropic-beta` header.
        max_tokens: Sent when the model's parameters have none; never above
            `ModelConfig.limits.max_output_tokens`.
        max_output_tokens: How far `max_tokens` may be raised to make room for a thinking budget,
            when the model's limits do not say.
        sampling: Whether `temperature` and the like are taken.
        forced_tool_choice: Whether a call can be forced; else `auto` is sent, with a notice.
        system_notes: Role of a system message in the middle of the conversation.
        binds_prefix: Whether the model refuses its own reasoning when what stood before it has
            changed since.
        drop_block: Let the vendor drop such reasoning instead of refusing the request.
        cache_control: Mark the cacheable parts of a request.
        long_cache: Whether `cache_retention="long"` asks for one hour.
        output_schema: Whether the model can be held to a schema.
        strict_tools: Send `strict: true` with each tool; the schemas must fit then.
        eager_input_streaming: Ask for arguments as they are written, not checked by the vendor.
        user_id: Send a digest of the session's id as `metadata.user_id`.
        server_tools: Tools that the vendor runs itself, as its documentation writes them.
        body: Merged into each request's body, except for the parts the adapter owns.
    """

    version: str = OLD_VERSION
    auth_header: str = "x-api-key"
    betas: tuple[str, ...] = ()
    max_tokens: int = _DEFAULT_MAX_TOKENS
    max_output_tokens: int = 64_000
    sampling: bool = True
    forced_tool_choice: bool = True
    system_notes: Literal["system", "user"] = "user"
    binds_prefix: bool = False
    drop_block: bool = False
    cache_control: bool = True
    long_cache: bool = False
    output_schema: bool = False
    strict_tools: bool = False
    eager_input_streaming: bool = False
    user_id: bool = False
    server_tools: tuple[dict[str, Any], ...] = ()
    body: dict[str, Any] | None = None


_MODEL: Final = re.compile(r"claude-(?:([a-z]+)-)?(\d{1,2})(?:[-.](\d{1,2})(?!\d))?", re.IGNORECASE)


def resolve_compat(base_url: str, given: Mapping[str, Any], model: ModelConfig) -> AnthropicCompat:
    """The switches for one model.

    Raises:
        ProviderError: `invalid_request`, when `ModelConfig.compat` has a wrong value.
    """
    is_own = is_host(urlsplit(base_url).hostname or "", "api.anthropic.com")
    known: dict[str, Any] = {}
    if is_own:
        known |= {"version": VERSION, "auth_header": "authorization", "long_cache": True}
    known |= _of_model(model.model, is_own=is_own)
    return resolved_switches(AnthropicCompat, known=known, given=given, model=model.compat)


def _of_model(model: str, *, is_own: bool) -> dict[str, Any]:
    match = _MODEL.search(model)
    if match is None:
        return {}
    family = (match[1] or "").lower()
    version = (int(match[2]), int(match[3] or 0))
    is_top = family in {"fable", "mythos"}
    known: dict[str, Any] = {}
    if is_own and (is_top or version >= (4, 5) or (family, version) == ("opus", (4, 1))):
        known["output_schema"] = True
    if version < (3, 7):
        limit = 4_096 if version < (3, 5) else 8_192
        known |= {"max_tokens": limit, "max_output_tokens": limit}
    elif family == "opus" and version < (4, 5):
        known["max_output_tokens"] = 32_000
    elif version >= (4, 6):
        known["max_output_tokens"] = 128_000
    if is_top or version >= (4, 7):
        known["sampling"] = False
    if is_own and (is_top or version >= (4, 8)):
        known["system_notes"] = "system"
    if is_top or version >= (5, 5):
        known["binds_prefix"] = True
        known["forced_tool_choice"] = family == "haiku"
    return known
