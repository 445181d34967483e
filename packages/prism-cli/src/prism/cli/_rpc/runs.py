"""Commands that set the session to work, or tell it something while it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from anyio import CancelScope

from prism.cli._rpc.channel import ActiveRun, Cause, Channel
from prism.cli._rpc.protocol import (
    AbortParams,
    ApproveParams,
    CommandParams,
    CompactParams,
    InputParams,
    Params,
    PromptParams,
    Request,
    RunParams,
    read_input,
    read_params,
)
from prism.core import (
    ModelConfig,
    RunAborted,
    RunResult,
    SecretRedactor,
    Session,
    SessionBusy,
    SessionNotFound,
    UsageError,
)

if TYPE_CHECKING:
    from prism.cli._rpc.server import Server

LATER: Final = object()
"""Returned by a command whose response comes when it is done."""


async def prompt(server: Server, request: Request) -> object:
    """Say something, and answer at the end of the run."""
    params = read_params(request, PromptParams)
    said = read_input(params)
    channel = server.current
    session = channel.session
    options = run_options(server, session, params)

    def run(active: ActiveRun) -> Awaitable[RunResult]:
        return channel.run(active, lambda: session.run(said, **options))

    if (await session.state()).status == "idle":
        await server.start_run(channel, request.id, run)
        return LATER
    if not params.queue:
        raise SessionBusy(f"Session {session.id!r} is busy; `queue: true` waits for it.")
    if params.model is not None or params.max_tool_rounds or params.thinking_level is not None:
        raise UsageError(
            "model, maxToolRounds and thinkingLevel cannot be given with input that joins a run."
        )
    if await join(channel, request, said):
        return LATER

    async def run_when_possible(active: ActiveRun) -> RunResult | None:
        while not server.stopping:
            if (await session.state()).status == "idle":
                with suppress(SessionBusy):  # somebody else was quicker
                    return await run(active)
            elif await join(channel, request, said):
                return None
            await session.wait_settled()
        raise RunAborted("The server was stopped.")

    await server.start_run(channel, request.id, run_when_possible)
    return LATER


async def join(channel: Channel, request: Request, said: Any) -> bool:
    """Let input join the active run; false when none can take it now."""
    run = channel.active
    if run is None:
        return False
    joined = False
    cause = channel.begin(run.request_id, runs=False)
    # `follow_up` takes the input at once or waits for the session, which is not wanted here.
    try:
        with CancelScope() as scope:
            scope.cancel()
            await channel.session.follow_up(said)
            joined = True
    finally:
        channel.end(cause, lambda: None)
    if joined:
        run.joined.append(request.id)
    return joined


async def continue_(server: Server, request: Request) -> object:
    """Go on without new input."""
    params = read_params(request, RunParams)
    channel = server.current
    session = channel.session
    if (await session.state()).status != "idle":
        raise SessionBusy(f"Session {session.id!r} is busy.")
    options = run_options(server, session, params)
    await server.start_run(channel, request.id, resume(channel, options))
    return LATER


def resume(
    channel: Channel, options: dict[str, Any]
) -> Callable[[ActiveRun], Awaitable[RunResult]]:
    """A run without new input."""
    session = channel.session
    return lambda active: channel.run(active, lambda: session.continue_(**options))


def run_options(server: Server, session: Session, params: RunParams | None) -> dict[str, Any]:
    """The flags' options, then those of earlier requests, then the request's own."""
    options = {**server.host.run_options, "approvals": "wait"}
    if server.model is not None:
        options["model"] = server.model
    if params is not None:
        if params.model is not None:
            options["model"] = as_model(server, session, params.model)
        if params.max_tool_rounds is not None:
            options["max_tool_rounds"] = params.max_tool_rounds
        if params.thinking_level is not None:
            options["thinking_level"] = params.thinking_level
    return options


def as_model(
    server: Server, session: Session, model: ModelConfig | str, provider: str | None = None
) -> ModelConfig:
    """A model by name, of the provider in use unless another is named.

    Raises:
        RegistryError: Nobody serves it.
    """
    if isinstance(model, str):
        used = server.model or session.agent.model
        model = ModelConfig(provider=provider or used.provider, model=model)
    session.agent.resolve_provider(model)
    return model


async def steer(server: Server, request: Request) -> object:
    """Say something to the run that is active."""
    said = read_input(read_params(request, InputParams))
    session = server.current.session

    async def work() -> dict[str, Any]:
        session.steer(said)
        return {"sessionId": session.id, "queued": (await session.state()).steer}

    return await told(server, server.current, request, work)


async def told(
    server: Server, channel: Channel, request: Request, work: Callable[[], Awaitable[Any]]
) -> object:
    """Do something whose events carry the request's id and come before its response."""
    done = await attempt(server, channel, request, work)
    if done is not None:
        cause, result = done
        channel.end(cause, lambda: server.reply(request.id, result))
    return LATER


