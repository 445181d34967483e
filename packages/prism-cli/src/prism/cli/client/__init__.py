"""A client of `prism --mode rpc`: start the process, prompt it, read its events, close it."""

from prism.cli.client._client import RpcClient, RpcRun
from prism.cli.client._connection import Connection, RpcConnectionError, RpcFailure
from prism.cli.client._results import (
    Capabilities,
    CompactionReply,
    QueueReply,
    RunReply,
    SessionListItem,
    StateReply,
    TreeItem,
    TreeReply,
)

__all__ = [
    "Capabilities",
    "CompactionReply",
    "Connection",
    "QueueReply",
    "RpcClient",
    "RpcConnectionError",
    "RpcFailure",
    "RpcRun",
    "RunReply",
    "SessionListItem",
    "StateReply",
    "TreeItem",
    "TreeReply",
]
