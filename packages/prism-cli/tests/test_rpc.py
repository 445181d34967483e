"""The RPC's commands, and the order of what a client reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from prism.cli import HostOptions
from prism.cli.client import RpcFailure
from prism.core import (
    CompactionOptions,
    DefaultCompactionStrategy,
    ErrorInfo,
    MessageEntry,
    Session,
    ToolContext,
    tool,
)
from prism.core.host import (
    CommandContext,
    CommandDefinition,
    PermissionDecision,
    PermissionRequest,
)
from prism.core.providers import (
    MockProvider,
    ProviderEvent,
    ProviderRequest,
    done,
    error,
    text_delta,
    tool_call,
)
from prism.core.stores import MemorySessionStore

from .rpc_harness import ScriptedApp, connected, serving, short


class Gated:
    """Says `One `, waits for the test, then says `two`.

    Attributes:
        gate: Set it to let the answer go on.
        requests: What came.
    """

    id = "mock"

    def __init__(self) -> None:
        self.gate = anyio.Event()
        self.requests: list[ProviderRequest] = []

    async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        self.requests.append(request)
        yield text_delta("One ")
        await self.gate.wait()
        yield text_delta("two")
        yield done()


class Asking:
    """Asks somebody about every call."""

    async def decide(self, request: PermissionRequest) -> PermissionDecision:
        return PermissionDecision(verdict="ask", reason=f"{request.name} costs money")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def adding(**more: Any) -> ScriptedApp:
    """An app whose model calls `add` once, after somebody allowed it."""
    call = tool_call(id="c1", name="add", arguments={"a": 2, "b": 3})
    script = [[call, done()], [text_delta("It is 5."), done()]]
    return ScriptedApp(MockProvider(script), tools=[add], permissions=Asking(), **more)


RUN = [
    "agent_started", "turn_started", "message_started", "message_delta", "message_finished",
    "turn_finished", "agent_finished", "session_settled",
]  # fmt: skip


# Runs


async def test_a_prompt_is_answered_after_its_events() -> None:
    async with serving(ScriptedApp(), session="s1") as wire:
        reply = await wire.ask("1", "prompt", input="Hi")
        assert wire.types() == [*RUN, "ok 1"]
        events, result = wire.lines[:-1], reply["result"]
        assert {event["id"] for event in events} == {"1"}
        assert {event["sessionId"] for event in events} == {"s1"}
        assert {event["runId"] for event in events} == {result["runId"]}
        del result["runId"]
        leaf = events[-1]["event"]["leafId"]
        assert result == {
            "sessionId": "s1",
            "status": "completed",
            "text": "Hello",
            "leafId": leaf,
        }


async def test_prompt_is_an_alias_of_input_and_blocks_are_taken() -> None:
    provider = MockProvider()
    async with serving(ScriptedApp(provider)) as wire:
        await wire.ask(1, "prompt", prompt="One")
        blocks = [{"type": "text", "text": "Look:"}, {"type": "image", "url": "http://x/y.png"}]
        await wire.ask(2, "followUp", input=blocks)
    assert [m.text for m in provider.requests[1].messages] == ["One", "Hello", "Look:"]
    assert len(provider.requests[1].messages[-1].content) == 2


async def test_abort_comes_between_the_error_event_and_the_prompts_failure() -> None:
    async with serving(ScriptedApp(Gated())) as wire:
        await wire.send({"id": "run-1", "command": "prompt", "params": {"input": "Hi"}})
        await wire.event("message_delta")
        await wire.send({"id": "abort-1", "command": "abort", "params": {"reason": "stop"}})
        failure = await wire.response("run-1")
        order = wire.types()
        at = order.index("error")
        assert order[at + 1] == "ok abort-1"
        assert order[-1] == "aborted run-1"
        assert wire.lines[at]["event"]["error"]["details"] == {"reason": "stop"}
        assert {line["id"] for line in wire.lines if "event" in line} == {"run-1"}
        assert failure["error"]["message"].startswith("Agent run aborted")
        # The session takes a new prompt at once.
        assert (await wire.ask("x", "abort"))["result"]["aborted"] is False


async def test_a_prompt_and_its_abort_in_one_write_keep_their_order() -> None:
    async with serving(ScriptedApp(Gated())) as wire:
        await wire.send({"id": 1, "command": "prompt", "params": {"input": "Hi"}},
                        {"id": 2, "command": "abort"})  # fmt: skip
        await wire.response(1)
        order = wire.types()
        assert order.index("error") < order.index("ok 2") < order.index("aborted 1")


async def test_requests_are_answered_while_a_run_is_active() -> None:
    provider = Gated()
    app = ScriptedApp(
        provider, commands=[CommandDefinition(name="ping", execute=lambda _args, _context: "pong")]
    )
    async with serving(app, session="s1") as wire:
        await wire.send({"id": 1, "command": "prompt", "params": {"input": "Hi"}})
        await wire.event("message_delta")
        state = (await wire.ask(2, "state"))["result"]
        assert (state["status"], state["sessionId"], state["queue"]) == ("running", "s1", 0)
        entries = (await wire.ask(3, "messages"))["result"]["entries"]
        assert [entry["message"]["role"] for entry in entries] == ["user"]
        assert (await wire.ask(4, "command", name="ping"))["ok"]
        assert (await wire.ask(5, "compact"))["error"]["code"] == "session_busy"
        assert (await wire.ask(6, "prompt", input="Me too"))["error"]["code"] == "session_busy"
        assert (await wire.ask(7, "followUp", input="And I"))["error"]["code"] == "session_busy"
        assert (await wire.ask(8, "setModel", model="m2"))["ok"]
        assert (await wire.ask(9, "forkSession", id="s2"))["result"]["sessionId"] == "s2"
        assert (await wire.ask(10, "state"))["result"]["sessionId"] == "s2"
        assert (await wire.ask(11, "switchSession", sessionId="s1"))["ok"]
        provider.gate.set()
        reply = await wire.response(1)
        assert reply["result"]["text"] == "One two"
        assert (await wire.ask(12, "state"))["result"]["status"] == "idle"


async def test_the_active_run_keeps_its_session_when_the_client_switches() -> None:
    provider = Gated()
    async with serving(ScriptedApp(provider), session="s1") as wire:
        await wire.send({"id": "a", "command": "prompt", "params": {"input": "Hi"}})
        await wire.event("message_delta")
        await wire.ask(1, "switchSession", id="s2", create=True)
        assert (await wire.ask(2, "abort"))["result"] == {"sessionId": "s2", "aborted": False}
        await wire.send({"id": "b", "command": "prompt", "params": {"input": "Hello"}})
        await wire.event("message_delta")
        reply = await wire.ask(3, "abort", sessionId="s1")
        assert reply["result"] == {"sessionId": "s1", "aborted": True}
        assert (await wire.response("a"))["error"]["code"] == "aborted"
        provider.gate.set()
        assert (await wire.response("b"))["result"]["sessionId"] == "s2"
        for line in wire.lines:
            if "event" in line:
                assert line["sessionId"] == {"a": "s1", "b": "s2"}[line["id"]]
        assert (await wire.ask(4, "abort", sessionId="s9"))["error"]["code"] == "session_not_found"


async def test_queued_input_joins_the_run_and_both_are_answered_at_its_end() -> None:
    provider = Gated()
    async with serving(ScriptedApp(provider)) as wire:
        await wire.send({"id": 1, "command": "prompt", "params": {"input": "First"}})
        await wire.event("message_delta")
        more = {"input": "Second", "queue": True}
        await wire.send({"id": 2, "command": "followUp", "params": more})
        queued = await wire.event("queue_updated")
        assert (queued["id"], queued["event"]["followUp"]) == (1, ["Second"])
        assert (await wire.ask(3, "state"))["result"]["queue"] == 1
        provider.gate.set()
        second = await wire.response(2)
        assert wire.types()[-2:] == ["ok 1", "ok 2"]
        assert second["result"] == wire.lines[-2]["result"]
        assert {line["id"] for line in wire.lines if "event" in line} == {1}
    assert [m.text for m in provider.requests[1].messages] == ["First", "One two", "Second"]


async def test_queued_input_for_an_idle_session_is_a_prompt() -> None:
    async with serving(ScriptedApp()) as wire:
        assert (await wire.ask(1, "prompt", input="Hi", queue=True))["result"]["text"] == "Hello"


async def test_input_queued_behind_an_abort_runs_when_the_session_is_free() -> None:
    release = anyio.Event()

    @tool
    async def stubborn() -> str:
        """Takes its time to stop."""
        with anyio.CancelScope(shield=True):
            await release.wait()
        return "late"

    call = tool_call(id="c1", name="stubborn", arguments={})
    provider = MockProvider([[call, done()], [text_delta("After"), done()]])
    async with serving(ScriptedApp(provider, tools=[stubborn])) as wire:
        await wire.send({"id": 1, "command": "prompt", "params": {"input": "Go"}})
        await wire.event("tool_execution_started")
        await wire.ask(2, "abort")
        more = {"input": "Next", "queue": True}
        await wire.send({"id": 3, "command": "prompt", "params": more})
        assert (await wire.ask(4, "state"))["result"]["status"] == "running"
        release.set()
        assert (await wire.response(3))["result"]["text"] == "After"
        assert "aborted 1" in wire.types()


async def test_steer_works_in_a_run_and_fails_closed_outside() -> None:
    provider = Gated()
    async with serving(ScriptedApp(provider), session="s1") as wire:
        assert (await wire.ask(1, "steer", input="Hey"))["error"]["code"] == "no_active_run"
        await wire.send({"id": 2, "command": "prompt", "params": {"input": "Hi"}})
        await wire.event("message_delta")
        reply = await wire.ask(3, "steer", input="Be brief")
        assert reply["result"] == {"sessionId": "s1", "queued": 1}
        provider.gate.set()
        await wire.response(2)
        assert {line["id"] for line in wire.lines if "event" in line} == {2}
    assert provider.requests[1].messages[-1].text == "Be brief"


async def test_clear_queue_gives_back_what_waits() -> None:
    provider = Gated()
    async with serving(ScriptedApp(provider)) as wire:
        await wire.send({"id": 1, "command": "prompt", "params": {"input": "Hi"}})
        await wire.event("message_delta")
        more = {"input": "Later", "queue": True}
        await wire.send({"id": 2, "command": "prompt", "params": more})
        await wire.ask(3, "steer", input="Now")
        reply = await wire.ask(4, "clearQueue")
        assert reply["result"] == {"steer": ["Now"], "followUp": ["Later"]}
        provider.gate.set()
        await wire.response(2)
    assert len(provider.requests) == 1


async def test_a_failed_run_is_answered_with_the_providers_code() -> None:
    failing = MockProvider([text_delta("Wel"), error(ErrorInfo(code="auth", message="Bad key."))])
    async with serving(ScriptedApp(failing)) as wire:
        reply = await wire.ask(1, "prompt", input="Hi")
        assert reply["error"]["code"] == "auth"
        assert reply["error"]["message"] == "Bad key."
        finished = next(line for line in wire.lines if short(line) == "message_finished")
        assert finished["event"]["partial"] is True
        # The next line works.
        assert (await wire.ask(2, "state"))["result"]["status"] == "idle"


async def test_continue_goes_on_or_says_that_there_is_nothing() -> None:
    provider = Gated()
    async with serving(ScriptedApp(provider)) as wire:
        await wire.send({"id": 1, "command": "prompt", "params": {"input": "Hi"}})
        await wire.event("message_delta")
        await wire.ask(2, "abort")
        await wire.response(1)
        provider.gate.set()
        assert (await wire.ask(3, "continue"))["result"]["text"] == "One two"
        assert (await wire.ask(4, "continue"))["error"]["code"] == "nothing_to_continue"


async def test_max_tool_rounds_of_a_request_ends_the_run_without_failing() -> None:
    call = tool_call(id="", name="add", arguments={"a": 1, "b": 1})
    app = ScriptedApp(MockProvider([call, done()]), tools=[add])
    async with serving(app, max_tool_rounds=5) as wire:
        reply = await wire.ask(1, "prompt", input="Go", maxToolRounds=2)
        assert reply["result"]["status"] == "max_tool_rounds"
        assert wire.types().count("tool_execution_finished") == 2
        await wire.ask(2, "prompt", input="Go")
        assert wire.types().count("tool_execution_finished") == 7


# Models


async def test_the_model_that_was_set_is_used_from_the_next_run_on() -> None:
    provider = Gated()
    async with serving(ScriptedApp(provider)) as wire:
        await wire.send({"id": 1, "command": "prompt", "params": {"input": "Hi"}})
        await wire.event("message_delta")
        reply = await wire.ask(2, "setModel", provider="mock", model="big")
        assert reply["result"] == {"model": {"provider": "mock", "model": "big"}}
        provider.gate.set()
        await wire.response(1)
        await wire.ask(3, "prompt", input="Again")
        assert (await wire.ask(4, "state"))["result"]["model"]["model"] == "big"
        model = {"provider": "mock", "model": "small", "parameters": {"temperature": 0}}
        await wire.ask(5, "prompt", input="Once more", model=model)
        await wire.ask(6, "setModel", model=model)
    assert [request.model.model for request in provider.requests] == ["demo", "big", "small"]
    assert provider.requests[2].model.parameters == {"temperature": 0}


# Compaction


async def test_compact_answers_with_what_it_made() -> None:
    async with serving(ScriptedApp(), session="s1") as wire:
        for number in range(3):
            await wire.ask(number, "prompt", input="Hi")
        reply = await wire.ask("c", "compact", keepRecentEntries=2)
        assert [line["id"] for line in wire.lines[-3:]] == ["c", "c", "c"]
        assert wire.types()[-3:] == ["compaction_started", "compaction_finished", "ok c"]
        (entry,) = reply["result"]["entries"]
        assert entry["kind"] == "compaction"
        assert entry["summary"] == reply["result"]["summary"]
        again = await wire.ask("d", "compact", keepRecentEntries=2)
        assert again["error"]["code"] == "nothing_to_compact"


async def test_other_requests_are_answered_during_a_compaction() -> None:
    started, release = anyio.Event(), anyio.Event()

    class Slow:
        name = "slow"

        async def compact(self, context: Any) -> Any:
            started.set()
            await release.wait()
            return await DefaultCompactionStrategy().compact(context)

    app = ScriptedApp(compaction=CompactionOptions(strategy=Slow(), keep_recent_entries=1))
    async with serving(app) as wire:
        await wire.ask(1, "prompt", input="Hi")
        await wire.ask(2, "prompt", input="Hi")
        await wire.send({"id": 3, "command": "compact"})
        await started.wait()
        assert (await wire.ask(4, "state"))["result"]["status"] == "compacting"
        assert (await wire.ask(5, "prompt", input="Now"))["error"]["code"] == "session_busy"
        more = {"input": "Then", "queue": True}
        await wire.send({"id": 6, "command": "prompt", "params": more})
        release.set()
        assert (await wire.response(3))["ok"]
        assert (await wire.response(6))["result"]["text"] == "Hello"


async def test_a_compaction_can_be_aborted() -> None:
    started = anyio.Event()

    class Stuck:
        name = "stuck"

        async def compact(self, context: Any) -> Any:
            _ = context
            started.set()
            await anyio.sleep_forever()

    app = ScriptedApp(compaction=CompactionOptions(strategy=Stuck(), keep_recent_entries=1))
    async with serving(app) as wire:
        await wire.ask(1, "prompt", input="Hi")
        await wire.send({"id": 3, "command": "compact"})
        await started.wait()
        assert (await wire.ask(4, "abort"))["result"]["aborted"] is True
        assert (await wire.response(3))["error"]["code"] == "aborted"


# Sessions


async def test_sessions_are_switched_made_and_listed() -> None:
    async with serving(ScriptedApp(), session="s1") as wire:
        await wire.ask(1, "prompt", input="Hi there")
        unknown = await wire.ask(2, "switchSession", sessionId="s2")
        assert unknown["error"]["code"] == "session_not_found"
        made = await wire.ask(3, "switchSession", sessionId="s2", create=True)
        assert made["result"] == {"sessionId": "s2"}
        assert (await wire.ask(4, "state"))["result"]["sessions"] == ["s1", "s2"]
        assert (await wire.ask(5, "switchSession", id="s1"))["ok"]
        (listed,) = (await wire.ask(6, "sessions"))["result"]["sessions"]
        assert listed["sessionId"] == "s1"
        assert (listed["entryCount"], listed["messageCount"]) == (2, 2)
        assert listed["firstMessage"] == "Hi there"
        both = await wire.ask(7, "switchSession", id="s1", sessionId="s2")
        assert both["error"]["code"] == "invalid_params"


async def test_a_stored_session_is_opened_by_switching_to_it() -> None:
    app = ScriptedApp()
    await app.agent.session("old").run("Hi")
    async with serving(app, session="new") as wire:
        assert (await wire.ask(1, "switchSession", id="old"))["ok"]
        assert len((await wire.ask(2, "messages"))["result"]["entries"]) == 2
    assert [options.session for options in app.seen] == ["new", "old"]


async def test_fork_and_clone_become_current() -> None:
    async with serving(ScriptedApp(), session="s1") as wire:
        await wire.ask(1, "prompt", input="One")
        await wire.ask(2, "prompt", input="Two")
        entries = (await wire.ask(3, "messages"))["result"]["entries"]
        fork = await wire.ask(4, "forkSession", leafId=entries[1]["id"], id="f")
        assert fork["result"] == {"sessionId": "f", "leafId": entries[1]["id"]}
        assert len((await wire.ask(5, "messages"))["result"]["entries"]) == 2
        clone = await wire.ask(6, "cloneSession")
        assert clone["result"]["sessionId"] not in {"s1", "f"}
        assert clone["result"]["leafId"] == entries[1]["id"]
        taken = await wire.ask(7, "cloneSession", id="s1")
        assert taken["error"]["code"] == "session_exists"
        lost = await wire.ask(8, "forkSession", leafId="nope")
        assert lost["error"]["code"] == "invalid_params"
        assert lost["error"]["details"]["reason"] == "entry_not_found"


async def test_the_tree_shows_branches_and_labels() -> None:
    async with serving(ScriptedApp(), session="s1") as wire:
        await wire.ask(1, "prompt", input="One")
        first, second = (await wire.ask(2, "messages"))["result"]["entries"]
        labelled = await wire.ask(3, "label", label="here", targetId=second["id"])
        assert set(labelled["result"]) == {"entryId"}
        at = await wire.ask(4, "checkout", leafId=first["id"])
        assert at["result"] == {"sessionId": "s1", "leafId": first["id"]}
        await wire.ask(5, "prompt", input="Two")
        tree = (await wire.ask(6, "tree"))["result"]
        nodes = {node["id"]: node for node in tree["entries"]}
        assert nodes[second["id"]]["label"] == "here"
        assert nodes[second["id"]]["parentId"] == first["id"]
        assert sum(node.get("parentId") == first["id"] for node in tree["entries"]) == 2
        assert tree["leafId"] == tree["entries"][-1]["id"]
        assert (await wire.ask(7, "checkout"))["result"] == {"sessionId": "s1"}
        assert (await wire.ask(8, "messages"))["result"]["entries"] == []
        newest = await wire.ask(9, "messages", limit=1)
        assert newest["result"]["entries"] == []


async def test_messages_may_be_limited_to_the_newest() -> None:
    async with serving(ScriptedApp()) as wire:
        await wire.ask(1, "prompt", input="One")
        (entry,) = (await wire.ask(2, "messages", limit=1))["result"]["entries"]
        assert entry["message"]["role"] == "assistant"


async def test_capabilities_say_what_there_is() -> None:
    command = CommandDefinition(
        name="om:status", execute=lambda _a, _c: None, parameters={"type": "object"}
    )
    async with serving(ScriptedApp(commands=[command])) as wire:
        found = (await wire.ask(1, "capabilities"))["result"]
        assert found["protocolVersion"] == 1
        assert {"prompt", "approve", "tree"} <= set(found["commands"])
        assert {"message_delta", "session_settled", "error"} <= set(found["events"])
        assert found["limits"]["maxLineBytes"] == 16 * 1024 * 1024
        assert found["appCommands"][0]["name"] == "om:status"
        for number, name in enumerate(found["commands"]):
            reply = await wire.ask(f"n{number}", name, **{"no such param": 1})
            assert reply["error"]["code"] == "invalid_params", name


# Commands of the app


async def test_a_command_runs_with_the_current_session() -> None:
    async def info(args: Any, context: CommandContext) -> dict[str, Any]:
        return {"args": args, "session": context.session_id}

    commands = [CommandDefinition(name="info", execute=info)]
    async with serving(ScriptedApp(commands=commands), session="s1") as wire:
        reply = await wire.ask(1, "command", name="info", args=[1])
        assert reply["result"] == {"name": "info", "value": {"args": [1], "session": "s1"}}
        missing = await wire.ask(2, "command", name="nope")
        assert missing["error"]["code"] == "command_not_found"


async def test_a_command_that_fails_is_answered_and_the_next_line_works() -> None:
    def fail(_args: Any, _context: CommandContext) -> None:
        raise LookupError("no luck")

    needs = CommandDefinition(
        name="needs",
        execute=lambda _a, _c: None,
        parameters={"type": "object", "required": ["path"]},
    )
    commands = [CommandDefinition(name="fail", execute=fail), needs]
    async with serving(ScriptedApp(commands=commands)) as wire:
        reply = await wire.ask(1, "command", name="fail")
        assert reply["error"] == {"message": "no luck", "name": "LookupError"}
        wrong = await wire.ask(2, "command", name="needs", args={})
        assert wrong["error"]["code"] == "invalid_params"
        assert wrong["error"]["details"]["reason"] == "invalid_arguments"


async def test_events_that_a_command_causes_carry_its_id() -> None:
    async def ask(_args: Any, context: CommandContext) -> str:
        return (await context.session.run("From a command")).text

    commands = [CommandDefinition(name="ask", execute=ask)]
    async with serving(ScriptedApp(commands=commands)) as wire:
        reply = await wire.ask("c1", "command", name="ask")
        assert reply["result"]["content"] == [{"type": "text", "text": "Hello"}]
        assert {line["id"] for line in wire.lines} == {"c1"}
        assert wire.types() == [*RUN, "ok c1"]


async def test_an_event_that_no_request_caused_carries_no_id() -> None:
    app = KeepingApp()
    async with serving(app) as wire:
        await wire.ask(1, "state")
        await app.made[0].run("By the host")
        await wire.event("session_settled")
        assert {line["id"] for line in wire.lines if "event" in line} == {None}


class KeepingApp(ScriptedApp):
    """Keeps the sessions that it makes, for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Session] = []

    def create_session(self, options: HostOptions) -> Session:
        self.made.append(super().create_session(options))
        return self.made[-1]


