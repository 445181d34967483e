"""Agents by name, and agents as tools of other agents."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from prism.core import (
    Agent,
    AgentDefinition,
    AgentFinished,
    CustomEntry,
    Message,
    MessageEntry,
    ModelConfig,
    ModelCost,
    RegistryError,
    RunAborted,
    SecretRedactor,
    Session,
    Tool,
    ToolResultBlock,
    Usage,
    UsageError,
    UsageLimits,
    UsageReported,
    agent_tool,
    tool,
)
from prism.core.extensions import ContributionRegistries
from prism.core.host import StaticPermissionPolicy
from prism.core.providers import (
    MockProvider,
    delay,
    done,
    error,
    text_delta,
    thinking_delta,
    tool_call,
)

from .harness import MODEL, Stage, of, results, said, types

DIGGER = AgentDefinition(
    name="digger",
    description="Digs.",
    system="You dig.",
    tools=["dig*"],
    limits=UsageLimits(max_requests=5),
    max_tool_rounds=3,
)


@tool
async def dig(depth: int = 1) -> str:
    """Dig."""
    return f"{depth} deep"


@tool
async def fly() -> str:
    """Fly."""
    return "high"


def asks(name: str, *prompts: str, usage: Usage | None = None) -> list[Any]:
    """A model that asks an agent with each prompt at once, and then answers."""
    calls = [
        tool_call(id=f"c{number}", name=name, arguments={"prompt": prompt})
        for number, prompt in enumerate(prompts, 1)
    ]
    return [[*calls, done(usage=usage)], [text_delta("Thanks."), done(usage=usage)]]


def result_of(path: Any, call_id: str = "c1") -> Message:
    """The message with a call's result."""
    for entry in path:
        if isinstance(entry, MessageEntry):
            for block in entry.message.content:
                if isinstance(block, ToolResultBlock) and block.tool_call_id == call_id:
                    return entry.message
    raise AssertionError(call_id)


def facts_of(path: Any, call_id: str = "c1") -> Any:
    metadata = result_of(path, call_id).metadata
    assert metadata is not None
    return metadata["agent"]


class Asking:
    """A session whose model asks the agent `helper`."""

    def __init__(self, stage: Stage, script: Any, *prompts: str, **options: Any) -> None:
        self.provider = script if isinstance(script, MockProvider) else MockProvider(script)
        own = {key[7:]: options.pop(key) for key in [*options] if key.startswith("helper_")}
        self.helper = stage.agent(self.provider, **own)
        given = {key: options.pop(key) for key in [*options] if key in {"output", "limits"}}
        ask = agent_tool(self.helper, name="helper", **given)
        self.session = stage.session(
            asks("helper", *(prompts or ("Dig.",))), tools=[ask], **options
        )

    async def path(self, session_id: str = "s1.c1") -> Any:
        return await self.helper.session(session_id).entries()


# Definitions


def test_a_definition_makes_an_agent_of_what_the_host_has() -> None:
    agent = DIGGER(provider=MockProvider(), tools=[dig, fly], model=MODEL, thinking_level="low")
    assert isinstance(agent, Agent)
    assert list(agent.tools) == ["dig"]
    assert agent.system_parts == ("You dig.",)
    assert agent.limits == UsageLimits(max_requests=5)
    assert agent.max_tool_rounds == 3
    assert agent.thinking_level == "low"


def test_what_the_host_gives_wins() -> None:
    policy = StaticPermissionPolicy()
    definition = AgentDefinition(name="a", model=MODEL, permissions=policy, thinking_level="high")
    other = ModelConfig(provider="mock", model="other")
    mine = StaticPermissionPolicy(default="deny")
    agent = definition(provider=MockProvider(), model=other, permissions=mine)
    assert agent.model == other
    assert agent.permissions is mine
    assert agent.thinking_level == "high"
    assert definition(provider=MockProvider()).permissions is policy


def test_a_definition_that_cannot_become_an_agent_says_why() -> None:
    with pytest.raises(UsageError, match="'digger' has no model"):
        DIGGER(provider=MockProvider(), tools=[dig])
    with pytest.raises(RegistryError, match="'tools' names a tool that is not there: 'fly'"):
        AgentDefinition(name="a", tools=["fly"])(provider=MockProvider(), tools=[dig], model=MODEL)
    with pytest.raises(UsageError) as caught:
        AgentDefinition(name="")
    assert caught.value.code == "invalid_name"
    with pytest.raises(UsageError, match="thinking_level"):
        AgentDefinition(name="a", thinking_level="huge")(provider=MockProvider(), model=MODEL)


def test_a_host_chooses_a_definition_by_its_name() -> None:
    registries = ContributionRegistries()
    registries.agents.register(DIGGER.name, DIGGER, source="zoo")
    agent = registries.agents.resolve("digger")(provider=MockProvider(), tools=[dig], model=MODEL)
    assert agent.system_parts == ("You dig.",)


# Asking an agent


