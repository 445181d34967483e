"""From the chunks of a Chat Completions stream to provider events."""

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
from prism.core._wire import Replay, ThinkingBlock, ToolCallBlock, Usage, encode
from prism.core.providers._errors_map import ErrorMapper
from prism.core.providers._json import is_list, is_object
from prism.core.providers._openai_chat.compat import OpenAIChatCompat
from prism.core.providers._openai_chat.request import API, THINKING_PARTS
from prism.core.providers._openai_chat.usage import read_usage
from prism.core.providers._sse import SseEvent
from prism.core.providers._stream import (
    UNDECODABLE,
    WireStream,
    decode_slowly,
    parse_arguments,
)

# Vendors differ in more than they agree on: what is looked at is checked where it is used.


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: Any = None


class _ToolCall(msgspec.Struct, gc=False):
    index: Any = None
    id: Any = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_text: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct, gc=False):
    index: Any = 0
    delta: _Delta | None = None
    finish_reason: Any = None
    usage: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None
    x_groq: Any = None


_decoder = msgspec.json.Decoder(_Chunk)
_MAX_DONE: Final = 16

_STOP_REASONS: Final = {
    reason: stop
    for stop, reasons in {
        "stop": ("stop", "end", "eos", "end_turn", "stop_sequence"),
        "tool_use": ("tool_calls", "function_call", "tool_use"),
        "length": ("length", "max_tokens"),
        "refusal": ("content_filter", "safety", "sensitive", "refusal"),
        "context_limit": ("model_context_window_exceeded",),
    }.items()
    for reason in reasons
}


class _Thinking:
    """A thinking block under way."""

    __slots__ = ("field", "index", "pieces")

    def __init__(self, index: int, field: str) -> None:
        self.index = index
        self.field = field
        self.pieces: list[str] = []


class _Call:
    """A call under way; its arguments stay in pieces until the end."""

    __slots__ = ("announced", "id", "index", "name", "pieces", "vendor_id")

    def __init__(self, index: int, call_id: str, vendor_id: str | None) -> None:
        self.index = index
        self.id = call_id
        self.vendor_id = vendor_id
        self.name = ""
        self.pieces: list[str] = []
        self.announced = False


