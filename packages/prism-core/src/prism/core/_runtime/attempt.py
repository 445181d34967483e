"""One attempt at a provider turn: its events become deltas, and then a message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from anyio import move_on_after
from anyio.lowlevel import checkpoint

from prism.core._contracts import (
    BlockFinished,
    Done,
    Failed,
    Notice,
    Provider,
    ProviderEvent,
    ProviderRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    ToolCallReady,
    UsageUpdate,
)
from prism.core._runtime.blocks import Building, is_empty, join_surrogates, parse_arguments
from prism.core._support.cost import priced
from prism.core._support.errors import error_info
from prism.core._wire import (
    ContentBlock,
    ErrorInfo,
    Message,
    MessageDelta,
    MessageStarted,
    ModelCost,
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

CHECKPOINT_EVERY: Final = 64
"""Provider events between two pauses, so that an abort lands and readers read."""

AFTER_END_MS: Final = 100
"""How long a provider that has ended its turn gets to end its stream too."""

CLOSE_MS: Final = 2_000
"""How long a provider that was left early gets to close its connection."""


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


class Attempt:
    """Consumes one provider stream.

    Attributes:
        started: Whether any text, thinking or call was seen, so `message_started` was emitted and
            the turn is not retried.
        stored: Whether the message's end was emitted.
        usage: What the attempt used so far, with its cost when the model has prices.
        error: Why the attempt failed, if it did.
        call_ids: Ids that the turn gave out.
        raw_calls: Complete calls as the model wrote them, by id; tools get these arguments.
    """

    def __init__(self, host: AttemptHost, *, provider_id: str, api: str | None, model: str) -> None:
        self._host = host
        self._model = ModelRef(provider=provider_id, api=api, model=model)
        self._blocks: list[Building] = []
        self._by_index: dict[int, Building] = {}
        # The block that text without an index belongs to; never a finished one.
        self._open: Building | None = None
        self.started: bool = False
        self.stored: bool = False
        self.stop_reason: str | None = None
        self.usage: Usage | None = None
        self._prices: ModelCost | None = None
        self._told_of_cut = False
        self.error: ErrorInfo | None = None
        self.raw_calls: dict[str, ToolCallBlock] = {}
        self.call_ids: set[str] = set()

    async def consume(self, provider: Provider, request: ProviderRequest) -> ErrorInfo | None:
        """Read the stream to its end; what the vendor or the network did wrong is returned.

        Exceptions of the provider that are not cancellation are programming errors of the
        adapter; they fail the turn with its name in them.
        """
        self._prices = request.model.cost
        try:
            events = aiter(provider.generate(request))
            ended = False
            try:
                ended = await self._read(events) or await self._look_behind(events)
            finally:
                if not ended:
                    await self._close(events)
        except Exception as error:  # noqa: BLE001 - the boundary to code that is not ours
            self.error = error_info(_only(error))
        if self.error is None and self.stop_reason is None:
            self.error = ErrorInfo(
                code="stream_truncated",
                message="The provider's stream ended without saying that it was complete.",
            )
        return self.error

    async def _read(self, events: AsyncIterator[ProviderEvent]) -> bool:
        """Read to the terminal event; whether the stream ended without one."""
        host = self._host
        session_id, run_id = host.session_id, host.id
        # Text was redacted as it came, so its deltas go straight to the readers.
        readers, send = host.broadcast.readers, host.broadcast.send
        until_pause = CHECKPOINT_EVERY
        async for event in events:
            until_pause -= 1
            if not until_pause:
                until_pause = CHECKPOINT_EVERY
                await checkpoint()
            kind = type(event)
            if kind is TextDelta or kind is ThinkingDelta:
                # Not isinstance: this line runs for every word that a model says.
                delta: Any = event
                text: str = delta.text
                if not text:
                    continue
                wanted = TextBlock if kind is TextDelta else ThinkingBlock
                index: int | None = delta.index
                building = self._open
                if (
                    building is None
                    or building.kind is not wanted
                    or (index is not None and self._by_index.get(index) is not building)
                ):
                    building = self._block(wanted, index)
                    if building.finished:
                        self._warn_late(building)
                        continue
                    self._open = building
                if building.raw_parts is not None or not text.isascii() or building.carry:
                    text = building.prepare(text)
                    if not text:
                        continue
                building.parts.append(text)
                if readers:
                    send(
                        MessageDelta(
                            session_id=session_id,
                            run_id=run_id,
                            content=wanted(text=text),
                            index=building.position,
                        )
                    )
            elif self._other(event):
                return False
        return True

    async def _look_behind(self, events: AsyncIterator[ProviderEvent]) -> bool:
        """Drop what follows the terminal event; whether nothing did, and the stream ended."""
        with move_on_after(AFTER_END_MS / 1000):
            try:
                async for event in events:
                    self._warn(
                        "event_after_end",
                        f"The provider yielded a {type(event).__name__} after its last event; "
                        "it was dropped.",
                    )
                    return False
            except Exception as error:  # noqa: BLE001 - the turn is complete whatever comes now
                self._warn_of("provider_failed_after_end", error)
            return True
        return False

    async def _close(self, events: Any) -> None:
        """Close a provider's generator, also when its reader was cancelled."""
        close: Callable[[], Any] | None = getattr(events, "aclose", None)
        # A generator that has ended has nothing to close.
        if close is None or getattr(events, "ag_frame", events) is None:
            return
        with move_on_after(CLOSE_MS / 1000, shield=True):
            try:
                await close()
            except Exception as error:  # noqa: BLE001 - what was read counts, not the clean-up
                self._warn_of("provider_close_failed", error)

    def _other(self, event: ProviderEvent) -> bool:
        """Handle what is not text; whether it was the terminal event."""
        match event:
            case ToolCallChunk():
                self._chunk(event)
            case ToolCallReady():
                building = self._block(ToolCallBlock, None)
                building.whole = True
                self._finish_call(building, event.id, event.name, event.arguments, None)
            case BlockFinished():
                self._finish_block(event)
            case UsageUpdate():
                self.usage = priced(event.usage, self._prices)
            case Notice():
                self._told_of_cut |= event.code == DROPPED_CALL
                self._warn(event.code, event.message)
            case Done():
                if event.usage is not None:
                    self.usage = priced(event.usage, self._prices)
                is_cut = event.stop_reason in CUT_STOPS
                for building in self._blocks:
                    if not (is_cut and self._is_cut(building)):
                        self._complete(building)
                calls = any(isinstance(building.block, ToolCallBlock) for building in self._blocks)
                self.stop_reason = event.stop_reason or ("tool_use" if calls else "stop")
                return True
            case Failed():
                self.error = event.error
                return True
            case _:
                self._warn(
                    "unknown_provider_event",
                    f"The provider yielded a {type(event).__name__}, which is no provider event.",
                )
        return False

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

    def _warn_of(self, code: str, error: Exception) -> None:
        info = error_info(_only(error))
        self._warn(code, f"{info.name}: {info.message}")

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

    def partial_message(self, stop_reason: str) -> Message | None:
        """What there is of a turn that was cut short; calls that were not complete are left out."""
        for building in self._blocks:
            if building.kind is not ToolCallBlock:
                self._complete(building)
        self.stop_reason = stop_reason
        return self.message()


def _only(error: Exception) -> Exception:
    """The one exception in a group, as a provider's own task group raises it."""
    only: Exception = error
    while isinstance(only, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", only)
        if len(group.exceptions) != 1:
            return group
        only = group.exceptions[0]
    return only