# Approvals


@pytest.mark.parametrize(
    ("decision", "more", "answer"),
    [
        ("allowed", {}, 5),
        ("edited", {"arguments": {"a": 10, "b": 1}}, 11),
        ("denied", {"reason": "too dear"}, None),
    ],
)
async def test_a_call_waits_for_the_clients_word(
    decision: str, more: dict[str, Any], answer: int | None
) -> None:
    async with serving(adding()) as wire:
        await wire.send({"id": "p", "command": "prompt", "params": {"input": "2+3?"}})
        asked = await wire.event("tool_approval_requested")
        assert asked["event"]["reason"] == "add costs money"
        approval_id = asked["event"]["approvalId"]
        state = (await wire.ask(1, "state"))["result"]
        assert (state["status"], state["approvals"]) == ("awaiting_approval", [approval_id])
        # Also when the client looks at another session.
        await wire.ask(2, "switchSession", id="other", create=True)
        reply = await wire.ask("a", "approve", approvalId=approval_id, decision=decision, **more)
        assert reply["result"] == {"approvalId": approval_id, "decision": decision}
        assert (await wire.response("p"))["result"]["text"] == "It is 5."
        order = wire.types()
        assert order.index("tool_approval_resolved") < order.index("ok a")
        finished = [line["event"] for line in wire.lines if short(line).endswith("_finished")]
        values = [event["result"].get("value") for event in finished if "result" in event]
        assert values == ([] if answer is None else [answer])
        twice = await wire.ask("b", "approve", approvalId=approval_id, decision="denied")
        assert twice["error"]["code"] == "invalid_params"


