"""The tool, the commands, the extension, and carrying memory over."""

from __future__ import annotations

from typing import Any

import pytest

from prism.core import Agent, DecodeError, ModelConfig, TextBlock, ToolCallBlock, UsageError
from prism.core.extensions import ExtensionKernel
from prism.core.host import CommandContext, run_command
from prism.core.providers import MockProvider, done, text_delta, tool_call
from prism.core.stores import MemorySessionStore
from prism.core.tools import dispatch_tool_call
from prism.memory.observational import (
    ObservationalMemorySettings,
    build_projection,
    export_memory,
    fold_ledger,
    import_memory,
    memory_commands,
    observational_memory_extension,
    recall,
    recall_tool,
    render_memory,
    seed_memory,
    status_command,
    view_command,
)

from .branches import Log, lasting, seen
from .workers import Workers, memory_of, session_of


def some_branch() -> Log:
    log = Log()
    log.talk(4)
    one, two = seen("one hunter2", "m1"), seen("two", "m2")
    log.observe("m2", one, two)
    log.reflect("m2", lasting("lasting", one))
    log.folded("m2", [one, two])
    log.drop("m2", two)
    log.observe("m3", seen("three", "m3"))
    return log


async def ask(tool: Any, **arguments: Any) -> Any:
    return await dispatch_tool_call(
        ToolCallBlock(id="c1", name=tool.name, arguments=arguments), {tool.name: tool}
    )


def text_of(result: Any) -> str:
    return "".join(block.text for block in result.content or () if isinstance(block, TextBlock))


async def test_the_tool_answers_with_the_evidence_of_one_id() -> None:
    log = some_branch()
    one = fold_ledger(log.entries).observations[0]
    asked: list[str] = []

    async def get_entries(session_id: str) -> list[Any]:
        asked.append(session_id)
        return log.entries

    tool = recall_tool(get_entries, secrets=["hunter2"])
    provider = MockProvider(
        [
            [tool_call(id="c1", name="recall", arguments={"id": one.id}), done()],
            [text_delta("I see."), done()],
        ]
    )
    agent = Agent(
        model=ModelConfig(provider="mock", model="m"),
        provider=provider,
        tools=[tool],
        store=MemorySessionStore(),
    )
    await agent.session("mine").run("why?")
    assert asked == ["mine"]
    shown = str(provider.requests[-1].messages)
    assert "message 0" in shown
    assert "hunter2" not in shown


async def test_an_id_that_is_none_is_refused_before_the_host_is_asked() -> None:
    asked: list[str] = []

    def get_entries(session_id: str) -> list[Any]:
        asked.append(session_id)
        return []

    tool = recall_tool(get_entries)
    provider = MockProvider(
        [
            [tool_call(id="c1", name="recall", arguments={"id": "ABC"}), done()],
            [tool_call(id="c2", name="recall", arguments={"id": "a" * 12, "offset": -1}), done()],
            [tool_call(id="c3", name="recall", arguments={"id": "a" * 12}), done()],
            [done()],
        ]
    )
    agent = Agent(model=ModelConfig(provider="mock", model="m"), provider=provider, tools=[tool])
    await agent.session("mine").run("why?")
    shown = [str(request.messages[-1]) for request in provider.requests[1:]]
    assert "invalid_id" in shown[0]
    assert "invalid_limit" in shown[1]
    assert "No memory of this branch" in shown[2]
    assert asked == ["mine"]


async def test_the_status_of_an_empty_session_is_zeros() -> None:
    result = await run_command(status_command(lambda _id: []))
    assert "Observations: 0 recorded / 0 dropped / 0 active / 0 visible\n" in text_of(result)
    assert "Next observation: ~0 / 10,000 tokens (0%)" in text_of(result)
    assert result.value["recorded"] == 0


async def test_the_status_shows_drift_thresholds_and_what_went_wrong() -> None:
    log = some_branch()
    log.observe("gone", seen("dangling", "m1"))
    log.data({"type": "om.observations.recorded", "version": 9})
    result = await run_command(
        status_command(lambda _id: log.entries, settings=ObservationalMemorySettings(passive=True))
    )
    text = text_of(result)
    assert "Mode: passive" in text
    assert "Observations: 4 recorded / 1 dropped / 3 active / 2 visible +1 -1" in text
    assert "Reflections: 1 recorded / 0 superseded / 0 visible +1" in text
    assert "Unsupported: 1 records" in text
    assert "Dangling: 1 records (x" in text
    assert result.value["addedObservations"] == 1
    assert result.value["removedObservations"] == 1


async def test_the_status_shows_the_workers_of_a_runtime() -> None:
    session = session_of()
    await session.run("a")
    memory = memory_of(session, Workers())
    await memory.flush()
    command = status_command(memory=lambda _id: memory)
    result = await run_command(command, None, CommandContext(session=session))
    assert "observer: mock/memory; last success 20" in text_of(result)
    assert result.value["runtime"]["workers"]["observer"]["model"] == "mock/memory"
    off = memory_of(session, model=None)
    await session.run("b")
    await off.flush()
    result = await run_command(
        status_command(memory=lambda _id: off), None, CommandContext(session=session)
    )
    assert "observer: no model; skipped: missing_model" in text_of(result)


