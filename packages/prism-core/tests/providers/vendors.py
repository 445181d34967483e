"""Vendors that follow a script of the conformance suite, in memory or over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from prism.core.providers import (
    AnthropicProvider,
    GoogleProvider,
    HttpTimeouts,
    OpenAIChatProvider,
    OpenAIResponsesProvider,
)
from prism.core.testing import OpenedProvider, ProviderHarness, ScriptedAnswer

from .loopback import Exchange

SECRET = "sk-test-0123456789abcdefghijklmnop"  # noqa: S105

Payload = dict[str, Any]
Script = Callable[[ScriptedAnswer], tuple[list[Payload], list[Payload], Payload]]
"""An answer's content, what completes it, and what reports a failure in its midst."""


def chat(answer: ScriptedAnswer) -> tuple[list[Payload], list[Payload], Payload]:
    def chunk(delta: Payload, finish: str | None = None) -> Payload:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "c1", "model": "m", "choices": [choice]}

    content = [chunk({"reasoning_content": piece}) for piece in answer.thinking]
    content += [chunk({"content": piece}) for piece in answer.text]
    for index, call in enumerate(answer.calls):
        head = {"index": index, "id": call.id, "type": "function"}
        content.append(
            chunk({"tool_calls": [{**head, "function": {"name": call.name, "arguments": ""}}]})
        )
        content += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in call.arguments
        ]
    words = {"tool_use": "tool_calls"}
    end = [chunk({}, words.get(answer.stop, answer.stop))]
    if answer.usage is not None:
        used = {
            "prompt_tokens": answer.usage.input_tokens,
            "completion_tokens": answer.usage.output_tokens,
        }
        end.append({"id": "c1", "choices": [], "usage": used})
    return content, end, {"error": {"message": answer.message, "code": 500}}


def messages(answer: ScriptedAnswer) -> tuple[list[Payload], list[Payload], Payload]:
    counted = answer.usage
    used = {"input_tokens": 0 if counted is None else counted.input_tokens, "output_tokens": 1}
    content: list[Payload] = [
        {"type": "message_start", "message": {"id": "m1", "model": "m", "usage": used}}
    ]
    blocks: list[tuple[Payload, list[Payload]]] = []
    if answer.thinking:
        pieces = [{"type": "thinking_delta", "thinking": piece} for piece in answer.thinking]
        signature = {"type": "signature_delta", "signature": "c2ln"}
        blocks.append(({"type": "thinking", "thinking": ""}, [*pieces, signature]))
    if answer.text:
        pieces = [{"type": "text_delta", "text": piece} for piece in answer.text]
        blocks.append(({"type": "text", "text": ""}, pieces))
    for call in answer.calls:
        pieces = [{"type": "input_json_delta", "partial_json": part} for part in call.arguments]
        head: Payload = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        blocks.append((head, pieces))
    for index, (head, pieces) in enumerate(blocks):
        at = {"index": index}
        content.append({"type": "content_block_start", **at, "content_block": head})
        content += [{"type": "content_block_delta", **at, "delta": piece} for piece in pieces]
        content.append({"type": "content_block_stop", **at})
    words = {"stop": "end_turn", "length": "max_tokens"}
    final = {"output_tokens": 1 if counted is None else counted.output_tokens}
    stop = {"stop_reason": words.get(answer.stop, answer.stop)}
    end = [{"type": "message_delta", "delta": stop, "usage": final}, {"type": "message_stop"}]
    failure = {"type": "api_error", "message": answer.message}
    return content, end, {"type": "error", "error": failure}


def gemini(answer: ScriptedAnswer) -> tuple[list[Payload], list[Payload], Payload]:
    def part(**fields: Any) -> Payload:
        return {"candidates": [{"content": {"role": "model", "parts": [fields]}}]}

    content = [part(text=piece, thought=True) for piece in answer.thinking]
    content += [part(text=piece) for piece in answer.text]
    for call in answer.calls:
        made = {"id": call.id, "name": call.name, "args": json.loads("".join(call.arguments))}
        content.append(part(functionCall=made))
    words = {"length": "MAX_TOKENS"}
    end: Payload = {"candidates": [{"finishReason": words.get(answer.stop, "STOP")}]}
    if answer.usage is not None:
        end["usageMetadata"] = {
            "promptTokenCount": answer.usage.input_tokens,
            "candidatesTokenCount": answer.usage.output_tokens,
        }
    failure = {"code": 500, "message": answer.message, "status": "INTERNAL"}
    return content, [end], {"error": failure}