async def test_an_approval_can_be_given_after_a_restart() -> None:
    store = MemorySessionStore()
    first = adding(store=store)
    async with serving(first, session="s1") as wire:
        await wire.send({"id": "p", "command": "prompt", "params": {"input": "2+3?"}})
        asked = await wire.event("tool_approval_requested")
        # What a killed process leaves behind, under another id.
        await wire.ask("f", "cloneSession", id="killed")
    approval_id = asked["event"]["approvalId"]
    script = [[text_delta("It is 5."), done()]]
    again = ScriptedApp(MockProvider(script), tools=[add], permissions=Asking(), store=store)
    async with serving(again, session="killed") as wire:
        assert (await wire.ask(1, "state"))["result"]["approvals"] == [approval_id]
        reply = await wire.ask("a", "approve", approvalId=approval_id, decision="allowed")
        assert reply["result"]["decision"] == "allowed"
        assert reply["result"]["text"] == "It is 5."
        assert {line["id"] for line in wire.lines if "event" in line} == {"a"}
        done_calls = [line for line in wire.lines if short(line) == "tool_execution_finished"]
        assert [line["event"]["result"]["value"] for line in done_calls] == [5]
        assert "approvals" not in (await wire.ask(2, "state"))["result"]


async def test_the_end_of_input_denies_what_waits_and_the_run_ends() -> None:
    async with serving(adding()) as wire:
        await wire.send({"id": "p", "command": "prompt", "params": {"input": "2+3?"}})
        await wire.event("tool_approval_requested")
        await wire.close_input()
        assert (await wire.response("p"))["result"]["text"] == "It is 5."
        resolved = next(line for line in wire.lines if short(line) == "tool_approval_resolved")
        assert resolved["event"]["decision"] == "denied"


