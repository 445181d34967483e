"""Whatever stops a writer, what it was told is stored stays, and the file opens again."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import given, strategies as st

from prism.core.stores import JsonlSessionStore

from .helpers import chain, entry, ids, lines, named, patch_write, refused, snapshot


async def test_a_crash_at_any_byte_of_an_append_loses_only_that_append(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    quarantine = tmp_path / "s.jsonl.quarantine"
    before, batch = lines(chain(0, 2)), lines(chain(2, 4))
    first_line = batch.index(b"\n")
    for cut in range(len(batch) + 1):
        file.write_bytes(before + batch[:cut])
        quarantine.unlink(missing_ok=True)
        store = JsonlSessionStore(tmp_path)
        survivors = 2 + (cut >= first_line) + (cut >= len(batch) - 1)
        assert await ids(store) == named(0, survivors)
        assert file.read_bytes() == before + batch[:cut]
        version = await store.append("s", [entry("next", "e1")], expected_version=survivors)
        assert version == survivors + 1
        torn = batch[:cut].rpartition(b"\n")[2]
        lost = torn if survivors == 2 + batch[:cut].count(b"\n") else b""
        assert (quarantine.read_bytes() if quarantine.exists() else b"") == (
            lost + b"\n" if lost else b""
        )
        await store.aclose()
        again = JsonlSessionStore(tmp_path)
        assert await ids(again) == [*named(0, survivors), "next"]
        assert await again.problems("s") == []
        await again.aclose()


def test_a_writer_that_is_killed_at_a_random_point_loses_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)  # noqa: S311 - the same points in every run
    module = "prism.core.testing._store_conformance._child"
    target = ["prism.core.stores:JsonlSessionStore", str(tmp_path)]

    async def stored(writer: str) -> list[str]:
        store = JsonlSessionStore(tmp_path)
        found = [one for one in await ids(store) if one.startswith(f"{writer}-")]
        assert [problem for problem in await store.problems("s") if problem.entry_id] == []
        await store.append("s", [entry(f"after {writer}")])
        await store.aclose()
        return found

    for attempt in range(5):
        writer = f"w{attempt}"
        with subprocess.Popen(
            [sys.executable, "-m", module, *target, "forever", writer, str(chance.randint(1, 40))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.stdin.write(b"go\n")
            process.stdin.flush()
            for _ in range(chance.randint(1, 60)):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            told = [int(line) for line in process.stdout.read().splitlines()[:-1]] or [0]
        found = anyio.run(stored, writer)
        assert len(found) >= told[-1]
        assert found == [f"{writer}-{number}" for number in range(len(found))]


@given(
    wrote=st.lists(st.integers(min_value=0, max_value=60), max_size=4),
    code=st.sampled_from([errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS]),
)
def test_a_write_that_fails_after_any_number_of_bytes_is_taken_back(
    tmp_path_factory: pytest.TempPathFactory, wrote: list[int], code: int
) -> None:
    directory = tmp_path_factory.mktemp("store")
    wanted = {errno.ENOSPC: "disk_full", errno.EDQUOT: "disk_full", errno.EIO: "io_error"}

    async def scenario() -> None:
        store = JsonlSessionStore(directory)
        await store.append("s", chain(0, 2))
        before = (directory / "s.jsonl").read_bytes()
        pieces = iter(wrote)

        def write(real: Callable[..., int], fd: int, data: bytes) -> int:
            size = next(pieces, None)
            if size is None:
                raise OSError(code, os.strerror(code))
            return real(fd, data[:size])

        with pytest.MonkeyPatch.context() as monkeypatch:
            patch_write(monkeypatch, write)
            with refused(wanted.get(code, "permission_denied")):
                await store.append("s", chain(2, 4), expected_version=2)
        assert (directory / "s.jsonl").read_bytes() == before
        assert await ids(store) == named(0, 2)
        assert await store.append("s", chain(2, 4), expected_version=2) == 4
        await store.aclose()
        assert (directory / "s.jsonl").read_bytes() == lines(chain(0, 4))

    anyio.run(scenario)


async def test_a_write_in_pieces_is_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlSessionStore(tmp_path)
    with monkeypatch.context() as patched:
        patch_write(patched, lambda real, fd, data: real(fd, data[:7]))
        assert await store.append("s", chain(0, 3)) == 3
    assert (tmp_path / "s.jsonl").read_bytes() == lines(chain(0, 3))
    await store.aclose()


@pytest.mark.parametrize("room", [0, 1, 100])
async def test_a_file_that_may_not_grow_keeps_what_it_has(tmp_path: Path, room: int) -> None:
    store = JsonlSessionStore(tmp_path)
    await store.append("s", chain(0, 2))
    size = (tmp_path / "s.jsonl").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
    try:
        with refused("disk_full"):
            await store.append("s", chain(2, 4))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "s.jsonl").stat().st_size == size
    assert await store.append("s", chain(2, 4), expected_version=2) == 4
    await store.aclose()


async def test_bytes_that_could_not_be_cut_off_are_read_like_those_of_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlSessionStore(tmp_path)
    await store.append("s", chain(0, 1))

    def write(real: Callable[..., int], fd: int, data: bytes) -> int:
        real(fd, data[: len(lines(chain(1, 2))) + 20])
        raise OSError(errno.EIO, "broken")

    def truncate(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patched:
        patch_write(patched, write)
        patched.setattr(os, "ftruncate", truncate)
        with refused("io_error"):
            await store.append("s", chain(1, 4))
    assert await ids(store) == named(0, 2)
    assert await store.append("s", chain(2, 4), expected_version=2) == 4
    assert await store.problems("s") == []
    await store.aclose()


async def test_a_whole_last_line_without_its_line_feed_is_completed(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(lines(chain(0, 3))[:-1])
    store = JsonlSessionStore(tmp_path)
    assert await ids(store) == named(0, 3)
    assert await store.append("s", chain(3, 4), expected_version=3) == 4
    assert file.read_bytes() == lines(chain(0, 4))
    await store.aclose()


async def test_a_torn_last_line_is_moved_aside_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    torn = lines(chain(1, 2))[:50]
    file.write_bytes(lines(chain(0, 1)) + torn)
    warnings: list[tuple[str, str]] = []
    store = JsonlSessionStore(tmp_path, on_warning=lambda code, text: warnings.append((code, text)))
    assert await ids(store) == ["e0"]
    assert warnings == []
    assert [problem.line for problem in await store.problems("s")] == [2]
    await store.append("s", chain(1, 2))
    assert [code for code, _ in warnings] == ["torn_line_quarantined"]
    assert "line 2" in warnings[0][1]
    quarantine = tmp_path / "s.jsonl.quarantine"
    assert quarantine.read_bytes() == torn + b"\n"
    assert quarantine.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes() == lines(chain(0, 2))
    assert [info.session_id for info in await store.sessions()] == ["s"]
    await store.aclose()


async def test_a_torn_line_that_cannot_be_moved_aside_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(lines(chain(0, 1)) + b"torn")
    store = JsonlSessionStore(tmp_path)

    def write(real: Callable[..., int], fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patch_write(patched, write)
        with refused("disk_full"):
            await store.append("s", chain(1, 2))
    assert file.read_bytes() == lines(chain(0, 1)) + b"torn"
    await store.append("s", chain(1, 2))
    assert file.read_bytes() == lines(chain(0, 2))
    await store.aclose()


async def test_reading_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store = JsonlSessionStore(directory)
    assert await store.sessions() == []
    assert await ids(store) == []
    await store.aclose()
    assert not directory.exists()

    directory.mkdir()
    (directory / "s.jsonl").write_bytes(lines(chain(0, 2)) + b'{"torn')
    (directory / "t.jsonl").write_bytes(lines(chain(0, 1, session_id="t"))[:-1])
    before = snapshot(directory)
    store = JsonlSessionStore(directory)
    assert len(await store.sessions()) == 2
    for session_id in ("s", "t"):
        assert await store.entry(session_id, "e0") is not None
        assert [one async for one in store.iter_entries(session_id)]
        await store.problems(session_id)
    await store.aclose()
    assert snapshot(directory) == before


async def test_a_failed_first_append_leaves_no_session(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path / "store")
    with refused("missing_parent"):
        await store.append("s", [entry("e1", "nobody")])
    assert not (tmp_path / "store").exists()
    await store.aclose()
