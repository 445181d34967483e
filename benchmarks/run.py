"""Print the table of `docs/performance.md`: `uv run python benchmarks/run.py`.

Each line compares with a hand-written loop that does the same job in the same run. Best of 20,
bytecode compiled.
"""

from __future__ import annotations

import cli
import core
from measure import compile_sources, show

if __name__ == "__main__":
    compile_sources()
    show([*core.rows(), *cli.rows()])
