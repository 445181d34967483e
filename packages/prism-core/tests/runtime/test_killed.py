"""A process that was killed in the middle of a tool: the next run repairs the pair and says so."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from prism.core import Warned, tool
from prism.core.providers import done, text_delta
from prism.core.stores import JsonlSessionStore

from .harness import Stage, WatchedStore, of, provider_of, said, sent

CHILD = """
import sys
import anyio
from prism.core import Agent, ModelConfig, tool
from prism.core.providers import MockProvider, done, text_delta, tool_call
from prism.core.stores import JsonlSessionStore

@tool
async def work(n: int) -> str:
    "Work, and hang the second time."
    if n:
        print("hanging", flush=True)
        await anyio.sleep(60)
    return "done"

calls = [tool_call(id=f"c{n}", name="work", arguments={"n": n}) for n in range(3)]
script = [text_delta("I"), *calls, done()]
agent = Agent(model=ModelConfig(provider="mock", model="m"), provider=MockProvider(script),
              tools=[work], store=JsonlSessionStore(sys.argv[1]), max_parallel_tools=1)
anyio.run(agent.session("s1").run, "Go")
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A directory of sessions whose writer was killed while a tool ran."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "hanging\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    return tmp_path


@tool
async def work(n: int) -> str:
    """Work."""
    return f"again {n}"


async def test_the_next_run_repairs_the_pair_and_warns(stage: Stage, killed: Path) -> None:
    stage.may_stay_open("s1")
    store = WatchedStore(JsonlSessionStore(killed))
    session = stage.session([text_delta("end"), done()], store=store, tools=[work])
    assert said(await session.entries()) == [
        "user: Go",
        "assistant: I [c0] [c1] [c2]",
        "tool: c0 done",
    ]
    assert (await session.run("What now?")).status == "completed"
    (warning,) = of(Warned, stage.events(session))
    assert warning.code == "history_repaired"
    assert sent(provider_of(session).requests[0]) == [
        "user: Go",
        "assistant: I [c0] [c1] [c2]",
        "tool: c0 done",
        "tool: c1 interrupted",
        "tool: c2 interrupted",
        "user: What now?",
    ]
    await session.run("And now?")
    assert len(of(Warned, stage.events(session))) == 1
    await store.aclose()


async def test_continue_answers_the_calls_that_were_interrupted(stage: Stage, killed: Path) -> None:
    store = WatchedStore(JsonlSessionStore(killed))
    session = stage.session([text_delta("end"), done()], store=store, tools=[work])
    assert (await session.continue_()).text == "end"
    assert said(await session.entries())[2:] == [
        "tool: c0 done",
        "tool: c1 interrupted",
        "tool: c2 interrupted",
        "assistant: end",
    ]
    assert of(Warned, stage.events(session)) == []
    await store.aclose()