class ChatStream(WireStream):
    """Decodes one answer."""

    def __init__(self, errors: ErrorMapper, compat: OpenAIChatCompat, new_id: IdMaker) -> None:
        super().__init__(errors)
        self._compat = compat
        self._new_id = new_id
        self._fields = compat.thinking_in
        self._trim = compat.trim_leading_space
        self._next = 0
        self._text: int | None = None  # index of the open text block
        self._thinking: _Thinking | None = None  # the open one
        self._thoughts: list[_Thinking] = []
        self._details: dict[tuple[str, str], dict[str, Any]] = {}
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._finish: str | None = None
        self._refused = False
        self._usage: Usage | None = None
        self._raw_usage: Any = None

    def on_event(self, event: SseEvent, out: list[ProviderEvent]) -> None:
        """See `WireStream.on_event`."""
        data = event.data
        if len(data) < _MAX_DONE and data.strip() == b"[DONE]":
            self._end(out)
            return
        try:
            chunk = _decoder.decode(data)
        except UNDECODABLE:
            slow = decode_slowly(_Chunk, data)
            if slow is None:
                return
            chunk = slow
        if chunk.usage is not None or chunk.x_groq is not None:
            self._take_usage(chunk.usage, out)
            if is_object(chunk.x_groq):
                self._take_usage(chunk.x_groq.get("usage"), out)
        if chunk.error or chunk.object == "error" or event.name == "error":
            self.fail(self.errors.event(data), out)
            return
        for choice in chunk.choices or ():
            if choice.index is None or choice.index == 0:
                self._take_choice(choice, out)
                break

    def on_end(self, out: list[ProviderEvent]) -> None:
        """See `WireStream.on_end`: some servers never send `[DONE]`."""
        if self._finish is not None:
            self._end(out)

    def _take_choice(self, choice: _Choice, out: list[ProviderEvent]) -> None:
        delta = choice.delta
        if delta is not None:
            if (
                delta.reasoning_content
                or delta.reasoning
                or delta.reasoning_text
                or delta.reasoning_details
            ):
                self._take_reasoning(delta, out)
            content = delta.content
            if content:
                if type(content) is str:
                    self._add_text(content, out)
                elif is_list(content):
                    self._add_parts(content, out)
            if delta.refusal and type(delta.refusal) is str:
                self._refused = True
                self._add_text(delta.refusal, out)
            if delta.tool_calls:
                for call in delta.tool_calls:
                    self._take_call(call, out)
            if delta.function_call is not None:
                self._take_call(_ToolCall(index=0, function=delta.function_call), out)
        if choice.usage is not None:
            self._take_usage(choice.usage, out)
        reason = choice.finish_reason
        if reason and type(reason) is str:
            self._finish = reason

    # --- text and reasoning ---------------------------------------------------------------

    def _add_text(self, text: str, out: list[ProviderEvent]) -> None:
        if self._trim:
            text = text.lstrip()
            if not text:
                return
            self._trim = False
        index = self._text
        if index is None:
            index = self._text = self._next
            self._next += 1
            self._thinking = None
        out.append(TextDelta(text=text, index=index))

    def _add_thinking(self, text: str, field: str, out: list[ProviderEvent]) -> None:
        thinking = self._thinking
        if thinking is None:
            thinking = self._thinking = _Thinking(self._next, field)
            self._next += 1
            self._thoughts.append(thinking)
            self._text = None
        thinking.pieces.append(text)
        out.append(ThinkingDelta(text=text, index=thinking.index))

    def _add_parts(self, parts: list[Any], out: list[ProviderEvent]) -> None:
        """Mistral's `content` as a list."""
        for part in parts:
            if not is_object(part):
                continue
            if part.get("type") == "thinking":
                inner = part.get("thinking")
                if is_list(inner):
                    texts = (item.get("text") for item in inner if is_object(item))
                    inner = "".join(text for text in texts if isinstance(text, str))
                if isinstance(inner, str) and inner:
                    self._add_thinking(inner, THINKING_PARTS, out)
            elif isinstance(part.get("text"), str) and part["text"]:
                self._add_text(part["text"], out)

    def _take_reasoning(self, delta: _Delta, out: list[ProviderEvent]) -> None:
        plain = False
        # Some hosts send the same text in two fields: the first one counts.
        for field in self._fields:
            text = getattr(delta, field, None)
            if text and type(text) is str:
                self._add_thinking(text, field, out)
                plain = True
                break
        if is_list(delta.reasoning_details):
            for detail in delta.reasoning_details:
                if is_object(detail):
                    self._take_detail(detail, out, plain=plain)

    def _take_detail(
        self, detail: dict[str, Any], out: list[ProviderEvent], *, plain: bool
    ) -> None:
        key = (str(detail.get("index")), str(detail.get("type")))
        kept = self._details.setdefault(key, {})
        for name, value in detail.items():
            old = kept.get(name)
            if name in {"text", "summary", "data"} and isinstance(value, str) and old:
                kept[name] = old + value
            elif value is not None or name not in kept:
                kept[name] = value
        text = detail.get("text") or detail.get("summary")
        if not plain and text and type(text) is str:
            self._add_thinking(text, "reasoning", out)

    # --- calls ----------------------------------------------------------------------------

    def _take_call(self, piece: _ToolCall, out: list[ProviderEvent]) -> None:
        function = piece.function or _Function()
        name = function.name if type(function.name) is str else ""
        call = self._call_of(piece, name)
        if name and name != call.name and not call.pieces:
            # A name comes whole, in pieces, or again and again.
            is_longer = name.startswith(call.name)
            call.name = name if is_longer else call.name + name
        arguments = function.arguments
        if arguments is None or arguments == "":
            return
        text = arguments if type(arguments) is str else encode(arguments).decode()
        call.pieces.append(text)
        self._announce(call, out, text)

    def _call_of(self, piece: _ToolCall, name: str) -> _Call:
        index = piece.index if type(piece.index) is int else None
        vendor_id = piece.id if type(piece.id) is str and piece.id else None
        call = self._by_index.get(index) if index is not None else self._open_call(vendor_id)
        if call is not None and self._continues(call, vendor_id, name, indexed=index is not None):
            call.vendor_id = call.vendor_id or vendor_id
            return call
        taken = {other.id for other in self._calls}
        usable = vendor_id is not None and vendor_id not in taken
        call_id = vendor_id if vendor_id is not None and usable else self._new_id("call")
        call = _Call(self._next, call_id, vendor_id)
        self._next += 1
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _open_call(self, vendor_id: str | None) -> _Call | None:
        """The call of that id, else the last one: for servers that number no calls."""
        by_id = (call for call in self._calls if call.vendor_id == vendor_id is not None)
        return next(by_id, self._calls[-1] if self._calls else None)

    @staticmethod
    def _continues(call: _Call, vendor_id: str | None, name: str, *, indexed: bool) -> bool:
        """Whether a piece belongs to *call*; some servers give every call the same index."""
        if vendor_id is not None and call.vendor_id is not None:
            return vendor_id == call.vendor_id
        if indexed or vendor_id is not None:
            return vendor_id is None or not call.pieces
        return not (name and call.pieces)

    def _announce(self, call: _Call, out: list[ProviderEvent], text: str) -> None:
        if call.announced:
            out.append(ToolCallChunk(index=call.index, arguments_text=text))
            return
        for other in self._calls:  # they appear in the order of their indexes
            if other is call:
                break
            if not other.announced:
                self._announce(other, out, "")
        call.announced = True
        out.append(ToolCallChunk(index=call.index, id=call.id, name=call.name, arguments_text=text))

    # --- the end --------------------------------------------------------------------------

    def _take_usage(self, raw: Any, out: list[ProviderEvent]) -> None:
        if not is_object(raw) or raw == self._raw_usage:
            return
        self._raw_usage = raw
        usage = read_usage(raw, self._compat)
        if usage.total_tokens is None:  # it counts nothing
            return
        self._usage = usage
        out.append(UsageUpdate(usage=usage))

    def _end(self, out: list[ProviderEvent]) -> None:
        if self._finish == "error":
            self.fail(
                self.errors.failure("server_error", "The model's answer ended in an error."), out
            )
            return
        stop = self._stop_reason(out)
        finished = self._finished_thinking()
        finished += self._finished_calls(out, cut=stop == "length")
        finished.sort(key=lambda block: block.index)
        out.extend(finished)
        has_calls = any(isinstance(block.block, ToolCallBlock) for block in finished)
        if stop in {"stop", "tool_use"}:
            stop = "tool_use" if has_calls else "stop"
        self.done(Done(usage=self._usage, stop_reason=stop), out)

    def _stop_reason(self, out: list[ProviderEvent]) -> str:
        if self._refused:
            return "refusal"
        if self._finish is None:
            return "stop"
        stop = _STOP_REASONS.get(self._finish.lower())
        if stop is None:
            out.append(
                Notice(
                    code="unknown_stop_reason",
                    message=f"The vendor ended the answer with {self._finish[:100]!r}, which is "
                    "not known; it is taken as the end of the turn.",
                )
            )
            return "stop"
        return stop

    def _finished_thinking(self) -> list[BlockFinished]:
        blocks: list[BlockFinished] = []
        details = Replay(
            api=API, kind="details", data=encode(list(self._details.values())).decode()
        )
        last = self._thoughts[-1] if self._thoughts else None
        for thinking in self._thoughts:
            by_field = Replay(api=API, kind="field", data=thinking.field)
            replay = details if self._details and thinking is last else by_field
            block = ThinkingBlock(text="".join(thinking.pieces), replay=replay)
            blocks.append(BlockFinished(index=thinking.index, block=block))
        if self._details and last is None and any(map(_has_content, self._details.values())):
            block = ThinkingBlock(text="", redacted=True, replay=details)
            blocks.append(BlockFinished(index=self._next, block=block))
            self._next += 1
        return blocks

    def _finished_calls(self, out: list[ProviderEvent], *, cut: bool) -> list[BlockFinished]:
        blocks: list[BlockFinished] = []
        for call in self._calls:
            text = "".join(call.pieces)
            arguments = parse_arguments(text)
            if cut and (arguments is None or not text.strip()):
                out.append(
                    Notice(
                        code="tool_call_dropped",
                        message=f"The answer reached its length limit inside the call of "
                        f"{call.name!r}: the call was left out.",
                    )
                )
                continue
            if not call.announced:
                self._announce(call, out, "")
            block = ToolCallBlock(
                id=call.id,
                name=call.name,
                arguments=arguments or {},
                raw_arguments=text if arguments is None else None,
            )
            blocks.append(BlockFinished(index=call.index, block=block))
        return blocks


def _has_content(detail: dict[str, Any]) -> bool:
    return any(detail.get(name) for name in ("text", "summary", "data", "signature"))
