"""Promises of agents and sessions that fit no other page."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from prism.core import (
    CompactionEntry,
    CompactionOptions,
    ContentBlock,
    CustomEntry,
    Message,
    MessageEntry,
    ModelChangeEntry,
    ModelConfig,
    RegistryError,
    SessionEntry,
    StoreError,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolContext,
    ToolResultBlock,
    UsageError,
)
from prism.core._contracts import CompactionContext, CompactionResult
from prism.core._runtime.history import History
from prism.core.providers import (
    DEFAULT_THINKING,
    MockProvider,
    ProviderRegistry,
    ThinkingFamily,
    done,
    text_delta,
)

from .harness import MODEL, Stage, WatchedStore, provider_of, said, ticks

END = [text_delta("ok"), done()]


# Labels


async def test_a_label_on_the_leaf_is_the_branchs(stage: Stage) -> None:
    session = stage.session(END)
    await session.run("Hi")
    await session.label("x")
    assert [branch.label for branch in await session.branches()] == ["x"]
    await session.label("y")
    assert [branch.label for branch in await session.branches()] == ["y"]
    await session.label(None)
    assert [branch.label for branch in await session.branches()] == [None]


# Closing


class ClosingProvider(MockProvider):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


class LockedStore(WatchedStore):
    async def aclose(self) -> None:
        raise StoreError("locked")


async def test_an_agent_closes_its_provider_also_when_the_store_cannot_close(
    stage: Stage,
) -> None:
    provider = ClosingProvider()
    with pytest.raises(StoreError):
        await stage.agent(provider, store=LockedStore()).aclose()
    assert provider.closed == 1


async def test_an_agent_closes_the_providers_of_its_registry(stage: Stage) -> None:
    one, two = ClosingProvider(id="one"), ClosingProvider(id="two")
    await stage.agent(ProviderRegistry([one, two])).aclose()
    assert (one.closed, two.closed) == (1, 1)


# Thinking


async def test_a_hosts_own_thinking_table_reaches_the_request(stage: Stage) -> None:
    class Adapter(MockProvider):
        api = "openai-chat"

    family = ThinkingFamily(
        name="mine", levels={"high": 7}, templates={"openai-chat": {"effort": "$value"}}
    )
    table = DEFAULT_THINKING.extended(families={"mine": family}, models={"m": "mine"})
    session = stage.session(Adapter(END), thinking=table, thinking_level="high")
    await session.run("Hi")
    compat = provider_of(session).requests[0].options.compat
    assert compat is not None
    assert compat["thinking"]["body"] == {"effort": 7}


async def test_a_stored_level_none_is_off(stage: Stage) -> None:
    session = stage.session(END)
    entry = ModelChangeEntry(
        id="e1", session_id="s1", timestamp="2026-01-01T00:00:00.000Z", thinking_level="none"
    )
    await stage.store.append("s1", [entry])
    assert (await session.state()).thinking_level == "off"
    await session.run("Hi", thinking_level="none")
    changes = [e for e in await session.entries() if isinstance(e, ModelChangeEntry)]
    assert len(changes) == 1


# Tools


def test_a_tool_whose_schema_is_wrong_is_refused_by_the_agent(stage: Stage) -> None:
    async def execute(arguments: dict[str, Any], context: ToolContext) -> None:
        """Never called."""

    broken = Tool(name="broken", execute=execute, parameters={"type": "thing"})
    with pytest.raises(UsageError, match="'broken'") as caught:
        stage.agent(tools=[broken])
    assert caught.value.code == "invalid_schema"


async def test_an_unknown_tool_of_a_run_is_named_as_the_option_is(stage: Stage) -> None:
    session = stage.session(END)
    with pytest.raises(RegistryError, match="'tools' names a tool that is not there: 'nope'"):
        await session.run("Hi", tools=["nope"])


# Steering


class Slow:
    """Takes its time, and finds nothing to fold."""

    name = "slow"

    async def compact(self, context: CompactionContext) -> CompactionResult | None:
        await anyio.sleep(1)
        return None


async def test_steering_during_a_compaction_outranks_a_later_follow_up(stage: Stage) -> None:
    session = stage.session(END, compaction=CompactionOptions(strategy=Slow()))
    await session.run("Hi")
    async with anyio.create_task_group() as group:

        async def compact() -> None:
            with pytest.raises(UsageError):
                await session.compact()

        group.start_soon(compact)
        await ticks()
        session.steer("Quick!")
        assert await session.follow_up("And then?") is not None
    assert said(await session.entries())[2:] == ["user: Quick!", "user: And then?", "assistant: ok"]
    assert not session.inbox.steer


async def test_it_does_so_for_a_follow_up_that_changes_the_model(stage: Stage) -> None:
    session = stage.session(END, compaction=CompactionOptions(strategy=Slow()))
    await session.run("Hi")
    async with anyio.create_task_group() as group:

        async def compact() -> None:
            with pytest.raises(UsageError):
                await session.compact()

        group.start_soon(compact)
        await ticks()
        session.steer("Quick!")
        await session.follow_up("And then?", model=ModelConfig(provider="mock", model="n"))
    assert said(await session.entries())[2:] == ["user: Quick!", "user: And then?", "assistant: ok"]
    assert (await session.state()).model.model == "n"
    assert MODEL.model == "m"


# A late result


def test_a_result_that_comes_after_its_call_was_compacted_brings_the_call_back() -> None:
    def entry(kind: Any, number: int, **fields: Any) -> SessionEntry:
        made: SessionEntry = kind(
            id=f"e{number}",
            session_id="s1",
            timestamp="2026-01-01T00:00:00.000Z",
            parent_id=f"e{number - 1}" if number > 1 else None,
            **fields,
        )
        return made

    def message(number: int, role: str, block: ContentBlock) -> SessionEntry:
        return entry(MessageEntry, number, message=Message(role=role, content=[block]))

    call = ToolCallBlock(id="c1", name="dig", arguments={})
    late = message(6, "tool", ToolResultBlock(tool_call_id="c1", name="dig", result="sand"))
    entries = [
        message(1, "user", TextBlock(text="Dig")),
        message(2, "assistant", call),
        message(3, "user", TextBlock(text="Well?")),
        entry(CompactionEntry, 4, summary="They dig.", data={"throughEntryId": "e2"}),
        entry(CustomEntry, 5, data={"type": "note"}),
        late,
        message(7, "user", TextBlock(text="So?")),
    ]
    grown = History.load([], None)
    for each in entries:
        grown.append(each)
        known = entries[: entries.index(each) + 1]
        loaded = History.load(known, each.id)
        assert grown.pairs.snapshot() == loaded.pairs.snapshot()
        assert grown.summaries == loaded.summaries
        assert grown.counted == loaded.counted
        assert grown.leaf_id == loaded.leaf_id
    assert [block.id for m in grown.pairs.messages for block in m.tool_calls] == ["c1"]
