"""Every check CI runs: `uv run nox` runs the defaults, `uv run nox -l` lists all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "no"  # a reused venv hides an undeclared dependency
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["lint", "typing", "build", "smoke", "tests", "workspace"]

ROOT = Path(__file__).parent
DIST = ROOT / "dist"
SUPPORTED = ["3.11", "3.12", "3.13"]

os.environ["UV_PYTHON_DOWNLOADS"] = "never"
if pyenv := shutil.which("pyenv"):  # its shims answer only for versions that are switched on
    listed = subprocess.run(
        [pyenv, "versions", "--bare"], capture_output=True, text=True, check=True
    )
    os.environ["PYENV_VERSION"] = ":".join(listed.stdout.split())


def present(version: str) -> bool:
    """Whether the machine has this Python."""
    command = ["uv", "python", "find", "--no-project", version]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def pythons() -> list[str]:
    """The Pythons to test on: what the machine has.

    `PRISM_ALL_PYTHONS=1` demands every supported one: a missing Python then fails its sessions.
    A machine that has none of them tests on the one that runs this file, which is newer.
    """
    if os.environ.get("PRISM_ALL_PYTHONS") == "1":
        return SUPPORTED
    found = [version for version in SUPPORTED if present(version)]
    return found or [f"{sys.version_info.major}.{sys.version_info.minor}"]


PYTHONS = pythons()
TEST_GROUP = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test")

# Each package with its import package and the workspace wheels that it needs at run time.
PACKAGES: dict[str, tuple[str, list[str]]] = {
    "prism-core": ("prism.core", []),
    "prism-cli": ("prism.cli", ["prism-core"]),
    "prism-memory-llm": ("prism.memory.llm", ["prism-core"]),
    "prism-memory-observational": ("prism.memory.observational", ["prism-core"]),
}
each_package = nox.parametrize("package", [nox.param(name, id=name) for name in PACKAGES])


def wheels(package: str) -> list[str]:
    """The wheels of *package* and its workspace dependencies, by path.

    By path and never by name: a name could be answered by an index instead.
    """
    found: list[str] = []
    for name in (package, *PACKAGES[package][1]):
        (path,) = DIST.glob(f"{name.replace('-', '_')}-*.whl")
        found.append(str(path))
    return found


def sync(session: nox.Session) -> None:
    """Install the whole workspace, editable, as uv.lock has it."""
    session.run_install(
        "uv",
        "sync",
        "--locked",
        f"--python={session.virtualenv.location}",
        external=True,
        env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location},
    )


def constraints(session: nox.Session) -> str:
    """A file with every third-party version of uv.lock."""
    path = str(Path(session.create_tmp()) / "constraints.txt")
    session.run_install(
        "uv",
        "export",
        "--quiet",
        "--locked",
        "--all-packages",
        "--all-groups",
        "--no-hashes",
        "--no-emit-workspace",
        "--no-annotate",
        "--output-file",
        path,
        external=True,
    )
    return path


@nox.session(python=PYTHONS[0])
def lint(session: nox.Session) -> None:
    """Lockfile, format, lint, import layers."""
    session.run("uv", "lock", "--check", external=True)
    sync(session)
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("lint-imports")


@nox.session(python=PYTHONS[0])
def typing(session: nox.Session) -> None:
    """Strict type check of the sources, the tests and the public surface."""
    sync(session)
    python = f"--pythonpath={session.bin}/python"
    session.run("pyright", python)
    session.run("mypy")
    for package, (import_package, _) in PACKAGES.items():
        if len(list(ROOT.glob(f"packages/{package}/src/**/*.py"))) > 1:  # else it has no names yet
            session.run("pyright", python, "--ignoreexternal", "--verifytypes", import_package)


@nox.session(python=False)
def build(session: nox.Session) -> None:
    """Build every sdist, and every wheel from its sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    session.run("uv", "build", "--all-packages", "--out-dir", str(DIST), external=True)


@nox.session(python=PYTHONS, requires=["build"])
@each_package
def smoke(session: nox.Session, package: str) -> None:
    """Import one package where nothing is installed but what it declares."""
    session.install(*wheels(package))
    session.run("python", "-W", "error", "-Ic", f"import {PACKAGES[package][0]}")


@nox.session(python=PYTHONS, requires=["build"])
@each_package
def tests(session: nox.Session, package: str) -> None:
    """Test one package from its wheel, at the locked versions."""
    session.install(*wheels(package), *TEST_GROUP, "--constraint", constraints(session))
    session.run("pytest", f"packages/{package}/tests", *session.posargs)


@nox.session(python=PYTHONS[0], requires=["build"], default=False)
@each_package
def minimums(session: nox.Session, package: str) -> None:
    """Test one package at the oldest versions that it says it accepts."""
    # lowest-direct lowers what is asked for here, and leaves a wheel's own needs at their
    # newest: so ask for them by name.
    declared = nox.project.load_toml(f"packages/{package}/pyproject.toml")["project"]
    floors = [need for need in declared["dependencies"] if not need.startswith("prism-")]
    session.install(*wheels(package), *floors, *TEST_GROUP, "--resolution", "lowest-direct")
    session.run("pytest", f"packages/{package}/tests", *session.posargs)


@nox.session(python=PYTHONS[0])
def workspace(session: nox.Session) -> None:
    """Rules that span packages, on the editable workspace."""
    sync(session)
    session.run("pytest", "tests", *session.posargs)


@nox.session(python=PYTHONS[0], default=False)
def live(session: nox.Session) -> None:
    """Tests that talk to real servers, which it starts: `tests/live_servers.py` says which."""
    sync(session)
    session.run("python", "tests/live_servers.py", "pytest", "-m", "live", *session.posargs)
