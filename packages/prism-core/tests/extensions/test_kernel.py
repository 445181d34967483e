from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import anyio
import pytest

from prism.core import ExtensionError, MiddlewareRegistry, RegistryError, Tool, UsageError
from prism.core.extensions import (
    MAX_EXTENSIONS,
    ContributionRegistries,
    ExtensionApi,
    ExtensionEventBus,
    ExtensionKernel,
    SimpleExtension,
    extension,
)
from prism.core.stores import MemorySessionStore


def tool(name: str) -> Tool:
    return Tool(name=name, execute=lambda arguments, context: name)


def offering(
    name: str, *tools: str, requires: Sequence[str] = (), log: list[str] | None = None
) -> SimpleExtension:
    def setup(api: ExtensionApi) -> None:
        for each in tools:
            api.tools.register(each, tool(each))
        if log is not None:
            log.append(name)

    return SimpleExtension(name, setup, requires=requires)


def everything(name: str) -> SimpleExtension:
    def setup(api: ExtensionApi) -> None:
        api.tools.register(f"{name}_tool", tool("t"))
        api.store_factories.register(f"{name}_store", MemorySessionStore)
        api.use("tool_call", lambda payload: None)
        api.use("tool_call", lambda payload: None, name="named", order=-1)
        api.events.on(f"{name}/topic", print)

    return SimpleExtension(name, setup)


def contents(kernel: ExtensionKernel) -> Any:
    """All that a kernel holds."""
    registries = vars(kernel.registries).values()
    return (
        [registry.items() for registry in registries],
        kernel.middleware.list(),
        kernel.events.topics,
        kernel.loaded,
    )


async def raising(
    extensions: Iterable[Any], kernel: ExtensionKernel | None = None
) -> ExtensionError:
    """The error of a load, which must leave the kernel as it was."""
    kernel = ExtensionKernel() if kernel is None else kernel
    before = contents(kernel)
    with pytest.raises(ExtensionError) as caught:
        await kernel.load(extensions)
    assert contents(kernel) == before
    return caught.value


# Loading


async def test_what_a_setup_registers_is_in_the_registries_with_its_source() -> None:
    kernel = ExtensionKernel()
    await kernel.load([everything("pack")])
    assert kernel.registries.tools.names == ("pack_tool",)
    assert kernel.registries.tools.source("pack_tool") == "pack"
    assert [info.name for info in kernel.middleware.list("tool_call")] == [
        "named",
        "pack:everything.<locals>.setup.<locals>.<lambda>",
    ]
    assert kernel.events.topics == ("pack/topic",)
    assert kernel.loaded == ("pack",)


async def test_a_setup_may_be_async() -> None:
    @extension("slow")
    async def slow(api: ExtensionApi) -> None:
        await anyio.lowlevel.checkpoint()
        api.tools.register("t", tool("t"))

    kernel = ExtensionKernel()
    await kernel.load([slow])
    assert "t" in kernel.registries.tools


async def test_an_extension_is_any_object_with_a_name_requires_and_setup() -> None:
    class Own:
        name = "own"
        requires = ("base",)

        def setup(self, api: ExtensionApi) -> None:
            api.tools.register("t", tool("t"))

    kernel = ExtensionKernel()
    await kernel.load([Own(), offering("base")])
    assert kernel.loaded == ("base", "own")


async def test_a_kernel_uses_what_it_is_given() -> None:
    registries, middleware, events = (
        ContributionRegistries(),
        MiddlewareRegistry(),
        ExtensionEventBus(),
    )
    kernel = ExtensionKernel(registries=registries, middleware=middleware, events=events)
    await kernel.load([everything("pack")])
    assert "pack_tool" in registries.tools
    assert middleware.has("tool_call")
    assert events.topics == ("pack/topic",)


async def test_setups_run_in_the_order_given_but_behind_what_they_require() -> None:
    log: list[str] = []
    kernel = ExtensionKernel()
    await kernel.load(
        [
            offering("c", requires=["b"], log=log),
            offering("z", log=log),
            offering("b", requires=["a"], log=log),
            offering("a", log=log),
            offering("y", log=log),
        ]
    )
    assert log == ["z", "a", "b", "c", "y"]
    assert kernel.loaded == tuple(log)


async def test_a_later_load_builds_on_an_earlier_one() -> None:
    kernel = ExtensionKernel()
    await kernel.load([offering("base", "t")])
    found: list[Tool] = []

    @extension("user", requires=["base"])
    def user(api: ExtensionApi) -> None:
        found.append(api.tools.resolve("t"))

    await kernel.load([user])
    assert found == [kernel.registries.tools.resolve("t")]


