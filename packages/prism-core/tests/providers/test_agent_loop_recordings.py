"""A recorded conversation with tools, run as the loop that it was: a round, its results, a round."""

from __future__ import annotations

import os
from typing import Any

import httpx2
import pytest

from prism.core import (
    Agent,
    AgentEvent,
    ModelConfig,
    RunResult,
    TurnFinished,
    Usage,
    rebuild_session_context,
)
from prism.core.providers import OpenAIChatProvider, ProviderOptions
from prism.core.testing import EventLaws
from prism.core.tools import Tool

from .recordings import Recording, recording
from .wire import Answer, MemoryTransport, pieces

FIRST = recording("openai-chat--tool_call_agent_turn1")
