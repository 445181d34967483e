"""Session files that somebody else touches, locks, damages or forbids."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import anyio
import pytest
from hypothesis import given, strategies as st

from prism.core._wire import OpaqueEntry, encode_entry, parse_json
from prism.core.stores import JsonlSessionStore, read_session_file
from prism.core.stores._jsonl import _file, _handle, _store
from prism.core.stores._jsonl._lock import read_at
from prism.core.stores._jsonl._names import file_name, session_id_of

from .helpers import chain, entry, ids, lines, named, open_files, refused, snapshot

# Names


@given(st.lists(st.text(min_size=1, max_size=300), min_size=2, max_size=20, unique=True))
def test_no_two_sessions_share_a_file_name_on_any_file_system(session_ids: list[str]) -> None:
    names = [file_name(session_id) for session_id in session_ids]
    assert len({name.lower() for name in names}) == len(names)
    for session_id, name in zip(session_ids, names, strict=True):
        assert name.isascii()
        assert len(name) <= 230
        assert "/" not in name
        assert not name.startswith(".")
        assert session_id_of(name) in {session_id, None}


@pytest.mark.parametrize(
    ("session_id", "name"),
    [
        ("s1", "s1.jsonl"),
        ("2026-01_a.b", "2026-01_a.b.jsonl"),
        ("a/../b", "a%2f..%2fb.jsonl"),
        ("..", "%2e..jsonl"),
        ("con", "%63on.jsonl"),
        ("é", "%c3%a9.jsonl"),
    ],
)
def test_a_name_shows_its_session(session_id: str, name: str) -> None:
    assert file_name(session_id) == name
    assert session_id_of(name) == session_id


# Files that are removed, replaced, cut


async def test_a_removed_file_is_told_once_and_then_begins_anew(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    await store.append("s", chain(0, 3))
    (tmp_path / "s.jsonl").unlink()
    with refused("entries_lost"):
        await store.append("s", [entry("new")])
    assert snapshot(tmp_path) == {}
    assert await ids(store) == []
    assert await store.append("s", [entry("new")], expected_version=0) == 1
    await store.aclose()


async def test_a_removed_file_reads_as_empty_with_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    store = JsonlSessionStore(tmp_path, on_warning=lambda code, _: warnings.append(code))
    await store.append("s", chain(0, 3))
    (tmp_path / "s.jsonl").unlink()
    assert await ids(store) == []
    assert warnings == ["entries_lost"]
    with refused("version_conflict"):
        await store.append("s", [entry("new")], expected_version=3)
    await store.aclose()


async def test_a_replaced_file_that_holds_everything_is_simply_used(tmp_path: Path) -> None:
    warnings: list[str] = []
    store = JsonlSessionStore(tmp_path, on_warning=lambda code, _: warnings.append(code))
    await store.append("s", chain(0, 3))
    (tmp_path / "copy").write_bytes(lines(chain(0, 4)))
    (tmp_path / "copy").replace(tmp_path / "s.jsonl")
    with refused("version_conflict"):
        await store.append("s", chain(4, 5), expected_version=3)
    assert await store.append("s", chain(4, 5), expected_version=4) == 5
    assert (tmp_path / "s.jsonl").read_bytes() == lines(chain(0, 5))
    assert warnings == []
    await store.aclose()


@pytest.mark.parametrize("how", ["replaced", "cut", "rewritten"])
async def test_a_file_that_lost_entries_is_told_once(tmp_path: Path, how: str) -> None:
    store = JsonlSessionStore(tmp_path)
    await store.append("s", chain(0, 3))
    file = tmp_path / "s.jsonl"
    left = lines(chain(0, 2))
    if how == "replaced":
        (tmp_path / "other").write_bytes(left)
        (tmp_path / "other").replace(file)
    elif how == "cut":
        os.truncate(file, len(left) - 10)
    else:
        file.write_bytes(lines([entry("x" * 100), *chain(0, 2), *chain(2, 40)]))
    with refused("entries_lost"):
        await store.append("s", [entry("new")], expected_version=3)
    version = len(await ids(store))
    assert await store.append("s", [entry("new")], expected_version=version) == version + 1
    await store.aclose()


async def test_a_file_replaced_while_it_is_read_is_an_error_and_not_a_mixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_file, "SLICE_BYTES", 200)
    store = JsonlSessionStore(tmp_path)
    await store.append("s", chain(0, 20))
    stream = store.iter_entries("s")
    assert (await anext(stream)).entry.id == "e0"
    (tmp_path / "other").write_bytes(lines([entry("x")]))
    (tmp_path / "other").replace(tmp_path / "s.jsonl")
    assert await ids(store) == ["x"]
    with refused("file_changed"):
        [one async for one in stream]
    await store.aclose()


async def test_a_file_whose_number_was_given_to_another_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_store, "MAX_OPEN_FILES", 1)
    store = JsonlSessionStore(tmp_path)
    await store.append("s", chain(0, 3))
    await store.append("t", chain(0, 1, session_id="t"))  # closes the other file
    file = tmp_path / "s.jsonl"
    file.write_bytes(lines([entry("x"), *chain(0, 4)]))  # keeps its inode
    with refused("entries_lost"):
        await store.append("s", [entry("new")])
    assert await ids(store) == ["x", *named(0, 4)]
    await store.aclose()


async def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "dir.jsonl").mkdir()
    store = JsonlSessionStore(tmp_path)
    for session_id in ("pipe", "dir"):
        with refused("io_error"):
            await store.append(session_id, [entry("e", session_id=session_id)])
    await store.aclose()


async def test_a_refusal_of_the_system_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlSessionStore(tmp_path)
    await store.append("s", chain(0, 1))
    with monkeypatch.context() as patched:

        def refuse(*_: object, **__: object) -> int:
            raise PermissionError(13, "Permission denied")

        patched.setattr(os, "open", refuse)
        with refused("permission_denied"):
            await store.append("t", [entry("e", session_id="t")])
        with refused("permission_denied"):
            await JsonlSessionStore(tmp_path).entries("s")
    await store.aclose()


async def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path / "a" / "b")
    await store.append("s", chain(0, 1))
    assert (tmp_path / "a" / "b" / "s.jsonl").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    await store.aclose()


# Locks, threads, processes


async def test_an_append_waits_for_another_writers_lock(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    await store.append("s", chain(0, 1))
    order: list[str] = []

    async def write() -> None:
        await store.append("s", chain(1, 2))
        order.append("written")

    with (tmp_path / "s.jsonl").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        async with anyio.create_task_group() as group:
            group.start_soon(write)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            order.append("released")
            fcntl.flock(other, fcntl.LOCK_UN)
    assert order == ["released", "written"]
    await store.aclose()


async def test_a_lock_that_is_never_released_is_an_error(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path, lock_timeout_ms=5)
    await store.append("s", chain(0, 1))
    with (tmp_path / "s.jsonl").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert await ids(store) == ["e0"]  # readers share
        with refused("locked"):
            await store.append("s", chain(1, 2))
        fcntl.flock(other, fcntl.LOCK_EX)
        with refused("locked"):
            await store.entries("s")
    assert await store.append("s", chain(1, 2), expected_version=1) == 2
    await store.aclose()


def test_a_forked_child_does_not_share_its_parents_locks(tmp_path: Path) -> None:
    script = """
