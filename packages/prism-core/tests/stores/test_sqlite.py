"""The SQLite store: first opens, shared commits, foreign files, limits of the disk."""

from __future__ import annotations

import asyncio  # noqa: TID251 - a native cancel is the point of one test
import gc
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from prism.core._errors import StoreConflict, StoreError
from prism.core.stores import SqliteSessionStore
from prism.core.stores._sqlite import _database

from .helpers import chain, entry, ids, named, refused, snapshot


def test_the_stores_are_imported_without_sqlite() -> None:
    probe = "import sys, prism.core.stores; print('sqlite3' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


def test_eight_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    module = "prism.core.testing._store_conformance._child"
    target = ["prism.core.stores:SqliteSessionStore", str(path)]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", module, *target, "land", f"p{number}", "10"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:  # all are ready: they open the file now
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [child.communicate(timeout=60)[0] for child in children] == ["done\n"] * 8

    async def check() -> None:
        store = SqliteSessionStore(path)
        stored = await ids(store)
        assert sorted(stored) == sorted(f"p{p}-{n}" for p in range(8) for n in range(10))
        await store.aclose()

    anyio.run(check)


async def test_eight_stores_in_threads_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new.db"

    async def write(number: int) -> None:
        store = SqliteSessionStore(path)
        for step in range(5):
            await store.append("s", [entry(f"t{number}-{step}")])
        await store.aclose()

    async def in_thread(number: int) -> None:
        await to_thread.run_sync(lambda: anyio.run(write, number))

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(in_thread, number)
    store = SqliteSessionStore(path)
    assert len(await ids(store)) == 40
    await store.aclose()


async def test_reading_a_store_that_was_never_written_makes_no_file(tmp_path: Path) -> None:
    store = SqliteSessionStore(tmp_path / "a" / "db")
    assert await store.sessions() == []
    assert await ids(store) == []
    assert await store.entry("s", "e0") is None
    await store.aclose()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", [":memory:", "a?b#c%20d", "é 日本", "file:x"])
async def test_a_path_is_only_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteSessionStore(name)
    await store.append("s", chain(0, 2))
    await store.aclose()
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    store = SqliteSessionStore(name)
    assert await ids(store) == named(0, 2)
    await store.aclose()


async def test_appends_that_wait_together_share_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    real = _database.Database.append

    def counting(self: _database.Database, appends: list[_database.Append]) -> None:
        groups.append(len(appends))
        real(self, appends)

    monkeypatch.setattr(_database.Database, "append", counting)
    store = SqliteSessionStore(tmp_path / "db")
    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(store.append, f"s{number}", [entry("e", session_id=f"s{number}")])
    assert sum(groups) == 50
    assert len(groups) <= 10
    await store.aclose()


async def test_one_refused_batch_does_not_spoil_the_commit_of_others(tmp_path: Path) -> None:
    store = SqliteSessionStore(tmp_path / "db")
    await store.append("s", chain(0, 1))
    outcomes: dict[int, object] = {}

    async def write(number: int) -> None:
        parent = "nobody" if number % 3 == 0 else "e0"
        try:
            outcomes[number] = await store.append("s", [entry(f"w{number}", parent)])
        except StoreError as error:
            outcomes[number] = error.code

    async with anyio.create_task_group() as group:
        for number in range(9):
            group.start_soon(write, number)
    assert [outcomes[number] for number in (0, 3, 6)] == ["missing_parent"] * 3
    assert len(await ids(store)) == 7
    await store.aclose()


