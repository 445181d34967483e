"""Rules about the repository itself: what no single package's tests can see."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prism.core._wire import WireStruct

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
NAMESPACES = {"prism", "prism/memory"}


def pyproject(package: Path) -> dict[str, Any]:
    return tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))


def sources(package: Path) -> list[Path]:
    return sorted((package / "src").rglob("*.py"))


def dotted(path: Path, src: Path) -> str:
    return ".".join(path.relative_to(src).with_suffix("").parts).removesuffix(".__init__")


def distributions(requirements: list[str]) -> set[str]:
    """The names in a list of requirements, without versions and extras."""
    return {re.split(r"[<>=!~;\[ ]", need, maxsplit=1)[0] for need in requirements}


def imports(path: Path, module: str) -> Iterator[str]:
    """Absolute names of everything *path* imports at any depth."""
    is_package = path.name == "__init__.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                keep = module.split(".")
                drop = node.level - is_package
                keep = keep[: len(keep) - drop] if drop else keep
                base = ".".join([*keep, *([node.module] if node.module else [])])
            else:
                base = node.module or ""
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imported_distributions(package: Path) -> set[str]:
    """The distributions that the sources of *package* import, named as their import packages."""
    src = package / "src"
    own = {dotted(path, src) for path in sources(package)}
    needed: set[str] = set()
    for path in sources(package):
        for name in imports(path, dotted(path, src)):
            if name.split(".")[0] == "prism":
                if not any(name == mod or name.startswith(f"{mod}.") for mod in own):
                    depth = 3 if name.startswith("prism.memory.") else 2
                    needed.add("-".join(name.split(".")[:depth]))
            elif name and name.split(".")[0] not in sys.stdlib_module_names:
                needed.add(name.split(".")[0])
    return needed


def public_packages() -> list[str]:
    """Every import package that a host may name: no part of it has an underscore in front."""
    names = {
        dotted(path, package / "src")
        for package in PACKAGES
        for path in sources(package)
        if path.name == "__init__.py"
    }
    return sorted(name for name in names if "._" not in name)


each_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)


@each_package
def test_namespace_directories_hold_no_files(package: Path) -> None:
    """One stray `prism/__init__.py` hides every other distribution's half of the namespace."""
    src = package / "src"
    stray = [
        path.relative_to(src)
        for namespace in NAMESPACES
        for path in (src / namespace).glob("*")
        if path.is_file()
    ]
    assert stray == []


@each_package
def test_every_import_package_is_typed(package: Path) -> None:
    src = package / "src"
    tops = {
        path.parent
        for path in src.rglob("__init__.py")
        if path.parent.parent.relative_to(src).as_posix() in NAMESPACES
    }
    assert tops
    assert [top for top in tops if not (top / "py.typed").is_file()] == []


@each_package
def test_every_import_is_declared(package: Path) -> None:
    """A dependency that arrives only through another package still has to be declared."""
    project = pyproject(package)["project"]
    extras = project.get("optional-dependencies", {})
    optional = distributions([need for extra in extras.values() for need in extra])
    undeclared = imported_distributions(package) - distributions(project["dependencies"]) - optional
    assert undeclared == set()


@each_package
def test_every_dependency_is_imported(package: Path) -> None:
    if len(sources(package)) == 1:
        pytest.skip("holds only its namespace, and declares what it will stand on")
    declared = distributions(pyproject(package)["project"]["dependencies"])
    assert declared - imported_distributions(package) == set()


@each_package
def test_a_sibling_is_accepted_within_its_minor_version(package: Path) -> None:
    """uv ignores the ranges between members, so nothing else notices one that is left behind."""
    versions = {path.name: pyproject(path)["project"]["version"] for path in PACKAGES}
    project = pyproject(package)["project"]
    extras = project.get("optional-dependencies", {})
    for need in [*project["dependencies"], *(need for extra in extras.values() for need in extra)]:
        (name,) = distributions([need])
        if name in versions and name != package.name:
            major, minor, _ = versions[name].split(".")
            assert need == f"{name}>={major}.{minor},<{major}.{int(minor) + 1}"


