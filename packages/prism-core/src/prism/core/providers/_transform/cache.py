"""Conversations that were laid out before, so that a turn encodes only what it adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from threading import Lock
from typing import Final

from prism.core._contracts import ProviderRequest
from prism.core._wire import Message, encode
from prism.core.providers._transform.conversation import Conversation
from prism.core.providers._transform.layout import Encode, Sent
from prism.core.providers._transform.target import Target

MAX_CONVERSATIONS: Final = 64
"""How many conversations a provider keeps; the one that was used longest ago goes first."""

MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""How many bytes of encoded messages a provider keeps in all."""

_MAX_COMPARED: Final = 8


class _Kept:
    __slots__ = ("conversation", "head", "switches", "target")

    def __init__(
        self, conversation: Conversation, target: Target, head: bytes, switches: object
    ) -> None:
        self.conversation = conversation
        self.target = target
        self.head = head
        self.switches = switches


class Conversations:
    """Encoded conversations of one provider, found again by the messages themselves.

    Messages are frozen, so one that is the same object is the same message; a request that
    begins with the messages of an earlier one costs what it adds. Kept messages are held, so that
    their identity stays theirs. Safe to use from several threads.

    Args:
        max_conversations: How many are kept.
        max_bytes: How many encoded bytes are kept in all.
    """

    def __init__(
        self, *, max_conversations: int = MAX_CONVERSATIONS, max_bytes: int = MAX_KEPT_BYTES
    ) -> None:
        self._max_conversations = max_conversations
        self._max_bytes = max_bytes
        self._kept: dict[int, _Kept] = {}  # by the identity of the last message; oldest first
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def render(
        self,
        request: ProviderRequest,
        target: Target,
        *,
        head: bytes,
        encoder: Callable[[], Encode],
        switches: object = None,
    ) -> Sent:
        """The messages of *request* as *target* takes them, encoded.

        Args:
            request: Only its messages are looked at.
            target: Where they go.
            head: What stands before the messages and is bound with them: the wire's system
                prompt and tools, encoded without cache marks.
            encoder: Makes the function that turns one transformed message into the wire's items.
                It is kept with the conversation: it may depend on *target* and *switches* alone,
                and its state may change at assistant messages alone.
            switches: What else the encoding depends on; compared by `==`.

        Raises:
            ProviderError: `invalid_request`.
        """
        messages = request.messages
        kept = self._take(messages, target, head, switches)
        sent: Sent | None = None
        # One that raises is not put back: it may stand half-way.
        if kept is not None:
            kept.conversation.push(messages[len(kept.conversation.inputs) :])
            sent = kept.conversation.sent()
        if kept is None or sent is None:
            kept = _Kept(Conversation(target, encoder(), head), target, head, switches)
            kept.conversation.push(messages)
            sent = kept.conversation.sent()
            assert sent is not None  # noqa: S101 - nothing was sent before
        self._put(kept)
        return sent

    def _take(
        self, messages: Sequence[Message], target: Target, head: bytes, switches: object
    ) -> _Kept | None:
        """The longest kept conversation that *messages* go on from; nobody else gets it then."""
        with self._lock:
            kept_by_id = self._kept
            if not kept_by_id:
                return None
            for at in range(len(messages) - 1, -1, -1):
                kept = kept_by_id.get(id(messages[at]))
                if (
                    kept is not None
                    and len(kept.conversation.inputs) == at + 1
                    and kept.target == target
                    and kept.head == head
                    and kept.switches == switches
                    and _begins_with(messages, kept.conversation.inputs)
                ):
                    return kept_by_id.pop(id(messages[at]))
        return None

    def _put(self, kept: _Kept) -> None:
        with self._lock:
            kept_by_id = self._kept
            key = id(kept.conversation.inputs[-1])
            kept_by_id.pop(key, None)
            kept_by_id[key] = kept
            total = sum(other.conversation.size for other in kept_by_id.values())
            while kept_by_id and (
                len(kept_by_id) > self._max_conversations or total > self._max_bytes
            ):
                oldest = kept_by_id.pop(next(iter(kept_by_id)))
                total -= oldest.conversation.size


def _begins_with(messages: Sequence[Message], start: Sequence[Message]) -> bool:
    """Whether *messages* begin with the same messages as *start*.

    Context and summaries are built anew for each request: a few messages may be equal only.
    """
    if all(map(is_, start, messages)):
        return True
    differing = [pair for pair in zip(start, messages, strict=False) if pair[0] is not pair[1]]
    return len(differing) <= _MAX_COMPARED and all(
        encode(old) == encode(new) for old, new in differing
    )
