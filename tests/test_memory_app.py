"""`examples/memory_app.py`: memory over RPC, and after a restart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from prism.cli.client import RpcClient
from prism.core import CompactionEntry, MessageEntry, TextBlock

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-W", "error", "-m", "prism.cli")


def served(store: Path) -> Any:
    arguments = ["--app", "examples.memory_app:App", "--store", str(store), "--session", "s1"]
    return RpcClient.start(arguments, command=COMMAND, cwd=ROOT)


def text_of(result: Any) -> str:
    return "".join(block.text for block in result.content or () if isinstance(block, TextBlock))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the other side of a pipe
async def test_a_session_remembers_over_rpc_and_after_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        for number in range(4):
            await client.prompt(f"The number of door {number} is {4_000 + number}.")
        status = await client.command("om:status")
        assert "Observations: 0 recorded" in text_of(status)
        flushed = await client.command("om:flush")
        assert flushed.value["observer"]["status"] == "recorded"
        reply = await client.compact()
        assert "The number of door 0 is 4000." in reply.summary
    async with served(tmp_path) as client:
        status = await client.command("om:status")
        assert status.value["visible"] == 3
        assert "Observations: 4 recorded / 0 dropped / 4 active / 3 visible +1" in text_of(status)
        view = await client.command("om:view")
        assert "door 2 is 4002." in text_of(view)
        assert "door 3" not in text_of(view)
        full = await client.command("om:view", {"mode": "full"})
        assert "door 3 is 4003." in text_of(full)
        assert text_of(await client.command("om:view", "diff")) == "Usage: /om:view [full]"
        assert (await client.prompt("Please recall it.")).text == "I looked it up."
        entries = await client.messages()
    results = [
        str(entry.message.content)
        for entry in entries
        if isinstance(entry, MessageEntry) and entry.message.role == "tool"
    ]
    assert len(results) == 1
    assert "The number of door 0 is 4000." in results[0]
    (compaction,) = [entry for entry in entries if isinstance(entry, CompactionEntry)]
    assert (compaction.data or {})["strategy"] == "observational-memory"
