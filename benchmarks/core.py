"""`prism.core` beside the bare loop."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import bare
import msgspec
from measure import REPEATS, Row, best_pair, best_process, python

from prism.core import Agent, MessageDelta, ModelConfig, tool
from prism.core.providers import MockProvider, ProviderEvent, done, text_delta, tool_call
from prism.core.stores import JsonlSessionStore, MemorySessionStore

MODEL = ModelConfig(provider="mock", model="bench")
DELTAS = 10_000
ROUNDS = 50
SESSIONS = 1_000


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Addends(msgspec.Struct, frozen=True):
    """Arguments of the bare loop's tool."""

    a: int
    b: int


async def bare_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def deltas() -> Row:
    """One subscriber gets every delta of a provider that never suspends."""
    turn: list[ProviderEvent] = [text_delta("token ") for _ in range(DELTAS)]
    turn.append(done())

    async def ours() -> None:
        agent = Agent(model=MODEL, provider=MockProvider(turn))
        session = agent.session("s")
        seen = 0
        async with session.stream("Hi") as events:
            async for event in events:
                seen += type(event) is MessageDelta
        assert seen == DELTAS, seen

    async def by_hand() -> None:
        seen = 0
        async for event in bare.loop(bare.scripted([turn]), {}, "Hi", list[bytes]().append):
            seen += type(event) is bare.Delta
        assert seen == DELTAS, seen

    mine, theirs = best_pair(ours, by_hand)
    return Row(
        name=f"text delta, one subscriber ({DELTAS:,} deltas)",
        ours=mine / DELTAS * 1e6,
        bare=theirs / DELTAS * 1e6,
        unit="us",
        limit=5,
    )


def tool_rounds() -> Row:
    """A call, its result in a file, its events; once more, until the answer."""
    turns: list[list[ProviderEvent]] = [
        [
            text_delta("Let me add."),
            tool_call(id=f"c{n}", name="add", arguments={"a": n, "b": 1}),
            done(),
        ]
        for n in range(ROUNDS)
    ]
    turns.append([text_delta("Done."), done()])

    async def ours() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = JsonlSessionStore(folder)
            agent = Agent(
                model=MODEL,
                provider=MockProvider(turns),
                tools=[add],
                store=store,
                max_tool_rounds=ROUNDS + 1,
            )
            async with agent.session("s").stream("Hi") as events:
                async for _ in events:
                    pass
            assert events.result is not None
            assert events.result.text == "Done."
            await store.aclose()

    async def by_hand() -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = os.open(Path(folder) / "s.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            sink = partial(os.write, file)
            tools = {"add": (Addends, bare_add)}
            async for _ in bare.loop(bare.scripted(turns), tools, "Hi", sink):
                pass
            os.close(file)

    mine, theirs = best_pair(ours, by_hand)
    return Row(
        name=f"tool round with a JSONL store ({ROUNDS} rounds)",
        ours=mine / ROUNDS * 1e6,
        bare=theirs / ROUNDS * 1e6,
        unit="us",
        limit=12,
    )


def long_session() -> Row:
    """What run 1,000 of one session costs beside run 10."""
    early: list[float] = []
    late: list[float] = []

    async def grow() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = JsonlSessionStore(folder)
            session = Agent(model=MODEL, provider=MockProvider(), store=store).session("s")
            for number in range(1, 1_011):
                start = time.process_time()
                await session.run("Hi")
                spent = time.process_time() - start
                if 5 <= number < 16:
                    early.append(spent)
                elif number >= 995:
                    late.append(spent)
            await store.aclose()

    gc.collect()
    for _ in range(5):
        asyncio.run(grow())
    return Row(
        name="run 1,000 of a session (bare: its run 10)",
        ours=min(late) * 1e6,
        bare=min(early) * 1e6,
        unit="us",
        limit=1.2,
    )


def concurrent_sessions() -> list[Row]:
    """Many sessions at once, each with a turn that waits for all others to have begun."""
    code = Path(__file__).with_name("sessions.py")
    sizes: list[float] = []
    for kind in ("ours", "none"):
        out = subprocess.run(
            [sys.executable, str(code), kind], check=True, capture_output=True, text=True
        )
        sizes.append(float(out.stdout))
    turn: list[ProviderEvent] = [*[text_delta("token ") for _ in range(20)], done()]

    async def ours() -> None:
        agent = Agent(model=MODEL, provider=MockProvider(turn), store=MemorySessionStore())
        await asyncio.gather(*(agent.session(f"s{n}").run("Hi") for n in range(SESSIONS)))

    async def one() -> None:
        async for _ in bare.loop(bare.scripted([turn]), {}, "Hi", list[bytes]().append):
            pass

    async def by_hand() -> None:
        await asyncio.gather(*(one() for _ in range(SESSIONS)))

    mine, theirs = best_pair(ours, by_hand, REPEATS // 4)
    return [
        Row(
            name=f"memory of one of {SESSIONS:,} sessions at work",
            ours=(sizes[0] - sizes[1]) / SESSIONS,
            bare=0,
            unit="Ki",
            limit=24,
        ),
        Row(
            name=f"CPU of {SESSIONS:,} concurrent sessions, 20 deltas each",
            ours=mine / SESSIONS * 1e6,
            bare=theirs / SESSIONS * 1e6,
            unit="us",
            limit=8,
        ),
    ]


def imports() -> Row:
    """The whole process."""
    return Row(
        name="import prism.core (bare: anyio, msgspec)",
        ours=best_process(python("import prism.core")) * 1e3,
        bare=best_process(python("import anyio, msgspec")) * 1e3,
        unit="ms",
        limit=1.6,
    )


def version() -> Row:
    """The whole process."""
    prism = str(Path(sys.executable).with_name("prism"))
    return Row(
        name="prism --version (bare: import click)",
        ours=best_process([prism, "--version"]) * 1e3,
        bare=best_process(python("import click")) * 1e3,
        unit="ms",
        limit=2,
    )


def rows() -> list[Row]:
    """Every line of this file."""
    return [
        deltas(),
        tool_rounds(),
        long_session(),
        *concurrent_sessions(),
        imports(),
        version(),
    ]
