"""The RPC in a process of its own: every kind of stdin and stdout, signals, and hostile clients."""

from __future__ import annotations

import json
import os
import pty
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import tty
from pathlib import Path
from typing import Any

import pytest

from prism.core import MessageEntry, decode_entry

from .rpc_harness import check_laws

SECONDS = 30
COMMAND = [sys.executable, "-W", "error", "-m", "prism.cli", "--mode", "rpc"]
MOCK = [*COMMAND, "--provider", "mock"]

APP = """
import os, subprocess, sys, threading, time
import anyio
from prism.core import Agent, ModelConfig, tool
from prism.core.host import CommandDefinition
from prism.core.providers import MockProvider, done, text_delta, tool_call
from prism.cli import HostOptions

print("imported")

@tool
def chatty() -> str:
    "Prints, and starts a process that wants stdin and stdout."
    print("printed")
    subprocess.run([sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"])
    return "ok"

@tool
async def patient() -> str:
    "Never returns."
    await anyio.sleep_forever()

@tool
async def stubborn() -> str:
    "Never returns, and cannot be cancelled."
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()

@tool
def stuck() -> str:
    "Never returns, in a thread."
    threading.Event().wait()

def script(request):
    words = request.messages[-1].text.split()
    if request.messages[-1].role == "tool":
        return [text_delta("Done"), done()]
    if words[0] == "call":
        return [tool_call(id="", name=words[1], arguments={}), done()]
    return [text_delta(words[1] * int(words[2])) for _ in range(int(words[0]))] + [done()]

async def wait(args, context):
    await anyio.sleep_forever()

class App:
    commands = [CommandDefinition(name="wait", execute=wait)]

    def create_session(self, options: HostOptions):
        return Agent(
            model=ModelConfig(provider="mock", model="demo"),
            provider=MockProvider(script),
            tools=[chatty, patient, stubborn, stuck],
            store=options.open_store(),
        ).session(options.session)
"""


@pytest.fixture
def app(tmp_path: Path) -> list[str]:
    """The command that serves `APP`, whose prompts are `call TOOL` or `TIMES TEXT REPEAT`."""
    (tmp_path / "served_app.py").write_text(APP, encoding="utf-8")
    code = f"import os, prism.cli; os.chdir({str(tmp_path)!r}); raise SystemExit(prism.cli.main())"
    flags = ["--mode", "rpc", "--app", "served_app:App", "--store", str(tmp_path / "store")]
    return [sys.executable, "-W", "error", "-c", code, *flags, "--session", "s1"]


def request(request_id: Any, command: str, **params: Any) -> bytes:
    return json.dumps({"id": request_id, "command": command, "params": params}).encode() + b"\n"


def records(out: bytes) -> list[dict[str, Any]]:
    assert out == b"" or out.endswith(b"\n")
    assert out.isascii()
    lines = [json.loads(line) for line in out.split(b"\n")[:-1]]
    check_laws(lines)
    return lines


def responses(lines: list[dict[str, Any]]) -> dict[Any, Any]:
    return {
        line["id"]: "ok" if line["ok"] else line["error"].get("code")
        for line in lines
        if "ok" in line
    }


