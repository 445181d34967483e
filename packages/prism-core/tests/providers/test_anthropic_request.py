"""What is sent to `/v1/messages`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from prism.core._errors import UsageError
from prism.core._wire import (
    ErrorInfo,
    ImageBlock,
    Message,
    ModelCapabilities,
    ModelConfig,
    ModelLimits,
    ModelRef,
    NativeBlock,
    ProviderOptions,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core._wire.content import ContentBlock
from prism.core.providers import (
    THINKING_LEVELS,
    AnthropicProvider,
    ProviderRequest,
    ToolSpec,
    apply_thinking_level,
)
from prism.core.providers._json import is_list, is_object

from .wire import Answer, MemoryTransport, Reading, Sent, ask, collect, read, sse, user

API = "anthropic-messages"
OWN = "https://api.anthropic.com"
OTHER = "https://vendor.test/anthropic"
HERE = ModelRef(provider="test", model="test-model", api=API)
PICTURE = ImageBlock(mime_type="image/jpeg", data="aGk=")
ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={
        "$schema": "x",
        "$defs": {"n": {"type": "integer"}},
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "additionalProperties": False,
    },
)
MARK = {"type": "ephemeral"}


async def send(
    request: ProviderRequest, *, base_url: str = OTHER, **provider: Any
) -> tuple[Sent, Reading]:
    transport = MemoryTransport(Answer([sse({"type": "message_stop"}, end=b"")]))
    adapter = AnthropicProvider(base_url=base_url, transport=transport, **provider)
    reading = read(await collect(adapter, request))
    assert reading.error is None, reading.error
    return transport.sent[0], reading


async def body_of(request: ProviderRequest, **provider: Any) -> dict[str, Any]:
    return (await send(request, **provider))[0].body


async def error_of(request: ProviderRequest) -> Any:
    adapter = AnthropicProvider(transport=MemoryTransport())
    return read(await collect(adapter, request)).code


async def messages_of(*messages: Message, **more: Any) -> list[dict[str, Any]]:
    """Without cache marks, and with the text alone where there is only one text."""
    provider = {name: more.pop(name) for name in ("base_url", "compat") if name in more}
    more.setdefault("options", ProviderOptions(cache_retention="none"))
    request = ask(*messages, **more)
    sent: list[dict[str, Any]] = (await body_of(request, **provider))["messages"]
    for message in sent:
        content = message["content"]
        if len(content) == 1 and content[0]["type"] == "text" and len(content[0]) == 2:
            message["content"] = content[0]["text"]
    return sent


def call(call_id: str, name: str = "add", **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name=name, arguments=arguments)


def assistant(*content: ContentBlock, model: ModelRef | None = HERE, **more: Any) -> Message:
    return Message(role="assistant", content=list(content), model=model, **more)


def result(call_id: str, *content: ContentBlock, **more: Any) -> Message:
    block = ToolResultBlock(tool_call_id=call_id, name="add", content=list(content) or None, **more)
    return Message(role="tool", content=[block])


def thought(
    text: str = "hm", data: str = "sign", kind: str = "signature", api: str = API
) -> ThinkingBlock:
    signature = data if kind == "signature" else None
    return ThinkingBlock(
        text=text, signature=signature, replay=Replay(api=api, kind=kind, data=data)
    )


async def test_a_whole_conversation_with_tools() -> None:
    request = ask(
        user("What is 1+2?"),
        assistant(thought(), TextBlock(text="Let me see."), call("toolu_1", b=2, a=1)),
        result("toolu_1", result=3),
        assistant(TextBlock(text="3")),
        user("Thanks"),
        system=["Be brief.", " ", "Be kind."],
        tools=[ADD, ToolSpec(name="now", description="", parameters={})],
        config={"parameters": {"maxTokens": 100, "stopSequences": ["END"]}},
        options=ProviderOptions(tool_choice={"name": "add"}),
    )
    assert await body_of(request) == {
        "model": "test-model",
        "max_tokens": 100,
        "stream": True,
        "stop_sequences": ["END"],
        "tool_choice": {"type": "tool", "name": "add"},
        "tools": [
            {
                "name": "add",
                "description": "Add two numbers.",
                "input_schema": {
                    "$defs": {"n": {"type": "integer"}},
                    "type": "object",
                    "properties": {"a": {"$ref": "#/$defs/n"}},
                    "additionalProperties": False,
                },
            },
            {
                "name": "now",
                "input_schema": {"type": "object", "properties": {}},
                "cache_control": MARK,
            },
        ],
        "system": [
            {"type": "text", "text": "Be brief."},
            {"type": "text", "text": "Be kind.", "cache_control": MARK},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is 1+2?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sign"},
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"b": 2, "a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": "3",
                        "cache_control": MARK,
                    }
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "3"}]},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Thanks", "cache_control": MARK}],
            },
        ],
    }


# --- address and headers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (OWN, "https://api.anthropic.com/v1/messages"),
        ("http://local.test/v1", "http://local.test/v1/messages"),
        ("http://local.test/v1/?a=b", "http://local.test/v1/messages?a=b"),
        (OTHER, "https://vendor.test/anthropic/v1/messages"),
    ],
)
async def test_the_address(base_url: str, url: str) -> None:
    assert (await send(ask(), base_url=base_url))[0].url == url


async def test_anthropics_own_host_gets_the_new_version_and_a_bearer_token() -> None:
    sent, _ = await send(ask(), base_url=OWN, credential="secret")
    assert sent.headers["anthropic-version"] == "2026-10-21"
    assert sent.headers["authorization"] == "Bearer secret"
    assert "x-api-key" not in sent.headers
    assert "anthropic-beta" not in sent.headers


async def test_other_hosts_get_the_old_version_and_the_key_alone() -> None:
    sent, _ = await send(ask(), credential="secret")
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert sent.headers["x-api-key"] == "secret"
    assert "authorization" not in sent.headers


async def test_sampling_needs_the_old_version_and_its_key() -> None:
    request = ask(model="claude-sonnet-4-5", config={"parameters": {"temperature": 0.5}})
    sent, reading = await send(request, base_url=OWN, credential="secret")
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert sent.headers["x-api-key"] == "secret"
    assert sent.body["temperature"] == 0.5
    assert reading.notices == []


async def test_version_key_and_betas_are_switches() -> None:
    compat = {"version": "2026-10-21", "auth_header": "authorization", "betas": ["b", "a", "b"]}
    sent, _ = await send(ask(), compat=compat, credential="secret")
    assert sent.headers["anthropic-version"] == "2026-10-21"
    assert sent.headers["authorization"] == "Bearer secret"
    assert sent.headers["anthropic-beta"] == "a,b"


# --- messages ---------------------------------------------------------------------------------


async def test_results_come_first_and_in_one_message() -> None:
    sent = await messages_of(
        user("a"),
        assistant(call("1"), call("2")),
        result("1", result="r1"),
        result("2", result="r2"),
        user("b"),
        user("c"),
    )
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert sent[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "1", "content": "r1"},
        {"type": "tool_result", "tool_use_id": "2", "content": "r2"},
        {"type": "text", "text": "b"},
        {"type": "text", "text": "c"},
    ]


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (result("1"), {"content": "(no output)"}),
        (result("1", TextBlock(text="a"), TextBlock(text="b")), {"content": "a\nb"}),
        (result("1", result={"b": 1}), {"content": '{"b":1}'}),
        (
            result("1", TextBlock(text="tried: no file"), error=ErrorInfo(message="no file")),
            {"content": "tried: no file", "is_error": True},
        ),
        (
            result("1", TextBlock(text="a"), PICTURE),
            {
                "content": [
                    {"type": "text", "text": "a"},
                    {
                        "type": "image",
                        "source": {
                            "type": "base64",
                            "media_type": "image/jpeg",
                            "data": "aGk=",
                        },
                    },
                ]
            },
        ),
    ],
)
async def test_every_form_of_result(message: Message, content: dict[str, Any]) -> None:
    sent = await messages_of(user("a"), assistant(call("1")), message)
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": "1", **content}]


async def test_an_error_with_an_image_has_no_flag_which_takes_text_alone() -> None:
    message = result("1", PICTURE, error=ErrorInfo(message="no file"))
    sent = await messages_of(user("a"), assistant(call("1")), message)
    (block,) = sent[2]["content"]
    assert "is_error" not in block
    assert "no file" in block["content"][0]["text"]


@pytest.mark.parametrize(
    ("image", "source"),
    [
        (ImageBlock(url="https://a.test/x.png"), {"type": "url", "url": "https://a.test/x.png"}),
        (
            ImageBlock(url="data:image/webp;base64,aGk="),
            {"type": "base64", "media_type": "image/webp", "data": "aGk="},
        ),
        (ImageBlock(data="aGk="), {"type": "base64", "media_type": "image/png", "data": "aGk="}),
    ],
)
async def test_images(image: ImageBlock, source: dict[str, Any]) -> None:
    (message,) = await messages_of(user("Look:", image))
    assert message["content"][1] == {"type": "image", "source": source}


async def test_images_that_cannot_be_taken_become_text() -> None:
    bitmap = ImageBlock(mime_type="image/bmp", data="aGk=")
    sent, reading = await send(ask(user("a", bitmap)))
    assert sent.body["messages"][0]["content"][1]["type"] == "text"
    assert len(reading.notices) == 1
    blind = ask(user("a", PICTURE), config={"capabilities": ModelCapabilities(input=["text"])})
    sent, reading = await send(blind)
    assert sent.body["messages"][0]["content"][1]["type"] == "text"
    assert reading.notices == ["image_omitted"]


async def test_ids_that_the_wire_refuses_are_mapped_alike_on_call_and_result() -> None:
    composite = "call_1|fc_2"
    sent = await messages_of(
        user("a"),
        assistant(call("toolu_1"), call(composite), call("x" * 65)),
        *(result(call_id, result="r") for call_id in ("toolu_1", composite, "x" * 65)),
    )
    ids = [block["id"] for block in sent[1]["content"]]
    assert ids == [block["tool_use_id"] for block in sent[2]["content"]]
    assert ids[0] == "toolu_1"
    assert len(set(ids)) == 3
    assert all(len(call_id) <= 64 and "|" not in call_id for call_id in ids)


async def test_a_conversation_begins_with_the_user_and_never_ends_with_the_model() -> None:
    sent = await messages_of(assistant(TextBlock(text="a")), user("b"))
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    ending = ask(user("a"), assistant(TextBlock(text="b"), stop_reason="stop"))
    assert await error_of(ending) == "invalid_request"
    assert await error_of(ask(user(" "))) == "invalid_request"


async def test_a_paused_turn_is_sent_back_as_it_is() -> None:
    use: dict[str, Any] = {
        "type": "server_tool_use",
        "id": "srv_1",
        "name": "web_search",
        "input": {},
    }
    native = NativeBlock(api=API, kind="server_tool_use", data=json.dumps(use))
    sent = await messages_of(user("a"), assistant(TextBlock(text="b"), native, stop_reason="pause"))
    assert sent[1] == {"role": "assistant", "content": [{"type": "text", "text": "b"}, use]}


async def test_server_tools_go_back_in_pairs() -> None:
    use: dict[str, Any] = {
        "type": "server_tool_use",
        "id": "srv_1",
        "name": "web_search",
        "input": {"q": 2**70},
    }
    found: dict[str, Any] = {
        "type": "web_search_tool_result",
        "tool_use_id": "srv_1",
        "content": [],
    }
    lone = {**use, "id": "srv_2"}
    natives = [
        NativeBlock(api=API, kind=item["type"], data=json.dumps(item))
        for item in (use, found, lone)
    ]
    other = NativeBlock(api="gemini", kind="executableCode", data="{}")
    sent = await messages_of(
        user("a"),
        assistant(*natives, other, NativeBlock(api=API, kind="x", data="{")),
        user("b"),
    )
    assert sent[1]["content"] == [use, found]


async def test_a_host_can_send_the_vendors_own_blocks() -> None:
    document = {"type": "document", "source": {"type": "url", "url": "https://a.test/x.pdf"}}
    native = NativeBlock(api=API, kind="document", data=json.dumps(document))
    (message,) = await messages_of(user("Read:", native))
    assert message["content"][1] == document


async def test_citations_go_back_with_their_text() -> None:
    citation = {"type": "web_search_result_location", "encrypted_index": "x"}
    replay = Replay(api=API, kind="citations", data=json.dumps([citation]))
    sent = await messages_of(
        user("a"),
        assistant(TextBlock(text="b", replay=replay), TextBlock(text=" "), TextBlock(text="c")),
        user("d"),
    )
    assert sent[1]["content"] == [
        {"type": "text", "text": "b", "citations": [citation]},
        {"type": "text", "text": "c"},
    ]


# --- system notes -------------------------------------------------------------------------------


def note(text: str = "note") -> Message:
    return Message(role="system", content=[TextBlock(text=text)])


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([user("a"), note()], "us"),
        ([user("a"), note(), assistant(TextBlock(text="b")), user("c")], "usau"),
        ([user("a"), note(), user("b")], "uuu"),
        ([note(), user("b")], "uu"),
        ([user("a"), note("1"), note("2")], "uus"),
        ([user("a"), assistant(TextBlock(text="b")), note(), user("c")], "uauu"),
    ],
)
async def test_a_system_message_stays_one_where_the_api_takes_it(
    messages: list[Message], roles: str
) -> None:
    sent = await messages_of(*messages, model="claude-opus-4-8", base_url=OWN)
    assert "".join(message["role"][0] for message in sent) == roles


@pytest.mark.parametrize(
    ("model", "base_url"), [("claude-opus-4-7", OWN), ("claude-opus-4-8", OTHER)]
)
async def test_elsewhere_it_is_the_users(model: str, base_url: str) -> None:
    sent = await messages_of(user("a"), note(), model=model, base_url=base_url)
    assert [message["role"] for message in sent] == ["user"]
    assert [block["text"] for block in sent[0]["content"]] == ["a", "note"]


# --- reasoning --------------------------------------------------------------------------------


async def test_reasoning_goes_back_as_it_came() -> None:
    sent = await messages_of(
        user("a"),
        assistant(
            thought(text=""),
            thought(text="", data="xyz", kind="redacted"),
            ThinkingBlock(text="old", signature="s"),
            TextBlock(text="b"),
        ),
        user("c"),
    )
    assert sent[1]["content"][:3] == [
        {"type": "thinking", "thinking": "", "signature": "sign"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "old", "signature": "s"},
    ]


@pytest.mark.parametrize(
    ("writer", "block"),
    [
        (ModelRef(provider="test", model="other", api=API), thought()),
        (ModelRef(provider="test", model="test-model", api="openai-chat"), thought()),
        (HERE, thought(api="openai-responses", kind="encrypted")),
        (HERE, ThinkingBlock(text="unsigned")),
    ],
)
async def test_foreign_and_unsigned_reasoning_is_left_out(
    writer: ModelRef, block: ThinkingBlock
) -> None:
    sent = await messages_of(
        user("a"), assistant(block, TextBlock(text="b"), model=writer), user("c")
    )
    assert sent[1] == {"role": "assistant", "content": "b"}


async def test_an_answer_does_not_end_in_a_thought() -> None:
    sent = await messages_of(user("a"), assistant(thought()), user("b"))
    assert [block["type"] for block in sent[1]["content"]] == ["thinking", "text"]


async def test_reasoning_is_bound_to_what_stood_before_it() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "sign"}
    written = sse(
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_stop"},
        end=b"",
    )
    transport = MemoryTransport(Answer([written]))
    adapter = AnthropicProvider(base_url=OWN, transport=transport)
    model = ModelRef(provider="test", model="claude-opus-5-5", api=API)
    first = user("a")
    asked = read(await collect(adapter, ask(first, model=model.model, system=["S"])))
    answer = assistant(asked.blocks[0], TextBlock(text="b"), model=model)
    sent: list[list[str]] = []
    notices: list[list[str]] = []
    for before, system in ((first, "S"), (user("[REDACTED]"), "S"), (first, "T")):
        request = ask(before, answer, user("c"), model=model.model, system=[system])
        notices.append(read(await collect(adapter, request)).notices)
        content = transport.sent[-1].body["messages"][1]["content"]
        sent.append([part["type"] for part in content])
    assert sent == [["thinking", "text"], ["text"], ["text"]]
    assert notices == [[], ["thinking_stripped"], ["thinking_stripped"]]


async def test_dropping_can_be_left_to_the_vendor() -> None:
    compat = {"drop_block": True}
    sent, _ = await send(ask(model="claude-opus-5-5"), compat=compat)
    assert sent.body["thinking"] == {
        "type": "adaptive",
        "block_binding": {"prefix_mismatch_behavior": "drop_block"},
    }
    assert sent.headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"
    off = thinking({"thinking": {"type": "disabled"}})
    assert (await body_of(ask(options=off), compat=compat))["thinking"] == {"type": "disabled"}


# --- thinking, sampling, forced calls -----------------------------------------------------------


def thinking(body: Mapping[str, Any], **more: Any) -> ProviderOptions:
    return ProviderOptions(compat={"thinking": {"body": body, **more}})


def budget(tokens: int) -> ProviderOptions:
    return thinking({"thinking": {"type": "enabled", "budget_tokens": tokens}})


@pytest.mark.parametrize(
    ("limits", "asked", "tokens", "max_tokens", "sent"),
    [
        (None, 20_000, 16_384, 20_000, 16_384),
        (None, 2_000, 16_384, 18_384, 16_384),
        (32_000, None, 32_768, 32_000, 30_976),
        (8_000, 4_000, 16_384, 8_000, 6_976),
        (2_000, 1_000, 16_384, 1_000, None),
    ],
)
async def test_a_budget_fits_into_max_tokens(
    limits: int | None, asked: int | None, tokens: int, max_tokens: int, sent: int | None
) -> None:
    config = {
        "parameters": {"maxTokens": asked},
        "limits": ModelLimits(max_output_tokens=limits),
    }
    request, reading = await send(
        ask(model="claude-sonnet-4-5", config=config, options=budget(tokens))
    )
    body = request.body
    assert body["max_tokens"] == max_tokens
    assert body.get("thinking", {}).get("budget_tokens") == sent
    assert reading.notices == ([] if sent else ["thinking_clamped"])


async def test_a_turn_that_began_without_a_thought_is_finished_without_thinking() -> None:
    turn = (user("a"), assistant(call("1")), result("1", result="r"))
    sent, reading = await send(ask(*turn, options=budget(2_048)))
    assert "thinking" not in sent.body
    assert reading.notices == ["thinking_dropped"]
    for whole in (
        (user("a"), assistant(thought(), call("1")), result("1", result="r")),
        (*turn, assistant(TextBlock(text="b")), user("c")),
        (
            user("a"),
            assistant(thought(), call("1")),
            result("1", result="r"),
            assistant(call("2")),
            result("2", result="r"),
        ),
    ):
        assert "thinking" in await body_of(ask(*whole, options=budget(2_048)))


@pytest.mark.parametrize(
    ("model", "options", "dropped"),
    [
        ("claude-sonnet-4-5", ProviderOptions(), False),
        ("some-other-model", ProviderOptions(), False),
        ("claude-sonnet-4-5", budget(2_048), True),
        ("claude-opus-4-6", thinking({"thinking": {"type": "adaptive"}}), True),
        ("claude-opus-4-7", ProviderOptions(), True),
        ("claude-fable-5", ProviderOptions(), True),
        ("x", thinking({}, drop=["temperature"]), True),
    ],
)
async def test_sampling_goes_where_it_is_refused(
    model: str, options: ProviderOptions, *, dropped: bool
) -> None:
    config = {"parameters": {"temperature": 0.5}}
    sent, reading = await send(ask(model=model, options=options, config=config), base_url=OWN)
    assert ("temperature" not in sent.body) is dropped
    assert reading.notices == (["sampling_dropped"] if dropped else [])
    assert sent.headers["anthropic-version"] == ("2026-10-21" if dropped else "2023-06-01")


@pytest.mark.parametrize("choice", ["required", {"name": "add"}])
@pytest.mark.parametrize(
    ("model", "compat", "forced"),
    [
        ("claude-sonnet-4-5", {}, True),
        ("claude-haiku-5-5", {}, True),
        ("claude-sonnet-5", {"thinking": {"body": {"thinking": {"type": "adaptive"}}}}, True),
        ("claude-sonnet-4-5", budget(2_048).compat, False),
        ("claude-fable-5", {}, False),
        ("anthropic/claude-mythos-5.1", {}, False),
        ("claude-opus-5-5", {}, False),
        ("claude-sonnet-5-5", {}, False),
    ],
)
async def test_a_call_that_cannot_be_forced_is_left_to_the_model(
    choice: Any, model: str, compat: dict[str, Any], *, forced: bool
) -> None:
    options = ProviderOptions(tool_choice=choice, compat=compat)
    sent, reading = await send(ask(model=model, tools=[ADD], options=options))
    assert (sent.body["tool_choice"] != {"type": "auto"}) is forced
    assert reading.notices == ([] if forced else ["tool_choice_downgraded"])


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (None, None, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("auto", True, {"type": "auto"}),
        ("none", False, {"type": "none"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
    ],
)
async def test_tool_choices(choice: Any, parallel: bool | None, sent: Any) -> None:  # noqa: FBT001
    config = {"parameters": {"parallelToolCalls": parallel}}
    options = ProviderOptions(tool_choice=choice)
    request = ask(tools=[ADD], options=options, config=config)
    assert (await body_of(request)).get("tool_choice") == sent
    assert "tool_choice" not in await body_of(ask(options=options))


@pytest.mark.parametrize("choice", ["maybe", {}, {"name": 1}])
async def test_an_unknown_tool_choice_is_refused(choice: Any) -> None:
    options = ProviderOptions(tool_choice=choice)
    assert await error_of(ask(tools=[ADD], options=options)) == "invalid_request"


@pytest.mark.parametrize("level", THINKING_LEVELS)
@pytest.mark.parametrize(
    "model",
    [
        "claude-3-7-sonnet", "claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-4-8",
        "claude-sonnet-5", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5",
    ],
)  # fmt: skip
async def test_every_family_and_level_makes_a_body_that_is_taken(model: str, level: str) -> None:
    config = ModelConfig(provider="test", model=model)
    options, _ = apply_thinking_level(
        ProviderOptions(tool_choice="required"), config, level, api=API
    )
    request = ask(
        model=model,
        tools=[ADD],
        options=options,
        config={"parameters": {"maxTokens": 2_000, "temperature": 1}},
        output_schema={"type": "object"},
    )
    body = (await send(request, base_url=OWN))[0].body
    sent = body.get("thinking", {"type": None})
    if sent["type"] == "enabled":
        assert 1_024 <= sent["budget_tokens"] < body["max_tokens"]
        assert body["tool_choice"] == {"type": "auto"}
    if sent["type"] not in {None, "disabled"}:
        assert "temperature" not in body
    # The level and the schema of the answer stand side by side.
    assert body["output_config"]["format"]["schema"] == {"type": "object"}
    if model == "claude-opus-5-5":
        assert sent["type"] in {None, "adaptive"}
        assert body["output_config"]["effort"] in {"low", "medium", "high", "xhigh", "max"}


# --- caching ----------------------------------------------------------------------------------


def marks(body: Any, path: str = "$") -> dict[str, Any]:
    """Where the cache marks stand."""
    found: dict[str, Any] = {}
    if is_object(body):
        for key, value in body.items():
            if key == "cache_control":
                found[path] = value
            found |= marks(value, f"{path}.{key}")
    elif is_list(body):
        for place, value in enumerate(body):
            found |= marks(value, f"{path}[{place}]")
    return found


CONVERSATION = (
    user("a"),
    assistant(thought(), call("1"), call("2")),
    result("1", result="r"),
    result("2", result="r"),
    assistant(TextBlock(text="b")),
    user("c", PICTURE),
)


@pytest.mark.parametrize(
    ("retention", "base_url", "mark"),
    [
        (None, OWN, MARK),
        ("short", OWN, MARK),
        ("long", OWN, {"type": "ephemeral", "ttl": "1h"}),
        ("long", OTHER, MARK),
        ("none", OWN, None),
    ],
)
async def test_four_places_are_marked(retention: str | None, base_url: str, mark: Any) -> None:
    request = ask(
        *CONVERSATION,
        system=["S", "T"],
        tools=[ADD, ADD],
        options=ProviderOptions(cache_retention=retention),
    )
    found = marks(await body_of(request, base_url=base_url))
    places = (
        "$.tools[1]",
        "$.system[1]",
        "$.messages[2].content[1]",
        "$.messages[4].content[1]",
    )
    assert found == ({} if mark is None else dict.fromkeys(places, mark))


async def test_a_host_without_caching_gets_no_marks() -> None:
    assert marks(await body_of(ask(*CONVERSATION), compat={"cache_control": False})) == {}


async def test_tools_that_are_loaded_later_are_not_marked() -> None:
    tools = ({"type": "tool_search", "name": "s"}, {"name": "late", "defer_loading": True})
    body = await body_of(ask(tools=[ADD]), compat={"server_tools": tools})
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, MARK, None]


async def test_ten_turns_share_their_prefix_byte_by_byte() -> None:
    transport = MemoryTransport(Answer([sse({"type": "message_stop"}, end=b"")]))
    adapter = AnthropicProvider(base_url=OWN, transport=transport)
    messages: list[Message] = []
    for turn in range(10):
        messages += [user(f"do {turn} ü"), assistant(thought(), call(f"toolu_{turn}", n=turn))]
        messages.append(result(f"toolu_{turn}", PICTURE, result={"n": turn}))
        request = ask(
            *messages, model="claude-opus-5-5", system=["S"], tools=[ADD],
            options=ProviderOptions(session_id="s", cache_retention="long"),
        )  # fmt: skip
        await collect(adapter, request)
        messages.append(assistant(TextBlock(text="done")))
    mark = b',"cache_control":{"type":"ephemeral","ttl":"1h"}'
    bodies = [sent.content.replace(mark, b"") for sent in transport.sent]
    for before, after in pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}"))


# --- the rest -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "limit", "sent"),
    [
        ("x", None, 32_000),
        ("x", 8_000, 8_000),
        ("x", 64_000, 32_000),
        ("claude-3-haiku-20240307", None, 4_096),
        ("claude-3-5-sonnet-20241022", None, 8_192),
        ("claude-opus-4-20250514", None, 32_000),
    ],
)
async def test_max_tokens_is_always_sent(model: str, limit: int | None, sent: int) -> None:
    config = {"limits": ModelLimits(max_output_tokens=limit)}
    assert (await body_of(ask(model=model, config=config)))["max_tokens"] == sent


async def test_parameters() -> None:
    parameters = {"topP": 0.5, "top_k": 4, "stop": "END", "seed": 1, "temperature": None}
    sent, reading = await send(ask(config={"parameters": parameters}))
    assert (sent.body["top_p"], sent.body["top_k"]) == (0.5, 4)
    assert sent.body["stop_sequences"] == ["END"]
    assert not {"seed", "temperature"} & sent.body.keys()
    assert reading.notices == ["parameter_ignored"]
    assert await error_of(ask(config={"parameters": {"maxTokens": 0}})) == "invalid_request"


async def test_switches_of_tools_and_of_the_user() -> None:
    server = {"type": "web_search_20250305", "name": "web_search"}
    compat = {
        "strict_tools": True,
        "eagerInputStreaming": True,
        "server_tools": [server],
        "user_id": True,
        "body": {"service_tier": "auto", "metadata": {"a": 1}},
    }
    options = ProviderOptions(session_id="session 1", cache_retention="none")
    body = await body_of(ask(tools=[ADD], options=options), compat=compat)
    first, second = body["tools"]
    assert (first["strict"], first["eager_input_streaming"]) == (True, True)
    assert second == server
    assert body["service_tier"] == "auto"
    assert body["metadata"].keys() == {"user_id", "a"}
    assert "session" not in body["metadata"]["user_id"]


async def test_a_schema_that_is_a_reference_is_an_object_for_the_vendor() -> None:
    definition: dict[str, Any] = {"type": "object", "properties": {"a": {"$ref": "#/$defs/T"}}}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (
            {"$ref": "#/$defs/T", "$defs": {"T": definition}},
            {**definition, "$defs": {"T": definition}},
        ),
        ({"properties": {}}, {"type": "object", "properties": {}}),
        ({"$ref": "https://a.test/x"}, {"type": "object", "$ref": "https://a.test/x"}),
    ]
    for parameters, schema in cases:
        tool = ToolSpec(name="t", description="", parameters=parameters)
        body = await body_of(ask(tools=[tool]), compat={"cache_control": False})
        assert body["tools"][0]["input_schema"] == schema


async def test_nobody_else_sets_what_is_ours() -> None:
    options = ProviderOptions(extra={"body": {"model": "mine", "tools": [], "max_tokens": 7}})
    sent, reading = await send(ask(tools=[ADD], options=options))
    assert (sent.body["model"], sent.body["max_tokens"]) == ("test-model", 7)
    assert len(sent.body["tools"]) == 1
    assert reading.notices == ["body_key_ignored", "body_key_ignored"]


@pytest.mark.parametrize("compat", [{"nonsense": 1}, {"sampling": "yes"}, {"system_notes": "x"}])
def test_a_wrong_switch_of_the_provider_is_refused(compat: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="compat"):
        AnthropicProvider(transport=MemoryTransport(), compat=compat)


async def test_the_models_switches_win_over_the_providers() -> None:
    request = ask(config={"compat": {"maxTokens": 5, "thinkingFamily": "for others"}})
    assert (await body_of(request, compat={"max_tokens": 6}))["max_tokens"] == 5
    assert await error_of(ask(config={"compat": {"sampling": "yes"}})) == "invalid_request"


async def test_text_that_is_no_unicode_is_repaired_in_the_copy_that_is_sent() -> None:
    sent, _ = await send(ask(user("a\ud800b\x00c"), system=["\udc00"]))
    assert sent.body["messages"][0]["content"][0]["text"] == "a\ufffdb\ufffdc"
    assert sent.body["system"][0]["text"] == "\ufffd"
