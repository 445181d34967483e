"""What the stages of one flush share: the branch, the clock, running a worker, recording."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

import anyio
import msgspec

from prism.core import (
    AgentEvent,
    ErrorInfo,
    LeafMoved,
    PrismError,
    SecretRedactor,
    Session,
    SessionEntry,
    Usage,
    UsageReported,
    WorkerFinished,
    WorkerStarted,
    error_info,
)
from prism.core.providers import CredentialResolver
from prism.memory.observational._ledger import Ledger, fold_ledger
from prism.memory.observational._parse import LedgerRecord, parse_record
from prism.memory.observational._runtime.breaker import Breaker
from prism.memory.observational._runtime.debug_log import log_event
from prism.memory.observational._runtime.hooks import (
    HookFailed,
    MemoryHooks,
    Stopped,
    WorkerJob,
    WorkerOutput,
    ask_hook,
)
from prism.memory.observational._runtime.results import WorkerResult
from prism.memory.observational._runtime.roles import Hired, Missing, WorkerRole, hire, limited
from prism.memory.observational._settings import ObservationalMemorySettings
from prism.memory.observational._status import WorkerState
from prism.memory.observational._workers.engine import (
    Assignment,
    Conversation,
    WorkerTool,
    bounded_error,
    converse,
)


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch as it was read, and its ledger."""

    path: Sequence[Any]
    ledger: Ledger


class Moved(Exception):  # noqa: N818
    """The branch has moved on, so that what was found is discarded; never leaves the package."""


class Unrecorded(Exception):  # noqa: N818
    """The store failed; never leaves the package."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


class Tally:
    """Counts of one worker over all its runs in a flush."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.usage: Usage | None = None

    def add(self, **counts: int) -> None:
        for name, count in counts.items():
            if count:
                self.counts[name] = self.counts.get(name, 0) + count

    def add_usage(self, usage: Usage | None) -> None:
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage + usage


class Office:
    """What a memory has to work with. It is the same for all stages of all flushes."""

    def __init__(
        self,
        *,
        session: Session,
        roles: Mapping[str, WorkerRole],
        credentials: CredentialResolver | None,
        hooks: MemoryHooks,
        redactor: SecretRedactor,
        emit: Callable[[AgentEvent], None],
        clock: Callable[[], float],
        zone: tzinfo | None,
    ) -> None:
        self.session = session
        self.roles = roles
        self.credentials = credentials
        self.hooks = hooks
        self.redactor = redactor
        self.emit = emit
        self.clock = clock
        self.zone = zone
        self.breaker = Breaker()
        self.states: dict[str, WorkerState] = {
            name: WorkerState(model=_label(role)) for name, role in roles.items()
        }
        self.at_work: str | None = None
        self.dropper_saw: str | None = None
        self._skips_told: dict[str, str] = {}
        self._branch: Branch | None = None
        # As many as the session has records; entries never change.
        self._parsed: dict[str, LedgerRecord | None] = {}

    async def branch(self) -> Branch:
        """The branch as it is now."""
        path = await self.session.entries()
        known = self._branch
        # A leaf has one path.
        if known is None or not path or not known.path or known.path[-1].id != path[-1].id:
            known = Branch(path=path, ledger=fold_ledger(path, parse=self._parse))
            self._branch = known
        return known

    def _parse(self, entry: SessionEntry) -> LedgerRecord | None:
        if entry.id not in self._parsed:
            self._parsed[entry.id] = parse_record(entry)
        return self._parsed[entry.id]

    def now(self) -> str:
        """ISO-8601 with the offset of the zone, to the second."""
        at = datetime.fromtimestamp(self.clock(), tz=self.zone)
        return (at if at.tzinfo else at.astimezone()).isoformat(timespec="seconds")

    def change(self, worker: str, **fields: Any) -> None:
        """Note something about a worker, for the status."""
        self.states[worker] = msgspec.structs.replace(self.states[worker], **fields)

    async def record(self, data: dict[str, Any], required: Sequence[str]) -> None:
        """Append a record, if *required* entries are still on the branch.

        Raises:
            Moved: One of them is not.
            Unrecorded: The store failed, or the session was closed.
        """
        try:
            await self.session.append_custom(data, require_on_path=required)
        except LeafMoved:
            raise Moved from None
        except PrismError as error:
            info = bounded_error(error_info(error, redact=self.redactor.redact_text))
        else:
            return
        raise Unrecorded(info)

    def tell_skip(self, worker: str, reason: str) -> None:
        """Say that a worker cannot run: once, until the reason changes."""
        self.change(worker, last_skip_reason=reason)
        if self._skips_told.get(worker) == reason:
            return
        self._skips_told[worker] = reason
        self.emit(WorkerStarted(session_id=self.session.id, worker=worker))
        self.emit(
            WorkerFinished(
                session_id=self.session.id,
                worker=worker,
                status="skipped",
                counts={},
                error=ErrorInfo(message=f"The {worker} was skipped: {reason}.", code=reason),
            )
        )

    def can_work(self, worker: str) -> None:
        """Whatever kept a worker from running is over."""
        self._skips_told.pop(worker, None)
        self.change(worker, last_skip_reason=None)


def _label(role: WorkerRole) -> str | None:
    return None if role.model is None else f"{role.model.provider}/{role.model.model}"


