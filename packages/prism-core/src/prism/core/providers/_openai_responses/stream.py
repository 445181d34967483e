"""From the events of a Responses stream to provider events."""

from __future__ import annotations

from typing import Any, ClassVar, Final

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
    NativeBlock,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
    encode,
)
from prism.core.providers._errors_map import ErrorMapper
from prism.core.providers._json import as_object, as_text, is_list, is_object
from prism.core.providers._openai_responses.items import (
    CALL,
    PARTS,
    TEXT,
    THINKING,
    Event,
    Item,
    arguments_text,
    content_text,
    decode_event,
    kind_of,
    number,
    object_of,
    output_of,
    reasoning_text,
)
from prism.core.providers._openai_responses.messages import API, item_replay
from prism.core.providers._openai_responses.usage import read_usage
from prism.core.providers._sse import SseEvent
from prism.core.providers._stream import WireStream, parse_arguments

_INCOMPLETE: Final = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
    "max_messages": "pause",
    "steered": "pause",
}


class ResponsesStream(WireStream):
    """Decodes one answer.

    Args:
        errors: Makes the answer's errors.
        new_id: Makes ids for calls that have none.
        effort: What the request asked for; kept with the answer, when it has to be known later.
    """

    def __init__(self, errors: ErrorMapper, new_id: IdMaker, *, effort: str | None = None) -> None:
        super().__init__(errors)
        self._new_id = new_id
        self._effort = effort
        self._next = 0
        self._items: list[Item] = []
        self._by_key: dict[int | str, Item] = {}
        self._call_ids: set[str] = set()
        self._open_text: Item | None = None
        self._refused = False

    def on_event(self, event: SseEvent, out: list[ProviderEvent]) -> None:
        """See `WireStream.on_event`."""
        decoded = decode_event(event.data)
        if decoded is None:
            return
        kind = decoded.type or event.name
        if kind == "response.output_text.delta":
            # Nearly all events are these, each for the item of the one before.
            text, item = decoded.delta, self._open_text
            if item is None or item.at != decoded.output_index or item.finished:
                self._take_text(decoded, text, out)
            elif type(text) is str and text:
                out.append(TextDelta(text=text, index=item.index))
                item.seen.append(text)
        elif type(kind) is str:
            handler = self._HANDLERS.get(kind)
            if handler is not None:
                handler(self, decoded, out)

    def on_end(self, out: list[ProviderEvent]) -> None:
        """See `WireStream.on_end`: only the response's own last event ends it."""

    # --- items ----------------------------------------------------------------------------

    def _item_of(self, event: Event, kind: str) -> Item:
        """The item that an event speaks of; servers may leave out the event that opens it."""
        key = event.output_index
        item = self._by_key.get(key) if type(key) is int else None
        if item is None and type(event.item_id) is str:
            item = self._by_key.get(event.item_id)
            if item is not None and item.at is not None and type(key) is int:
                item = None  # another one, to which the server gave the same id
        if item is None and type(key) is not int and event.item_id is None and self._items:
            last = self._items[-1]
            item = last if last.kind == kind and not last.finished else None
        return item if item is not None else self._open(event, kind, event.item_id)

    def _open(self, event: Event, kind: str, item_id: Any) -> Item:
        item = Item(kind)
        self._items.append(item)
        if type(event.output_index) is int:
            item.at = event.output_index
            self._by_key[event.output_index] = item
        if type(item_id) is str and item_id:
            item.id = item_id
            self._by_key.setdefault(item_id, item)
        return item

    def _place(self, item: Item) -> int:
        index = item.index
        if index is None:
            index = item.index = self._next
            self._next += 1
        return index

    def _added(self, event: Event, out: list[ProviderEvent]) -> None:
        raw = object_of(event.item)
        item = self._open(event, kind_of(raw), raw.get("id"))
        if item.kind == CALL:
            self._name_call(item, raw)
            if item.name:
                self._announce(item, out)

    def _item_done(self, event: Event, out: list[ProviderEvent]) -> None:
        raw = object_of(event.item)
        kind = kind_of(raw)
        event.item_id = raw.get("id")
        item = self._item_of(event, kind)
        if item.finished:
            return
        if item.kind != kind and item.index is None:
            item.kind = kind
        self._finish(item, raw, bytes(event.item).decode("utf-8", "replace"), out)

    def _finish(self, item: Item, raw: dict[str, Any], data: str, out: list[ProviderEvent]) -> None:
        """End an item with what the vendor says that it is; *data* is its JSON."""
        item.finished = True
        item.id = as_text(raw.get("id")) or item.id
        if item.kind == TEXT:
            item.phase = as_text(raw.get("phase"))
            text, is_refusal = content_text(raw)
            self._refused = self._refused or is_refusal
            self._emit_rest(item, text, out)
            self._finish_text(item, out)
        elif item.kind == THINKING:
            self._emit_rest(item, reasoning_text(raw), out)
            self._finish_thinking(item, raw, data, out)
        elif item.kind == CALL:
            self._name_call(item, raw)
            self._emit_rest(item, arguments_text(raw.get("arguments")), out)
            self._finish_call(item, out)
        elif as_text(raw.get("type")) is not None:
            block = NativeBlock(api=API, kind=raw["type"], data=data)
            out.append(BlockFinished(index=self._place(item), block=block))

    def _emit_rest(self, item: Item, whole: str, out: list[ProviderEvent]) -> None:
        """Emit what no delta brought; deltas that say something else are kept."""
        seen = "".join(item.seen)
        rest = whole[len(seen) :] if whole.startswith(seen) else ""
        if rest:
            self._emit(item, rest, out)

    def _emit(self, item: Item, text: str, out: list[ProviderEvent]) -> None:
        if item.kind == CALL:
            self._announce(item, out)
            out.append(ToolCallChunk(index=self._place(item), arguments_text=text))
        elif item.kind == TEXT:
            out.append(TextDelta(text=text, index=self._place(item)))
        elif item.kind == THINKING:
            out.append(ThinkingDelta(text=text, index=self._place(item)))
        item.seen.append(text)

    # --- text -----------------------------------------------------------------------------

    def _take_text(self, event: Event, text: Any, out: list[ProviderEvent]) -> None:
        if type(text) is not str or not text:
            return
        item = self._item_of(event, TEXT)
        if item.kind == TEXT and not item.finished:
            self._emit(item, text, out)
            self._open_text = item if item.at is not None else None

    def _text_done(self, event: Event, out: list[ProviderEvent]) -> None:
        item = self._item_of(event, TEXT)
        # Where deltas came, they said it; where none came, this is all of the part.
        if item.kind == TEXT and not item.finished and not item.seen:
            text = event.text if type(event.text) is str else event.refusal
            if type(text) is str and text:
                self._emit(item, text, out)

    def _take_refusal(self, event: Event, out: list[ProviderEvent]) -> None:
        self._refused = True
        self._take_text(event, event.delta, out)

    def _refusal_done(self, event: Event, out: list[ProviderEvent]) -> None:
        self._refused = True
        self._text_done(event, out)

    def _finish_text(self, item: Item, out: list[ProviderEvent]) -> None:
        if item.index is None:
            return  # it said nothing
        replay = item_replay(item.id, item.phase, self._effort)
        block = TextBlock(text="".join(item.seen), replay=replay)
        out.append(BlockFinished(index=item.index, block=block))

    # --- reasoning ------------------------------------------------------------------------

    def _take_summary(self, event: Event, out: list[ProviderEvent]) -> None:
        self._take_thinking(event, event.delta, ("summary", number(event.summary_index)), out)

    def _take_reasoning(self, event: Event, out: list[ProviderEvent]) -> None:
        self._take_thinking(event, event.delta, ("text", number(event.content_index)), out)

    def _take_thinking(
        self, event: Event, text: Any, part: tuple[str, int], out: list[ProviderEvent]
    ) -> None:
        if type(text) is not str or not text:
            return
        item = self._item_of(event, THINKING)
        if item.kind != THINKING or item.finished:
            return
        if item.part is not None and part != item.part:
            if part[0] != item.part[0]:
                return  # a summary of what was already shown, or the other way round
            text = PARTS + text
        item.part = part
        self._emit(item, text, out)

    def _summary_done(self, event: Event, out: list[ProviderEvent]) -> None:
        self._thinking_done(event, ("summary", number(event.summary_index)), out)

    def _reasoning_done(self, event: Event, out: list[ProviderEvent]) -> None:
        self._thinking_done(event, ("text", number(event.content_index)), out)

    def _thinking_done(self, event: Event, part: tuple[str, int], out: list[ProviderEvent]) -> None:
        item = self._item_of(event, THINKING)
        if item.part is None or part > item.part:
            self._take_thinking(event, event.text, part, out)

    def _finish_thinking(
        self, item: Item, raw: dict[str, Any], text: str, out: list[ProviderEvent]
    ) -> None:
        seen = "".join(item.seen)
        # Without one of these there is nothing that could be sent back.
        is_whole = bool(raw.get("encrypted_content") or raw.get("content"))
        if not seen and not is_whole:
            return
        replay = Replay(api=API, kind="item", data=text, item_id=item.id) if is_whole else None
        block = ThinkingBlock(text=seen, redacted=None if seen else True, replay=replay)
        out.append(BlockFinished(index=self._place(item), block=block))

    # --- calls ----------------------------------------------------------------------------

    def _name_call(self, item: Item, raw: dict[str, Any]) -> None:
        if item.index is None:
            item.name = as_text(raw.get("name")) or item.name
            item.call_id = as_text(raw.get("call_id")) or item.call_id

    def _announce(self, item: Item, out: list[ProviderEvent]) -> None:
        if item.index is not None:
            return
        if not item.call_id or item.call_id in self._call_ids:
            item.call_id = self._new_id("call")
        self._call_ids.add(item.call_id)
        out.append(ToolCallChunk(index=self._place(item), id=item.call_id, name=item.name))

    def _take_arguments(self, event: Event, out: list[ProviderEvent]) -> None:
        item = self._item_of(event, CALL)
        text = event.delta
        # Before its name came a call cannot be announced: its end brings all of it.
        if item.kind == CALL and not item.finished and item.name and type(text) is str and text:
            self._emit(item, text, out)

    def _arguments_done(self, event: Event, out: list[ProviderEvent]) -> None:
        item = self._item_of(event, CALL)
        if item.kind == CALL and not item.finished and item.name:
            self._emit_rest(item, arguments_text(event.arguments), out)

    def _finish_call(self, item: Item, out: list[ProviderEvent]) -> None:
        self._announce(item, out)
        text = "".join(item.seen)
        arguments = parse_arguments(text)
        block = ToolCallBlock(
            id=item.call_id,
            name=item.name,
            arguments=arguments or {},
            raw_arguments=text if arguments is None else None,
            replay=item_replay(item.id, None, self._effort),
        )
        out.append(BlockFinished(index=self._place(item), block=block))

    # --- the end --------------------------------------------------------------------------

    def _end(self, event: Event, out: list[ProviderEvent]) -> None:
        response = object_of(event.response)
        status = response.get("status")
        if status == "failed" or (event.type == "response.failed"):
            self._failed(event, out)
            return
        if status == "cancelled" or event.type == "response.cancelled":
            self.fail(self.errors.failure("aborted", "The vendor cancelled the response."), out)
            return
        reason = as_text(as_object(response.get("incomplete_details")).get("reason"))
        is_whole = status != "incomplete" and event.type != "response.incomplete"
        stop = "stop" if is_whole else self._incomplete(reason, out)
        self._finish_open(event.response, out, cut=stop == "length")
        self._note_transformations(response, out)
        if self._refused and stop in {"stop", "length"}:
            stop = "refusal"
        elif stop == "stop" and any(item.kind == CALL for item in self._items):
            stop = "tool_use"
        self.done(Done(usage=_usage(response), stop_reason=stop), out)

    def _incomplete(self, reason: str | None, out: list[ProviderEvent]) -> str:
        stop = _INCOMPLETE.get(reason or "")
        if stop is None:
            out.append(
                Notice(
                    code="unknown_stop_reason",
                    message=f"The vendor left the answer incomplete for {(reason or '')[:100]!r}, "
                    "which is not known; it is taken as a limit on its length.",
                )
            )
        return stop or "length"

    def _finish_open(self, response: msgspec.Raw, out: list[ProviderEvent], *, cut: bool) -> None:
        """End the items that had no end of their own, from the response that lists them all."""
        listed = output_of(response)
        # Where no event opened an item, the list alone says that it is there.
        for at, text in enumerate(listed):
            item = self._by_key.get(at)
            if item is None and len(self._items) <= at:
                item = self._open(Event(output_index=at), "", None)
            if item is None or item.finished:
                continue
            raw = object_of(text)
            if item.index is None:
                item.kind = kind_of(raw)
            is_cut = cut and item.kind == CALL and raw.get("status") != "completed"
            if item.kind == kind_of(raw) and not is_cut:
                self._finish(item, raw, bytes(text).decode("utf-8", "replace"), out)
        for item in self._items:
            if item.finished:
                continue
            item.finished = True
            if item.kind == TEXT:
                self._finish_text(item, out)
            elif item.kind == THINKING:
                self._finish_thinking(item, {}, "", out)
            elif item.kind == CALL and not cut:
                self._finish_call(item, out)
            elif item.kind == CALL:
                item.kind = ""  # it is no call that could be answered
                out.append(
                    Notice(
                        code="tool_call_dropped",
                        message=f"The answer reached its length limit inside the call of "
                        f"{item.name!r}: the call was left out.",
                    )
                )

    def _failed(self, event: Event, out: list[ProviderEvent]) -> None:
        response = object_of(event.response)
        usage = _usage(response)
        if usage is not None:
            out.append(UsageUpdate(usage=usage))
        error = response.get("error")
        if is_object(error):
            self.fail(self.errors.event(encode({"error": error})), out)
        else:
            self.fail(self.errors.failure("server_error", "The vendor's response failed."), out)

    def _error(self, event: Event, out: list[ProviderEvent]) -> None:
        nested = object_of(event.error)
        error = nested or {"code": event.code, "message": event.message}
        self.fail(self.errors.event(encode({"error": error})), out)

    @staticmethod
    def _note_transformations(response: dict[str, Any], out: list[ProviderEvent]) -> None:
        changes = response.get("input_transformations")
        if not is_list(changes) or not changes:
            return
        reasons = {str(change.get("reason")) for change in changes if is_object(change)}
        out.append(
            Notice(
                code="thinking_dropped",
                message=f"The vendor left out {len(changes)} reasoning items of the conversation "
                f"({', '.join(sorted(reasons))[:200] or 'no reason given'}).",
            )
        )

    _HANDLERS: ClassVar = {
        "response.output_item.added": _added,
        "response.output_item.done": _item_done,
        "response.output_text.done": _text_done,
        "response.refusal.delta": _take_refusal,
        "response.refusal.done": _refusal_done,
        "response.reasoning_summary_text.delta": _take_summary,
        "response.reasoning_summary_text.done": _summary_done,
        "response.reasoning_text.delta": _take_reasoning,
        "response.reasoning_text.done": _reasoning_done,
        "response.function_call_arguments.delta": _take_arguments,
        "response.function_call_arguments.done": _arguments_done,
        "response.completed": _end,
        "response.incomplete": _end,
        "response.failed": _end,
        "response.cancelled": _end,
        "error": _error,
    }


def _usage(response: dict[str, Any]) -> Usage | None:
    raw = response.get("usage")
    usage = read_usage(raw) if is_object(raw) else None
    return None if usage is None or usage.total_tokens is None else usage
