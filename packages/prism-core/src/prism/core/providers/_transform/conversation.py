"""A conversation that grows: what was sent of it stays, and only what is new is looked at.

Everything up to the last message of the model is settled: it is laid out once. What follows it, the
results and the input that the model has not answered yet, is laid out again for each request,
because the next message may still join it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, Final

from msgspec.structs import replace

from prism.core._contracts import Notice
from prism.core._errors import ProviderError
from prism.core._wire import (
    ContentBlock,
    ImageBlock,
    Message,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.providers._transform.blocks import CUT_SHORT, Shaper
from prism.core.providers._transform.layout import Encode, Layout, Sent
from prism.core.providers._transform.target import Target
from prism.core.providers._transform.whole import Pairs

IMAGES_OF_RESULTS: Final = "Images that the tools returned, in the order of the calls:"
CONTINUED: Final = "(continued)"
"""Stands in front of a conversation that begins with the model's message."""

BETWEEN: Final = "Understood."
"""What the model is made to say between results and a user message."""

CONTINUE: Final = "(continue)"
"""Asks the model to go on after a message of its own that was cut short."""

_CAN_GO_ON: Final = CUT_SHORT | {"length"}


class Conversation:
    """Lays out one conversation for one target, again and again as it grows."""

    __slots__ = (
        "_at",
        "_done",
        "_new_notices",
        "_pairs",
        "_repairs",
        "_seen",
        "_settled",
        "_shaper",
        "_target",
        "_whole",
    )

    def __init__(self, target: Target, encode: Encode, head: bytes) -> None:
        self._target = target
        self._pairs = Pairs()
        self._settled = Layout(encode, head)
        self._shaper = Shaper(target, self._note)
        self._whole: list[Message] = []  # what is settled, as it was before it was shaped
        self._done = 0
        self._repairs = 0
        self._seen = 0  # messages that an earlier request had
        self._at = 0  # the place of the message that is looked at
        self._new_notices: dict[str, Notice] = {}

    @property
    def inputs(self) -> list[Message]:
        """The messages as they came."""
        return self._pairs.inputs

    @property
    def size(self) -> int:
        """Bytes of what is settled."""
        return self._settled.size

    def push(self, messages: Sequence[Message]) -> None:
        """Take what the conversation grew by."""
        self._pairs.push(messages)

    def sent(self) -> Sent | None:
        """The whole conversation; `None` when its newest messages changed what was sent before.

        Raises:
            ProviderError: `invalid_request`, when it does not end with something to answer, or
                something of it is no JSON.
        """
        self._new_notices = {}
        whole = self._pairs.whole()
        if self._pairs.repairs > self._repairs:
            self._at = len(whole)
            self._note(
                "history_repaired",
                "Calls and results of the conversation did not match; the copy that is sent was "
                "mended.",
            )
            # A late result may have taken the place of one that no tool gave.
            if not all(map(is_, self._whole, whole)):
                return None
        self._repairs = self._pairs.repairs
        last = len(whole) - 1
        while last >= self._done and not _is_surely_sent(whole[last]):
            last -= 1
        if last >= self._done:
            self._lay(self._settled, whole, self._done, last + 1)
            self._whole += whole[self._done : last + 1]
            self._done = last + 1
            if self._target.binds_prefix:
                self._settled.prefix()  # so that the next request does not take it in again
            self._settled.pack()
        layout = self._settled.behind()
        self._lay(layout, whole, self._done, len(whole))
        self._check_end(layout)
        self._seen = len(whole)
        return Sent(
            self._settled,
            layout,
            prefix=layout.prefix() if self._target.binds_prefix else None,
            notices=list(self._new_notices.values()),
        )

    def _lay(self, layout: Layout, messages: Sequence[Message], start: int, end: int) -> None:
        target, shaper = self._target, self._shaper
        merging = target.merge_users
        merged: list[ContentBlock] = []  # results and input between two messages of the model
        clean = True  # whether what is merged is known to hold no NUL
        images: list[ImageBlock] = []  # of the results under way
        for at in range(start, end):
            self._at = at
            message = messages[at]
            role = message.role
            block = message.content[0]
            if isinstance(block, ToolResultBlock):
                result, following = shaper.result(block)
                images += following
                if merging:
                    merged.append(result)
                    clean = clean and shaper.clean
                    continue
                if result is not block or role != "tool":  # some histories have it as the user's
                    message = replace(message, role="tool", content=[result])
                layout.add(message, clean=shaper.clean)
                continue
            if images:
                self._lay_images(layout, images, merged)
                clean = False
            if role == "assistant":
                merged = self._lay_assistant(layout, message, merged, clean=clean)
                clean = clean or not merged
                continue
            is_note = role == "system" and target.system_notes
            shaped = shaper.user(message, role="system" if is_note else "user")
            if shaped is None:
                continue
            if merging and not is_note:
                merged += shaped.content
                clean = clean and shaper.clean
                continue
            if merged:
                layout.add(Message(role="user", content=merged), clean=clean)
                merged, clean = [], True
            self._add(layout, shaped, clean=shaper.clean)
        if images:
            self._lay_images(layout, images, merged)
            clean = False
        if merged:
            layout.add(Message(role="user", content=merged), clean=clean)

    def _lay_assistant(
        self, layout: Layout, message: Message, merged: list[ContentBlock], *, clean: bool
    ) -> list[ContentBlock]:
        """A model's message behind what was merged before it; what is still to be merged."""
        shaper = self._shaper
        sent = shaper.assistant(message, strip=False)
        if sent is None:
            return merged
        if merged:
            layout.add(Message(role="user", content=merged), clean=clean)
        if (
            shaper.stamp is not None
            and self._target.binds_prefix
            and shaper.stamp != layout.prefix()
        ):
            # What is written from now on fits again: it comes from what is sent now, without the
            # reasoning that is left out here.
            self._note(
                "thinking_stripped",
                "The conversation before some of the model's messages changed after they were "
                "written: their reasoning was left out.",
            )
            sent = shaper.assistant(message, strip=True)
            if sent is None:
                return layout.take_back().content if merged else merged
        last = layout.last
        if last is None:
            if self._target.user_first:
                layout.add(_user_text(CONTINUED))
        elif last.role == "assistant" and last.stop_reason in _CAN_GO_ON:
            layout.add(_user_text(CONTINUE))
        layout.add(sent, clean=shaper.clean)
        return []

    def _lay_images(
        self, layout: Layout, images: list[ImageBlock], merged: list[ContentBlock]
    ) -> None:
        blocks: list[ContentBlock] = [TextBlock(text=IMAGES_OF_RESULTS), *images]
        images.clear()
        if self._target.merge_users:
            merged += blocks
        else:
            self._add(layout, Message(role="user", content=blocks))

    def _add(self, layout: Layout, message: Message, *, clean: bool = False) -> None:
        last = layout.last
        if (
            self._target.assistant_after_results
            and message.role == "user"
            and last is not None
            and last.role == "tool"
        ):
            layout.add(Message(role="assistant", content=[TextBlock(text=BETWEEN)]))
        layout.add(message, clean=clean)

    def _check_end(self, layout: Layout) -> None:
        newest = self.inputs[-1] if self.inputs else None
        last = layout.last
        if newest is None or last is None or (newest.role == "user" and _is_blank(newest)):
            raise ProviderError(
                "The last message of the request has no content to send.", code="invalid_request"
            )
        if last.role != "assistant" or last.stop_reason == "pause":
            return
        if last.stop_reason in _CAN_GO_ON:
            layout.add(_user_text(CONTINUE))
            return
        raise ProviderError(
            "The conversation ends with the model's own message: add what it is to answer.",
            code="invalid_request",
        )

    def _note(self, code: str, message: str) -> None:
        if self._at >= self._seen:
            self._new_notices.setdefault(code, Notice(code=code, message=message))


def transform(messages: Sequence[Message], target: Target, *, head: bytes = b"") -> Sent:
    """A whole conversation at once; pure. `items` are its messages in Prism's own form.

    Args:
        messages: In order; not changed.
        target: Where they go.
        head: What stands before the messages and is bound with them.

    Raises:
        ProviderError: `invalid_request`.
    """
    conversation = Conversation(target, _as_it_is, head)
    conversation.push(messages)
    sent = conversation.sent()
    assert sent is not None  # noqa: S101 - nothing was sent before
    return sent


def _as_it_is(message: Message) -> list[Any]:
    return [{"role": message.role, "content": message.content}]


def _is_surely_sent(message: Message) -> bool:
    """Whether a model's message keeps something of it whatever its target."""
    return message.role == "assistant" and any(
        isinstance(block, ToolCallBlock) or (isinstance(block, TextBlock) and block.text.strip())
        for block in message.content
    )


def _is_blank(message: Message) -> bool:
    """Whether nothing of a user message is sent."""
    return all(
        isinstance(block, OpaqueBlock | ThinkingBlock)
        or (isinstance(block, TextBlock) and not block.text.strip())
        for block in message.content
    )


def _user_text(text: str) -> Message:
    return Message(role="user", content=[TextBlock(text=text)])
