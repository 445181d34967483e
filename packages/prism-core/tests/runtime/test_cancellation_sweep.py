"""A run is stopped after every single step of it, in every way; each time nothing is lost.

The scripts below wait wherever something can wait: in the provider, in the store, in tools, in
middleware, between two attempts. `Steps` counts the steps of the scheduler in one undisturbed run;
then the run is repeated and stopped after step 1, 2, 3 …
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - a native cancellation is what is tested
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from prism.core import (
    Agent,
    CompactionOptions,
    ErrorInfo,
    MiddlewareRegistry,
    NoActiveRun,
    RunAborted,
    Session,
    UsageError,
    tool,
)
from prism.core._contracts import (
    CompactionContext,
    CompactionResult,
    Done,
    Failed,
    PermissionDecision,
    PermissionRequest,
    ProviderEvent,
    ProviderRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    ToolCallReady,
)
from prism.core.compaction import DefaultCompactionStrategy

from .harness import Stage, Steps, VirtualLoop, running_tasks, said


class SlowProvider:
    """Answers from a script and waits before each event."""

    id = "mock"

    def __init__(self, turns: list[list[ProviderEvent]]) -> None:
        self._turns = turns
        self.open = 0

    async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        self.open += 1
        try:
            turn = self._turns.pop(0) if self._turns else [TextDelta(text="Yes."), Done()]
            for event in turn:
                await checkpoint()
                yield event
        finally:
            self.open -= 1


class SlowStrategy(DefaultCompactionStrategy):
    async def compact(self, context: CompactionContext) -> CompactionResult | None:
        await checkpoint()
        return await super().compact(context)


@tool
async def quick(n: int) -> int:
    """Wait once."""
    await checkpoint()
    return n


@tool
async def sleepy(n: int) -> int:
    """Wait for time to pass."""
    await anyio.sleep(0.05)
    return n


@tool(sequential=True)
async def alone(n: int) -> int:
    """Wait alone."""
    await checkpoint()
    return n


@tool
async def stubborn(n: int) -> int:
    """Ignore a cancellation for a while."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(0.2)
    return n


def calls(*named: tuple[str, str]) -> list[ProviderEvent]:
    return [ToolCallReady(id=key, name=name, arguments={"n": 1}) for key, name in named]


async def slow_hook(payload: Any) -> None:
    await checkpoint()


