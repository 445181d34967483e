"""Print the table of `docs/performance.md`: `uv run python benchmarks/run.py [GROUP ...]`.

Each line compares with a hand-written job that does the same in the same run. Best of 20 where
one takes microseconds, of fewer where it takes seconds; bytecode compiled. Without a group all
are measured: core, cli, providers, scale_compaction, scale_stores, memory_llm,
memory_observational.
"""

from __future__ import annotations

import sys
from importlib import import_module

from measure import compile_sources, show

GROUPS = (
    "core",
    "cli",
    "providers",
    "scale_compaction",
    "scale_stores",
    "memory_llm",
    "memory_observational",
)

if __name__ == "__main__":
    chosen = sys.argv[1:] or list(GROUPS)
    if unknown := [name for name in chosen if name not in GROUPS]:
        sys.exit(f"Unknown group {unknown[0]!r}; one of {', '.join(GROUPS)}.")
    compile_sources()
    show([row for name in chosen for row in import_module(name).rows()])