@pytest.mark.parametrize("args", [None, "", "visible", {}, {"mode": "visible"}, []])
async def test_the_view_shows_what_the_model_sees(args: Any) -> None:
    log = some_branch()
    result = await run_command(view_command(lambda _id: log.entries), args)
    ledger = fold_ledger(log.entries)
    one, two, _ = ledger.observations
    assert text_of(result) == (
        f"Reflections\nNo visible reflections.\n\nObservations\n{one.line}\n{two.line}"
    )


@pytest.mark.parametrize("args", ["full", " full ", {"mode": "full"}, ["full"]])
async def test_the_full_view_shows_what_is_in_use(args: Any) -> None:
    log = some_branch()
    result = await run_command(view_command(lambda _id: log.entries, secrets=["hunter2"]), args)
    text = text_of(result)
    assert "lasting" in text
    assert "] two" not in text
    assert "three" in text
    assert "hunter2" not in text
    assert "hunter2" not in str(result.value)
    assert [item["content"] for item in result.value["observations"]][1:] == ["three"]


@pytest.mark.parametrize("args", ["diff", {"mode": "diff"}, {"other": 1}, ["full", "x"], 3, True])
async def test_any_other_view_gives_only_its_usage(args: Any) -> None:
    def get_entries(_id: str) -> list[Any]:
        raise AssertionError("not asked")

    result = await run_command(view_command(get_entries), args)
    assert text_of(result) == "Usage: /om:view [full]"
    assert result.value is None


async def test_a_command_without_a_session_says_so() -> None:
    with pytest.raises(UsageError):
        await run_command(view_command())


async def test_an_empty_view_says_so() -> None:
    result = await run_command(view_command(lambda _id: []), "full")
    assert text_of(result) == (
        "Reflections\nNo recorded reflections.\n\nObservations\nNo recorded observations."
    )


async def test_the_extension_registers_and_starts_nothing() -> None:
    kernel = ExtensionKernel()
    await kernel.load([observational_memory_extension(get_entries=lambda _id: [])])
    registries = kernel.registries
    assert registries.compaction_strategies.get("observational-memory") is not None
    assert registries.tools.get("recall") is not None
    assert registries.commands.get("om:status") is not None
    assert registries.commands.get("om:view") is not None


async def test_the_extension_leaves_out_what_is_turned_off() -> None:
    kernel = ExtensionKernel()
    bare = observational_memory_extension(compaction=False, commands=False)
    await kernel.load([bare])
    assert kernel.registries.compaction_strategies.names == ()
    assert kernel.registries.tools.names == ()
    assert kernel.registries.commands.names == ()


def test_both_commands_come_together() -> None:
    assert [command.name for command in memory_commands()] == ["om:status", "om:view"]


# Carrying memory over


async def test_memory_is_exported_and_read_again() -> None:
    log = some_branch()
    document = export_memory(log.entries)
    assert document.session_id == "s1"
    assert [one.content for one in document.observations] == ["one hunter2", "three"]
    assert [one.content for one in document.reflections] == ["lasting"]
    assert len(document.dropped_observation_ids) == 1
    assert import_memory(document.encode()) == document
    assert export_memory([]).observations == ()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"sessionId":"a","type":"x"}', b"x" * 17_000_000]
)
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        import_memory(data)


def test_a_document_of_a_newer_version_is_refused() -> None:
    data = export_memory(some_branch().entries).encode().replace(b'"version":1', b'"version":2')
    with pytest.raises(DecodeError, match="version 2"):
        import_memory(data)


async def test_chosen_reflections_become_records_of_a_new_session() -> None:
    document = export_memory(some_branch().entries)
    session = session_of()
    (carried,) = await seed_memory(session, document)
    assert carried.origin_session_id == "s1"
    entries = await session.entries()
    found = build_projection(entries)
    assert found.reflections == (carried,)
    assert render_memory(found.reflections, ()).endswith("] lasting")
    again = recall(entries, carried.id)
    assert again.status == "partial"
    assert len(again.missing_observation_ids) == 1
    assert await seed_memory(session, document) == ()
    assert await seed_memory(session, document, ids=[]) == ()
    with pytest.raises(UsageError):
        await seed_memory(session, document, ids=["aaaaaaaaaaaa"])


async def test_what_was_carried_over_is_in_the_first_summary_and_can_be_superseded() -> None:
    session = session_of()
    (carried,) = await seed_memory(session, export_memory(some_branch().entries))
    memory = memory_of(session)
    for turn in range(6):
        await session.run(f"turn {turn}")
    await memory.flush()
    result = await session.compact(strategy=memory.strategy)
    assert carried.line in result.summary
