from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from prism.core._contracts import (
    HOOKS,
    InputPayload,
    MiddlewareFailure,
    Next,
    SessionPayload,
    ToolCallPayload,
)
from prism.core._errors import MiddlewareError, UsageError
from prism.core._middleware import MiddlewareInfo, MiddlewareRegistry
from prism.core._wire import Message, TextBlock, ToolCallBlock

HOOK = "input_assembly"


def payload(text: str = "") -> InputPayload:
    return InputPayload(
        session_id="s",
        run_id="r",
        messages=[Message(role="user", content=[TextBlock(text=text)])],
    )


def text_of(value: InputPayload) -> str:
    return value.messages[0].text


def adding(text: str) -> Callable[[InputPayload], InputPayload]:
    return lambda value: payload(text_of(value) + text)


async def test_handlers_run_by_order_and_then_by_registration() -> None:
    registry = MiddlewareRegistry()
    registry.use(HOOK, adding("c"), order=1)
    registry.use(HOOK, adding("a"), order=-1)
    registry.use(HOOK, adding("d"), order=1)
    registry.use(HOOK, adding("b"))
    assert text_of(await registry.run(HOOK, payload("-"))) == "-abcd"


async def test_sync_and_async_handlers_may_be_mixed_and_none_means_unchanged() -> None:
    async def asynchronous(value: InputPayload) -> InputPayload:
        await anyio.lowlevel.checkpoint()
        return adding("b")(value)

    async def silent(value: InputPayload) -> None:
        await anyio.lowlevel.checkpoint()

    registry = MiddlewareRegistry()
    registry.use(HOOK, adding("a"))
    registry.use(HOOK, asynchronous)
    registry.use(HOOK, silent)
    registry.use(HOOK, lambda value: None)
    assert text_of(await registry.run(HOOK, payload())) == "ab"


async def test_a_payload_that_nobody_changed_is_the_same_object() -> None:
    registry = MiddlewareRegistry()
    given = payload()
    assert await registry.run(HOOK, given) is given
    registry.use(HOOK, lambda value: None)
    assert await registry.run(HOOK, given) is given


async def test_next_runs_the_rest_and_gives_its_result() -> None:
    async def around(value: InputPayload, next_: Next) -> InputPayload:
        inner = await next_(payload(text_of(value) + "("))
        return payload(text_of(inner) + ")")

    registry = MiddlewareRegistry()
    registry.use(HOOK, adding("a"))
    registry.use(HOOK, around)
    registry.use(HOOK, adding("b"))
    registry.use(HOOK, around)
    registry.use(HOOK, adding("c"))
    assert text_of(await registry.run(HOOK, payload())) == "a(b(c))"


async def test_none_after_next_keeps_the_result_of_the_rest() -> None:
    async def watching(value: InputPayload, next_: Next) -> None:
        await next_(value)

    registry = MiddlewareRegistry()
    registry.use(HOOK, watching)
    registry.use(HOOK, adding("b"))
    assert text_of(await registry.run(HOOK, payload("a"))) == "ab"


async def test_returning_without_next_skips_the_rest() -> None:
    def ending(value: InputPayload, next_: Next) -> InputPayload:
        return payload("end")

    def silent(value: InputPayload, next_: Next) -> None:
        return None

    for handler, expected in ((ending, "end"), (silent, "a")):
        registry = MiddlewareRegistry()
        registry.use(HOOK, handler)
        registry.use(HOOK, adding("b"))
        assert text_of(await registry.run(HOOK, payload("a"))) == expected


async def test_next_runs_once_and_only_while_its_handler_runs() -> None:
    ran: list[str] = []
    kept: list[Next] = []

    async def twice(value: InputPayload, next_: Next) -> None:
        kept.append(next_)
        await next_(value)
        await next_(value)

    def count(value: InputPayload) -> None:
        ran.append("rest")

    failures: list[MiddlewareFailure] = []
    registry = MiddlewareRegistry()
    registry.use(HOOK, twice)
    registry.use(HOOK, count)
    await registry.run(HOOK, payload(), on_failure=failures.append)
    assert ran == ["rest"]
    assert "called twice" in str(failures[0].error)

    def keeping(value: InputPayload, next_: Next) -> None:
        kept.append(next_)

    registry = MiddlewareRegistry()
    registry.use(HOOK, keeping)
    await registry.run(HOOK, payload())
    with pytest.raises(RuntimeError, match="after its middleware had returned"):
        await kept[-1](payload())


