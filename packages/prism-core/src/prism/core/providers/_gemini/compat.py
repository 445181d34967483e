"""What an endpoint of the Gemini API and its model can do, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from prism.core._wire import ModelConfig
from prism.core.providers._switches import is_host, resolved_switches


class GeminiCompat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Switches of an endpoint.

    They are set, each over the one before, by what is known of the host in the base URL and of
    the model, by the provider's `compat` argument and by `ModelConfig.compat`, where they may
    also be written in camelCase.

    Attributes:
        api_version: Put into the path, unless the base URL names a version.
        auth_header: `x-goog-api-key` carries the key alone; `authorization` carries `Bearer …`.
        schema_field: Where a tool's schema goes: whole into `parametersJsonSchema`, or what
            OpenAPI knows of it into `parameters`.
        call_ids: Send the ids of calls and results.
        signed_calls: Whether the model refuses a call without its signature; the calls of other
            models then get the stand-in that the vendor documents.
        result_images: Whether a result can hold images; else they follow in a message of their
            own.
        output_schema: Whether the model can be held to a schema also when it has tools.
        strict_tools: Hold the model to the tools' schemas.
        server_tools: Tools that the vendor runs itself, as its documentation writes them.
        body: Merged into each request's body, except for the parts the adapter owns.
    """

    api_version: str = "v1beta"
    auth_header: str = "x-goog-api-key"
    schema_field: Literal["parametersJsonSchema", "parameters"] = "parametersJsonSchema"
    call_ids: bool = True
    signed_calls: bool = False
    result_images: bool = False
    output_schema: bool = False
    strict_tools: bool = False
    server_tools: tuple[dict[str, Any], ...] = ()
    body: dict[str, Any] | None = None


_VERTEX: Final[dict[str, Any]] = {"auth_header": "authorization", "call_ids": False}
_MODEL: Final = re.compile(r"gemini-(?:(\d+)|(?:flash|pro)[a-z-]*-latest)", re.IGNORECASE)


def resolve_compat(base_url: str, given: Mapping[str, Any], model: ModelConfig) -> GeminiCompat:
    """The switches for one model.

    Raises:
        ProviderError: `invalid_request`, when `ModelConfig.compat` has a wrong value.
    """
    known: dict[str, Any] = {}
    if is_host(urlsplit(base_url).hostname or "", "aiplatform.googleapis.com") or (
        urlsplit(base_url).hostname or ""
    ).endswith("-aiplatform.googleapis.com"):
        known |= _VERTEX
    match = _MODEL.search(model.model)
    if match is not None and (match[1] is None or int(match[1]) >= 3):
        known |= {"signed_calls": True, "result_images": True, "output_schema": True}
    return resolved_switches(GeminiCompat, known=known, given=given, model=model.compat)
