"""What one run knows, and what its parts need of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from anyio import CancelScope
from anyio.abc import TaskGroup

from prism.core._contracts import Provider, Tool, ToolSpec
from prism.core._errors import UsageError
from prism.core._runtime.approvals import Approvals
from prism.core._runtime.attempt import Attempt
from prism.core._runtime.broadcast import Broadcast, Subscription
from prism.core._runtime.limits import reached_limit
from prism.core._runtime.options import RunOptions, RunResult
from prism.core._runtime.output import Output
from prism.core._support.redaction import SecretRedactor
from prism.core._wire import (
    AgentEvent,
    AgentStarted,
    ContentBlock,
    ErrorEvent,
    ErrorInfo,
    Message,
    ModelConfig,
    SessionEntry,
    Usage,
    Warned,
)

MAX_ID_TRIES: Final = 100
"""How often an id maker is asked again for an id that is free."""

if TYPE_CHECKING:
    from prism.core._runtime.batch import Batch
    from prism.core._runtime.log import Draft
    from prism.core._runtime.session_base import SessionBase


class RunState:
    """The state of one run.

    Attributes:
        id: The run's id.
        model: The model of this run.
        tools: What the model may call, by name.
        follows: Its input is a follow-up, which steering input that waits outranks.
        output: What the answer has to be, when the host said so.
        final_tool: Through which it comes, when the provider has no other way.
        message: The last assistant message.
        input_ids: Message entries of the run's own input, which compaction keeps raw.
        accepting: Whether input can still reach the model in this run.
        ending: Whether its last part has begun, which nothing stops.
        aborted: Whether it was aborted or cancelled.
        crash: An exception of a tool that is meant to end the program.
        error: What `run()` raises.
        result: What `run()` returns.
        reader: Its own stream's, which ends with the run.
    """

    def __init__(
        self, session: SessionBase, value: Any, options: RunOptions, *, resume: bool = False
    ) -> None:
        agent = session.agent
        self.session = session
        self.agent = agent
        self.session_id: str = session.id
        self.id: str = agent.id_maker("run")
        self.options = options
        self.value = value
        self.resume: bool = resume
        self.follows: bool = False
        self.broadcast: Broadcast = session.broadcast
        self.redactor: SecretRedactor = agent.redactor
        if options.redactor is not None:
            self.redactor = self.redactor.extended(options.redactor)
        retry = agent.retry_for(options)
        if retry is not None and retry.secrets:
            self.redactor = self.redactor.extended(retry.secrets)
        self.model: ModelConfig = agent.model
        self.tools: Mapping[str, Tool] = {}
        self.tool_specs: tuple[ToolSpec, ...] = ()
        self.output: Output | None = None
        self.final_tool: Tool | None = None
        self.system: tuple[str, ...] = ()
        self.context: list[ContentBlock] = []
        self.approvals: Approvals = Approvals(self)
        self.message: Message | None = None
        self.stop_reason: str | None = None
        self.input_ids: list[str] = []
        self.turn_number = 0
        self.turn_open = False
        self.turn_usage: Usage | None = None
        self.attempt: Attempt | None = None
        self.batch: Batch | None = None
        self.compacted_overflow = False
        self.told_clamp: bool = False
        self.request_checked: bool = False
        self.told_cost: bool = False
        self.status: str = "completed"
        self.accepting: bool = True
        self.ending: bool = False
        self.announced: bool = False
        self.aborted: bool = False
        self.abort_reason: str | None = None
        self.crash: BaseException | None = None
        self.error: BaseException | None = None
        self.result: RunResult | None = None
        self.reader: Subscription | None = None
        self.entry_ids: list[str] = []
        self.usage: Usage | None = None
        self.requests: int = 0
        self.tool_calls: int = 0
        self._scope = CancelScope()
        self._group: TaskGroup | None = None
        self._provider: Provider | None = None
        self._early: list[AgentEvent] = []

    @property
    def group(self) -> TaskGroup:
        """The run's own task group, in which its tools run."""
        assert self._group is not None  # noqa: S101
        return self._group

    @property
    def provider(self) -> Provider:
        """Who serves the run's model."""
        assert self._provider is not None  # noqa: S101
        return self._provider

    # Stopping

    def abort(self, reason: str | None) -> bool:
        """Stop the run; says so to the readers before it returns."""
        if self.aborted or self.ending:
            return False
        self.announce()
        self.stop(reason)
        self._scope.cancel()
        return True

    def stop(self, reason: str | None) -> None:
        """Note that the run was aborted or cancelled, and tell the readers."""
        self.aborted = True
        self.accepting = False
        self.abort_reason = None if reason is None else self.redactor.redact_text(reason)
        if self.announced:
            self.emit(
                ErrorEvent(
                    session_id=self.session_id, run_id=self.id, error=self.abort_info(), fatal=True
                )
            )

    def abort_info(self) -> ErrorInfo:
        """Why the run stopped, for events and results."""
        reason = self.abort_reason
        return ErrorInfo(
            code="aborted",
            message="Agent run aborted",
            details=None if reason is None else {"reason": reason},
        )

    def fail(self, crash: BaseException) -> None:
        """End the run because a tool raised what is meant to end the program."""
        if self.ending:
            self.error = crash
        elif self.crash is None:
            self.crash = crash
            self.accepting = False
            self._scope.cancel()

    # Telling

    def announce(self) -> None:
        """Emit `agent_started`, once; a run that is refused before that emits nothing."""
        if not self.announced:
            self.announced = True
            self.emit(AgentStarted(session_id=self.session_id, run_id=self.id))
            for event in self._early:
                self.emit(event)
            self._early.clear()

    def emit(self, event: AgentEvent) -> None:
        """Tell the session's readers; what comes before `agent_started` waits for it."""
        if self.announced:
            self.session.emit(event)
        else:
            self._early.append(event)

    def warn(self, code: str, message: str) -> None:
        """Tell the readers of something that was repaired, clamped or dropped."""
        self.emit(Warned(session_id=self.session_id, run_id=self.id, code=code, message=message))

    # Parts

    def new_attempt(self) -> Attempt:
        """The next attempt at the open turn; what an earlier one used counts too."""
        failed = self.attempt
        if failed is not None and failed.usage is not None:
            self.turn_usage = _plus(self.turn_usage, failed.usage)
        self.requests += 1
        self.attempt = Attempt(
            self,
            provider_id=self.model.provider,
            api=getattr(self._provider, "api", None),
            model=self.model.model,
        )
        return self.attempt

    def unique_call_id(self, vendor_id: str | None) -> str:
        """The vendor's id when it is not empty and unique on the branch, else a new one."""
        taken = self.session.log.history.call_ids
        used = set[str]() if self.attempt is None else self.attempt.call_ids
        call_id = vendor_id
        tries = 0
        while not call_id or call_id in taken or call_id in used:
            if tries == MAX_ID_TRIES:
                raise UsageError("The id maker gives ids that are taken.", code="id_conflict")
            tries += 1
            call_id = self.agent.id_maker("call")
        used.add(call_id)
        return call_id

    async def store(self, drafts: Iterable[Draft]) -> list[SessionEntry]:
        """Append entries under the leaf; an interruption waits until they are stored."""
        stored = await self.session.log.append(drafts, run_id=self.id)
        self.entry_ids += [entry.id for entry in stored]
        return stored

    def has_hook(self, name: str) -> bool:
        """Whether middleware listens."""
        middleware = self.agent.middleware
        return middleware is not None and middleware.has(name)

    async def hook(self, name: str, payload: Any) -> Any:
        """Run a hook's middleware over the payload."""
        return await self.session.hook(name, payload, run=self)

    # Limits

    def use_in_turn(self) -> Usage | None:
        """What the open turn has used, all attempts together."""
        attempt = self.attempt
        return _plus(self.turn_usage, None if attempt is None else attempt.usage)

    def add_usage(self, usage: Usage) -> None:
        """Count a turn's usage."""
        self.usage = _plus(self.usage, usage)

    def limit_in_words(self) -> str | None:
        """Which limit is reached, the open turn included; `None` when none is."""
        limits = self.options.limits or self.agent.limits
        if limits is None:
            return None
        usage = _plus(self.usage, self.use_in_turn() if self.turn_open else None)
        return reached_limit(
            limits, usage=usage, requests=self.requests, tool_calls=self.tool_calls
        )


def _plus(left: Usage | None, right: Usage | None) -> Usage | None:
    if left is None or right is None:
        return right if left is None else left
    return left + right
