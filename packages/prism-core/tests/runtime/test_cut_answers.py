"""Answers that reach a length limit: a call that was not whole is no call."""

from __future__ import annotations

import pytest

from prism.core import MessageFinished, Session, ToolCallBlock, ToolExecutionStarted, Warned, tool
from prism.core.providers import (
    block_finished,
    done,
    notice,
    text_delta,
    tool_call_delta,
)

from .harness import Stage, of, said

CUTS = ["length", "context_limit"]


@tool
async def dig(depth: int = 1) -> str:
    """Dig."""
    return f"{depth} deep"


def warnings(stage: Stage, session: Session) -> list[str]:
    return [event.code for event in of(Warned, stage.events(session))]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("text", ['{"depth": 1', "", '{"depth": 10}, '])
async def test_a_call_that_was_cut_is_left_out_and_does_not_run(
    stage: Stage, cut: str, text: str
) -> None:
    session = stage.session(
        [
            text_delta("Digging."),
            tool_call_delta(index=1, id="c1", name="dig", arguments_text=text),
            done(stop_reason=cut),
        ],
        tools=[dig],
    )
    result = await session.run("Dig")
    assert (result.status, result.stop_reason) == ("completed", cut)
    assert said(await session.entries()) == ["user: Dig", "assistant: Digging."]
    assert not of(ToolExecutionStarted, stage.events(session))
    assert warnings(stage, session) == ["tool_call_dropped"]


@pytest.mark.parametrize("cut", CUTS)
async def test_whole_calls_of_a_cut_answer_run(stage: Stage, cut: str) -> None:
    session = stage.session(
        [
            [
                tool_call_delta(index=0, id="c1", name="dig", arguments_text='{"depth": 2}'),
                tool_call_delta(index=1, id="c2", name="dig", arguments_text='{"dep'),
                tool_call_delta(index=2, id="c3", name="dig"),
                block_finished(index=2, block=ToolCallBlock(id="c3", name="dig", arguments={})),
                done(stop_reason=cut),
            ],
            [text_delta("Done."), done()],
        ],
        tools=[dig],
    )
    await session.run("Dig")
    assert said(await session.entries()) == [
        "user: Dig",
        "assistant: [c1] [c3]",
        "tool: c1 2 deep",
        "tool: c3 1 deep",
        "assistant: Done.",
    ]


async def test_an_answer_that_was_nothing_but_a_cut_call_is_no_message(stage: Stage) -> None:
    session = stage.session(
        [
            tool_call_delta(index=0, id="c1", name="dig", arguments_text="{"),
            done(stop_reason="length"),
        ],
        tools=[dig],
    )
    result = await session.run("Dig")
    assert result.status == "completed"
    assert said(await session.entries()) == ["user: Dig"]
    (finished,) = of(MessageFinished, stage.events(session))
    assert finished.partial
    assert finished.entry_id is None


async def test_what_an_adapter_told_already_is_not_told_twice(stage: Stage) -> None:
    session = stage.session(
        [
            text_delta("x"),
            tool_call_delta(index=1, id="c1", name="dig", arguments_text="{"),
            notice("tool_call_dropped", "The answer reached its length limit."),
            done(stop_reason="length"),
        ],
        tools=[dig],
    )
    await session.run("Dig")
    assert warnings(stage, session) == ["tool_call_dropped"]


async def test_a_call_that_does_not_parse_in_a_whole_answer_is_kept_for_the_model_to_mend(
    stage: Stage,
) -> None:
    session = stage.session(
        [
            [tool_call_delta(index=0, id="c1", name="dig", arguments_text='{"dep'), done()],
            [text_delta("Sorry."), done()],
        ],
        tools=[dig],
    )
    await session.run("Dig")
    assert said(await session.entries())[2] == "tool: c1 invalid_arguments"
