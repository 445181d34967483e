"""`prism sessions …`: what a store holds, for people and for programs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from prism.cli import main
from prism.core import Agent, ModelConfig, tool
from prism.core.providers import MockProvider, done, text_delta, tool_call
from prism.core.stores import JsonlSessionStore, SessionStore, SqliteSessionStore


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def numbered_agent(store: SessionStore) -> Agent:
    """An agent whose entries have short ids, and a clock that stands still."""
    numbers = iter(range(1, 10_000))
    script = [
        [tool_call(id="c1", name="add", arguments={"a": 1, "b": 2}), done()],
        *([text_delta(f"Answer {n}"), done()] for n in range(100)),
    ]
    return Agent(
        model=ModelConfig(provider="mock", model="demo"),
        provider=MockProvider(script),
        tools=[add],
        store=store,
        clock=lambda: 1_760_000_000,
        id_maker=lambda prefix: f"{prefix[0]}{next(numbers)}",
    )


async def fill(store: SessionStore) -> None:
    """A session with a fork, a label, a compaction and a call; and an older one."""
    agent = numbered_agent(store)
    session = agent.session("main")
    await session.run("What is 1 + 2?")
    middle = session.leaf_id
    await session.run("Left\x1b[31m\nor right? " + "x" * 300)
    await session.checkout(middle)
    await session.label("turn", target_id=middle)
    await session.run("Right")
    await session.compact(keep_recent_entries=1)
    await session.run("On", model=ModelConfig(provider="mock", model="big"))
    await agent.session("other").run("Elsewhere")
    await store.aclose()


@pytest.fixture(params=["directory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A filled store, as `--store` names it."""
    path = tmp_path / "store"
    if request.param == "sqlite":
        anyio.run(fill, SqliteSessionStore(path))
        return f"sqlite:{path}"
    anyio.run(fill, JsonlSessionStore(path))
    return str(path)