class Stage(ABC):
    """One worker in one flush."""

    worker = ""

    def __init__(
        self, office: Office, settings: ObservationalMemorySettings, *, force: bool
    ) -> None:
        self.office = office
        self.role = office.roles[self.worker]
        self.settings = limited(settings, self.role)
        self.force = force
        self.tally = Tally()

    @abstractmethod
    async def run(self) -> WorkerResult:
        """Do what is due; failures are part of the result.

        Raises:
            Missing: There is no model or no credential.
        """

    async def hired(self) -> Hired:
        """Whoever does the job.

        Raises:
            Missing: Nobody can.
        """
        try:
            hired = await hire(self.role, self.office.credentials)
        except Missing as missing:
            self.office.tell_skip(self.worker, missing.reason)
            raise
        self.office.can_work(self.worker)
        return hired

    async def work(
        self,
        hired: Hired,
        *,
        system: str,
        prompt: str,
        tool: WorkerTool,
        nudge: Callable[[], str | None],
        source_entry_ids: tuple[str, ...] = (),
    ) -> Conversation:
        """Let the worker's model work.

        Raises:
            Stopped: A hook said so.
            HookFailed: A hook failed.
        """
        office = self.office
        redactor = office.redactor
        if hired.secret is not None:
            redactor = redactor.extended([hired.secret])
        job = WorkerJob(
            worker=self.worker,
            session_id=office.session.id,
            system=hired.role.prompt or system,
            prompt=redactor.redact_text(prompt),
            source_entry_ids=source_entry_ids,
        )
        job = await ask_hook(office.hooks.before, job, redactor.redact_text)
        ended = await converse(
            Assignment(
                name=self.worker,
                session_id=office.session.id,
                model=hired.model,
                provider=hired.provider,
                system=job.system,
                prompt=job.prompt,
                tool=tool,
                settings=self.settings,
                redactor=redactor,
                thinking_level=hired.role.thinking_level,
                options=hired.role.options,
                nudge=nudge,
            )
        )
        self.tally.add(runs=1, turns=ended.turns, calls=ended.calls)
        self.tally.add_usage(ended.usage)
        return ended

    async def reviewed(self, output: WorkerOutput) -> WorkerOutput:
        """What the host lets through.

        Raises:
            Stopped: It lets nothing through.
            HookFailed: Its hook failed.
        """
        return await ask_hook(self.office.hooks.after, output, self.office.redactor.redact_text)

    async def watched(self, job: Callable[[], Any]) -> WorkerResult:
        """Run one worker run between its two events, and make its failures a result."""
        office = self.office
        office.at_work = self.worker
        office.emit(WorkerStarted(session_id=office.session.id, worker=self.worker))
        before, usage_before = dict(self.tally.counts), self.tally.usage
        result = self.result("failed", error=ErrorInfo(message="Cancelled.", code="aborted"))
        try:
            result = await job()
        except Moved:
            result = self.result("skipped", reason="branch_moved")
            office.change(self.worker, last_skip_reason="branch_moved")
        except Stopped:
            result = self.result("skipped", reason="hook")
            office.change(self.worker, last_skip_reason="hook")
        except (HookFailed, Unrecorded) as failure:
            result = self.result("failed", error=failure.info)
        finally:
            office.at_work = None
            counts = {
                name: count - before.get(name, 0)
                for name, count in self.tally.counts.items()
                if count != before.get(name, 0)
            }
            usage = None if self.tally.usage is usage_before else self.tally.usage
            self._tell(result, counts, usage)
        self._judge(result)
        await log_event(self.settings.debug_log, self._row(result, counts))
        return result

    def result(self, status: str, **fields: Any) -> WorkerResult:
        """The result so far."""
        return WorkerResult(
            status=status, counts=dict(self.tally.counts), usage=self.tally.usage, **fields
        )

    def failure(self, ended: Conversation, rejected: int) -> ErrorInfo:
        """Why a run gave nothing, though the model did not say that there is nothing."""
        if ended.error is not None:
            return ended.error
        if rejected:
            return ErrorInfo(
                message=f"Everything that the {self.worker}'s model proposed was refused.",
                code="all_rejected",
                details={"rejected": rejected},
            )
        return ErrorInfo(
            message=f"The {self.worker}'s model wrote text and called no tool.",
            code="no_tool_call",
        )

    def _tell(self, result: WorkerResult, counts: dict[str, int], usage: Usage | None) -> None:
        office = self.office
        if usage is not None:
            office.emit(UsageReported(session_id=office.session.id, usage=usage, source="memory"))
        office.emit(
            WorkerFinished(
                session_id=office.session.id,
                worker=self.worker,
                status=result.status,
                counts=counts,
                usage=usage,
                error=result.error,
            )
        )

    def _judge(self, result: WorkerResult) -> None:
        office = self.office
        if result.error is not None:
            office.change(self.worker, last_error=result.error)
            office.breaker.failed(
                anyio.current_time(),
                after=self.settings.breaker_failures,
                cooldown_ms=self.settings.breaker_cooldown_ms,
            )
        elif result.status in {"recorded", "empty"}:
            office.change(
                self.worker, last_error=None, last_skip_reason=None, last_success_at=office.now()
            )
            office.breaker.succeeded()

    def _row(self, result: WorkerResult, counts: dict[str, int]) -> dict[str, Any]:
        row: dict[str, Any] = {
            "time": self.office.now(),
            "event": f"{self.worker}.{result.status}",
            "session": self.office.session.id,
            "counts": counts,
        }
        if result.covers_up_to is not None:
            row["coversUpToId"] = result.covers_up_to
        if result.reason is not None:
            row["reason"] = result.reason
        if result.error is not None:
            row["error"] = {"code": result.error.code, "name": result.error.name}
        return row
