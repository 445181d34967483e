"""What happens in time: agents, sessions and their runs."""

from prism.core._runtime.agent import Agent
from prism.core._runtime.broadcast import HIGH_WATER, Subscription
from prism.core._runtime.definition import AgentDefinition
from prism.core._runtime.options import RunOptions, RunResult, SessionState
from prism.core._runtime.session import Session
from prism.core._runtime.stream import RunStream
from prism.core._runtime.subagent import agent_tool
from prism.core._runtime.tree import TreeNode

__all__ = [
    "HIGH_WATER",
    "Agent",
    "AgentDefinition",
    "RunOptions",
    "RunResult",
    "RunStream",
    "Session",
    "SessionState",
    "Subscription",
    "TreeNode",
    "agent_tool",
]
