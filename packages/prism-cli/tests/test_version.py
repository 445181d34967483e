import importlib.metadata
import subprocess
import sys

import prism.cli

PROBE = """
import sys
import prism.cli
sys.argv = ["prism", "--version"]
prism.cli.main()
heavy = {"click", "msgspec", "anyio", "prism.core"} & set(sys.modules)
sys.exit(f"imported for nothing: {heavy}" if heavy else 0)
"""


def test_the_version_is_the_distributions() -> None:
    assert prism.cli.__version__ == importlib.metadata.version("prism-cli")


def test_version_answers_without_loading_the_runtime() -> None:
    probe = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE], capture_output=True, text=True, check=False
    )
    assert (probe.stdout, probe.stderr) == (f"prism {prism.cli.__version__}\n", "")
