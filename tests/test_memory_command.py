"""`prism sessions show --memory`: what a stored session remembers, without its app."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from prism.cli import main
from prism.core import Agent, ModelConfig
from prism.core.providers import MockProvider
from prism.core.stores import JsonlSessionStore
from prism.memory.observational import (
    Observation,
    build_projection,
    make_observation,
    make_reflection,
    memory_status,
    observations_record,
    reflections_record,
    status_text,
    view_text,
)

TIME = "2025-10-09T08:53:20.000Z"


def noted(content: str, source: str) -> Observation:
    return make_observation(
        content=content, timestamp=TIME, relevance="high", source_entry_ids=[source]
    )


async def fill(directory: Path) -> str:
    """Store a session with memory, and an abandoned branch with other memory; the text of it."""
    agent = Agent(
        model=ModelConfig(provider="mock", model="demo"),
        provider=MockProvider(),
        store=JsonlSessionStore(directory),
    )
    session = agent.session("s1")
    await session.run("The port is 8080.")
    said = (await session.entries())[0].id
    here = session.leaf_id
    await session.append_custom(observations_record([noted("A dead end.", said)], said))
    await session.checkout(here)
    one = noted("The port is \x1b[31m8080.", said)
    await session.append_custom(observations_record([one], said))
    two = make_reflection(
        content="It is a server.", supporting_observation_ids=[one.id], timestamp=TIME
    )
    await session.append_custom(reflections_record([two], said))
    entries = await session.entries()
    await agent.aclose()
    found = build_projection(entries)
    shown = view_text(found.observations, found.reflections, "recorded")
    return f"{status_text(memory_status(entries))}\n\n{shown}\n"


def test_show_memory_tells_what_the_sessions_branch_remembers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = anyio.run(fill, tmp_path)
    command = ["sessions", "show", "s1", "--store", str(tmp_path), "--memory"]
    assert main(command) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert "Observations: 1 recorded" in out
    assert "It is a server." in out
    assert "dead end" not in out
    assert out == text.replace("\x1b", " ")  # nothing steers the terminal
    assert main([*command, "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["sessionId"] == "s1"
    memory = shown["memory"]
    assert (memory["status"]["recorded"], memory["status"]["poolMaxTokens"]) == (1, 20_000)
    (observation,) = memory["observations"]
    assert len(observation["sourceEntryIds"]) == 1
    assert memory["reflections"][0]["supportingObservationIds"] == [observation["id"]]


def test_a_session_without_memory_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = ["--store", str(tmp_path), "--session", "s1"]
    assert main(["--provider", "mock", *flags, "-p", "Hi"]) == 0
    capfd.readouterr()
    assert main(["sessions", "show", *flags[:2], "s1", "--memory"]) == 0
    out, _ = capfd.readouterr()
    assert "No recorded reflections." in out
    assert "No recorded observations." in out
