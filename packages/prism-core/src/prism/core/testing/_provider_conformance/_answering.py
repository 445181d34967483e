"""Answers: what becomes of text, reasoning, calls and usage."""

from __future__ import annotations

from typing import Final

from prism.core._wire import TextBlock, ThinkingBlock, ToolCallBlock, Usage
from prism.core.testing._provider_conformance._harness import (
    ProviderStage,
    ScriptedAnswer,
    ScriptedCall,
    case,
    cases_of,
)
from prism.core.testing._provider_conformance._reading import hear, listen
from prism.core.testing._store_conformance._harness import expect, expect_equal

HELLO: Final = ScriptedAnswer(text=("Hel", "lo"))


def calling(*calls: ScriptedCall, text: tuple[str, ...] = ()) -> ScriptedAnswer:
    """An answer that ends in calls."""
    return ScriptedAnswer(text=text, calls=calls, stop="tool_use")


ADD: Final = ScriptedCall(id="call_add", name="add", arguments=('{"a": ', "1, ", '"b": 2}'))
TWICE: Final = ScriptedCall(id="call_twice", name="add", arguments=('{"a":3,"b":4}',))


@case()
async def an_answer_ends_with_one_terminal_event(stage: ProviderStage) -> None:
    heard = await hear(await stage.open(HELLO), stage.ask())
    expect(heard.error is None, f"The answer failed: {heard.error}.")
    expect(heard.done is not None, "The answer has no Done.")


@case()
async def a_stream_that_has_ended_stays_ended(stage: ProviderStage) -> None:
    events = listen(await stage.open(HELLO), stage.ask())
    async for _ in events:
        pass
    async for event in events:
        raise AssertionError(f"{event!r} came after the end.")


@case()
async def text_is_the_sum_of_its_pieces(stage: ProviderStage) -> None:
    pieces = ("One", " two,\n", "three ", "« 4 » ü 😀", "\\n{}")
    heard = await hear(await stage.open(ScriptedAnswer(text=pieces)), stage.ask())
    expect_equal(heard.text, "".join(pieces), "The text")
    expect_equal(heard.kinds, [TextBlock], "The blocks")


@case()
async def an_answer_without_content_is_an_answer(stage: ProviderStage) -> None:
    heard = await hear(await stage.open(ScriptedAnswer()), stage.ask())
    expect(heard.done is not None, f"The empty answer failed: {heard.error}.")
    expect_equal((heard.text, len(heard.calls)), ("", 0), "Its text and its calls")


@case()
async def the_reason_to_stop_is_told(stage: ProviderStage) -> None:
    heard = await hear(await stage.open(HELLO), stage.ask())
    expect(heard.done is not None, f"The answer failed: {heard.error}.")
    expect(
        heard.done is not None and heard.done.stop_reason in {None, "stop"},
        f"An answer that is over has the stop reason {heard.done}.",
    )
    cut = ScriptedAnswer(text=("Hel",), stop="length")
    heard = await hear(await stage.open(cut), stage.ask())
    expect(
        heard.done is not None and heard.done.stop_reason == "length",
        f"An answer that ran out of tokens has {heard.done}; wanted is the stop reason length.",
    )


@case("thinking")
async def reasoning_stands_apart_from_text(stage: ProviderStage) -> None:
    answer = ScriptedAnswer(thinking=("Let me", " see"), text=("Yes", "."))
    heard = await hear(await stage.open(answer), stage.ask())
    expect_equal(heard.thinking, "Let me see", "The reasoning")
    expect_equal(heard.text, "Yes.", "The text")
    expect_equal(heard.kinds, [ThinkingBlock, TextBlock], "The blocks")


@case("calls")
async def arguments_are_put_together_and_parsed(stage: ProviderStage) -> None:
    heard = await hear(await stage.open(calling(ADD)), stage.ask())
    (call,) = heard.calls
    expect_equal((call.name, call.arguments), ("add", {"a": 1, "b": 2}), "The call")
    expect_equal(call.raw_arguments, None, "The raw arguments")
    expect(
        heard.done is not None and heard.done.stop_reason in {None, "tool_use"},
        f"An answer with calls ends with {heard.done}; wanted is the stop reason tool_use.",
    )