import os, sys, anyio
from prism.core.stores import JsonlSessionStore
from prism.core._wire import CustomEntry
store = JsonlSessionStore(sys.argv[1])
async def write(name, count):
    for n in range(count):
        one = CustomEntry(id=f"{name}{n}", session_id="s", timestamp="", data={"type": "x" * 300})
        await store.append("s", [one])
anyio.run(write, "before", 1)
child = os.fork()
anyio.run(write, "child" if child == 0 else "parent", 200)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)

    async def check() -> None:
        store = JsonlSessionStore(tmp_path)
        assert sorted(await ids(store)) == sorted(
            ["before0", *(f"{who}{n}" for who in ("child", "parent") for n in range(200))]
        )
        assert await store.problems("s") == []
        await store.aclose()

    anyio.run(check)


async def test_few_files_are_kept_open_and_all_still_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_store, "MAX_OPEN_FILES", 3)
    monkeypatch.setattr(_store, "MAX_INDEXES", 5)
    store = JsonlSessionStore(tmp_path)
    before = open_files()
    for version in range(3):
        for number in range(12):
            new = chain(version, version + 1, session_id=f"s{number}")
            await store.append(f"s{number}", new, expected_version=version)
    if before:
        assert open_files() <= before + 3
    assert len(await store.sessions()) == 12
    for number in range(12):
        assert await ids(store, f"s{number}") == named(0, 3)
    await store.aclose()
    if before:
        assert open_files() <= before


# Durability


