"""The scripted provider."""

from __future__ import annotations

import anyio
import pytest

from prism.core._errors import UsageError
from prism.core.providers import (
    Done,
    ErrorInfo,
    Failed,
    MockProvider,
    Provider,
    ProviderEvent,
    ProviderRequest,
    TextDelta,
    delay,
    done,
    error,
    text_delta,
)

from .wire import ask, collect, user


async def test_the_default_script_says_hello_in_one_delta_each_time() -> None:
    provider = MockProvider()
    assert isinstance(provider, Provider)
    for _ in range(3):
        assert await collect(provider) == [TextDelta(text="Hello"), Done()]


async def test_a_flat_script_answers_every_request_alike() -> None:
    provider = MockProvider([text_delta("a"), done()])
    assert await collect(provider) == await collect(provider) == [TextDelta(text="a"), Done()]


async def test_a_script_of_turns_is_played_once_and_then_says_that_it_is_over() -> None:
    provider = MockProvider([[text_delta("one"), done()], [text_delta("two"), done()]])
    assert (await collect(provider))[0] == TextDelta(text="one")
    assert (await collect(provider))[0] == TextDelta(text="two")
    (event,) = await collect(provider)
    assert isinstance(event, Failed)
    assert event.error.code == "script_exhausted"
    assert event.error.details == {"turns": 2}


async def test_a_function_sees_the_request_it_answers() -> None:
    def script(request: ProviderRequest) -> list[ProviderEvent]:
        return [text_delta(request.messages[-1].text.upper()), done()]

    assert (await collect(MockProvider(script), ask(user("hey"))))[0] == TextDelta(text="HEY")


async def test_requests_are_recorded_when_they_are_made() -> None:
    provider = MockProvider(id="scripted")
    first, second = ask(user("1")), ask(user("2"))
    provider.generate(first)
    await collect(provider, second)
    assert provider.requests == [first, second]
    assert repr(provider) == "MockProvider(id='scripted', requests=2)"


async def test_errors_come_as_data_as_events_or_are_raised() -> None:
    failure = ErrorInfo(message="busy", code="temporarily_unavailable")
    broken = ValueError("a bug")
    provider = MockProvider([[failure], [error(failure)], [text_delta("a"), broken]])
    assert await collect(provider) == [Failed(error=failure)]
    assert await collect(provider) == [Failed(error=failure)]
    with pytest.raises(ValueError, match="a bug"):
        await collect(provider)


async def test_nothing_is_added_to_a_script_without_an_end() -> None:
    assert await collect(MockProvider([text_delta("a")])) == [TextDelta(text="a")]
    assert await collect(MockProvider([])) == []


def test_a_script_without_delays_never_suspends() -> None:
    events = MockProvider([text_delta("a"), text_delta("b"), done()]).generate(ask())
    for _ in range(3):
        with pytest.raises(StopIteration):  # a coroutine that suspends would yield instead
            events.__anext__().send(None)


async def test_a_delay_suspends_and_can_be_cancelled() -> None:
    provider = MockProvider([text_delta("a"), delay(3_600_000), done()])
    seen: list[ProviderEvent] = []
    with anyio.CancelScope() as scope:
        async for event in provider.generate(ask()):
            seen.append(event)
            scope.cancel()
    assert scope.cancelled_caught
    assert seen == [TextDelta(text="a")]
    assert (await collect(MockProvider([delay(0), done()]))) == [Done()]


@pytest.mark.parametrize("ms", [-1, float("inf"), 3_600_001, True, "1"])
def test_a_delay_is_bounded(ms: float) -> None:
    with pytest.raises(UsageError):
        delay(ms)


def test_events_and_turns_do_not_mix() -> None:
    with pytest.raises(UsageError, match="list of events or a list of lists"):
        MockProvider([text_delta("a"), [done()]])  # type: ignore[list-item]
