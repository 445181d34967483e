"""What is said to a session while its model is busy."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from prism.core import (
    ImageBlock,
    Message,
    MiddlewareRegistry,
    NoActiveRun,
    QueueUpdated,
    RunAborted,
    SecretRedactor,
    StoreError,
    TextBlock,
    ToolExecutionBlocked,
    ToolResultBlock,
    UsageError,
    tool,
)
from prism.core._contracts import InputPayload, InputRequest
from prism.core.providers import delay, done, text_delta, tool_call

from .harness import Stage, of, provider_of, said, sent


@tool
async def nap(ms: int) -> int:
    """Sleep."""
    await anyio.sleep(ms / 1000)
    return ms


@tool(sequential=True)
async def alone(ms: int) -> int:
    """Sleep alone."""
    await anyio.sleep(ms / 1000)
    return ms


def calls(*named: tuple[str, str, int]) -> list[Any]:
    return [
        *(tool_call(id=key, name=name, arguments={"ms": ms}) for key, name, ms in named),
        done(),
    ]


SLOW = [text_delta("slow"), delay(100), done()]
END = [text_delta("end"), done()]


async def test_steering_skips_the_calls_that_have_not_started_and_comes_after_the_results(
    stage: Stage,
) -> None:
    session = stage.session(
        [calls(("c1", "nap", 100), ("c2", "alone", 10), ("c3", "nap", 10)), END], tools=[nap, alone]
    )
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await anyio.sleep(0.05)
        session.steer("Stop that")
        assert (await session.state()).steer == 1
    assert said(await session.entries()) == [
        "user: Go",
        "assistant: [c1] [c2] [c3]",
        "tool: c1 100",
        "tool: c2 skipped",
        "tool: c3 skipped",
        "user: Stop that",
        "assistant: end",
    ]
    assert {event.reason for event in of(ToolExecutionBlocked, stage.events(session))} == {
        "skipped"
    }


async def test_steering_continues_a_run_whose_answer_has_no_calls(stage: Stage) -> None:
    session = stage.session([SLOW, END])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await anyio.sleep(0.05)
        session.steer("One")
        session.steer("Two")
    assert sent(provider_of(session).requests[1]) == [
        "user: Go",
        "assistant: slow",
        "user: One",
        "user: Two",
    ]


async def test_a_follow_up_is_taken_when_the_model_has_no_more_calls(stage: Stage) -> None:
    session = stage.session([calls(("c1", "nap", 100)), END, END, END], tools=[nap])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await anyio.sleep(0.05)
        assert await session.follow_up("Next") is None
        assert await session.follow_up("Last") is None
        assert (await session.state()).follow_up == 2
    assert said(await session.entries())[3:] == [
        "assistant: end",
        "user: Next",
        "assistant: end",
        "user: Last",
        "assistant: end",
    ]


async def test_steering_outranks_a_follow_up(stage: Stage) -> None:
    session = stage.session([SLOW, SLOW, END, END])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await anyio.sleep(0.05)
        await session.follow_up("later")
        session.steer("sooner")
        await anyio.sleep(0.1)
        session.steer("sooner still")
    users = [line for line in said(await session.entries()) if line.startswith("user")]
    assert users == ["user: Go", "user: sooner", "user: sooner still", "user: later"]


async def test_an_idle_follow_up_is_a_run(stage: Stage) -> None:
    session = stage.session([END])
    result = await session.follow_up("Hi", max_tool_rounds=1)
    assert result is not None
    assert result.text == "end"


async def test_a_follow_up_that_joins_a_run_takes_no_options(stage: Stage) -> None:
    session = stage.session([SLOW])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await anyio.sleep(0.05)
        with pytest.raises(UsageError, match="max_tool_rounds"):
            await session.follow_up("Hi", max_tool_rounds=1)
    assert (await session.state()).follow_up == 0


async def test_steering_needs_a_run(stage: Stage) -> None:
    session = stage.session([END])
    with pytest.raises(NoActiveRun):
        session.steer("Hi")
    await session.run("Go")
    with pytest.raises(NoActiveRun):
        session.steer("Hi")


async def test_the_queue_is_told_after_each_change(stage: Stage) -> None:
    session = stage.session(
        [SLOW, SLOW, END], redactor=SecretRedactor(["hunter2"]), secrets=["hunter2"]
    )
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await anyio.sleep(0.05)
        session.steer("it is hunter2")
        await session.follow_up([TextBlock(text="b")])
    told = [
        (event.size, event.steer, event.follow_up)
        for event in of(QueueUpdated, stage.events(session))
    ]
    block = [{"type": "text", "text": "b"}]
    assert told == [
        (1, ["it is [REDACTED]"], []),
        (2, ["it is [REDACTED]"], [block]),
        (1, [], [block]),
        (0, [], []),
    ]


async def test_what_waits_can_be_taken_back(stage: Stage) -> None:
    session = stage.session([SLOW, END])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await anyio.sleep(0.05)
        session.steer("a")
        await session.follow_up("b")
        assert session.clear_queue() == (["a"], ["b"])
        assert session.clear_queue() == ([], [])
    assert said(await session.entries()) == ["user: Go", "assistant: slow"]
    assert of(QueueUpdated, stage.events(session))[-1].size == 0


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        " ",
        [],
        None,
        3,
        {"text": "x"},
        object(),
        ["text"],
        [TextBlock(text="")],
        Message(role="assistant", content=[TextBlock(text="x")]),
        Message(role="system", content=[TextBlock(text="x")]),
        [ToolResultBlock(tool_call_id="c1", name="nap", result=1)],
    ],
    ids=range(12),
)
async def test_input_that_cannot_be_said_is_refused_at_the_call(stage: Stage, wrong: Any) -> None:
    session = stage.session([SLOW, END])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await anyio.sleep(0.05)
        with pytest.raises(ValueError, match=r"."):
            session.steer(wrong)
        with pytest.raises(ValueError, match=r"."):
            await session.follow_up(wrong)
        state = await session.state()
        assert (state.steer, state.follow_up) == (0, 0)
        session.steer([ImageBlock(url="https://example.test/a.png"), TextBlock(text="x")])
    assert said(await session.entries())[-2] == "user: <ImageBlock> x"


async def test_no_more_than_256_inputs_wait(stage: Stage) -> None:
    session = stage.session([SLOW, END])
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Go")
        await anyio.sleep(0.05)
        for number in range(256):
            session.steer(f"{number}")
        with pytest.raises(UsageError) as caught:
            session.steer("one more")
        assert (caught.value.code, caught.value.details) == ("queue_full", {"limit": 256})
        session.clear_queue()


async def test_input_that_an_abort_found_waiting_stays_and_is_delivered_by_the_next_run(
    stage: Stage,
) -> None:
    session = stage.session([SLOW, END, END, END])

    async def run() -> None:
        with pytest.raises(RunAborted):
            await session.run("Go")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.05)
        session.steer("steered")
        await session.follow_up("followed")
        session.abort()
    state = await session.state()
    assert (state.steer, state.follow_up) == (1, 1)
    await session.run("New")
    assert said(await session.entries())[2:] == [
        "user: New",
        "user: steered",
        "assistant: end",
        "user: followed",
        "assistant: end",
    ]


async def test_input_that_the_store_did_not_take_returns_to_the_front_of_its_queue(
    stage: Stage,
) -> None:
    session = stage.session([SLOW, END, END])

    async def run() -> None:
        with pytest.raises(StoreError, match="disk"):
            await session.run("Go")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.05)
        session.steer("a")
        session.steer("b")

        def fail(entries: Any) -> None:
            if any(
                getattr(entry, "message", None) and entry.message.text == "b" for entry in entries
            ):
                raise StoreError("disk is gone")

        stage.store.before_append = fail
    stage.store.before_append = lambda _: None
    assert session.clear_queue() == (["a", "b"], [])


async def test_steering_that_races_a_delivery_keeps_its_place(stage: Stage) -> None:
    hooks = MiddlewareRegistry()

    async def slowly(payload: InputPayload) -> None:
        await anyio.sleep(0.1)

    hooks.use("input_assembly", slowly)
    session = stage.session([SLOW, END, END], middleware=hooks)

    async def run() -> None:
        with pytest.raises(RunAborted):
            await session.run("Go")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.15)
        session.steer("first")
        await anyio.sleep(0.1)  # it is being delivered
        session.steer("second")
        session.abort()
    assert session.clear_queue() == (["first", "second"], [])


async def test_an_item_that_a_guard_refuses_does_not_fail_the_runs_to_come(stage: Stage) -> None:
    hooks = MiddlewareRegistry(policy="throw")

    def guard(payload: InputPayload) -> None:
        if any("bad" in message.text for message in payload.messages):
            raise ValueError("not that")

    hooks.use("input_assembly", guard)
    session = stage.session([SLOW, END, END], middleware=hooks)

    async def run() -> None:
        with pytest.raises(Exception, match="not that"):
            await session.run("Go")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.05)
        session.steer("good")
        session.steer("bad")
        session.steer("better")
    assert (await session.state()).steer == 2
    await session.run("New")
    assert said(await session.entries())[2:] == [
        "user: New",
        "user: good",
        "user: better",
        "assistant: end",
    ]


async def test_input_of_a_run_that_ends_at_a_limit_waits_for_the_next_run(stage: Stage) -> None:
    session = stage.session(
        [calls(("c1", "nap", 100)), calls(("c2", "nap", 1)), END, END], tools=[nap]
    )
    results: list[Any] = []

    async def run() -> None:
        results.append(await session.run("Go", max_tool_rounds=1))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.05)
        await session.follow_up("then")
    assert results[0].status == "max_tool_rounds"
    assert (await session.state()).follow_up == 1
    await session.run("New")
    assert said(await session.entries())[-4:] == [
        "user: New",
        "assistant: end",
        "user: then",
        "assistant: end",
    ]


async def test_a_custom_input_builder_may_take_any_json(stage: Stage) -> None:
    class Builder:
        async def build(self, request: InputRequest) -> list[Message]:
            given: Any = request.input
            return [Message(role="user", content=[TextBlock(text=f"<{given['n']}>")])]

    session = stage.session([SLOW, END], input_builder=Builder())
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, {"n": 1})
        await anyio.sleep(0.05)
        session.steer({"n": 2})
        with pytest.raises(ValueError, match="JSON"):
            session.steer({"n": object()})
    users = [line for line in said(await session.entries()) if line.startswith("user")]
    assert users == ["user: <1>", "user: <2>"]


async def test_attachments_belong_to_the_first_input_alone(stage: Stage) -> None:
    session = stage.session([SLOW, END])

    async def run() -> None:
        await session.run("Go", attachments=[TextBlock(text="doc")])

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.05)
        session.steer("more")
    users = [line for line in said(await session.entries()) if line.startswith("user")]
    assert users == ["user: Go doc", "user: more"]


async def test_input_for_a_run_that_is_then_refused_waits_and_is_told(stage: Stage) -> None:
    class Builder:
        async def build(self, request: InputRequest) -> list[Message]:
            await anyio.sleep(1)
            if request.input == "bad":
                raise ValueError("refused")
            return [Message(role="user", content=[TextBlock(text=str(request.input))])]

    session = stage.session([END], input_builder=Builder())

    async def run() -> None:
        with pytest.raises(ValueError, match="refused"):
            await session.run("bad")

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.sleep(0.5)
        session.steer("steered")
    (told,) = stage.events(session)
    assert isinstance(told, QueueUpdated)
    assert (told.run_id, told.steer) == (None, ["steered"])
    await session.run("good")
    assert said(await session.entries()) == ["user: good", "user: steered", "assistant: end"]