async def test_a_setup_sees_what_another_one_of_its_load_contributes() -> None:
    found: list[object] = []

    @extension("user", requires=["base"])
    def user(api: ExtensionApi) -> None:
        found.extend([api.tools.resolve("t").name, api.tools.get("u"), api.tools.names])
        assert "t" in api.tools
        with pytest.raises(RegistryError, match=r"'u'\. Known: h, t"):
            api.tools.resolve("u")

    kernel = ExtensionKernel()
    kernel.registries.tools.register("h", tool("h"))
    await kernel.load([offering("base", "t"), user])
    assert found == ["t", None, ("h", "t")]


async def test_others_see_nothing_of_a_load_before_it_is_complete() -> None:
    kernel = ExtensionKernel()
    before = contents(kernel)
    seen: list[Any] = []

    @extension("last")
    async def last(api: ExtensionApi) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(contents(kernel))

    await kernel.load([everything("first"), last])
    assert seen == [before]
    assert contents(kernel) != before


# What is refused before any setup runs


def refused() -> dict[str, tuple[list[Any], str]]:
    class NoInstance:
        name = "x"
        requires = ()

        def setup(self, api: Any) -> None:
            raise AssertionError

    bad_requires = offering("x")
    bad_requires.requires = "base"
    return {
        "twice": ([offering("a"), offering("a")], "duplicate_name"),
        "loaded": ([offering("host")], "duplicate_name"),
        "missing": ([offering("a", requires=["b", "host"])], "missing_requirement"),
        "itself": ([offering("a", requires=["a"])], "requirement_cycle"),
        "cycle": (
            [
                offering("a", requires=["b"]),
                offering("b", requires=["c"]),
                offering("c", requires=["a"]),
            ],
            "requirement_cycle",
        ),
        "name": ([offering("a b")], "invalid_extension"),
        "class": ([NoInstance], "invalid_extension"),
        "none": ([object()], "invalid_extension"),
        "requires": ([bad_requires], "invalid_extension"),
    }


@pytest.mark.parametrize("case", refused())
async def test_a_wrong_set_of_extensions_is_refused_before_any_setup_runs(case: str) -> None:
    log: list[str] = []
    extensions, code = refused()[case]
    kernel = ExtensionKernel()
    await kernel.load([offering("host")])
    error = await raising([offering("good", log=log), *extensions], kernel)
    assert error.code == code
    assert log == []


async def test_the_errors_say_what_is_missing_and_where_the_cycle_is() -> None:
    missing = await raising([offering("a", requires=["b", "c"])])
    assert "'a' requires b, c" in missing.message
    assert missing.details == {"extension": "a", "missing": ["b", "c"]}
    requires = {"a": "b", "b": "c", "c": "a", "d": "a"}
    cycle = await raising([offering(name, requires=[needs]) for name, needs in requires.items()])
    assert cycle.details is not None
    way = cycle.details["cycle"]
    assert " → ".join(way) in cycle.message
    assert [requires[name] for name in way[:-1]] == way[1:]
    assert {*way} == {"a", "b", "c"}


async def test_a_kernel_holds_no_more_extensions_than_its_limit() -> None:
    kernel = ExtensionKernel()
    await kernel.load([offering(f"e{number}") for number in range(MAX_EXTENSIONS)])
    assert len(kernel.loaded) == MAX_EXTENSIONS
    error = await raising([offering("more")], kernel)
    assert error.code == "too_many_extensions"


def test_one_string_is_no_list_of_requirements() -> None:
    with pytest.raises(UsageError, match=r"\['base'\]"):
        SimpleExtension("a", print, requires="base")


# What is refused later changes nothing


async def test_a_failing_setup_takes_the_whole_load_back() -> None:
    @extension("bad")
    def bad(api: ExtensionApi) -> None:
        api.tools.register("bad", tool("bad"))
        raise ValueError("no luck")

    kernel = ExtensionKernel()
    await kernel.load([everything("there")])
    error = await raising([everything("good"), bad], kernel)
    assert error.code == "extension_failed"
    assert "'bad' could not be set up: no luck" in error.message
    assert isinstance(error.__cause__, ValueError)
    await kernel.load([everything("good")])


async def test_a_name_that_two_extensions_want_is_refused_naming_both() -> None:
    error = await raising([offering("one", "t"), offering("two", "t")])
    assert "one from one and one from two" in error.message
    assert error.details == {"extension": "two", "cause": "duplicate_name"}
    kernel = ExtensionKernel()
    kernel.registries.tools.register("t", tool("t"))
    error = await raising([offering("two", "t")], kernel)
    assert "one from host and one from two" in error.message


