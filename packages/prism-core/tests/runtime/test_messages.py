"""What a provider streams becomes deltas, and the same again as a message."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import anyio
import pytest
from hypothesis import given, settings, strategies as st

from prism.core import (
    ErrorInfo,
    ImageBlock,
    MessageDelta,
    MessageEntry,
    MessageFinished,
    NativeBlock,
    ProviderError,
    Replay,
    SecretRedactor,
    Session,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    Warned,
    tool,
)
from prism.core.providers import (
    block_finished,
    delay,
    done,
    error,
    notice,
    text_delta,
    thinking_delta,
    tool_call,
    tool_call_delta,
    usage,
)

from .harness import Stage, now, of, provider_of, results, said, ticks, types

REPLAY = Replay(api="openai-responses", kind="item", data="{}")


@tool
async def look(n: int = 0) -> int:
    """Look."""
    return n


async def blocks_of(session: Session) -> list[Any]:
    """The blocks of the first assistant message."""
    for entry in await session.entries():
        if isinstance(entry, MessageEntry) and entry.message.role == "assistant":
            return entry.message.content
    return []


def warnings(stage: Stage, session: Session) -> list[str]:
    return [event.code for event in of(Warned, stage.events(session))]


def deltas(stage: Stage, session: Session) -> list[tuple[int | None, str]]:
    return [
        (event.index, getattr(event.content, "text", "?"))
        for event in of(MessageDelta, stage.events(session))
    ]


async def test_text_without_an_index_belongs_to_the_open_block_else_to_a_new_one(
    stage: Stage,
) -> None:
    session = stage.session(
        [
            thinking_delta("h"),
            thinking_delta("m"),
            text_delta("a"),
            text_delta("b"),
            thinking_delta("x"),
            text_delta("c"),
            done(),
        ]
    )
    await session.run("Hi")
    assert await blocks_of(session) == [
        ThinkingBlock(text="hm"),
        TextBlock(text="ab"),
        ThinkingBlock(text="x"),
        TextBlock(text="c"),
    ]
    assert [index for index, _ in deltas(stage, session)] == [0, 0, 1, 1, 2, 3]


async def test_interleaved_indexes_keep_their_blocks(stage: Stage) -> None:
    session = stage.session(
        [
            text_delta("a1", index=10),
            thinking_delta("t1", index=20),
            text_delta("a2", index=10),
            text_delta("b1", index=30),
            thinking_delta("t2", index=20),
            text_delta("b2", index=30),
            text_delta("a3", index=10),
            done(),
        ]
    )
    await session.run("Hi")
    assert await blocks_of(session) == [
        TextBlock(text="a1a2a3"),
        ThinkingBlock(text="t1t2"),
        TextBlock(text="b1b2"),
    ]


async def test_empty_deltas_are_not_output(stage: Stage) -> None:
    session = stage.session([text_delta(""), thinking_delta(""), done()])
    await session.run("Hi")
    assert "message_started" not in types(stage.events(session))


async def test_halves_of_a_character_that_come_in_two_deltas_are_joined(stage: Stage) -> None:
    session = stage.session(
        [
            text_delta("a\ud83d"),
            text_delta("\ude00b"),
            thinking_delta("\ud83d"),
            text_delta("c\ud83d", index=9),
            done(),
        ]
    )
    await session.run("Hi")
    assert await blocks_of(session) == [
        TextBlock(text="a😀b"),
        ThinkingBlock(text="\ud83d"),
        TextBlock(text="c\ud83d"),
    ]


async def test_halves_in_the_arguments_of_a_call_are_joined(stage: Stage) -> None:
    session = stage.session(
        [
            [
                tool_call_delta(index=0, id="c1", name="look", arguments_text='{"n": "\ud83d'),
                tool_call_delta(index=0, arguments_text='\ude00"}'),
                done(),
            ],
            [done()],
        ],
        tools=[look],
    )
    await session.run("Hi")
    (call,) = await blocks_of(session)
    assert call.arguments == {"n": "😀"}
    joined = "".join(event.arguments_text for event in of(ToolCallDelta, stage.events(session)))
    assert joined == '{"n": "😀"}'


async def test_a_finished_block_brings_its_replay_state_and_the_rest_of_its_text(
    stage: Stage,
) -> None:
    session = stage.session(
        [
            thinking_delta("h", index=0),
            block_finished(index=0, block=ThinkingBlock(text="hm", signature="sig", replay=REPLAY)),
            text_delta("a\ud83d", index=1),
            block_finished(index=1, block=TextBlock(text="a😀!", replay=REPLAY)),
            block_finished(index=2, block=ThinkingBlock(text="", redacted=True, signature="s")),
            block_finished(index=3, block=TextBlock(text="whole")),
            done(),
        ]
    )
    await session.run("Hi")
    assert await blocks_of(session) == [
        ThinkingBlock(text="hm", signature="sig", replay=REPLAY),
        TextBlock(text="a😀!", replay=REPLAY),
        ThinkingBlock(text="", redacted=True, signature="s"),
        TextBlock(text="whole"),
    ]
    assert warnings(stage, session) == []


async def test_a_finished_block_that_differs_from_its_deltas_is_told(stage: Stage) -> None:
    session = stage.session(
        [
            text_delta("abc", index=0),
            block_finished(index=0, block=TextBlock(text="xyz", replay=REPLAY)),
            done(),
        ]
    )
    await session.run("Hi")
    assert await blocks_of(session) == [TextBlock(text="abc", replay=REPLAY)]
    assert warnings(stage, session) == ["malformed_output"]


async def test_an_empty_finished_block_is_nothing(stage: Stage) -> None:
    session = stage.session(
        [
            block_finished(index=0, block=TextBlock(text="")),
            block_finished(index=1, block=ThinkingBlock(text="")),
            done(),
        ]
    )
    await session.run("Hi")
    assert await blocks_of(session) == []
    assert "message_started" not in types(stage.events(session))


async def test_text_after_a_finished_block_begins_another_one(stage: Stage) -> None:
    session = stage.session(
        [
            text_delta("a"),
            block_finished(index=0, block=TextBlock(text="a", replay=REPLAY)),
            text_delta("b"),
            done(),
        ]
    )
    await session.run("Hi")
    assert await blocks_of(session) == [TextBlock(text="a", replay=REPLAY), TextBlock(text="b")]
    assert warnings(stage, session) == []


async def test_a_delta_after_its_blocks_end_is_dropped_with_a_warning(stage: Stage) -> None:
    session = stage.session(
        [
            [
                text_delta("a", index=0),
                block_finished(index=0, block=TextBlock(text="a")),
                text_delta("late", index=0),
                tool_call_delta(index=1, id="c1", name="look", arguments_text="{}"),
                block_finished(index=1, block=ToolCallBlock(id="c1", name="look", arguments={})),
                tool_call_delta(index=1, arguments_text="late"),
                block_finished(index=1, block=ToolCallBlock(id="c1", name="look", arguments={})),
                text_delta("b"),
                done(),
            ],
            [done()],
        ],
        tools=[look],
    )
    await session.run("Hi")
    assert [type(block).__name__ for block in await blocks_of(session)] == [
        "TextBlock",
        "ToolCallBlock",
        "TextBlock",
    ]
    assert warnings(stage, session) == ["late_delta"] * 3


@pytest.mark.parametrize("late", [text_delta("late"), done(), error("late"), usage(Usage())])
async def test_what_follows_the_terminal_event_is_dropped_with_a_warning(
    stage: Stage, late: Any
) -> None:
    session = stage.session([text_delta("a"), done(), late, text_delta("later")])
    result = await session.run("Hi")
    assert (result.status, result.text) == ("completed", "a")
    assert warnings(stage, session) == ["event_after_end"]


async def test_an_error_ends_the_stream_too(stage: Stage) -> None:
    session = stage.session(
        [
            [error("no", code="overloaded"), text_delta("late"), done()],
            [text_delta("a"), done()],
        ]
    )
    assert (await session.run("Hi")).text == "a"
    assert warnings(stage, session) == ["event_after_end"]


async def test_a_provider_that_does_not_end_its_stream_holds_nobody_up(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done(), delay(3_600_000)])
    start = now()
    assert (await session.run("Hi")).text == "a"
    assert now() - start < 1
    assert warnings(stage, session) == []


async def test_a_provider_that_fails_after_its_end_is_only_told_of(stage: Stage) -> None:
    session = stage.session([text_delta("a"), done(), ValueError("cleanup")])
    assert (await session.run("Hi")).text == "a"
    assert warnings(stage, session) == ["provider_failed_after_end"]


async def test_a_provider_that_fails_while_it_is_closed_is_only_told_of(stage: Stage) -> None:
    class Provider:
        id = "mock"

        async def generate(self, request: Any) -> Any:
            try:
                yield text_delta("a")
                yield done()
                yield done()
            finally:
                raise ValueError("cleanup")

    session = stage.session(Provider())
    assert (await session.run("Hi")).text == "a"
    assert warnings(stage, session) == ["event_after_end", "provider_close_failed"]


async def test_what_is_no_provider_event_is_dropped_with_a_warning(stage: Stage) -> None:
    class Provider:
        id = "mock"

        async def generate(self, request: Any) -> Any:
            yield {"text": "a"}
            yield text_delta("b")
            yield done()

    session = stage.session(Provider())
    assert (await session.run("Hi")).text == "b"
    assert warnings(stage, session) == ["unknown_provider_event"]


async def test_a_notice_becomes_a_warning(stage: Stage) -> None:
    session = stage.session([notice("clamped", "less thinking"), text_delta("a"), done()])
    await session.run("Hi")
    (event,) = of(Warned, stage.events(session))
    assert (event.code, event.message) == ("clamped", "less thinking")


async def test_the_pieces_of_a_call_become_the_call(stage: Stage) -> None:
    session = stage.session(
        [
            [
                tool_call_delta(index=3, id="c1", name="look"),
                tool_call_delta(index=4, id="c2", name="look", arguments_text='{"n"'),
                tool_call_delta(index=3, arguments_text='{"n": 1}'),
                tool_call_delta(index=4, arguments_text=": 2}"),
                tool_call_delta(index=5, name="look"),
                done(),
            ],
            [done()],
        ],
        tools=[look],
    )
    await session.run("Hi")
    calls = await blocks_of(session)
    assert [(call.id, call.arguments) for call in calls[:2]] == [("c1", {"n": 1}), ("c2", {"n": 2})]
    assert calls[2].id.startswith("call_")
    first = of(ToolCallDelta, stage.events(session))[0]
    assert (first.index, first.tool_call_id, first.name, first.arguments_text) == (
        0, "c1", "look", "",
    )  # fmt: skip
    assert [block.result for block in results(await session.entries()).values()] == [1, 2, 0]


@pytest.mark.parametrize("text", ['{"n": ', "[1]", "3", '"x"', "{'n': 1}", '{"n": NaN}'])
async def test_arguments_that_do_not_parse_are_kept_as_they_came_and_refused(
    stage: Stage, text: str
) -> None:
    session = stage.session(
        [
            [tool_call_delta(index=0, id="c1", name="look", arguments_text=text), done()],
            [text_delta("sorry"), done()],
        ],
        tools=[look],
    )
    await session.run("Hi")
    (call,) = await blocks_of(session)
    assert (call.arguments, call.raw_arguments) == ({}, text)
    block = results(await session.entries())["c1"]
    assert block.error is not None
    assert block.error.code == "invalid_arguments"


async def test_arguments_that_were_held_back_are_shown_when_the_call_is_complete(
    stage: Stage,
) -> None:
    session = stage.session(
        [
            [
                tool_call_delta(index=0, id="c1", name="look", arguments_text='{"n": "hun'),
                tool_call_delta(index=0, arguments_text="t\ud83d"),
                done(),
            ],
            [done()],
        ],
        tools=[look],
        redactor=SecretRedactor(["hunter2"]),
    )
    await session.run("Hi")
    joined = "".join(event.arguments_text for event in of(ToolCallDelta, stage.events(session)))
    assert joined == '{"n": "hunt\ud83d'
    (call,) = await blocks_of(session)
    assert call.raw_arguments == joined


@pytest.mark.parametrize("text", ["", " \n", "{}"])
async def test_no_arguments_are_an_empty_object(stage: Stage, text: str) -> None:
    session = stage.session(
        [[tool_call_delta(index=0, id="c1", name="look", arguments_text=text), done()], [done()]],
        tools=[look],
    )
    await session.run("Hi")
    (call,) = await blocks_of(session)
    assert (call.arguments, call.raw_arguments) == ({}, None)


async def test_a_vendors_call_id_is_kept_unless_it_is_empty_or_taken_on_the_branch(
    stage: Stage,
) -> None:
    session = stage.session(
        [
            [tool_call(id="x", name="look"), tool_call(id="x", name="look"), done()],
            [tool_call(id="x", name="look"), tool_call(id="", name="look"), done()],
            [text_delta("end"), done()],
        ],
        tools=[look],
    )
    await session.run("Hi")
    found = list(results(await session.entries()))
    assert found[0] == "x"
    assert len(set(found)) == 4
    assert all(key.startswith("call_") for key in found[1:])


async def test_a_call_given_whole_and_one_in_pieces_at_its_place_are_two(stage: Stage) -> None:
    session = stage.session(
        [
            [
                tool_call(id="c1", name="look", arguments={"n": 1}),
                tool_call_delta(index=0, id="c2", name="look", arguments_text='{"n": 2}'),
                done(),
            ],
            [done()],
        ],
        tools=[look],
    )
    await session.run("Hi")
    assert {key: block.result for key, block in results(await session.entries()).items()} == {
        "c1": 1,
        "c2": 2,
    }


async def test_other_blocks_come_whole(stage: Stage) -> None:
    image = ImageBlock(mime_type="image/png", data="AAAA")
    native = NativeBlock(api="anthropic-messages", kind="server_tool_use", data="{}")
    session = stage.session(
        [
            block_finished(index=0, block=image),
            text_delta("a"),
            block_finished(index=2, block=native),
            done(),
        ]
    )
    await session.run("Hi")
    assert await blocks_of(session) == [image, TextBlock(text="a"), native]
    given = [event.content for event in of(MessageDelta, stage.events(session))]
    assert image in given
    assert native in given


async def test_an_attempt_that_showed_only_a_call_is_output(stage: Stage) -> None:
    session = stage.session(
        [tool_call_delta(index=0, id="c1", name="look"), error("busy", code="overloaded")],
        tools=[look],
    )
    with pytest.raises(Exception, match="busy"):
        await session.run("Hi")
    assert len(provider_of(session).requests) == 1
    (finished,) = of(MessageFinished, stage.events(session))
    assert (finished.message.content, finished.partial, finished.entry_id) == ([], True, None)
    assert said(await session.entries()) == ["user: Hi"]


async def test_the_provider_is_closed_when_its_turn_is_cut_short(stage: Stage) -> None:
    closed: list[str] = []

    class Provider:
        id = "mock"

        async def generate(self, request: Any) -> Any:
            try:
                while True:
                    yield text_delta("a")
            finally:
                await anyio.sleep(1)
                closed.append("yes")

    session = stage.session(Provider())
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, "Hi")
        await ticks()
        group.cancel_scope.cancel()
    assert closed == ["yes"]


# Secrets

SECRET: Final = 's3cr3t"value'  # noqa: S105 - what is to be hidden


async def test_a_secret_that_was_split_over_deltas_is_in_no_event_and_not_stored(
    stage: Stage,
) -> None:
    for cut in range(1, len(SECRET)):
        session = stage.session(
            [
                [
                    thinking_delta("x " + SECRET[:cut]),
                    thinking_delta(SECRET[cut:] + " y"),
                    text_delta("key: " + SECRET[:cut], index=7),
                    text_delta(SECRET[cut:], index=7),
                    done(),
                ]
            ],
            id=f"s{cut}",
            secrets=[SECRET],
            redactor=SecretRedactor([SECRET]),
        )
        await session.run("Hi")
        assert await blocks_of(session) == [
            ThinkingBlock(text="x [REDACTED] y"),
            TextBlock(text="key: [REDACTED]"),
        ]


async def test_a_tool_receives_its_arguments_unredacted(stage: Stage) -> None:
    got: list[str] = []

    @tool
    async def use(key: str) -> str:
        """Use a key."""
        got.append(key)
        return f"used {key}"

    text = '{"key": "s3cr3t\\"value"}'
    session = stage.session(
        [
            [
                *(
                    tool_call_delta(index=0, id="c1", name="use", arguments_text=letter)
                    for letter in text
                ),
                tool_call(id="c2", name="use", arguments={"key": SECRET}),
                done(),
            ],
            [text_delta("end"), done()],
        ],
        secrets=[SECRET],
        redactor=SecretRedactor([SECRET]),
        tools=[use],
    )
    await session.run(f"Use {SECRET}")
    assert got == [SECRET, SECRET]
    assert said(await session.entries()) == [
        "user: Use [REDACTED]",
        "assistant: [c1] [c2]",
        "tool: c1 used [REDACTED]",
        "tool: c2 used [REDACTED]",
        "assistant: end",
    ]
    for call in await blocks_of(session):
        assert call.arguments == {"key": "[REDACTED]"}
    second = provider_of(session).requests[1]
    assert SECRET not in repr(second.messages)


async def test_secrets_of_the_run_are_added_to_the_agents(stage: Stage) -> None:
    session = stage.session(
        [text_delta("one two"), error(ErrorInfo(message="one two", code="auth"))],
        secrets=["one", "two"],
        redactor=SecretRedactor(["one"]),
    )
    with pytest.raises(Exception, match=r"^\[REDACTED\] \[REDACTED\]$"):
        await session.run("one two", redactor=SecretRedactor(["two"]))
    assert said(await session.entries())[0] == "user: [REDACTED] [REDACTED]"


async def test_signatures_and_replay_state_are_never_touched(stage: Stage) -> None:
    replay = Replay(api="gemini", kind="signature", data="secret")
    session = stage.session(
        [
            thinking_delta("a secret", index=0),
            block_finished(
                index=0, block=ThinkingBlock(text="a secret", signature="secret", replay=replay)
            ),
            done(),
        ],
        redactor=SecretRedactor(["secret"]),
    )
    await session.run("Hi")
    (block,) = await blocks_of(session)
    assert block == ThinkingBlock(text="a [REDACTED]", signature="secret", replay=replay)


# Any stream

_texts = st.text(st.sampled_from("ΩΨ\ud83d\ude00 é"), max_size=4)
_index = st.none() | st.integers(0, 3)
_events = st.one_of(
    st.builds(text_delta, _texts, index=_index),
    st.builds(thinking_delta, _texts, index=_index),
    st.builds(
        tool_call_delta,
        index=st.integers(0, 3),
        id=st.none() | st.sampled_from(["c1", "c2"]),
        name=st.none() | st.just("look"),
        arguments_text=st.sampled_from(["", "{", '"n"', ":", "1", "}", "\ud83d", "\ude00", "ΩΨ"]),
    ),
    st.builds(tool_call, id=st.sampled_from(["", "c1"]), name=st.just("look")),
    st.builds(
        block_finished,
        index=st.integers(0, 3),
        block=st.one_of(
            st.builds(TextBlock, text=_texts),
            st.builds(ThinkingBlock, text=_texts, signature=st.just("s")),
            st.just(ToolCallBlock(id="c1", name="look", arguments={"n": 1})),
        ),
    ),
)
_ends = st.sampled_from([done(), error("no", code="auth"), done(stop_reason="length")])


@settings(max_examples=100)
@given(st.lists(_events, max_size=12), _ends, st.sampled_from([(), ("ΩΨ",), ("Ω", "Ψ😀")]))
def test_any_stream_keeps_the_laws(events: list[Any], end: Any, secrets: tuple[str, ...]) -> None:
    async def run() -> None:
        stage = Stage()
        session = stage.session(
            [[*events, end], [done()], [done()]],
            secrets=secrets,
            redactor=SecretRedactor(secrets),
            tools=[look],
            retry=False,
        )
        with suppress(ProviderError):
            await session.run("Hi")
        await session.run("Go on")
        stage.finish()

    anyio.run(run)
