"""The commands by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import msgspec

from prism.cli._rpc.framing import MAX_LINE_BYTES
from prism.cli._rpc.protocol import (
    MAX_IN_FLIGHT,
    MAX_QUEUED,
    MAX_SESSIONS,
    PROTOCOL_VERSION,
    Params,
    Request,
    read_params,
)
from prism.cli._rpc.runs import (
    LATER,
    abort,
    approve,
    clear_queue,
    command,
    compact,
    continue_,
    prompt,
    steer,
)
from prism.cli._rpc.views import (
    checkout,
    clone_session,
    fork_session,
    label,
    messages,
    reload,
    sessions,
    set_model,
    state,
    switch_session,
    tree,
)
from prism.core import AgentEvent

if TYPE_CHECKING:
    from prism.cli._rpc.server import Server

MAX_DEPTH: Final = 512
"""Deepest nesting of a request, as the wire has it."""

Handler: TypeAlias = "Callable[[Server, Request], Awaitable[Any]]"


async def capabilities(server: Server, request: Request) -> object:
    """What this server can do."""
    read_params(request, Params)
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "commands": list(COMMANDS),
        "events": event_types(),
        "limits": {
            "maxLineBytes": MAX_LINE_BYTES,
            "maxDepth": MAX_DEPTH,
            "maxInFlight": MAX_IN_FLIGHT,
            "maxQueued": MAX_QUEUED,
            "maxSessions": MAX_SESSIONS,
        },
        "appCommands": [
            {
                "name": definition.name,
                "description": definition.description,
                **({} if definition.parameters is None else {"parameters": definition.parameters}),
            }
            for definition in server.host.commands.values()
        ],
    }


def event_types() -> list[str]:
    """Every `type` that an event of this version may have."""
    kinds = [kind for kind in get_args(AgentEvent) if issubclass(kind, msgspec.Struct)]
    return [str(kind.__struct_config__.tag) for kind in kinds]


COMMANDS: Final[Mapping[str, Handler]] = {
    "prompt": prompt,
    "followUp": prompt,
    "steer": steer,
    "abort": abort,
    "state": state,
    "messages": messages,
    "setModel": set_model,
    "compact": compact,
    "switchSession": switch_session,
    "forkSession": fork_session,
    "cloneSession": clone_session,
    "command": command,
    "capabilities": capabilities,
    "tree": tree,
    "label": label,
    "checkout": checkout,
    "reload": reload,
    "sessions": sessions,
    "clearQueue": clear_queue,
    "approve": approve,
    "continue": continue_,
}

__all__ = ["COMMANDS", "LATER", "Handler"]
