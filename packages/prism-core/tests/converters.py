"""Real sessions of other agents as Prism's entries.

They are read from `../shared/fixtures/sessions` beside the checkout; `session_file` skips the test
where that is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prism.core._wire import (
    CompactionEntry,
    ContentBlock,
    CustomEntry,
    ErrorInfo,
    ImageBlock,
    Message,
    MessageEntry,
    ModelChangeEntry,
    ModelConfig,
    ModelRef,
    SessionEntry,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    encode_entry,
)

SESSIONS = Path(__file__).resolve().parents[4] / "shared" / "fixtures" / "sessions"

_STOP_REASONS = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "toolUse": "tool_use",
    "tool_use": "tool_use",
    "length": "length",
    "max_tokens": "length",
    "aborted": "aborted",
    "error": "error",
}


def session_file(name: str) -> Path:
    """The fixture of that name."""
    path = SESSIONS / name
    if not path.exists():
        pytest.skip(f"The session fixtures are not beside this checkout (looked for {path}).")
    return path


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def as_jsonl(entries: list[SessionEntry]) -> bytes:
    """Entries as a session file holds them."""
    return b"".join(encode_entry(entry) + b"\n" for entry in entries)


class _Writer:
    """Chains entries in the order in which they come."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.entries: list[SessionEntry] = []

    def head(self, timestamp: object) -> dict[str, Any]:
        return {
            "id": f"entry_{len(self.entries) + 1}",
            "session_id": self.session_id,
            "timestamp": timestamp if isinstance(timestamp, str) else "1970-01-01T00:00:00.000Z",
            "parent_id": self.entries[-1].id if self.entries else None,
        }

    def message(self, message: Message, timestamp: object = None) -> None:
        self.entries.append(MessageEntry(message=message, **self.head(timestamp)))


# pi


def convert_pi(path: Path) -> list[SessionEntry]:
    """A session of pi, version 1: a list of lines without ids."""
    writer = _Writer(path.stem)
    for line in json_lines(path):
        when = line.get("timestamp")
        match line["type"]:
            case "message":
                writer.message(_pi_message(line["message"]), when)
            case "session" | "model_change":
                model = ModelConfig(provider=line["provider"], model=line["modelId"])
                writer.entries.append(
                    ModelChangeEntry(
                        model=model,
                        thinking_level=line.get("thinkingLevel"),
                        **writer.head(when),
                    )
                )
            case "thinking_level_change":
                writer.entries.append(
                    ModelChangeEntry(thinking_level=line["thinkingLevel"], **writer.head(when))
                )
            case "compaction":
                writer.entries.append(
                    CompactionEntry(
                        summary=line["summary"],
                        data={"throughEntryId": writer.entries[-1].id},
                        **writer.head(when),
                    )
                )
            case kind:
                writer.entries.append(CustomEntry(data={"type": kind}, **writer.head(when)))
    return writer.entries


def _pi_message(message: Mapping[str, Any]) -> Message:
    content = [_pi_block(block) for block in _blocks(message.get("content", ""))]
    if message["role"] == "toolResult":
        text = "".join(block.text for block in content if isinstance(block, TextBlock))
        result = ToolResultBlock(
            tool_call_id=message["toolCallId"],
            name=message["toolName"],
            content=content,
            error=ErrorInfo(message=text[:200]) if message.get("isError") else None,
        )
        return Message(role="tool", content=[result])
    if message["role"] != "assistant":
        return Message(role="user", content=content)
    return Message(
        role="assistant",
        content=content,
        model=ModelRef(
            provider=message["provider"], model=message["model"], api=message.get("api")
        ),
        stop_reason=_STOP_REASONS.get(message.get("stopReason", ""), "stop"),
        usage=Usage(
            input_tokens=message["usage"]["input"], output_tokens=message["usage"]["output"]
        ),
    )


def _pi_block(block: Mapping[str, Any]) -> ContentBlock:
    match block["type"]:
        case "thinking":
            return ThinkingBlock(
                text=block["thinking"], signature=block.get("thinkingSignature") or None
            )
        case "toolCall":
            return ToolCallBlock(
                id=block["id"],
                name=block["name"],
                arguments=block["arguments"],
                raw_arguments=block.get("partialJson"),
            )
        case "image":
            return ImageBlock(mime_type=block["mimeType"], data=block["data"])
        case _:
            return TextBlock(text=block["text"])