async def test_an_approval_that_is_asked_for_after_the_end_of_input_is_denied() -> None:
    async with serving(adding()) as wire:
        await wire.send({"id": "p", "command": "prompt", "params": {"input": "2+3?"}})
        await wire.close_input()
        assert (await wire.response("p"))["result"]["text"] == "It is 5."


# Requests that are wrong


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"{", "parse_error", None),
        (b"nonsense", "parse_error", None),
        (b"\xff\xfe", "parse_error", None),
        (b'{"id":"\xc3"}', "parse_error", None),
        (b'{"id":NaN,"command":"state"}', "parse_error", None),
        (b'{"id":1e999,"command":"state"}', "parse_error", None),
        (b'{"id":' + b"9" * 5_000 + b"}", "parse_error", None),
        (b'{"id":1,"id":2,"command":"state"}', "parse_error", None),
        (b'{"id":1,"command":"state","params":{"a":1,"a":2}}', "parse_error", None),
        (b"[" * 5_000 + b"]" * 5_000, "too_deep", None),
        (b"[" * 100_000, "too_deep", None),
        (b"null", "invalid_request", None),
        (b"[]", "invalid_request", None),
        (b"1", "invalid_request", None),
        (b"{}", "invalid_id", None),
        (b'{"command":"state"}', "invalid_id", None),
        (b'{"id":null,"command":"state"}', "invalid_id", None),
        (b'{"id":true,"command":"state"}', "invalid_id", None),
        (b'{"id":[1],"command":"state"}', "invalid_id", None),
        (b'{"id":"7"}', "invalid_request", "7"),
        (b'{"id":"7","command":3}', "invalid_request", "7"),
        (b'{"id":"7","command":""}', "invalid_request", "7"),
        (b'{"id":"7","command":"frobnicate"}', "unknown_command", "7"),
        (b'{"id":"7","command":"state","params":[]}', "invalid_params", "7"),
    ],
)  # fmt: skip
async def test_a_wrong_line_is_one_error_and_the_next_line_works(
    line: bytes, code: str, request_id: str | None
) -> None:
    async with serving(ScriptedApp()) as wire:
        await wire.send(line + b"\n", {"id": "next", "command": "state"})
        assert (await wire.response("next"))["ok"]
        wrong, _ = wire.lines
        assert (wrong["id"], wrong["ok"], wrong["error"]["code"]) == (request_id, False, code)


