"""One run: the loop of turns and tools."""

from __future__ import annotations

from anyio import current_effective_deadline, get_cancelled_exc_class
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled

from prism.core._contracts import ToolSpec
from prism.core._errors import NothingToContinue, UsageError
from prism.core._runtime.assembly import CUT_STOPS
from prism.core._runtime.attempt import Attempt
from prism.core._runtime.batch import Batch
from prism.core._runtime.compact import try_compact
from prism.core._runtime.ending import RunEnding
from prism.core._runtime.intake import (
    accept_input,
    build_input,
    deliver,
    gather_context,
    open_slots,
)
from prism.core._runtime.output import FINAL_TOOL, MAX_OUTPUT_TRIES, Output
from prism.core._runtime.turn import ask
from prism.core._wire import (
    ErrorInfo,
    Message,
    MessageEntry,
    TextBlock,
    ToolCallBlock,
    TurnStarted,
)
from prism.core.tools import filter_tools

RESUMABLE_STOPS = frozenset({"pause", "aborted", "error", "length"})
"""Stop reasons after which `continue_()` asks the model again."""


class Run(RunEnding):
    """One run of a session. `execute` is its child task; everything else is called from it."""

    async def execute(self, group: TaskGroup) -> None:
        """Run to the end; the outcome is in `result` and `error`. Only cancellation leaves it."""
        self._group = group
        failure: BaseException | None = None
        try:
            with self._scope:
                await self._drive()
        except get_cancelled_exc_class():
            await self.settle_cancelled()
            raise
        except BaseException as error:  # noqa: BLE001 - a run's failure is handed over as a value
            failure = error
        if self.crash is not None:
            failure = self.crash
        if failure is None and not self.aborted:
            self.finish(self.status)
            return
        if self.crash is None and current_effective_deadline() == -float("inf"):
            # Somebody turned the cancellation into another exception, or it came from elsewhere
            # at the same time.
            await self.settle_cancelled()
        else:
            await self.settle(failure)
        # A cancellation wins over what the run would raise, also one that came meanwhile.
        await checkpoint_if_cancelled()

    # The loop

    async def _drive(self) -> None:
        await checkpoint_if_cancelled()
        session = self.session
        await session.log.ensure_loaded()
        self._configure()
        if self.resume and not self._can_continue():
            raise NothingToContinue(
                "The branch ends in a finished answer, so there is nothing to continue."
            )
        await session.start_hooks(self)
        messages = [] if self.resume else await build_input(self, self.value, first=True)
        self.announce()
        inbox = session.inbox
        steered = await deliver(self, inbox.take_steer(), inbox.steer) if self.follows else []
        self.input_ids = steered + await accept_input(self, messages)
        for problem in session.log.take_problems():
            self.warn(problem.code, problem.message)
        self.context = await gather_context(self)
        rounds = 0
        if self.resume:
            self.input_ids = self._resumed_input()
            if session.log.history.pairs.open_calls:
                await self._answer_open_calls()
                rounds = 1
        await self._auto_compact()
        await self._loop(rounds)

    def _configure(self) -> None:
        """Settle the model, its provider, the tools and the system prompt of this run."""
        agent = self.agent
        options = self.options
        self.model = options.model or self.session.log.history.model or agent.model
        self._provider = agent.resolve_provider(self.model)
        self.tools = agent.tools
        self.tool_specs = agent.tool_specs
        if options.tools is not None:
            allowed = filter_tools(agent.tools.values(), allow=options.tools, argument="tools")
            self.tools = {tool.name: tool for tool in allowed}
            self.tool_specs = tuple(spec for spec in agent.tool_specs if spec.name in self.tools)
        extra = options.system
        if extra is None:
            self.system = agent.system_parts
        else:
            parts = (extra,) if isinstance(extra, str) else tuple(extra)
            self.system = agent.system_parts + parts
        if options.output is not None:
            self._expect(options.output)

    def _expect(self, kind: object) -> None:
        """Have the run end in a value of a type."""
        output = Output(kind, redact=self.redactor.redact_value if self.redactor else None)
        output.choose_mode(self.provider, self.model)
        self.output = output
        if output.mode == "schema":
            return
        if FINAL_TOOL in self.agent.tools:
            raise UsageError(
                f"The agent has a tool named {FINAL_TOOL!r}, which is how the model of this run "
                "would answer; give it another name.",
                code="duplicate_name",
            )
        self.final_tool = tool = output.tool()
        self.tools = {**self.tools, tool.name: tool}
        self.tool_specs += (
            ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters),
        )

    def _can_continue(self) -> bool:
        history = self.session.log.history
        if history.pairs.open_calls:
            return True
        last = history.last_message
        if last is None:
            return False
        return last.role != "assistant" or last.stop_reason in RESUMABLE_STOPS

    def _resumed_input(self) -> list[str]:
        """What a run without input answers: the last user message of the branch."""
        for entry in reversed(self.session.log.history.path):
            if isinstance(entry, MessageEntry) and entry.message.role == "user":
                return [entry.id]
        return []

    async def _loop(self, rounds: int) -> None:
        inbox = self.session.inbox
        paused = False
        while True:
            if not paused:
                self.input_ids += await deliver(self, inbox.take_steer(), inbox.steer)
            await checkpoint_if_cancelled()
            self._start_turn()
            attempt = await ask(self)
            self.stop_reason = attempt.stop_reason
            calls = self.message.tool_calls if attempt.stored and self.message else []
            paused = attempt.stop_reason == "pause" and not calls
            if calls or paused:
                if await self._ends_before_calls(attempt, calls, rounds):
                    return
                rounds += 1
                if calls:
                    self.batch = self.new_batch(attempt, calls)
                    await self._execute(self.batch)
                self.end_turn()
                if not self._has_output():
                    if not paused and self._is_over_limit():
                        return
                    continue
            else:
                self.end_turn()
                if not self._took_text(attempt):
                    if self._is_over_limit():
                        return
                    await self._ask_again()
                    continue
            if not await self._follow():
                return

    async def _follow(self) -> bool:
        """Whether an answered run goes on, with what was said meanwhile."""
        inbox = self.session.inbox
        if (not inbox.steer and not inbox.follow_up) or self._is_over_limit():
            return False
        if self.output is not None:
            self.output.renew()
        if not inbox.steer:
            self.input_ids += await deliver(self, inbox.take_follow_up(), inbox.follow_up)
        return True

    async def _execute(self, batch: Batch) -> None:
        """Run the calls; a final answer among them that was refused is counted."""
        await batch.execute()
        output = self.output
        if output is None or output.done:
            return
        for slot in batch.slots:
            if slot.tool is self.final_tool and slot.error is not None and slot.reason != "skipped":
                output.missed(slot.error.message)
                return

    def _has_output(self) -> bool:
        """Whether the calls that were just run gave the value that the run is to end in."""
        output = self.output
        if output is None:
            return False
        if not output.done and output.tries >= MAX_OUTPUT_TRIES:
            raise output.failure()
        return output.done

    def _took_text(self, attempt: Attempt) -> bool:
        """Whether an answer without calls is what the run is to end in."""
        output = self.output
        if output is None:
            return True
        if attempt.stop_reason == "refusal":
            raise output.failure("it refused to answer")
        text = self.message.text if attempt.stored and self.message is not None else ""
        if output.take_text(text):
            return True
        if attempt.stop_reason in CUT_STOPS:
            output.error = "it was cut at its length limit"
        if output.tries >= MAX_OUTPUT_TRIES:
            raise output.failure()
        return False

    async def _ask_again(self) -> None:
        """Tell the model what was wrong with its answer."""
        assert self.output is not None  # noqa: S101
        message = Message(role="user", content=[TextBlock(text=self.output.request())])
        drafts = [(MessageEntry, {"message": self.redactor.redact_message(message)})]
        self.input_ids += [entry.id for entry in await self.store(drafts)]

    def _start_turn(self) -> None:
        self.turn_number += 1
        self.attempt = None
        self.batch = None
        self.turn_usage = None
        self.emit(TurnStarted(session_id=self.session_id, run_id=self.id, turn=self.turn_number))
        self.turn_open = True

    async def _ends_before_calls(
        self, attempt: Attempt, calls: list[ToolCallBlock], rounds: int
    ) -> bool:
        """Whether the run ends with the calls of this answer, which are not run then."""
        chosen = self.options.max_tool_rounds
        max_rounds = self.agent.max_tool_rounds if chosen is None else chosen
        over = self.limit_in_words()
        if over is not None:
            await self._end_at_limit(attempt, calls, over)
        elif rounds >= max_rounds:
            await self._end_at_rounds(attempt, calls, max_rounds)
        else:
            return False
        return True

    async def _end_at_rounds(
        self, attempt: Attempt, calls: list[ToolCallBlock], max_rounds: int
    ) -> None:
        error = ErrorInfo(
            code="max_tool_rounds",
            message=f"Not run: the limit of {max_rounds} tool rounds is reached.",
        )
        if not await self._refuse(attempt, calls, "max_tool_rounds", error):
            self.status = "max_tool_rounds"

    async def _end_at_limit(self, attempt: Attempt, calls: list[ToolCallBlock], over: str) -> None:
        error = ErrorInfo(code="limit_reached", message=f"Not run: {over}")
        if not await self._refuse(attempt, calls, "skipped", error):
            self.status = "limit_reached"
            self.warn("limit_reached", over)

    async def _refuse(
        self, attempt: Attempt, calls: list[ToolCallBlock], reason: str, error: ErrorInfo
    ) -> bool:
        """The run's last turn: its calls are answered without being run, all but a final answer.

        Returns:
            Whether that gave the value that the run is to end in.
        """
        self.accepting = False
        if calls:
            batch = self.batch = self.new_batch(attempt, calls)
            for slot in batch.slots:
                if self.final_tool is None or slot.call.name != self.final_tool.name:
                    slot.block(reason, error)
            await self._execute(batch)
        self.end_turn()
        return self.output is not None and self.output.done

    def _is_over_limit(self) -> bool:
        """Whether a run that would go on has used what it may."""
        over = self.limit_in_words()
        if over is None:
            return False
        self.warn("limit_reached", over)
        self.status = "limit_reached"
        return True

    async def _answer_open_calls(self) -> None:
        """A turn without a provider: the calls that an earlier run left open."""
        self._start_turn()
        self.batch = Batch(self, open_slots(self), self.tools)
        await self.batch.execute()
        self.end_turn("tool_use")

    async def _auto_compact(self) -> None:
        """At most once a run, before the first request."""
        options = self.agent.compaction_for(self.options)
        if options is None or options.threshold_entries is None:
            return
        history = self.session.log.history
        if history.ends_in_compaction or history.counted <= options.threshold_entries:
            return
        await try_compact(self, options, trigger="auto")
