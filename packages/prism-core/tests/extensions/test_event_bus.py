from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from prism.core import UsageError
from prism.core.extensions import (
    MAX_EMIT_DEPTH,
    ExtensionApi,
    ExtensionEventBus,
    ExtensionKernel,
    HandlerFailure,
    extension,
)


async def test_handlers_are_called_in_order_each_before_the_next() -> None:
    bus = ExtensionEventBus()
    seen: list[str] = []

    async def slow(payload: str) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(f"slow {payload}")

    bus.on("saved", slow)
    bus.on("saved", lambda payload: seen.append(f"fast {payload}"))
    bus.on("other", lambda payload: seen.append("other"))
    assert await bus.emit("saved", "a") == ()
    assert seen == ["slow a", "fast a"]
    assert bus.topics == ("saved", "other")
    assert await bus.emit("nobody") == ()


async def test_a_failing_handler_is_reported_and_the_others_are_called() -> None:
    reported: list[HandlerFailure] = []
    bus = ExtensionEventBus(on_failure=reported.append)
    seen: list[object] = []

    async def broken(payload: object) -> None:
        raise ValueError("broken")

    bus.on("saved", broken, source="pack")
    bus.on("saved", seen.append)
    failures = await bus.emit("saved", 1)
    assert [(each.topic, each.source, str(each.error)) for each in failures] == [
        ("saved", "pack", "broken")
    ]
    assert tuple(reported) == failures
    assert seen == [1]


async def test_a_handler_that_unsubscribed_is_not_called() -> None:
    bus = ExtensionEventBus()
    seen: list[object] = []
    first, second = bus.on("t", seen.append), bus.on("t", seen.append)
    first()
    first()
    await bus.emit("t", 1)
    assert seen == [1]
    second()
    assert bus.topics == ()
    assert await bus.emit("t", 2) == ()


async def test_an_emission_keeps_the_handlers_that_it_began_with() -> None:
    bus = ExtensionEventBus()
    seen: list[str] = []

    def first(payload: object) -> None:
        last()
        bus.on("t", lambda payload: seen.append("late"))
        seen.append("first")

    bus.on("t", first)
    last = bus.on("t", lambda payload: seen.append("last"))
    await bus.emit("t")
    assert seen == ["first", "last"]


async def test_a_handler_cannot_change_what_the_next_one_gets() -> None:
    bus = ExtensionEventBus()
    seen: list[Any] = []

    def spoil(payload: dict[str, list[int]]) -> None:
        payload["list"].append(2)

    bus.on("t", spoil)
    bus.on("t", seen.append)
    given = {"list": [1]}
    await bus.emit("t", given)
    assert seen == [{"list": [1]}]
    assert given == {"list": [1]}


async def test_a_handler_that_emits_to_its_own_topic_fails() -> None:
    bus = ExtensionEventBus()
    inner: list[HandlerFailure] = []

    async def ping(payload: object) -> None:
        inner.extend(await bus.emit("pong"))

    async def pong(payload: object) -> None:
        await bus.emit("ping")

    bus.on("ping", ping)
    bus.on("pong", pong)
    assert await bus.emit("ping") == ()
    (failure,) = inner
    assert isinstance(failure.error, UsageError)
    assert failure.error.code == "event_loop"
    assert "ping → pong → ping" in str(failure.error)


async def test_handlers_that_emit_on_and_on_come_to_an_end() -> None:
    bus = ExtensionEventBus()
    reached: list[int] = []

    def relay(number: int) -> Callable[[object], Any]:
        async def handler(payload: object) -> None:
            reached.append(number)
            await bus.emit(f"t{number + 1}")

        return handler

    for number in range(2 * MAX_EMIT_DEPTH):
        bus.on(f"t{number}", relay(number))
    assert await bus.emit("t0") == ()
    assert reached == list(range(MAX_EMIT_DEPTH))


async def test_a_task_that_a_handler_started_may_emit_to_the_topic_later() -> None:
    bus = ExtensionEventBus()
    failures: list[HandlerFailure] = []
    over = anyio.Event()
    calls: list[object] = []

    async def later() -> None:
        await over.wait()
        failures.extend(await bus.emit("t", "again"))

    async with anyio.create_task_group() as group:

        def handler(payload: object) -> None:
            calls.append(payload)
            if payload == "first":
                group.start_soon(later)

        bus.on("t", handler)
        await bus.emit("t", "first")
        over.set()
    assert calls == ["first", "again"]
    assert failures == []


async def test_cancellation_ends_an_emission() -> None:
    bus = ExtensionEventBus()
    seen: list[object] = []
    bus.on("t", lambda payload: anyio.sleep_forever())
    bus.on("t", seen.append)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await bus.emit("t")
    assert scope.cancelled_caught
    assert seen == []


def test_a_bus_takes_no_more_handlers_than_its_limit() -> None:
    bus = ExtensionEventBus(max_handlers=2)
    bus.on("a", print)
    unsubscribe = bus.on("b", print)
    with pytest.raises(UsageError, match="'pack' cannot add one for 'c'") as caught:
        bus.on("c", print, source="pack")
    assert caught.value.code == "too_many_handlers"
    unsubscribe()
    bus.on("c", print)
    with pytest.raises(UsageError, match="max_handlers"):
        ExtensionEventBus(max_handlers=0)


@pytest.mark.parametrize("topic", ["", "a b", "x" * 129])
def test_a_topic_needs_a_name(topic: str) -> None:
    with pytest.raises(UsageError) as caught:
        ExtensionEventBus().on(topic, print)
    assert caught.value.code == "invalid_name"


async def test_extensions_of_one_kernel_speak_over_its_bus() -> None:
    heard: list[object] = []
    emit: list[Callable[..., Any]] = []

    @extension("speaker")
    def speaker(api: ExtensionApi) -> None:
        emit.append(api.events.emit)

    @extension("listener", requires=["speaker"])
    def listener(api: ExtensionApi) -> None:
        api.events.on("speaker/said", heard.append)

    kernel = ExtensionKernel()
    await kernel.load([speaker, listener])
    await emit[0]("speaker/said", "hello")
    await kernel.events.emit("speaker/said", "from the host")
    await kernel.unload("listener")
    await emit[0]("speaker/said", "to nobody")
    assert heard == ["hello", "from the host"]
