"""A session: one conversation tree, one run at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio import CancelScope, get_cancelled_exc_class

from prism.core._contracts import (
    CompactionOptions,
    CompactionResult,
    SessionPayload,
)
from prism.core._errors import NoActiveRun, RunAborted, SessionBusy, UsageError
from prism.core._runtime.apart import run_apart
from prism.core._runtime.approvals import check_answer, open_approvals, record_answer
from prism.core._runtime.broadcast import Subscription
from prism.core._runtime.checks import make_run_options
from prism.core._runtime.compact import compact_branch
from prism.core._runtime.inbox import check_not_empty, queued_input
from prism.core._runtime.options import RunResult, SessionState
from prism.core._runtime.run import Run
from prism.core._runtime.session_tree import SessionTree
from prism.core._runtime.stream import RunStream
from prism.core._wire import ErrorEvent, ErrorInfo


class Session(SessionTree):
    """One conversation of an agent. Made by `Agent.session`; nothing happens before its first use.

    All methods belong to the event loop on which the session is used; none is thread-safe.
    """

    # Running

    async def run(self, input: Any, **options: Any) -> RunResult:  # noqa: A002
        """Say something to the model, and wait for the end of the run.

        Args:
            input: Text, content blocks, a `Message`, or a list of these.
            **options: The fields of `RunOptions`.

        Returns:
            How it ended: `completed`, `max_tool_rounds` or `limit_reached`.

        Raises:
            SessionBusy: A run or a compaction is active.
            RunAborted: `abort()` was called.
            ProviderError: The model's side failed.
            StoreError: The store failed; `StoreConflict` when another writer came first.
            UsageError: The input or an option is wrong.
        """
        return await self._execute(self._open_run(input, options))

    async def continue_(self, **options: Any) -> RunResult:
        """Go on from where the branch stands, without new input.

        Answers a user message that has no answer, an aborted or failed one, and calls whose
        approval was given meanwhile.

        Raises:
            NothingToContinue: The branch ends in a finished answer.
        """
        return await self._execute(self._open_run(None, options, resume=True))

    async def follow_up(self, input: Any, **options: Any) -> RunResult | None:  # noqa: A002
        """Say something once the model has finished what it is doing.

        Idle: the same as `run`. While a run is active the input joins it and this returns `None`
        at once; `options` are then refused. During a compaction it waits, then runs.

        Raises:
            UsageError: The input or an option is wrong; `queue_full`.
        """
        while self._run is not None or self._compaction is not None:
            run = self._run
            if run is not None and run.accepting:
                if options:
                    raise UsageError(
                        "Options cannot be given with input that joins an active run: "
                        f"{', '.join(sorted(options))}."
                    )
                self.inbox.follow_up.append(queued_input(self, input))
                self.say_queue(run)
                return None
            await self.wait_settled()
        run = self._open_run(input, options)
        run.follows = True
        return await self._execute(run)

    def steer(self, input: Any) -> None:  # noqa: A002
        """Say something to the model as soon as possible: before the next call starts.

        Raises:
            NoActiveRun: No run is active that could still hear it.
            UsageError: The input is wrong; `queue_full`.
        """
        self.check_open()
        run = self._run
        if self._compaction is None and (run is None or not run.accepting):
            raise NoActiveRun("There is no active run to steer; use run() or follow_up().")
        self.inbox.steer.append(queued_input(self, input))
        self.say_queue(run)
        if run is not None:
            run.approvals.wake()

    def clear_queue(self) -> tuple[list[Any], list[Any]]:
        """Take back what waits: the steering inputs and the follow-ups."""
        taken = self.inbox.clear()
        if taken[0] or taken[1]:
            self.say_queue(self._run)
        return taken

    def abort(self, reason: str | None = None) -> bool:
        """Stop the active run or compaction. Returns whether there was one to stop."""
        if self._run is not None:
            return self._run.abort(reason)
        scope = self._compaction
        if scope is None or scope.cancel_called:
            return False
        details = None if reason is None else {"reason": self.redactor.redact_text(reason)}
        error = ErrorInfo(code="aborted", message="The compaction was aborted.", details=details)
        self.emit(ErrorEvent(session_id=self.id, error=error, fatal=True))
        scope.cancel()
        return True

    @asynccontextmanager
    async def stream(self, input: Any, **options: Any) -> AsyncGenerator[RunStream]:  # noqa: A002
        """The same run as `run`, as its events.

        Iterate the stream for the events; at the end it raises what `run` would raise, and holds
        the `result`. Leaving early aborts the run and waits for its bookkeeping.
        """
        run = self._open_run(input, options)
        stream = RunStream(run)
        self.broadcast.readers.append(stream)
        body_error: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(run.execute, group)
                try:
                    yield stream
                except get_cancelled_exc_class():
                    raise
                except BaseException as error:  # noqa: BLE001 - raised again below, ungrouped
                    body_error = error
                run.abort("the stream was closed")
        finally:
            self.release(run)
            self.broadcast.drop(stream)
        if body_error is not None:
            raise body_error

    @asynccontextmanager
    async def subscribe(self) -> AsyncGenerator[Subscription]:
        """All events of the session from here on, over any number of runs.

        Ends when the context is left or the session is closed.
        """
        subscription = Subscription()
        if self._closed:
            subscription.close()
        self.broadcast.readers.append(subscription)
        try:
            yield subscription
        finally:
            self.broadcast.drop(subscription)

    def _open_run(self, value: Any, given: Mapping[str, Any], *, resume: bool = False) -> Run:
        self.check_idle()
        options = make_run_options(given)
        if not resume:
            check_not_empty(value)
        model = options.model or self.log.history.model
        if model is not None or self.log.loaded:
            self.agent.resolve_provider(model or self.agent.model)
        run = Run(self, value, options, resume=resume)
        self._run = run
        return run

    async def _execute(self, run: Run) -> RunResult:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(run.execute, group)
        finally:
            self.release(run)  # also one that never got to start
        if run.error is not None:
            raise run.error
        assert run.result is not None  # noqa: S101
        return run.result

    # Compaction

    async def compact(
        self, options: CompactionOptions | None = None, **fields: Any
    ) -> CompactionResult:
        """Fold older entries of the branch into a summary.

        Args:
            options: Over the agent's.
            **fields: Fields of `CompactionOptions` that override these.

        Raises:
            SessionBusy: A run or a compaction is active, or calls of the branch wait for somebody's
                word.
            NothingToCompact: Nothing newly leaves the context.
            CompactionError: The strategy failed; nothing was appended.
            RunAborted: `abort()` was called.
            StoreConflict: Another writer came first.
        """
        self.check_idle()
        chosen = self.agent.merge_compaction(options, fields)
        scope = self._compaction = CancelScope()

        async def work() -> CompactionResult | None:
            try:
                with scope:
                    await self.log.ensure_loaded()
                    if open_approvals(self):
                        raise SessionBusy(
                            f"Calls of session {self.id!r} wait for an approval; answer them, "
                            "continue, and compact then."
                        )
                    return await compact_branch(self, chosen, trigger="manual")
                return None
            finally:
                self._end_compaction(scope)

        try:
            result = await run_apart(work)
        finally:
            self._end_compaction(scope)
        if result is None:
            raise RunAborted("The compaction was aborted.")
        return result

    def _end_compaction(self, scope: CancelScope) -> None:
        if self._compaction is scope:
            self._compaction = None
            self.wake()

    # Approvals

    async def answer_approval(
        self,
        approval_id: str,
        decision: str,
        *,
        arguments: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> None:
        """Answer a call that waits, also one that waited when the process ended.

        Args:
            approval_id: As `tool_approval_requested` or `state` gave it.
            decision: `allowed`, `edited` or `denied`.
            arguments: Of an edited call; they are validated again.
            reason: For the model and the record.

        Raises:
            UsageError: `approval_not_found`; `invalid_arguments`, in which case the approval stays
                open; the decision is unknown; `session_closed`.
        """
        self.check_open()
        answer = check_answer(decision, arguments, reason)
        await self.log.ensure_loaded()
        await run_apart(lambda: record_answer(self, approval_id, answer, by="host", run=self._run))

    # State

    async def state(self) -> SessionState:
        """What the session is doing now."""
        await self.log.ensure_loaded()
        run = self._run
        status = "idle"
        if self._compaction is not None or self.is_compacting:
            status = "compacting"
        elif run is not None:
            status = "running" if run.approvals.waiting is None else "awaiting_approval"
        history = self.log.history
        return SessionState(
            session_id=self.id,
            status=status,
            model=history.model or self.agent.model,
            thinking_level=history.thinking_level or self.agent.thinking_level,
            leaf_id=history.leaf_id,
            run_id=None if run is None else run.id,
            steer=len(self.inbox.steer),
            follow_up=len(self.inbox.follow_up),
            usage=self._usage,
            pending_approvals=list(open_approvals(self)),
        )

    async def aclose(self) -> None:
        """Abort what is active, wait for its bookkeeping, and end all subscriptions.

        A second call waits until the first one is done. The store stays open: it is the agent's.
        """
        if self._closed:
            return
        self._closing = True
        self.abort("the session was closed")
        if self._close_lock is None:
            self._close_lock = anyio.Lock()
        async with self._close_lock:
            if self._closed:
                return
            await self.wait_settled()
            self._closed = True
            try:
                if self._started:
                    await self.hook("session_shutdown", SessionPayload(session_id=self.id))
            finally:
                self.broadcast.close()