def _blocks(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []  # pyright: ignore[reportUnknownVariableType]


# Claude Code


def convert_claude_code(path: Path) -> list[SessionEntry]:
    """The main conversation of a Claude Code session, in the order of its lines.

    Lines of one API message that follow one another become one message; where the results of
    earlier calls stand between them, they stay apart, as they came.
    """
    writer = _Writer(path.stem)
    names: dict[str, str] = {}
    previous_id: str | None = None
    boundary = False
    for line in json_lines(path):
        if line.get("subtype") == "compact_boundary":
            boundary = True
        if line["type"] not in {"user", "assistant"}:
            continue
        message = line["message"]
        when = line.get("timestamp")
        if boundary and line.get("isCompactSummary"):
            boundary, previous_id = False, None
            writer.entries.append(
                CompactionEntry(
                    summary=message["content"],
                    data={"throughEntryId": writer.entries[-1].id},
                    **writer.head(when),
                )
            )
        elif line["type"] == "assistant":
            _add_claude_answer(writer, message, names, when, joins=message["id"] == previous_id)
            previous_id = message["id"]
        else:
            previous_id = None
            for said in _claude_input(message, names):
                writer.message(said, when)
    return writer.entries


def _add_claude_answer(
    writer: _Writer,
    message: Mapping[str, Any],
    names: dict[str, str],
    when: object,
    *,
    joins: bool,
) -> None:
    content = [_claude_block(block) for block in _blocks(message["content"])]
    names.update((block.id, block.name) for block in content if isinstance(block, ToolCallBlock))
    if joins:
        last = writer.entries.pop()
        assert isinstance(last, MessageEntry)
        content = [*last.message.content, *content]
    stop_reason = message.get("stop_reason")
    if stop_reason is None:
        stop_reason = "tool_use" if isinstance(content[-1], ToolCallBlock) else "end_turn"
    writer.message(
        Message(
            role="assistant",
            content=content,
            id=message["id"],
            model=ModelRef(provider="anthropic", model=message["model"], api="anthropic-messages"),
            stop_reason=_STOP_REASONS.get(stop_reason, "stop"),
            usage=Usage(
                input_tokens=message["usage"]["input_tokens"],
                output_tokens=message["usage"]["output_tokens"],
            ),
        ),
        when,
    )


def _claude_input(message: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[Message]:
    rest: list[ContentBlock] = []
    for block in _blocks(message["content"]):
        if block["type"] != "tool_result":
            rest.append(_claude_block(block))
            continue
        content = [_claude_block(inner) for inner in _blocks(block.get("content", ""))]
        text = "".join(inner.text for inner in content if isinstance(inner, TextBlock))
        result = ToolResultBlock(
            tool_call_id=block["tool_use_id"],
            name=names.get(block["tool_use_id"], "unknown"),
            content=content,
            error=ErrorInfo(message=text[:200]) if block.get("is_error") else None,
        )
        yield Message(role="tool", content=[result])
    if rest:
        yield Message(role="user", content=rest)


def _claude_block(block: Mapping[str, Any]) -> ContentBlock:
    match block["type"]:
        case "thinking":
            return ThinkingBlock(text=block["thinking"], signature=block["signature"])
        case "tool_use":
            return ToolCallBlock(id=block["id"], name=block["name"], arguments=block["input"])
        case "image":
            source = block["source"]
            return ImageBlock(mime_type=source["media_type"], data=source["data"])
        case "text":
            return TextBlock(text=block["text"])
        case kind:
            return TextBlock(text=f"[{kind}]")


# Chat messages: SWE-agent and tau-bench


def convert_swe_agent(path: Path) -> list[SessionEntry]:
    """The history of a SWE-agent trajectory."""
    trajectory = json.loads(path.read_text(encoding="utf-8"))
    return _convert_chat(path.stem, trajectory["history"])


def convert_tau_bench(path: Path) -> list[list[SessionEntry]]:
    """Each conversation of a tau-bench results file."""
    return [
        _convert_chat(f"{path.stem}-{number}", line["traj"])
        for number, line in enumerate(json_lines(path))
    ]


def _convert_chat(session_id: str, messages: list[dict[str, Any]]) -> list[SessionEntry]:
    writer = _Writer(session_id)
    names: dict[str, str] = {}
    for message in messages:
        text = message.get("content")
        content: list[ContentBlock] = [TextBlock(text=text)] if text else []
        if message["role"] == "tool":
            call_id = message.get("tool_call_id") or message["tool_call_ids"][0]
            name = message.get("name") or names.get(call_id, "unknown")
            content = [ToolResultBlock(tool_call_id=call_id, name=name, content=content)]
        for asked in message.get("tool_calls") or ():
            content.append(_chat_call(asked))
            names[asked["id"]] = asked["function"]["name"]
        writer.message(Message(role=message["role"], content=content))
    return writer.entries


def _chat_call(asked: Mapping[str, Any]) -> ToolCallBlock:
    text = asked["function"]["arguments"]
    try:
        arguments = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return ToolCallBlock(
            id=asked["id"], name=asked["function"]["name"], arguments={}, raw_arguments=text
        )
    return ToolCallBlock(id=asked["id"], name=asked["function"]["name"], arguments=arguments)


# OpenHands


def convert_openhands(path: Path) -> list[SessionEntry]:
    """The actions and observations of an OpenHands event log."""
    writer = _Writer(path.stem)
    for event in json_lines(path):
        when = event.get("timestamp")
        match event["kind"]:
            case "ActionEvent":
                content: list[ContentBlock] = []
                if event.get("reasoning_content"):
                    content.append(ThinkingBlock(text=event["reasoning_content"]))
                content += (TextBlock(text=block["text"]) for block in event["thought"])
                call = event["tool_call"]
                content.append(_chat_call({"id": call["id"], "function": call}))
                writer.message(Message(role="assistant", content=content), when)
            case "ObservationEvent":
                observation = event["observation"]
                blocks: list[ContentBlock] = [
                    TextBlock(text=block["text"]) for block in observation["content"]
                ]
                result = ToolResultBlock(
                    tool_call_id=event["tool_call_id"],
                    name=event["tool_name"],
                    content=blocks,
                    error=ErrorInfo(message="failed") if observation.get("is_error") else None,
                )
                writer.message(Message(role="tool", content=[result]), when)
            case "MessageEvent":
                said = event["llm_message"]
                writer.message(
                    Message(
                        role=said["role"],
                        content=[
                            TextBlock(text=block["text"])
                            for block in said["content"]
                            if block["type"] == "text"
                        ],
                    ),
                    when,
                )
            case kind:
                writer.entries.append(
                    CustomEntry(data={"type": f"openhands.{kind}"}, **writer.head(when))
                )
    return writer.entries
