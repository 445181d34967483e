"""The NDJSON log: events, counts, ids and errors; never contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import anyio

from prism.core import encode

MAX_LOG_BYTES: Final = 10 * 1024 * 1024
"""At this size the file is renamed to `<name>.1`, over an older one."""


async def log_event(path: str | None, row: dict[str, Any]) -> None:
    """Append a row to the file at *path*; a file that cannot be written stops nobody."""
    if path is not None:
        await anyio.to_thread.run_sync(_write, Path(path), encode(row) + b"\n")


def _write(path: Path, line: bytes) -> None:
    try:
        if path.exists() and path.stat().st_size + len(line) > MAX_LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
        with path.open("ab") as log:
            log.write(line)
    except OSError:
        return
