"""Two processes on one session: the second gets a conflict, reloads, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prism.core import AgentFinished, StoreConflict
from prism.core._contracts import SessionStore
from prism.core.providers import done, text_delta
from prism.core.stores import JsonlSessionStore, SqliteSessionStore

from .harness import Stage, WatchedStore, of, provider_of, said, sent

# It does what it is told, a line for each thing, and answers each with a line.
CHILD = """
import json
import sys
import anyio
from prism.core import Agent, ModelConfig, StoreConflict
from prism.core import stores
from prism.core.providers import MockProvider, done, text_delta

async def main(kind, place):
    store = getattr(stores, kind)(place)
    agent = Agent(model=ModelConfig(provider="mock", model="m"),
                  provider=MockProvider([text_delta("from the child"), done()]), store=store)
    session = agent.session("s1")
    for line in sys.stdin:
        what, *words = json.loads(line)
        try:
            if what == "run":
                answer = [(await session.run(words[0])).text]
            elif what == "race":
                answer = await race(session, *words)
            else:
                answer = [entry.id for entry in await getattr(session, what)() or []]
        except StoreConflict as error:
            answer = [error.code]
        print(json.dumps(answer), flush=True)
    await store.aclose()

async def race(session, name, count):
    stored = []
    for number in range(count):
        while True:
            try:
                result = await session.run(f"{name} {number}")
            except StoreConflict:
                await session.reload()
            else:
                stored += result.entry_ids
                break
    return stored

anyio.run(main, *sys.argv[1:])
"""


class Child:
    """Another process with the session `s1` of the same place."""

    def __init__(self, kind: str, place: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, kind, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self) -> list[str]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def does(self, *command: Any) -> list[str]:
        self.ask(*command)
        return self.answer()

    def end(self) -> None:
        _, _ = self._process.communicate(timeout=30)
        assert self._process.returncode == 0


class Place:
    """Where two processes meet."""

    def __init__(self, kind: type[Any], path: Path) -> None:
        self.kind = kind
        self.path = path
        self.children: list[Child] = []

    def store(self) -> WatchedStore:
        inner: SessionStore = self.kind(self.path)
        return WatchedStore(inner, suspend=True)  # the one of SQLite always waits

    def child(self) -> Child:
        self.children.append(Child(self.kind.__name__, self.path))
        return self.children[-1]


@pytest.fixture(params=[JsonlSessionStore, SqliteSessionStore])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(request.param, tmp_path / "sessions")
    yield made
    for child in made.children:
        child.end()


async def test_the_second_process_gets_a_conflict_reloads_and_nothing_is_lost(
    stage: Stage, place: Place
) -> None:
    child = place.child()
    assert child.does("run", "one") == ["from the child"]
    store = place.store()
    session = stage.session([text_delta("from here"), done()], store=store)
    await session.run("two")

    assert child.does("run", "three") == ["version_conflict"]
    assert child.does("reload") == []
    assert child.does("run", "three") == ["from the child"]

    with pytest.raises(StoreConflict) as caught:
        await session.run("four")
    assert caught.value.code == "version_conflict"
    assert of(AgentFinished, stage.events(session))[-1].status == "failed"
    assert len(provider_of(session).requests) == 1
    await session.reload()
    await session.run("four")

    texts = [
        "user: one",
        "assistant: from the child",
        "user: two",
        "assistant: from here",
        "user: three",
        "assistant: from the child",
        "user: four",
        "assistant: from here",
    ]
    assert said(await session.entries()) == texts
    assert sent(provider_of(session).requests[-1]) == texts[:-1]
    assert child.does("reload") == []
    assert child.does("entries") == [entry.id for entry in await session.entries()]
    await store.aclose()


async def test_processes_that_write_at_once_keep_one_branch_with_all_that_they_were_told_is_stored(
    stage: Stage, place: Place
) -> None:
    names = ("a", "b")
    children = [place.child() for _ in names]
    for child in children:
        assert child.does("entries") == []
    for child, name in zip(children, names, strict=True):
        child.ask("race", name, 20)
    stored = [child.answer() for child in children]
    store = place.store()
    session = stage.session(store=store)
    path = [entry.id for entry in await session.entries()]
    assert len(await session.branches()) == 1
    for ids in stored:
        assert len(ids) == 40
        assert [entry_id for entry_id in path if entry_id in ids] == ids
    assert len(await store.entries("s1")) == len(path)
    await store.aclose()