async def attempt(
    server: Server, channel: Channel, request: Request, work: Callable[[], Awaitable[Any]]
) -> tuple[Cause, Any] | None:
    """Do something whose events carry the request's id; what it gives, and the open cause.

    A failure is answered behind those events, and gives `None`.
    """
    cause = channel.begin(request.id, runs=False)
    try:
        return cause, await work()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the response
        channel.end(cause, partial(server.fail, request.id, error))
        return None
    except BaseException:
        channel.drop(cause)
        raise


async def abort(server: Server, request: Request) -> object:
    """Stop the active run or compaction."""
    params = read_params(request, AbortParams)
    channel = server.current
    if params.session_id is not None:
        found = server.channels.get(params.session_id)
        if found is None:
            raise SessionNotFound(f"No session {params.session_id!r} is open.")
        channel = found
    session_id = channel.session.id
    aborted = channel.session.abort(params.reason)
    result = {"sessionId": session_id, "aborted": aborted}
    if not aborted:
        return result
    # Behind the `error` event that the run has just sent.
    channel.mark(lambda: server.reply(request.id, result))
    return LATER


async def approve(server: Server, request: Request) -> object:
    """Answer a call that waits; one from before a restart is then run."""
    params = read_params(request, ApproveParams)
    channel = await find_approval(server, params.approval_id)
    session = channel.session
    result = {"approvalId": params.approval_id, "decision": params.decision}

    async def work() -> dict[str, Any]:
        await session.answer_approval(
            params.approval_id,
            params.decision,
            arguments=params.arguments,
            reason=params.reason,
        )
        return result

    if (await session.state()).status != "idle":
        return await told(server, channel, request, work)
    done = await attempt(server, channel, request, work)
    if done is None:
        return LATER
    channel.end(done[0], lambda: None)
    if (await session.state()).pending_approvals:
        channel.mark(lambda: server.reply(request.id, result))
        return LATER
    options = run_options(server, session, None)
    await server.start_run(channel, request.id, resume(channel, options), **result)
    return LATER


async def find_approval(server: Server, approval_id: str) -> Channel:
    """The session that waits for this approval; the current one when none does."""
    for channel in server.channels.values():
        if approval_id in (await channel.session.state()).pending_approvals:
            return channel
    return server.current


async def clear_queue(server: Server, request: Request) -> object:
    """Take back what waits."""
    read_params(request, Params)
    session = server.current.session

    async def work() -> dict[str, Any]:
        steering, follow_ups = session.clear_queue()
        return {"steer": steering, "followUp": follow_ups}

    return await told(server, server.current, request, work)


async def compact(server: Server, request: Request) -> object:
    """Fold older entries into a summary."""
    params = read_params(request, CompactParams)
    channel = server.current
    session = channel.session
    if (await session.state()).status != "idle":
        raise SessionBusy(f"Session {session.id!r} is busy.")
    fields: dict[str, Any] = {}
    if params.keep_recent_entries is not None:
        fields["keep_recent_entries"] = params.keep_recent_entries
    if params.instructions is not None:
        fields["instructions"] = params.instructions
    if server.host.redactor is not None:
        fields["secrets"] = known_secrets(session, server.host.redactor)

    async def work() -> dict[str, Any]:
        made = await session.compact(**fields)
        return {"summary": made.summary, "entries": made.entries}

    await server.start_work(channel, request.id, work)
    return LATER


def known_secrets(session: Session, redactor: SecretRedactor) -> tuple[str, ...]:
    """The session's own secrets and the flags'."""
    own = session.agent.compaction
    return (*(() if own is None else own.secrets), *redactor.reveal())


async def command(server: Server, request: Request) -> object:
    """Run one of the app's commands."""
    params = read_params(request, CommandParams)
    definition = server.host.commands.get(params.name)
    if definition is None:
        known = ", ".join(server.host.commands) or "none"
        raise UsageError(
            f"No command {params.name!r}; the app has: {known}.", code="command_not_found"
        )
    from prism.core.host import CommandContext, run_command

    channel = server.current
    context = CommandContext(session_id=channel.session.id, session=channel.session)
    await server.start_work(
        channel, request.id, lambda: run_command(definition, params.args, context)
    )
    return LATER