async def test_a_full_disk_refuses_the_batch_and_keeps_the_rest(tmp_path: Path) -> None:
    store = SqliteSessionStore(tmp_path / "db")
    await store.append("s", chain(0, 2))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    codes: list[object] = []

    async def write(session_id: str, size: int) -> None:
        try:
            await store.append(session_id, [entry("e", session_id=session_id, text="x" * size)])
        except StoreError as error:
            codes.append(error.code)

    try:
        async with anyio.create_task_group() as group:  # one commit at first
            group.start_soon(write, "small", 10)
            group.start_soon(write, "large", 1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(codes) == 1
    assert codes[0] in {"disk_full", "io_error"}
    assert [info.session_id for info in await store.sessions() if info.session_id != "s"] == [
        "small"
    ]
    assert await store.append("s", chain(2, 3), expected_version=2) == 3
    await store.aclose()


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = path.read_bytes()
    store = SqliteSessionStore(path)
    with refused("newer_schema"):
        await store.append("s", chain(0, 1))
    with refused("newer_schema"):
        await store.entries("s")
    await store.aclose()
    assert path.read_bytes() == before


async def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    before = path.read_bytes()
    store = SqliteSessionStore(path)
    with refused("invalid_database"):
        await store.append("s", chain(0, 1))
    await store.aclose()
    assert path.read_bytes() == before

    path.write_bytes(b"This is a text, and a long one: " * 40)
    store = SqliteSessionStore(path)
    with refused("invalid_database"):
        await store.entries("s")
    await store.aclose()
    assert path.read_bytes().startswith(b"This is a text")


async def test_a_file_that_cannot_be_made_is_an_error_and_the_store_works_later(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_text("a file", encoding="utf-8")
    store = SqliteSessionStore(tmp_path / "a" / "db")
    with refused("io_error"):
        await store.append("s", chain(0, 1))
    (tmp_path / "a").unlink()
    assert await store.append("s", chain(0, 1)) == 1
    await store.aclose()


async def test_a_lock_that_is_never_released_is_an_error(tmp_path: Path) -> None:
    store = SqliteSessionStore(tmp_path / "db", busy_timeout_ms=5)
    await store.append("s", chain(0, 1))
    other = sqlite3.connect(tmp_path / "db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with refused("locked"):
        await store.append("s", chain(1, 2))
    assert await ids(store) == named(0, 1)  # the log lets readers by
    other.execute("ROLLBACK")
    other.close()
    assert await store.append("s", chain(1, 2), expected_version=1) == 2
    await store.aclose()


async def test_the_first_open_waits_for_another_process_that_holds_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(tmp_path / "db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    waits: list[float] = []

    def let_go(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            other.execute("ROLLBACK")

    monkeypatch.setattr("prism.core.stores._sqlite._database.time.sleep", let_go)
    store = SqliteSessionStore(tmp_path / "db")
    assert await store.append("s", chain(0, 1)) == 1
    assert len(waits) == 3
    other.close()
    await store.aclose()


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_gone_is_told_once(tmp_path: Path, replaced: bool) -> None:  # noqa: FBT001
    path = tmp_path / "db"
    store = SqliteSessionStore(path)
    await store.append("s", chain(0, 3))
    for name in ("db", "db-wal", "db-shm"):
        (tmp_path / name).unlink()
    if replaced:
        other = SqliteSessionStore(path)
        await other.append("s", chain(0, 1))
        await other.aclose()
    with refused("file_changed"):
        await store.append("s", chain(3, 4), expected_version=3)
    assert await ids(store) == named(0, 1 if replaced else 0)
    version = len(await ids(store))
    assert await store.append("s", [entry("new")], expected_version=version) == version + 1
    await store.aclose()


async def test_a_store_whose_file_was_replaced_leaves_the_log_of_the_new_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "db"
    store = SqliteSessionStore(path)
    await store.append("s", chain(0, 3))
    for name in ("db", "db-wal", "db-shm"):
        (tmp_path / name).unlink()
    other = SqliteSessionStore(path)
    await other.append("s", chain(0, 1))
    with refused("file_changed"):
        await store.append("s", chain(3, 4), expected_version=3)
    await store.aclose()
    del store
    gc.collect()
    assert (tmp_path / "db-wal").exists()
    assert await other.append("s", chain(1, 2), expected_version=1) == 2
    assert await ids(other) == named(0, 2)
    await other.aclose()


async def test_texts_in_the_file_are_ascii(tmp_path: Path) -> None:
    store = SqliteSessionStore(tmp_path / "db")
    await store.append("日\x00\ud83d", [entry("é", session_id="日\x00\ud83d", text="日\x00\ud83d")])
    await store.aclose()
    connection = sqlite3.connect(tmp_path / "db")
    rows = connection.execute("SELECT s.id, e.id, e.json FROM entries e, sessions s").fetchall()
    connection.close()
    assert all(text.isascii() and "\x00" not in text for text in rows[0])
    assert rows[0][:2] == ("\\u65e5\\x00\\ud83d", "\\xe9")


def test_a_forked_child_opens_a_connection_of_its_own(tmp_path: Path) -> None:
    script = """
import os, sys, anyio
from prism.core.stores import SqliteSessionStore
from prism.core._wire import CustomEntry
store = SqliteSessionStore(sys.argv[1])
async def write(name, count):
    for n in range(count):
        one = CustomEntry(id=f"{name}{n}", session_id="s", timestamp="", data={"type": "x"})
        await store.append("s", [one])
anyio.run(write, "before", 1)
child = os.fork()
anyio.run(write, "child" if child == 0 else "parent", 20)
if child == 0:
    anyio.run(store.aclose)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
anyio.run(store.aclose)
"""
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "db")]
    subprocess.run(command, check=True, timeout=60)

    async def check() -> None:
        store = SqliteSessionStore(tmp_path / "db")
        assert len(await ids(store)) == 41
        await store.aclose()

    anyio.run(check)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_asyncio_cancels_leaves_the_store_whole(
    tmp_path: Path, anyio_backend: str
) -> None:
    store = SqliteSessionStore(tmp_path / "db")
    tasks = [asyncio.create_task(store.append("s", [entry(f"c{number}")])) for number in range(12)]
    for number, task in enumerate(tasks):
        if number % 3 == 0:  # the first one leads the others' thread
            await asyncio.sleep(0)
            task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    stored = await ids(store)
    assert len(stored) == len(set(stored))
    for number, result in enumerate(results):
        if isinstance(result, BaseException):
            assert isinstance(result, asyncio.CancelledError)
        else:
            assert f"c{number}" in stored
    for number in range(12):
        await store.append("s", [entry(f"c{number}")])
    assert sorted(await ids(store)) == sorted(f"c{number}" for number in range(12))
    await store.aclose()


async def test_closing_finishes_what_was_asked_for(tmp_path: Path) -> None:
    store = SqliteSessionStore(tmp_path / "db")
    versions: list[int] = []

    async def write(number: int) -> None:
        versions.append(await store.append(f"s{number}", [entry("e", session_id=f"s{number}")]))

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(write, number)
        await anyio.wait_all_tasks_blocked()
        await store.aclose()
    assert versions == [1] * 5
    assert list(snapshot(tmp_path)) == ["db"]  # no log left


async def test_many_pages_are_one_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_database, "PAGE_ROWS", 7)
    monkeypatch.setattr(_database, "PAGE_BYTES", 1_000)
    store = SqliteSessionStore(tmp_path / "db")
    await store.append("s", chain(0, 50))
    await store.append("s", chain(50, 60, text="x" * 2_000))
    assert await ids(store) == named(0, 60)
    page = await store.entries("s", after=3, limit=20)
    assert [one.entry.id for one in page] == named(3, 23)
    assert await store.entries("s", after=2**70) == []
    await store.aclose()


async def test_a_batch_of_thousands_is_one_append(tmp_path: Path) -> None:
    store = SqliteSessionStore(tmp_path / "db")
    batch = chain(0, 3_000)
    assert await store.append("s", batch, expected_version=0) == 3_000
    assert await store.append("s", batch, expected_version=0) == 3_000
    with refused("id_conflict", StoreConflict):
        await store.append("s", chain(2_999, 3_001))
    await store.aclose()
