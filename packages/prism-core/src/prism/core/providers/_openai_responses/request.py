"""From a `ProviderRequest` to the body of `POST {base}/responses`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from prism.core._contracts import Notice, ProviderRequest, ToolSpec
from prism.core._errors import ProviderError
from prism.core._wire import Message, ModelConfig
from prism.core.providers._json import as_object, as_text, is_list, is_object
from prism.core.providers._openai_responses.compat import OpenAIResponsesCompat
from prism.core.providers._openai_responses.messages import (
    API,
    Encoder,
    configuration_update,
    effort_of,
    system_role,
)
from prism.core.providers._requests import (
    cache_key,
    drop_parameters,
    encode_body,
    encode_sent,
    max_tokens,
    merge_body,
)
from prism.core.providers._tool_schema import object_schema
from prism.core.providers._transform import Conversations, Target, target_for

_PARAMETERS: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "topLogprobs": "top_logprobs",
    "parallelToolCalls": "parallel_tool_calls",
}
_KNOWN: Final = {**_PARAMETERS, **{wire: wire for wire in _PARAMETERS.values()}}
_SAMPLING: Final = ("temperature", "top_p", "top_logprobs")
_LOGPROBS: Final = "message.output_text.logprobs"
_ENCRYPTED: Final = "reasoning.encrypted_content"


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A request's body and what goes with it.

    Attributes:
        effort: What was asked for, when the answer has to remember it.
    """

    body: bytes
    notices: list[Notice]
    prefix: str | None
    effort: str | None


class Head(msgspec.Struct, frozen=True):
    """What stands before the messages, encoded; the same from turn to turn.

    Attributes:
        system: The first item of `input`, if there is one.
        bound: What the conversation is bound with.
        target: Where it goes.
    """

    system: msgspec.Raw | None
    tools: msgspec.Raw
    bound: bytes
    target: Target


def build_head(
    system: Sequence[str],
    tools: Sequence[ToolSpec],
    compat: OpenAIResponsesCompat,
    model: ModelConfig,
) -> Head:
    """The system prompt, the tools, and what the model takes.

    The prompt is an item and not `instructions`: newer models read those after the input, outside
    of the prefix.
    """
    parts = [{"type": "input_text", "text": text} for text in system if text.strip()]
    first = encode_sent({"role": system_role(compat), "content": parts}) if parts else b""
    encoded = encode_sent([_tool(tool, compat) for tool in tools])
    target = target_for(
        model,
        API,
        result_images=compat.result_images,
        id_style=API,
        reasoning=compat.reasoning_out,
        foreign_thinking=compat.foreign_thinking,
        binds_prefix=compat.binds_prefix,
        bound_natives=True,
    )
    return Head(
        msgspec.Raw(first) if parts else None, msgspec.Raw(encoded), encoded + first, target
    )


def build_body(
    request: ProviderRequest,
    compat: OpenAIResponsesCompat,
    head: Head,
    conversations: Conversations,
) -> Built:
    """The request's JSON, the same for the same input.

    Raises:
        ProviderError: `invalid_request`.
    """
    return _Builder(request, compat).build(head, conversations)


