"""One message at a time: which of its blocks a target takes, and in which form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Final, TypeAlias

from msgspec.structs import replace

from prism.core._support.results import result_text
from prism.core._wire import (
    ContentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.providers._requests import encode_sent
from prism.core.providers._transform.target import Target, id_map

OMITTED_IMAGE: Final = "(image omitted: the model has no image input)"
EMPTY_RESULT: Final = "(no output)"
IMAGES_FOLLOW: Final = "(the image is in the next user message)"

CUT_SHORT: Final = frozenset({"aborted", "error"})
"""Stop reasons of messages that are not all the model was about to write."""

_NO_IMAGES: Final[tuple[ImageBlock, ...]] = ()
_DEFAULT_IMAGE: Final = "image/png"

Note: TypeAlias = Callable[[str, str], None]
"""Takes the code and the text of a notice."""


class Shaper:
    """Shapes the messages of one conversation, in order: its ids are mapped as they appear.

    Attributes:
        clean: Whether the message shaped last is known to hold no NUL character.
        stamp: What the reasoning of the model's message shaped last was written after.
    """

    __slots__ = ("_ids", "_note", "_target", "clean", "stamp")

    def __init__(self, target: Target, note: Note) -> None:
        self._target = target
        self._ids = id_map(target.id_style)
        self._note = note
        self.clean = False
        self.stamp: str | None = None

    def user(self, message: Message, *, role: str) -> Message | None:
        """What is sent of a user's or a system message, under *role*; `None`: nothing."""
        blocks = message.content
        self.clean = all(map(_is_plain, blocks))
        if self.clean:
            return message if role == message.role else replace(message, role=role)
        sent: list[ContentBlock] = []
        for block in blocks:
            if isinstance(block, TextBlock):
                if block.text and not block.text.isspace():
                    sent.append(block)
            elif isinstance(block, ImageBlock):
                sent.append(self._image(block))
            elif isinstance(block, NativeBlock) and block.api == self._target.api:
                sent.append(block)
        if not sent:
            return None
        if role == message.role and _same_blocks(sent, blocks):
            return message
        return replace(message, role=role, content=sent)

    def result(self, block: ToolResultBlock) -> tuple[ToolResultBlock, Sequence[ImageBlock]]:
        """A result as text and image blocks, and the images that have to follow it instead."""
        target = self._target
        self.clean = (
            bool(block.content)
            and block.error is None
            and block.result is None
            and self._ids[block.tool_call_id] == block.tool_call_id
            and "\0" not in block.name
            and all(map(_is_plain, block.content or ()))
        )
        if self.clean:
            return block, _NO_IMAGES
        sent: list[ContentBlock] = []
        following: list[ImageBlock] = []
        for inner in block.content or ():
            if isinstance(inner, TextBlock):
                if inner.text and not inner.text.isspace():
                    sent.append(inner)
            elif isinstance(inner, ImageBlock):
                image = self._image(inner)
                if isinstance(image, TextBlock) or target.result_images:
                    sent.append(image)
                else:
                    following.append(image)
        if not block.content and block.result is not None:
            value = block.result
            text = value if isinstance(value, str) else encode_sent(value).decode()
            if text and not text.isspace():
                sent.append(TextBlock(text=text))
        if block.error is not None and not _says(sent, block.error.message):
            alone = replace(block, content=None, result=None)
            sent.insert(0, TextBlock(text=result_text(alone)))
        if not sent:
            sent.append(TextBlock(text=IMAGES_FOLLOW if following else EMPTY_RESULT))
        call_id = self._ids[block.tool_call_id]
        if sent == block.content and call_id == block.tool_call_id and block.result is None:
            return block, following
        return (
            ToolResultBlock(tool_call_id=call_id, name=block.name, content=sent, error=block.error),
            following,
        )

    def assistant(self, message: Message, *, strip: bool) -> Message | None:
        """A model's message as another, or the same, may read it; `None` when nothing is left.

        Args:
            message: An assistant message.
            strip: Leave the reasoning out, and what the vendor ties to it.
        """
        self.clean = False
        self.stamp = None
        own = self._target.is_source(message.model)
        cut_short = message.stop_reason in CUT_SHORT
        if own and not strip and all(map(self._can_stay, message.content)):
            return message if message.content else None
        sent = [
            kept
            for block in message.content
            if (kept := self._kept(block, own=own, strip=strip, cut_short=cut_short)) is not None
        ]
        self.stamp = next(filter(None, map(_stamp_of, sent)), None)
        if not sent or (cut_short and all(isinstance(block, ThinkingBlock) for block in sent)):
            return None
        return message if _same_blocks(sent, message.content) else replace(message, content=sent)

    def _can_stay(self, block: ContentBlock) -> bool:
        """Whether a block of this very model goes back as it is: nearly all do."""
        if isinstance(block, TextBlock):
            fits = bool(block.text) and not block.text.isspace()
        elif isinstance(block, ToolCallBlock):
            fits = self._ids[block.id] == block.id and block.raw_arguments is None
        elif isinstance(block, ThinkingBlock):
            fits = block.replay is not None and self._target.reasoning
        else:
            return False
        replay = block.replay
        if replay is None:
            return fits
        if replay.prefix is not None and self.stamp is None:
            self.stamp = replay.prefix
        return fits and replay.api == self._target.api

    def _kept(
        self, block: ContentBlock, *, own: bool, strip: bool, cut_short: bool
    ) -> ContentBlock | None:
        target = self._target
        if isinstance(block, TextBlock):
            replay = self._replay(block.replay, own=own, strip=strip)
            signed = replay is not None and replay.kind == "signature"
            if signed or (block.text and not block.text.isspace()):
                return block if replay is block.replay else replace(block, replay=replay)
            return None
        if isinstance(block, ThinkingBlock):
            return self._thinking(block, own=own, strip=strip)
        if isinstance(block, ToolCallBlock):
            return self._call(block, self._replay(block.replay, own=own, strip=strip))
        if isinstance(block, NativeBlock):
            bound = strip and target.bound_natives and block.kind != "compaction"
            sends = own and block.api == target.api and not cut_short and not bound
            return block if sends else None
        return block if isinstance(block, ImageBlock) else None

    def _thinking(self, block: ThinkingBlock, *, own: bool, strip: bool) -> ContentBlock | None:
        target = self._target
        if own:
            signed = block.replay is None and bool(block.signature) and target.signed_thinking
            keeps = target.reasoning and not strip and (signed or target.takes_replay(block.replay))
            return block if keeps else None
        is_text = target.foreign_thinking == "text" and not block.redacted and block.text.strip()
        return TextBlock(text=block.text) if is_text else None

    def _call(self, block: ToolCallBlock, replay: Replay | None) -> ToolCallBlock:
        call_id = self._ids[block.id]
        broken = block.raw_arguments is not None
        if call_id == block.id and replay is block.replay and not broken:
            return block
        return ToolCallBlock(
            id=call_id,
            name=block.name,
            arguments={} if broken else block.arguments,
            replay=replay,
        )

    def _replay(self, replay: Replay | None, *, own: bool, strip: bool) -> Replay | None:
        if replay is None or not own or not self._target.takes_replay(replay):
            return None
        if not strip:
            return replay
        if replay.kind == "signature":
            return None
        # The vendor looks for the reasoning that an item's id belongs to.
        return replace(replay, item_id=None, prefix=None)

    def _image(self, block: ImageBlock) -> ImageBlock | TextBlock:
        target = self._target
        if not target.images:
            self._note("image_omitted", f"{target.model} has no image input: images were left out.")
            return TextBlock(text=OMITTED_IMAGE)
        kind = block.mime_type or _DEFAULT_IMAGE
        if target.image_types is None or block.data is None or kind in target.image_types:
            return block
        self._note(
            "image_type_unsupported",
            f"{target.api} takes no images of the type {kind}: such images were left out.",
        )
        return TextBlock(text=f"(image omitted: the model takes no {kind})")


def _stamp_of(block: ContentBlock) -> str | None:
    if not isinstance(block, ThinkingBlock | TextBlock | ToolCallBlock) or block.replay is None:
        return None
    return block.replay.prefix


def _is_plain(block: ContentBlock) -> bool:
    """Whether a block is text that every wire takes as it is."""
    if not isinstance(block, TextBlock) or block.replay is not None:
        return False
    text = block.text
    return bool(text) and not text.isspace() and "\0" not in text


def _says(blocks: Sequence[ContentBlock], text: str) -> bool:
    return any(isinstance(block, TextBlock) and text in block.text for block in blocks)


def _same_blocks(sent: Sequence[ContentBlock], content: Sequence[ContentBlock]) -> bool:
    """Whether these are the very same blocks."""
    return len(sent) == len(content) and all(map(is_, sent, content))
