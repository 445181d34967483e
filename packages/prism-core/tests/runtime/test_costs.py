"""What turns cost, and what ends a run that costs too much."""

from __future__ import annotations

from prism.core import (
    AgentFinished,
    MessageEntry,
    MessageFinished,
    ModelConfig,
    ModelCost,
    TurnFinished,
    Usage,
    UsageLimits,
    UsageReported,
    Warned,
    tool,
)
from prism.core.providers import (
    ProviderEvent,
    ProviderRequest,
    done,
    error,
    text_delta,
    tool_call,
    usage,
)

from .harness import Stage, of, provider_of

PRICED = ModelConfig(
    provider="mock", model="m", cost=ModelCost(input=2, output=10, unit=1_000, currency="EUR")
)
TURN = Usage(input_tokens=1_000, output_tokens=100)
"""Costs 3 of them."""


@tool
async def dig() -> str:
    """Dig."""
    return "sand"


async def test_a_turns_cost_is_in_its_message_its_events_the_result_and_the_state(
    stage: Stage,
) -> None:
    session = stage.session(
        [
            [tool_call(id="c1", name="dig", arguments={}), done(usage=TURN)],
            [usage(TURN), text_delta("Sand."), done()],
        ],
        model=PRICED,
        tools=[dig],
    )
    result = await session.run("Dig")

    events = stage.events(session)
    costs = [
        event.message.usage and event.message.usage.cost for event in of(MessageFinished, events)
    ]
    assert costs == [3, 3]
    stored = [
        entry.message.usage
        for entry in of(MessageEntry, await session.entries())
        if entry.message.usage is not None
    ]
    assert [(each.cost, each.currency) for each in stored] == [(3, "EUR"), (3, "EUR")]
    for kind in (TurnFinished, UsageReported):
        assert [event.usage and event.usage.cost for event in of(kind, events)] == [3, 3]
    (finished,) = of(AgentFinished, events)
    assert finished.usage == result.usage
    assert result.usage is not None
    assert (result.usage.cost, result.usage.currency) == (6, "EUR")
    state = await session.state()
    assert state.usage == result.usage


async def test_a_vendors_own_cost_is_kept(stage: Stage) -> None:
    own = Usage(input_tokens=1_000, cost=0.25, currency="USD")
    session = stage.session([text_delta("x"), done(usage=own)], model=PRICED)
    result = await session.run("Hi")
    assert result.usage == own


async def test_the_prices_are_those_of_the_model_that_is_asked(stage: Stage) -> None:
    session = stage.session([text_delta("x"), done(usage=TURN)], model=PRICED)
    await session.run("Hi")
    cheap = ModelConfig(provider="mock", model="cheap", cost=ModelCost(input=1, unit=1_000))
    result = await session.run("Hi", model=cheap)
    assert result.usage is not None
    assert (result.usage.cost, result.usage.currency) == (1, "USD")


async def test_max_cost_ends_a_run(stage: Stage) -> None:
    def script(request: ProviderRequest) -> list[ProviderEvent]:
        call_id = f"c{len(request.messages)}"
        return [tool_call(id=call_id, name="dig", arguments={}), done(usage=TURN)]

    session = stage.session(
        script,
        model=PRICED,
        tools=[dig],
        limits=UsageLimits(max_cost=5),
    )
    result = await session.run("Dig")
    assert result.status == "limit_reached"
    assert result.usage is not None
    assert result.usage.cost == 6
    assert len(provider_of(session).requests) == 2
    (warning,) = of(Warned, stage.events(session))
    assert warning.code == "limit_reached"


async def test_what_a_failed_attempt_used_is_paid_too(stage: Stage) -> None:
    session = stage.session(
        [
            [usage(TURN), error("busy", code="overloaded")],
            [text_delta("x"), done(usage=TURN)],
        ],
        model=PRICED,
    )
    result = await session.run("Hi")
    assert result.usage is not None
    assert result.usage.cost == 6


async def test_a_max_cost_that_cannot_hold_is_told_once_a_run(stage: Stage) -> None:
    session = stage.session(
        [
            [tool_call(id="c1", name="dig", arguments={}), done(usage=TURN)],
            [text_delta("Sand."), done(usage=TURN)],
        ],
        tools=[dig],
        limits=UsageLimits(max_cost=5),
    )
    result = await session.run("Dig")
    assert result.status == "completed"
    (warning,) = of(Warned, stage.events(session))
    assert warning.code == "cost_unknown"
    assert "ModelConfig.cost" in warning.message