def responses(answer: ScriptedAnswer) -> tuple[list[Payload], list[Payload], Payload]:
    content: list[Payload] = [
        {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}}
    ]
    items: list[Payload] = []

    def item(start: Payload, deltas: list[Payload], final: Payload) -> None:
        at = {"output_index": len(items)}
        content.append({"type": "response.output_item.added", **at, "item": start})
        content.extend({**delta, **at, "item_id": start["id"]} for delta in deltas)
        content.append({"type": "response.output_item.done", **at, "item": {**start, **final}})
        items.append({**start, **final})

    if answer.thinking:
        deltas: list[Payload] = [
            {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": piece}
            for piece in answer.thinking
        ]
        summary = [{"type": "summary_text", "text": "".join(answer.thinking)}]
        head: Payload = {"type": "reasoning", "id": "rs_1", "summary": []}
        item(head, deltas, {"summary": summary, "encrypted_content": "c2Vj"})
    if answer.text:
        deltas = [
            {"type": "response.output_text.delta", "content_index": 0, "delta": piece}
            for piece in answer.text
        ]
        parts: list[Payload] = [
            {"type": "output_text", "text": "".join(answer.text), "annotations": []}
        ]
        head = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
        item(head, deltas, {"content": parts, "status": "completed"})
    for number, call in enumerate(answer.calls):
        deltas = [
            {"type": "response.function_call_arguments.delta", "delta": piece}
            for piece in call.arguments
        ]
        head = {"type": "function_call", "id": f"fc_{number}", "call_id": call.id}
        head |= {"name": call.name, "arguments": ""}
        item(head, deltas, {"arguments": "".join(call.arguments), "status": "completed"})
    response: Payload = {"id": "r1", "status": "completed", "output": items}
    if answer.usage is not None:
        response["usage"] = {
            "input_tokens": answer.usage.input_tokens,
            "output_tokens": answer.usage.output_tokens,
        }
    kind = "response.completed"
    if answer.stop == "length":
        kind = "response.incomplete"
        response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    failure = {"type": "error", "code": "server_error", "message": answer.message}
    return content, [{"type": kind, "response": response}], failure


def chunks_of(script: Script, answer: ScriptedAnswer) -> list[bytes]:
    """The body of the answer, one event in each chunk."""
    content, end, failure = script(answer)
    sent = content
    if answer.end == "complete":
        sent = content + end
    elif answer.end == "fail":
        sent = [*content, failure]
    chunks = [
        f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n".encode()
        for event in sent
    ]
    if answer.end == "complete" and script is chat:
        chunks.append(b"data: [DONE]\n\n")
    return chunks


def refusal_of(answer: ScriptedAnswer) -> tuple[dict[str, str], bytes]:
    """Headers and body of an error, in a form that all adapters read."""
    headers = {"content-type": "application/json"}
    if answer.retry_after_ms is not None:
        headers["retry-after"] = str(answer.retry_after_ms // 1000)
    return headers, json.dumps({"error": {"message": answer.message}}).encode()


class Counted:
    """Counts what is open, and tells when nothing is."""

    def __init__(self) -> None:
        self._count = 0
        self._none = anyio.Event()

    def begin(self) -> None:
        if not self._count:
            self._none = anyio.Event()
        self._count += 1

    def end(self) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    async def released(self) -> None:
        if self._count:
            await self._none.wait()


class _Body:
    """One answer in memory."""

    def __init__(self, vendor: MemoryVendor, answer: ScriptedAnswer) -> None:
        self.status = answer.status if answer.end == "refuse" else 200
        self.headers: Mapping[str, str] = {"content-type": "text/event-stream"}
        self._chunks = chunks_of(vendor.script, answer)
        if answer.end == "refuse":
            self.headers, body = refusal_of(answer)
            self._chunks = [body]
        self._stalls = answer.end == "stall"
        self._closed = False
        self._open = vendor.open
        self._open.begin()
        self._reading: AsyncGenerator[bytes] | None = None

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        self._reading = self._read()
        return self._reading

    async def _read(self) -> AsyncGenerator[bytes]:
        for chunk in self._chunks:
            await checkpoint()
            yield chunk
        if self._stalls:
            await anyio.sleep_forever()

    async def aclose(self) -> None:
        if self._reading is not None:
            await self._reading.aclose()
        if not self._closed:
            self._closed = True
            self._open.end()


class MemoryVendor:
    """An HTTP transport that gives the answers of a script."""

    def __init__(self, script: Script, answers: Sequence[ScriptedAnswer]) -> None:
        self.script = script
        self.answers = answers
        self.asked = 0
        self.open = Counted()

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes,
        timeouts: HttpTimeouts,
    ) -> _Body:
        assert any(SECRET in value for value in headers.values())
        assert SECRET not in url
        assert SECRET.encode() not in content
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        await checkpoint()
        if answer.end == "stall" and not (answer.text or answer.thinking or answer.calls):
            await anyio.sleep_forever()
        return _Body(self, answer)

    async def aclose(self) -> None:
        await checkpoint()


class HttpVendor:
    """Answers the requests of a loopback server by a script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.answers: Sequence[ScriptedAnswer] = ()
        self.asked = 0
        self.open = Counted()

    async def respond(self, exchange: Exchange) -> None:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        self.open.begin()
        try:
            await self._respond(exchange, answer)
        finally:
            self.open.end()

    async def _respond(self, exchange: Exchange, answer: ScriptedAnswer) -> None:
        if answer.end == "refuse":
            headers, body = refusal_of(answer)
            lines = [f"HTTP/1.1 {answer.status} Error", f"content-length: {len(body)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            await exchange.send("\r\n".join([*lines, "", ""]).encode() + body)
            return
        chunks = chunks_of(self.script, answer)
        if answer.end == "stall" and not (answer.text or answer.thinking or answer.calls):
            await exchange.until_client_goes()
            return
        await exchange.start()
        for chunk in chunks:
            await exchange.chunk(chunk)
        if answer.end == "stall":
            await exchange.until_client_goes()
        else:
            await exchange.end()


ADAPTERS: dict[str, tuple[type[Any], Script]] = {
    "openai": (OpenAIResponsesProvider, responses),
    "openai-chat": (OpenAIChatProvider, chat),
    "anthropic": (AnthropicProvider, messages),
    "google": (GoogleProvider, gemini),
}
"""Our adapters by the name that the command line has for them, and what their vendors say."""


def memory_harness(name: str) -> ProviderHarness:
    """An adapter and a vendor in memory."""
    kind, script = ADAPTERS[name]

    def opened(answers: Sequence[ScriptedAnswer]) -> OpenedProvider:
        vendor = MemoryVendor(script, answers)
        provider = kind(credential=SECRET, transport=vendor, base_url="https://vendor.test/v1")
        return OpenedProvider(provider=provider, released=vendor.open.released)

    return ProviderHarness(open=opened, secret=SECRET, raw_arguments=name != "google")


def http_harness(name: str, vendor: HttpVendor, url: str) -> ProviderHarness:
    """An adapter and a vendor behind a loopback server."""
    kind, _ = ADAPTERS[name]

    def opened(answers: Sequence[ScriptedAnswer]) -> OpenedProvider:
        vendor.answers, vendor.asked = answers, 0
        provider = kind(credential=SECRET, base_url=url)
        return OpenedProvider(provider=provider, released=vendor.open.released)

    return ProviderHarness(open=opened, secret=SECRET, raw_arguments=name != "google")


def without(name: str) -> Sequence[Any]:
    """What an adapter's wire has not."""
    return ("raw_arguments",) if name == "google" else ()


__all__ = [
    "ADAPTERS", "SECRET", "HttpVendor", "MemoryVendor", "http_harness", "memory_harness",
    "without",
]  # fmt: skip
