"""One answer: the wire's decoder, and what feeds it and ends it once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from prism.core._contracts import BlockFinished, Done, Failed, Notice, ProviderEvent
from prism.core._errors import DecodeError, PrismError, ProviderError
from prism.core._wire import ErrorInfo, TextBlock, ThinkingBlock, ToolCallBlock, parse_json
from prism.core.providers._errors_map import ErrorMapper
from prism.core.providers._json import is_object
from prism.core.providers._sse import SseDecoder, SseEvent

T = TypeVar("T")

MAX_RESPONSE_BYTES: Final = 512 * 1024 * 1024
"""How much of an answer is read in all; far above what a model can write in one turn."""

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a msgspec decoder raises for data that `decode_slowly` may still read."""

_MAX_HEAD_BYTES: Final = 65_536


class WireStream(ABC):
    """Decodes one answer. It appends events to *out*; a terminal one last, and then no more."""

    ended: bool = False
    """Set once a terminal event was appended."""

    def __init__(self, errors: ErrorMapper) -> None:
        self.errors = errors

    @abstractmethod
    def on_event(self, event: SseEvent, out: list[ProviderEvent]) -> None:
        """Take one event.

        Raises:
            ProviderError: `malformed_output`, when its data cannot be decoded.
        """

    @abstractmethod
    def on_end(self, out: list[ProviderEvent]) -> None:
        """The body is over. Append the terminal event if the answer is whole; else nothing."""

    def done(self, event: Done, out: list[ProviderEvent]) -> None:
        """Append the terminal event of an answer."""
        out.append(event)
        self.ended = True

    def fail(self, error: ErrorInfo, out: list[ProviderEvent]) -> None:
        """Append the terminal event of a failure."""
        out.append(Failed(error=error))
        self.ended = True


class StreamReader:
    """Feeds the answer's bytes to the wire, and ends the answer when they end."""

    __slots__ = ("_events", "_head", "_read", "_sse", "_stream")

    def __init__(self, stream: WireStream, sse: SseDecoder) -> None:
        self._stream = stream
        self._sse = sse
        self._events = 0
        self._read = 0
        self._head = bytearray()  # of a body that is no event stream

    def feed(self, chunk: bytes, out: list[ProviderEvent]) -> None:
        self._read += len(chunk)
        if self._read > MAX_RESPONSE_BYTES:
            raise ProviderError(
                f"The answer is longer than {MAX_RESPONSE_BYTES} bytes.",
                code="response_too_large",
                details={"limit": MAX_RESPONSE_BYTES},
            )
        events = self._sse.feed(chunk)
        stream = self._stream
        for event in events:
            stream.on_event(event, out)
            if stream.ended:
                return
        if events:
            self._events += len(events)
        elif not self._events and len(self._head) < _MAX_HEAD_BYTES:
            self._head += chunk[: _MAX_HEAD_BYTES - len(self._head)]

    def finish(self, out: list[ProviderEvent]) -> None:
        """The body is over: what came last may be cut in half."""
        stream = self._stream
        for event in self._sse.finish():
            self._events += 1
            try:
                stream.on_event(event, out)
            except PrismError:
                break
        if not stream.ended:
            stream.on_end(out)
        if not stream.ended:
            stream.fail(self._no_end(), out)

    def cut(self, error: PrismError, out: list[ProviderEvent]) -> None:
        """The body broke off, or could not be decoded."""
        stream = self._stream
        if not isinstance(error, ProviderError):
            stream.fail(stream.errors.exception(error, code="malformed_output"), out)
            return
        if error.code in {"connection", "timeout"}:
            end: list[ProviderEvent] = []
            stream.on_end(end)
            if stream.ended:
                out.append(Notice(code="stream_cut", message=error.message))
                out += end
                return
        truncated = error.code == "connection"
        code = "stream_truncated" if truncated else None
        stream.fail(stream.errors.exception(error, code=code), out)

    def _no_end(self) -> ErrorInfo:
        errors = self._stream.errors
        if not self._events and self._head.strip():
            try:
                tree = parse_json(bytes(self._head))
            except DecodeError:
                tree = None
            if is_object(tree) and "error" in tree:
                return errors.event(bytes(self._head))
            kind = errors.headers.get("content-type", "")
            if kind and "event-stream" not in kind:
                return errors.failure(
                    "malformed_output",
                    f"The server answered with {kind} instead of an event stream: check base_url.",
                )
        return errors.failure(
            "stream_truncated", "The stream ended before the model's answer was complete."
        )


def stamped(event: BlockFinished, prefix: str | None) -> BlockFinished:
    """The block with the digest of what it was written after, where a vendor binds it to that.

    That is reasoning, and a signature on any other block.
    """
    block = event.block
    if prefix is None or not isinstance(block, ThinkingBlock | TextBlock | ToolCallBlock):
        return event
    replay = block.replay
    if replay is None or not (isinstance(block, ThinkingBlock) or replay.kind == "signature"):
        return event
    return replace(event, block=replace(block, replay=replace(replay, prefix=prefix)))


def decode_slowly(kind: type[T], data: bytes) -> T | None:
    """Decode what msgspec's decoder refused with one of `UNDECODABLE`, such as a lone surrogate.

    Returns:
        The struct, whose strings may hold lone surrogates, or `None` for JSON that is no object.

    Raises:
        ProviderError: `malformed_output`.
    """
    try:
        tree = parse_json(data)
        if not is_object(tree):
            return None
        return msgspec.convert(tree, type=kind, strict=False)
    except (DecodeError, msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ProviderError(
            f"An event of the stream cannot be read: {error}", code="malformed_output"
        ) from None


def parse_arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a call: empty text and `null` are none, anything but an object `None`."""
    if not text.strip():
        return {}
    if not text.isascii():  # two halves of a character may have come in two deltas
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    try:
        value = parse_json(text)
    except DecodeError:
        return None
    if value is None:
        return {}
    return value if is_object(value) else None
