"""Real sessions of other agents as Prism's entries.

They are read from `../shared/fixtures/sessions` beside the checkout; `session_file` skips the test
where that is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from prism.core import (
    ContentBlock,
    ErrorInfo,
    ImageBlock,
    Message,
    ModelRef,
    SessionEntry,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
)

from .branches import Log

SESSIONS = Path(__file__).resolve().parents[4] / "shared" / "fixtures" / "sessions"


def session_file(name: str) -> Path:
    """The fixture of that name."""
    path = SESSIONS / name
    if not path.exists():
        pytest.skip(f"The session fixtures are not beside this checkout (looked for {path}).")
    return path


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def blocks_of(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else []  # pyright: ignore[reportUnknownVariableType]


def from_pi(path: Path) -> list[SessionEntry]:
    """The conversation of a pi session."""
    log = Log(path.stem)
    for line in records(path):
        if line["type"] != "message":
            if line["type"] == "model_change":
                log.model(line["modelId"])
            continue
        said = line["message"]
        content = [_pi_block(block) for block in blocks_of(said.get("content"))]
        if said["role"] == "toolResult":
            failed = ErrorInfo(message="failed") if said.get("isError") else None
            result = ToolResultBlock(
                tool_call_id=said["toolCallId"],
                name=said["toolName"],
                content=content,
                error=failed,
            )
            log.message(Message(role="tool", content=[result]))
        elif said["role"] == "assistant":
            counted = said["usage"]
            log.message(
                Message(
                    role="assistant",
                    content=content,
                    model=ModelRef(provider=said["provider"], model=said["model"]),
                    stop_reason={"toolUse": "tool_use"}.get(said["stopReason"], said["stopReason"]),
                    usage=Usage(
                        input_tokens=counted["input"],
                        output_tokens=counted["output"],
                        cache_read_tokens=counted["cacheRead"],
                        cache_write_tokens=counted["cacheWrite"],
                    ),
                )
            )
        else:
            log.message(Message(role="user", content=content))
    return log.entries


def _pi_block(block: Mapping[str, Any]) -> ContentBlock:
    match block["type"]:
        case "thinking":
            signature = block.get("thinkingSignature") or None
            return ThinkingBlock(text=block["thinking"], signature=signature)
        case "toolCall":
            return ToolCallBlock(id=block["id"], name=block["name"], arguments=block["arguments"])
        case "image":
            return ImageBlock(mime_type=block["mimeType"], data=block["data"])
        case _:
            return TextBlock(text=block["text"])


def from_claude_code(path: Path) -> list[SessionEntry]:
    """The main conversation of a Claude Code session; lines of one answer become one message."""
    log = Log(path.stem)
    names: dict[str, str] = {}
    open_id: str | None = None
    compacted = False
    for line in records(path):
        compacted = compacted or line.get("subtype") == "compact_boundary"
        if line["type"] not in {"user", "assistant"} or line.get("isSidechain"):
            continue
        said = line["message"]
        if compacted and line.get("isCompactSummary"):
            log.compaction(said["content"], throughEntryId=log.entries[-1].id)
            compacted, open_id = False, None
        elif line["type"] == "assistant":
            _add_answer(log, said, names, joins=said["id"] == open_id)
            open_id = said["id"]
        else:
            open_id = None
            _add_input(log, said, names)
    return log.entries


def _add_answer(log: Log, said: Mapping[str, Any], names: dict[str, str], *, joins: bool) -> None:
    content = [_claude_block(block) for block in blocks_of(said["content"])]
    names.update((block.id, block.name) for block in content if isinstance(block, ToolCallBlock))
    if joins:
        last: Any = log.entries.pop()
        content = [*last.message.content, *content]
    usage = said["usage"]
    log.message(
        Message(
            role="assistant",
            content=content,
            model=ModelRef(provider="anthropic", model=said["model"], api="anthropic-messages"),
            usage=Usage(
                input_tokens=usage["input_tokens"],
                output_tokens=usage["output_tokens"],
                cache_read_tokens=usage.get("cache_read_input_tokens"),
                cache_write_tokens=usage.get("cache_creation_input_tokens"),
            ),
        )
    )


def _add_input(log: Log, said: Mapping[str, Any], names: Mapping[str, str]) -> None:
    rest: list[ContentBlock] = []
    for block in blocks_of(said["content"]):
        if block["type"] != "tool_result":
            rest.append(_claude_block(block))
            continue
        failed = ErrorInfo(message="failed") if block.get("is_error") else None
        result = ToolResultBlock(
            tool_call_id=block["tool_use_id"],
            name=names.get(block["tool_use_id"], "unknown"),
            content=[_claude_block(inner) for inner in blocks_of(block.get("content"))],
            error=failed,
        )
        log.message(Message(role="tool", content=[result]))
    if rest:
        log.message(Message(role="user", content=rest))


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


def from_swe_agent(path: Path) -> list[SessionEntry]:
    """The history of a SWE-agent trajectory."""
    log = Log(path.stem)
    names: dict[str, str] = {}
    for said in json.loads(path.read_text(encoding="utf-8"))["history"]:
        text = said.get("content")
        content: list[ContentBlock] = [TextBlock(text=text)] if text else []
        if said["role"] == "tool":
            call_id = said.get("tool_call_id") or said["tool_call_ids"][0]
            name = names.get(call_id, "unknown")
            content = [ToolResultBlock(tool_call_id=call_id, name=name, content=content)]
        for asked in said.get("tool_calls") or ():
            content.append(_chat_call(asked))
            names[asked["id"]] = asked["function"]["name"]
        log.message(Message(role=said["role"], content=content))
    return log.entries


def _chat_call(asked: Mapping[str, Any]) -> ToolCallBlock:
    function = asked["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return ToolCallBlock(
            id=asked["id"],
            name=function["name"],
            arguments={},
            raw_arguments=function["arguments"],
        )
    return ToolCallBlock(id=asked["id"], name=function["name"], arguments=arguments)
