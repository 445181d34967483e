"""What is sent of a conversation, in order, and what stays of it between two requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

from prism.core._contracts import Notice
from prism.core._wire import Message
from prism.core.providers._requests import encode_clean, encode_sent

_DIGEST_CHARS: Final = 32
_HASHED_AT_ONCE: Final = 32
PACKED_AT_ONCE: Final = 64
"""So many items make a pack, and at least so many stand alone behind the last one."""

Encode: TypeAlias = Callable[[Message], Iterable[Any]]
"""Turns one transformed message into the wire's items, in order: plain JSON values, and
`msgspec.Raw` for what goes out as it is."""


class Sent:
    """A conversation as it is sent. Each list is made when it is asked for, and the caller's own.

    Attributes:
        prefix: Digest of all that, for `WireCall.prefix`; none when the target binds none.
        notices: What the host should know; each thing is told once per conversation.
        has_notes: Whether a system message stands among the messages.
    """

    __slots__ = ("_counts", "_packed", "_settled", "_tail", "has_notes", "notices", "prefix")

    def __init__(
        self, settled: Layout, tail: Layout, *, prefix: str | None, notices: list[Notice]
    ) -> None:
        self._settled = settled
        self._tail = tail
        # The settled part may have grown when somebody asks.
        self._counts = len(settled.messages), len(settled.items)
        self._packed = settled.packed
        self.has_notes = settled.has_notes or tail.has_notes
        self.prefix = prefix
        self.notices = notices

    @property
    def messages(self) -> list[Message]:
        """After the transformation.

        Calls are paired, ids mapped, foreign reasoning is gone; results are text and image blocks
        in `content`, with `error` beside them as a flag.
        """
        return [*self._settled.messages[: self._counts[0]], *self._tail.messages]

    @property
    def starts(self) -> list[int]:
        """For each message, where its items begin."""
        return [*self._settled.starts[: self._counts[0]], *self._tail.starts]

    @property
    def items(self) -> list[msgspec.Raw]:
        """What the encoder made of the messages, one after the other."""
        return [*self._settled.items[: self._counts[1]], *self._tail.items]

    @property
    def body(self) -> list[msgspec.Raw]:
        """The items for a body, where old ones stand many in one element, with commas between.

        At least the last 64 stand alone, so these can be changed.
        """
        packed = self._packed
        single = self._settled.items[packed * PACKED_AT_ONCE : self._counts[1]]
        return [*self._settled.packs[:packed], *single, *self._tail.items]


class Layout:
    """What is sent, in order; it grows at its end."""

    __slots__ = (
        "_before", "_digest", "_encode", "_hashed", "_offset", "has_notes", "items", "last",
        "messages", "packs", "size", "starts",
    )  # fmt: skip

    def __init__(self, encode: Encode, head: bytes) -> None:
        self._encode = encode
        self._digest = sha256(head)
        self._hashed = 0
        self._before = (self._digest, 0)  # the digest before it was last continued
        self._offset = 0  # items of the layout that this one goes on from
        self.messages: list[Message] = []
        self.starts: list[int] = []
        self.items: list[msgspec.Raw] = []
        self.packs: list[msgspec.Raw] = []
        self.last: Message | None = None
        self.has_notes = False
        self.size = len(head)

    def behind(self) -> Layout:
        """An empty layout that goes on from here, and leaves this one as it is."""
        other = Layout(self._encode, b"")
        other._digest = self._digest.copy()
        other._before = (other._digest, 0)
        other._offset = len(self.items)
        other.last = self.last
        return other

    @property
    def packed(self) -> int:
        """How many packs there are."""
        return len(self.packs)

    def pack(self) -> None:
        """Join many items into one, so that what was sent long ago costs little to send again."""
        start = len(self.packs) * PACKED_AT_ONCE
        while len(self.items) - start >= 2 * PACKED_AT_ONCE:
            pack = b",".join(self.items[start : start + PACKED_AT_ONCE])
            self.packs.append(msgspec.Raw(pack))
            self.size += len(pack)
            start += PACKED_AT_ONCE

    def prefix(self) -> str:
        """Digest of the head and of all items so far."""
        items = self.items
        if self._hashed < len(items):
            self._before = (self._digest.copy(), self._hashed)
            for at in range(self._hashed, len(items), _HASHED_AT_ONCE):
                # JSON has no line feed, so two items are never taken for one.
                part = items[at : at + _HASHED_AT_ONCE]
                self._digest.update(b"\n" + b"\n".join(part))
            self._hashed = len(items)
        return self._digest.hexdigest()[:_DIGEST_CHARS]

    def take_back(self) -> Message:
        """Remove the last message; another one has to take its place."""
        message = self.messages.pop()
        start = self.starts.pop() - self._offset
        del self.items[start:]
        if self._hashed > start:
            self._digest, self._hashed = self._before
        return message

    def add(self, message: Message, *, clean: bool = False) -> None:
        """Put *message* at the end; *clean* texts need no search for what cannot be sent."""
        items = self.items
        self.messages.append(message)
        self.starts.append(self._offset + len(items))
        self.last = message
        if message.role == "system":
            self.has_notes = True
        for item in self._encode(message):
            if type(item) is msgspec.Raw:  # a vendor's own item, verbatim
                self.size += len(bytes(item))
                items.append(item)
                continue
            data = encode_clean(item) if clean else encode_sent(item)
            self.size += len(data)
            items.append(msgspec.Raw(data))
