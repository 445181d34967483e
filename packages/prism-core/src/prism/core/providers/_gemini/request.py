"""From a `ProviderRequest` to the call of `POST {base}/…:streamGenerateContent`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from prism.core._contracts import Notice, ProviderRequest, ToolSpec
from prism.core._errors import ProviderError
from prism.core._wire import ModelConfig
from prism.core.providers._base import WireCall
from prism.core.providers._errors_map import ErrorMapper
from prism.core.providers._gemini.compat import GeminiCompat
from prism.core.providers._gemini.contents import API, IMAGE_TYPES, contents_encoder
from prism.core.providers._json import is_list, is_object
from prism.core.providers._requests import encode_body, encode_sent, max_tokens, merge_body
from prism.core.providers._stream import WireStream
from prism.core.providers._tool_schema import object_schema
from prism.core.providers._transform import Conversations, Target, target_for

_PARAMETERS: Final = {
    "temperature": "temperature",
    "topP": "topP",
    "top_p": "topP",
    "topK": "topK",
    "top_k": "topK",
    "stop": "stopSequences",
    "stopSequences": "stopSequences",
    "stop_sequences": "stopSequences",
    "seed": "seed",
    "presencePenalty": "presencePenalty",
    "presence_penalty": "presencePenalty",
    "frequencyPenalty": "frequencyPenalty",
    "frequency_penalty": "frequencyPenalty",
}
_VERSION: Final = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?(?:/|$)")

# What OpenAPI's schema object and JSON Schema have in common, as the API's first version took it.
_OPEN_API: Final = frozenset({
    "type", "format", "title", "description", "nullable", "default", "enum", "items", "minItems",
    "maxItems", "properties", "required", "minProperties", "maxProperties", "anyOf", "minimum",
    "maximum", "minLength", "maxLength", "pattern",
})  # fmt: skip


class Head(msgspec.Struct, frozen=True):
    """What stands before the contents, encoded; the same from turn to turn.

    Attributes:
        system: The parts of `systemInstruction`, if there are any.
        tools: None, when there are none.
        bound: What the conversation is bound with.
        target: Where it goes.
    """

    system: msgspec.Raw | None
    tools: msgspec.Raw | None
    bound: bytes
    target: Target


def build_head(
    system: Sequence[str],
    tools: Sequence[ToolSpec],
    compat: GeminiCompat,
    model: ModelConfig,
) -> Head:
    """The system prompt, the tools, and what the model takes."""
    parts = encode_sent([{"text": text} for text in system if text.strip()])
    declared = _tools(tools, compat)
    encoded = encode_sent(declared)
    target = target_for(
        model,
        API,
        image_types=IMAGE_TYPES,
        result_images=compat.result_images,
        merge_users=True,
        user_first=True,
        system_notes=False,
        binds_prefix=False,
    )
    return Head(
        None if parts == b"[]" else msgspec.Raw(parts),
        msgspec.Raw(encoded) if declared else None,
        parts + encoded,
        target,
    )


def build_call(
    request: ProviderRequest,
    compat: GeminiCompat,
    head: Head,
    conversations: Conversations,
    *,
    base_url: str,
    stream: Callable[[ErrorMapper], WireStream],
) -> WireCall:
    """The call, the same for the same input.

    Raises:
        ProviderError: `invalid_request`.
    """
    notices: list[Notice] = []
    sent = conversations.render(
        request,
        head.target,
        head=head.bound,
        encoder=lambda: contents_encoder(
            call_ids=compat.call_ids, signed_calls=compat.signed_calls
        ),
        switches=(compat.call_ids, compat.signed_calls),
    )
    body: dict[str, Any] = {"generationConfig": _generation_config(request, notices)}
    if head.system is not None:
        body["systemInstruction"] = {"parts": head.system}
    choice = _tool_choice(request, compat)
    if request.tools and choice is not None:
        body["toolConfig"] = {"functionCallingConfig": choice}
    merge_body(
        body,
        request,
        compat_body=compat.body,
        notices=notices,
        deep=("generationConfig", "toolConfig"),
    )
    if not body["generationConfig"]:
        del body["generationConfig"]
    if head.tools is not None:
        body["tools"] = head.tools
    body["contents"] = sent.body
    return WireCall(
        path=_path(request.model.model, compat, base_url),
        body=encode_body(body),
        stream=stream,
        auth_header=compat.auth_header,
        notices=(*sent.notices, *notices),
        prefix=sent.prefix,
    )


def _path(model: str, compat: GeminiCompat, base_url: str) -> str:
    version = "" if _VERSION.search(urlsplit(base_url).path) else f"/{compat.api_version}"
    name = model if "/" in model else f"models/{model}"
    return f"{version}/{quote(name, safe='/@')}:streamGenerateContent?alt=sse"


def _tools(specs: Sequence[ToolSpec], compat: GeminiCompat) -> list[dict[str, Any]]:
    declarations: list[dict[str, Any]] = []
    for tool in specs:
        schema = object_schema(tool.parameters)
        if compat.schema_field == "parameters":
            schema = _open_api(schema)
        sent: dict[str, Any] = {"name": tool.name}
        if tool.description:
            sent["description"] = tool.description
        declarations.append({**sent, compat.schema_field: schema})
    own = [{"functionDeclarations": declarations}] if declarations else []
    return own + [dict(tool) for tool in compat.server_tools]


def _open_api(schema: Any) -> Any:
    if not is_object(schema):
        return schema
    kept: dict[str, Any] = {}
    for name, value in schema.items():
        if name not in _OPEN_API:
            continue
        if name == "properties" and is_object(value):
            value = {key: _open_api(inner) for key, inner in value.items()}
        elif name == "items":
            value = _open_api(value)
        elif name == "anyOf" and is_list(value):
            value = [_open_api(inner) for inner in value]
        kept[name] = value
    return kept


def _tool_choice(request: ProviderRequest, compat: GeminiCompat) -> dict[str, Any] | None:
    choice = request.options.tool_choice
    if choice is None:
        return {"mode": "VALIDATED"} if compat.strict_tools else None
    if choice == "auto":
        return {"mode": "VALIDATED" if compat.strict_tools else "AUTO"}
    if choice == "none":
        return {"mode": "NONE"}
    if choice == "required":
        return {"mode": "ANY"}
    if is_object(choice) and isinstance(choice.get("name"), str):
        return {"mode": "ANY", "allowedFunctionNames": [choice["name"]]}
    raise ProviderError(
        f"tool_choice must be auto, none, required or {{'name': …}}, not {choice!r}.",
        code="invalid_request",
    )


def _generation_config(request: ProviderRequest, notices: list[Notice]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    limit = max_tokens(request)
    if limit is not None:
        config["maxOutputTokens"] = limit
    for name, value in (request.model.parameters or {}).items():
        if name in {"maxTokens", "max_tokens"} or value is None:
            continue
        field = _PARAMETERS.get(name)
        if field is None:
            notices.append(
                Notice(
                    code="parameter_ignored",
                    message=f"parameters.{name} is not known to {API}; "
                    "options.extra.body can carry it.",
                )
            )
        elif field == "stopSequences":
            config[field] = list(value) if is_list(value) else [value]
        else:
            config[field] = value
    if request.output_schema is not None:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = request.output_schema
    return config
