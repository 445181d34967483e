"""What only a process of its own can show: signals, pipes, terminals, and what is imported."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from prism.core import MessageEntry, decode_entry

from .loopback import DONE, Loopback, chunk, serving

SECONDS = 20
COMMAND = [sys.executable, "-W", "error", "-m", "prism.cli"]


def start(
    server: Loopback, *flags: str, stdout: int = subprocess.PIPE, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    at = ["--provider", "openai-chat", "--base-url", server.url, "--model", "m"]
    return subprocess.Popen(
        [*COMMAND, *at, *flags],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=cwd,
    )


def stored_answer(directory: Path) -> tuple[str, str | None]:
    """Text and stop reason of the last assistant message in the only session of a store."""
    (file,) = directory.glob("*.jsonl")
    entries = [decode_entry(line) for line in file.read_bytes().splitlines()]
    messages = [entry.message for entry in entries if isinstance(entry, MessageEntry)]
    return messages[-1].text, messages[-1].stop_reason


def read_until(stream: int, text: bytes) -> bytes:
    found = b""
    while text not in found:
        data = os.read(stream, 4096)
        assert data, f"the process ended after {found!r}"
        found += data
    return found


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_aborts_the_run_and_keeps_the_partial_answer(name: str, tmp_path: Path) -> None:
    number = getattr(signal, name)
    with serving() as server:
        server.send(chunk("Once upon "))
        process = start(server, "--store", str(tmp_path), "-p", "A tale")
        assert process.stdout is not None
        read_until(process.stdout.fileno(), b"Once upon ")
        process.send_signal(number)
        _, err = process.communicate(timeout=SECONDS)
        assert server.gone.wait(SECONDS)
    assert process.returncode == 128 + number
    assert err == b"prism: Agent run aborted: interrupted\n"
    assert stored_answer(tmp_path) == ("Once upon ", "aborted")


def test_json_mode_says_aborted_in_its_last_line() -> None:
    with serving() as server:
        server.send(chunk("Once"))
        process = start(server, "--mode", "json", "-p", "A tale")
        assert process.stdout is not None
        out = read_until(process.stdout.fileno(), b'"Once"')
        process.send_signal(signal.SIGINT)
        more, err = process.communicate(timeout=SECONDS)
    records = [json.loads(line) for line in (out + more).splitlines()]
    assert (process.returncode, err) == (130, b"")
    assert [r["event"]["type"] for r in records[-4:-1]] == [
        "turn_finished",
        "agent_finished",
        "session_settled",
    ]
    assert records[-1]["error"]["code"] == "aborted"


def test_deltas_are_printed_as_they_come() -> None:
    with serving() as server:
        process = start(server, "-p", "Count")
        assert process.stdout is not None
        for number in range(3):
            server.send(chunk(f"{number} "))
            assert read_until(process.stdout.fileno(), b" ") == f"{number} ".encode()
        server.send(DONE)
        assert process.communicate(timeout=SECONDS) == (b"", b"")
    assert process.returncode == 0


@pytest.mark.parametrize("mode", ["print", "json"])
def test_a_reader_that_goes_away_ends_the_run_quietly(mode: str, tmp_path: Path) -> None:
    with serving() as server:
        server.send(chunk("One "))
        process = start(server, "--mode", mode, "--store", str(tmp_path), "-p", "Count")
        assert process.stdout is not None
        read_until(process.stdout.fileno(), b"One ")
        process.stdout.close()
        server.send(chunk("two "))
        assert server.gone.wait(SECONDS)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(SECONDS) == 141
    assert stored_answer(tmp_path) == ("One two ", "aborted")


def test_an_interrupt_also_ends_a_run_whose_reader_has_stopped_reading(tmp_path: Path) -> None:
    with serving() as server:
        process = start(server, "--store", str(tmp_path), "-p", "Much")
        server.send(*[chunk("x" * 50_000)] * 4)
        assert process.stdout is not None
        read_until(process.stdout.fileno(), b"x")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        process.communicate()
    text, reason = stored_answer(tmp_path)
    assert (text.strip("x"), reason) == ("", "aborted")


@pytest.mark.parametrize(("text", "shown"), [("Hi", b"Hi\r\n"), ("Hi\n", b"Hi\r\n"), ("", b"")])
def test_a_terminal_gets_a_line_feed_after_the_text(text: str, shown: bytes) -> None:
    ours, theirs = pty.openpty()
    with serving() as server:
        server.send(*([chunk(text)] if text else []), DONE)
        process = start(server, "-p", "Hi", stdout=theirs)
        os.close(theirs)
        out = b""
        try:
            while data := os.read(ours, 4096):
                out += data
        except OSError:  # how Linux says that the other side of a terminal is closed
            pass
        process.communicate(timeout=SECONDS)
        os.close(ours)
    assert (process.returncode, out) == (0, shown)


APP = """
from prism.core import Agent, ModelConfig, tool
from prism.core.providers import MockProvider, done, text_delta, tool_call
import subprocess, sys, time

print("imported")

@tool
def chatty() -> str:
    "Prints."
    print("printed")
    subprocess.run([sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"])
    return "ok"

@tool
def stuck() -> str:
    "Never returns."
    time.sleep(1000)

def turn(name):
    return [tool_call(id="c1", name=name, arguments={}), done()]

class App:
    def create_session(self, options):
        return Agent(
            model=ModelConfig(provider="mock", model="demo"),
            provider=MockProvider([turn(options.tools[0]), [text_delta("Done"), done()]]),
            tools=[chatty, stuck],
        ).session(options.session)
"""


@pytest.mark.parametrize("mode", ["print", "json"])
def test_stdout_is_the_answers_alone(mode: str, tmp_path: Path) -> None:
    (tmp_path / "my_app.py").write_text(APP, encoding="utf-8")
    command = [*COMMAND, "--app", "my_app:App", "--tool", "chatty", "--mode", mode, "-p", "Hi"]
    process = subprocess.run(
        command, cwd=tmp_path, input=b"not yours", capture_output=True, timeout=SECONDS, check=False
    )
    assert process.returncode == 0
    assert process.stderr.splitlines() == [b"imported", b"printed", b"''"]
    if mode == "print":
        assert process.stdout == b"Done"
    else:
        assert {json.loads(line)["type"] for line in process.stdout.splitlines()} == {"event"}


def test_a_tool_that_never_returns_does_not_keep_the_process(tmp_path: Path) -> None:
    (tmp_path / "my_app.py").write_text(APP, encoding="utf-8")
    command = [*COMMAND, "--app", "my_app:App", "--tool", "stuck", "--mode", "json", "-p", "Hi"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    read_until(process.stdout.fileno(), b"tool_execution_started")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    assert json.loads(out.splitlines()[-1])["error"]["code"] == "aborted"


PROBE = """
import sys
from prism.cli import main
assert main(["--help"]) == 0 and main(["--nope"]) == 2
loaded = {"anyio", "msgspec", "httpx2", "prism.core"} & set(sys.modules)
sys.exit(f"imported for nothing: {loaded}" if loaded else 0)
"""


def test_help_and_usage_errors_load_no_runtime() -> None:
    probe = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE], capture_output=True, text=True, check=False
    )
    assert probe.returncode == 0, probe.stderr
