"""An agent as a tool of another one."""

from __future__ import annotations

from typing import Any, Final

import anyio

from prism.core._contracts import DEFAULT_TOOL_TIMEOUT_MS, Tool, ToolContext, ToolOutput
from prism.core._errors import PrismError, ToolError, UsageError
from prism.core._runtime.agent import Agent
from prism.core._runtime.checks import check_limits
from prism.core._runtime.definition import AgentDefinition
from prism.core._runtime.options import RunResult
from prism.core._runtime.output import check_output
from prism.core._runtime.session import Session
from prism.core._support.errors import error_info
from prism.core._support.limits import positive_int
from prism.core._wire import ErrorInfo, TextBlock, UsageLimits, to_plain
from prism.core.tools import tool

DEFAULT_MAX_DEPTH: Final = 3
"""How deep agents may ask agents; the first one that is asked is at depth 1."""

DEFAULT_MAX_ANSWER_BYTES: Final = 64 * 1024
"""Longest answer of an agent that another one gets, as JSON; longer text is cut and says so."""

AGENT_TYPE: Final = "prism.agent"
"""`type` of the custom entry with which the session of a sub-agent begins."""

_DEPTH: Final = "prism.agentDepth"
_MAX_DEPTH: Final = 100
_MAX_SESSION_IDS: Final = 1_000
_CLOSE_MS: Final = 2_000


def agent_tool(
    agent: Agent | AgentDefinition,
    *,
    name: str | None = None,
    description: str | None = None,
    output: Any = None,
    limits: UsageLimits | None = None,
    max_depth: int = DEFAULT_MAX_DEPTH,
    timeout_ms: int = DEFAULT_TOOL_TIMEOUT_MS,
    max_result_bytes: int = DEFAULT_MAX_ANSWER_BYTES,
    **parts: Any,
) -> Tool:
    """A tool with which a model asks another agent.

    Each call has a session of its own in that agent's store. Its id is the asking session's, a dot
    and the call's id, with `-2` and so on when it is taken. It begins with a `custom` entry
    `{"type": "prism.agent", …}` that names the asking session, run and call; the result's metadata
    names the session in turn. It has the agent's own tools, permissions and limits, none of the
    asking one's. Calls that need an approval are denied.

    An abort of the asking run ends the asked one. Its usage is in the result's metadata and in a
    `usage` event of the asking session with the source `agent`; it does not count as the asking
    run's own.

    Args:
        agent: Who is asked. Of a definition an agent is made with *parts*.
        name: Of the tool; default: the definition's.
        description: For the model that asks; default: the definition's.
        output: A type: the answer is a value of it, instead of text.
        limits: What one call may use; default: the agent's own.
        max_depth: How deep agents may ask agents, 1 to 100; default 3.
        timeout_ms: How long a call may take; default 10 minutes.
        max_result_bytes: Longest answer as JSON; default 64 KiB.
        **parts: `provider`, `tools`, `store` and so on, as for calling the definition.

    Raises:
        UsageError: A part is wrong or missing.
    """
    if isinstance(agent, AgentDefinition):
        name = agent.name if name is None else name
        description = agent.description if description is None else description
        if "provider" not in parts:
            raise UsageError(f"The agent {agent.name!r} needs a provider: give provider=.")
        asked = agent(**parts)
    elif parts:
        raise UsageError(
            f"An Agent is complete; these go with a definition: {', '.join(sorted(parts))}."
        )
    else:
        asked = agent
    if name is None:
        raise UsageError("The tool of an Agent needs a name: give name=.", code="invalid_name")
    positive_int("max_depth", max_depth, cap=_MAX_DEPTH)
    if limits is not None:
        check_limits("limits", limits)
    if output is not None:
        check_output("output", output)
    call = _Delegate(asked, name, output=output, limits=limits, max_depth=max_depth)

    async def ask(prompt: str, context: ToolContext) -> ToolOutput:
        return await call(prompt, context)

    return tool(
        ask,
        name=name,
        description=description or f"Ask the agent {name}.",
        timeout_ms=timeout_ms,
        max_result_bytes=max_result_bytes,
    )


class _Delegate:
    """What the calls of one tool have in common."""

    def __init__(
        self,
        agent: Agent,
        name: str,
        *,
        output: Any,
        limits: UsageLimits | None,
        max_depth: int,
    ) -> None:
        self._agent = agent
        self._name = name
        self._output = output
        self._limits = limits
        self._max_depth = max_depth

    async def __call__(self, prompt: str, context: ToolContext) -> ToolOutput:
        depth = _depth_of(context) + 1
        if depth > self._max_depth:
            raise ToolError(
                f"Agents may ask agents only {self._max_depth} deep.",
                code="agent_depth",
                details={"limit": self._max_depth},
            )
        session = await self._open(context)
        result: RunResult | None = None
        failure: PrismError | None = None
        try:
            await session.append_custom(
                {
                    "type": AGENT_TYPE,
                    "agent": self._name,
                    "depth": depth,
                    "sessionId": context.session_id,
                    "runId": context.run_id,
                    "toolCallId": context.tool_call_id,
                }
            )
            result = await session.run(
                # What the asking run knows to be secret is not written into another session.
                context.redact(prompt),
                output=self._output,
                limits=self._limits,
                metadata={**context.metadata, _DEPTH: depth},
            )
        except PrismError as error:
            failure = error
        finally:
            if session.usage is not None:
                context.report_usage(session.usage, source="agent")
            with anyio.move_on_after(_CLOSE_MS / 1000, shield=True):
                await session.aclose()
        return self._answer(session, result, failure)

    async def _open(self, context: ToolContext) -> Session:
        """A new session whose id tells where it comes from."""
        derived = f"{context.session_id}.{context.tool_call_id}"
        for number in range(1, _MAX_SESSION_IDS + 1):
            session_id = derived if number == 1 else f"{derived}-{number}"
            if not await self._agent.store.entries(session_id, limit=1):
                return self._agent.session(session_id)
        raise ToolError(
            f"{_MAX_SESSION_IDS} sessions are named {derived!r} already.", code="session_exists"
        )

    def _answer(
        self, session: Session, result: RunResult | None, failure: PrismError | None
    ) -> ToolOutput:
        facts: dict[str, Any] = {
            "name": self._name,
            "sessionId": session.id,
            "status": "failed" if result is None else result.status,
        }
        if result is not None:
            facts["runId"] = result.run_id
        if session.usage is not None:
            facts["usage"] = to_plain(session.usage)
        metadata = {"agent": facts}
        if result is None:
            assert failure is not None  # noqa: S101
            info = error_info(failure, redact=self._agent.redactor.redact_text)
            message = f"The agent {self._name} failed: {info.message}"
            error = ErrorInfo(code="agent_failed", message=message, details={"code": info.code})
            return ToolOutput(error=error, metadata=metadata)
        early = None if result.status == "completed" else f"stopped early: {result.status}"
        if self._output is not None:
            if result.output is None and early is not None:
                message = f"The agent {self._name} gave no answer; it {early}."
                error = ErrorInfo(code="agent_failed", message=message)
                return ToolOutput(error=error, metadata=metadata)
            return ToolOutput(value=to_plain(result.output), metadata=metadata)
        text = result.text or "(The agent said nothing.)"
        if early is not None:
            text = f"{text}\n\n(The agent {early}.)"
        return ToolOutput(content=[TextBlock(text=text)], metadata=metadata)


def _depth_of(context: ToolContext) -> int:
    depth = context.metadata.get(_DEPTH)
    return depth if type(depth) is int and depth > 0 else 0
