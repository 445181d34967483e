"""One attempt at a provider turn: its events become deltas, and then a message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, cast

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
from prism.core._runtime.assembly import CUT_STOPS, DROPPED_CALL, Assembly, AttemptHost
from prism.core._support.cost import priced
from prism.core._support.errors import error_info
from prism.core._wire import (
    ErrorInfo,
    MessageDelta,
    ModelCost,
    ModelRef,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

CHECKPOINT_EVERY: Final = 64
"""Provider events between two pauses, so that an abort lands and readers read."""

AFTER_END_MS: Final = 100
"""How long a provider that has ended its turn gets to end its stream too."""

CLOSE_MS: Final = 2_000
"""How long a provider that was left early gets to close its connection."""


class Attempt(Assembly):
    """Consumes one provider stream.

    Attributes:
        stored: Whether the message's end was emitted.
        error: Why the attempt failed, if it did.
    """

    def __init__(self, host: AttemptHost, *, provider_id: str, api: str | None, model: str) -> None:
        super().__init__(host, model=ModelRef(provider=provider_id, api=api, model=model))
        self._prices: ModelCost | None = None
        self.stored: bool = False
        self.error: ErrorInfo | None = None

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
                ended = await self._read(events)
                if not ended and getattr(provider, "ends_promptly", False):
                    ended = await self._drop_rest(events)
                elif not ended:
                    with move_on_after(AFTER_END_MS / 1000):
                        ended = await self._drop_rest(events)
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

    async def _drop_rest(self, events: AsyncIterator[ProviderEvent]) -> bool:
        """Drop what follows the terminal event; whether nothing did, and the stream ended."""
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
                self.count(priced(event.usage, self._prices))
            case Notice():
                self._told_of_cut |= event.code == DROPPED_CALL
                self._warn(event.code, event.message)
            case Done():
                if event.usage is not None:
                    self.count(priced(event.usage, self._prices))
                is_cut = event.stop_reason in CUT_STOPS
                for building in self._blocks:
                    if not (is_cut and self._is_cut(building)):
                        self._complete(building)
                calls = any(isinstance(building.block, ToolCallBlock) for building in self._blocks)
                self.stop(event.stop_reason or ("tool_use" if calls else "stop"))
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

    def _warn_of(self, code: str, error: Exception) -> None:
        info = error_info(_only(error))
        self._warn(code, f"{info.name}: {info.message}")


def _only(error: Exception) -> Exception:
    """The one exception in a group, as a provider's own task group raises it."""
    only: Exception = error
    while isinstance(only, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", only)
        if len(group.exceptions) != 1:
            return group
        only = group.exceptions[0]
    return only