class Server:
    """A server behind pipes."""

    def __init__(self, command: list[str]) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.out = b""

    def send(self, *lines: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(lines))

    def until(self, text: bytes) -> None:
        """Read until *text* has come."""
        assert self.process.stdout is not None
        while text not in self.out:
            data = os.read(self.process.stdout.fileno(), 65_536)
            assert data, f"{text!r} never came: {self.out!r}"
            self.out += data

    def close(self) -> None:
        """Release the pipes."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def end(self) -> tuple[list[dict[str, Any]], bytes, int]:
        """Wait for the end: the records, stderr and the exit status."""
        out, err = self.rest()
        return records(self.out + out), err, self.process.returncode

    def rest(self) -> tuple[bytes, bytes]:
        """What else comes on stdout and stderr, up to the end; stdin stays as it is."""
        stdin, self.process.stdin = self.process.stdin, None
        try:
            return self.process.communicate(timeout=SECONDS)
        finally:
            if stdin is not None:
                stdin.close()


# What stdin and stdout may be

PROMPT_AND_STATE = request(1, "prompt", input="Hi") + request(2, "state")


def test_stdin_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(PROMPT_AND_STATE)
    with path.open("rb") as file:
        result = subprocess.run(MOCK, stdin=file, capture_output=True, timeout=SECONDS, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
    assert responses(records(result.stdout)) == {1: "ok", 2: "ok"}


def test_stdin_may_be_null() -> None:
    result = subprocess.run(
        MOCK, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_stdin_and_stdout_may_be_closed() -> None:
    closing = ["sh", "-c", 'exec "$@" <&- >&-', "sh", *MOCK]
    result = subprocess.run(closing, capture_output=True, timeout=SECONDS, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


def test_stdin_and_stdout_may_be_one_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            MOCK, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE
        )
        theirs.close()
        ours.sendall(PROMPT_AND_STATE)
        ours.shutdown(socket.SHUT_WR)
        out = b""
        while data := ours.recv(65_536):
            out += data
        _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert responses(records(out)) == {1: "ok", 2: "ok"}


def test_stdin_and_stdout_may_be_a_terminal() -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    process = subprocess.Popen(MOCK, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    os.write(ours, PROMPT_AND_STATE)
    out = b""
    while b'"id":1,"ok"' not in out:
        out += os.read(ours, 65_536)
    blocking = os.get_blocking(theirs)
    os.close(theirs)
    os.close(ours)  # the terminal is gone, and with it the client
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode in {0, 129, 141}, err) == (True, b"")
    assert responses(records(out)) == {1: "ok", 2: "ok"}
    assert blocking  # other processes share the terminal


def test_stdout_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with path.open("wb") as file:
        result = subprocess.run(
            MOCK,
            input=PROMPT_AND_STATE,
            stdout=file,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            check=False,
        )
    assert (result.returncode, result.stderr) == (0, b"")
    assert responses(records(path.read_bytes())) == {1: "ok", 2: "ok"}


def test_stdout_may_be_full() -> None:
    with Path("/dev/full").open("wb") as file:
        result = subprocess.run(
            MOCK,
            input=PROMPT_AND_STATE,
            stdout=file,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == b"prism: stdout cannot be written: No space left on device\n"


def test_pipes_may_be_non_blocking() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    process = subprocess.Popen(
        MOCK, stdin=read, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    os.close(read)
    assert process.stdout is not None
    os.write(write, request(1, "state"))
    out = process.stdout.read(1)  # it waits for input that is not there, and does not fail
    os.write(write, request(2, "state"))
    os.close(write)
    more, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert responses(records(out + more)) == {1: "ok", 2: "ok"}


def test_stdout_is_protocol_only(app: list[str]) -> None:
    server = Server(app)
    server.send(request(1, "prompt", input="call chatty"))
    assert server.process.stdin is not None
    server.process.stdin.close()
    server.process.stdin = None
    lines, err, status = server.end()
    assert err.splitlines() == [b"imported", b"printed", b"''"]
    assert (responses(lines), status) == ({1: "ok"}, 0)


# Clients that are slow, and clients that go


def test_a_slow_reader_loses_nothing_and_is_answered(app: list[str]) -> None:
    server = Server(app)
    count = 100_000
    server.send(request(1, "prompt", input=f"{count} x 1"))
    # The run ends while the pipe is full: the client can ask, and reads the answer in its turn.
    server.send(request(2, "state"))
    peak = wait_for_idle(server.process.pid)
    server.send(request(3, "state"))
    assert server.process.stdin is not None
    server.process.stdin.close()
    server.process.stdin = None
    out, err = server.process.communicate(timeout=SECONDS)
    lines = records(out)
    assert (err, server.process.returncode) == (b"imported\n", 0)
    assert responses(lines) == {1: "ok", 2: "ok", 3: "ok"}
    deltas = [
        line["event"] for line in lines if line.get("event", {}).get("type") == "message_delta"
    ]
    assert "".join(delta["content"]["text"] for delta in deltas) == "x" * count
    assert len(deltas) < count  # adjacent ones were joined
    assert peak < 150 * 1024 * 1024


def texts(lines: list[dict[str, Any]]) -> list[str]:
    """The text of each delta."""
    events = [line["event"] for line in lines if "event" in line]
    deltas = [event["content"] for event in events if event["type"] == "message_delta"]
    return [block["text"] for block in deltas if block["type"] == "text"]


def wait_for_idle(pid: int) -> int:
    """Wait until a process uses no CPU; its resident memory then, in bytes."""
    before = -1
    while True:
        time.sleep(0.1)
        used = int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[13])
        if used == before and used > 0:
            break
        before = used
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def test_an_abort_is_heard_while_the_client_does_not_read(app: list[str], tmp_path: Path) -> None:
    server = Server(app)
    server.send(request(1, "prompt", input="3000 x 1000"))
    server.send(request(2, "prompt", input="call patient", queue=True))
    wait_for_idle(server.process.pid)
    server.send(request(3, "abort"))
    wait_for_idle(server.process.pid)
    # It is aborted, though nothing has been read yet.
    store = (tmp_path / "store" / "s1.jsonl").read_bytes()
    last = decode_entry(store.splitlines()[-1])
    assert isinstance(last, MessageEntry)
    assert last.message.role == "tool"
    lines, _, status = server_end(server)
    assert (responses(lines), status) == ({1: "aborted", 2: "aborted", 3: "ok"}, 0)
    assert "".join(texts(lines)) == "x" * 3_000_000


def server_end(server: Server) -> tuple[list[dict[str, Any]], bytes, int]:
    """Close the server's input and wait for its end."""
    assert server.process.stdin is not None
    server.process.stdin.close()
    server.process.stdin = None
    return server.end()


