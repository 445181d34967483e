"""Every snippet of the READMEs and of `docs/` works as it stands.

A fenced `python` block runs as a module of its own; `await` at its top level is allowed, and then
runs on asyncio. A fenced `sh` block that begins with the `prism` command runs in a shell, and has
to exit with 0. Each runs in an empty directory. A comment `<!-- no-run: reason -->` in front of a
block keeps it from running: Python is then only compiled.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("packages/*/README.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
COMMAND_TIMEOUT: Final = 60

FENCE = re.compile(
    r"(?:^[ \t]*<!-- no-run: (?P<reason>[^\n]+?) -->[ \t]*\n(?:[ \t]*\n)*)?"
    r"^(?P<indent>[ \t]*)(?P<ticks>`{3,})(?P<language>[^\s`]*)[^\n`]*\n"
    r"(?P<body>.*?)"
    r"^[ \t]*(?P=ticks)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
# What a reader without uv or outside an environment types before the command itself.
PREFIX = re.compile(r"^(?:pip install uv && )?(?:uv run )?(?=prism )", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Snippet:
    page: str
    line: int
    language: str
    body: str
    no_run: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets_of(text: str, page: str) -> list[Snippet]:
    return [
        Snippet(
            page=page,
            line=text.count("\n", 0, match.start("body")) + 1,
            language=match["language"],
            body=textwrap.dedent(match["body"]),
            no_run=match["reason"],
        )
        for match in FENCE.finditer(text)
    ]


def all_snippets() -> list[Snippet]:
    return [
        snippet
        for page in PAGES
        for snippet in snippets_of(
            page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
        )
    ]


def compiled(snippet: Snippet) -> types.CodeType:
    """The snippet as module code, with the line numbers of its page."""
    return compile(
        "\n" * (snippet.line - 1) + snippet.body,
        snippet.page,
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )


def execute(snippet: Snippet) -> dict[str, Any]:
    """Run a Python snippet as a module of its own, and return what it defined."""
    # A real module, since annotations are resolved in the module that a class or function names.
    module = types.ModuleType("snippet")
    code = compiled(snippet)
    run: Callable[[], Any] = types.FunctionType(code, vars(module))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        if code.co_flags & inspect.CO_COROUTINE:
            anyio.run(run, backend="asyncio")
        else:
            run()
    return vars(module)


def script(snippet: Snippet) -> str | None:
    """What a shell snippet asks the installed `prism` to do; None if it is about other commands."""
    bare = PREFIX.sub("", snippet.body)
    return bare if bare.startswith("prism ") else None


SNIPPETS = all_snippets()
PYTHON = [snippet for snippet in SNIPPETS if snippet.language == "python"]
SHELL = [
    snippet
    for snippet in SNIPPETS
    if snippet.language == "sh" and snippet.no_run is None and script(snippet) is not None
]


@pytest.mark.parametrize("snippet", PYTHON, ids=str)
def test_python_snippet(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if snippet.no_run is None:
        execute(snippet)
    else:
        compiled(snippet)


@pytest.mark.parametrize("snippet", SHELL, ids=str)
def test_shell_snippet(snippet: Snippet, tmp_path: Path) -> None:
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
    }
    result = subprocess.run(
        ["sh", "-euc", script(snippet) or ""],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_a_snippet_is_found_with_its_line_and_its_reason() -> None:
    page = """\
- In a list:

  ```python
  if True:
      x = 1
  ```
<!-- no-run: needs a key -->
```sh
prism -p Hi
```
````md
```python
not a snippet
```
````
"""
    found = snippets_of(page, "page.md")
    assert [(s.line, s.language, s.no_run) for s in found] == [
        (4, "python", None),
        (9, "sh", "needs a key"),
        (12, "md", None),
    ]
    assert found[0].body == "if True:\n    x = 1\n"


def test_a_snippet_may_await_and_its_annotations_resolve() -> None:
    source = (
        "from __future__ import annotations\n"
        "import anyio, msgspec\n"
        "class Inner(msgspec.Struct): ...\n"
        "class Outer(msgspec.Struct):\n"
        "    inner: Inner\n"
        "await anyio.sleep(0)\n"
        "outer = msgspec.json.decode(b'{\"inner\": {}}', type=Outer)\n"
    )
    (snippet,) = snippets_of(f"```python\n{source}```\n", "page.md")
    assert type(execute(snippet)["outer"]).__name__ == "Outer"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("pip install uv && uv run prism -p Hi\n", "prism -p Hi\n"),
        ("uv run prism --version\nprism --help\n", "prism --version\nprism --help\n"),
        ("pip install uv && uv run nox\n", None),
    ],
)
def test_a_shell_snippet_runs_only_the_prism_command(body: str, expected: str | None) -> None:
    (snippet,) = snippets_of(f"```sh\n{body}```\n", "page.md")
    assert script(snippet) == expected