def test_show_draws_branches_labels_and_compactions(
    store: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["sessions", "show", "main", "--store", store]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    head, *lines = out.splitlines()
    assert head.startswith("Session main: 14 entries, 2 branches, 2025-10-09T08:53:20.000Z to ")
    compaction = lines.pop(9)
    assert compaction.startswith("   compaction user: What is 1 + 2? ")
    assert compaction.endswith("…  e14")
    assert lines == [
        "user       What is 1 + 2?  e2",
        "assistant  add(…)  e3",
        "tool       add answered  e4",
        "assistant  Answer 0  e5  [turn]",
        "├─ user       Left [31m or right? xxxxxxxxxxxxxxxxxxxxx…  e7",
        "│  assistant  Answer 1  e8",
        "└─ label      [turn]  e10",
        "   user       Right  e12",
        "   assistant  Answer 2  e13",
        "   model      mock/big  e16",
        "   user       On  e17",
        "   assistant  Answer 3  e18  <- here",
    ]


def test_show_gives_programs_the_same_as_json(
    store: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["sessions", "show", "main", "--store", store, "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert (shown["sessionId"], shown["entryCount"], len(shown["branches"])) == ("main", 14, 2)
    assert shown["leafId"] == shown["entries"][-1]["id"]
    assert [node["label"] for node in shown["entries"] if "label" in node] == ["turn"]
    assert shown["entries"][0]["entry"]["message"]["role"] == "user"


def test_list_shows_every_session(store: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "list", "--store", store]) == 0
    lines = sorted(capfd.readouterr().out.splitlines())
    assert [" ".join(line.split()) for line in lines] == [
        "main 14 entries 10 messages 2025-10-09 08:53 What is 1 + 2?",
        "other 2 entries 2 messages 2025-10-09 08:53 Elsewhere",
    ]
    assert main(["sessions", "list", "--store", store, "--json"]) == 0
    found = {info["sessionId"]: info for info in json.loads(capfd.readouterr().out)}
    assert found["other"]["firstMessage"] == "Elsewhere"


def test_export_gives_the_entries_as_they_are_stored(
    store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["sessions", "export", "main", "--store", store]) == 0
    printed = capfd.readouterr().out
    lines = [json.loads(line) for line in printed.splitlines()]
    assert len(lines) == 14
    assert {line["sessionId"] for line in lines} == {"main"}
    file = tmp_path / "main.jsonl"
    command = ["sessions", "export", "main", "--store", store, "-o", str(file)]
    assert main(command) == 0
    assert file.read_text(encoding="utf-8") == printed
    assert main(command) == 2
    assert "is there already" in capfd.readouterr().err


def test_a_hole_in_a_session_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    anyio.run(fill, JsonlSessionStore(tmp_path))
    (file,) = tmp_path.glob("main*.jsonl")
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([lines[0], "damaged", *lines[2:], ""]), encoding="utf-8")
    assert main(["sessions", "show", "main", "--store", str(tmp_path)]) == 0
    out, err = capfd.readouterr()
    assert "<- here" in out
    damaged, hole = err.splitlines()
    assert damaged.startswith("prism: warning: ")
    assert "line 2" in damaged
    assert hole == "prism: warning: Entry 'e3', which entry 'e4' follows, is not in the session."


def test_memory_needs_a_package_that_is_named_when_it_is_missing(
    store: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prism.memory.observational", None)
    assert main(["sessions", "show", "main", "--store", store, "--memory"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("prism: --memory needs the package prism-memory-observational: ")
    assert err.endswith("install prism-core[memory-observational].\n")


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["list"], 2, "Missing option '--store'"),
        (["list", "--store", "no/such/store"], 2, "there is no such store"),
        (["show", "--store", "."], 2, "Missing argument 'SESSION'"),
        (["show", "nobody", "--store", "."], 1, "The store holds no session 'nobody'"),
        (["export", "nobody", "--store", "."], 1, "The store holds no session 'nobody'"),
        (["destroy"], 2, "No such command 'destroy'"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    arguments: list[str],
    status: int,
    complaint: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sessions", *arguments]) == status
    out, err = capfd.readouterr()
    assert out == ""
    assert complaint in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_flags_of_a_run_do_not_go_with_sessions(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", "x", "sessions", "list", "--store", "x"]) == 2
    assert "flags of sessions follow it" in capfd.readouterr().err


def test_a_long_show_has_a_progress_bar_on_a_terminal_alone(tmp_path: Path) -> None:
    lines: list[str] = []
    for number in range(3_000):
        parent = f',"parentId":"e{number - 1}"' if number else ""
        message = '{"role":"user","content":[{"type":"text","text":"Hi"}]}'
        lines.append(
            f'{{"kind":"message","id":"e{number}","sessionId":"long"{parent},'
            f'"timestamp":"2025-01-01T00:00:00.000Z","message":{message}}}\n'
        )
    (tmp_path / "long.jsonl").write_text("".join(lines), encoding="utf-8")
    command = [sys.executable, "-W", "error", "-m", "prism.cli", "sessions", "show", "long"]
    command += ["--store", str(tmp_path)]
    quiet = subprocess.run(command, capture_output=True, timeout=30, check=True)
    assert quiet.stdout.count(b"\n") == 3_001
    assert quiet.stderr == b""
    ours, theirs = pty.openpty()
    with (tmp_path / "shown").open("w+b") as shown:
        process = subprocess.Popen(command, stdout=shown, stderr=theirs)
        os.close(theirs)
        bar = read_terminal(ours)
        assert process.wait(30) == 0
        shown.seek(0)
        assert shown.read() == quiet.stdout
    assert b"Reading long" in bar
    assert b"100%" in bar


def read_terminal(terminal: int) -> bytes:
    """Everything that is written until the other side is closed."""
    found = b""
    try:
        while data := os.read(terminal, 65_536):
            found += data
    except OSError:  # how Linux says so
        pass
    os.close(terminal)
    return found


def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    anyio.run(fill, JsonlSessionStore(tmp_path))
    command = ["sessions", "export", "main", "--store", str(tmp_path)]
    code = (
        "import os, prism.cli\n"
        "read, write = os.pipe()\n"
        "os.dup2(write, 1)\nos.close(write)\nos.close(read)\n"
        f"raise SystemExit(prism.cli.main({command!r}))"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, timeout=30, check=False
    )
    assert (result.returncode, result.stderr) == (141, b"")
