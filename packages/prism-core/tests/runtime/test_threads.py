"""Sync tools run in worker threads; here time is real, since threads do not know another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from prism.core import RunAborted, ToolContext, ToolExecutionProgress, tool
from prism.core.providers import done, text_delta, tool_call

from .harness import Stage, of, said, types

END = [text_delta("end"), done()]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops, in real time."""
    return str(request.param)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds threads up; it is open when the test is over, so that none is left behind."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_sync_tool_runs_in_a_thread_and_holds_nobody_up(
    stage: Stage, gate: threading.Event
) -> None:
    @tool
    def blocked() -> str:
        """Wait for the other one."""
        assert gate.wait(10)
        return threading.current_thread().name

    @tool
    async def opens() -> str:
        """Let the other one go on."""
        gate.set()
        return "opened"

    calls = [tool_call(id="c1", name="blocked"), tool_call(id="c2", name="opens")]
    session = stage.session([[*calls, done()], END], tools=[blocked, opens])
    await session.run("Go")
    result = said(await session.entries())[2]
    assert result.startswith("tool: c1 ")
    assert threading.current_thread().name not in result


async def test_a_sync_tool_is_abandoned_on_an_abort_and_its_outcome_is_unknown(
    stage: Stage, gate: threading.Event
) -> None:
    begun = anyio.Event()
    ended = threading.Event()

    @tool
    def blocked(context: ToolContext) -> str:
        """Block."""
        context.progress("begun")
        gate.wait(10)
        context.progress("late")
        ended.set()
        return "late"

    session = stage.session([[tool_call(id="c1", name="blocked"), done()], END], tools=[blocked])

    async def run() -> None:
        with pytest.raises(RunAborted):
            await session.run("Go")

    async with anyio.create_task_group() as group, session.subscribe() as events:
        group.start_soon(run)
        async for event in events:
            if isinstance(event, ToolExecutionProgress):
                begun.set()
                session.abort()
                break
    assert begun.is_set()
    assert said(await session.entries())[2] == "tool: c1 outcome_unknown"
    count = len(stage.events(session))
    gate.set()
    await anyio.to_thread.run_sync(ended.wait, 10)
    assert (await session.run("And?")).text == "end"
    progress = of(ToolExecutionProgress, stage.events(session))
    assert [event.progress for event in progress] == ["begun"]
    assert types(stage.events(session)[:count])[-1] == "session_settled"


async def test_progress_from_a_thread_is_told_in_order(stage: Stage) -> None:
    @tool
    def work(context: ToolContext) -> None:
        """Report."""
        for step in range(20):
            context.progress(step)

    session = stage.session([[tool_call(id="c1", name="work"), done()], END], tools=[work])
    await session.run("Go")
    told: list[Any] = [event.progress for event in of(ToolExecutionProgress, stage.events(session))]
    assert told == list(range(20))
