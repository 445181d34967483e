"""Random hosts do random things at random moments; the laws hold and nothing is lost.

Each number is one story, the same each time. `PRISM_STORIES=5000` tells more of them.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import anyio
import pytest
from anyio.lowlevel import checkpoint

from prism.core import (
    CompactionOptions,
    ErrorInfo,
    MiddlewareRegistry,
    PrismError,
    RunAborted,
    SecretRedactor,
    Session,
    Tool,
    ToolContext,
    ToolError,
    UsageError,
)
from prism.core._contracts import (
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

from .harness import Stage, Steps, running_tasks, said

STORIES: Final = int(os.environ.get("PRISM_STORIES", "30"))
SECRET: Final = "hush-hush"  # noqa: S105 - what is to be hidden
ERRORS: Final = ("overloaded", "auth", "context_overflow", "replay_invalid", "server_error")


class Story:
    """One host, one session, and what happens to them."""

    def __init__(self, number: int) -> None:
        self.dice = random.Random(number)  # noqa: S311 - dice that fall the same each time
        self.stage = Stage(suspend=self.dice.random() < 0.7)
        self.said: Counter[str] = Counter()
        self.taken_back: Counter[str] = Counter()
        self.words = 0
        self.open = 0
        hooks = MiddlewareRegistry()
        for hook in (
            "session_start",
            "input_assembly",
            "provider_request",
            "tool_call",
            "tool_result",
            "retry",
            "compaction",
        ):
            if self.dice.random() < 0.3:
                hooks.use(hook, self._hook)
        self.session: Session = self.stage.session(
            self,
            secrets=[SECRET],
            redactor=SecretRedactor([SECRET]),
            tools=self._tools(),
            permissions=self if self.dice.random() < 0.5 else None,
            middleware=hooks if self.dice.random() < 0.7 else None,
            max_parallel_tools=self.dice.choice([1, 2, 8]),
            tool_cancel_grace_ms=self.dice.choice([1, 100]),
            compaction=CompactionOptions(
                threshold_entries=self.dice.choice([None, 3, 10]),
                keep_recent_entries=self.dice.choice([1, 4]),
                on_overflow=self.dice.choice([None, "compact"]),
            ),
        )

    # The host's code

    id = "mock"

    async def generate(self, request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
        """A model that says anything."""
        dice = self.dice
        self.open += 1
        try:
            for _ in range(dice.randrange(6)):
                if dice.random() < 0.5:
                    await self._wait()
                yield self._event()
            if dice.random() < 0.03:
                raise LookupError("the adapter broke")
            if dice.random() < 0.2:
                yield Failed(error=ErrorInfo(code=dice.choice(ERRORS), message=f"no {SECRET}"))
            elif dice.random() < 0.95:
                yield Done(stop_reason="pause" if dice.random() < 0.05 else None)
        finally:
            self.open -= 1

    def _event(self) -> ProviderEvent:
        dice = self.dice
        kind = dice.randrange(5)
        cut = dice.randrange(len(SECRET))
        text = dice.choice(["a", "é\ud83d", "\ude00", SECRET[:cut], SECRET[cut:], " "])
        if kind == 0:
            return ThinkingDelta(text=text)
        if kind == 1:
            return TextDelta(text=text)
        name = dice.choice([tool.name for tool in self.session.agent.tools.values()] + ["nosuch"])
        if kind == 2:
            return ToolCallChunk(
                index=dice.randrange(3),
                id="c",
                name=name,
                arguments_text=dice.choice(["", "{}", "{"]),
            )
        return ToolCallReady(id=dice.choice(["", "c", "d"]), name=name, arguments={})

    def _tools(self) -> list[Tool]:
        async def quick(arguments: Any, context: ToolContext) -> Any:
            if self.dice.random() < 0.5:
                context.progress({"at": SECRET})
            await self._wait()
            return f"done {SECRET}"

        async def fails(arguments: Any, context: ToolContext) -> Any:
            await self._wait()
            raise ToolError(f"broke {SECRET}", code="broke")

        async def stubborn(arguments: Any, context: ToolContext) -> Any:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self.dice.choice([0.0005, 0.05, 5]))
            return "late"

        async def talks(arguments: Any, context: ToolContext) -> Any:
            await self.do()
            return "said"

        tools = [("quick", quick), ("fails", fails), ("stubborn", stubborn), ("talks", talks)]
        return [
            Tool(
                name=name,
                execute=execute,
                sequential=self.dice.random() < 0.2,
                timeout_ms=self.dice.choice([10, 1_000]),
            )
            for name, execute in tools
        ]

    async def decide(self, request: PermissionRequest) -> PermissionDecision:
        await self._wait()
        verdict: Any = self.dice.choice(["allow", "allow", "deny", "ask"])
        return PermissionDecision(verdict=verdict, reason=SECRET)

    async def _hook(self, payload: Any) -> None:
        await self._wait()

    async def _wait(self) -> None:
        for _ in range(self.dice.randrange(3)):
            await checkpoint()
        if self.dice.random() < 0.2:
            await anyio.sleep(self.dice.choice([0.001, 0.2]))

    # What happens

    def word(self) -> str:
        self.words += 1
        return f"word {self.words}."

    def now(self) -> None:
        """Something that needs no waiting."""
        session = self.session
        kind = self.dice.randrange(6)
        if kind == 0:
            session.abort("enough")
        elif kind == 1:
            for items in session.clear_queue():
                self.taken_back.update(items)
        elif kind < 5:
            word = self.word()
            try:
                session.steer(word)
            except UsageError:
                return
            self.said[word] += 1

    async def do(self) -> None:
        """Something that may have to wait; what is refused, or fails, fails as Prism says."""
        session = self.session
        kind = self.dice.randrange(10)
        try:
            if kind == 0:
                await session.append_custom({"type": "note", "what": SECRET})
            elif kind == 1:
                await session.label("here")
            elif kind == 2:
                await session.compact()
            elif kind == 3:
                await session.reload()
            elif kind == 4:
                await session.checkout(session.leaf_id)
            elif kind == 5:
                await session.run(self.word(), approvals="wait")
            elif kind == 6:
                word = self.word()
                if await session.follow_up(word) is None:
                    self.said[word] += 1
            elif kind == 7:
                await session.fork()
            elif kind == 8:
                async with session.stream(self.word()) as events:
                    async for _ in events:
                        if self.dice.random() < 0.1:
                            break
            else:
                self.now()
        except (PrismError, RunAborted):
            pass

    async def live(self) -> None:
        """Runs, one after the other, while others do things."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._answer)
            group.start_soon(self._others)
            for _ in range(self.dice.randrange(1, 4)):
                try:
                    await self.session.run(self.word(), approvals="wait", max_tool_rounds=4)
                except (PrismError, RunAborted):
                    await checkpoint()
            group.cancel_scope.cancel()

    async def _others(self) -> None:
        for _ in range(self.dice.randrange(6)):
            await self._wait()
            await self.do()

    async def _answer(self) -> None:
        answers: list[tuple[str, dict[str, Any]]] = [
            ("allowed", {}),
            ("denied", {"reason": SECRET}),
            ("edited", {"arguments": {}}),
        ]
        while True:
            await anyio.sleep(0.01)
            for key in (await self.session.state()).pending_approvals:
                decision, more = self.dice.choice(answers)
                try:
                    await self.session.answer_approval(key, decision, **more)
                except UsageError:
                    continue

    async def end(self) -> None:
        """Everything is quiet: a model that behaves answers what is left."""
        session = self.session
        await session.wait_settled()
        session.agent.provider.generate = _answers  # type: ignore[method-assign, union-attr]
        while True:
            result = await session.run("And now?")
            assert result.status == "completed"
            state = await session.state()
            if not state.steer and not state.follow_up:
                break
        assert state.status == "idle"
        assert not state.pending_approvals
        assert not session.approvals