@pytest.mark.parametrize(
    ("command", "params"),
    [
        ("state", {"x": 1}),
        ("prompt", {}),
        ("prompt", {"input": ""}),
        ("prompt", {"input": " "}),
        ("prompt", {"input": []}),
        ("prompt", {"input": [1]}),
        ("prompt", {"input": 5}),
        ("prompt", {"input": "a", "prompt": "b"}),
        ("prompt", {"input": "a", "model": {}}),
        ("prompt", {"input": "a", "maxToolRounds": 0}),
        ("prompt", {"input": "a", "maxToolRounds": True}),
        ("prompt", {"input": "a", "thinkingLevel": "huge"}),
        ("prompt", {"input": "a", "\ud800": 1}),
        ("steer", {}),
        ("setModel", {"provider": "p"}),
        ("setModel", {"provider": "p", "model": {"provider": "p", "model": "m"}}),
        ("approve", {"approvalId": "x", "decision": "maybe"}),
        ("approve", {"approvalId": "x", "decision": "allowed"}),
        ("label", {"label": "x"}),
        ("checkout", {"leafId": "x"}),
        ("messages", {"limit": 0}),
    ],
)
async def test_wrong_params_are_refused_and_the_next_line_works(
    command: str, params: dict[str, Any]
) -> None:
    async with serving(ScriptedApp()) as wire:
        reply = await wire.ask("7", command, **params)
        assert reply["error"]["code"] == "invalid_params"
        assert (await wire.ask("next", "state"))["result"]["status"] == "idle"


