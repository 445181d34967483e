"""Start the servers of the `live` tests, run a command, stop the servers.

    python tests/live_servers.py pytest -m live

The tools stand in `../shared/tools` beside the checkout. The command finds in its environment
`PRISM_LIVE_BASE_URL` (a llama.cpp server with a small model, 4,096 tokens in each of two slots),
`PRISM_LIVE_REPLAY_URL` (real recordings over HTTP) and `PRISM_LIVE_LLMOCK_URL` (a mock of four
vendors that injects faults and grades its client).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
KEPT = ROOT / ".live"
LLMOCK = "llmock==0.2.2"
WAIT_SECONDS = 120


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return once *url* answers with anything but 503."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"The server for {url} ended with status {process.returncode}.")
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - a server of ours
                return
        except urllib.error.HTTPError as error:
            if error.code != 503:  # still loading its model
                return
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"No answer from {url} within {WAIT_SECONDS} s.")


@contextmanager
def serving(command: list[str], health: str) -> Generator[None]:
    """Run a server for the length of the block."""
    process = subprocess.Popen(command)
    try:
        wait_until_up(health, process)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def main(command: list[str]) -> int:
    """Serve, run, and give the command's status."""
    tools = SHARED / "tools"
    if not tools.is_dir():
        sys.exit(f"The live tests need {tools}, which is not there.")
    model_server = KEPT / "llm"
    subprocess.run(["bash", str(tools / "local_llm" / "setup.sh"), str(model_server)], check=True)
    (model,) = (model_server / "models").glob("*.gguf")
    uv = shutil.which("uv") or "uv"
    ports = {name: free_port() for name in ("llm", "replay", "llmock")}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    with ExitStack() as stack:
        llm = [str(model_server / "venv" / "bin" / "python")]
        llm += [str(tools / "local_llm" / "serve_llm.py"), str(model), str(ports["llm"])]
        stack.enter_context(serving([*llm, "8192", "2"], f"{urls['llm']}/health"))
        replay = [sys.executable, str(tools / "replay_server.py"), str(ports["replay"])]
        replay.append(str(SHARED / "fixtures" / "recordings"))
        stack.enter_context(serving(replay, f"{urls['replay']}/ids"))
        llmock = [uv, "tool", "run", "--from", LLMOCK, "llmock", "serve"]
        llmock += ["-p", str(ports["llmock"])]
        stack.enter_context(serving(llmock, f"{urls['llmock']}/_llmock/verdict"))
        environment = {
            **os.environ,
            "PRISM_LIVE_BASE_URL": f"{urls['llm']}/v1",
            "PRISM_LIVE_REPLAY_URL": urls["replay"],
            "PRISM_LIVE_LLMOCK_URL": urls["llmock"],
            "PRISM_LIVE_OBSERVATIONAL_MEMORY_TESTS": "1",
        }
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
