"""Keeping calls and results together on the copy that a provider is sent.

Every vendor refuses a conversation in which a call has no result, a result has no call, or the
results of one batch do not follow their calls. A crash, an abort, an import or another program
can leave such a history in a store, where nothing is rewritten; so it is mended here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from typing import Final

import msgspec

from prism.core._wire import (
    ContentBlock,
    ErrorInfo,
    Message,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)

SYNTHETIC_CODES: Final = frozenset({"interrupted", "aborted", "skipped", "outcome_unknown"})
"""Error codes of results that no tool gave; a real result of the same call replaces them."""

INTERRUPTED: Final = ErrorInfo(
    code="interrupted",
    message="The call was interrupted before its result was kept; it may or may not have run.",
)


def interrupted_result(call: ToolCallBlock) -> Message:
    """The result that stands for a call whose own is missing."""
    block = ToolResultBlock(tool_call_id=call.id, name=call.name, error=INTERRUPTED)
    return Message(role="tool", content=[block])


def split_results(message: Message) -> list[Message]:
    """The results of a message as one `tool` message each.

    Other blocks of a `tool` message (the TypeScript original wrote some beside its results)
    become content of the result that they follow, or of the first one.
    """
    if len(message.content) == 1 and isinstance(message.content[0], ToolResultBlock):
        return [message]
    results: list[ToolResultBlock] = []
    beside: list[list[ContentBlock]] = []
    ahead: list[ContentBlock] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            results.append(block)
            beside.append([])
        elif message.role == "tool":
            (beside[-1] if beside else ahead).append(block)
    if ahead and beside:
        beside[0] = ahead + beside[0]
    return [
        Message(
            role="tool",
            content=[
                msgspec.structs.replace(block, content=[*(block.content or ()), *extra])
                if extra
                else block
            ],
            id=message.id,
            metadata=message.metadata,
        )
        for block, extra in zip(results, beside, strict=True)
    ]


def sendable_assistant(message: Message) -> Message | None:
    """An assistant message as it can be sent, or `None` when nothing of it can.

    One that was cut short (`aborted`, `error`) keeps its text and its complete calls; its
    thinking goes unless a signature or replay state makes it whole.
    """
    cut_short = message.stop_reason in {"aborted", "error"}
    content: list[ContentBlock] = [
        block
        for block in message.content
        if not isinstance(block, ToolResultBlock) and (not cut_short or _is_complete(block))
    ]
    for block in content:
        if _says_something(block) and not (cut_short and isinstance(block, ThinkingBlock)):
            break
    else:
        return None
    return message if len(content) == len(message.content) else _with_content(message, content)


def _is_complete(block: ContentBlock) -> bool:
    if isinstance(block, ThinkingBlock):
        return _is_signed(block)
    if isinstance(block, ToolCallBlock):
        return block.raw_arguments is None
    if isinstance(block, TextBlock):
        return bool(block.text)
    return True


def _says_something(block: ContentBlock) -> bool:
    """Whether a message that holds only this block is more than an empty one."""
    if isinstance(block, TextBlock):
        return bool(block.text.strip()) or block.replay is not None
    if isinstance(block, ThinkingBlock):
        return bool(block.text.strip()) or _is_signed(block)
    return not isinstance(block, OpaqueBlock)  # an opaque block is never sent


def _is_signed(block: ThinkingBlock) -> bool:
    return bool(block.signature) or block.replay is not None


def _with_content(message: Message, content: list[ContentBlock]) -> Message:
    return msgspec.structs.replace(message, content=content)


class _Batch:
    """The calls of one assistant message, and what answered them so far.

    Attributes:
        calls: As in the history, in call order.
        sent_ids: Under which id each is sent.
        results: What answered each.
        missing: Places of calls without a result, by call id.
        stand_ins: Places of calls with a result that no tool gave, by call id.
        arrived: Places in the order in which their results came.
    """

    __slots__ = ("arrived", "calls", "missing", "results", "sent_ids", "stand_ins")

    def __init__(self) -> None:
        self.calls: list[ToolCallBlock] = []
        self.sent_ids: list[str] = []
        self.results: list[Message | None] = []
        self.missing: dict[str, deque[int]] = {}
        self.stand_ins: dict[str, deque[int]] = {}
        self.arrived: list[int] = []

    def add(self, call: ToolCallBlock, sent_id: str) -> None:
        self.missing.setdefault(call.id, deque()).append(len(self.calls))
        self.calls.append(call)
        self.sent_ids.append(sent_id)
        self.results.append(None)

    def answer(self, call_id: str, result: Message) -> bool:
        """Take the result of an open call; `False` when there is none of that id."""
        places = self.missing.get(call_id)
        if not places:
            return False
        place = places.popleft()
        self.results[place] = result
        self.arrived.append(place)
        if _is_synthetic(result):
            self.stand_ins.setdefault(call_id, deque()).append(place)
        return True

    def correct(self, call_id: str, result: Message) -> bool:
        """Put a real result where a synthetic one is; `False` when there is none of that id."""
        places = self.stand_ins.get(call_id)
        if not places:
            return False
        self.results[places.popleft()] = result
        return True

    def messages(self, *, waiting: Container[str] = ()) -> list[tuple[ToolCallBlock, Message]]:
        """Each call and its result as sent, but for open calls that are *waiting*."""
        return [
            (call, _answering(interrupted_result(call) if result is None else result, sent_id))
            for call, sent_id, result in zip(self.calls, self.sent_ids, self.results, strict=True)
            if result is not None or call.id not in waiting
        ]


class PairRepairer:
    """Mends a conversation message by message, so that adding one costs one.

    A call whose id was used before in the conversation (imported histories have such) is sent
    under another id, and its result with it. `open_calls` and `waiting` speak of the ids in the
    history.

    Attributes:
        messages: What can be sent, but for calls that still wait for their results.
        repairs: How many times something was added, dropped, moved or renamed.
    """

    __slots__ = ("_batch", "_stand_ins", "_used_ids", "messages", "repairs")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.repairs: int = 0
        self._batch = _Batch()
        # Where results that no tool gave stand in `messages`, by the call's id in the history.
        self._stand_ins: dict[str, list[int]] = {}
        self._used_ids: dict[str, int] = {}

    @property
    def open_calls(self) -> list[ToolCallBlock]:
        """Calls of the last assistant message that have no result yet, in call order."""
        batch = self._batch
        return [
            call for call, result in zip(batch.calls, batch.results, strict=True) if result is None
        ]

    def push(self, message: Message) -> None:
        """Take the next message of the history."""
        if message.role == "assistant":
            self._push_assistant(message)
        elif message.role == "tool":
            results = split_results(message)
            self.repairs += not results
            for result in results:
                self._push_result(result)
        else:
            self._push_other(message)

    def _push_other(self, message: Message) -> None:
        content: list[ContentBlock] = [
            block
            for block in message.content
            if not isinstance(block, ToolCallBlock | ToolResultBlock)
        ]
        empty = all(isinstance(block, OpaqueBlock) for block in content)
        if empty or len(content) != len(message.content):
            self.repairs += 1
            for result in split_results(message):
                self._push_result(result)
            if empty:
                return
            message = _with_content(message, content)
        self._close_batch()
        self.messages.append(message)

    def _push_assistant(self, message: Message) -> None:
        sendable = sendable_assistant(message)
        if sendable is not message:
            self.repairs += 1
        if sendable is None:
            return
        self._close_batch()
        renamed: dict[int, ContentBlock] = {}
        for at, block in enumerate(sendable.content):
            if isinstance(block, ToolCallBlock):
                sent_id = self._free_id(block.id)
                self._batch.add(block, sent_id)
                if sent_id != block.id:
                    renamed[at] = msgspec.structs.replace(block, id=sent_id)
        if renamed:
            self.repairs += len(renamed)
            content: list[ContentBlock] = [
                renamed.get(at, block) for at, block in enumerate(sendable.content)
            ]
            sendable = _with_content(sendable, content)
        self.messages.append(sendable)

    def _free_id(self, call_id: str) -> str:
        """The id itself, or one made from it when it is empty or a call was sent under it."""
        number = self._used_ids.get(call_id, 0)
        if call_id and not number:
            self._used_ids[call_id] = 1
            return call_id
        while True:
            number += 1
            candidate = f"{call_id or 'call'}_{number}"
            if candidate not in self._used_ids:
                self._used_ids[call_id] = number
                self._used_ids[candidate] = 1
                return candidate

    def _push_result(self, message: Message) -> None:
        call_id = _result_of(message).tool_call_id
        batch = self._batch
        if batch.answer(call_id, message):
            if len(batch.arrived) == len(batch.calls):
                self._close_batch()
            return
        self.repairs += 1  # an orphan, a second result, or the real one after a stand-in
        if _is_synthetic(message) or batch.correct(call_id, message):
            return
        if stand_ins := self._stand_ins.get(call_id):
            at = stand_ins.pop()
            self.messages[at] = _answering(message, _result_of(self.messages[at]).tool_call_id)

    def _close_batch(self) -> None:
        """Send the results of the batch; calls that have none are interrupted."""
        batch = self._batch
        if not batch.calls:
            return
        self.repairs += len(batch.calls) - len(batch.arrived)
        self.repairs += batch.arrived != sorted(batch.arrived)
        for call, result in batch.messages():
            if _is_synthetic(result):
                self._stand_ins.setdefault(call.id, []).append(len(self.messages))
            self.messages.append(result)
        self._batch = _Batch()

    def snapshot(self, *, waiting: Container[str] = ()) -> list[Message]:
        """A list that can be sent now; open calls get interrupted results in it.

        Args:
            waiting: Call ids that get none, because their approval is open.
        """
        results = (result for _, result in self._batch.messages(waiting=waiting))
        return [*self.messages, *results]


def _result_of(message: Message) -> ToolResultBlock:
    block = message.content[0]
    assert isinstance(block, ToolResultBlock)  # noqa: S101
    return block


def _answering(message: Message, call_id: str) -> Message:
    block = _result_of(message)
    if block.tool_call_id == call_id:
        return message
    return _with_content(message, [msgspec.structs.replace(block, tool_call_id=call_id)])


def _is_synthetic(message: Message) -> bool:
    error = _result_of(message).error
    return error is not None and error.code in SYNTHETIC_CODES


def repair_pairs(
    messages: Iterable[Message], *, waiting: Container[str] = ()
) -> tuple[list[Message], int]:
    """Mend a whole conversation.

    Args:
        messages: In order; not changed.
        waiting: Ids of calls whose approval is open: they get no interrupted result.

    Returns:
        What can be sent, and how many repairs that took.
    """
    repairer = PairRepairer()
    for message in messages:
        repairer.push(message)
    missing = sum(1 for call in repairer.open_calls if call.id not in waiting)
    return repairer.snapshot(waiting=waiting), repairer.repairs + missing