async def test_fsync_comes_before_the_answer_or_when_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync

    def sync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        real(fd)

    monkeypatch.setattr(os, "fsync", sync)
    store = JsonlSessionStore(tmp_path / "each", fsync=True)
    await store.append("s", chain(0, 1))
    file, directory = (tmp_path / "each" / "s.jsonl").stat(), (tmp_path / "each").stat()
    assert synced == [file.st_ino, directory.st_ino]
    await store.append("s", chain(1, 2))
    assert synced[2:] == [file.st_ino]
    await store.append("s", chain(1, 2))  # it is there, and durable
    assert len(synced) == 3
    await store.aclose()
    assert len(synced) == 3

    synced.clear()
    store = JsonlSessionStore(tmp_path / "close")
    await store.append("s", chain(0, 1))
    await store.append("t", chain(0, 1, session_id="t"))
    assert synced == []
    await store.aclose()
    wanted = [(tmp_path / "close" / name).stat().st_ino for name in ("s.jsonl", "t.jsonl", "")]
    assert sorted(synced) == sorted(wanted)


async def test_an_append_that_cannot_be_made_durable_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlSessionStore(tmp_path, fsync=True)
    await store.append("s", chain(0, 1))
    with monkeypatch.context() as patched:

        def fail(_: int) -> None:
            raise OSError(5, "Input/output error")

        patched.setattr(os, "fsync", fail)
        with refused("io_error"):
            await store.append("s", chain(1, 3))
    assert (tmp_path / "s.jsonl").read_bytes() == lines(chain(0, 1))
    assert await store.append("s", chain(1, 3), expected_version=1) == 3
    await store.aclose()


# Damaged lines


async def test_damaged_lines_are_told_and_hide_nothing(tmp_path: Path) -> None:
    good = [encode_entry(one) for one in chain(0, 8)]
    wrong_shape = b'{"kind":"message","id":"e1","sessionId":"s","parentId":"e0","message":7}'
    broken = good[4][:-30]
    not_utf8 = good[6].replace("é".encode(), b"\xff")
    no_kind = b'{"id":"e7","sessionId":"s","parentId":"e6"}'
    content = [
        b"\xef\xbb\xbf" + good[0] + b"\r",  # 1: a byte order mark, a CR
        b'{"type":"session","version":3}',  # 2: no entry
        wrong_shape,  # 3
        b"",  # 4: blank
        good[2],  # 5
        good[2],  # 6: again
        b"\x00" * 40,  # 7
        encode_entry(entry("e3", "e2", session_id="other")),  # 8
        good[3],  # 9
        broken,  # 10: its head can be read
        broken[:20],  # 11: its parent cannot
        good[5],  # 12
        not_utf8,  # 13
        no_kind,  # 14
    ]
    (tmp_path / "s.jsonl").write_bytes(b"\n".join(content) + b"\n")
    warnings: list[tuple[str, str]] = []
    store = JsonlSessionStore(tmp_path, on_warning=lambda code, text: warnings.append((code, text)))
    stored = await store.entries("s")
    assert [one.entry.id for one in stored] == named(0, 8)
    opaque = [one.entry.id for one in stored if isinstance(one.entry, OpaqueEntry)]
    assert opaque == ["e1", "e4", "e6", "e7"]
    assert [one.entry.parent_id for one in stored] == [None, *named(0, 7)]
    for one in stored:
        assert parse_json(one.raw)["id"] == one.entry.id
    assert parse_json(stored[4].raw)["data"]["line"] == broken.decode()
    assert stored[1].raw == wrong_shape
    assert [code for code, _ in warnings] == ["bad_line"] * 9

    problems = await store.problems("s")
    assert [(problem.line, problem.entry_id) for problem in problems] == [
        (2, None),
        (3, "e1"),
        (6, None),
        (7, None),
        (8, None),
        (10, "e4"),
        (11, None),
        (13, "e6"),
        (14, "e7"),
    ]
    assert all(problem.reason for problem in problems)
    assert [code for code, _ in warnings] == ["bad_line"] * 9
    assert await store.append("s", chain(8, 9), expected_version=8) == 9
    with refused("id_conflict"):
        await store.append("s", [entry("e4", "e3", text="Hé 😀")])
    await store.aclose()


async def test_a_file_of_several_sessions_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "all.txt"
    one, two = chain(0, 2), chain(0, 3, session_id="t")
    path.write_bytes(lines([one[0], two[0], two[1]]) + b"no\n" + lines([one[1], two[2]])[:-1])
    content = await read_session_file(path)
    assert {name: [e.entry for e in found] for name, found in content.sessions.items()} == {
        "s": one,
        "t": two,
    }
    assert [e.position for e in content.sessions["t"]] == [1, 2, 3]
    assert [problem.line for problem in content.problems] == [4]
    with refused("io_error"):
        await read_session_file(tmp_path / "missing")


