"""From the events of a Messages stream to provider events."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from prism.core._contracts import (
    BlockFinished,
    Done,
    Notice,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    UsageUpdate,
)
from prism.core._support.ids import IdMaker
from prism.core._wire import (
    ContentBlock,
    NativeBlock,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
    encode,
)
from prism.core.providers._anthropic.messages import API
from prism.core.providers._anthropic.usage import merge_usage, read_usage
from prism.core.providers._errors_map import ErrorMapper
from prism.core.providers._json import as_object, as_text, is_list, is_object
from prism.core.providers._sse import SseEvent
from prism.core.providers._stream import (
    UNDECODABLE,
    WireStream,
    decode_slowly,
    parse_arguments,
)


class _Event(msgspec.Struct, gc=False):
    """Any event; compatible hosts differ, so what is looked at is checked where it is used."""

    type: Any = None
    index: Any = None
    delta: Any = None
    content_block: Any = None
    message: Any = None
    usage: Any = None
    error: Any = None
    input_transformations: Any = None


_decoder = msgspec.json.Decoder(_Event)
_MAX_DONE: Final = 16

_STOP_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_limit",
    "pause_turn": "pause",
    "refusal": "refusal",
    "sensitive": "refusal",
}
_OWN_KINDS: Final = frozenset({"text", "thinking", "tool_use"})
_KINDS_OF_DELTAS: Final = {
    "text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking",
}  # fmt: skip
_CUT: Final = frozenset({"length", "context_limit"})


class _Block:
    """A block under way.

    Attributes:
        kind: `text`, `thinking`, `tool_use`, or the type of a vendor's own item.
        index: Prism's; given when the block first shows.
        item: As it came in `content_block_start`.
        pieces: Of its text, or of the JSON text of its input.
        call_id: Of a call.
    """

    __slots__ = ("call_id", "citations", "index", "item", "kind", "pieces", "signature")

    def __init__(self, kind: str, item: dict[str, Any]) -> None:
        self.kind = kind
        self.item = item
        self.index: int | None = None
        self.pieces: list[str] = []
        self.signature: list[str] = []
        self.citations: list[Any] = []
        self.call_id = ""


class MessagesStream(WireStream):
    """Decodes one answer."""

    def __init__(self, errors: ErrorMapper, new_id: IdMaker) -> None:
        super().__init__(errors)
        self._new_id = new_id
        self._next = 0
        self._open: dict[int | None, _Block] = {}  # by the vendor's index
        self._unsure: list[_Block] = []  # calls that a length limit may have cut
        self._call_ids: set[str] = set()
        self._stop: str | None = None
        self._stop_details: dict[str, Any] = {}
        self._raw_usage: dict[str, Any] = {}
        self._usage: Usage | None = None

    def on_event(self, event: SseEvent, out: list[ProviderEvent]) -> None:
        """See `WireStream.on_event`."""
        data = event.data
        if len(data) < _MAX_DONE and data.strip() == b"[DONE]":  # some gateways append it
            self.on_end(out)
            return
        try:
            chunk = _decoder.decode(data)
        except UNDECODABLE:
            slow = decode_slowly(_Event, data)
            if slow is None:
                return
            chunk = slow
        kind = chunk.type or event.name
        if kind == "content_block_delta":
            if is_object(chunk.delta):
                self._take_delta(_place(chunk.index), chunk.delta, out)
        elif kind == "content_block_start":
            self._start(_place(chunk.index), chunk.content_block, out)
        elif kind == "content_block_stop":
            block = self._open.pop(_place(chunk.index), None)
            if block is not None:
                self._finish(block, out)
        elif kind == "message_start":
            message = as_object(chunk.message)
            self._take_usage(message.get("usage"), out)
            self._take_transformations(message.get("input_transformations"), out)
        elif kind == "message_delta":
            self._take_message_delta(chunk, out)
        elif kind == "message_stop":
            self._end(out)
        elif kind == "error" or chunk.error:
            self.fail(self.errors.event(data), out)

    def on_end(self, out: list[ProviderEvent]) -> None:
        """See `WireStream.on_end`: the stop reason is the last thing that the answer needs."""
        if self._stop is not None and not self.ended:
            out.append(
                Notice(
                    code="stream_cut",
                    message="The stream ended after the stop reason, but without its last event.",
                )
            )
            self._end(out)

    # --- blocks ---------------------------------------------------------------------------

    def _start(self, place: int | None, item: Any, out: list[ProviderEvent]) -> None:
        before = self._open.pop(place, None)
        if before is not None:  # its end was missed, or the host numbers no blocks
            self._finish(before, out)
        kind = as_object(item).get("type")
        if not isinstance(kind, str):
            return
        if kind == "redacted_thinking":
            data = as_text(item.get("data"))
            if data is not None:
                replay = Replay(api=API, kind="redacted", data=data)
                block = ThinkingBlock(text="", redacted=True, replay=replay)
                out.append(BlockFinished(index=self._new_index(), block=block))
            return
        opened = self._open[place] = _Block(kind, item)
        if kind == "tool_use":
            self._start_call(opened, out)
        elif kind == "text":
            self._add_text(opened, item.get("text"), out)
        elif kind == "thinking":
            self._add_thinking(opened, item.get("thinking"), out)
            self._add_signature(opened, item.get("signature"))

    def _start_call(self, block: _Block, out: list[ProviderEvent]) -> None:
        vendor_id = as_text(block.item.get("id"))
        is_new = vendor_id is not None and vendor_id not in self._call_ids
        block.call_id = vendor_id if vendor_id is not None and is_new else self._new_id("call")
        self._call_ids.add(block.call_id)
        block.index = self._new_index()
        out.append(ToolCallChunk(index=block.index, id=block.call_id, name=_name(block)))

    def _take_delta(
        self, place: int | None, delta: dict[str, Any], out: list[ProviderEvent]
    ) -> None:
        block = self._open.get(place)
        kind = delta.get("type")
        of = _KINDS_OF_DELTAS.get(kind) if isinstance(kind, str) else None
        if of is not None and block is None:
            block = self._missed(place, of)
        if block is None or (of or block.kind) != block.kind:
            return  # it belongs to no block, or to one of another kind
        if kind == "text_delta":
            self._add_text(block, delta.get("text"), out)
        elif kind == "thinking_delta":
            self._add_thinking(block, delta.get("thinking"), out)
        elif kind == "signature_delta":
            self._add_signature(block, delta.get("signature"))
        elif kind == "input_json_delta":
            self._add_input(block, delta.get("partial_json"), out)
        elif kind == "citations_delta":
            block.citations.append(delta.get("citation"))
        elif block.kind not in _OWN_KINDS:
            _extend(block.item, delta)

    def _missed(self, place: int | None, kind: str) -> _Block:
        """A block whose start was missed."""
        block = self._open[place] = _Block(kind, {"type": kind})
        return block

    def _add_text(self, block: _Block, text: Any, out: list[ProviderEvent]) -> None:
        if not text or type(text) is not str:
            return
        index = block.index
        if index is None:
            index = block.index = self._new_index()
        block.pieces.append(text)
        out.append(TextDelta(text=text, index=index))

    def _add_thinking(self, block: _Block, text: Any, out: list[ProviderEvent]) -> None:
        if not text or type(text) is not str:
            return
        index = block.index
        if index is None:
            index = block.index = self._new_index()
        block.pieces.append(text)
        out.append(ThinkingDelta(text=text, index=index))

    @staticmethod
    def _add_signature(block: _Block, signature: Any) -> None:
        if signature and type(signature) is str:
            block.signature.append(signature)

    @staticmethod
    def _add_input(block: _Block, text: Any, out: list[ProviderEvent]) -> None:
        if block.kind in {"text", "thinking"} or not text or type(text) is not str:
            return
        block.pieces.append(text)
        if block.kind == "tool_use" and block.index is not None:
            out.append(ToolCallChunk(index=block.index, arguments_text=text))

    def _finish(self, block: _Block, out: list[ProviderEvent]) -> None:
        if block.kind == "text":
            self._finish_text(block, out)
        elif block.kind == "thinking":
            self._finish_thinking(block, out)
        elif block.kind == "tool_use":
            self._finish_call(block, out)
        else:
            item = block.item
            if block.pieces:
                text = "".join(block.pieces)
                arguments = parse_arguments(text)
                item = {**item, "input": {} if arguments is None else arguments}
            native = NativeBlock(api=API, kind=block.kind, data=encode(item).decode())
            self._give(block, native, out)

    def _finish_text(self, block: _Block, out: list[ProviderEvent]) -> None:
        if block.index is None or not block.citations:
            return
        data = encode(block.citations).decode()
        replay = Replay(api=API, kind="citations", data=data)
        self._give(block, TextBlock(text="".join(block.pieces), replay=replay), out)

    def _finish_thinking(self, block: _Block, out: list[ProviderEvent]) -> None:
        signature = "".join(block.signature) or None
        if signature is None and block.index is None:
            return
        replay = None if signature is None else Replay(api=API, kind="signature", data=signature)
        text = "".join(block.pieces)
        self._give(block, ThinkingBlock(text=text, signature=signature, replay=replay), out)

    def _finish_call(self, block: _Block, out: list[ProviderEvent]) -> None:
        early = block.item.get("input")
        if not block.pieces and is_object(early) and early:  # whole at its start
            self._add_input(block, encode(early).decode(), out)
        text = "".join(block.pieces)
        if not text.strip() or parse_arguments(text) is None:
            self._unsure.append(block)  # the stop reason tells whether it is all
        else:
            self._give_call(block, text, out)

    def _give_call(self, block: _Block, text: str, out: list[ProviderEvent]) -> None:
        arguments = parse_arguments(text)
        call = ToolCallBlock(
            id=block.call_id,
            name=_name(block),
            arguments=arguments or {},
            raw_arguments=text if arguments is None else None,
        )
        self._give(block, call, out)

    def _give(self, block: _Block, finished: ContentBlock, out: list[ProviderEvent]) -> None:
        index = self._new_index() if block.index is None else block.index
        out.append(BlockFinished(index=index, block=finished))

    def _new_index(self) -> int:
        index = self._next
        self._next += 1
        return index

    # --- the message ----------------------------------------------------------------------

    def _take_usage(self, raw: Any, out: list[ProviderEvent]) -> None:
        if not is_object(raw):
            return
        merge_usage(self._raw_usage, raw)
        usage = read_usage(self._raw_usage)
        if usage.total_tokens is not None and usage != self._usage:
            self._usage = usage
            out.append(UsageUpdate(usage=usage))

    @staticmethod
    def _take_transformations(entries: Any, out: list[ProviderEvent]) -> None:
        dropped = [
            entry
            for entry in (entries if is_list(entries) else ())
            if is_object(entry) and entry.get("type") == "thinking_dropped"
        ]
        if dropped:
            reasons = sorted({str(entry.get("reason")) for entry in dropped})
            out.append(
                Notice(
                    code="thinking_dropped",
                    message=f"The vendor left {len(dropped)} reasoning blocks out of the "
                    f"conversation: {', '.join(reasons)}.",
                )
            )

    def _take_message_delta(self, chunk: _Event, out: list[ProviderEvent]) -> None:
        delta = as_object(chunk.delta)
        self._take_usage(chunk.usage, out)
        self._take_transformations(chunk.input_transformations, out)
        self._stop = as_text(delta.get("stop_reason")) or self._stop
        self._stop_details = as_object(delta.get("stop_details")) or self._stop_details

    def _end(self, out: list[ProviderEvent]) -> None:
        for block in self._open.values():
            self._finish(block, out)
        self._open.clear()
        stop = self._stop_reason(out)
        for block in self._unsure:
            if stop in _CUT:
                out.append(
                    Notice(
                        code="tool_call_dropped",
                        message=f"The answer reached its length limit inside the call of "
                        f"{_name(block)!r}: the call was left out.",
                    )
                )
            else:
                self._give_call(block, "".join(block.pieces), out)
        if stop in {"stop", "tool_use"}:
            stop = "tool_use" if self._call_ids else "stop"
        self.done(Done(usage=self._usage, stop_reason=stop), out)

    def _stop_reason(self, out: list[ProviderEvent]) -> str:
        if self._stop is None:
            return "stop"
        stop = _STOP_REASONS.get(self._stop)
        if stop is None:
            out.append(
                Notice(
                    code="unknown_stop_reason",
                    message=f"The vendor ended the answer with {self._stop[:100]!r}, which is "
                    "not known; it is taken as the end of the turn.",
                )
            )
            return "stop"
        if stop == "refusal":
            details = self._stop_details
            category = as_text(details.get("category")) or "no category"
            explanation = as_text(details.get("explanation"))
            out.append(
                Notice(
                    code="refusal",
                    message=f"The model refused ({category})"
                    + (f": {explanation[:500]}" if explanation else "."),
                )
            )
        return stop


def _place(index: Any) -> int | None:
    return index if type(index) is int else None


def _name(block: _Block) -> str:
    return as_text(block.item.get("name")) or ""


def _extend(item: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta of a vendor's own item to it: text grows, anything else is replaced."""
    for name, value in delta.items():
        before = item.get(name)
        if name == "type":
            continue
        item[name] = before + value if isinstance(before, str) and isinstance(value, str) else value
