"""`examples/compaction_app.py`: compaction by a model over RPC, and after a restart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prism.cli.client import RpcClient, RpcFailure
from prism.core import CompactionData, CompactionEntry, MessageEntry, SessionEntry

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-W", "error", "-m", "prism.cli")


def served(store: Path) -> Any:
    arguments = ["--app", "examples.compaction_app:App", "--store", str(store), "--session", "s1"]
    return RpcClient.start(arguments, command=COMMAND, cwd=ROOT)


def compactions(entries: Sequence[SessionEntry]) -> list[CompactionEntry]:
    return [entry for entry in entries if isinstance(entry, CompactionEntry)]


async def ask(client: RpcClient, *numbers: int) -> str:
    text = ""
    for number in numbers:
        text = (await client.prompt(f"Question {number}: " + "why? " * 60)).text
    return text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the other side of a pipe
async def test_a_session_is_compacted_over_rpc_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        with pytest.raises(RpcFailure) as caught:
            await client.compact()
        assert caught.value.code == "nothing_to_compact"
        await ask(client, 1, 2, 3, 4, 5)
        reply = await client.compact(instructions="Count them.")
        assert reply.summary.startswith("## Progress\nThe user asked ")
        answer = await ask(client, 6)
        assert answer.startswith("I see ")
        assert int(answer.split()[2]) < 6
    async with served(tmp_path) as client:
        before = await client.messages()
        assert [entry.summary for entry in compactions(before)] == [reply.summary]
        assert len([entry for entry in before if isinstance(entry, MessageEntry)]) == 12
        await ask(client, 7, 8, 9)
        second = await client.compact()
        assert "It carries on an earlier summary." in second.summary
    async with served(tmp_path) as client:
        after = await client.messages()
    assert after[: len(before)] == before
    made = compactions(after)
    assert [entry.summary for entry in made] == [reply.summary, second.summary]
    data = CompactionData.from_entry(made[-1])
    assert data is not None
    assert data.strategy == "coding"
    assert data.estimated_tokens_after is not None
    assert data.estimated_tokens_before is not None
    assert data.estimated_tokens_after < data.estimated_tokens_before