async def test_a_name_that_the_host_takes_meanwhile_takes_the_load_back() -> None:
    kernel = ExtensionKernel()

    @extension("slow")
    async def slow(api: ExtensionApi) -> None:
        await anyio.lowlevel.checkpoint()
        kernel.registries.tools.register("t", tool("t"))

    with pytest.raises(ExtensionError, match="one from host and one from first"):
        await kernel.load([everything("good"), offering("first", "t"), slow])
    assert kernel.loaded == ()
    assert kernel.registries.tools.names == ("t",)
    assert kernel.middleware.list() == ()


def next_twice(payload: object, next_: object, again: object) -> None:
    raise AssertionError


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "name": lambda api: api.tools.register("a b", tool("t")),
    "value": lambda api: api.tools.register("t", print),
    "hook": lambda api: api.use("no_such_hook", print),
    "middleware": lambda api: api.use("tool_call", next_twice),
    "topic": lambda api: api.events.on("a b", print),
    "handler": lambda api: api.events.on("a", None),
    "attribute": lambda api: api.registries,
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_in_a_setup_is_found_there(mistake: str) -> None:
    def setup(api: ExtensionApi) -> None:
        MISTAKES[mistake](api)

    error = await raising([SimpleExtension("wrong", setup)])
    assert error.code == "extension_failed"
    assert "'wrong' could not be set up" in error.message


async def test_a_setup_that_returns_something_is_refused() -> None:
    error = await raising([SimpleExtension("wrong", lambda api: print)])  # type: ignore[arg-type, return-value]
    assert "returned a builtin_function_or_method" in error.message


async def test_cancelling_a_load_takes_it_back() -> None:
    @extension("endless")
    async def endless(api: ExtensionApi) -> None:
        api.tools.register("t", tool("t"))
        scope.cancel()
        await anyio.sleep_forever()

    kernel = ExtensionKernel()
    before = contents(kernel)
    with anyio.CancelScope() as scope:
        await kernel.load([everything("good"), endless])
    assert scope.cancelled_caught
    assert contents(kernel) == before
    await kernel.load([everything("good")])


async def test_a_kernel_does_one_thing_at_a_time() -> None:
    kernel = ExtensionKernel()

    @extension("greedy")
    async def greedy(api: ExtensionApi) -> None:
        await kernel.load([offering("more")])

    error = await raising([greedy], kernel)
    assert error.details == {"extension": "greedy", "cause": "kernel_busy"}


# Loading starts nothing


async def test_a_setup_that_starts_a_thread_is_refused() -> None:
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def setup(api: ExtensionApi) -> None:
        thread = threading.Thread(target=stop.wait, name="poller", daemon=True)
        thread.start()
        threads.append(thread)

    try:
        error = await raising([SimpleExtension("busy", setup)])
    finally:
        stop.set()
        threads[0].join()
    assert error.code == "setup_left_running"
    assert "left running: thread 'poller'" in error.message


async def test_a_setup_that_leaves_a_task_is_refused() -> None:
    async with anyio.create_task_group() as group:

        async def setup(api: ExtensionApi) -> None:
            group.start_soon(anyio.sleep_forever, name="worker")
            await anyio.lowlevel.checkpoint()

        def sync_setup(api: ExtensionApi) -> None:
            group.start_soon(anyio.sleep_forever, name="worker")

        for each in (setup, sync_setup):
            error = await raising([SimpleExtension("busy", each)])
            assert error.code == "setup_left_running"
            assert "task 'worker'" in error.message
        group.cancel_scope.cancel()


async def test_a_setup_may_have_tasks_that_end_with_it() -> None:
    @extension("parallel")
    async def parallel(api: ExtensionApi) -> None:
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(register, api, f"t{number}")

    async def register(api: ExtensionApi, name: str) -> None:
        await anyio.lowlevel.checkpoint()
        api.tools.register(name, tool(name))

    kernel = ExtensionKernel()
    await kernel.load([parallel])
    assert len(kernel.registries.tools) == 3


async def test_what_others_start_while_a_setup_waits_is_not_laid_to_it() -> None:
    waiting, started = anyio.Event(), anyio.Event()

    @extension("patient")
    async def patient(api: ExtensionApi) -> None:
        waiting.set()
        await started.wait()

    async def other() -> None:
        await waiting.wait()
        group.start_soon(anyio.sleep_forever)
        await anyio.to_thread.run_sync(lambda: None)
        started.set()

    kernel = ExtensionKernel()
    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await kernel.load([patient])
        group.cancel_scope.cancel()
    assert kernel.loaded == ("patient",)


