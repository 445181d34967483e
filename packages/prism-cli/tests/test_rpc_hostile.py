"""Clients of the RPC that mean no good, or do everything at once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any

import anyio
import pytest

from prism.core import Agent, Session, UsageError, tool
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
    text_delta,
    tool_call,
)
from prism.core.stores import MemorySessionStore

from .rpc_harness import MODEL, ScriptedApp, Wire, serving

# Everything at once


async def turns(count: int) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


@tool
async def slow() -> str:
    """Take some turns of the event loop."""
    await turns(30)
    return "ok"


@tool
def ask() -> str:
    """Wait for an approval first."""
    return "ok"


class AskForOne:
    """Asks somebody about calls of `ask`."""

    async def decide(self, request: PermissionRequest) -> PermissionDecision:
        return PermissionDecision(verdict="ask" if request.name == "ask" else "allow")


def script(request: ProviderRequest) -> Iterable[ProviderEvent]:
    last = request.messages[-1]
    if last.role == "user" and last.text in {"slow", "ask"}:
        return [tool_call(id="", name=last.text, arguments={}), done()]
    return [text_delta("One "), text_delta("two"), done()]


async def wait(_args: Any, _context: CommandContext) -> str:
    await turns(20)
    return "waited"


def fail(_args: Any, _context: CommandContext) -> str:
    raise RuntimeError("\ud800 no")


async def run(_args: Any, context: CommandContext) -> str:
    return str((await context.session.run("slow")).text)


def busy_app() -> ScriptedApp:
    commands = [
        CommandDefinition(name=function.__name__, execute=function)
        for function in (wait, fail, run)
    ]
    return ScriptedApp(
        MockProvider(script), tools=[slow, ask], permissions=AskForOne(), commands=commands
    )


STRANGE_IDS = (0, -1, "", "\ud800", 2**64, 10**30, 1e308, "line\nfeed", "\u2028", "a" * 10_000)
INPUTS = ("slow", "ask", "hi")
SESSIONS = ("s1", "s2", "s3")
WEIGHTS = {
    "prompt": 6, "followUp": 2, "steer": 2, "abort": 2, "approve": 2, "compact": 2, "command": 2,
    "switchSession": 2,
}  # fmt: skip
COMMANDS = [
    "prompt", "followUp", "steer", "abort", "state", "messages", "setModel", "compact",
    "switchSession", "forkSession", "cloneSession", "command", "capabilities", "tree", "label",
    "checkout", "sessions", "clearQueue", "approve", "continue", "reload", "nonsense", "\ud800",
]  # fmt: skip


def some_params(pick: random.Random, command: str, approvals: list[str]) -> dict[str, Any]:
    """Params that the command may take, or refuse for a good reason."""
    choices: dict[str, list[dict[str, Any]]] = {
        "prompt": [{"queue": True}, {}],
        "followUp": [{"queue": True}, {}],
        "abort": [{}, {"reason": "\ud800"}, {"sessionId": pick.choice(SESSIONS)}],
        "approve": [{"decision": word} for word in ("allowed", "denied", "edited")],
        "checkout": [{}, {"leafId": "nowhere"}],
        "label": [{}, {"label": "a"}],
        "setModel": [{"model": "m"}, {"model": "\ud800"}],
        "compact": [{}, {"keepRecentEntries": 1}],
        "switchSession": [{"sessionId": pick.choice(SESSIONS), "create": True}],
        "forkSession": [{}, {"id": pick.choice(SESSIONS)}],
        "cloneSession": [{}, {"id": pick.choice(SESSIONS)}],
        "command": [{"name": name} for name in ("wait", "fail", "run", "none")],
    }
    params = dict(pick.choice(choices.get(command, [{}])))
    if command in {"prompt", "followUp", "steer"}:
        params["input"] = pick.choice(INPUTS)
    if command == "approve":
        params["approvalId"] = pick.choice(approvals or ["none"])
    return params


def some_requests(pick: random.Random, approvals: list[str]) -> Iterator[dict[str, Any]]:
    used: set[tuple[bool, Any]] = set()
    weights = [WEIGHTS.get(command, 1) for command in COMMANDS]
    for number in range(100, 100 + pick.randint(5, 120)):
        strange = pick.random() < 0.1
        ids = STRANGE_IDS if strange else (number, str(number), number + 0.5)
        request_id = pick.choice(ids)
        if (isinstance(request_id, str), request_id) in used:
            request_id = number
        used.add((isinstance(request_id, str), request_id))
        (command,) = pick.choices(COMMANDS, weights)
        params = some_params(pick, command, approvals)
        yield {"id": request_id, "command": command, "params": params}


async def read_all(wire: Wire, approvals: list[str]) -> None:
    try:
        while True:
            line = await wire.line()
            if "event" in line and line["event"]["type"] == "tool_approval_requested":
                approvals.append(line["event"]["approvalId"])
    except anyio.EndOfStream:
        pass


@pytest.mark.parametrize("seed", range(12))
async def test_every_request_is_answered_once_whatever_comes_at_whatever_time(seed: int) -> None:
    pick = random.Random(seed)  # noqa: S311
    approvals: list[str] = []
    sent: list[Any] = []
    with anyio.fail_after(20):
        async with serving(busy_app(), session="s1") as wire, anyio.create_task_group() as group:
            group.start_soon(read_all, wire, approvals)
            for request in some_requests(pick, approvals):
                sent.append(request["id"])
                await wire.send(request)
                await turns(pick.choice((0, 0, 0, 1, 5, 50)))
            await wire.close_input()
    answered = [line["id"] for line in wire.lines if "ok" in line]
    assert Counter(map(repr, answered)) == Counter(map(repr, sent))
    assert wire.status == 0
    codes = {line["error"].get("code") for line in wire.lines if line.get("ok") is False}
    assert "store_conflict" not in codes  # nobody else writes to this store


async def test_a_flood_of_nonsense_does_not_hold_up_a_run() -> None:
    async with serving(ScriptedApp()) as wire:
        prompt = json.dumps({"id": 1, "command": "prompt", "params": {"input": "Hi"}})
        await wire.send(prompt.encode() + b"\n" + b"x\n" * 10_000)
        await wire.response(1)
        assert len(wire.lines) < 5_000
        await wire.ask(2, "state")
        assert sum(line["id"] is None for line in wire.lines if "ok" in line) == 10_000


class Gated:
    """Counts the messages that it is sent, once the test opens the gate."""

    id = "mock"

    def __init__(self) -> None:
        self.gate = anyio.Event()

    async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        await self.gate.wait()
        yield text_delta(str(len(request.messages)))
        yield done()


async def test_input_that_joins_a_run_keeps_the_first_id_from_its_first_event_on() -> None:
    provider = Gated()
    async with serving(ScriptedApp(provider)) as wire:
        prompt = {"command": "prompt", "params": {"input": "Hi", "queue": True}}
        await wire.send(*({"id": number, **prompt} for number in range(10)))
        await wire.ask("all of them are in", "state")
        provider.gate.set()
        for number in range(10):
            assert (await wire.response(number))["ok"]
        assert {line["id"] for line in wire.lines if "event" in line} == {0}


# What is refused, and what comes first


async def test_a_failure_comes_behind_the_events_of_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer_approval(self: Session, *_: Any, **__: Any) -> None:
        await self.run("Hi")
        raise UsageError("Too late.")

    monkeypatch.setattr(Session, "answer_approval", answer_approval)
    async with serving(ScriptedApp()) as wire:
        await wire.ask(1, "prompt", input="Hi")
        before = len(wire.lines)
        reply = await wire.ask(2, "approve", approvalId="a", decision="allowed")
        assert reply["error"]["message"] == "Too late."
        *events, _ = wire.lines[before:]
        assert events
        assert {line["id"] for line in events} == {2}
        await wire.ask(3, "state")
        assert "event" not in wire.lines[-2]


async def test_a_fork_cannot_take_the_id_of_a_session_that_is_open_and_empty() -> None:
    async with serving(ScriptedApp(), session="s1") as wire:
        await wire.ask(1, "prompt", input="Hi")
        await wire.ask(2, "switchSession", id="s2", create=True)
        await wire.ask(3, "switchSession", id="s1")
        for request_id, command in enumerate(("forkSession", "cloneSession"), 4):
            reply = await wire.ask(request_id, command, id="s2")
            assert reply["error"]["code"] == "session_exists"
        await wire.ask(6, "switchSession", id="s2")
        assert (await wire.ask(7, "prompt", input="Hi"))["ok"]


async def test_nothing_is_stored_for_a_session_that_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("prism.cli._rpc.server.MAX_SESSIONS", 1)
    async with serving(ScriptedApp(), session="s1") as wire:
        await wire.ask(1, "prompt", input="Hi")
        for request_id, (command, params) in enumerate(
            [
                ("forkSession", {"id": "s2"}),
                ("cloneSession", {"id": "s2"}),
                ("switchSession", {"id": "s2", "create": True}),
            ],
            2,
        ):
            reply = await wire.ask(request_id, command, **params)
            assert reply["error"]["code"] == "unsupported"
        found = (await wire.ask(5, "sessions"))["result"]["sessions"]
        assert [info["sessionId"] for info in found] == ["s1"]


async def test_another_writer_is_a_conflict_and_reload_goes_on() -> None:
    store = MemorySessionStore()
    async with serving(ScriptedApp(store=store), session="s1") as wire:
        await wire.ask(1, "prompt", input="Hi")
        other = Agent(model=MODEL, provider=MockProvider(), store=store)
        theirs = await other.session("s1").run("I was here")
        for request_id in (2, 3):
            reply = await wire.ask(request_id, "prompt", input="And now?")
            assert reply["error"]["code"] == "store_conflict"
        reply = await wire.ask(4, "reload")
        assert reply["result"] == {"sessionId": "s1", "leafId": theirs.leaf_id}
        assert (await wire.ask(5, "prompt", input="And now?"))["ok"]
        assert len((await wire.ask(6, "messages"))["result"]["entries"]) == 6


async def test_as_many_inputs_wait_as_capabilities_say_of_both_kinds() -> None:
    provider = Gated()
    async with serving(ScriptedApp(provider), session="s1") as wire:
        limit = (await wire.ask("c", "capabilities"))["result"]["limits"]["maxQueued"]
        await wire.send({"id": 0, "command": "prompt", "params": {"input": "First"}})
        await wire.event("turn_started")
        for number in range(1, limit + 1):
            if number % 2:
                assert (await wire.ask(number, "steer", input="Hurry"))["ok"]
            else:
                params = {"input": "And", "queue": True}
                await wire.send({"id": number, "command": "prompt", "params": params})
        state = await wire.ask("s", "state")
        assert state["result"]["queue"] == limit == 256
        for request_id, command in (("x", "steer"), ("y", "prompt")):
            params = {"queue": True} if command == "prompt" else {}
            reply = await wire.ask(request_id, command, input="Too much", **params)
            assert reply["error"]["code"] == "session_busy"
            assert reply["error"]["details"] == {"limit": limit, "reason": "queue_full"}
        told = [line for line in wire.lines if "event" in line]
        assert {line["id"] for line in told} == {0}  # all is about the one run
        await wire.send({"id": "clear", "command": "clearQueue"})
        await wire.response("clear")
        provider.gate.set()
        assert (await wire.response(limit))["ok"]