@case("calls")
async def text_before_calls_is_kept(stage: ProviderStage) -> None:
    heard = await hear(await stage.open(calling(ADD, text=("Let me", " add."))), stage.ask())
    expect_equal(heard.text, "Let me add.", "The text")
    expect_equal(heard.kinds, [TextBlock, ToolCallBlock], "The blocks")


@case("calls")
async def several_calls_keep_their_order_and_have_ids_of_their_own(stage: ProviderStage) -> None:
    third = ScriptedCall(id="call_third", name="look", arguments=('{"at":"x"}',))
    heard = await hear(await stage.open(calling(ADD, TWICE, third)), stage.ask())
    found = [(call.name, call.arguments) for call in heard.calls]
    wanted = [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}), ("look", {"at": "x"})]
    expect_equal(found, wanted, "The calls")
    ids = [call.id for call in heard.calls]
    expect(all(ids) and len(set(ids)) == 3, f"The calls have the ids {ids}.")


@case("calls", "call_ids")
async def a_call_keeps_the_id_that_the_vendor_gave(stage: ProviderStage) -> None:
    heard = await hear(await stage.open(calling(ADD, TWICE)), stage.ask())
    expect_equal([call.id for call in heard.calls], ["call_add", "call_twice"], "The ids")


@case("calls")
async def a_call_without_arguments_has_none(stage: ProviderStage) -> None:
    bare = ScriptedCall(id="call_bare", name="look", arguments=("{}",))
    heard = await hear(await stage.open(calling(bare)), stage.ask())
    (call,) = heard.calls
    expect(call.arguments == {}, f"It has the arguments {call.arguments}.")
    expect_equal(call.raw_arguments, None, "The raw arguments")


@case("calls", "raw_arguments")
async def broken_arguments_become_a_call_that_says_so(stage: ProviderStage) -> None:
    for text in ('{"a": 1, "b"', "[1, 2]", "not json"):
        broken = ScriptedCall(id="call_broken", name="add", arguments=(text,))
        heard = await hear(await stage.open(calling(broken)), stage.ask())
        expect(heard.done is not None, f"{text!r} failed the answer: {heard.error}.")
        (call,) = heard.calls
        expect(call.arguments == {}, f"{text!r} became the arguments {call.arguments}.")
        expect_equal(call.raw_arguments, text, "The raw arguments")


@case("calls")
async def arguments_may_hold_any_json(stage: ProviderStage) -> None:
    text = '{"deep":{"list":[1,2.5,null,true,""]},"text":"« ü » 😀 \\n \\u0000","n":-0.001}'
    call = ScriptedCall(id="call_any", name="look", arguments=(text[:9], text[9:40], text[40:]))
    heard = await hear(await stage.open(calling(call)), stage.ask())
    deep = {"list": [1, 2.5, None, True, ""]}
    wanted = {"deep": deep, "text": "« ü » 😀 \n \0", "n": -0.001}
    expect_equal(heard.calls[0].arguments, wanted, "The arguments")


@case("usage")
async def usage_is_told_and_cumulative(stage: ProviderStage) -> None:
    counted = Usage(input_tokens=11, output_tokens=7)
    answer = ScriptedAnswer(text=("One", " two", " three"), usage=counted)
    heard = await hear(await stage.open(answer), stage.ask())
    usage = heard.usage
    expect(usage is not None, "No usage was told.")
    if usage is not None:
        found = (usage.input_tokens, usage.output_tokens)
        expect_equal(found, (11, 7), "Input and output tokens")
        expect(
            usage.total_tokens in {None, 18},
            f"The total is {usage.total_tokens}; the parts add up to 18.",
        )


@case()
async def a_provider_remembers_nothing_of_an_answer(stage: ProviderStage) -> None:
    second = ScriptedAnswer(text=("Two",))
    provider = await stage.open(HELLO, second, HELLO)
    texts = [(await hear(provider, stage.ask())).text for _ in range(3)]
    expect_equal(texts, ["Hello", "Two", "Hello"], "The answers")


CASES: Final = cases_of(globals())
