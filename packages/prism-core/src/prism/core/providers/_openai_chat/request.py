"""From a `ProviderRequest` to the body of `POST {base}/chat/completions`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from prism.core._contracts import Notice, ProviderRequest, ToolSpec
from prism.core._errors import ProviderError
from prism.core._wire import (
    ImageBlock,
    Message,
    ModelConfig,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core._wire.content import ContentBlock
from prism.core.providers._json import is_object
from prism.core.providers._openai_chat.compat import OpenAIChatCompat
from prism.core.providers._requests import (
    cache_key,
    drop_parameters,
    encode_body,
    encode_sent,
    image_url,
    join_texts,
    max_tokens,
    merge_body,
)
from prism.core.providers._transform import Conversations, Sent, Target, target_for

API: Final = "openai-chat"

THINKING_PARTS: Final = "content.thinking"
"""The field name of reasoning that came as parts of `content`."""

_PARAMETERS: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "frequencyPenalty": "frequency_penalty",
    "presencePenalty": "presence_penalty",
    "stop": "stop",
    "stopSequences": "stop",
    "seed": "seed",
    "parallelToolCalls": "parallel_tool_calls",
}
_SAMPLING: Final = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
_SNAKE: Final = {wire: wire for wire in _PARAMETERS.values()}
_LONG_CACHE: Final = re.compile(r"^gpt-(\d+)(?:\.(\d+))?", re.IGNORECASE)


class Head(msgspec.Struct, frozen=True):
    """What stands before the messages; the same from turn to turn.

    Attributes:
        system: The wire's first messages.
        tools: Encoded.
        bound: What the conversation is bound with.
        target: Where it goes.
    """

    system: list[dict[str, Any]]
    tools: msgspec.Raw
    bound: bytes
    target: Target


def build_head(
    system: Sequence[str],
    tools: Sequence[ToolSpec],
    compat: OpenAIChatCompat,
    model: ModelConfig,
) -> Head:
    """The system prompt, the tools, and what the model takes."""
    target = target_for(
        model,
        API,
        result_images=False,
        id_style="mistral9" if compat.id_style == "mistral9" else "openai-chat",
        assistant_after_results=compat.assistant_after_tool,
        system_notes=compat.system_notes == "system",
        reasoning=compat.thinking_out,
        foreign_thinking=compat.foreign_thinking,
        binds_prefix=compat.binds_prefix,
    )
    messages = _system(system, compat)
    encoded = encode_sent(_tools(tools, compat))
    return Head(messages, msgspec.Raw(encoded), encode_sent(messages) + encoded, target)


def build_body(
    request: ProviderRequest, compat: OpenAIChatCompat, head: Head, conversations: Conversations
) -> tuple[bytes, list[Notice], str | None]:
    """The request's JSON, what the host should know of it, and the digest of what is sent.

    Raises:
        ProviderError: `invalid_request`; `unsupported`, when the model takes no tools here.
    """
    return _Builder(request, compat).build(head, conversations)


class _Builder:
    def __init__(self, request: ProviderRequest, compat: OpenAIChatCompat) -> None:
        self.request = request
        self.compat = compat
        self.notices: list[Notice] = []

    def build(
        self, head: Head, conversations: Conversations
    ) -> tuple[bytes, list[Notice], str | None]:
        request, compat = self.request, self.compat
        if request.tools and compat.tool_calling == "never":
            raise ProviderError(
                f"{request.model.model} calls no tools over Chat Completions: use "
                "OpenAIResponsesProvider, or send no tools.",
                code="unsupported",
            )
        sent = conversations.render(
            request,
            head.target,
            head=head.bound,
            encoder=lambda: partial(encode_message, compat),
            switches=compat,
        )
        system, items = head.system, sent.body
        self.notices += sent.notices
        if compat.cache_control and request.options.cache_retention != "none":
            system, items = self._marked_cacheable(system, sent)
        body: dict[str, Any] = {
            "model": request.model.model,
            "messages": [*(msgspec.Raw(encode_sent(part)) for part in system), *items],
            "stream": True,
        }
        if compat.stream_usage:
            body["stream_options"] = {"include_usage": True}
        if compat.store_false:
            body["store"] = False
        if request.tools:
            body["tools"] = head.tools
        elif compat.tools_with_history and _has_results(request):
            body["tools"] = []
        if request.tools and (choice := self._tool_choice()) is not None:
            body["tool_choice"] = choice
        self._add_parameters(body)
        self._add_output_schema(body)
        self._add_caching(body)
        merge_body(body, request, compat_body=compat.body, notices=self.notices)
        if request.tools and compat.tool_calling == "without_reasoning":
            self._turn_reasoning_off(body)
        thinks = body.get("reasoning_effort") != "none"
        refused = _SAMPLING if thinks and not compat.sampling else ()
        drop_parameters(body, refused, request, self.notices)
        return encode_body(body), self.notices, sent.prefix

    # --- messages -------------------------------------------------------------------------

    def _marked_cacheable(
        self, system: list[dict[str, Any]], sent: Sent
    ) -> tuple[list[dict[str, Any]], list[msgspec.Raw]]:
        """With the ends of the system prompt and of the last user message marked."""
        long = self.request.options.cache_retention == "long"
        mark = {"type": "ephemeral", "ttl": "1h"} if long else {"type": "ephemeral"}
        if system:
            system = [*system[:-1], _marked(system[-1], mark)]
        messages, items = sent.messages, sent.items
        for at in range(len(messages) - 1, -1, -1):
            if messages[at].role == "user":
                (item,) = encode_message(self.compat, messages[at])
                items[sent.starts[at]] = msgspec.Raw(encode_sent(_marked(item, mark)))
                break
        return system, items

    # --- the rest of the body -------------------------------------------------------------

    def _tool_choice(self) -> Any:
        choice = self.request.options.tool_choice
        forced: Any
        if choice is None or choice == "auto" or choice == "none":
            return choice
        if choice == "required":
            forced = choice
        elif is_object(choice) and isinstance(choice.get("name"), str):
            forced = {"type": "function", "function": {"name": choice["name"]}}
        else:
            raise ProviderError(
                f"tool_choice must be auto, none, required or {{'name': …}}, not {choice!r}.",
                code="invalid_request",
            )
        if self.compat.tool_choice_required:
            return forced
        self._notice(
            "tool_choice_downgraded",
            f"{self.request.model.model} cannot be made to call a tool: auto was sent.",
        )
        return "auto"

    def _turn_reasoning_off(self, body: dict[str, Any]) -> None:
        if body.get("reasoning_effort") == "none":
            return
        body["reasoning_effort"] = "none"
        self._notice(
            "thinking_clamped",
            f"{self.request.model.model} calls tools over Chat Completions only without "
            "reasoning: it was turned off. OpenAIResponsesProvider takes both.",
        )

    def _add_parameters(self, body: dict[str, Any]) -> None:
        limit = max_tokens(self.request)
        if limit is not None:
            body[self.compat.max_tokens_field] = limit
        for name, value in (self.request.model.parameters or {}).items():
            if name in {"maxTokens", "max_tokens"} or value is None:
                continue
            field = _PARAMETERS.get(name) or _SNAKE.get(name)
            if field is None:
                self._notice(
                    "parameter_ignored",
                    f"parameters.{name} is not known to {API}; options.extra.body can carry it.",
                )
            elif field != "parallel_tool_calls" or self.request.tools:  # refused without tools
                body[field] = value

    def _add_output_schema(self, body: dict[str, Any]) -> None:
        schema = self.request.output_schema
        if schema is None:
            return
        if self.compat.response_format == "json_object":
            body["response_format"] = {"type": "json_object"}
            return
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": schema},
        }

    def _add_caching(self, body: dict[str, Any]) -> None:
        if not self.compat.prompt_cache_key:
            return
        retention = self.request.options.cache_retention
        version = _LONG_CACHE.match(self.request.model.model)
        # From 5.6 on caching is asked for in another way, and chat has no longer one.
        is_new = version is not None and (int(version[1]), int(version[2] or 0)) >= (5, 6)
        key = cache_key(self.request)
        if key is not None:
            body["prompt_cache_key"] = key
        if retention == "none" and is_new:
            body["prompt_cache_options"] = {"mode": "explicit"}
        elif retention == "long" and not is_new:
            body["prompt_cache_retention"] = "24h"

    def _notice(self, code: str, message: str) -> None:
        self.notices.append(Notice(code=code, message=message))


def encode_message(compat: OpenAIChatCompat, message: Message) -> list[dict[str, Any]]:
    """One message, transformed for this wire; none when it has nothing that the wire takes."""
    role, content = message.role, message.content
    if role == "assistant":
        return _assistant(message)
    if role == "tool":
        return [_result(block, compat) for block in content if isinstance(block, ToolResultBlock)]
    texts = [block.text for block in content if isinstance(block, TextBlock)]
    if role == "system":
        return [{"role": _system_role(compat), "content": join_texts(texts)}] if texts else []
    if len(texts) == len(content):
        return [{"role": "user", "content": join_texts(texts)}]
    parts = [part for block in content if (part := _part(block)) is not None]
    return [{"role": "user", "content": parts}] if parts else []


def _system(parts: Sequence[str], compat: OpenAIChatCompat) -> list[dict[str, Any]]:
    texts = [part for part in parts if part.strip()]
    if compat.merge_system and texts:
        texts = ["\n\n".join(texts)]
    role = _system_role(compat)
    return [{"role": role, "content": text} for text in texts]


def _tools(specs: Sequence[ToolSpec], compat: OpenAIChatCompat) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    for tool in specs:
        schema = {key: value for key, value in tool.parameters.items() if key != "$schema"}
        function: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "parameters": schema or {"type": "object", "properties": {}},
        }
        if compat.strict_tools:
            function["strict"] = True
        tools.append({"type": "function", "function": function})
    return tools


def _has_results(request: ProviderRequest) -> bool:
    return any(message.role == "tool" for message in request.messages)


def _system_role(compat: OpenAIChatCompat) -> str:
    return "developer" if compat.developer_role else "system"


def _part(block: ContentBlock) -> dict[str, Any] | None:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ImageBlock):
        return {"type": "image_url", "image_url": {"url": image_url(block)}}
    return None


def _result(block: ToolResultBlock, compat: OpenAIChatCompat) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": "tool", "tool_call_id": block.tool_call_id}
    if compat.tool_result_name:
        sent["name"] = block.name
    sent["content"] = "\n".join(
        [inner.text for inner in block.content or () if isinstance(inner, TextBlock)]
    )
    return sent


def _assistant(message: Message) -> list[dict[str, Any]]:
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    has_reasoning = False
    for block in message.content:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ToolCallBlock):
            arguments = encode_sent(block.arguments).decode()
            function = {"name": block.name, "arguments": arguments}
            calls.append({"id": block.id, "type": "function", "function": function})
        elif isinstance(block, ThinkingBlock):
            has_reasoning = True
    if not texts and not calls:
        return []
    sent: dict[str, Any] = {"role": "assistant", "content": join_texts(texts) if texts else None}
    if calls:
        sent["tool_calls"] = calls
    if has_reasoning:
        _add_reasoning(sent, message)
    return [sent]


def _add_reasoning(sent: dict[str, Any], message: Message) -> None:
    """Put the reasoning back where it came from."""
    fields: dict[str, list[str]] = {}
    details: list[Any] = []
    for block in message.content:
        if not isinstance(block, ThinkingBlock) or block.replay is None:
            continue
        replay = block.replay
        if replay.kind == "details":
            details += msgspec.json.decode(replay.data)
        elif replay.kind == "field":
            fields.setdefault(replay.data, []).append(block.text)
    if details:
        sent["reasoning_details"] = details
        return
    for field, texts in fields.items():
        text = join_texts(texts)
        if field != THINKING_PARTS:
            sent[field] = text
            continue
        parts: list[dict[str, Any]] = [
            {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
        ]
        if sent["content"]:
            parts.append({"type": "text", "text": sent["content"]})
        sent["content"] = parts


def _marked(item: dict[str, Any], mark: dict[str, Any]) -> dict[str, Any]:
    content = item["content"]
    parts: list[dict[str, Any]] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    )
    parts[-1] = {**parts[-1], "cache_control": mark}
    return {**item, "content": parts}
