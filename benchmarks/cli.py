"""The `prism` command beside bare loops that speak the same lines."""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
from measure import REPEATS, Row, python

from prism.cli import HostOptions
from prism.core import Agent, MessageDelta, ModelConfig, RpcEvent, Session, TextBlock, encode
from prism.core.providers import (
    MockProvider,
    ProviderEvent,
    ProviderRequest,
    done,
    text_delta,
)

TRIPS = 2_000
DELTAS = 10_000
UNREAD = 100_000

BARE_START = """
import os, anyio, msgspec, click

async def main():
    line = b""
    while not line.endswith(b"\\n"):
        await anyio.wait_readable(0)
        line += os.read(0, 65536)
    request = msgspec.json.decode(line)
    os.write(1, msgspec.json.encode({"id": request["id"], "ok": True, "result": {}}) + b"\\n")

anyio.run(main)
"""

# Asks for the state again and again, each time when the answer has come.
ASKING = f"""
import os
for number in range({TRIPS}):
    os.write(1, b'{{"id":%d,"command":"state"}}\\n' % number)
    answer = b""
    while not answer.endswith(b"\\n"):
        answer += os.read(0, 65536)
"""

DRAINING = "import os\nos.close(1)\nwhile os.read(0, 1 << 20): pass"


def answer(request: ProviderRequest) -> list[ProviderEvent]:
    """As many deltas as the prompt says."""
    count = int(request.messages[-1].text)
    return [*(text_delta("token ") for _ in range(count)), done()]


class BenchApp:
    """Answers with deltas and never suspends."""

    def create_session(self, options: HostOptions) -> Session:
        """A session in memory."""
        agent = Agent(
            model=ModelConfig(provider="mock", model="bench"), provider=MockProvider(answer)
        )
        return agent.session(options.session or "s1")


def first_state() -> Row:
    """From the start of the process to its first answer."""
    ours = [sys.executable, "-m", "prism.cli", "--mode", "rpc", "--provider", "mock"]
    request = b'{"id":1,"command":"state"}\n'

    def once(command: list[str]) -> float:
        start = time.perf_counter()
        subprocess.run(command, input=request, stdout=subprocess.PIPE, check=True)
        return time.perf_counter() - start

    pairs = [(once(ours), once(python(BARE_START))) for _ in range(REPEATS)]
    return Row(
        name="RPC: state from the start of the process",
        ours=min(pair[0] for pair in pairs) * 1e3,
        bare=min(pair[1] for pair in pairs) * 1e3,
        unit="ms",
        limit=1.4,
    )


def serve_cpu(client: str, first: bytes) -> float:
    """CPU seconds of this process while it serves *client*, which is a process of its own."""
    from prism.cli._host import Host
    from prism.cli._rpc.server import serve

    def ours(stdin: int, stdout: int) -> None:
        host = Host(HostOptions(mode="rpc"), app=BenchApp())

        async def run() -> float:
            start = time.process_time()
            await serve(host, stdin=stdin, stdout=stdout)
            return time.process_time() - start

        spent.append(anyio.run(run))

    spent: list[float] = []
    between_pipes(client, first, ours)
    return spent[0]


def bare_cpu(client: str, job: Callable[[int, int], None]) -> float:
    """CPU seconds of this process while *job* answers *client*."""
    spent: list[float] = []

    def timed(stdin: int, stdout: int) -> None:
        start = time.process_time()
        job(stdin, stdout)
        spent.append(time.process_time() - start)

    between_pipes(client, b"", timed)
    return spent[0]


def between_pipes(client: str, first: bytes, job: Callable[[int, int], None]) -> None:
    """Run *job* on the other ends of a client's stdout and stdin."""
    stdin, client_out = os.pipe()
    client_in, stdout = os.pipe()
    os.write(client_out, first)
    process = subprocess.Popen(python(client), stdin=client_in, stdout=client_out)
    os.close(client_in)
    os.close(client_out)
    gc.collect()
    try:
        job(stdin, stdout)
    finally:
        os.close(stdin)
        os.close(stdout)
        process.wait()


def round_trip() -> Row:
    """One request and its answer, when the session is idle."""

    def by_hand(stdin: int, stdout: int) -> None:
        while data := os.read(stdin, 65_536):
            request = json.loads(data)
            answer = {"id": request["id"], "ok": True, "result": {"status": "idle"}}
            os.write(stdout, json.dumps(answer).encode() + b"\n")

    pairs = [(serve_cpu(ASKING, b""), bare_cpu(ASKING, by_hand)) for _ in range(REPEATS)]
    return Row(
        name="RPC: round trip of state (CPU)",
        ours=min(pair[0] for pair in pairs) / TRIPS * 1e6,
        bare=min(pair[1] for pair in pairs) / TRIPS * 1e6,
        unit="us",
        limit=4,
    )


def deltas() -> Row:
    """Deltas from the provider to the pipe, beside encoding and writing the same lines."""
    request = b'{"id":1,"command":"prompt","params":{"input":"%d"}}\n' % DELTAS

    def by_hand(stdin: int, stdout: int) -> None:
        _ = stdin
        for _number in range(DELTAS):
            event = MessageDelta(
                session_id="s1",
                run_id="run_0123456789abcdef0123",
                content=TextBlock(text="token "),
                index=0,
            )
            told = RpcEvent(id=1, session_id=event.session_id, run_id=event.run_id, event=event)
            os.write(stdout, encode(told) + b"\n")

    pairs = [(serve_cpu(DRAINING, request), bare_cpu(DRAINING, by_hand)) for _ in range(REPEATS)]
    return Row(
        name=f"RPC: text delta ({DELTAS:,} deltas)",
        ours=min(pair[0] for pair in pairs) / DELTAS * 1e6,
        bare=min(pair[1] for pair in pairs) / DELTAS * 1e6,
        unit="us",
        limit=3,
    )


def unread() -> Row:
    """Memory that a run takes whose events nobody reads (Linux only)."""

    def resident(count: int) -> float:
        command = [sys.executable, "-m", "prism.cli", "--mode", "rpc", "--app", "cli:BenchApp"]
        folder = Path(__file__).parent
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            request = b'{"id":1,"command":"prompt","params":{"input":"%d"}}\n' % count
            process.stdin.write(request)
            process.stdin.flush()
            wait_until_idle(process.pid)
            status = Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii")
            process.stdin.close()
            while process.stdout.read(1 << 20):
                pass
        return int(status.split()[1]) * resource.getpagesize() / (1 << 20)

    return Row(
        name=f"RPC: memory of {UNREAD:,} unread deltas",
        ours=resident(UNREAD) - resident(1),
        bare=0,
        unit="MB",
        limit=32,
    )


def wait_until_idle(pid: int) -> None:
    """Wait until a process uses no CPU any more."""
    before = -1
    while True:
        time.sleep(0.2)
        used = int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[13])
        if used == before and used > 0:
            return
        before = used


def rows() -> list[Row]:
    """Every line of the command."""
    return [first_state(), round_trip(), deltas(), unread()]