@pytest.mark.parametrize("tool", ["patient", "stubborn", "stuck"])
def test_a_client_that_goes_ends_the_run_and_the_process(
    tool: str, app: list[str], tmp_path: Path
) -> None:
    server = Server(app)
    server.send(request(1, "prompt", input=f"call {tool}"))
    server.until(b"tool_execution_started")
    assert server.process.stdout is not None
    server.process.stdout.close()
    server.send(request(2, "state"))
    assert server.process.stderr is not None
    assert server.process.stderr.read() == b"imported\n"
    assert server.process.wait(SECONDS) == 141
    store = (tmp_path / "store" / "s1.jsonl").read_bytes()
    assert [decode_entry(line).session_id for line in store.splitlines()] == ["s1"] * 3
    server.close()


@pytest.mark.parametrize("kind", ["pipes", "sockets"])
def test_a_client_that_dies_while_nothing_is_written_ends_the_process(
    kind: str, app: list[str]
) -> None:
    pair = os.pipe if kind == "pipes" else fds_of_socketpair  # Node gives its children sockets
    theirs_in, ours_in = pair()
    ours_out, theirs_out = pair()
    process = subprocess.Popen(app, stdin=theirs_in, stdout=theirs_out, stderr=subprocess.PIPE)
    os.close(theirs_in)
    os.close(theirs_out)
    os.write(ours_in, request(1, "prompt", input="call patient"))
    out = b""
    while b"tool_execution_started" not in out:
        out += os.read(ours_out, 65_536)
    os.close(ours_in)
    os.close(ours_out)
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (141, b"imported\n")


def fds_of_socketpair() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def test_answers_that_nobody_reads_do_not_fill_the_memory(app: list[str]) -> None:
    server = Server(app)
    server.send(request(0, "prompt", input="1 x 1000000"))
    server.until(b'"id":0,"ok":true')
    server.send(*(request(number, "messages") for number in range(1, 251)))
    assert wait_for_idle(server.process.pid) < 150 * 1024 * 1024
    lines, err, status = server_end(server)
    assert (err, status) == (b"imported\n", 0)
    assert responses(lines) == dict.fromkeys(range(251), "ok")


