"""From a `ProviderRequest` to the call of `POST {base}/v1/messages`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from prism.core._contracts import Notice, ProviderRequest, ToolSpec
from prism.core._errors import ProviderError
from prism.core._wire import Message, ModelConfig, ThinkingBlock, ToolResultBlock
from prism.core.providers._anthropic.compat import (
    DROP_BLOCK_BETA,
    OLD_VERSION,
    AnthropicCompat,
)
from prism.core.providers._anthropic.messages import API, IMAGE_TYPES, encode_message
from prism.core.providers._base import WireCall
from prism.core.providers._errors_map import ErrorMapper
from prism.core.providers._json import as_object, is_list, is_object
from prism.core.providers._requests import (
    drop_parameters,
    encode_body,
    encode_sent,
    max_tokens,
    merge_body,
)
from prism.core.providers._stream import WireStream
from prism.core.providers._tool_schema import object_schema
from prism.core.providers._transform import Conversations, Sent, Target, target_for
from prism.core.providers._transform.layout import PACKED_AT_ONCE

_PARAMETERS: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "stop": "stop_sequences",
    "stopSequences": "stop_sequences",
}
_KNOWN: Final = {**_PARAMETERS, **{wire: wire for wire in _PARAMETERS.values()}}
_ELSEWHERE: Final = frozenset({
    "maxTokens", "max_tokens", "parallelToolCalls", "parallel_tool_calls",
})  # fmt: skip
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_MARK: Final[dict[str, Any]] = {"type": "ephemeral"}
_LONG_MARK: Final[dict[str, Any]] = {"type": "ephemeral", "ttl": "1h"}
_USER: Final = b'{"role":"user"'
_SYSTEM: Final = b'{"role":"system"'
_ASSISTANT: Final = b'{"role":"assistant"'

MIN_THINKING_BUDGET: Final = 1_024
"""Smallest budget that the API takes, and what is left for the answer beside a large one."""


class Head(msgspec.Struct, frozen=True):
    """What stands before the messages, encoded; the same from turn to turn.

    Attributes:
        system: With its cache mark; `None`, when there is none.
        tools: With theirs; `None`, when there are none.
        bound: What the conversation is bound with: both without marks.
        target: Where it goes.
    """

    system: msgspec.Raw | None
    tools: msgspec.Raw | None
    bound: bytes
    target: Target


def build_head(
    system: Sequence[str],
    tools: Sequence[ToolSpec],
    compat: AnthropicCompat,
    model: ModelConfig,
    mark: dict[str, Any] | None,
) -> Head:
    """The system prompt, the tools, and what the model takes; *mark* is that of `cache_mark`."""
    texts = [{"type": "text", "text": text} for text in system if text.strip()]
    declared = _tools(tools, compat)
    target = target_for(
        model,
        API,
        image_types=IMAGE_TYPES,
        id_style=API,
        merge_users=True,
        user_first=True,
        system_notes=compat.system_notes == "system",
        signed_thinking=True,
        binds_prefix=compat.binds_prefix,
    )
    bound = encode_sent([texts, declared])
    if mark is not None:
        _mark_last(declared, mark)
        _mark_last(texts, mark)
    return Head(
        msgspec.Raw(encode_sent(texts)) if texts else None,
        msgspec.Raw(encode_sent(declared)) if declared else None,
        bound,
        target,
    )


def cache_mark(request: ProviderRequest, compat: AnthropicCompat) -> dict[str, Any] | None:
    """What marks a cacheable part of the request; always the same object for the same mark."""
    retention = request.options.cache_retention
    if retention == "none" or not compat.cache_control:
        return None
    return _LONG_MARK if retention == "long" and compat.long_cache else _MARK


def build_call(
    request: ProviderRequest,
    compat: AnthropicCompat,
    head: Head,
    conversations: Conversations,
    *,
    path: str,
    stream: Callable[[ErrorMapper], WireStream],
) -> WireCall:
    """The call, the same for the same input.

    Raises:
        ProviderError: `invalid_request`.
    """
    return _Builder(request, compat).build(head, conversations, path, stream)


class _Builder:
    def __init__(self, request: ProviderRequest, compat: AnthropicCompat) -> None:
        self.request = request
        self.compat = compat
        self.notices: list[Notice] = []

    def build(
        self,
        head: Head,
        conversations: Conversations,
        path: str,
        stream: Callable[[ErrorMapper], WireStream],
    ) -> WireCall:
        request, compat = self.request, self.compat
        sent = conversations.render(
            request,
            head.target,
            head=head.bound,
            encoder=lambda: encode_message,
        )
        body: dict[str, Any] = {
            "model": request.model.model,
            "max_tokens": self._max_tokens(),
            "stream": True,
        }
        self._add_parameters(body)
        self._add_metadata(body)
        if request.output_schema is not None:
            body["output_config"] = {
                "format": {"type": "json_schema", "schema": request.output_schema}
            }
        merge_body(
            body,
            request,
            compat_body=compat.body,
            notices=self.notices,
            deep=("output_config", "metadata"),
        )
        self._fit_thinking(body, sent)
        if head.tools is not None:
            self._add_tool_choice(body)
        thinks = as_object(body.get("thinking")).get("type", "disabled") != "disabled"
        refuses = thinks or not compat.sampling
        drop_parameters(body, _SAMPLING if refuses else (), request, self.notices)
        if sent.has_notes:
            items = sent.items
            _place_notes(items)
        else:
            items = sent.body
        mark = cache_mark(request, compat)
        if mark is not None:
            _mark_users(items, mark)
        if head.tools is not None:
            body["tools"] = head.tools
        if head.system is not None:
            body["system"] = head.system
        body["messages"] = items
        version, auth_header = self._version(body)
        headers = {"anthropic-version": version}
        betas = {*compat.betas, *((DROP_BLOCK_BETA,) if compat.drop_block else ())}
        if betas:
            headers["anthropic-beta"] = ",".join(sorted(betas))
        return WireCall(
            path=path,
            body=encode_body(body),
            stream=stream,
            headers=headers,
            auth_header=auth_header,
            notices=(*sent.notices, *self.notices),
            prefix=sent.prefix,
        )

    def _version(self, body: dict[str, Any]) -> tuple[str, str]:
        compat = self.compat
        if compat.version <= OLD_VERSION or not any(name in body for name in _SAMPLING):
            return compat.version, compat.auth_header
        bearer = compat.auth_header == "authorization"
        return OLD_VERSION, "x-api-key" if bearer else compat.auth_header

    # --- tools ----------------------------------------------------------------------------

    def _add_tool_choice(self, body: dict[str, Any]) -> None:
        choice = self.request.options.tool_choice
        parameters = self.request.model.parameters or {}
        parallel = parameters.get("parallelToolCalls", parameters.get("parallel_tool_calls"))
        sent: dict[str, Any] | None
        if choice is None:
            sent = {"type": "auto"} if parallel is False else None
        elif choice in ("auto", "none"):
            sent = {"type": choice}
        elif choice == "required":
            sent = self._forced({"type": "any"}, body)
        elif is_object(choice) and isinstance(choice.get("name"), str):
            sent = self._forced({"type": "tool", "name": choice["name"]}, body)
        else:
            raise ProviderError(
                f"tool_choice must be auto, none, required or {{'name': …}}, not {choice!r}.",
                code="invalid_request",
            )
        if sent is None:
            return
        if parallel is False and sent["type"] != "none":
            sent["disable_parallel_tool_use"] = True
        body["tool_choice"] = sent

    def _forced(self, choice: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        has_budget = as_object(body.get("thinking")).get("type") == "enabled"
        if self.compat.forced_tool_choice and not has_budget:
            return choice
        why = " while it thinks with a budget" if self.compat.forced_tool_choice else ""
        self._notice(
            "tool_choice_downgraded",
            f"{self.request.model.model} cannot be made to call a tool{why}: auto was sent.",
        )
        return {"type": "auto"}

    # --- sizes, sampling, thinking --------------------------------------------------------

    def _max_tokens(self) -> int:
        asked = max_tokens(self.request)
        if asked is not None:
            return asked
        limits = self.request.model.limits
        limit = None if limits is None else limits.max_output_tokens
        return self.compat.max_tokens if limit is None else min(limit, self.compat.max_tokens)

    def _add_parameters(self, body: dict[str, Any]) -> None:
        for name, value in (self.request.model.parameters or {}).items():
            if name in _ELSEWHERE or value is None:
                continue
            field = _KNOWN.get(name)
            if field is None:
                self._notice(
                    "parameter_ignored",
                    f"parameters.{name} is not known to {API}; options.extra.body can carry it.",
                )
            elif field == "stop_sequences":
                body[field] = list(value) if is_list(value) else [value]
            else:
                body[field] = value

    def _add_metadata(self, body: dict[str, Any]) -> None:
        session_id = self.request.options.session_id
        if self.compat.user_id and session_id is not None:
            data = session_id.encode("utf-8", "surrogatepass")
            body["metadata"] = {"user_id": blake2b(data, digest_size=16).hexdigest()}

    def _fit_thinking(self, body: dict[str, Any], sent: Sent) -> None:
        thinking = as_object(body.get("thinking"))
        if thinking.get("type") == "enabled":
            if _lacks_thinking(sent.messages):
                del body["thinking"]
                self._notice(
                    "thinking_dropped",
                    "The turn under way began without reasoning that can be sent back, so it is "
                    "finished without thinking.",
                )
            else:
                self._fit_budget(body, thinking)
        if self.compat.drop_block:
            thinking = as_object(body.get("thinking")) or {"type": "adaptive"}
            if thinking.get("type") != "disabled":
                binding = {"prefix_mismatch_behavior": "drop_block"}
                body["thinking"] = {**thinking, "block_binding": binding}

    def _fit_budget(self, body: dict[str, Any], thinking: dict[str, Any]) -> None:
        """The budget is a part of `max_tokens`: make room for both, else make it smaller."""
        budget, limit = thinking.get("budget_tokens"), body["max_tokens"]
        if type(budget) is not int or type(limit) is not int or budget < limit:
            return
        limits = self.request.model.limits
        most = None if limits is None else limits.max_output_tokens
        most = self.compat.max_output_tokens if most is None else most
        limit = max(limit, min(limit + budget, most))
        budget = min(budget, limit - MIN_THINKING_BUDGET)
        if budget < MIN_THINKING_BUDGET:
            del body["thinking"]
            self._notice(
                "thinking_clamped",
                f"{limit} output tokens leave no room for thinking: none was asked for.",
            )
        else:
            body["max_tokens"] = limit
            body["thinking"] = {**thinking, "budget_tokens": budget}

    def _notice(self, code: str, message: str) -> None:
        self.notices.append(Notice(code=code, message=message))


def _tools(specs: Sequence[ToolSpec], compat: AnthropicCompat) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    for tool in specs:
        sent: dict[str, Any] = {"name": tool.name}
        if tool.description:
            sent["description"] = tool.description
        sent["input_schema"] = object_schema(tool.parameters)
        if compat.strict_tools:
            sent["strict"] = True
        if compat.eager_input_streaming:
            sent["eager_input_streaming"] = True
        tools.append(sent)
    return tools + [dict(tool) for tool in compat.server_tools]


def _lacks_thinking(messages: list[Message]) -> bool:
    """Whether results are sent to a turn of which no message begins with a thought.

    With a thinking budget that is refused.
    """
    in_turn = False
    for message in reversed(messages):
        if message.role == "assistant":
            if isinstance(message.content[0], ThinkingBlock):
                return False
        elif any(isinstance(block, ToolResultBlock) for block in message.content):
            in_turn = True
        else:
            break
    return in_turn


def _place_notes(items: list[msgspec.Raw]) -> None:
    """Keep a system message that stands alone between the user's and the model's, or at the end.

    The API takes it nowhere else; there it becomes the user's.
    """
    for place, item in enumerate(items):
        if not _begins(item, _SYSTEM):
            continue
        after_user = place > 0 and _begins(items[place - 1], _USER)
        is_last = place + 1 == len(items)
        if not after_user or not (is_last or _begins(items[place + 1], _ASSISTANT)):
            items[place] = msgspec.Raw(_USER + bytes(item)[len(_SYSTEM) :])


def _begins(item: msgspec.Raw, start: bytes) -> bool:
    return bytes(memoryview(item)[: len(start)]) == start  # without a copy of the whole


def _mark_last(parts: list[dict[str, Any]], mark: dict[str, Any]) -> None:
    """Mark the last part that can be; a tool that is loaded later cannot."""
    for place in reversed(range(len(parts))):
        if not parts[place].get("defer_loading"):
            parts[place] = {**parts[place], "cache_control": mark}
            return


def _mark_users(items: list[msgspec.Raw], mark: dict[str, Any]) -> None:
    """Mark the ends of the last two user messages.

    The second mark is where the last turn's first one was: the vendor looks for it only twenty
    blocks back, which one turn with many calls can be more than.
    """
    end = b',"cache_control":' + encode_sent(mark) + b"}]}"
    marked = 0
    for place in range(len(items) - 1, max(-1, len(items) - 1 - PACKED_AT_ONCE), -1):
        if _begins(items[place], _USER):
            # As `encode_message` writes them: the item ends with its last block.
            items[place] = msgspec.Raw(bytes(items[place])[: -len(b"}]}")] + end)
            marked += 1
            if marked == 2:
                return
