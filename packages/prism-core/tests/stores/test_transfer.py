"""Whole sessions from one store into another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from prism.core._contracts import SessionStore
from prism.core._errors import DecodeError, SessionExists, SessionNotFound
from prism.core._wire import OpaqueEntry, opaque_entry, parse_json
from prism.core.stores import (
    JsonlSessionStore,
    MemorySessionStore,
    SqliteSessionStore,
    export_session,
    import_session,
    read_session_file,
)

from .helpers import chain, entry, ids, lines, named, refused

STRANGE = (
    b'{"sessionId": "s", "kind": "message", "id": "e2", "parentId": "e1", "timestamp": "t",'
    b' "new": {"n": 1.50, "big": 1180591620717411303424, "text": "\\ud83d \\u2028"},\n'
    b' "message": {"role": "user", "content": [{"type": "of tomorrow"}], "more": null}}'
)
UNKNOWN = (
    b'{"kind":"of tomorrow","id":"e3","sessionId":"s","parentId":"e2","timestamp":"t","x":1.50}'
)


def stores(directory: Path) -> list[Callable[[], SessionStore]]:
    return [
        MemorySessionStore,
        lambda: JsonlSessionStore(directory / "files"),
        lambda: SqliteSessionStore(directory / "db"),
    ]


async def exported(store: SessionStore, session_id: str = "s") -> list[bytes]:
    return [line async for line in export_session(store, session_id)]


@pytest.mark.parametrize("source", range(3))
@pytest.mark.parametrize("target", range(3))
async def test_a_session_moves_between_any_two_stores_unchanged(
    tmp_path: Path, source: int, target: int
) -> None:
    one = stores(tmp_path / "one")[source]()
    two = stores(tmp_path / "two")[target]()
    await one.append("s", [*chain(0, 2), opaque_entry(STRANGE), opaque_entry(UNKNOWN)])
    assert await import_session(two, export_session(one, "s")) == "s"
    before, after = await one.entries("s"), await two.entries("s")
    assert [parse_json(e.raw) for e in before] == [parse_json(e.raw) for e in after]
    assert parse_json(after[2].raw) == parse_json(STRANGE)
    assert isinstance(after[3].entry, OpaqueEntry)
    await one.aclose()
    await two.aclose()


async def test_another_id_changes_the_session_and_nothing_else() -> None:
    store = MemorySessionStore()
    await store.append("s", [*chain(0, 2), opaque_entry(STRANGE), opaque_entry(UNKNOWN)])
    assert await import_session(store, await exported(store), session_id="t/2") == "t/2"
    for old, new in zip(await store.entries("s"), await store.entries("t/2"), strict=True):
        assert parse_json(new.raw) == {**parse_json(old.raw), "sessionId": "t/2"}
        assert (new.position, new.entry.id) == (old.position, old.entry.id)
    assert b'"x":1.50' in (await store.entries("t/2"))[3].raw
    assert await ids(store) == named(0, 4)


async def test_each_line_is_one_line(tmp_path: Path) -> None:
    store = MemorySessionStore()
    await store.append("s", [*chain(0, 2), opaque_entry(STRANGE)])
    text = b"".join(await exported(store))
    assert text.count(b"\n") == 3
    path = tmp_path / "session.jsonl"
    path.write_bytes(text)
    content = await read_session_file(path)
    assert [e.entry.id for e in content.sessions["s"]] == named(0, 3)
    assert content.problems == []
    with path.open("rb") as file:
        await import_session(store, file, session_id="from a file")
    with path.open(encoding="utf-8") as file:
        await import_session(store, file, session_id="from a text file")
    assert await ids(store, "from a text file") == named(0, 3)


async def test_a_taken_id_is_refused() -> None:
    store = MemorySessionStore()
    await store.append("s", chain(0, 1))
    await store.append("t", chain(0, 3, session_id="t"))
    for target in ("s", None):
        with refused("session_exists", SessionExists):
            await import_session(store, await exported(store), session_id=target)
    with refused("session_exists", SessionExists):
        await import_session(store, await exported(store), session_id="t")
    assert await ids(store, "t") == named(0, 3)


async def test_an_unknown_session_is_not_exported() -> None:
    with refused("session_not_found", SessionNotFound):
        await exported(MemorySessionStore())


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (b"", "invalid_value", ""),
        (b"\n \n", "invalid_value", ""),
        (lines(chain(0, 1)) + b"{", "parse_error", "Line 2"),
        (lines(chain(0, 1)) + b"\n{}\n", "invalid_value", "Line 3"),
        (lines([*chain(0, 1), entry("x", session_id="t")]), "invalid_value", "Line 2"),
    ],
)
async def test_what_is_no_session_is_refused_whole(text: bytes, code: str, line: str) -> None:
    store = MemorySessionStore()
    with pytest.raises(DecodeError) as caught:
        await import_session(store, text.splitlines(keepends=True))
    assert caught.value.code == code
    assert caught.value.message.startswith(line)
    with refused("missing_parent"):
        await import_session(store, lines(chain(1, 3)).splitlines())
    assert await store.sessions() == []


@given(cut=st.integers(min_value=0, max_value=2_000))
async def test_a_torn_export_is_refused_or_a_shorter_session(cut: int) -> None:
    text = lines(chain(0, 8))[:cut]

    async def stream() -> AsyncIterator[bytes]:
        for line in text.split(b"\n"):
            yield line

    store = MemorySessionStore()
    try:
        await import_session(store, stream())
    except DecodeError:
        assert await store.sessions() == []
    else:
        found = await ids(store)
        assert found == named(0, len(found))
