"""Conversations that need no mending, and the repairer for those that do."""

from __future__ import annotations

from collections.abc import Sequence

from prism.core._support.pairs import PairRepairer, sendable_assistant
from prism.core._wire import (
    Message,
    NativeBlock,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.providers._transform.blocks import CUT_SHORT

_NEVER_IN_INPUT = (ToolCallBlock, ToolResultBlock)


class Pairs:
    """The messages of a growing conversation, with each call and its result together.

    What the runtime sends is whole, and looking is cheaper than mending: the repairer is only
    asked from the first message on that does not fit.

    Attributes:
        inputs: The messages as they came.
        repairs: How often something was added, dropped, moved or renamed.
    """

    __slots__ = ("_open", "_repairer", "_used", "inputs")

    def __init__(self) -> None:
        self.inputs: list[Message] = []
        self._open: list[str] = []  # calls that wait for their results, the next one last
        self._used: set[str] = set()
        self._repairer: PairRepairer | None = None

    @property
    def repairs(self) -> int:
        repairer = self._repairer
        return 0 if repairer is None else repairer.repairs + len(repairer.open_calls)

    def push(self, messages: Sequence[Message]) -> None:
        """Take the next messages."""
        start = len(self.inputs)
        self.inputs += messages
        if self._repairer is None:
            if all(map(self._fits, messages)):
                return
            start = 0
        self._mend(start)

    def whole(self) -> Sequence[Message]:
        """The conversation so far, with a result for every call; not to be changed."""
        if self._repairer is None and self._open:
            self._mend(0)
        return self.inputs if self._repairer is None else self._repairer.snapshot()

    def _mend(self, start: int) -> None:
        if self._repairer is None:
            self._repairer = PairRepairer()
        for at in range(start, len(self.inputs)):
            self._repairer.push(self.inputs[at])

    def _fits(self, message: Message) -> bool:
        role, content = message.role, message.content
        waiting = self._open
        if role == "tool":
            if len(content) != 1 or not waiting:
                return False
            block = content[0]
            return isinstance(block, ToolResultBlock) and block.tool_call_id == waiting.pop()
        if waiting:
            return False
        if role != "assistant":
            for block in content:
                if isinstance(block, _NEVER_IN_INPUT):
                    return False
            return bool(content) and not isinstance(content[0], OpaqueBlock)
        if message.stop_reason in CUT_SHORT and sendable_assistant(message) is not message:
            return False
        says = False
        for block in content:
            if isinstance(block, TextBlock):
                says = says or (bool(block.text) and not block.text.isspace())
            elif isinstance(block, ToolCallBlock):
                if not block.id or block.id in self._used:
                    return False
                self._used.add(block.id)
                waiting.append(block.id)
                says = True
            elif not isinstance(block, ThinkingBlock | NativeBlock):
                return False
        waiting.reverse()
        return says
