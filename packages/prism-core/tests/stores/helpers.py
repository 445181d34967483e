"""What the tests of stores share."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from prism.core._contracts import SessionStore
from prism.core._errors import PrismError, StoreError
from prism.core._wire import Message, MessageEntry, TextBlock, encode_entry


def entry(
    entry_id: str,
    parent_id: str | None = None,
    *,
    session_id: str = "s",
    text: str = "Hé 日本 😀",
    role: str = "user",
) -> MessageEntry:
    return MessageEntry(
        id=entry_id,
        session_id=session_id,
        timestamp="2026-01-02T03:04:05.678Z",
        parent_id=parent_id,
        message=Message(role=role, content=[TextBlock(text=text)]),
    )


def chain(
    start: int, stop: int, *, session_id: str = "s", text: str = "Hé 😀"
) -> list[MessageEntry]:
    """Entries `e{start}` to `e{stop - 1}`, each under the one before it."""
    return [
        entry(f"e{n}", f"e{n - 1}" if n else None, session_id=session_id, text=text)
        for n in range(start, stop)
    ]


def lines(entries: Sequence[MessageEntry]) -> bytes:
    return b"".join(encode_entry(one) + b"\n" for one in entries)


async def ids(store: SessionStore, session_id: str = "s") -> list[str]:
    return [one.entry.id for one in await store.entries(session_id)]


def named(start: int, stop: int) -> list[str]:
    return [f"e{n}" for n in range(start, stop)]


@contextmanager
def refused(code: str, kind: type[PrismError] = StoreError) -> Generator[None]:
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.code == code


def snapshot(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Name, content and time of change of every file."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def open_files() -> int:
    """How many descriptors this process has open; 0 where the system does not tell."""
    listing = Path("/proc/self/fd")
    return len(list(listing.iterdir())) if listing.exists() else 0


def patch_write(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[Callable[..., int], int, bytes], int]
) -> None:
    """Replace `os.write` for all but the standard streams."""
    real = os.write

    def patched(fd: int, data: bytes) -> int:
        return real(fd, data) if fd < 3 else write(real, fd, data)

    monkeypatch.setattr(os, "write", patched)
