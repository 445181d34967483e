"""Imports public modules of the named packages and loads extensions; tells what else happened.

    python inertness_probe.py prism.core …

Everything is imported once before, so that only Prism's own modules run while it watches. The
output is JSON: `modules`, `extensions`, and `seen`, which is empty when importing and loading did
nothing but import and load.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import anyio

WATCHED = (
    "ctypes.dlopen",
    "fcntl.",
    "ftplib.",
    "glob.",
    "http.",
    "mmap.",
    "open",
    "os.",
    "pathlib.",
    "shutil.",
    "signal.",
    "smtplib.",
    "socket.",
    "sqlite3.",
    "subprocess.",
    "tempfile.",
    "urllib.",
    "webbrowser.",
)

# How the extensions of this repository are made, where the function is there.
FACTORIES: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "prism.memory.llm:llm_compaction_extension": lambda make: make(
        provider=of("prism.core.providers:MockProvider")(),
        model=of("prism.core:ModelConfig")(provider="mock", model="demo"),
    ),
    "prism.memory.observational:observational_memory_extension": lambda make: make(),
}


def of(target: str) -> Any:
    """What `module:name` leads to; `None` when there is none."""
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError:
        return None


def public_modules(package: str) -> list[str]:
    """The package and all modules in it that have no underscore in front."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, package
    found: list[str] = []
    for place in spec.submodule_search_locations or ():
        for path in sorted(Path(place).rglob("*.py")):
            parts = path.relative_to(place).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            if not any(part.startswith("_") for part in parts):
                found.append(".".join([package, *parts]))
    return found


def import_all(modules: list[str]) -> None:
    """Import them, and what their names are loaded from when they are named."""
    for name in modules:
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):
            getattr(module, public)


class Watcher:
    """Notes what the audit events and the environment tell, while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._audit)
        start = threading.Thread.start

        def noted_start(thread: threading.Thread) -> None:
            if self.on:
                self.note(f"start of thread {thread.name}")
            start(thread)

        threading.Thread.start = noted_start  # type: ignore[method-assign]

    def note(self, what: str) -> None:
        self.on = False
        frames = list(_frames())
        # The import system reads the modules themselves, and click asks for the language of its own
        # help texts when a command is defined.
        reads_modules = frames[0].startswith("<frozen importlib")
        asks_language = any(Path(frame).name.startswith("gettext.py:") for frame in frames)
        if not reads_modules and not asks_language:
            where = next((frame for frame in frames if "prism" in frame), frames[0])
            self.seen.append(f"{what} at {where}")
        self.on = True

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self.on and event.startswith(WATCHED):
            self.note(f"{event} {args!r:.200}")


def _frames() -> Iterator[str]:
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            yield f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    yield "?"


class RecordingEnvironment(MutableMapping[str, str]):
    def __init__(self, real: MutableMapping[str, str], watcher: Watcher) -> None:
        self._real = real
        self._watcher = watcher

    def _note(self, what: str) -> None:
        if self._watcher.on:
            self._watcher.note(f"environment: {what}")

    def __getitem__(self, key: str) -> str:
        self._note(f"read of {key}")
        return self._real[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._note(f"write of {key}")
        self._real[key] = value

    def __delitem__(self, key: str) -> None:
        self._note(f"delete of {key}")
        del self._real[key]

    def __iter__(self) -> Iterator[str]:
        self._note("listing")
        return iter(self._real)

    def __len__(self) -> int:
        self._note("count")
        return len(self._real)


def sample() -> Any:
    """An extension that contributes in every way that there is."""
    extensions = importlib.import_module("prism.core.extensions")
    core = importlib.import_module("prism.core")

    def setup(api: Any) -> None:
        api.tools.register("now", core.Tool(name="now", execute=print))
        api.store_factories.register("nowhere", print)
        api.use("tool_call", print)
        api.events.on("sample/topic", print)

    return extensions.SimpleExtension("sample", setup)


def all_extensions(packages: list[str]) -> list[Any]:
    extensions = importlib.import_module("prism.core.extensions")
    installed = importlib.metadata.entry_points(group=extensions.ENTRY_POINT_GROUP).names
    found = [sample(), *extensions.load_entry_points(sorted(installed))]
    for target, make in FACTORIES.items():
        if target.startswith(tuple(packages)) and (factory := of(target)) is not None:
            found.append(make(factory))
    return found


async def main(packages: list[str]) -> dict[str, Any]:
    modules = [name for package in packages for name in public_modules(package)]
    import_all(modules)
    await (
        importlib.import_module("prism.core.extensions")
        .ExtensionKernel()
        .load(all_extensions(packages))
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "prism"]:
        del sys.modules[name]

    watcher = Watcher()
    os.environ = RecordingEnvironment(os.environ, watcher)  # noqa: B003
    tasks, threads = anyio.get_running_tasks(), threading.enumerate()
    watcher.on = True
    import_all(modules)
    watcher.on = False
    extensions = all_extensions(packages)
    kernel = importlib.import_module("prism.core.extensions").ExtensionKernel()
    watcher.on = True
    await kernel.load(extensions)
    watcher.on = False
    watcher.seen += [f"task {each.name}" for each in anyio.get_running_tasks() if each not in tasks]
    watcher.seen += [f"thread {each.name}" for each in threading.enumerate() if each not in threads]
    return {"modules": modules, "extensions": list(kernel.loaded), "seen": watcher.seen}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(anyio.run(main, sys.argv[1:])))
