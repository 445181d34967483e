"""Real sessions with facts planted in them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from prism.core import (
    Message,
    MessageEntry,
    SessionEntry,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

ROOT = Path(__file__).resolve().parents[2]
SESSIONS = ROOT.parent / "shared" / "fixtures" / "sessions"
FACTS = 30
"""Facts that are planted in each session: ten said by the user, ten decided, ten in results."""


def _converters() -> Any:
    """What the tests of the core read these files with."""
    name = "prism_session_converters"
    if name in sys.modules:
        return sys.modules[name]
    path = ROOT / "packages" / "prism-core" / "tests" / "converters.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def real_sessions() -> Iterator[tuple[str, list[MessageEntry]]]:
    """The messages of each session in the fixtures, by name."""
    convert = _converters()
    readers: list[tuple[str, Callable[[Path], Any]]] = [
        ("pi-large-session.jsonl", convert.convert_pi),
        ("claude-code-4d5611e5.jsonl", convert.convert_claude_code),
        ("claude-code-ae4a77f8.jsonl", convert.convert_claude_code),
        ("claude-code-4d5611e5-subagent-a2898e3.jsonl", convert.convert_claude_code),
        ("sweagent-marshmallow-1867-fc.traj", convert.convert_swe_agent),
        ("sweagent-ctf-i_got_id.traj", convert.convert_swe_agent),
    ]
    for name, read in readers:
        entries: Sequence[SessionEntry] = read(SESSIONS / name)
        messages = [
            entry
            for entry in entries
            if isinstance(entry, MessageEntry) and entry.message.role != "system"
        ]
        yield name.split(".")[0], messages


@dataclass(frozen=True, kw_only=True)
class Fact:
    """Something to be remembered.

    Attributes:
        token: The word that an answer has to hold.
        what: `said`, `decided` or `result`.
        entry_id: The message that it is in.
    """

    token: str
    what: str
    entry_id: str


def planted(name: str, messages: Sequence[MessageEntry]) -> tuple[list[MessageEntry], list[Fact]]:
    """The session with facts in it, evenly spread."""
    out: list[MessageEntry] = []
    facts: list[Fact] = []
    step = max(1, len(messages) // FACTS)
    open_calls: set[str] = set()
    wanted = 0
    for at, entry in enumerate(messages):
        out.append(entry)
        for block in entry.message.content:
            if isinstance(block, ToolCallBlock):
                open_calls.add(block.id)
            elif isinstance(block, ToolResultBlock):
                open_calls.discard(block.tool_call_id)
        wanted += at % step == 0
        if len(facts) < min(wanted, FACTS) and not open_calls:
            _plant(name, len(facts), out, facts)
    return out, facts


def _plant(name: str, number: int, out: list[MessageEntry], facts: list[Fact]) -> None:
    token = f"fact-{name[:8]}-{number:03d}"
    what = ("said", "decided", "result")[number % 3]
    timestamp = out[-1].timestamp
    call = ToolCallBlock(id=f"plant_{number}", name="lookup", arguments={"number": number})
    said = {
        "said": [Message(role="user", content=[TextBlock(text=f"Remember the code {token}.")])],
        "decided": [
            Message(role="assistant", content=[TextBlock(text=f"I decided to use {token}.")])
        ],
        "result": [
            Message(role="assistant", content=[call]),
            Message(
                role="tool",
                content=[
                    ToolResultBlock(
                        tool_call_id=call.id,
                        name="lookup",
                        content=[TextBlock(text=f"line 1\nthe value is {token}\nline 3")],
                    )
                ],
            ),
        ],
    }[what]
    for message in said:
        entry_id = f"plant_{number}_{message.role}"
        out.append(MessageEntry(id=entry_id, session_id="s", timestamp=timestamp, message=message))
    facts.append(Fact(token=token, what=what, entry_id=out[-1].id))


def chained(
    messages: Sequence[MessageEntry], session_id: str, parent_id: str | None
) -> list[MessageEntry]:
    """The messages as they follow *parent_id* in a session."""
    out: list[MessageEntry] = []
    for entry in messages:
        out.append(replace(entry, session_id=session_id, parent_id=parent_id))
        parent_id = entry.id
    return out
