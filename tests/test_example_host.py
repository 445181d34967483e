"""`examples/host/` wires in each part, and works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

EXPECTED: Final = """\
zoo 1.0.0 offers 6 things.
The dietician cost 0.0050 USD.
May it feed {'animal': 'otter', 'kg': 60}? It opens a cage.
The otters are fed. (completed)
The store knows the key: False
The dietician's session has 5 entries.
Report(animal='otter', kg=6.0, fed=True)
Without an end: limit_reached
5 calls: dietician, feed, stock, stock, stock
All in all: 0.0200 USD
"""


def test_the_example_host_does_what_it_says(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "host" / "main.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.stderr, result.returncode) == ("", 0)
    assert result.stdout == EXPECTED
