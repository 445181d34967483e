"""`prism sessions …`: what a store holds, for people and for programs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

import anyio
import click

from prism.cli._host import SQLITE_PREFIX, UsageProblem, describe, open_store
from prism.cli._main import EXIT_FAILED, EXIT_USAGE, complain
from prism.cli._rpc.views import session_fields
from prism.cli._streams import EXIT_READER_GONE
from prism.cli._tree import draw, printable, shorten
from prism.core import (
    PrismError,
    SessionContext,
    SessionEntry,
    SessionNotFound,
    TreeNode,
    encode_ascii,
    list_branches,
    rebuild_session_context,
)
from prism.core.stores import SessionInfo, SessionStore, export_session

LONG_WORK_ENTRIES: Final = 2_000
"""Entries from which on a person waits long enough to want to see why."""

MEMORY_PACKAGE: Final = "prism.memory.observational"
"""Loaded by name, because this distribution does without it."""

_MIN_WIDTH: Final = 60


def run(store: str, work: Callable[[SessionStore], Awaitable[None]]) -> int:
    """Open a store that is there, work with it, and close it; the exit status."""
    if not Path(store.removeprefix(SQLITE_PREFIX)).exists():
        complain(f"--store {store}: there is no such store.")
        return EXIT_USAGE
    try:
        anyio.run(partial(_with_store, store, work))
        sys.stdout.flush()
    except UsageProblem as error:
        complain(str(error))
        return EXIT_USAGE
    except BrokenPipeError:
        # Nothing is left to be flushed at exit into a pipe that nobody reads.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_READER_GONE
    except (PrismError, OSError) as error:
        complain(describe(error))
        return EXIT_FAILED
    return 0


async def _with_store(where: str, work: Callable[[SessionStore], Awaitable[None]]) -> None:
    store = open_store(where)
    try:
        await work(store)
    finally:
        await store.aclose()


async def list_sessions(store: SessionStore, *, as_json: bool) -> None:
    """Print a line for each session."""
    found = await store.sessions()
    if as_json:
        _print_json([session_fields(info) for info in found])
        return
    if not found:
        click.echo("The store holds no session.", err=True)
        return
    ids = [printable(info.session_id) for info in found]
    wide = max(len(name) for name in ids)
    room = max(_MIN_WIDTH, shutil.get_terminal_size().columns) - wide - 48
    for name, info in zip(ids, found, strict=True):
        counts = f"{info.entry_count:>6} entries {info.message_count:>6} messages"
        last = (info.last_activity_at or "")[:16].replace("T", " ")
        first = shorten(info.first_message or "", max(20, room))
        click.echo(f"{name:{wide}} {counts}  {last:16}  {first}".rstrip())


async def show_session(
    store: SessionStore, session_id: str, *, as_json: bool, memory: bool = False
) -> None:
    """Print the tree of a session, with branches, labels and compactions; or its memory."""
    show = partial(_show_memory, load_memory()) if memory else _show_tree
    info = await _find(store, session_id)
    entries: list[SessionEntry] = []
    with progress(f"Reading {session_id}", info.entry_count) as step:
        async for stored in store.iter_entries(session_id):
            entries.append(stored.entry)
            step()
    show(info, entries, as_json=as_json)


def _context(entries: list[SessionEntry]) -> SessionContext:
    """The branch on which a session stands; what is wrong with it is said."""
    context = rebuild_session_context(entries)
    for problem in context.warnings:
        complain(f"warning: {problem.message}")
    return context


def load_memory() -> Any:
    """The package of observational memory, which need not be installed.

    Raises:
        UsageProblem: It is not.
    """
    try:
        return import_module(MEMORY_PACKAGE)
    except ModuleNotFoundError as error:
        if error.name is None or not MEMORY_PACKAGE.startswith(error.name):
            raise
        raise UsageProblem(
            "--memory needs the package prism-memory-observational: "
            "install prism-core[memory-observational]."
        ) from None


def _show_memory(
    package: Any, info: SessionInfo, entries: list[SessionEntry], *, as_json: bool
) -> None:
    """What is remembered on the branch on which the session stands."""
    context = _context(entries)
    status = package.memory_status(context.entries)
    found = package.build_projection(context.entries)
    if as_json:
        memory = {
            "status": status,
            "reflections": found.reflections,
            "observations": found.observations,
        }
        leaf = {} if context.leaf_id is None else {"leafId": context.leaf_id}
        _print_json(session_fields(info) | leaf | {"memory": memory})
        return
    text = package.status_text(status)
    text += "\n\n" + package.view_text(found.observations, found.reflections, "recorded")
    for line in text.split("\n"):
        click.echo(printable(line))


def _show_tree(info: SessionInfo, entries: list[SessionEntry], *, as_json: bool) -> None:
    nodes = TreeNode.list_of(entries)
    branches = list_branches(entries)
    leaf_id = _context(entries).leaf_id
    by_id = {entry.id: entry for entry in entries}
    if as_json:
        _print_json(
            {
                **session_fields(info),
                "leafId": leaf_id,
                "branches": [
                    {"leafId": branch.leaf_id, "entryCount": branch.entry_count}
                    | ({} if branch.label is None else {"label": branch.label})
                    for branch in branches
                ],
                "entries": [_node_fields(node, by_id.get(node.id)) for node in nodes],
            }
        )
        return
    size = f"{_count(info.entry_count, 'entry', 'entries')}, "
    size += _count(len(branches), "branch", "branches")
    since = f", {info.created_at} to {info.last_activity_at}" if info.created_at else ""
    click.echo(f"Session {printable(info.session_id)}: {size}{since}")
    width = max(_MIN_WIDTH, shutil.get_terminal_size().columns)
    for line in draw(nodes, by_id, leaf_id=leaf_id, width=width):
        click.echo(line)
    if leaf_id is None:
        click.echo("The session stands at the empty root.")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _node_fields(node: TreeNode, entry: SessionEntry | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": node.id, "kind": node.kind}
    if node.parent_id is not None:
        fields["parentId"] = node.parent_id
    if node.label is not None:
        fields["label"] = node.label
    if entry is not None:
        fields["entry"] = entry
    return fields


async def export(store: SessionStore, session_id: str, *, output: str | None) -> None:
    """Write a session's entries as they are stored, one a line."""
    info = await _find(store, session_id)
    with _writing(output) as file, progress(f"Exporting {session_id}", info.entry_count) as step:
        async for line in export_session(store, session_id):
            file.write(line)
            step()
        file.flush()


async def _find(store: SessionStore, session_id: str) -> SessionInfo:
    for info in await store.sessions():
        if info.session_id == session_id:
            return info
    raise SessionNotFound(
        f"The store holds no session {session_id!r}; `prism sessions list` shows what it holds."
    )


def _writing(path: str | None) -> AbstractContextManager[BinaryIO]:
    """A new file, or stdout, which stays open."""
    if path is None:
        return nullcontext(sys.stdout.buffer)
    try:
        return Path(path).open("xb")
    except FileExistsError:
        raise UsageProblem(f"{path} is there already; name another file.") from None


@contextmanager
def progress(label: str, length: int) -> Generator[Callable[[], None]]:
    """A bar on stderr, when that is a terminal and the work is long."""
    if length < LONG_WORK_ENTRIES or not sys.stderr.isatty():
        yield lambda: None
        return
    steps = length // 100
    with click.progressbar(
        length=length, label=label, file=sys.stderr, update_min_steps=steps
    ) as bar:
        yield partial(bar.update, 1)


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(encode_ascii(value) + b"\n")