class _Builder:
    def __init__(self, request: ProviderRequest, compat: OpenAIResponsesCompat) -> None:
        self.request = request
        self.compat = compat
        self.notices: list[Notice] = []

    def build(self, head: Head, conversations: Conversations) -> Built:
        request, compat = self.request, self.compat
        sent = conversations.render(
            request,
            head.target,
            head=head.bound,
            encoder=lambda: Encoder(compat),
            switches=compat,
        )
        items = sent.body if head.system is None else [head.system, *sent.body]
        body: dict[str, Any] = {"model": request.model.model, "input": items, "stream": True}
        if compat.store_false:
            body["store"] = False
        if compat.encrypted_reasoning:
            body["include"] = [_ENCRYPTED]
        if compat.no_obfuscation:
            body["stream_options"] = {"include_obfuscation": False}
        if request.tools:
            body["tools"] = head.tools
            choice = self._tool_choice()
            if choice is not None:
                body["tool_choice"] = choice
        self._add_parameters(body)
        if request.output_schema is not None:
            schema = {"type": "json_schema", "name": "output", "schema": request.output_schema}
            body["text"] = {"format": schema}
        self._add_caching(body)
        merge_body(
            body,
            request,
            compat_body=compat.body,
            notices=self.notices,
            deep=("reasoning", "text", "prompt_cache_options"),
        )
        self._drop_sampling(body)
        effort = self._place_effort(body, sent.messages) if compat.configuration_updates else None
        return Built(
            body=encode_body(body),
            notices=[*sent.notices, *self.notices],
            prefix=sent.prefix,
            effort=effort,
        )

    def _tool_choice(self) -> Any:
        options = self.request.options
        choice = options.tool_choice
        sent: Any
        if choice is None or choice in ("auto", "none"):
            sent = choice
        elif choice == "required":
            sent = self._forced(choice)
        elif is_object(choice) and isinstance(choice.get("name"), str):
            sent = self._forced({"type": "function", "name": choice["name"]})
        else:
            raise ProviderError(
                f"tool_choice must be auto, none, required or {{'name': …}}, not {choice!r}.",
                code="invalid_request",
            )
        allowed = (options.compat or {}).get("allowedTools")
        if allowed is None or is_object(sent) or sent == "none":
            return sent
        return {"type": "allowed_tools", "mode": sent or "auto", "tools": self._allowed(allowed)}

    def _allowed(self, names: Any) -> list[dict[str, Any]]:
        known = {tool.name for tool in self.request.tools}
        if not is_list(names) or not known.issuperset(map(str, names)):
            raise ProviderError(
                f"compat.allowedTools must list tools of the request, not {names!r}.",
                code="invalid_request",
            )
        return [{"type": "function", "name": name} for name in names]

    def _forced(self, choice: Any) -> Any:
        if self.compat.tool_choice_required:
            return choice
        self._notice(
            "tool_choice_downgraded",
            f"{self.request.model.model} cannot be made to call a tool: auto was sent.",
        )
        return "auto"

    # --- the rest of the body -------------------------------------------------------------

    def _add_parameters(self, body: dict[str, Any]) -> None:
        limit = max_tokens(self.request)
        if limit is not None:
            body["max_output_tokens"] = limit
        for name, value in (self.request.model.parameters or {}).items():
            if name in {"maxTokens", "max_tokens"} or value is None:
                continue
            field = _KNOWN.get(name)
            if field is None:
                self._notice(
                    "parameter_ignored",
                    f"parameters.{name} is not known to {API}; options.extra.body can carry it.",
                )
            else:
                body[field] = value

    def _drop_sampling(self, body: dict[str, Any]) -> None:
        reasons = as_object(body.get("reasoning")).get("effort") != "none"
        refuses = not self.compat.sampling and reasons
        drop_parameters(body, _SAMPLING if refuses else (), self.request, self.notices)
        include = body.get("include")
        if refuses and is_list(include) and _LOGPROBS in include:
            body["include"] = [name for name in include if name != _LOGPROBS]

    def _add_caching(self, body: dict[str, Any]) -> None:
        if not self.compat.prompt_cache_key:
            return
        key = cache_key(self.request)
        if key is not None:
            body["prompt_cache_key"] = key
        retention = self.request.options.cache_retention
        if self.compat.cache_options:
            if retention == "none":
                body["prompt_cache_options"] = {"mode": "explicit"}
            elif retention == "long":
                body["prompt_cache_options"] = {"ttl": "12h"}
        elif retention == "long":
            body["prompt_cache_retention"] = "24h"

    def _place_effort(self, body: dict[str, Any], messages: list[Message]) -> str | None:
        """Leave `reasoning.effort` as the conversation began with it, and tell a change behind it.

        Returns:
            The effort that this request asks for.
        """
        reasoning = as_object(body.get("reasoning"))
        effort = as_text(reasoning.get("effort"))
        efforts = (found for message in messages if (found := _effort(message)) is not None)
        first = next(efforts, None)
        if effort is None or first is None:
            return effort
        newest = (
            found for message in reversed(messages) if (found := _effort(message)) is not None
        )
        if next(newest, None) != effort:
            body["input"].append(msgspec.Raw(encode_sent(configuration_update(effort))))
        body["reasoning"] = {**reasoning, "effort": first}
        return effort

    def _notice(self, code: str, message: str) -> None:
        self.notices.append(Notice(code=code, message=message))


def _tool(tool: ToolSpec, compat: OpenAIResponsesCompat) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": object_schema(tool.parameters),
        "strict": compat.strict_tools,
    }


def _effort(message: Message) -> str | None:
    return effort_of(message) if message.role == "assistant" else None
