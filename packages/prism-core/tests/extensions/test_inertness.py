from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROBE = Path(__file__).with_name("inertness_probe.py")


def probe(script: Path, *packages: str) -> dict[str, Any]:
    result = subprocess.run(
        [sys.executable, "-W", "error", str(script), *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_importing_the_core_and_loading_extensions_starts_opens_and_reads_nothing() -> None:
    report = probe(PROBE, "prism.core")
    assert report["seen"] == []
    assert {"prism.core", "prism.core.providers", "prism.core.extensions"} <= {*report["modules"]}
    assert "sample" in report["extensions"]


@pytest.mark.parametrize(
    ("deed", "what"),
    [
        ("import os; os.environ.get('PRISM')", "environment: read of PRISM"),
        ("import os; os.getenv('PRISM')", "environment: read of PRISM"),
        ("import os; dict(os.environ)", "environment: "),
        ("open(__file__).close()", "open "),
        ("import os; os.listdir('.')", "os.listdir "),
        ("import socket; socket.socket().close()", "socket."),
        ("import threading; threading.Thread(target=print).start()", "start of thread "),
        ("import subprocess, sys; subprocess.run([sys.executable, '-c', ''])", "subprocess.Popen "),
    ],
)
def test_the_probe_sees_what_a_module_does_when_it_is_imported(
    deed: str, what: str, tmp_path: Path
) -> None:
    package = tmp_path / "prism_naughty"
    package.mkdir()
    (package / "__init__.py").write_text(f"{deed}\n", encoding="utf-8")
    script = tmp_path / PROBE.name
    text = PROBE.read_text(encoding="utf-8").replace('== "prism"', 'in {"prism", "prism_naughty"}')
    # The naughty package takes the part of Prism's own.
    script.write_text(text, encoding="utf-8")
    report = probe(script, "prism_naughty")
    assert any(each.startswith(what) for each in report["seen"]), report["seen"]
