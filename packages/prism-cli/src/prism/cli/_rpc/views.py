"""Commands that look at a session, move in it, or go to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from prism.cli._rpc.protocol import (
    CheckoutParams,
    CopyParams,
    LabelParams,
    MessagesParams,
    Params,
    Request,
    SetModelParams,
    SwitchParams,
    read_params,
)
from prism.cli._rpc.runs import as_model
from prism.core import (
    Session,
    SessionExists,
    SessionNotFound,
    SessionState,
)

if TYPE_CHECKING:
    from prism.cli._rpc.server import Server
    from prism.core.stores import SessionInfo


async def state(server: Server, request: Request) -> object:
    """What the current session is doing."""
    read_params(request, Params)
    now = await server.current.session.state()
    fields: dict[str, Any] = {
        "sessionId": now.session_id,
        "sessions": list(server.channels),
        "model": server.model or now.model,
        "status": now.status,
        "queue": now.steer + now.follow_up,
    }
    add_position(fields, now)
    if now.pending_approvals:
        fields["approvals"] = now.pending_approvals
    return fields


def add_position(fields: dict[str, Any], now: SessionState) -> None:
    """Where the session stands, as far as there is something to say."""
    if now.leaf_id is not None:
        fields["leafId"] = now.leaf_id
    if now.thinking_level is not None:
        fields["thinkingLevel"] = now.thinking_level
    if now.run_id is not None:
        fields["runId"] = now.run_id


async def messages(server: Server, request: Request) -> object:
    """The entries of the current branch, all or the newest."""
    params = read_params(request, MessagesParams)
    session = server.current.session
    entries = await session.entries()
    if params.limit is not None:
        entries = entries[-params.limit :]
    return {"sessionId": session.id, "entries": entries}


async def tree(server: Server, request: Request) -> object:
    """The shape of the current session."""
    read_params(request, Params)
    session = server.current.session
    nodes = [
        {
            key: value
            for key, value in (
                ("id", node.id),
                ("parentId", node.parent_id),
                ("kind", node.kind),
                ("label", node.label),
            )
            if value is not None
        }
        for node in await session.tree()
    ]
    return with_leaf({"sessionId": session.id, "entries": nodes}, session)


def with_leaf(fields: dict[str, Any], session: Session) -> dict[str, Any]:
    """The fields, and where the session stands unless at the empty root."""
    return fields if session.leaf_id is None else {**fields, "leafId": session.leaf_id}


async def sessions(server: Server, request: Request) -> object:
    """The sessions of the store."""
    read_params(request, Params)
    found = await server.current.session.agent.store.sessions()
    return {"sessions": [session_fields(info) for info in found]}


def session_fields(info: SessionInfo) -> dict[str, Any]:
    """A session of a list, as the wire names things."""
    fields: dict[str, Any] = msgspec.structs.asdict(info)
    return {camel(name): value for name, value in fields.items() if value is not None}


def camel(name: str) -> str:
    """`last_activity_at` as `lastActivityAt`."""
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


async def set_model(server: Server, request: Request) -> object:
    """Choose the model of the runs to come."""
    params = read_params(request, SetModelParams)
    session = server.current.session
    server.model = as_model(server, session, params.model, params.provider)
    return {"model": server.model}


async def switch_session(server: Server, request: Request) -> object:
    """Make another session the current one."""
    params = read_params(request, SwitchParams)
    wanted = cast("str", params.session_id or params.id)
    channel = server.channels.get(wanted)
    if channel is None:
        stored = await server.current.session.agent.store.entries(wanted, limit=1)
        if not stored and not params.create:
            raise SessionNotFound(f"No session {wanted!r}; `create: true` begins one.")
        server.check_room()
        channel = await server.open_channel(await server.host.open_session(wanted))
    server.current = channel
    return {"sessionId": channel.session.id}


async def fork_session(server: Server, request: Request) -> object:
    """Go on in a copy of the current path."""
    params = read_params(request, CopyParams)
    check_new(server, params.id)
    made = await server.current.session.fork(params.leaf_id, id=params.id)
    return await go_to(server, made)


async def clone_session(server: Server, request: Request) -> object:
    """Go on in a copy of the whole session."""
    params = read_params(request, CopyParams)
    check_new(server, params.id)
    made = await server.current.session.clone(id=params.id, leaf_id=params.leaf_id)
    return await go_to(server, made)


def check_new(server: Server, session_id: str | None) -> None:
    """Refuse what would not become a session of its own, before anything is stored.

    Raises:
        SessionExists: It is open; the store need not know it yet.
        UsageError: Too many are open.
    """
    if session_id in server.channels:
        raise SessionExists(f"Session {session_id!r} is open already.")
    server.check_room()


async def go_to(server: Server, session: Session) -> dict[str, Any]:
    """Make a new session the current one."""
    server.current = await server.open_channel(session)
    await session.state()
    return with_leaf({"sessionId": session.id}, session)


async def checkout(server: Server, request: Request) -> object:
    """Stand at another entry."""
    params = read_params(request, CheckoutParams)
    session = server.current.session
    await session.checkout(params.leaf_id)
    return with_leaf({"sessionId": session.id}, session)


async def reload(server: Server, request: Request) -> object:
    """Read the current session again, to go on after another process has written to it."""
    read_params(request, Params)
    session = server.current.session
    await session.reload()
    return with_leaf({"sessionId": session.id}, session)


async def label(server: Server, request: Request) -> object:
    """Name an entry."""
    params = read_params(request, LabelParams)
    entry = await server.current.session.label(params.label, target_id=params.target_id)
    return {"entryId": entry.id}