async def test_an_agent_that_is_asked_has_a_session_of_its_own(stage: Stage) -> None:
    digger = agent_tool(
        DIGGER,
        provider=MockProvider(
            [
                [tool_call(id="d1", name="dig", arguments={"depth": 2}), done()],
                [text_delta("Sand."), done()],
            ]
        ),
        tools=[dig, fly],
        model=MODEL,
        store=stage.store,
        id_maker=stage.ids,
        clock=stage.clock,
    )
    assert isinstance(digger, Tool)
    assert (digger.name, digger.description) == ("digger", "Digs.")
    session = stage.session(asks("digger", "Dig 2 m."), tools=[digger])
    result = await session.run("What is below?")
    assert result.text == "Thanks."
    result_path = await session.entries()
    assert said(result_path) == [
        "user: What is below?",
        "assistant: [c1]",
        "tool: c1 Sand.",
        "assistant: Thanks.",
    ]
    facts = facts_of(result_path)
    assert facts["name"] == "digger"
    assert facts["status"] == "completed"
    assert facts["sessionId"] == "s1.c1"
    asked = stage.agent(store=stage.store).session("s1.c1")
    entries = await asked.entries()
    assert said(entries) == [
        "user: Dig 2 m.",
        "assistant: [d1]",
        "tool: d1 2 deep",
        "assistant: Sand.",
    ]
    (record,) = of(CustomEntry, entries)
    assert record is entries[0]
    assert record.data == {
        "type": "prism.agent",
        "agent": "digger",
        "depth": 1,
        "sessionId": "s1",
        "runId": result.run_id,
        "toolCallId": "c1",
    }


async def test_two_are_asked_side_by_side(stage: Stage) -> None:
    def script(request: Any) -> Any:
        return [delay(1_000), text_delta(request.messages[-1].text.upper()), done()]

    asking = Asking(stage, script, "one", "two")
    start = anyio.current_time()
    await asking.session.run("Go")
    assert anyio.current_time() - start < 1.5
    assert said(await asking.session.entries())[2:4] == ["tool: c1 ONE", "tool: c2 TWO"]
    assert said(await asking.path("s1.c2")) == ["user: two", "assistant: TWO"]


async def test_a_session_of_that_name_is_never_gone_on_with(stage: Stage) -> None:
    asking = Asking(stage, [text_delta("Sand."), done()])
    await asking.helper.session("s1.c1").run("I was here first.")
    await asking.session.run("Go")
    assert facts_of(await asking.session.entries())["sessionId"] == "s1.c1-2"
    assert said(await asking.path("s1.c1-2")) == ["user: Dig.", "assistant: Sand."]


async def test_its_usage_is_told_and_not_added(stage: Stage) -> None:
    priced = ModelConfig(provider="mock", model="m", cost=ModelCost(input=1, unit=1))
    used = Usage(input_tokens=10, output_tokens=1)
    asking = Asking(stage, [text_delta("Sand."), done(usage=used)], helper_model=priced)
    result = await asking.session.run("Go")
    assert result.usage is None
    events = stage.events(asking.session)
    (reported,) = of(UsageReported, events)
    assert reported.source == "agent"
    assert reported.usage == Usage(input_tokens=10, output_tokens=1, cost=10, currency="USD")
    (finished,) = of(AgentFinished, events)
    assert finished.usage is None
    assert facts_of(await asking.session.entries())["usage"] == {
        "inputTokens": 10,
        "outputTokens": 1,
        "cost": 10,
        "currency": "USD",
    }


async def test_its_limits_and_permissions_are_its_own(stage: Stage) -> None:
    digging = [tool_call(id="", name="dig", arguments={}), done()]
    asking = Asking(
        stage,
        digging,
        limits=UsageLimits(max_tool_calls=2),
        helper_tools=[dig],
        helper_permissions=StaticPermissionPolicy(default="allow"),
        permissions=StaticPermissionPolicy(default="allow"),
    )
    await asking.session.run("Go")
    message = result_of(await asking.session.entries())
    assert "stopped early: limit_reached" in said(await asking.session.entries())[2]
    assert message.metadata is not None
    assert message.metadata["agent"]["status"] == "limit_reached"

    denied = Asking(
        stage,
        [digging, [text_delta("I may not."), done()]],
        id="s2",
        helper_tools=[dig],
        helper_permissions=StaticPermissionPolicy(default="deny"),
    )
    await denied.session.run("Go")
    assert [
        block.error and block.error.code for block in results(await denied.path("s2.c1")).values()
    ] == ["permission_denied"]


async def test_an_agent_that_fails_is_an_error_result(stage: Stage) -> None:
    asking = Asking(stage, [error("no such model", code="not_found")])
    assert (await asking.session.run("Go")).text == "Thanks."
    block = results(await asking.session.entries())["c1"]
    assert block.error is not None
    assert block.error.code == "agent_failed"
    assert "no such model" in block.error.message
    assert block.error.details == {"code": "not_found"}
    assert facts_of(await asking.session.entries())["status"] == "failed"


