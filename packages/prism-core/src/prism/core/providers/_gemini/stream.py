"""From the chunks of a Gemini stream to provider events."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

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
    ImageBlock,
    NativeBlock,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
    encode,
)
from prism.core.providers._errors_map import ErrorMapper
from prism.core.providers._gemini.contents import API, IMAGE_SIGNATURE
from prism.core.providers._gemini.usage import read_usage
from prism.core.providers._json import as_object, as_text, is_list, is_object
from prism.core.providers._sse import SseEvent
from prism.core.providers._stream import UNDECODABLE, WireStream, decode_slowly

_NOTHING: Final = msgspec.Raw(b"null")


class _Candidate(msgspec.Struct, gc=False):
    index: Any = 0
    content: Any = None
    finishReason: Any = None  # noqa: N815 - the vendor's names
    finishMessage: Any = None  # noqa: N815


class _Chunk(msgspec.Struct, gc=False):
    candidates: list[_Candidate] | None = None
    usageMetadata: Any = None  # noqa: N815
    promptFeedback: Any = None  # noqa: N815
    error: Any = None


class _PlainPart(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    text: str
    thought: bool = False


class _PlainContent(msgspec.Struct, gc=False):
    parts: list[_PlainPart]


class _PlainCandidate(msgspec.Struct, gc=False):
    content: _PlainContent
    index: Literal[0] = 0
    finishReason: None = None  # noqa: N815


class _PlainChunk(msgspec.Struct, gc=False):
    """What nearly all chunks are: a piece of text, and usage that the next chunk replaces."""

    candidates: Annotated[list[_PlainCandidate], msgspec.Meta(min_length=1, max_length=1)]
    usageMetadata: msgspec.Raw = _NOTHING  # noqa: N815
    promptFeedback: None = None  # noqa: N815
    error: None = None


_decoder = msgspec.json.Decoder(_Chunk)
_plain_decoder = msgspec.json.Decoder(_PlainChunk)
_MAX_DONE: Final = 16
_BLOCKED: Final = "blocked"

_STOP_REASONS: Final = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "pause",
    _BLOCKED: "refusal",
}
_REFUSALS: Final = frozenset({
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
    "ESCALATION", "PUP_LIMITED_DISABLED", "NO_IMAGE",
})  # fmt: skip
_FAILURES: Final = {
    "MALFORMED_FUNCTION_CALL": ("malformed_output", "The model wrote a call that is no JSON"),
    "UNEXPECTED_TOOL_CALL": ("malformed_output", "The model called a tool that it was not given"),
    "MALFORMED_RESPONSE": ("malformed_output", "The model's answer was malformed"),
    "MISSING_THOUGHT_SIGNATURE": ("replay_invalid", "A signature of the conversation is missing"),
    "TOO_MANY_TOOL_CALLS": ("server_error", "The model called too many of the vendor's tools"),
    "OTHER": ("server_error", "The vendor ended the answer for a reason that it does not name"),
}
_LASTING: Final = frozenset({"TOO_MANY_TOOL_CALLS"})
_NO_CONTENT: Final = frozenset({"thought", "thoughtSignature", "partMetadata", "videoMetadata"})


class GeminiStream(WireStream):
    """Decodes one answer. Nothing marks its end but the end of the body after a finish reason."""

    def __init__(self, errors: ErrorMapper, new_id: IdMaker) -> None:
        super().__init__(errors)
        self._new_id = new_id
        self._next = 0
        self._open: type[TextDelta | ThinkingDelta] | None = None
        self._call_ids: set[str] = set()
        self._finish: str | None = None
        self._has_candidates = False
        self._raw_usage: dict[str, Any] | None = None
        self._newest_usage = _NOTHING  # not decoded yet
        self._usage: Usage | None = None

    def on_event(self, event: SseEvent, out: list[ProviderEvent]) -> None:
        """See `WireStream.on_event`."""
        if not event.name:
            try:
                chunk = _plain_decoder.decode(event.data)
            except UNDECODABLE:
                pass
            else:
                self._take_plain(chunk, out)
                return
        self._take_chunk(event, out)

    def _take_plain(self, chunk: _PlainChunk, out: list[ProviderEvent]) -> None:
        self._has_candidates = True
        if chunk.usageMetadata != _NOTHING:
            self._newest_usage = chunk.usageMetadata
            if self._usage is None:
                self._tell_usage(out)
        for part in chunk.candidates[0].content.parts:
            text = part.text
            if text:
                kind = ThinkingDelta if part.thought else TextDelta
                if self._open is not kind:
                    self._next += 1
                    self._open = kind
                out.append(kind(text=text, index=self._next - 1))

    def _take_chunk(self, event: SseEvent, out: list[ProviderEvent]) -> None:
        data = event.data
        if len(data) < _MAX_DONE and data.strip() == b"[DONE]":  # some gateways append it
            return
        try:
            chunk = _decoder.decode(data)
        except UNDECODABLE:
            slow = decode_slowly(_Chunk, data)
            if slow is None:
                return
            chunk = slow
        if is_object(chunk.usageMetadata):
            self._raw_usage = chunk.usageMetadata
            self._newest_usage = _NOTHING
            if self._usage is None:  # the next ones with the end: each chunk has its counts
                self._tell_usage(out)
        if chunk.error or event.name == "error":
            self._tell_usage(out)
            self.fail(self.errors.event(data), out)
            return
        for candidate in chunk.candidates or ():
            if candidate.index is None or candidate.index == 0:
                self._take(candidate, out)
                break
        if not self._has_candidates and is_object(chunk.promptFeedback):
            reason = as_text(chunk.promptFeedback.get("blockReason"))
            if reason is not None:
                self._finish = _BLOCKED
                message = as_text(chunk.promptFeedback.get("blockReasonMessage"))
                self._refused(f"The vendor blocked the prompt ({reason})", message, out)

    def on_end(self, out: list[ProviderEvent]) -> None:
        """See `WireStream.on_end`."""
        self._tell_usage(out)
        if self._finish is None:
            return
        stop = _STOP_REASONS[self._finish]
        if stop == "stop" and self._call_ids:
            stop = "tool_use"
        self.done(Done(usage=self._usage, stop_reason=stop), out)

    def _take(self, candidate: _Candidate, out: list[ProviderEvent]) -> None:
        self._has_candidates = True
        parts = as_object(candidate.content).get("parts")
        if is_list(parts):
            for part in parts:
                if is_object(part):
                    self._take_part(part, out)
        reason = as_text(candidate.finishReason)
        if reason is None or reason == "FINISH_REASON_UNSPECIFIED":
            return
        detail = as_text(candidate.finishMessage)
        if reason in _REFUSALS or reason.startswith("IMAGE_"):
            self._finish = _BLOCKED
            self._refused(f"The vendor cut the answer off ({reason})", detail, out)
        elif reason in _STOP_REASONS:
            self._finish = reason
        else:
            self._failed(reason, detail, out)

    # --- parts ----------------------------------------------------------------------------

    def _take_part(self, part: dict[str, Any], out: list[ProviderEvent]) -> None:
        signature = as_text(part.get("thoughtSignature"))
        call = part.get("functionCall")
        if is_object(call):
            self._take_call(call, signature, out)
            return
        text = part.get("text")
        if isinstance(text, str) or part.keys() <= _NO_CONTENT:
            is_thought = part.get("thought") is True
            self._take_text(text or "", signature, out, is_thought=is_thought)
            return
        image = part.get("inlineData")
        kind = as_text(image.get("mimeType")) if is_object(image) else None
        if is_object(image) and kind is not None and kind.startswith("image/"):
            if part.get("thought") is True:  # a draft, which the vendor does not want back
                return
            data = image.get("data")
            if isinstance(data, str):
                self._give(ImageBlock(mime_type=kind, data=data), out)
                if signature is not None:
                    self._give(NativeBlock(api=API, kind=IMAGE_SIGNATURE, data=signature), out)
            return
        name = next(name for name in part if name not in _NO_CONTENT)
        self._give(NativeBlock(api=API, kind=name, data=encode(part).decode()), out)

    def _take_text(
        self, text: str, signature: str | None, out: list[ProviderEvent], *, is_thought: bool
    ) -> None:
        if not text and signature is None:
            return
        kind = ThinkingDelta if is_thought else TextDelta
        if signature is not None or self._open is not kind:
            # A signature belongs to its own part: that one is a block by itself.
            self._next += 1
            self._open = kind
        index = self._next - 1
        if text:
            out.append(kind(text=text, index=index))
        if signature is None:
            return
        self._open = None
        replay = Replay(api=API, kind="signature", data=signature)
        block: ContentBlock
        if is_thought:
            block = ThinkingBlock(text=text, signature=signature, replay=replay)
        else:
            block = TextBlock(text=text, replay=replay)
        out.append(BlockFinished(index=index, block=block))

    def _take_call(
        self, call: dict[str, Any], signature: str | None, out: list[ProviderEvent]
    ) -> None:
        vendor_id = as_text(call.get("id"))
        is_new = vendor_id is not None and vendor_id not in self._call_ids
        call_id = vendor_id if vendor_id is not None and is_new else self._new_id("call")
        self._call_ids.add(call_id)
        name = as_text(call.get("name")) or ""
        arguments = call.get("args")
        text = "" if arguments is None else encode(arguments).decode()
        is_valid = arguments is None or is_object(arguments)
        out.append(ToolCallChunk(index=self._next, id=call_id, name=name, arguments_text=text))
        block = ToolCallBlock(
            id=call_id,
            name=name,
            arguments=as_object(arguments),
            raw_arguments=None if is_valid else text,
            replay=None if signature is None else Replay(api=API, kind="signature", data=signature),
        )
        self._give(block, out)

    def _give(self, block: ContentBlock, out: list[ProviderEvent]) -> None:
        out.append(BlockFinished(index=self._next, block=block))
        self._next += 1
        self._open = None

    # --- the end --------------------------------------------------------------------------

    def _tell_usage(self, out: list[ProviderEvent]) -> None:
        try:
            newest: Any = msgspec.json.decode(self._newest_usage)
        except UNDECODABLE:
            newest = None
        if is_object(newest):
            self._raw_usage = newest
        usage = None if self._raw_usage is None else read_usage(self._raw_usage)
        if usage is not None and usage.total_tokens is not None and usage != self._usage:
            self._usage = usage
            out.append(UsageUpdate(usage=usage))

    @staticmethod
    def _refused(message: str, detail: str | None, out: list[ProviderEvent]) -> None:
        text = f"{message}: {detail[:500]}" if detail else f"{message}."
        out.append(Notice(code="refusal", message=text))

    def _failed(self, reason: str, detail: str | None, out: list[ProviderEvent]) -> None:
        self._tell_usage(out)
        code, message = _FAILURES.get(
            reason, ("server_error", "The vendor ended the answer for a reason that is not known")
        )
        details: dict[str, Any] = {"reason": reason[:100]}
        if reason in _LASTING or reason not in _FAILURES:
            details["shouldRetry"] = False
        text = f"{message} ({reason[:100]})" + (f": {detail}" if detail else ".")
        self.fail(self.errors.failure(code, text, details=details), out)
