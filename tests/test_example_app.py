"""`examples/app.py` behind the command and the RPC, and the Node client that drives it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from prism.cli.client import RpcClient, RpcConnectionError
from prism.core import AgentEvent, MessageEntry, TextBlock, ToolApprovalRequested, ToolResultBlock

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-W", "error", "-m", "prism.cli")
APP = ["--app", "examples.app:app"]


def served(*flags: str) -> Any:
    return RpcClient.start([*APP, *flags], command=COMMAND, cwd=ROOT)


@pytest.mark.parametrize(
    ("flags", "prompt", "answer"),
    [
        ([], "What is 2 + 3?", "The tool says: 5"),
        ([], "Please delete it.", "I may not do that."),
        (["--tool", "delete_file"], "What is 2 + 3?", "You said: What is 2 + 3?"),
    ],
)
def test_the_app_answers_the_command(flags: list[str], prompt: str, answer: str) -> None:
    result = subprocess.run(
        [*COMMAND, *APP, *flags, "-p", prompt],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, answer, "")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the other side of a pipe
async def test_the_app_asks_before_it_deletes(tmp_path: Path) -> None:
    flags = ["--store", str(tmp_path), "--session", "s1", "--extension", "counting"]
    async with served(*flags) as client:
        async with client.stream("Please delete it.") as run:
            events: list[AgentEvent] = []
            async for event in run:
                events.append(event)
                if isinstance(event, ToolApprovalRequested):
                    assert event.reason == "It cannot be undone."
                    await client.approve(event.approval_id, "allowed")
        assert run.result is not None
        assert run.result.text == "The tool says: notes.txt is deleted."
        status = await client.command("counting:status")
        assert status.value == {"session": "s1", "requests": 2}
        await client.command("example:note", {"text": "Remember"})
        assert (await client.messages(limit=1))[0].data["text"] == "Remember"
    async with served(*flags) as client:
        assert len(await client.messages()) > len(events) // 4


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the other side of a pipe
async def test_an_approval_outlives_a_process_that_was_killed(tmp_path: Path) -> None:
    flags = ["--store", str(tmp_path), "--session", "s1"]
    async with (
        served(*flags) as client,
        client.events() as events,
        anyio.create_task_group() as group,
    ):
        group.start_soon(prompt_in_vain, client)
        async for told in events:
            if isinstance(told.event, ToolApprovalRequested):
                client.process.kill()
    async with served(*flags) as client:
        (approval_id,) = (await client.state()).approvals
        await client.approve(approval_id, "allowed")
        results = [
            block
            for entry in await client.messages()
            if isinstance(entry, MessageEntry)
            for block in entry.message.content
            if isinstance(block, ToolResultBlock)
        ]
        assert [block.content for block in results] == [[TextBlock(text="notes.txt is deleted.")]]


async def prompt_in_vain(client: RpcClient) -> None:
    with pytest.raises(RpcConnectionError):
        await client.prompt("Please delete it.")


@pytest.mark.live
def test_twenty_lines_of_node_drive_the_rpc() -> None:
    node = shutil.which("node")
    assert node is not None, "this test needs Node.js"
    client = ROOT / "examples" / "rpc_client.mjs"
    assert len(client.read_text(encoding="utf-8").splitlines()) <= 22
    result = subprocess.run(
        [node, str(client), "Please delete it.", *COMMAND, "--mode", "rpc", *APP],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    answer = "The tool says: notes.txt is deleted.\n[completed]\n"
    assert (result.returncode, result.stdout, result.stderr) == (0, answer, "")