async def test_an_abort_of_the_asking_run_reaches_it(stage: Stage) -> None:
    used = Usage(output_tokens=3)
    asking = Asking(
        stage,
        [
            [tool_call(id="d1", name="dig", arguments={}), done(usage=used)],
            [thinking_delta("hm"), text_delta("San"), delay(60_000), done()],
        ],
        helper_tools=[dig],
    )
    async with anyio.create_task_group() as group:

        async def run() -> None:
            with pytest.raises(RunAborted):
                await asking.session.run("Go")

        group.start_soon(run)
        await anyio.sleep(1)
        asking.session.abort("enough")
    path = await asking.path()
    assert said(path)[-1] == "assistant: <ThinkingBlock> San"
    assert path[-1].message.stop_reason == "aborted"
    block = results(await asking.session.entries())["c1"]
    assert block.error is not None
    assert block.error.code == "aborted"
    (reported,) = of(UsageReported, stage.events(asking.session))
    assert (reported.source, reported.usage) == ("agent", used)
    assert types(stage.events(asking.session))[-1] == "session_settled"


async def test_agents_ask_agents_only_so_deep(stage: Stage) -> None:
    def helper(name: str, below: list[Tool]) -> Tool:
        script = asks("ask", "Go on.") if below else [[text_delta("Deep."), done()]]
        return agent_tool(stage.agent(script, tools=below), name=name, max_depth=2)

    third = helper("ask", [])
    second = helper("ask", [third])
    first = helper("ask", [second])
    session = stage.session(asks("ask", "Go."), tools=[first])
    await session.run("Hi")
    at_two = await stage.agent().session("s1.c1.c1").entries()
    block = results(at_two)["c1"]
    assert block.error is not None
    assert block.error.code == "agent_depth"
    assert said(await stage.agent().session("s1.c1.c1.c1").entries()) == []
    assert [entry.data["depth"] for entry in of(CustomEntry, at_two)] == [2]


async def test_an_answer_is_bounded(stage: Stage) -> None:
    helper = stage.agent([text_delta("sand " * 1_000), done()])
    ask = agent_tool(helper, name="helper", max_result_bytes=300)
    session = stage.session(asks("helper", "Dig."), tools=[ask])
    await session.run("Go")
    assert len(said(await session.entries())[2]) < 400


async def test_an_answer_may_be_a_value_of_a_type(stage: Stage) -> None:
    class Find(msgspec.Struct):
        what: str
        depth: int

    provider = MockProvider(
        [text_delta('{"what": "sand", "depth": 2}'), done()], supports_output_schema=True
    )
    asking = Asking(stage, provider, output=Find)
    await asking.session.run("Go")
    assert results(await asking.session.entries())["c1"].result == {"what": "sand", "depth": 2}


async def test_a_value_that_a_limit_kept_from_coming_is_an_error(stage: Stage) -> None:
    asking = Asking(
        stage, [text_delta("sand"), done()], output=int, limits=UsageLimits(max_requests=1)
    )
    await asking.session.run("Go")
    block = results(await asking.session.entries())["c1"]
    assert block.error is not None
    assert "limit_reached" in block.error.message


async def test_a_secret_of_the_asking_run_is_not_written_into_the_other_session(
    stage: Stage,
) -> None:
    asking = Asking(
        stage,
        [text_delta("Sand."), done()],
        "Dig with hunter2.",
        redactor=SecretRedactor(["hunter2"]),
        secrets=["hunter2"],
    )
    await asking.session.run("Go")
    assert said(await asking.path())[0] == "user: Dig with [REDACTED]."


async def test_what_the_host_told_the_run_reaches_the_agent(stage: Stage) -> None:
    seen: list[Any] = []

    class Policy:
        async def decide(self, request: Any) -> Any:
            seen.append(request.metadata)
            return await StaticPermissionPolicy().decide(request)

    asking = Asking(
        stage,
        [[tool_call(id="d1", name="dig", arguments={}), done()], [text_delta("x"), done()]],
        helper_tools=[dig],
        helper_permissions=Policy(),
    )
    await asking.session.run("Go", metadata={"user": "ada"})
    assert [each["user"] for each in seen] == ["ada"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "needs a name"),
        ({"name": "a b"}, "name"),
        ({"name": "a", "provider": MockProvider()}, "provider"),
        ({"name": "a", "max_depth": 0}, "max_depth"),
        ({"name": "a", "limits": UsageLimits(max_requests=0)}, "max_requests"),
        ({"name": "a", "output": Session}, "JSON Schema"),
    ],
)
def test_a_tool_that_cannot_be_is_refused(stage: Stage, given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        agent_tool(stage.agent(), **given)


def test_a_definition_as_a_tool_needs_a_provider() -> None:
    with pytest.raises(UsageError, match="provider"):
        agent_tool(DIGGER, model=MODEL)