class Scene:
    """One script, ready to run."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.accepted: list[str] = []
        self.provider = SlowProvider([])
        self.agent: Agent
        self.session: Session

    def build(self) -> None:
        raise NotImplementedError

    async def prepare(self) -> None:
        """What happens before the run that is stopped."""

    async def act(self) -> None:
        """The run that is stopped."""
        await self.session.run("Go")

    def _open(self, turns: list[list[ProviderEvent]], **options: Any) -> None:
        self.provider = SlowProvider(turns)
        self.agent = self.stage.agent(self.provider, **options)
        self.session = self.stage.watch(self.agent.session("s1"))

    async def _run_beside(
        self, other: Callable[[], Coroutine[Any, Any, None]], **options: Any
    ) -> None:
        """Run while another task does something."""
        failure: RunAborted | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(other)
            try:
                await self.session.run("Go", **options)
            except RunAborted as error:
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def say(self, text: str) -> None:
        """Steer, from inside the run; a run that is stopping says no."""
        try:
            self.session.steer(text)
        except NoActiveRun:
            return
        self.accepted.append(text)


class Tools(Scene):
    """Parallel calls, one that runs alone, an unknown one, a retry, hooks, a policy."""

    def build(self) -> None:
        hooks = MiddlewareRegistry()
        for hook in ("session_start", "input_assembly", "tool_call", "tool_result"):
            hooks.use(hook, slow_hook)

        class Policy:
            async def decide(self, request: PermissionRequest) -> PermissionDecision:
                await checkpoint()
                return PermissionDecision(verdict="allow")

        self._open(
            [
                [Failed(error=ErrorInfo(code="overloaded", message="busy"))],
                [
                    ThinkingDelta(text="Hm"),
                    TextDelta(text="I "),
                    TextDelta(text="see"),
                    ToolCallChunk(index=7, id="c1", name="sleepy", arguments_text='{"n"'),
                    ToolCallChunk(index=7, arguments_text=": 1}"),
                    *calls(("c2", "quick"), ("c3", "alone"), ("c4", "nosuch"), ("c5", "quick")),
                    Done(),
                ],
                [*calls(("c6", "stubborn"), ("c7", "sleepy")), Done()],
                [TextDelta(text="Done"), Done()],
            ],
            tools=[quick, sleepy, alone, stubborn],
            middleware=hooks,
            permissions=Policy(),
            tool_cancel_grace_ms=100,
        )


class Talk(Scene):
    """Steering before a call starts and at the end, a follow-up, and auto-compaction."""

    def build(self) -> None:
        @tool(sequential=True)
        async def listen(n: int) -> int:
            """Hear the user while it runs."""
            await checkpoint()
            self.say("steer 1")
            await checkpoint()
            return n

        self._open(
            [
                [TextDelta(text="a"), Done()],
                [TextDelta(text="b"), Done()],
                [*calls(("c1", "listen"), ("c2", "quick")), Done()],
                [TextDelta(text="c"), Done()],
            ],
            tools=[listen, quick],
            compaction=CompactionOptions(
                threshold_entries=4, keep_recent_entries=2, strategy=SlowStrategy()
            ),
        )

    async def prepare(self) -> None:
        await self.session.run("One")
        await self.session.run("Two")

    async def act(self) -> None:
        await self._run_beside(self._follow)

    async def _follow(self) -> None:
        with anyio.CancelScope(shield=True):  # it asks at once, and gets its answer at once
            if await self.session.follow_up("follow 1") is None:
                self.accepted.append("follow 1")


class Overflow(Scene):
    """The context is too long: a compaction within the run, and one more attempt."""

    def build(self) -> None:
        self._open(
            [
                [TextDelta(text="a"), Done()],
                [TextDelta(text="b"), Done()],
                [Failed(error=ErrorInfo(code="context_overflow", message="too long"))],
                [*calls(("c1", "quick")), Done()],
                [TextDelta(text="c"), Done()],
            ],
            tools=[quick],
            compaction=CompactionOptions(
                on_overflow="compact", keep_recent_entries=1, strategy=SlowStrategy()
            ),
        )

    async def prepare(self) -> None:
        await self.session.run("One")
        await self.session.run("Two")


class Asking(Scene):
    """Calls that wait for somebody's word."""

    def build(self) -> None:
        class Policy:
            async def decide(self, request: PermissionRequest) -> PermissionDecision:
                return PermissionDecision(verdict="ask", reason="sure?")

        self._open(
            [[*calls(("c1", "quick"), ("c2", "quick")), Done()], [TextDelta(text="c"), Done()]],
            tools=[quick],
            permissions=Policy(),
        )

    async def act(self) -> None:
        await self._run_beside(self._answer, approvals="wait")

    async def _answer(self) -> None:
        answered: set[str] = set()
        while len(answered) < 2:
            await anyio.sleep(0.01)
            for key in (await self.session.state()).pending_approvals:
                if key not in answered:
                    answered.add(key)
                    # The run may have been stopped since it was asked.
                    with suppress(UsageError):
                        await self.session.answer_approval(key, "allowed")


class Compacting(Scene):
    """A compaction that somebody asked for; steering arrives meanwhile."""

    def build(self) -> None:
        self._open([[TextDelta(text="a"), Done()], [TextDelta(text="b"), Done()]])

    async def prepare(self) -> None:
        await self.session.run("One")
        await self.session.run("Two")

    async def act(self) -> None:
        async def compact(context: CompactionContext) -> CompactionResult | None:
            await checkpoint()
            self.say("steer 1")
            await checkpoint()
            return await strategy.compact(context)

        class Strategy:
            name = "s"

            def __init__(self) -> None:
                self.compact = compact

        strategy = DefaultCompactionStrategy(keep_recent_entries=1)
        await self.session.compact(strategy=Strategy())


