"""Nothing that Prism ships does anything when it is imported or loaded, in any package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PROBE: Final = ROOT / "packages/prism-core/tests/extensions/inertness_probe.py"
PACKAGES: Final = ("prism.core", "prism.cli", "prism.memory.llm", "prism.memory.observational")


def test_importing_every_public_module_and_loading_every_extension_does_nothing_else() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", str(PROBE), *PACKAGES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    assert report["seen"] == []
    assert {*PACKAGES} <= {*report["modules"]}