async def test_a_failure_under_event_is_reported_and_its_change_dropped() -> None:
    def failing(value: Any) -> None:
        value.messages.clear()
        raise ValueError("broken")

    failures: list[MiddlewareFailure] = []
    registry = MiddlewareRegistry()
    registry.use(HOOK, adding("a"))
    registry.use(HOOK, failing, name="breaker")
    registry.use(HOOK, adding("b"))
    result = await registry.run(HOOK, payload(), on_failure=failures.append)
    assert text_of(result) == "ab"
    (failure,) = failures
    assert (failure.hook, failure.name, str(failure.error)) == (HOOK, "breaker", "broken")
    assert text_of(await registry.run(HOOK, payload())) == "ab"


async def test_a_failure_around_next_does_not_run_the_rest_twice_or_not_at_all() -> None:
    async def before(value: InputPayload, next_: Next) -> None:
        raise ValueError("before")

    async def after(value: InputPayload, next_: Next) -> None:
        await next_(value)
        raise ValueError("after")

    async def wrong(value: InputPayload, next_: Next) -> None:
        await next_("not a payload")

    for handler in (before, after, wrong):
        failures: list[MiddlewareFailure] = []
        registry = MiddlewareRegistry()
        registry.use(HOOK, handler)
        registry.use(HOOK, adding("b"))
        result = await registry.run(HOOK, payload("a"), on_failure=failures.append)
        assert text_of(result) == "ab"
        assert len(failures) == 1


async def test_a_failure_under_throw_ends_the_chain() -> None:
    def failing(value: InputPayload) -> None:
        raise ValueError("broken")

    ran: list[InputPayload] = []
    registry = MiddlewareRegistry(policy="throw")
    registry.use(HOOK, failing, name="guard")
    registry.use(HOOK, ran.append)
    with pytest.raises(
        MiddlewareError, match="'guard' of hook 'input_assembly' failed: broken"
    ) as caught:
        await registry.run(HOOK, payload())
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.details == {"hook": HOOK, "middleware": "guard"}
    assert ran == []


async def test_a_guard_cannot_be_silenced_by_the_handler_around_it() -> None:
    async def swallowing(value: InputPayload, next_: Next) -> None:
        try:
            await next_(value)
        except MiddlewareError:
            return

    async def replacing(value: InputPayload, next_: Next) -> None:
        try:
            await next_(value)
        except MiddlewareError as error:
            raise ValueError("another") from error

    def guard(value: InputPayload) -> None:
        raise ValueError("refused")

    for handler in (swallowing, replacing):
        failures: list[MiddlewareFailure] = []
        registry = MiddlewareRegistry()
        registry.use(HOOK, handler)
        registry.use(HOOK, guard, policy="throw")
        with pytest.raises(MiddlewareError, match="refused"):
            await registry.run(HOOK, payload(), on_failure=failures.append)
        assert failures == []


@pytest.mark.parametrize("result", ["text", SessionPayload(session_id="s"), 5])
async def test_a_result_of_another_type_is_a_failure(result: Any) -> None:
    failures: list[MiddlewareFailure] = []
    registry = MiddlewareRegistry()
    registry.use(HOOK, lambda value: result)
    given = payload()
    assert await registry.run(HOOK, given, on_failure=failures.append) is given
    assert "must return a InputPayload or None" in str(failures[0].error)


async def test_handlers_get_copies_and_leave_none_of_theirs_behind() -> None:
    given = ToolCallPayload(
        session_id="s",
        run_id="r",
        call=ToolCallBlock(id="c", name="t", arguments={"list": [{"a": 1}]}),
    )
    kept: list[ToolCallPayload] = []

    def spoiling(value: ToolCallPayload) -> None:
        value.call.arguments["list"][0]["a"] = 2

    def returning(value: ToolCallPayload) -> ToolCallPayload:
        kept.append(value)
        value.call.arguments["list"].append("mine")
        return value

    async def late(value: ToolCallPayload, next_: Next) -> None:
        inner: ToolCallPayload = await next_(value)
        inner.call.arguments.clear()

    registry = MiddlewareRegistry()
    registry.use("tool_call", spoiling)
    registry.use("tool_call", late)
    registry.use("tool_call", returning)
    result = await registry.run("tool_call", given)
    kept[0].call.arguments.clear()
    assert given.call.arguments == {"list": [{"a": 1}]}
    assert result.call.arguments == {"list": [{"a": 1}, "mine"]}


