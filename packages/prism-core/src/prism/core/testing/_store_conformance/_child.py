"""The process that a case starts: it opens the place, waits for a word, and appends.

Arguments: a callable as `module:name`, the text it is called with, the job, the writer's name, a
count. It writes `ready`, reads one line, and then does its job:

- `race`: appends `{writer}-{version}` for the next version until the session has *count* entries;
  writes how often it won.
- `land`: appends *count* entries without a version; writes `done`.
- `forever`: appends batches of *count* entries; after each, writes how many are acknowledged.
"""

from __future__ import annotations

import importlib
import inspect
import sys

import anyio

from prism.core._contracts import SessionStore
from prism.core._errors import StoreConflict
from prism.core.testing._store_conformance._harness import message


def _say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _race(store: SessionStore, writer: str, count: int) -> None:
    won = 0
    while (version := len(await store.entries("s"))) < count:
        try:
            await store.append("s", [message(f"{writer}-{version}")], expected_version=version)
            won += 1
        except StoreConflict:
            continue
    _say(won)


async def _land(store: SessionStore, writer: str, count: int) -> None:
    for number in range(count):
        await store.append("s", [message(f"{writer}-{number}")])
    _say("done")


async def _forever(store: SessionStore, writer: str, count: int) -> None:
    number = 0
    while True:
        batch = [message(f"{writer}-{number + step}", text="x" * 500) for step in range(count)]
        await store.append("s", batch)
        number += count
        _say(number)


async def main(arguments: list[str]) -> None:
    """Do one job."""
    target, argument, job, writer, count = arguments
    module, _, name = target.partition(":")
    opened = getattr(importlib.import_module(module), name)(argument)
    store: SessionStore = await opened if inspect.isawaitable(opened) else opened
    _say("ready")
    sys.stdin.readline()
    await {"race": _race, "land": _land, "forever": _forever}[job](store, writer, int(count))
    await store.aclose()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
