"""Leaving early, being cancelled, and several answers at a time."""

from __future__ import annotations

from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from prism.core.testing._provider_conformance._answering import HELLO
from prism.core.testing._provider_conformance._harness import (
    PATIENCE_SECONDS,
    OpenedProvider,
    ProviderStage,
    ScriptedAnswer,
    case,
    cases_of,
    close_provider,
)
from prism.core.testing._provider_conformance._reading import Heard, close_stream, hear, listen
from prism.core.testing._store_conformance._harness import expect, expect_equal

STALLED: Final = ScriptedAnswer(text=("One", " two"), end="stall")
_STEPS: Final = 50


async def expect_released(opened: OpenedProvider, why: str) -> None:
    """The vendor's side must see that the answer was left.

    Raises:
        AssertionError: It does not, in `PATIENCE_SECONDS`.
    """
    if opened.released is None:
        return
    with anyio.move_on_after(PATIENCE_SECONDS):
        await opened.released()
        return
    raise AssertionError(f"The vendor's side still has an answer open, {why}.")


@case("stalls")
async def what_has_come_is_given_before_the_rest_comes(stage: ProviderStage) -> None:
    heard = Heard()
    events = listen(await stage.open(STALLED), stage.ask())
    with anyio.move_on_after(PATIENCE_SECONDS):
        async for event in events:
            heard.feed(event)
            if heard.text == "One two":
                break
    await close_stream(events)
    expect_equal(heard.text, "One two", "What was given while the vendor paused")


@case("stalls")
async def cancellation_goes_through_and_hangs_up(stage: ProviderStage) -> None:
    opened = await stage.open_both(STALLED, HELLO)
    heard = Heard()
    scope = anyio.CancelScope()
    with anyio.fail_after(PATIENCE_SECONDS), scope:
        async for event in listen(opened.provider, stage.ask()):
            heard.feed(event)
            scope.cancel()
    expect(scope.cancelled_caught, "The provider swallowed the cancellation.")
    expect(not heard.ended, f"A cancelled answer ended with {heard.error or heard.done}.")
    await expect_released(opened, "after a cancellation")
    expect_equal((await hear(opened.provider, stage.ask())).text, "Hello", "The next answer")


@case("stalls")
async def a_request_that_has_no_answer_yet_can_be_cancelled(stage: ProviderStage) -> None:
    opened = await stage.open_both(ScriptedAnswer(end="stall"), HELLO)

    async def read(scope: anyio.CancelScope) -> None:
        with scope:
            await hear(opened.provider, stage.ask())

    scope = anyio.CancelScope()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, scope)
            for _ in range(_STEPS):
                await checkpoint()
            scope.cancel()
    expect(scope.cancelled_caught, "The provider swallowed the cancellation.")
    await expect_released(opened, "after a cancellation")
    expect_equal((await hear(opened.provider, stage.ask())).text, "Hello", "The next answer")


@case("stalls")
async def an_answer_that_is_left_early_hangs_up(stage: ProviderStage) -> None:
    opened = await stage.open_both(STALLED, HELLO)
    with anyio.fail_after(PATIENCE_SECONDS):
        events = listen(opened.provider, stage.ask())
        async for _ in events:
            break
        await close_stream(events)
        await close_stream(events)
    await expect_released(opened, "after it was left early")
    expect_equal((await hear(opened.provider, stage.ask())).text, "Hello", "The next answer")


@case()
async def a_stream_that_was_never_read_can_be_closed(stage: ProviderStage) -> None:
    opened = await stage.open_both(HELLO)
    await close_stream(listen(opened.provider, stage.ask()))
    await expect_released(opened, "after a stream was closed unread")
    expect_equal((await hear(opened.provider, stage.ask())).text, "Hello", "The next answer")


@case()
async def several_answers_at_a_time_do_not_mix(stage: ProviderStage) -> None:
    provider = await stage.open(ScriptedAnswer(text=("One", " two", " three")))
    heard = [Heard() for _ in range(8)]

    async def read(one: Heard) -> None:
        events = listen(provider, stage.ask())
        try:
            async for event in events:
                one.feed(event)
                await checkpoint()
        finally:
            await close_stream(events)

    async with anyio.create_task_group() as tasks:
        for one in heard:
            tasks.start_soon(read, one)
    expect_equal([one.text for one in heard], ["One two three"] * 8, "The answers")
    expect(all(one.done is not None for one in heard), "An answer did not end well.")


@case("stalls")
async def leaving_one_answer_does_not_touch_another(stage: ProviderStage) -> None:
    provider = await stage.open(STALLED, HELLO)
    with anyio.fail_after(PATIENCE_SECONDS):
        left = listen(provider, stage.ask())
        async for _ in left:
            break
        other = Heard()
        async for event in listen(provider, stage.ask()):
            other.feed(event)
            await close_stream(left)
    expect_equal(other.text, "Hello", "The other answer")


@case("loops")
async def another_event_loop_can_use_it_too(stage: ProviderStage) -> None:
    provider = await stage.open(HELLO)
    texts = [(await hear(provider, stage.ask())).text]
    backend = "trio" if _on_trio() else "asyncio"

    async def there() -> str:
        heard = await hear(provider, stage.ask())
        await close_provider(provider)  # what it opened here, it must close here
        return heard.text

    texts.append(await anyio.to_thread.run_sync(lambda: anyio.run(there, backend=backend)))
    expect_equal(texts, ["Hello", "Hello"], "The answers")


@case()
async def a_provider_can_be_closed_more_than_once(stage: ProviderStage) -> None:
    provider = await stage.open(HELLO)
    await hear(provider, stage.ask())
    await close_provider(provider)
    await close_provider(provider)


def _on_trio() -> bool:
    return anyio.get_cancelled_exc_class().__module__.startswith("trio")


CASES: Final = cases_of(globals())
