"""What a wire, an endpoint and a model take of a conversation, as data."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from prism.core._contracts import ProviderRequest
from prism.core._wire import ModelConfig, ModelRef, Replay
from prism.core.providers._requests import IdMap, takes_images

IdStyle: TypeAlias = Literal[
    "any", "openai-chat", "openai-responses", "anthropic-messages", "mistral9"
]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a conversation goes.

    Attributes:
        provider: Id under which the model names its provider.
        api: The wire's name, as in `Replay.api`.
        model: The vendor's name of the model.
        images: Whether the model takes images; else a text stands for each.
        image_types: MIME types that the wire takes; `None`: all. An image by URL counts as taken.
        result_images: Whether a tool's result can hold images; else they follow in one user
            message after the run of results.
        id_style: Which call ids can be sent as they are; the others are mapped.
        merge_users: Send all that stands between two assistant messages as one user message,
            results first.
        user_first: Put a user message in front of a conversation that begins with the model's.
        assistant_after_results: Put a message of the model between results and a user message.
        system_notes: Whether a system message can stand inside the conversation; else it becomes
            a user message.
        reasoning: Whether reasoning is sent back to the model that wrote it.
        signed_thinking: Whether a thinking block with a `signature` and no `replay` can be sent.
        foreign_thinking: Drop another model's reasoning, or send it as plain text.
        binds_prefix: Strip reasoning whose prefix is no longer what it was written after.
        bound_natives: When reasoning is stripped from a message, its native blocks go too, but
            for those of the kind `compaction`.
    """

    provider: str
    api: str
    model: str
    images: bool = True
    image_types: frozenset[str] | None = None
    result_images: bool = True
    id_style: IdStyle = "any"
    merge_users: bool = False
    user_first: bool = False
    assistant_after_results: bool = False
    system_notes: bool = True
    reasoning: bool = True
    signed_thinking: bool = False
    foreign_thinking: Literal["drop", "text"] = "drop"
    binds_prefix: bool = True
    bound_natives: bool = False

    def is_source(self, writer: ModelRef | None) -> bool:
        """Whether *writer* is this model behind this provider and wire; an unknown writer is."""
        if writer is None:
            return True
        if writer.provider != self.provider or (writer.api and writer.api != self.api):
            return False
        return writer.model == self.model or _plain(writer.model) == _plain(self.model)

    def takes_replay(self, replay: Replay | None) -> bool:
        """Whether opaque state is this wire's own."""
        return replay is not None and replay.api == self.api


def target_for(model: ModelConfig, api: str, **fields: Any) -> Target:
    """The target of a model: its provider, its name and whether it takes images."""
    images = takes_images(model)
    return Target(provider=model.provider, api=api, model=model.model, images=images, **fields)


def target_of(request: ProviderRequest, api: str, **fields: Any) -> Target:
    """The target of a request; see `target_for`."""
    return target_for(request.model, api, **fields)


def _plain(model: str) -> str:
    return model.strip().casefold().removeprefix("models/")


def _matches(pattern: str) -> Callable[[str], bool]:
    match = re.compile(pattern).fullmatch
    return lambda call_id: match(call_id) is not None


_STYLES: Final[dict[str, tuple[Callable[[str], bool], int, str]]] = {
    "any": (lambda call_id: 0 < len(call_id) <= 256 and "\0" not in call_id, 27, "call_"),
    "openai-chat": (lambda call_id: 0 < len(call_id) <= 40 and "\0" not in call_id, 27, "call_"),
    "openai-responses": (_matches(r"[A-Za-z0-9_-]{0,63}[A-Za-z0-9-]"), 27, "call_"),
    "anthropic-messages": (_matches(r"[A-Za-z0-9_-]{1,64}"), 27, "call_"),
    "mistral9": (_matches(r"[A-Za-z0-9]{9}"), 9, ""),
}


def id_map(style: IdStyle) -> IdMap:
    """An empty map for one conversation."""
    accepts, length, prefix = _STYLES[style]
    return IdMap(accepts, length=length, prefix=prefix)