async def test_a_line_above_16_mib_is_refused_and_the_next_line_works() -> None:
    async with serving(ScriptedApp()) as wire:
        big = {"id": 1, "command": "prompt", "params": {"input": "x" * (16 << 20)}}
        await wire.send(big, {"id": 2, "command": "state"})
        await wire.response(2)
        assert wire.types() == ["line_too_long None", "ok 2"]


async def test_a_line_just_below_16_mib_is_taken() -> None:
    async with serving(ScriptedApp()) as wire:
        reply = await wire.ask(1, "prompt", input="x" * ((16 << 20) - 100))
        assert reply["result"]["text"] == "Hello"


@pytest.mark.parametrize(
    "request_id", ["1", 1, 1.5, -0.25, 2**70, "", "é\u2028\x00", "x" * 9_999], ids=repr
)
async def test_an_id_comes_back_as_it_was_sent(request_id: str | int | float) -> None:
    async with serving(ScriptedApp()) as wire:
        assert (await wire.ask(request_id, "state"))["ok"]


async def test_the_same_number_and_text_are_two_ids() -> None:
    async with serving(ScriptedApp(Gated())) as wire:
        await wire.send({"id": 1, "command": "prompt", "params": {"input": "Hi"}})
        await wire.event("message_delta")
        assert (await wire.ask("1", "state"))["ok"]
        await wire.send({"id": 1, "command": "state"})
        assert (await wire.response(1))["error"]["code"] == "duplicate_id"
        await wire.ask(2, "abort")
        assert (await wire.response(1))["error"]["code"] == "aborted"
        assert (await wire.ask(1.0, "state"))["ok"]


