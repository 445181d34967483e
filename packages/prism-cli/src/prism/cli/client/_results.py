"""What the server answers, typed. Fields that a newer server adds are ignored."""

from __future__ import annotations

from typing import Any

import msgspec

from prism.core import CompactionEntry, ModelConfig, Usage


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all results."""


class RunReply(Reply, frozen=True, kw_only=True):
    """How a run ended: `status` is `completed`, `max_tool_rounds` or `limit_reached`."""

    session_id: str
    run_id: str
    status: str
    text: str
    leaf_id: str | None = None
    usage: Usage | None = None


class StateReply(Reply, frozen=True, kw_only=True):
    """What the current session is doing.

    Attributes:
        sessions: Ids of all open sessions.
        status: `idle`, `running`, `compacting` or `awaiting_approval`.
        queue: Inputs that wait.
        approvals: Calls that wait for somebody's word, by approval id.
    """

    session_id: str
    sessions: list[str]
    status: str
    queue: int
    model: ModelConfig | None = None
    leaf_id: str | None = None
    thinking_level: str | None = None
    run_id: str | None = None
    approvals: list[str] = []


class CompactionReply(Reply, frozen=True, kw_only=True):
    """What a compaction made."""

    summary: str
    entries: list[CompactionEntry]


class QueueReply(Reply, frozen=True, kw_only=True):
    """Inputs that were taken back."""

    steer: list[Any]
    follow_up: list[Any]


class TreeItem(Reply, frozen=True, kw_only=True):
    """An entry's place in its session."""

    id: str
    kind: str
    parent_id: str | None = None
    label: str | None = None


class TreeReply(Reply, frozen=True, kw_only=True):
    """The shape of a session, in the order in which it grew."""

    session_id: str
    entries: list[TreeItem]
    leaf_id: str | None = None


class SessionListItem(Reply, frozen=True, kw_only=True):
    """A session of the server's store."""

    session_id: str
    entry_count: int
    message_count: int = 0
    created_at: str | None = None
    last_activity_at: str | None = None
    first_message: str | None = None


class Capabilities(Reply, frozen=True, kw_only=True):
    """What the server can do."""

    protocol_version: int
    commands: list[str]
    events: list[str]
    limits: dict[str, int]
    app_commands: list[dict[str, Any]] = []
