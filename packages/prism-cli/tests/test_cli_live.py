"""The command in front of a real model: a llama.cpp server with two slots of 4,096 tokens."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from prism.cli.client import RpcClient, RpcFailure, RpcRun
from prism.core import MessageDelta, MessageEntry, TextBlock, decode_entry

pytestmark = pytest.mark.live

SECONDS = 120
COMMAND = (sys.executable, "-W", "error", "-m", "prism.cli")
LONG = "Write a very long story about a lighthouse, with many chapters."


def flags() -> list[str]:
    """The provider, as `nox -s live` tells where it is."""
    url = os.environ["PRISM_LIVE_BASE_URL"]
    return ["--provider", "openai-chat", "--base-url", url, "--model", "local"]


def prism(*more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *flags(), *more], capture_output=True, timeout=SECONDS, check=False
    )


def begun(store: Path) -> subprocess.Popen[bytes]:
    """A run that has printed its first words."""
    process = subprocess.Popen(
        [*COMMAND, *flags(), "--store", str(store), "-p", LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 100)
    return process


def busy_slots() -> int:
    """How many of the server's slots work on an answer."""
    url = os.environ["PRISM_LIVE_BASE_URL"].removesuffix("/v1")
    with urllib.request.urlopen(f"{url}/slots", timeout=SECONDS) as answer:  # noqa: S310 - ours
        return sum(slot["is_processing"] for slot in json.load(answer))


def wait_for_busy_slots(count: int, within_seconds: float) -> None:
    end = time.monotonic() + within_seconds
    while busy_slots() != count:
        assert time.monotonic() < end, f"not {count} slots at work within {within_seconds} s"
        time.sleep(0.05)


def test_print_mode_streams_a_real_answer() -> None:
    process = subprocess.Popen(
        [*COMMAND, *flags(), "-p", "Count from one to twenty in words."],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    pieces: list[bytes] = []
    while data := os.read(process.stdout.fileno(), 65_536):
        pieces.append(data)
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert len(pieces) > 3
    assert b"".join(pieces).strip()


def test_json_mode_streams_a_real_answer() -> None:
    result = prism("--mode", "json", "-p", "Say hello.")
    assert (result.returncode, result.stderr) == (0, b"")
    events = [json.loads(line)["event"] for line in result.stdout.splitlines()]
    deltas = [event["content"]["text"] for event in events if event["type"] == "message_delta"]
    finished = next(event for event in events if event["type"] == "message_finished")
    assert "".join(deltas) == finished["message"]["content"][0]["text"]
    assert events[-2]["usage"]["outputTokens"] > 0


def test_an_interrupt_frees_the_servers_slot_and_keeps_what_was_said(tmp_path: Path) -> None:
    wait_for_busy_slots(0, SECONDS)
    running = [begun(tmp_path / str(number)) for number in range(2)]  # both slots
    assert busy_slots() == 2
    for process in running:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
        assert process.returncode == 130
    wait_for_busy_slots(0, 5)  # the story alone takes far longer
    assert prism("-p", "Say hello.").returncode == 0
    for number in range(2):
        (file,) = (tmp_path / str(number)).glob("*.jsonl")
        last = decode_entry(file.read_bytes().splitlines()[-1])
        assert isinstance(last, MessageEntry)
        assert last.message.text
        assert last.message.stop_reason == "aborted"


def test_a_prompt_beyond_the_window_has_its_own_code() -> None:
    result = prism("--mode", "json", "-p", "word " * 6_000)
    assert result.returncode == 1
    last = json.loads(result.stdout.splitlines()[-1])
    assert (last["type"], last["error"]["code"]) == ("error", "context_overflow")


def test_an_unreachable_server_is_one_clear_line_within_the_timeout(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # taken, and nobody listens
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        before = time.monotonic()
        command = [*COMMAND, "--provider", "openai-chat", "--model", "local", "-p", "Hi"]
        command += ["--base-url", f"{url}/v1", "--store", str(tmp_path)]
        result = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    assert time.monotonic() - before < 15  # three attempts, with the waits between them
    assert (result.returncode, result.stdout) == (1, b"")
    (line,) = result.stderr.decode().splitlines()
    assert line.startswith(f"prism: Cannot connect to {url}")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the other side of a pipe
async def test_the_rpc_streams_and_aborts_a_real_answer(tmp_path: Path) -> None:
    arguments = [*flags(), "--store", str(tmp_path), "--session", "s1"]
    async with RpcClient.start(arguments, command=COMMAND) as client:
        texts: list[str] = []

        async def read(run: RpcRun) -> None:
            async for event in run:
                if isinstance(event, MessageDelta) and isinstance(event.content, TextBlock):
                    texts.append(event.content.text)
                    if len(texts) == 5:
                        assert await client.abort("enough")

        async with client.stream(LONG) as run:
            with pytest.raises(RpcFailure) as caught:
                await read(run)
        assert caught.value.code == "aborted"
        last = (await client.messages(limit=1))[0]
        assert isinstance(last, MessageEntry)
        assert last.message.text.startswith("".join(texts[:5]))
        assert (await client.prompt("Say hello.")).text