pieces = st.one_of(
    st.integers(0, 6).map(lambda n: encode_entry(entry(f"e{n}"))),
    st.integers(0, 3).map(lambda n: encode_entry(entry(f"long{n}", text="x" * 500))),
    st.sampled_from([b"", b" ", b"{", b"{}", b"null", b"\r", b"\x00\x00", b"\xff\xfe", b'{"id":"'])
    | st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")),
    st.tuples(st.integers(0, 9), st.integers(1, 120)).map(
        lambda pair: encode_entry(entry(f"cut{pair[0]}", "p"))[: pair[1]]
    ),
)


@given(content=st.lists(pieces, max_size=12), end=st.sampled_from([b"", b"\n"]))
def test_any_file_is_read_alike_in_one_piece_and_in_slices(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes], end: bytes
) -> None:
    directory = tmp_path_factory.mktemp("store")
    path = directory / "s.jsonl"
    path.write_bytes(b"\n".join(content) + end)
    before = path.read_bytes()

    async def scenario() -> None:
        store = JsonlSessionStore(directory)
        stored = await store.entries("s")
        assert path.read_bytes() == before
        whole = (await read_session_file(path)).sessions.get("s", [])
        assert stored == whole
        version = len(stored)
        assert await store.append("s", [entry("last")], expected_version=version) == version + 1
        await store.aclose()
        again = JsonlSessionStore(directory)
        kept = [one.entry.id for one in await again.entries("s")]
        assert kept == [*(one.entry.id for one in stored), "last"]
        await again.aclose()

    for slice_bytes in (64, _file.SLICE_BYTES):
        path.write_bytes(before)
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(_file, "SLICE_BYTES", slice_bytes)
            anyio.run(scenario)


async def test_a_line_beyond_the_limit_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_file, "SLICE_BYTES", 100)
    monkeypatch.setattr(_file, "_MAX_LINE", 1_000)
    huge = encode_entry(entry("huge", text="x" * 5_000))
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines(chain(0, 1)) + huge + b"\n" + lines(chain(1, 2)))
    store = JsonlSessionStore(tmp_path)
    assert await ids(store) == named(0, 2)
    assert [problem.line for problem in await store.problems("s")] == [2]
    path.write_bytes(lines(chain(0, 1)) + huge[:-5])
    with refused("entries_lost"):
        await store.append("s", chain(1, 2))
    await store.append("s", chain(1, 2))
    assert path.read_bytes() == lines(chain(0, 2))
    assert (tmp_path / "s.jsonl.quarantine").read_bytes() == huge[:-5] + b"\n"
    await store.aclose()


async def test_the_list_passes_over_what_is_not_its_own(tmp_path: Path) -> None:
    warnings: list[str] = []
    store = JsonlSessionStore(tmp_path, on_warning=lambda code, _: warnings.append(code))
    await store.append("S" * 300, chain(0, 2, session_id="S" * 300))
    (tmp_path / "Other~1.jsonl").write_bytes(b"nothing\n")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    for _ in range(2):
        assert [info.session_id for info in await store.sessions()] == ["S" * 300]
    assert warnings == ["unknown_file"]
    await store.aclose()


# Costs


async def test_appending_to_a_large_file_reads_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.jsonl").write_bytes(lines(chain(0, 3_000, text="x" * 300)))
    store = JsonlSessionStore(tmp_path)
    await store.append("s", chain(3_000, 3_001), expected_version=3_000)
    read: list[int] = []
    real = read_at

    def counting(fd: int, size: int, offset: int) -> bytes:
        read.append(size)
        return real(fd, size, offset)

    monkeypatch.setattr(_handle, "read_at", counting)
    await store.append("s", chain(3_001, 3_003), expected_version=3_001)
    assert read == []
    other = JsonlSessionStore(tmp_path)
    await other.append("s", chain(3_003, 3_004))
    read.clear()
    assert await store.append("s", chain(3_004, 3_005)) == 3_005
    assert sum(read) <= 2 * len(lines(chain(3_003, 3_004)))
    await store.aclose()
    await other.aclose()


async def test_opening_a_file_needs_little_more_memory_than_its_entries(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(lines(chain(0, 6_000, text="x" * 300)))
    store = JsonlSessionStore(tmp_path)
    tracemalloc.start()
    try:
        entries = [one.entry for one in await store.entries("s")]
        kept, peak = tracemalloc.get_traced_memory()
        assert len(entries) == 6_000
        assert peak <= 2 * kept
        del entries
        tracemalloc.reset_peak()
        base, _ = tracemalloc.get_traced_memory()
        async for _one in store.iter_entries("s"):
            pass
        _, peak = tracemalloc.get_traced_memory()
        assert peak - base < 4 * _file.SLICE_BYTES
    finally:
        tracemalloc.stop()
    await store.aclose()