@pytest.mark.parametrize("distribution", ["prism-core", "prism-cli"])
def test_the_module_says_the_version_of_its_distribution(distribution: str) -> None:
    module = importlib.import_module(distribution.replace("-", "."))
    version = pyproject(ROOT / "packages" / distribution)["project"]["version"]
    assert module.__version__ == version


@each_package
def test_every_distribution_carries_its_papers(package: Path) -> None:
    license_text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (package / "LICENSE").read_text(encoding="utf-8") == license_text
    assert "\n## Unreleased\n" in (package / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", public_packages())
def test_all_is_the_public_surface(name: str) -> None:
    """`__init__` re-exports and nothing else, so what it binds is what it promises."""
    module = importlib.import_module(name)
    promised: list[str] = module.__all__
    assert len(promised) == len(set(promised))
    assert [member for member in promised if not hasattr(module, member)] == []
    bound = {
        member
        for member, value in vars(module).items()
        if not member.startswith("_")
        and not inspect.ismodule(value)
        and type(value).__module__ != "__future__"
    }
    assert bound - set(promised) == set()


@each_package
def test_modules_of_public_packages_are_private(package: Path) -> None:
    """A public name then has one place to be imported from: its package."""
    src = package / "src"
    public = [
        dotted(path, src)
        for path in sources(package)
        if "._" not in dotted(path, src) and path.name not in {"__init__.py", "__main__.py"}
    ]
    assert public == []


def test_importing_core_loads_nothing_that_a_run_may_not_need() -> None:
    heavy = ["click", "httpx2", "keyring", "platformdirs", "sqlite3", "trio", "prism.cli"]
    probe = f"import sys, prism.core; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", probe], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def wire_structs() -> list[type[msgspec.Struct]]:
    """Every struct of the wire, those that other modules derive included."""
    for package in PACKAGES:
        for path in sources(package):
            if "WireStruct" in path.read_text(encoding="utf-8"):
                importlib.import_module(dotted(path, package / "src"))
    found: list[type[msgspec.Struct]] = []
    todo: list[type[msgspec.Struct]] = [WireStruct]
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo += cls.__subclasses__()
    return found


@pytest.mark.parametrize("cls", wire_structs(), ids=lambda c: f"{c.__module__}.{c.__qualname__}")
def test_wire_structs_are_frozen_and_keyword_only(cls: type[msgspec.Struct]) -> None:
    """`kw_only` is not inherited and checkers do not inherit `frozen`: each class says both."""
    assert cls.__struct_config__.frozen
    kinds = {p.kind for p in inspect.signature(cls).parameters.values()}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY}
    msgspec.json.Decoder(cls)  # every annotation resolves at run time


SCOPES = {
    "create_task_group",
    "move_on_after",
    "move_on_at",
    "fail_after",
    "fail_at",
    "CancelScope",
}


def yields_inside_scope(tree: ast.AST) -> Iterator[int]:
    """Lines where an async generator yields with a task group or cancel scope open."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.With | ast.AsyncWith):
            continue
        calls = {
            call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            for item in node.items
            for call in ast.walk(item.context_expr)
            if isinstance(call, ast.Call)
        }
        if calls & SCOPES:
            yield from (
                inner.lineno
                for statement in node.body
                for inner in ast.walk(statement)
                if isinstance(inner, ast.Yield)
            )


@pytest.mark.parametrize(
    "path",
    sorted(ROOT.glob("packages/*/tests/**/*.py")),
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_no_fixture_holds_a_scope_across_its_yield(path: Path) -> None:
    """On trio a crash in such a task group hangs the whole run (agronholm/anyio#805)."""
    assert list(yields_inside_scope(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_the_scope_check_catches_a_violation() -> None:
    source = "async def f():\n    async with anyio.create_task_group() as tg:\n        yield tg\n"
    assert list(yields_inside_scope(ast.parse(source))) == [3]