async def _answers(request: ProviderRequest) -> AsyncGenerator[ProviderEvent]:
    yield TextDelta(text="Yes.")
    yield Done()


def everything_said(story: Story) -> Counter[str]:
    """How often each queued word is in the store, on any branch."""
    texts = "\n".join(said(story.stage.store.entries_of["s1"]))
    return Counter({word: texts.count(f"user: {word}") for word in story.said})


@pytest.mark.parametrize("number", range(STORIES))
async def test_anything_at_any_time(number: int) -> None:
    story = Story(number)
    before = running_tasks()
    with Steps() as steps:
        moments = sorted(story.dice.randrange(1, 250) for _ in range(story.dice.randrange(5)))

        def next_moment() -> None:
            if moments:
                steps.arm(moments.pop(0), happen)

        cancel: list[Callable[[], object]] = []

        def happen() -> None:
            if story.dice.random() < 0.2:
                cancel[0]()
            else:
                story.now()
            next_moment()

        async with anyio.create_task_group() as group:
            cancel.append(group.cancel_scope.cancel)
            next_moment()
            group.start_soon(story.live)
        steps.disarm()
    assert story.open == 0
    assert running_tasks() == before
    await story.end()
    delivered = everything_said(story) + story.taken_back
    assert delivered == story.said
    for copy in story.stage.store.entries_of:
        if copy != "s1":
            story.stage.may_stay_open(copy)  # a fork of what was under way
    story.stage.finish()