def test_two_processes_on_one_session_are_a_conflict_until_one_reloads(app: list[str]) -> None:
    first, second = Server(app), Server(app)
    for server in (first, second):
        server.send(request(1, "state"))
        server.until(b'"id":1,"ok":true')
    first.send(request(2, "prompt", input="1 x 1"))
    first.until(b'"id":2,"ok":true')
    second.send(request(2, "prompt", input="1 y 1"))
    second.until(b'"id":2,"ok":')
    second.send(request(3, "reload"), request(4, "prompt", input="1 y 1"))
    second.until(b'"id":4,"ok":')
    first.send(request(3, "messages", limit=1), request(4, "prompt", input="1 x 1"))
    first.until(b'"id":4,"ok":')
    lines, _, status = server_end(second)
    assert (responses(lines), status) == ({1: "ok", 2: "store_conflict", 3: "ok", 4: "ok"}, 0)
    lines, _, status = server_end(first)
    assert (responses(lines), status) == ({1: "ok", 2: "ok", 3: "ok", 4: "store_conflict"}, 0)


@pytest.mark.parametrize(
    ("name", "tool"),
    [("SIGINT", "patient"), ("SIGTERM", "patient"), ("SIGHUP", "patient"), ("SIGINT", "stuck")],
)
def test_a_signal_ends_the_run_and_answers_it(name: str, tool: str, app: list[str]) -> None:
    number = getattr(signal, name)
    server = Server(app)
    server.send(request(1, "prompt", input=f"call {tool}"), request(2, "command", name="wait"))
    server.until(b"tool_execution_started")
    server.process.send_signal(number)
    lines, err, status = server.end()
    assert responses(lines) == {1: "aborted", 2: "aborted"}
    assert (err, status) == (b"imported\n", 128 + number)
    kinds = [line["event"]["type"] for line in lines if "event" in line]
    assert kinds[-2:] == ["agent_finished", "session_settled"]


def test_sigterm_ends_the_process_within_a_second_though_a_tool_cannot_be_stopped(
    app: list[str],
) -> None:
    server = Server(app)
    server.send(request(1, "prompt", input="call stubborn"))
    server.until(b"tool_execution_started")
    before = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    _, err = server.rest()
    assert time.monotonic() - before < 1
    assert (err, server.process.returncode) == (b"imported\n", 143)


def test_a_second_signal_ends_the_process_at_once(app: list[str]) -> None:
    server = Server(app)
    server.send(request(1, "prompt", input="call stubborn"))
    server.until(b"tool_execution_started")
    server.process.send_signal(signal.SIGINT)
    server.until(b'"aborted"')
    server.process.send_signal(signal.SIGINT)
    before = time.monotonic()
    server.rest()
    assert server.process.returncode == 130
    assert time.monotonic() - before < 1.5


def test_a_signal_without_a_run_ends_the_process() -> None:
    server = Server(MOCK)
    server.send(request(1, "state"))
    server.until(b'"ok":true')
    server.process.send_signal(signal.SIGTERM)
    lines, err, status = server.end()
    assert (responses(lines), err, status) == ({1: "ok"}, b"", 143)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    command = ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", *MOCK]
    server = Server(command)
    server.send(request(1, "state"))
    server.until(b'"ok":true')
    server.process.send_signal(signal.SIGHUP)
    server.process.send_signal(signal.SIGINT)
    server.send(request(2, "state"))
    server.until(b'"id":2')
    assert server_end(server)[1:] == (b"", 0)


# Hosts that are wrong