async def test_carriage_returns_blank_lines_and_a_byte_order_mark_do_no_harm() -> None:
    async with serving(ScriptedApp()) as wire:
        await wire.send(b'\xef\xbb\xbf{"id":1,"command":"state"}\r\n\r\n\n')
        await wire.send(b'{"id":2,"command":"state"}\r\n')
        await wire.response(2)
        assert wire.types() == ["ok 1", "ok 2"]


async def test_the_last_line_needs_no_line_feed() -> None:
    async with serving(ScriptedApp()) as wire:
        await wire.send(b'{"id":1,"command":"state"}')
        await wire.close_input()
        assert [short(line) for line in await wire.rest()] == ["ok 1"]


async def test_half_a_line_at_the_end_is_an_error() -> None:
    async with serving(ScriptedApp()) as wire:
        await wire.send(b'{"id":1,"comm')
        await wire.close_input()
        assert [short(line) for line in await wire.rest()] == ["parse_error None"]


# Ends


async def test_the_end_of_input_lets_the_run_and_the_queue_finish() -> None:
    provider = Gated()
    async with serving(ScriptedApp(provider)) as wire:
        await wire.send({"id": 1, "command": "prompt", "params": {"input": "Hi"}})
        await wire.event("message_delta")
        more = {"input": "And", "queue": True}
        await wire.send({"id": 2, "command": "prompt", "params": more})
        await wire.event("queue_updated")
        await wire.close_input()
        provider.gate.set()
        rest = await wire.rest()
        assert [short(line) for line in rest[-2:]] == ["ok 1", "ok 2"]
    assert wire.status == 0
    assert len(provider.requests) == 2


