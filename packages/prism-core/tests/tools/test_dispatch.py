"""Running calls: arguments, errors, timeouts, cancellation, threads, batches."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import anyio
import pytest
import trio.testing
from anyio.lowlevel import checkpoint
from hypothesis import given, strategies as st

from prism.core._errors import RegistryError, RunAborted, ToolError, UsageError
from prism.core._wire import ErrorInfo, TextBlock, ToolCallBlock, ToolResult
from prism.core.tools import (
    TOOL_THREADS,
    Tool,
    ToolContext,
    ToolFunction,
    ToolOutcome,
    ToolOutput,
    ToolRegistry,
    _threads,
    dispatch_tool_call,
    dispatch_tool_calls,
    execute_tool,
    tool,
    validate_arguments,
)

CALL = ToolCallBlock(id="c1", name="t", arguments={})


def make(function: ToolFunction, **options: Any) -> Tool:
    options.setdefault("name", "t")
    return Tool(execute=function, **options)


async def execute(function: ToolFunction, **options: Any) -> ToolOutcome:
    own_task = options.pop("own_task", False)
    redact = options.pop("redact", None)
    return await execute_tool(
        make(function, **options), CALL, {}, ToolContext(), own_task=own_task, redact=redact
    )


async def in_own_task(function: ToolFunction, **options: Any) -> ToolOutcome:
    """As the runtime runs a tool: in a child task."""
    outcomes: list[ToolOutcome] = []

    async def child() -> None:
        outcomes.append(await execute(function, own_task=True, **options))

    async with anyio.create_task_group() as group:
        group.start_soon(child)
    return outcomes[0]


def error_of(result: ToolResult) -> ErrorInfo:
    assert result.error is not None
    return result.error


# Arguments


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


async def nothing(arguments: dict[str, Any], context: ToolContext) -> None: ...


@pytest.mark.parametrize("arguments", [{}, {"a": "x"}, {"a": None}])
def test_arguments_are_checked_against_a_hand_made_schema(arguments: dict[str, Any]) -> None:
    call = ToolCallBlock(id="c1", name="t", arguments=arguments)
    with pytest.raises(UsageError, match=r"Invalid arguments for tool 't': .*\$") as caught:
        validate_arguments(make(nothing, parameters=SCHEMA), call)
    assert caught.value.code == "invalid_arguments"


def test_arguments_that_fit_a_hand_made_schema_are_copied() -> None:
    call = ToolCallBlock(id="c1", name="t", arguments={"a": 1, "b": {"c": []}})
    arguments = validate_arguments(make(nothing, parameters=SCHEMA), call)
    assert arguments == call.arguments
    arguments["b"]["c"].append(1)
    assert call.arguments["b"] == {"c": []}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ('{"a": ', "Not valid JSON"),
        ("[1]", "must be one JSON object"),
        ('{"a": NaN}', "NaN"),
        ("", "Not valid JSON"),
    ],
)
def test_arguments_that_did_not_parse_are_refused(raw: str, reason: str) -> None:
    call = ToolCallBlock(id="c1", name="t", arguments={}, raw_arguments=raw)
    with pytest.raises(UsageError, match=reason) as caught:
        validate_arguments(make(nothing), call)
    assert caught.value.code == "invalid_arguments"


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*args: object) -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("too big"), "invalid_arguments"),
        (ToolError("too big"), "invalid_arguments"),
        (UsageError("too big", code="invalid_arguments"), "invalid_arguments"),
        (UsageError("too big", code="missing_extra"), "validation_failed"),
        (KeyError("too big"), "validation_failed"),
    ],
    ids=repr,
)
def test_a_tools_own_check_refuses_or_fails(error: Exception, code: str) -> None:
    with pytest.raises(UsageError, match="too big") as caught:
        validate_arguments(make(nothing, validate=raising(error)), CALL)
    assert caught.value.code == code


def test_a_tools_own_check_may_convert() -> None:
    def count(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"n": len(arguments)}

    assert validate_arguments(make(nothing, validate=count), CALL) == {"n": 0}


@given(
    st.dictionaries(
        st.text(max_size=3) | st.just("a"),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    )
)
def test_any_arguments_are_either_right_or_refused(arguments: dict[str, Any]) -> None:
    @tool(name="t")
    def take(a: int, b: list[str] | None = None) -> None: ...

    call = ToolCallBlock(id="c1", name="t", arguments=arguments)
    try:
        checked = validate_arguments(take, call)
    except UsageError as error:
        assert error.code == "invalid_arguments"  # noqa: PT017
    else:
        assert checked == arguments
        assert type(checked["a"]) is int


# Errors


def as_async(function: Callable[[], Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def run(*args: object) -> Any:
        return function()

    return run


def as_sync(function: Callable[[], Any]) -> ToolFunction:
    return lambda arguments, context: function()


Either = Callable[[Callable[[], Any]], ToolFunction]


@pytest.fixture(params=[as_async, as_sync], ids=["async", "sync"])
def either(request: pytest.FixtureRequest) -> Either:
    return request.param


async def test_an_async_tool_runs_here_and_a_sync_one_in_a_thread(either: Either) -> None:
    outcome = await execute(either(lambda: threading.current_thread() is threading.main_thread()))
    assert outcome == ToolOutcome(
        result=ToolResult(tool_call_id="c1", name="t", value=either is as_async)
    )


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("error", "message", "name"),
    [
        (ValueError("bad"), "bad", "ValueError"),
        (KeyError(), "KeyError", "KeyError"),
        (TimeoutError("slow"), "slow", "TimeoutError"),
        (RunAborted("inner run"), "inner run", "RunAborted"),
        (StopIteration(), "coroutine raised StopIteration", "RuntimeError"),
        (UnprintableError(), "UnprintableError", "UnprintableError"),
    ],
    ids=["value", "empty", "timeout", "prism", "stop", "unprintable"],
)
async def test_any_exception_becomes_an_error_result(
    either: Either, error: Exception, message: str, name: str
) -> None:
    outcome = await execute(either(raising(error)))
    assert outcome.raised
    info = error_of(outcome.result)
    assert (info.code, info.name) == ("tool_error", name)
    assert message in info.message


async def test_a_tool_error_keeps_its_code_and_its_details(either: Either) -> None:
    error = ToolError("No such file.", code="not_found", details={"path": "a/b"}, status=404)
    info = error_of((await execute(either(raising(error)))).result)
    assert info == ErrorInfo(
        message="No such file.",
        name="ToolError",
        code="not_found",
        status=404,
        details={"path": "a/b"},
    )


@pytest.mark.parametrize("details", [{"a": math.nan}, {"a": object()}, {"a": "x" * 999}])
async def test_details_that_the_wire_cannot_hold_are_left_out(details: dict[str, Any]) -> None:
    error = ToolError("Bad.", details=details)
    info = error_of((await execute(as_async(raising(error)), max_result_bytes=500)).result)
    assert (info.message, info.details) == ("Bad.", None)


async def test_error_texts_are_redacted_then_cut() -> None:
    def redact(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: redact(item) for key, item in cast("dict[str, Any]", value).items()}
        return value.replace("sesame", "[REDACTED]")

    for error in (
        ToolError("." * 4090 + "sesame", details={"key": "sesame"}),
        ValueError("." * 4090 + "sesame"),
        ExceptionGroup("g", [ValueError("sesame"), KeyError("sesame")]),
    ):
        info = error_of((await execute(as_async(raising(error)), redact=redact)).result)
        assert "ses" not in repr(info)
        assert len(info.message.encode()) <= 4096


async def test_the_errors_of_a_tools_own_task_group_are_readable() -> None:
    async def group_of(*errors: Exception) -> None:
        async with anyio.create_task_group() as group:
            for error in errors:
                group.start_soon(as_async(raising(error)))

    one = await execute(lambda a, c: group_of(ToolError("Gone.", code="gone")))
    assert (error_of(one.result).code, error_of(one.result).message) == ("gone", "Gone.")
    two = error_of((await execute(lambda a, c: group_of(KeyError("a"), ValueError("b")))).result)
    assert (two.code, two.name) == ("tool_error", "ExceptionGroup")
    assert two.message.startswith("2 errors: ")
    assert "KeyError: a" in two.message
    assert "ValueError: b" in two.message
    many = error_of((await execute(lambda a, c: group_of(*[OSError("x")] * 30))).result)
    assert many.message == "many errors: " + "OSError: x; " * 10 + "…"


async def test_an_error_that_a_tool_returns_is_no_raised_one(either: Either) -> None:
    output = ToolOutput(error=ErrorInfo(message="no", code="e"), content=[TextBlock(text="log")])
    outcome = await execute(either(lambda: output))
    assert not outcome.raised
    assert error_of(outcome.result).code == "e"


async def test_what_ends_the_program_is_not_held_up() -> None:
    with pytest.raises(KeyboardInterrupt):
        await execute(raising(KeyboardInterrupt()))


# Time


async def test_a_tool_that_takes_too_long_is_an_error() -> None:
    async def forever(arguments: dict[str, Any], context: ToolContext) -> None:
        await anyio.sleep_forever()

    outcome = await execute(forever, timeout_ms=1)
    assert outcome.raised
    info = error_of(outcome.result)
    assert info == ErrorInfo(
        message="Tool 't' did not finish within 1 ms.", code="timeout", details={"timeoutMs": 1}
    )


async def test_a_sync_tool_that_takes_too_long_is_abandoned() -> None:
    release = threading.Event()
    outcome = await execute(lambda a, c: release.wait(), timeout_ms=1)
    assert error_of(outcome.result).code == "timeout"
    release.set()


async def test_what_a_tool_says_at_its_timeout_counts() -> None:
    async def saves(arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            pass
        return "half"

    async def breaks(arguments: dict[str, Any], context: ToolContext) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            try:
                await anyio.sleep_forever()
            finally:
                raise OSError("disk")

    saved = await execute(saves, timeout_ms=1)
    assert (saved.raised, saved.result.content) == (False, [TextBlock(text="half")])
    assert error_of((await execute(breaks, timeout_ms=1)).result).name == "OSError"


# Cancellation


async def cancels_its_inner_scope(arguments: dict[str, Any], context: ToolContext) -> str:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await checkpoint()
    return "went on"


async def raises_a_cancellation(arguments: dict[str, Any], context: ToolContext) -> None:
    saved: BaseException | None = None
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await checkpoint()
        except anyio.get_cancelled_exc_class() as error:
            saved = error
            raise
    assert saved is not None
    raise saved


async def raises_it_in_a_group(arguments: dict[str, Any], context: ToolContext) -> None:
    try:
        await raises_a_cancellation(arguments, context)
    except anyio.get_cancelled_exc_class() as error:
        raise BaseExceptionGroup("g", [error, ValueError("x")]) from None


async def test_a_tool_may_cancel_its_own_scope() -> None:
    for run in (execute, in_own_task):
        outcome = await run(cancels_its_inner_scope)
        assert (outcome.raised, outcome.result.content) == (False, [TextBlock(text="went on")])


@pytest.mark.parametrize("function", [raises_a_cancellation, raises_it_in_a_group])
async def test_a_tools_own_cancellation_is_an_error_result(function: Callable[..., Any]) -> None:
    outcome = await in_own_task(function)
    assert outcome.raised
    assert error_of(outcome.result) == ErrorInfo(
        message="Tool 't' cancelled itself.", code="cancelled"
    )
    result = await dispatch_tool_call(CALL, [make(function)])
    assert error_of(result).code == "cancelled"


async def test_without_a_task_of_its_own_no_cancellation_is_swallowed() -> None:
    with pytest.raises(anyio.get_cancelled_exc_class()):
        await execute(raises_a_cancellation)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancellations_of_the_event_loop_itself_are_told_apart() -> None:
    import asyncio  # noqa: TID251

    async def raises(arguments: dict[str, Any], context: ToolContext) -> None:
        raise asyncio.CancelledError

    async def awaits_a_cancelled_future(arguments: dict[str, Any], context: ToolContext) -> None:
        future: asyncio.Future[None] = asyncio.Future()
        future.cancel()
        await future

    async def cancels_its_task(arguments: dict[str, Any], context: ToolContext) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await checkpoint()

    for function in (raises, awaits_a_cancelled_future, cancels_its_task):
        tools = [make(function), make(nothing, name="n")]
        calls = [CALL, ToolCallBlock(id="c2", name="n", arguments={})]
        first, second = await dispatch_tool_calls(calls, tools)
        assert error_of(first).code == "cancelled"
        assert second.error is None

    async def waits(arguments: dict[str, Any], context: ToolContext) -> None:
        started.set()
        await anyio.sleep_forever()

    async def dispatch_waits() -> None:
        await dispatch_tool_call(CALL, [make(waits)])

    async def execute_waits() -> None:
        await execute(waits)

    for run in (dispatch_waits, execute_waits):
        started = asyncio.Event()
        task = asyncio.create_task(run())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await run()


@pytest.mark.parametrize("sync", [True, False])
async def test_a_real_cancellation_passes_through(sync: bool) -> None:  # noqa: FBT001
    ended: list[str] = []
    release = threading.Event()

    async def waits(arguments: dict[str, Any], context: ToolContext) -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            ended.append("tool")

    def blocks(arguments: dict[str, Any], context: ToolContext) -> None:
        anyio.from_thread.run_sync(started.set)
        release.wait()

    function = blocks if sync else waits
    for run in (
        functools.partial(execute, function),
        functools.partial(execute, function, own_task=True),
        functools.partial(dispatch_tool_call, CALL, [make(function)]),
        functools.partial(dispatch_tool_calls, [CALL, CALL], [make(function)]),
    ):
        started = anyio.Event()

        async def child(run: Callable[[], Awaitable[object]] = run) -> None:
            await run()
            ended.append("returned")

        async with anyio.create_task_group() as group:
            group.start_soon(child)
            await started.wait()
            group.cancel_scope.cancel()
    release.set()
    assert "returned" not in ended
    assert sync or len(ended) >= 4


async def test_a_group_with_a_real_cancellation_passes_through() -> None:
    reached: list[int] = []

    async def group_of_two(arguments: dict[str, Any], context: ToolContext) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            reached.append(1)
            outer.cancel()

    with anyio.CancelScope() as outer:
        await execute(group_of_two, own_task=True)
        reached.append(2)
    assert outer.cancelled_caught
    assert reached == [1]


# Threads


async def test_an_abandoned_thread_leaves_its_place_to_others() -> None:
    release = threading.Event()
    stuck = [execute(lambda a, c: release.wait(), timeout_ms=1) for _ in range(TOOL_THREADS)]
    async with anyio.create_task_group() as group:
        for one in stuck:
            group.start_soon(lambda one: one, one)
    outcome = await execute(lambda a, c: "free")
    assert outcome.result.content == [TextBlock(text="free")]
    release.set()


async def test_too_many_abandoned_threads_refuse_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_threads, "MAX_TOOL_THREADS", 2)
    release = threading.Event()

    def blocks(arguments: dict[str, Any], context: ToolContext) -> None:
        anyio.from_thread.run_sync(started.set)
        release.wait()

    for _ in range(2):
        started = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(execute, blocks)
            await started.wait()
            group.cancel_scope.cancel()
    info = error_of((await execute(lambda a, c: "free")).result)
    assert (info.code, info.details) == ("too_many_threads", {"limit": 2})
    release.set()


CLOCK = trio.testing.MockClock()


@pytest.mark.parametrize("anyio_backend", [pytest.param(("trio", {"clock": CLOCK}), id="trio")])
async def test_waiting_for_a_thread_is_not_the_tools_time() -> None:
    release = threading.Event()
    ended: list[Any] = []

    async def run(function: ToolFunction, timeout_ms: int) -> None:
        ended.append((await execute(function, timeout_ms=timeout_ms)).result.value)

    async with anyio.create_task_group() as group:
        for _ in range(TOOL_THREADS):
            group.start_soon(run, as_sync(release.wait), 1_000_000)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(run, as_sync(lambda: 7), 1_000)
        await anyio.wait_all_tasks_blocked()
        CLOCK.jump(10)
        await anyio.wait_all_tasks_blocked()
        assert ended == []
        release.set()
    assert ended.count(7) == 1
    assert ended.count(True) == TOOL_THREADS


async def test_progress_is_reported_from_any_thread(either: Either) -> None:
    seen: list[Any] = []
    context = ToolContext(report=seen.append)
    function = either(lambda: context.progress({"done": 1}))
    await execute_tool(make(function), CALL, {}, context)
    assert seen == [{"done": 1}]


# Batches


def calls(*names: str) -> list[ToolCallBlock]:
    return [ToolCallBlock(id=f"c{n}", name=name, arguments={}) for n, name in enumerate(names)]


async def test_an_unknown_tool_is_an_error_result() -> None:
    info = error_of(await dispatch_tool_call(CALL, ToolRegistry([make(nothing, name="other")])))
    assert info == ErrorInfo(
        message="There is no tool named 't'. Known tools: other.", code="unknown_tool"
    )


async def test_wrong_arguments_are_an_error_result() -> None:
    info = error_of(await dispatch_tool_call(CALL, [make(nothing, parameters=SCHEMA)]))
    assert info.code == "invalid_arguments"


async def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(RegistryError, match="Two tools are named 't'"):
        await dispatch_tool_call(CALL, [make(nothing), make(nothing)])


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, 1_001])
async def test_the_limit_of_a_batch_is_a_positive_integer(limit: Any) -> None:
    with pytest.raises(UsageError, match="max_concurrency must be an integer from 1 to 1000"):
        await dispatch_tool_calls([], [], max_concurrency=limit)


class Watch:
    """Tools that report when they start and end, and run until nothing else moves."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.running = 0
        self.most = 0

    def tool(self, name: str, **options: Any) -> Tool:
        async def run(arguments: dict[str, Any], context: ToolContext) -> str:
            self.log.append(f"+{context.tool_call_id}")
            self.running += 1
            self.most = max(self.most, self.running)
            for _ in range(20):
                await checkpoint()
            self.running -= 1
            self.log.append(f"-{context.tool_call_id}")
            return name

        return Tool(name=name, execute=run, **options)


