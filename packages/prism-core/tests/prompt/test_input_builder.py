from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from prism.core._contracts import Resource
from prism.core._errors import ResourceError, UsageError
from prism.core._wire import (
    ContentBlock,
    ImageBlock,
    Message,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.prompt import (
    MAX_SHOWN_URI_BYTES,
    DefaultInputBuilder,
    InputBuilder,
    InputRequest,
    resource_block,
)

IMAGE = ImageBlock(mime_type="image/png", data="aGk=")
RESULT = ToolResultBlock(tool_call_id="c1", name="add", result=3)


async def build(given: Any, attachments: Sequence[ContentBlock] = ()) -> list[Message]:
    builder: InputBuilder = DefaultInputBuilder()
    return await builder.build(
        InputRequest(session_id="s", run_id="r", input=given, attachments=attachments)
    )


def user(*blocks: ContentBlock) -> Message:
    return Message(role="user", content=list(blocks))


async def test_text_becomes_one_user_message_to_the_byte() -> None:
    assert await build(" Hi\n") == [user(TextBlock(text=" Hi\n"))]


async def test_a_users_message_stays_the_same_object() -> None:
    message = user(TextBlock(text="Hi"), IMAGE)
    (built,) = await build(message)
    assert built is message


async def test_blocks_are_one_message_and_messages_end_it() -> None:
    own = Message(role="user", content=[TextBlock(text="own")], metadata={"a": 1})
    opaque = OpaqueBlock(type="audio", raw=b'{"type":"audio"}')
    built = await build([TextBlock(text="a"), IMAGE, own, opaque])
    assert built == [user(TextBlock(text="a"), IMAGE), own, user(opaque)]
    assert built[1] is own


async def test_attachments_follow_the_last_users_blocks() -> None:
    text = TextBlock(text="Look")
    assert await build("Look", [IMAGE]) == [user(text, IMAGE)]
    assert await build([text], [IMAGE]) == [user(text, IMAGE)]
    own = Message(role="user", content=[text], id="m1", metadata={"a": 1})
    (built,) = await build(own, [IMAGE])
    assert built == Message(role="user", content=[text, IMAGE], id="m1", metadata={"a": 1})
    assert own.content == [text]


async def test_an_attachment_alone_is_an_input() -> None:
    assert await build("", [IMAGE]) == [user(IMAGE)]
    assert await build([], [IMAGE]) == [user(IMAGE)]


async def test_results_of_tools_become_messages_of_their_own_before_other_input() -> None:
    two = ToolResultBlock(tool_call_id="c2", name="add", result=4)
    text = TextBlock(text="go on")
    expected = [
        Message(role="tool", content=[RESULT]),
        Message(role="tool", content=[two]),
        user(text, IMAGE),
    ]
    assert await build([RESULT, two, text], [IMAGE]) == expected
    assert await build([Message(role="tool", content=[RESULT, two]), text], [IMAGE]) == expected
    assert await build([RESULT], [IMAGE]) == [expected[0], user(IMAGE)]


@pytest.mark.parametrize(
    "given",
    [
        "",
        " \n\t",
        [],
        [TextBlock(text=" ")],
        user(),
        user(TextBlock(text="")),
        [TextBlock(text="x"), user()],
    ],
)
async def test_empty_input_is_refused(given: Any) -> None:
    with pytest.raises(UsageError) as caught:
        await build(given)
    assert caught.value.code == "invalid_params"
    assert caught.value.details == {"reason": "empty_input"}


@pytest.mark.parametrize(
    ("given", "reason", "text"),
    [
        (Message(role="assistant", content=[TextBlock(text="x")]), "invalid_role", "'assistant'"),
        ([Message(role="system", content=[TextBlock(text="x")])], "invalid_role", "item 0 .*'sys"),
        ([TextBlock(text="a"), RESULT], "misplaced_result", "item 1"),
        ([user(TextBlock(text="a")), RESULT], "misplaced_result", "item 1"),
        (Message(role="tool", content=[TextBlock(text="x")]), "invalid_block", "without a result"),
        (user(RESULT), "invalid_block", "ToolResultBlock"),
        ([ToolCallBlock(id="c", name="n", arguments={})], "invalid_block", "ToolCallBlock"),
        ([ThinkingBlock(text="hm")], "invalid_block", "ThinkingBlock"),
        (["Hi"], "invalid_block", "str .wrap it in TextBlock"),
        (b"Hi", "invalid_block", "bytes"),
        ({"type": "text"}, "invalid_block", "dict"),
        (None, "invalid_block", "NoneType"),
    ],
)
async def test_what_no_user_can_say_is_refused(given: Any, reason: str, text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        await build(given)
    assert caught.value.code == "invalid_params"
    assert caught.value.details == {"reason": reason}


async def test_an_attachment_that_is_no_block_of_a_user_is_refused() -> None:
    with pytest.raises(UsageError, match="attachment 1 holds ToolResultBlock"):
        await build("Hi", [IMAGE, RESULT])


def test_a_text_resource_becomes_a_text_that_names_it() -> None:
    resource = Resource(
        uri='file:///a"b<c.md', data=b"\xef\xbb\xbf# Hi\n\xc3\xa9", media_type="Text/Markdown; x=y"
    )
    assert resource_block(resource) == TextBlock(
        text='<resource uri="file:///a&quot;b&lt;c.md" type="text/markdown">\n# Hi\né\n</resource>'
    )


def test_an_image_resource_becomes_an_image_but_svg_stays_text() -> None:
    assert resource_block(Resource(uri="x:1", data=b"hi", media_type="image/png")) == IMAGE
    svg = resource_block(Resource(uri="x:1", data=b"<svg/>", media_type="image/svg+xml"))
    assert isinstance(svg, TextBlock)


def test_a_data_uri_is_not_repeated_and_a_long_uri_is_cut() -> None:
    block = resource_block(Resource(uri="data:,hello", data=b"hello"))
    assert block == TextBlock(text='<resource uri="data:">\nhello\n</resource>')
    block = resource_block(Resource(uri="x:" + "y" * 9_000, data=b""))
    assert isinstance(block, TextBlock)
    assert len(block.text.encode()) < MAX_SHOWN_URI_BYTES + 100


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\0b"])
def test_a_resource_that_is_neither_image_nor_text_is_refused(data: bytes) -> None:
    with pytest.raises(ResourceError, match="application/pdf") as caught:
        resource_block(Resource(uri="file:///x.pdf", data=data, media_type="application/pdf"))
    assert caught.value.code == "resource_decode"