@pytest.mark.parametrize(
    ("source", "name", "complaint"),
    [
        ("x = 1", "wrong_app", "write it as module:attr"),
        ("x = 1", "no_such_module:app", "No module named 'no_such_module'"),
        ("x = 1", "wrong_app:app", "has no attribute 'app'"),
        ("app = 5", "wrong_app:app", "is a int without a method create_session"),
        ("1/0", "wrong_app:app", "ZeroDivisionError"),
        ("def app(): raise LookupError('no\\nluck')", "wrong_app:app", "LookupError: no luck"),
        (
            "class app:\n commands = [1]\n def create_session(self, options): ...",
            "wrong_app:app",
            "commands holds a int",
        ),
        (
            "class app:\n def create_session(self, options): return 'hi'",
            "wrong_app:app",
            "create_session() returned a str, not a Session",
        ),
    ],
)
def test_a_wrong_app_is_one_line_and_status_2(
    source: str, name: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "wrong_app.py").write_text(source, encoding="utf-8")
    result = subprocess.run(
        [*COMMAND, "--app", name],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1


# Anything at all

JUNK = [
    b"\n",
    b"\r\n",
    b"nonsense\n",
    b"\xff\xfe\n",
    b"[]\n",
    b"[" * 2_000 + b"\n",
    b'{"id":NaN}\n',
    b'{"id":1,"id":2}\n',
    b'{"command":"state"}\n',
    "{\u2028}\n".encode(),
]


def fuzz_requests(chance: random.Random) -> tuple[bytes, list[int]]:
    """Requests and junk as one stream, and the ids that must be answered."""
    parts: list[bytes] = []
    ids: list[int] = []
    for number in range(chance.randrange(3, 25)):
        if chance.random() < 0.3:
            parts.append(chance.choice(JUNK))
            continue
        ids.append(number)
        prompts = ["5 x 10", "200 xyz 1", "50 x 2000", "call chatty", "call patient"]
        made: tuple[str, dict[str, Any]] = chance.choice([
            ("prompt", {"input": chance.choice(prompts), "queue": chance.random() < 0.5}),
            ("prompt", {"input": chance.choice(prompts)}),
            ("followUp", {"input": "1 x 1", "queue": True}),
            ("abort", {}),
            ("steer", {"input": "1 y 1"}),
            ("state", {}),
            ("messages", {}),
            ("forkSession", {"id": "s3"}),
            ("switchSession", {"id": "s2", "create": True}),
            ("switchSession", {"id": "s1"}),
            ("switchSession", {"id": "s3"}),
            ("clearQueue", {}),
            ("compact", {}),
            ("tree", {}),
            ("nonsense", {}),
        ])  # fmt: skip
        parts.append(request(number, made[0], **made[1]))
    return b"".join(parts), ids


@pytest.mark.parametrize("seed", range(8))
def test_whatever_a_client_does_every_request_is_answered_once(seed: int, app: list[str]) -> None:
    chance = random.Random(seed)  # noqa: S311
    stream, ids = fuzz_requests(chance)
    ending = ["eof", "eof", "SIGINT", "SIGTERM"][seed % 4]
    server = Server(app)
    server.send(request("up", "state"))
    server.until(b'"up"')
    stdin, stdout = server.process.stdin, server.process.stdout
    assert stdin is not None
    assert stdout is not None
    out = server.out
    slow = chance.random() < 0.5
    rest = stream
    while rest:
        size = chance.choice([1, 3, 17, 400, 5_000])
        stdin.write(rest[:size])
        rest = rest[size:]
        if not slow and select.select([stdout], [], [], 0)[0]:
            out += os.read(stdout.fileno(), chance.choice([1, 100, 70_000]))
    if ending == "eof":
        # `patient` never returns by itself.
        ends = [request(f"end{i}", "abort", sessionId=f"s{i}") for i in (1, 2, 3)]
        stdin.write(b"".join(ends))
        stdin.close()
        server.process.stdin = None
    else:
        server.process.send_signal(getattr(signal, ending))
    more, err = server.rest()
    assert b"Traceback" not in err
    status = 0 if ending == "eof" else 128 + getattr(signal, ending)
    assert server.process.returncode == status
    answers = [line["id"] for line in whole_records(out + more) if "ok" in line]
    wanted = [request_id for request_id in answers if isinstance(request_id, int)]
    assert len(wanted) == len(set(wanted))
    if ending == "eof":
        assert sorted(wanted) == ids


def whole_records(out: bytes) -> list[dict[str, Any]]:
    """The records; the last line may be cut off by a signal's deadline."""
    return [json.loads(line) for line in out.split(b"\n")[:-1]]