async def test_an_exception_at_an_await_reaches_the_setup_that_waits() -> None:
    caught: list[str] = []

    @extension("careful")
    async def careful(api: ExtensionApi) -> None:
        with anyio.move_on_after(0) as scope:
            try:
                await anyio.sleep_forever()
            finally:
                caught.append("cancelled")
        assert scope.cancelled_caught
        api.tools.register("t", tool("t"))

    kernel = ExtensionKernel()
    await kernel.load([careful])
    assert caught == ["cancelled"]
    assert "t" in kernel.registries.tools


async def test_a_setup_cannot_emit() -> None:
    heard: list[object] = []

    @extension("loud")
    async def loud(api: ExtensionApi) -> None:
        await api.events.emit("topic", 1)

    kernel = ExtensionKernel()
    kernel.events.on("topic", heard.append)
    error = await raising([loud], kernel)
    assert error.details == {"extension": "loud", "cause": "not_loaded"}
    assert heard == []


async def test_nothing_is_registered_after_the_setup() -> None:
    kept: list[ExtensionApi] = []
    kernel = ExtensionKernel()
    await kernel.load([SimpleExtension("sly", kept.append)])
    (api,) = kept
    before = contents(kernel)
    for attempt in (
        lambda: api.tools.register("t", tool("t")),
        lambda: api.use("tool_call", print),
        lambda: api.events.on("topic", print),
    ):
        with pytest.raises(ExtensionError) as caught:
            attempt()
        assert caught.value.code == "setup_over"
    assert contents(kernel) == before


async def test_a_setup_can_take_back_what_it_added() -> None:
    @extension("wavering")
    def wavering(api: ExtensionApi) -> None:
        for take_back in (api.use("tool_call", print), api.events.on("topic", print)):
            take_back()
            take_back()

    kernel = ExtensionKernel()
    await kernel.load([wavering])
    assert not kernel.middleware.has("tool_call")
    assert kernel.events.topics == ()


async def test_what_was_added_can_be_taken_back_while_it_is_loaded() -> None:
    take_back: list[Callable[[], None]] = []

    @extension("wavering")
    def wavering(api: ExtensionApi) -> None:
        take_back.append(api.use("tool_call", print))

    kernel = ExtensionKernel()
    await kernel.load([wavering])
    assert kernel.middleware.has("tool_call")
    take_back[0]()
    assert not kernel.middleware.has("tool_call")
    await kernel.unload("wavering")


# Unloading


async def test_unloading_takes_out_exactly_what_the_extension_added() -> None:
    kernel = ExtensionKernel()
    kernel.registries.tools.register("mine", tool("mine"))
    await kernel.load([everything("a")])
    before = contents(kernel)
    await kernel.load([everything("b")])
    await kernel.unload("b")
    assert contents(kernel) == before
    await kernel.load([everything("b")])
    await kernel.unload("a")
    assert kernel.registries.tools.names == ("mine", "b_tool")


async def test_unloading_leaves_what_the_host_put_in_its_place() -> None:
    kernel = ExtensionKernel()
    await kernel.load([offering("pack", "t", "u")])
    kernel.registries.tools.unregister("t")
    kernel.registries.tools.unregister("u")
    kernel.registries.tools.register("t", tool("t"))
    await kernel.unload("pack")
    assert kernel.registries.tools.names == ("t",)


async def test_an_extension_that_another_one_requires_is_not_unloaded() -> None:
    kernel = ExtensionKernel()
    await kernel.load([offering("base", "t"), offering("user", requires=["base"])])
    with pytest.raises(ExtensionError, match="required by user") as caught:
        await kernel.unload("base")
    assert caught.value.code == "still_required"
    assert kernel.loaded == ("base", "user")
    await kernel.unload("user")
    await kernel.unload("base")
    assert kernel.loaded == ()


async def test_what_is_not_loaded_is_not_unloaded() -> None:
    kernel = ExtensionKernel()
    await kernel.load([offering("a"), offering("b")])
    with pytest.raises(ExtensionError, match=r"'c' is loaded\. Known: a, b\.") as caught:
        await kernel.unload("c")
    assert caught.value.code == "not_loaded"


async def test_an_unloaded_extension_emits_no_more() -> None:
    emit: list[Callable[..., Awaitable[Any]]] = []

    @extension("speaker")
    def speaker(api: ExtensionApi) -> None:
        emit.append(api.events.emit)

    kernel = ExtensionKernel()
    await kernel.load([speaker])
    await emit[0]("topic")
    await kernel.unload("speaker")
    with pytest.raises(ExtensionError) as caught:
        await emit[0]("topic")
    assert caught.value.code == "not_loaded"
