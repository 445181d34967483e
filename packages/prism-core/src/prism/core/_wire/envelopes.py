"""Lines of `--mode json` and of the RPC."""

from __future__ import annotations

from typing import Any, TypeAlias

from prism.core._wire.base import Codec, WireStruct
from prism.core._wire.models import ErrorInfo

RequestId: TypeAlias = str | int | float
"""A string or a finite number, never a bool; echoed as it was sent."""


class EventEnvelope(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="event"):
    """One event as `--mode json` writes it; `event` is an `AgentEvent`, or its JSON object."""

    session_id: str
    run_id: str | None = None
    event: Any


class ErrorEnvelope(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """Last line of a `--mode json` that failed."""

    error: ErrorInfo


class RpcRequest(WireStruct, frozen=True, kw_only=True):
    """What a client asks."""

    id: RequestId
    command: str
    params: dict[str, Any] | None = None


class RpcResponse(WireStruct, frozen=True, kw_only=True):
    """The one answer to a request; `id` is `None` when the request's could not be read."""

    id: RequestId | None
    ok: bool
    result: Any = None
    error: ErrorInfo | None = None


class RpcEvent(WireStruct, frozen=True, kw_only=True, tag_field="type", tag="event"):
    """An event with the id of the request that caused it, if one did."""

    id: RequestId | None
    session_id: str
    run_id: str | None = None
    event: Any


rpc_request_codec: Codec[RpcRequest] = Codec(RpcRequest)
rpc_response_codec: Codec[RpcResponse] = Codec(RpcResponse)
rpc_event_codec: Codec[RpcEvent] = Codec(RpcEvent)
event_envelope_codec: Codec[EventEnvelope] = Codec(EventEnvelope)
