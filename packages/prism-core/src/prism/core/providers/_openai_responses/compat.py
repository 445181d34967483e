"""What an endpoint that speaks the Responses API can do, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from prism.core._wire import ModelConfig
from prism.core.providers._switches import is_host, resolved_switches


class OpenAIResponsesCompat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Switches of an endpoint.

    They are set, each over the one before, by what is known of the host in the base URL and of
    the model, by the provider's `compat` argument and by `ModelConfig.compat`, where they may
    also be written in camelCase.

    Attributes:
        developer_role: Send the system prompt as `developer`; else as `system`.
        store_false: Send `store: false`, so that nothing is kept at the vendor's.
        encrypted_reasoning: Ask for reasoning that can be sent back.
        no_obfuscation: Ask for deltas without padding.
        strict_tools: Send each tool as strict; the schemas must fit then.
        tool_choice_required: Whether a call can be forced; else `auto` is sent, with a notice.
        result_images: Whether a tool's result can hold images.
        reasoning_out: Send reasoning back to the model that wrote it.
        foreign_thinking: Drop the reasoning of other models, or send it as plain `text`.
        binds_prefix: Leave reasoning out when the conversation before it changed.
        configuration_updates: Tell a change of effort within the conversation instead of in the
            request, which keeps the prefix as it was.
        sampling: Whether `temperature` and the like are taken while the model reasons.
        prompt_cache_key: Send `prompt_cache_key`.
        cache_options: Whether caching is asked for with `prompt_cache_options`, as GPT-5.6 and
            later want it; else with `prompt_cache_retention`.
        auth_header: `authorization` carries `Bearer …`; any other carries the key alone.
        body: Merged into each request's body, except for the parts the adapter owns.
    """

    developer_role: bool = True
    store_false: bool = True
    encrypted_reasoning: bool = True
    no_obfuscation: bool = True
    strict_tools: bool = False
    tool_choice_required: bool = True
    result_images: bool = True
    reasoning_out: bool = True
    foreign_thinking: Literal["drop", "text"] = "drop"
    binds_prefix: bool = True
    configuration_updates: bool = False
    sampling: bool = True
    prompt_cache_key: bool = False
    cache_options: bool = False
    auth_header: str = "authorization"
    body: dict[str, Any] | None = None


_HOSTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("api.openai.com", {"prompt_cache_key": True}),
    ("openai.azure.com", {"prompt_cache_key": True, "auth_header": "api-key"}),
    ("cognitiveservices.azure.com", {"prompt_cache_key": True, "auth_header": "api-key"}),
    ("openrouter.ai", {"prompt_cache_key": True}),
)
_REASONING: Final = re.compile(r"^(?:o\d|gpt-(?:[5-9]|\d\d))(?!.*chat)", re.IGNORECASE)
_VERSION: Final = re.compile(r"^gpt-(\d+)(?:\.(\d+))?", re.IGNORECASE)
_FORCED_BREAKS: Final = re.compile(r"gpt-oss", re.IGNORECASE)

_CACHE_OPTIONS_FROM: Final = (5, 6)
_UPDATES_FROM: Final = (6, 0)


def resolve_compat(
    base_url: str, given: Mapping[str, Any], model: ModelConfig
) -> OpenAIResponsesCompat:
    """The switches for one model.

    Raises:
        ProviderError: `invalid_request`, when `ModelConfig.compat` has a wrong value.
    """
    host = urlsplit(base_url).hostname or ""
    known: dict[str, Any] = {}
    for end, switches in _HOSTS:
        if is_host(host, end):
            known |= switches
    name = model.model.rpartition("/")[2]
    version = _VERSION.match(name)
    if version is not None:
        number = (int(version[1]), int(version[2] or 0))
        known["cache_options"] = number >= _CACHE_OPTIONS_FROM
        known["configuration_updates"] = number >= _UPDATES_FROM
    if _REASONING.search(name):
        known["sampling"] = False
    if _FORCED_BREAKS.search(name):
        known["tool_choice_required"] = False
    return resolved_switches(OpenAIResponsesCompat, known=known, given=given, model=model.compat)
