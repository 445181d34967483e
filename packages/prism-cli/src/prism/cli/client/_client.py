"""The client: one method a command, and the process that it talks to."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from os import PathLike
from subprocess import PIPE
from typing import Any, Final, TypeVar

import anyio
import msgspec
from anyio import CancelScope, get_cancelled_exc_class
from anyio.abc import Process

from prism.cli.client._connection import Connection, EventStream, RpcConnectionError, event_of
from prism.cli.client._results import (
    Capabilities,
    CompactionReply,
    QueueReply,
    RunReply,
    SessionListItem,
    StateReply,
    TreeReply,
)
from prism.core import (
    AgentEvent,
    CommandResult,
    ModelConfig,
    SessionEntry,
    decode_entry,
    parse_json,
)

T = TypeVar("T")

CLOSE_SECONDS: Final = 5.0
"""How long a server may take to end after its input was closed, before it is terminated."""

TERMINATE_SECONDS: Final = 2.0
"""How long it may take after SIGTERM, before it is killed."""


class RpcRun:
    """The events of one prompt: iterate it. After the last one `result` is there.

    Attributes:
        request_id: The id that the events carry.
        result: How the run ended.
    """

    def __init__(self, client: RpcClient, events: EventStream, params: dict[str, Any]) -> None:
        self.request_id: str = client.connection.new_id()
        self.result: RunReply | None = None
        self._client = client
        self._events = events
        self._params = params
        self._error: Exception | None = None

    @property
    def failed(self) -> bool:
        """Whether the response was an error."""
        return self._error is not None

    async def send(self) -> None:
        """Send the prompt, wait for its response, and end the iteration."""
        try:
            self.result = await self._client.typed(
                "prompt", self._params, RunReply, id=self.request_id
            )
        except Exception as error:  # noqa: BLE001 - raised where the events are read
            self._error = error
        self._events.close()

    def __aiter__(self) -> RpcRun:
        return self

    async def __anext__(self) -> AgentEvent:
        while True:
            try:
                told = await self._events.__anext__()
            except StopAsyncIteration:
                if self._error is not None:
                    raise self._error from None
                raise
            if told.id == self.request_id:
                return event_of(told)


class RpcClient:
    """Talks to one server. Make it with `start`, or with a `Connection` of your own.

    All methods raise `RpcFailure` when the server answers with an error, and `RpcConnectionError`
    when it has gone.

    Attributes:
        connection: For requests without a method of their own.
        process: The server, when `start` started one.
    """

    def __init__(self, connection: Connection, process: Process | None = None) -> None:
        self.connection = connection
        self.process = process

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        arguments: Sequence[str] = (),
        *,
        command: Sequence[str] = (sys.executable, "-m", "prism.cli"),
        cwd: str | PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stderr: Any = None,
    ) -> AsyncGenerator[RpcClient]:
        """Start a server; leaving the context closes its input and waits for its end.

        Args:
            arguments: Flags, such as `["--provider", "mock"]`; `--mode rpc` is added.
            command: The `prism` command; default: this Python's.
            cwd: Where it runs.
            env: Its environment; default: this process's.
            stderr: As `subprocess.Popen` takes it; default: this process's.
        """
        process = await anyio.open_process(
            [*command, "--mode", "rpc", *arguments],
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
            cwd=cwd,
            env=env,
        )
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
        client = cls(Connection(process.stdin, process.stdout), process)
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(client.connection.listen)
                try:
                    yield client
                except get_cancelled_exc_class():
                    raise
                except BaseException as error:  # noqa: BLE001 - raised below, without a group
                    failure = error
                await client.aclose()
        finally:
            with CancelScope(shield=True):
                await _end(process)
        if failure is not None:
            raise failure

    async def aclose(self) -> int | None:
        """Close the server's input and wait for its end; it is terminated when that takes long.

        Returns:
            The exit status; negative for the signal that killed it.
        """
        await self.connection.close_input()
        process = self.process
        if process is None:
            return None
        with anyio.move_on_after(CLOSE_SECONDS):
            return await process.wait()
        await _end(process)
        return process.returncode

    def terminate(self) -> None:
        """Ask the server with SIGTERM to end; it still answers what it can."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    async def typed(
        self,
        command: str,
        params: dict[str, Any],
        kind: type[T],
        *,
        id: str | int | float | None = None,  # noqa: A002
    ) -> T:
        """Send a request and read its result as *kind*; params that are `None` are left out."""
        given = {name: value for name, value in params.items() if value is not None}
        result = await self.connection.request(command, given, id=id)
        try:
            return msgspec.convert(parse_json(result), kind)
        except msgspec.ValidationError as error:
            raise RpcConnectionError(f"The result of {command} is not as agreed: {error}") from None

    def events(self) -> AbstractAsyncContextManager[EventStream]:
        """All events from here on, each with the id of its request: `async with … as events`."""
        return self.connection.events()

    # Runs

    async def prompt(
        self,
        input: str | list[dict[str, Any]],  # noqa: A002
        *,
        model: ModelConfig | str | None = None,
        max_tool_rounds: int | None = None,
        thinking_level: str | None = None,
        queue: bool | None = None,
    ) -> RunReply:
        """Say something, and wait for the end of the run."""
        params = _run_params(input, model, max_tool_rounds, thinking_level, queue)
        return await self.typed("prompt", params, RunReply)

    async def follow_up(
        self,
        input: str | list[dict[str, Any]],  # noqa: A002
        *,
        queue: bool = True,
    ) -> RunReply:
        """Say something once the model has finished; wait for the end of that run."""
        params = {"input": input, "queue": queue}
        return await self.typed("followUp", params, RunReply)

    @asynccontextmanager
    async def stream(
        self,
        input: str | list[dict[str, Any]],  # noqa: A002
        *,
        model: ModelConfig | str | None = None,
        max_tool_rounds: int | None = None,
        thinking_level: str | None = None,
    ) -> AsyncGenerator[RpcRun]:
        """Say something, and read the events of the run; leaving early aborts it."""
        params = _run_params(input, model, max_tool_rounds, thinking_level, None)
        failure: BaseException | None = None
        async with self.connection.events() as events:
            run = RpcRun(self, events, params)
            async with anyio.create_task_group() as group:
                group.start_soon(run.send)
                try:
                    yield run
                except get_cancelled_exc_class():
                    raise
                except BaseException as error:  # noqa: BLE001 - raised below, without a group
                    failure = error
                if run.result is None and not run.failed:
                    await self.abort("the stream was closed")
        if failure is not None:
            raise failure

    async def continue_(self) -> RunReply:
        """Go on without new input."""
        return await self.typed("continue", {}, RunReply)

    async def steer(self, input: str | list[dict[str, Any]]) -> int:  # noqa: A002
        """Say something to the active run; how many such inputs wait now."""
        result = await self.typed("steer", {"input": input}, dict[str, Any])
        return int(result["queued"])

    async def abort(self, reason: str | None = None, *, session_id: str | None = None) -> bool:
        """Stop the active run; whether there was one."""
        params = {"reason": reason, "sessionId": session_id}
        return bool((await self.typed("abort", params, dict[str, Any]))["aborted"])

    async def approve(
        self,
        approval_id: str,
        decision: str,
        *,
        arguments: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> None:
        """Answer a call that waits: `allowed`, `edited` (with *arguments*) or `denied`."""
        params = {
            "approvalId": approval_id,
            "decision": decision,
            "arguments": arguments,
            "reason": reason,
        }
        await self.typed("approve", params, dict[str, Any])

    async def clear_queue(self) -> QueueReply:
        """Take back what waits."""
        return await self.typed("clearQueue", {}, QueueReply)

    async def compact(
        self, *, keep_recent_entries: int | None = None, instructions: str | None = None
    ) -> CompactionReply:
        """Fold older entries into a summary."""
        params = {"keepRecentEntries": keep_recent_entries, "instructions": instructions}
        return await self.typed("compact", params, CompactionReply)

    async def command(self, name: str, args: Any = None) -> CommandResult:
        """Run one of the app's commands."""
        return await self.typed("command", {"name": name, "args": args}, CommandResult)

    # What is there

    async def state(self) -> StateReply:
        """What the current session is doing."""
        return await self.typed("state", {}, StateReply)

    async def messages(self, *, limit: int | None = None) -> list[SessionEntry]:
        """The entries of the current branch, all or the newest."""
        params = {} if limit is None else {"limit": limit}
        result = await self.connection.request("messages", params)
        raw = msgspec.json.decode(result, type=dict[str, msgspec.Raw])["entries"]
        return [
            decode_entry(bytes(item)) for item in msgspec.json.decode(raw, type=list[msgspec.Raw])
        ]

    async def tree(self) -> TreeReply:
        """The shape of the current session."""
        return await self.typed("tree", {}, TreeReply)

    async def sessions(self) -> list[SessionListItem]:
        """The sessions of the server's store."""
        result = await self.typed("sessions", {}, dict[str, list[SessionListItem]])
        return result["sessions"]

    async def capabilities(self) -> Capabilities:
        """What the server can do."""
        return await self.typed("capabilities", {}, Capabilities)

    # Where requests go

    async def set_model(self, model: ModelConfig | str, *, provider: str | None = None) -> None:
        """Choose the model of the runs to come."""
        await self.typed("setModel", {"model": model, "provider": provider}, dict[str, Any])

    async def switch_session(self, session_id: str, *, create: bool = False) -> None:
        """Make another session the current one."""
        params = {"sessionId": session_id, "create": create}
        await self.typed("switchSession", params, dict[str, Any])

    async def fork_session(
        self,
        leaf_id: str | None = None,
        *,
        id: str | None = None,  # noqa: A002
    ) -> str:
        """Go on in a copy of the current path; its session id."""
        params = {"leafId": leaf_id, "id": id}
        return str((await self.typed("forkSession", params, dict[str, Any]))["sessionId"])

    async def clone_session(
        self,
        *,
        id: str | None = None,  # noqa: A002
        leaf_id: str | None = None,
    ) -> str:
        """Go on in a copy of the whole session; its session id."""
        params = {"leafId": leaf_id, "id": id}
        return str((await self.typed("cloneSession", params, dict[str, Any]))["sessionId"])

    async def checkout(self, leaf_id: str | None) -> None:
        """Stand at another entry; `None` is the empty root."""
        await self.typed("checkout", {"leafId": leaf_id}, dict[str, Any])

    async def reload(self) -> None:
        """Read the current session again, to go on after another process has written to it."""
        await self.typed("reload", {}, dict[str, Any])

    async def label(self, label: str | None, *, target_id: str | None = None) -> str:
        """Name an entry, or take its name away; the id of the label's entry."""
        params = {"label": label, "targetId": target_id}
        return str((await self.typed("label", params, dict[str, Any]))["entryId"])


def _run_params(
    said: str | list[dict[str, Any]],
    model: ModelConfig | str | None,
    max_tool_rounds: int | None,
    thinking_level: str | None,
    queue: bool | None,  # noqa: FBT001
) -> dict[str, Any]:
    return {
        "input": said,
        "model": model,
        "maxToolRounds": max_tool_rounds,
        "thinkingLevel": thinking_level,
        "queue": queue,
    }


async def _end(process: Process) -> None:
    """Make sure that the process has ended."""
    if process.returncode is None:
        process.terminate()
        with anyio.move_on_after(TERMINATE_SECONDS):
            await process.wait()
    if process.returncode is None:
        process.kill()
    await process.wait()
    await process.aclose()