async def test_unsubscribing_takes_out_one_handler_once() -> None:
    registry = MiddlewareRegistry()
    handler = adding("a")
    first = registry.use(HOOK, handler)
    second = registry.use(HOOK, handler)
    first()
    first()
    assert text_of(await registry.run(HOOK, payload())) == "a"
    second()
    assert not registry.has(HOOK)


async def test_a_chain_under_way_is_not_changed_by_use_and_unsubscribe() -> None:
    registry = MiddlewareRegistry()

    def changing(value: InputPayload) -> None:
        unsubscribe()
        registry.use(HOOK, adding("c"))

    registry.use(HOOK, changing)
    unsubscribe = registry.use(HOOK, adding("b"))
    assert text_of(await registry.run(HOOK, payload())) == "b"
    assert text_of(await registry.run(HOOK, payload())) == "c"


async def test_cancellation_passes_through_and_is_no_failure() -> None:
    failures: list[MiddlewareFailure] = []

    async def slow(value: InputPayload) -> None:
        await anyio.sleep_forever()

    async def around(value: InputPayload, next_: Next) -> None:
        await next_(value)

    registry = MiddlewareRegistry()
    registry.use(HOOK, around)
    registry.use(HOOK, slow)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def run() -> None:
                await registry.run(HOOK, payload(), on_failure=failures.append)

            group.start_soon(run)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert failures == []


def test_the_list_tells_what_is_registered() -> None:
    def named(value: SessionPayload) -> None: ...

    registry = MiddlewareRegistry()
    registry.use("session_shutdown", named, name="last", order=3, policy="throw")
    registry.use("session_start", named)
    assert registry.list("session_shutdown") == (
        MiddlewareInfo(hook="session_shutdown", name="last", order=3, policy="throw"),
    )
    assert [info.hook for info in registry.list()] == ["session_start", "session_shutdown"]
    assert registry.list("session_start")[0].name.endswith("named")
    assert registry.has("session_start")
    assert not registry.has("tool_call")


async def test_an_unknown_hook_is_refused_with_the_known_ones() -> None:
    registry = MiddlewareRegistry()
    calls: list[Callable[[], object]] = [
        lambda: registry.use("nope", lambda value: None),
        lambda: registry.has("nope"),
        lambda: registry.list("nope"),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=", ".join(HOOKS)) as caught:
            call()
        assert caught.value.code == "unknown_hook"
    with pytest.raises(UsageError, match="nope"):
        await registry.run("nope", payload())


def test_what_cannot_be_a_middleware_is_refused() -> None:
    registry = MiddlewareRegistry()
    wrong: Any = "text"
    with pytest.raises(UsageError, match="must be callable"):
        registry.use(HOOK, wrong)

    def three(a: Any, b: Any, c: Any) -> None: ...

    wrong = three
    with pytest.raises(UsageError, match="takes 3 arguments"):
        registry.use(HOOK, wrong)
    wrong = "sometimes"
    with pytest.raises(UsageError, match="'event' or 'throw'"):
        registry.use(HOOK, lambda value: None, policy=wrong)
    wrong = 1.5
    with pytest.raises(UsageError, match="order must be an integer"):
        registry.use(HOOK, lambda value: None, order=wrong)


async def test_an_argument_with_a_default_is_the_handlers_own() -> None:
    def own(value: InputPayload, text: str = "own") -> InputPayload:
        return payload(text)

    def many(value: InputPayload, *rest: Any) -> None:
        assert rest == ()

    registry = MiddlewareRegistry(policy="throw")
    registry.use(HOOK, own)
    registry.use(HOOK, many)
    assert text_of(await registry.run(HOOK, payload())) == "own"