async def test_a_secret_is_in_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2hunter2")
    provider = MockProvider([text_delta("It is hunter2"), text_delta("hunter2."), done()])

    def leak(_args: Any, _context: CommandContext) -> str:
        raise RuntimeError("cannot log in with hunter2hunter2")

    commands = [
        CommandDefinition(name="leak", execute=leak),
        CommandDefinition(name="show", execute=lambda _a, _c: {"key": "hunter2hunter2"}),
    ]
    app = ScriptedApp(provider, commands=commands)
    async with serving(app, session="s1", redact_env=("TOKEN",)) as wire:
        reply = await wire.ask(1, "prompt", input="Say hunter2hunter2")
        assert reply["result"]["text"] == "It is [REDACTED]."
        await wire.ask(2, "command", name="leak")
        await wire.ask(3, "command", name="show")
        await wire.ask(4, "messages")
        assert "hunter2hunter2" not in repr(wire.lines)
        assert repr(wire.lines).count("[REDACTED]") >= 5
    stored = await app.agent.store.entries("s1")
    assert all(b"hunter2hunter2" not in item.raw for item in stored)


async def test_the_tools_progress_is_an_event() -> None:
    @tool
    async def count(context: ToolContext) -> str:
        """Counts."""
        context.progress({"done": 1})
        return "counted"

    call = tool_call(id="c1", name="count", arguments={})
    script = [[call, done()], [text_delta("Done"), done()]]
    async with serving(ScriptedApp(MockProvider(script), tools=[count])) as wire:
        await wire.ask(1, "prompt", input="Go")
        progress = next(line for line in wire.lines if short(line) == "tool_execution_progress")
        assert progress["event"]["progress"] == {"done": 1}


# The client


async def test_the_client_speaks_for_itself() -> None:
    async with connected(ScriptedApp(), session="s1") as client:
        assert (await client.prompt("Hi")).text == "Hello"
        async with client.stream("Again") as run:
            kinds = [type(event).__name__ async for event in run]
        assert kinds[0] == "AgentStarted"
        assert kinds[-1] == "SessionSettled"
        assert run.result is not None
        assert run.result.status == "completed"
        entries = await client.messages(limit=1)
        assert isinstance(entries[0], MessageEntry)
        assert (await client.state()).status == "idle"
        assert (await client.capabilities()).protocol_version == 1
        assert await client.fork_session(id="f") == "f"
        assert {item.session_id for item in await client.sessions()} == {"f", "s1"}
        await client.switch_session("s1")
        await client.set_model("m2")
        await client.label("here")
        assert (await client.tree()).entries[-1].kind == "label"
        await client.reload()
        await client.checkout(None)
        assert (await client.clear_queue()).steer == []
        assert await client.abort() is False
        with pytest.raises(RpcFailure, match="no active run") as caught:
            await client.steer("Hey")
        assert caught.value.code == "no_active_run"


async def test_leaving_the_clients_stream_early_aborts_the_run() -> None:
    async with connected(ScriptedApp(Gated())) as client:
        async with client.stream("Hi") as run:
            async for event in run:
                if type(event).__name__ == "MessageDelta":
                    break
        assert run.result is None
        assert run.failed
        assert (await client.state()).status == "idle"