class Streaming(Scene):
    """The same as a stream, read event by event."""

    def build(self) -> None:
        self._open(
            [
                [TextDelta(text="I "), *calls(("c1", "sleepy")), Done()],
                [TextDelta(text="c"), Done()],
            ],
            tools=[sleepy],
        )

    async def act(self) -> None:
        async with self.session.stream("Go") as events:
            async for _ in events:
                await checkpoint()


SCENES: list[type[Scene]] = [Tools, Talk, Overflow, Asking, Compacting, Streaming]


async def stopped(
    scene: Scene, steps: Steps, at: int, ways: list[str]
) -> tuple[BaseException | None, bool]:
    """Run the scene and stop it after step *at*, then after every third step once more.

    Returns:
        What it raised, and whether it had so many steps.
    """
    todo = list(ways)
    raised: BaseException | None = None
    cancel: Callable[[], object] = scene.session.abort  # replaced below

    def stop() -> None:
        way = todo.pop(0)
        if way == "abort":
            scene.session.abort("enough")
        else:
            cancel()
        if todo:
            steps.arm(3, stop)

    async def act() -> None:
        nonlocal raised
        try:
            await scene.act()
        except anyio.get_cancelled_exc_class() as error:
            raised = error
            raise
        except BaseException as error:  # noqa: BLE001 - looked at below
            raised = error

    if "native" in ways:
        task = asyncio.ensure_future(act())
        cancel = task.cancel
        steps.arm(at, stop)
        await asyncio.wait([task])
    else:
        async with anyio.create_task_group() as group:
            cancel = group.cancel_scope.cancel
            steps.arm(at, stop)
            group.start_soon(act)
    steps.disarm()
    return raised, todo != ways


async def sweep(kind: type[Scene], ways: list[str]) -> int:
    """Stop the scene everywhere; the number of steps that it has."""
    at = 0
    with Steps() as steps:
        while True:
            at += 1
            stage = Stage(suspend=True)
            scene = kind(stage)
            scene.build()
            await scene.prepare()
            before = running_tasks()
            raised, was_stopped = await stopped(scene, steps, at, ways)
            session = scene.session
            where = f"{kind.__name__}, {ways}, step {at}"
            if steps.error is not None:
                raise steps.error
            check_raised(raised, ways, where)
            assert running_tasks() == before, where
            assert scene.provider.open == 0, where
            state = await session.state()
            assert state.status == "idle", where
            assert not state.pending_approvals, where
            assert not session.approvals, where
            result = await session.run("And now?")
            assert result.status == "completed", where
            while (await session.state()).steer or (await session.state()).follow_up:
                await session.run("And now?")
            texts = said(await session.entries())
            for text in scene.accepted:
                assert texts.count(f"user: {text}") == 1, f"{where}: {text}"
            try:
                stage.finish()
            except AssertionError as error:
                raise AssertionError(f"{where}: {error}") from error
            await session.aclose()
            if not was_stopped:
                assert raised is None, where
                return at
            assert at < 2_000


def check_raised(raised: BaseException | None, ways: list[str], where: str) -> None:
    if raised is None:
        return
    kinds: tuple[type[BaseException], ...] = ()
    if "abort" in ways:
        kinds += (RunAborted,)
    if ways != ["abort"] and ways != ["abort", "abort"]:
        kinds += (anyio.get_cancelled_exc_class(),)
    assert isinstance(raised, kinds), f"{where}: {raised!r}"


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize(
    "ways",
    [["abort"], ["scope"], ["abort", "scope"]],
    ids="-".join,
)
async def test_a_run_stopped_after_any_step_loses_nothing(
    kind: type[Scene], ways: list[str]
) -> None:
    await sweep(kind, ways)


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize(
    "ways",
    [["native"], ["native", "native", "native"], ["native", "abort"]],
    ids="-".join,
)
@pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"loop_factory": VirtualLoop})], ids=["asyncio"]
)
async def test_a_native_cancel_of_the_task_loses_nothing(
    kind: type[Scene], ways: list[str]
) -> None:
    await sweep(kind, ways)
