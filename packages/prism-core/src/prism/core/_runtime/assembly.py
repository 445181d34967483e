"""The message of one provider turn, as it is put together from what the provider tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from prism.core._contracts import BlockFinished, ToolCallChunk
from prism.core._runtime.blocks import Building, is_empty, join_surrogates, parse_arguments
from prism.core._wire import (
    ContentBlock,
    Message,
    MessageDelta,
    MessageStarted,
    ModelRef,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    Warned,
)

if TYPE_CHECKING:
    from prism.core._runtime.broadcast import Broadcast
    from prism.core._support.redaction import SecretRedactor
    from prism.core._wire import AgentEvent

CUT_STOPS: Final = frozenset({"length", "context_limit"})
"""Stop reasons of answers that end wherever they were."""

DROPPED_CALL: Final = "tool_call_dropped"


class AttemptHost(Protocol):
    """What an attempt needs of its run."""

    @property
    def session_id(self) -> str:
        """For events."""
        ...

    @property
    def id(self) -> str:
        """The run's id, for events."""
        ...

    @property
    def redactor(self) -> SecretRedactor:
        """Hides secrets."""
        ...

    @property
    def broadcast(self) -> Broadcast:
        """Where deltas go."""
        ...

    def emit(self, event: AgentEvent) -> None:
        """Tell the readers, redacted."""
        ...

    def unique_call_id(self, vendor_id: str | None) -> str:
        """The vendor's id when it can be used on the branch, else a new one."""
        ...


