"""A run's input, as the messages that are stored."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from typing import Final, cast

import msgspec

from prism.core._contracts import InputRequest, Resource
from prism.core._errors import ResourceError, UsageError
from prism.core._support.limits import truncate_utf8
from prism.core._support.pairs import split_results
from prism.core._wire import (
    ContentBlock,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
)
from prism.core.prompt._blocks import GIVEN_KINDS, is_blank, is_given_block

MAX_SHOWN_URI_BYTES: Final = 512
"""Longest URI that `resource_block` shows; a `data:` URI is cut to its scheme."""


class DefaultInputBuilder:
    """Takes text, blocks, messages and results of tools; refuses what no user can say.

    Blocks that follow one another become one `user` message; a message of role `user` stays the
    object that it is; each tool result becomes a `tool` message of its own. Results come before
    everything else, since they answer calls that are already in the history. Attachments follow
    the last user message's own blocks. Whether a result answers an open call, only the session
    can tell.
    """

    __slots__ = ()

    async def build(self, request: InputRequest) -> list[Message]:
        """The messages, at least one.

        Raises:
            UsageError: `invalid_params`. Its details have the `reason`: `empty_input` (nothing
                but white space and no attachment), `invalid_role`, `invalid_block` or
                `misplaced_result`.
        """
        collected = _Collector()
        if isinstance(request.input, str):
            if request.input.strip():
                collected.block(TextBlock(text=request.input), "the input")
        elif isinstance(request.input, Message):
            collected.message(request.input, "the input")
        else:
            for position, item in enumerate(_items(request.input)):
                where = f"item {position} of the input"
                if isinstance(item, Message):
                    collected.message(item, where)
                else:
                    collected.block(item, where)
        collected.attach(request.attachments)
        return collected.finish()


class _Collector:
    """Gathers messages in order; blocks wait until something else ends their message."""

    __slots__ = ("_blocks", "_messages")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._blocks: list[ContentBlock] = []

    def message(self, message: Message, where: str) -> None:
        if message.role == "tool":
            results = split_results(message)
            if not results:
                raise _refused("invalid_block", f"{where} is a tool message without a result.")
            for result in results:
                self._result(result, where)
            return
        if message.role != "user":
            raise _refused(
                "invalid_role",
                f"{where} has the role {message.role!r}; a run is given 'user' messages, or "
                "'tool' messages that answer calls.",
            )
        for block in message.content:
            _check_given(block, where)
        self._end_blocks()
        self._messages.append(message)

    def block(self, block: object, where: str) -> None:
        if isinstance(block, ToolResultBlock):
            self._result(Message(role="tool", content=[block]), where)
        else:
            self._blocks.append(_check_given(block, where))

    def _result(self, message: Message, where: str) -> None:
        if self._blocks or (self._messages and self._messages[-1].role != "tool"):
            raise _refused(
                "misplaced_result",
                f"{where} is a tool's result behind other input; put the results first.",
            )
        self._messages.append(message)

    def attach(self, attachments: Iterable[ContentBlock]) -> None:
        blocks = [
            _check_given(block, f"attachment {position}")
            for position, block in enumerate(attachments)
        ]
        if blocks and not self._blocks and self._messages and self._messages[-1].role == "user":
            last = self._messages[-1]
            self._messages[-1] = msgspec.structs.replace(last, content=[*last.content, *blocks])
        else:
            self._blocks.extend(blocks)

    def _end_blocks(self) -> None:
        if self._blocks:
            self._messages.append(Message(role="user", content=self._blocks))
            self._blocks = []

    def finish(self) -> list[Message]:
        self._end_blocks()
        if not self._messages or any(
            all(is_blank(block) for block in message.content) for message in self._messages
        ):
            raise _refused(
                "empty_input", "there is nothing in it to answer; give text, blocks or messages."
            )
        return self._messages


def _items(value: object) -> Sequence[object]:
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return cast("Sequence[object]", value)
    raise _no_input(value)


def _no_input(value: object) -> UsageError:
    return _refused(
        "invalid_block",
        f"it is {type(value).__name__}, not a string, a message, or a list of blocks and messages.",
    )


def _check_given(block: object, where: str) -> ContentBlock:
    if not is_given_block(block):
        hint = " (wrap it in TextBlock)" if isinstance(block, str) else ""
        raise _refused(
            "invalid_block",
            f"{where} holds {type(block).__name__}{hint}; a user's message is made of "
            f"{GIVEN_KINDS}.",
        )
    return block


def _refused(reason: str, what: str) -> UsageError:
    return UsageError(f"The input is refused: {what}", details={"reason": reason})


def resource_block(resource: Resource) -> ContentBlock:
    """A loaded resource as a block for the input or its attachments.

    An image, but for SVG, becomes an `ImageBlock`. Everything else has to be UTF-8 (a byte order
    mark is dropped) without NUL, and becomes a text that names the URI and the media type.

    Raises:
        ResourceError: `resource_decode`, when it is neither.
    """
    media_type = (resource.media_type or "").partition(";")[0].strip().lower()
    if media_type.startswith("image/") and media_type != "image/svg+xml":
        return ImageBlock(
            mime_type=media_type, data=b2a_base64(resource.data, newline=False).decode()
        )
    shown = "data:" if resource.uri[:5].lower() == "data:" else resource.uri
    shown = truncate_utf8(shown, MAX_SHOWN_URI_BYTES)
    try:
        text = resource.data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        kind = f" of type {media_type}" if media_type else ""
        raise ResourceError(
            f"Resource {shown!r}{kind} is neither an image nor UTF-8 text, so it cannot be given "
            "to a model; convert it first.",
            code="resource_decode",
            details={"uri": shown, "mediaType": media_type or None},
        )
    from html import escape  # its table of entities is not for everyone who imports this

    type_of = f' type="{escape(media_type)}"' if media_type else ""
    return TextBlock(text=f'<resource uri="{escape(shown)}"{type_of}>\n{text}\n</resource>')