async def test_calls_run_beside_each_other_and_answer_in_order() -> None:
    watch = Watch()
    results = await dispatch_tool_calls(calls("a", "x", "b", "a"), [watch.tool(n) for n in "ab"])
    assert watch.log[:3] == ["+c0", "+c2", "+c3"]
    assert watch.most == 3
    assert [result.tool_call_id for result in results] == ["c0", "c1", "c2", "c3"]
    assert [result.error.code if result.error else None for result in results] == [
        None,
        "unknown_tool",
        None,
        None,
    ]


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_no_more_calls_run_at_once_than_allowed(limit: int) -> None:
    watch = Watch()
    await dispatch_tool_calls(calls(*"aaaaaa"), [watch.tool("a")], max_concurrency=limit)
    assert watch.most == limit
    starts = [line for line in watch.log if line.startswith("+")]
    assert starts == [f"+c{number}" for number in range(6)]


async def test_a_sequential_tool_runs_alone_in_its_turn() -> None:
    watch = Watch()
    tools = [watch.tool("a"), watch.tool("s", sequential=True)]
    await dispatch_tool_calls(calls(*"aassaa"), tools)
    assert watch.log[:2] == ["+c0", "+c1"]
    assert watch.log[4:8] == ["+c2", "-c2", "+c3", "-c3"]
    assert watch.log[8:10] == ["+c4", "+c5"]


async def test_one_failing_call_leaves_the_others_alone() -> None:
    watch = Watch()
    tools = [watch.tool("a"), make(as_async(raising(ValueError("x"))))]
    results = await dispatch_tool_calls(calls("a", "t", "a"), tools)
    assert [result.error is None for result in results] == [True, False, True]


async def test_each_call_of_a_batch_gets_its_own_context() -> None:
    seen: list[Any] = []

    async def run(arguments: dict[str, Any], context: ToolContext) -> list[Any]:
        context.progress(context.tool_call_id)
        return [context.session_id, context.run_id, context.tool_call_id, context.metadata["m"]]

    context = ToolContext(session_id="s", run_id="r", metadata={"m": 1}, report=seen.append)
    results = await dispatch_tool_calls(calls("t", "t"), [make(run)], context=context)
    assert [result.value for result in results] == [["s", "r", "c0", 1], ["s", "r", "c1", 1]]
    assert seen == ["c0", "c1"]


async def test_what_ends_the_program_leaves_a_batch_without_a_group() -> None:
    class Ends(BaseException):
        pass

    with pytest.raises(Ends):
        await dispatch_tool_call(CALL, [make(as_async(raising(Ends())))])