class Assembly:
    """Blocks that grow, their deltas, and the message that they become.

    Attributes:
        started: Whether any text, thinking or call was seen, so `message_started` was emitted and
            the turn is not retried.
        stop_reason: Why the provider stopped, once it has.
        usage: What the attempt used so far, with its cost when the model has prices.
        call_ids: Ids that the turn gave out.
        raw_calls: Complete calls as the model wrote them, by id; tools get these arguments.
    """

    def __init__(self, host: AttemptHost, *, model: ModelRef) -> None:
        self._host = host
        self._model = model
        self._blocks: list[Building] = []
        self._by_index: dict[int, Building] = {}
        # The block that text without an index belongs to; never a finished one.
        self._open: Building | None = None
        self._told_of_cut = False
        self.started: bool = False
        self.stop_reason: str | None = None
        self.usage: Usage | None = None
        self.raw_calls: dict[str, ToolCallBlock] = {}
        self.call_ids: set[str] = set()

    # Blocks

    def _block(self, kind: type, index: int | None) -> Building:
        """The block at *index*, or the open one of that kind, or a new one."""
        if index is not None:
            known = self._by_index.get(index)
            if known is not None and known.kind is kind:
                return known
        elif self._open is not None and self._open.kind is kind and kind is not ToolCallBlock:
            return self._open
        if not self.started:
            self._start()
        building = Building(kind, len(self._blocks), self._host.redactor)
        self._blocks.append(building)
        if index is None:
            self._by_index.setdefault(building.position, building)
        else:
            self._by_index[index] = building
        self._open = building
        return building

    def _start(self) -> None:
        self.started = True
        host = self._host
        host.emit(
            MessageStarted(
                session_id=host.session_id,
                run_id=host.id,
                message=Message(role="assistant", content=[], model=self._model),
            )
        )

    def _show(self, building: Building, text: str) -> None:
        """Keep and emit text that is already redacted."""
        building.parts.append(text)
        host = self._host
        if building.kind is ToolCallBlock:
            host.emit(
                ToolCallDelta(
                    session_id=host.session_id,
                    run_id=host.id,
                    index=building.position,
                    tool_call_id=building.call_id,
                    name=building.name,
                    arguments_text=text,
                )
            )
        else:
            self._give(building, building.kind(text=text))

    def _give(self, building: Building, content: ContentBlock) -> None:
        host = self._host
        host.emit(
            MessageDelta(
                session_id=host.session_id,
                run_id=host.id,
                content=content,
                index=building.position,
            )
        )

    def _end(self, building: Building, block: ContentBlock) -> None:
        building.finished = True
        building.block = block
        if self._open is building:
            self._open = None

    def _chunk(self, event: ToolCallChunk) -> None:
        known = self._by_index.get(event.index)
        if known is not None and known.whole:
            del self._by_index[event.index]
        building = self._block(ToolCallBlock, event.index)
        if building.finished:
            self._warn_late(building)
            return
        news = not building.parts
        if building.call_id is None and event.id:
            building.call_id = self._host.unique_call_id(event.id)
            news = True
        if building.name is None and event.name:
            building.name = event.name
            news = True
        text = event.arguments_text
        if text and (building.raw_parts is not None or not text.isascii() or building.carry):
            text = building.prepare(text)
        if text or news:
            self._show(building, text)

    def _complete(self, building: Building) -> None:
        """Close a block whose provider gave no finished form of it."""
        if building.finished:
            return
        if building.kind is ToolCallBlock:
            arguments, raw = parse_arguments(building.raw_text + building.carry)
            self._finish_call(building, building.call_id, building.name or "", arguments, raw)
            return
        self._flush(building)
        self._end(building, building.kind(text="".join(building.parts)))

    def _is_cut(self, building: Building) -> bool:
        """Whether a call's arguments are not whole; it is left out then, since it must not run."""
        if building.finished or building.kind is not ToolCallBlock:
            return False
        text = building.raw_text + building.carry
        if text.strip() and parse_arguments(text)[1] is None:
            return False
        if not self._told_of_cut:  # adapters tell it themselves
            self._warn(
                DROPPED_CALL,
                f"The answer was cut in the middle of a call of {building.name or 'a tool'}; the "
                "call was left out.",
            )
        return True

    def _flush(self, building: Building) -> None:
        """Let out what was held back."""
        text = building.flush()
        if text:
            self._show(building, text)

    def _finish_call(
        self,
        building: Building,
        call_id: str | None,
        name: str,
        arguments: dict[str, Any],
        raw_arguments: str | None,
        replay: Replay | None = None,
    ) -> None:
        if building.call_id is None:
            building.call_id = self._host.unique_call_id(call_id)
        if building.parts:
            self._flush(building)
        call = ToolCallBlock(
            id=building.call_id,
            name=name,
            arguments=arguments,
            raw_arguments=raw_arguments,
            replay=replay,
        )
        self.raw_calls[call.id] = call
        call = self._host.redactor.redact_value(call)
        self._end(building, call)
        self._give(building, call)

    def _finish_block(self, event: BlockFinished) -> None:
        block = event.block
        if is_empty(block) and event.index not in self._by_index:
            return
        building = self._block(type(block), event.index)
        if building.finished:
            self._warn_late(building)
        elif isinstance(block, ToolCallBlock):
            self._finish_call(
                building, block.id, block.name, block.arguments, block.raw_arguments, block.replay
            )
        elif isinstance(block, TextBlock | ThinkingBlock):
            self._finish_text(building, block)
        else:
            block = self._host.redactor.redact_block(block)
            self._end(building, block)
            self._give(building, block)

    def _finish_text(self, building: Building, block: TextBlock | ThinkingBlock) -> None:
        seen = building.raw_text
        final = join_surrogates(block.text)
        if final.startswith(seen):
            # Half a character that was held back is in the rest, with its other half.
            rest, building.carry = final[len(seen) :], ""
            text = building.prepare(rest) if rest else ""
            if text:
                self._show(building, text)
        elif final != seen + building.carry:
            self._warn(
                "malformed_output",
                "The provider's finished block differs from its deltas; the deltas were kept.",
            )
        self._flush(building)
        text = "".join(building.parts)
        if isinstance(block, ThinkingBlock):
            kept: ContentBlock = ThinkingBlock(
                text=text, signature=block.signature, redacted=block.redacted, replay=block.replay
            )
        else:
            kept = TextBlock(text=text, replay=block.replay)
        self._end(building, kept)

    def _warn_late(self, building: Building) -> None:
        self._warn("late_delta", f"A delta for block {building.position} came after its end.")

    def _warn(self, code: str, message: str) -> None:
        host = self._host
        host.emit(Warned(session_id=host.session_id, run_id=host.id, code=code, message=message))

    # The message

    def message(self) -> Message | None:
        """The finished message, or `None` when the turn had no content."""
        content = [building.block for building in self._blocks if building.block is not None]
        if not content:
            return None
        return Message(
            role="assistant",
            content=content,
            model=self._model,
            stop_reason=self.stop_reason,
            usage=self.usage,
        )

    def count(self, usage: Usage) -> None:
        """Take what the attempt used so far; it replaces an earlier report."""
        self.usage = usage

    def stop(self, reason: str) -> None:
        """Note why the provider stopped."""
        self.stop_reason = reason

    def partial_message(self, stop_reason: str) -> Message | None:
        """What there is of a turn that was cut short; calls that were not complete are left out."""
        for building in self._blocks:
            if building.kind is not ToolCallBlock:
                self._complete(building)
        self.stop_reason = stop_reason
        return self.message()
