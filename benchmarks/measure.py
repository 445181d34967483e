"""Timing, and the table that it ends in."""

from __future__ import annotations

import asyncio
import compileall
import gc
import subprocess
import sys
import sysconfig
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

REPEATS = 20
TIMED_LIBRARIES = ("anyio", "msgspec", "click", "idna", "sniffio", "typing_extensions", "httpx2")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: a ratio, or a size, and what it may be."""

    name: str
    ours: float
    bare: float
    unit: str
    limit: float

    @property
    def ratio(self) -> float:
        """How many times the bare figure ours is; sizes stand for themselves."""
        return self.ours / self.bare if self.bare else self.ours

    @property
    def holds(self) -> bool:
        """Whether it is within its limit."""
        return self.ratio <= self.limit


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    print(f"{'':54} {'ours':>12} {'bare':>12} {'ratio':>7} {'limit':>6}")
    for row in rows:
        verdict = "" if row.holds else "  over"
        print(
            f"{row.name:54} {row.ours:>9.2f} {row.unit:2} {row.bare:>9.2f} {row.unit:2}"
            f" {row.ratio:>7.2f} {row.limit:>6.2f}{verdict}"
        )


def best_cpu(job: Callable[[], Awaitable[None]], repeats: int = REPEATS) -> float:
    """Least CPU seconds of *job* on asyncio, out of *repeats*."""

    async def once() -> float:
        gc.collect()
        start = time.process_time()
        await job()
        return time.process_time() - start

    return min(asyncio.run(once()) for _ in range(repeats))


def best_pair(
    ours: Callable[[], Awaitable[None]],
    bare: Callable[[], Awaitable[None]],
    repeats: int = REPEATS,
) -> tuple[float, float]:
    """Least CPU seconds of two jobs, taken in turn so that both meet the same machine."""
    pairs = [(best_cpu(ours, 1), best_cpu(bare, 1)) for _ in range(repeats)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def best_process(arguments: Sequence[str], repeats: int = REPEATS) -> float:
    """Least wall seconds of a whole process."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(arguments, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def python(code: str) -> list[str]:
    """The command that runs *code* in this interpreter."""
    return [sys.executable, "-c", code]


def compile_sources() -> None:
    """Write the bytecode of everything that is timed, also where Python was told not to."""
    compileall.compile_dir(Path(__file__).parent.parent / "packages", quiet=2)
    site = Path(sysconfig.get_path("purelib"))
    for name in TIMED_LIBRARIES:
        compileall.compile_dir(site / name, quiet=2)
        if (site / f"{name}.py").is_file():
            compileall.compile_file(site / f"{name}.py", quiet=2)
