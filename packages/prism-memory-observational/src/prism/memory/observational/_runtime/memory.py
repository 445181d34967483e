"""The runtime: workers when they are asked for, and after each run when attached."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import tzinfo
from typing import Any

import anyio
from anyio import CancelScope, get_cancelled_exc_class
from anyio.abc import TaskStatus

from prism.core import (
    AgentEvent,
    AgentFinished,
    ErrorInfo,
    ModelConfig,
    PrismError,
    ProviderOptions,
    Secret,
    SecretRedactor,
    Session,
    SessionBusy,
    SessionSettled,
    Warned,
    error_info,
)
from prism.core.compaction import CompactionContext
from prism.core.host import SettingsProvider
from prism.core.providers import CredentialRequest, CredentialResolver
from prism.memory.observational._runtime.debug_log import log_event
from prism.memory.observational._runtime.hooks import MemoryHooks
from prism.memory.observational._runtime.pipeline import monotonic, run_stages
from prism.memory.observational._runtime.results import FlushResult
from prism.memory.observational._runtime.roles import (
    WORKERS,
    WorkerRole,
    check_role,
    merged_role,
)
from prism.memory.observational._runtime.stage import Office
from prism.memory.observational._settings import (
    ObservationalMemorySettings,
    checked_settings,
    resolve_settings,
)
from prism.memory.observational._status import (
    MemoryStatus,
    RuntimeState,
    memory_status,
    tokens_since_compaction,
)
from prism.memory.observational._strategy import ObservationalCompactionStrategy
from prism.memory.observational._workers.prompts import WorkerPrompts

TRIGGER = "memory"
"""Trigger of the compaction that `attach()` looks ahead to."""


class ObservationalMemory:
    """The memory of one session. Making it does nothing; `flush()` and `attach()` do.

    A worker's failure never fails a run, is bounded in time, and shows in the status.

    Args:
        session: What is remembered.
        model: The workers' model; default: none, and they are skipped with `missing_model`.
        provider: A provider, a `ProviderRegistry`, or a function that makes a provider from a
            credential; it is called, and what it made is closed, in each worker run.
        thinking_level: One of `THINKING_LEVELS`; default: the model's own.
        options: For every request of the workers.
        credential: What is asked of *credentials* before a worker runs; without an answer it is
            skipped with `missing_credential`.
        credentials: Answers that.
        observer: What is different for it; likewise *reflector* and *dropper*.
        prompts: The workers' system prompts.
        settings: The host's own, or a provider that is asked at each flush; default: the defaults.
        hooks: Functions that see what goes to a worker and what comes from it.
        secrets: Exact strings that must be in no prompt, record, error or log; those of the
            session's agent are added.
        strategy: What `attach()` compacts with; default: one with these settings.
        on_event: Gets `worker_started`, `worker_finished`, `usage` and `warning`; default: the
            readers of the session's events do.
        clock: Seconds since the epoch; default: the agent's.
        zone: Whose minutes the records show; default: the machine's zone.

    Raises:
        UsageError: `invalid_setting`, `invalid_params` or `invalid_secret`.
    """

    def __init__(
        self,
        session: Session,
        *,
        model: ModelConfig | None = None,
        provider: Any = None,
        thinking_level: str | None = None,
        options: ProviderOptions | None = None,
        credential: CredentialRequest | None = None,
        credentials: CredentialResolver | None = None,
        observer: WorkerRole | None = None,
        reflector: WorkerRole | None = None,
        dropper: WorkerRole | None = None,
        prompts: WorkerPrompts | None = None,
        settings: ObservationalMemorySettings | SettingsProvider | None = None,
        hooks: MemoryHooks | None = None,
        secrets: Sequence[str | Secret] = (),
        strategy: ObservationalCompactionStrategy | None = None,
        on_event: Callable[[AgentEvent], None] | None = None,
        clock: Callable[[], float] | None = None,
        zone: tzinfo | None = None,
    ) -> None:
        base = check_role(
            "workers",
            WorkerRole(
                model=model,
                provider=provider,
                thinking_level=thinking_level,
                options=options,
                credential=credential,
            ),
        )
        own = {"observer": observer, "reflector": reflector, "dropper": dropper}
        given = prompts or WorkerPrompts()
        roles: dict[str, WorkerRole] = {}
        for name in WORKERS:
            prompt = WorkerRole(prompt=getattr(given, name))
            roles[name] = check_role(name, merged_role(merged_role(base, prompt), own[name]))
        self.session = session
        self._source: SettingsProvider | None = None
        self._settings = ObservationalMemorySettings()
        if isinstance(settings, ObservationalMemorySettings):
            self._settings = checked_settings(settings)
        elif settings is not None:
            self._source = settings
        self._warned: set[str] = set()
        self._strategy = strategy
        self._scope: CancelScope | None = None
        self._flushing = False
        self._attached = 0
        self._idle: anyio.Event | None = None
        self._compaction_error: ErrorInfo | None = None
        self._office = Office(
            session=session,
            roles=roles,
            credentials=credentials,
            hooks=hooks or MemoryHooks(),
            redactor=SecretRedactor(secrets).extended(session.agent.redactor),
            emit=on_event or session.emit,
            clock=clock or session.agent.clock,
            zone=zone,
        )

    def __repr__(self) -> str:
        return f"ObservationalMemory({self.session.id!r})"

    # What it is doing

    @property
    def state(self) -> RuntimeState:
        """What the runtime is doing, and how its workers fared."""
        office = self._office
        return RuntimeState(
            in_flight=office.at_work,
            breaker_open=office.breaker.is_open(monotonic()),
            attached=self._attached > 0,
            last_compaction_error=self._compaction_error,
            workers=dict(office.states),
        )

    async def status(self) -> MemoryStatus:
        """How the memory of the session's branch stands."""
        settings = self.settings()
        return memory_status(
            await self.session.entries(),
            settings,
            runtime=self.state,
            compact_after_tokens=await self._compact_after(settings),
        )

    def settings(self) -> ObservationalMemorySettings:
        """What holds now; a settings provider is asked anew."""
        if self._source is None:
            return self._settings
        resolved = resolve_settings(self._source)
        for warning in resolved.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self._warn("memory_setting_ignored", warning)
        return resolved.values

    @property
    def strategy(self) -> ObservationalCompactionStrategy:
        """What `attach()` compacts with."""
        return self._strategy or ObservationalCompactionStrategy(settings=self.settings())

    def cancel(self) -> bool:
        """Stop a flush that is under way; whether there was one."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True

    async def wait_idle(self) -> None:
        """Return when no flush is under way; at once when that is so."""
        while self._flushing:
            if self._idle is None:
                self._idle = anyio.Event()
            await self._idle.wait()

    # Observing

    async def flush(self, *, force: bool = False) -> FlushResult:
        """Let the workers do what is due: observe, reflect, drop.

        It never waits for a run and no run waits for it. What a worker found is recorded only
        while its messages are still on the session's branch.

        Args:
            force: Whatever is not observed is due; also when passive, during a run, and after
                failures in a row.

        Returns:
            What each worker did; failures of workers are part of it.
        """
        if self._flushing:
            return FlushResult(ran=False, reason="in_flight")
        self._flushing = True
        try:
            settings = self.settings()
            reason = None if force else await self._why_not(settings)
            if reason is not None:
                return FlushResult(ran=False, reason=reason)
            return await self._guarded(settings, force=force)
        finally:
            self._flushing = False
            if self._idle is not None:
                self._idle.set()
                self._idle = None

    async def _why_not(self, settings: ObservationalMemorySettings) -> str | None:
        if settings.passive:
            return "passive"
        if self._office.breaker.is_open(monotonic()):
            return "breaker_open"
        state = await self.session.state()
        return None if state.status == "idle" else "run_active"

    async def _guarded(self, settings: ObservationalMemorySettings, *, force: bool) -> FlushResult:
        """Run the stages until they are through, or the session is closed or aborted."""
        done: list[FlushResult] = []
        failure: list[Exception] = []

        async def work() -> None:
            try:
                with CancelScope() as self._scope:
                    done.append(await run_stages(self._office, settings, force=force))
            except Exception as error:  # noqa: BLE001 - handed over as a value, without a group
                failure.append(error)
            finally:
                self._scope = None

        async with anyio.create_task_group() as group:
            await group.start(self._watch)
            await work()
            group.cancel_scope.cancel()
        if failure:
            raise failure[0]
        if done:
            return done[0]
        await log_event(
            settings.debug_log,
            {"time": self._office.now(), "event": "flush.aborted", "session": self.session.id},
        )
        return FlushResult(ran=True, reason="aborted")

    async def _watch(self, *, task_status: TaskStatus[None]) -> None:
        """Stop the workers when the session is closed, or somebody aborts it."""
        async with self.session.subscribe() as events:
            task_status.started()
            async for event in events:
                if isinstance(event, AgentFinished) and event.status == "aborted":
                    break
        self.cancel()

    def _warn(self, code: str, message: str) -> None:
        self._office.emit(Warned(session_id=self.session.id, code=code, message=message))

    # Following the session

    @asynccontextmanager
    async def attach(self) -> AsyncGenerator[ObservationalMemory]:
        """Within this context, flush after each settled run and compact when that is due.

        It runs beside the session and never holds a run up. Leaving the context, or closing the
        session, ends it; a flush under way is cancelled.
        """
        body_error: BaseException | None = None
        async with anyio.create_task_group() as group:
            await group.start(self._follow)
            try:
                yield self
            except get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - raised again below, ungrouped
                body_error = error
            group.cancel_scope.cancel()
        if body_error is not None:
            raise body_error

    async def _follow(self, *, task_status: TaskStatus[None]) -> None:
        settled = _Signal()
        self._attached += 1
        try:
            async with self.session.subscribe() as events, anyio.create_task_group() as group:
                group.start_soon(self._keep_up, settled)
                task_status.started()
                async for event in events:
                    if isinstance(event, SessionSettled):
                        settled.set()
                group.cancel_scope.cancel()
        finally:
            self._attached -= 1

    async def _keep_up(self, settled: _Signal) -> None:
        while True:
            await settled.wait()
            try:
                await self.flush()
                await self._compact_if_due()
            except Exception as error:  # noqa: BLE001 - a memory never takes its host down
                info = error_info(error, redact=self._office.redactor.redact_text)
                self._compaction_error = info
                self._warn("memory_failed", f"The memory failed: {info.message}")

    async def _compact_if_due(self) -> None:
        """Compact at the threshold, when the model will see less than before."""
        settings = self.settings()
        if settings.passive:
            return
        path = await self.session.entries()
        if tokens_since_compaction(path) < await self._compact_after(settings):
            return
        strategy = self.strategy
        ahead = await strategy.compact(
            CompactionContext(session_id=self.session.id, entries=path, trigger=TRIGGER)
        )
        if ahead is None or (ahead.tokens_after or 0) >= (ahead.tokens_before or 0):
            return
        try:
            result = await self.session.compact(strategy=strategy)
        except SessionBusy:
            return  # it settles again, and this is looked at again
        except PrismError as error:
            self._compaction_error = error_info(error, redact=self._office.redactor.redact_text)
            return
        self._compaction_error = None
        (entry,) = result.entries
        uncovered: Sequence[Any] = (entry.data or {}).get("uncoveredEntryIds") or ()
        if uncovered:
            self._warn(
                "memory_uncovered",
                f"{len(uncovered)} entries left the context before they were observed; the "
                "compaction entry lists them.",
            )

    async def _compact_after(self, settings: ObservationalMemorySettings) -> int:
        """The threshold in tokens; of the model's window, where that is asked for and known."""
        ratio = settings.compact_after_ratio
        if ratio is not None:
            model = (await self.session.state()).model
            window = None if model.limits is None else model.limits.context_window
            if window is not None and window > 0:
                return max(1, int(window * ratio))
        return settings.compact_after_tokens


class _Signal:
    """Set any number of times, it wakes its one waiter once."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = anyio.Event()
