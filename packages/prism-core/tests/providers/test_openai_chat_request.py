"""What is sent to `/chat/completions`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prism.core._errors import UsageError
from prism.core._wire import (
    ErrorInfo,
    ImageBlock,
    Message,
    ModelCapabilities,
    ModelRef,
    NativeBlock,
    OpaqueBlock,
    ProviderOptions,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core._wire.content import ContentBlock
from prism.core.providers import OpenAIChatProvider, ProviderRequest, ToolSpec
from prism.core.providers._requests import IdMap

from .wire import Answer, MemoryTransport, Reading, Sent, ask, collect, read, sse, user

OPENAI = "https://api.openai.com/v1"
PLAIN = "https://vendor.test/v1"
ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={"$schema": "x", "type": "object", "properties": {"a": {"type": "integer"}}},
)
PICTURE = ImageBlock(mime_type="image/jpeg", data="aGk=")


async def send(
    request: ProviderRequest, *, base_url: str = PLAIN, **provider: Any
) -> tuple[Sent, Reading]:
    transport = MemoryTransport(Answer([sse()]))
    events = await collect(
        OpenAIChatProvider(base_url=base_url, transport=transport, **provider), request
    )
    return transport.sent[0], read(events)


async def body_of(request: ProviderRequest, **provider: Any) -> dict[str, Any]:
    return (await send(request, **provider))[0].body


async def messages_of(*messages: Message, **more: Any) -> list[dict[str, Any]]:
    provider = {name: more.pop(name) for name in ("base_url", "compat", "id") if name in more}
    return (await body_of(ask(*messages, **more), **provider))["messages"]


def call(
    call_id: str, name: str = "add", arguments: Mapping[str, Any] | None = None
) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name=name, arguments=dict(arguments or {}))


def assistant(*content: ContentBlock, model: ModelRef | None = None) -> Message:
    return Message(role="assistant", content=list(content), model=model)


def result(call_id: str, *content: ContentBlock, **more: Any) -> Message:
    block = ToolResultBlock(tool_call_id=call_id, name="add", content=list(content) or None, **more)
    return Message(role="tool", content=[block])


async def test_a_whole_conversation_with_tools() -> None:
    request = ask(
        user("What is 1+2?"),
        assistant(TextBlock(text="Let me see."), call("call_1", arguments={"b": 2, "a": 1})),
        result("call_1", result=3),
        assistant(TextBlock(text="3")),
        user("Thanks"),
        system=["Be brief.", "Be kind."],
        tools=[ADD],
        config={"parameters": {"maxTokens": 100, "temperature": 0.5, "stopSequences": ["END"]}},
        options=ProviderOptions(tool_choice={"name": "add"}),
    )
    assert await body_of(request) == {
        "model": "test-model",
        "messages": [
            {"role": "system", "content": "Be brief.\n\nBe kind."},
            {"role": "user", "content": "What is 1+2?"},
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"b":2,"a":1}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "3"},
            {"role": "assistant", "content": "3"},
            {"role": "user", "content": "Thanks"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "add",
                    "description": "Add two numbers.",
                    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "max_tokens": 100,
        "temperature": 0.5,
        "stop": ["END"],
    }


async def test_a_plain_request_asks_for_nothing_that_was_not_asked_for() -> None:
    sent, reading = await send(ask(user("Hi")))
    assert sent.body.keys() == {"model", "messages", "stream", "stream_options"}
    assert reading.notices == []
    assert (sent.method, sent.url) == ("POST", "https://vendor.test/v1/chat/completions")
    assert sent.headers == {
        "user-agent": "prism",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "content-type": "application/json",
    }


async def test_the_same_request_gives_the_same_bytes() -> None:
    request = ask(user("Hi"), assistant(call("x" * 50)), result("x" * 50), tools=[ADD])
    first, _ = await send(request, id="mistral")
    second, _ = await send(request, id="mistral")
    assert first.content == second.content


async def test_openai_itself_has_its_own_ways() -> None:
    request = ask(
        user("Hi"),
        model="gpt-5.2",
        system=["Be brief."],
        config={"parameters": {"maxTokens": 9, "temperature": 0, "topP": 1}},
        options=ProviderOptions(session_id="s1", cache_retention="long"),
    )
    sent, reading = await send(request, base_url=OPENAI)
    body = sent.body
    assert body["messages"][0] == {"role": "developer", "content": "Be brief."}
    assert body["max_completion_tokens"] == 9
    assert body["store"] is False
    assert body["prompt_cache_key"].startswith("p-")
    assert len(body["prompt_cache_key"]) <= 64
    assert body["prompt_cache_retention"] == "24h"
    assert "temperature" not in body
    assert reading.notices == ["sampling_dropped"]
    other = await body_of(ask(user("Hi"), model="gpt-4o", system=["x"]), base_url=OPENAI)
    assert other["messages"][0]["role"] == "system"


@pytest.mark.parametrize("model", ["gpt-6-astra", "gpt-6.1-sol", "gpt-6.2"])
async def test_models_that_call_tools_over_responses_alone_say_so(model: str) -> None:
    request = ask(user("Hi"), model=model, tools=[ADD])
    transport = MemoryTransport(Answer([sse()]))
    reading = read(await collect(OpenAIChatProvider(base_url=OPENAI, transport=transport), request))
    assert (reading.code, transport.sent) == ("unsupported", [])
    assert reading.error is not None
    assert "OpenAIResponsesProvider" in reading.error.message
    # Without tools it answers, and a gateway may know a way.
    assert (await body_of(ask(user("Hi"), model=model), base_url=OPENAI))["model"] == model
    assert (await body_of(request))["tools"]
    assert (await body_of(request, base_url=OPENAI, compat={"tool_calling": "always"}))["tools"]


@pytest.mark.parametrize("model", ["gpt-6-sol", "gpt-6-luna"])
@pytest.mark.parametrize("effort", [None, "high", "none"])
async def test_models_that_call_tools_without_reasoning_alone_get_none(
    model: str, effort: str | None
) -> None:
    thinking = {} if effort is None else {"thinking": {"body": {"reasoning_effort": effort}}}
    options = ProviderOptions(compat=thinking)
    request = ask(user("Hi"), model=model, tools=[ADD], options=options)
    sent, reading = await send(request, base_url=OPENAI)
    assert sent.body["reasoning_effort"] == "none"
    assert reading.notices == ([] if effort == "none" else ["thinking_clamped"])
    body = await body_of(ask(user("Hi"), model=model, options=options), base_url=OPENAI)
    assert body.get("reasoning_effort") == effort


async def test_sampling_stays_when_reasoning_is_off() -> None:
    request = ask(
        user("Hi"),
        model="gpt-5.2",
        config={"parameters": {"temperature": 0}},
        options=ProviderOptions(extra={"body": {"reasoning_effort": "none"}}),
    )
    assert (await body_of(request, base_url=OPENAI))["temperature"] == 0


@pytest.mark.parametrize(
    ("model", "retention", "wanted"),
    [
        ("gpt-5.2", "none", set[str]()),
        ("gpt-5.2", "short", {"prompt_cache_key"}),
        ("gpt-5.2", "long", {"prompt_cache_key", "prompt_cache_retention"}),
        ("gpt-5.6", "none", {"prompt_cache_options"}),
        ("gpt-6-sol", "long", {"prompt_cache_key"}),
        ("gpt-4o", None, {"prompt_cache_key"}),
    ],
)
async def test_caching_at_openai_depends_on_the_models_generation(
    model: str, retention: str | None, wanted: set[str]
) -> None:
    options = ProviderOptions(cache_key="k", cache_retention=retention)
    body = await body_of(ask(user("Hi"), model=model, options=options), base_url=OPENAI)
    assert {key for key in body if key.startswith("prompt_cache")} == wanted


async def test_other_vendors_caching() -> None:
    options = ProviderOptions(session_id="s", cache_retention="long")
    sent, _ = await send(ask(user("Hi"), options=options), base_url="https://api.mistral.ai/v1")
    assert sent.headers["x-affinity"].startswith("p-")
    assert "stream_options" not in sent.body
    request = ask(user("Hi"), model="anthropic/claude-sonnet-4.5", system=["S"], options=options)
    body = await body_of(request, base_url="https://openrouter.ai/api/v1")
    mark = {"type": "ephemeral", "ttl": "1h"}
    for message, text in zip(body["messages"], ["S", "Hi"], strict=True):
        assert message["content"] == [{"type": "text", "text": text, "cache_control": mark}]


async def test_the_cache_mark_moves_to_the_last_user_message_of_a_history() -> None:
    provider = OpenAIChatProvider(
        base_url="https://openrouter.ai/api/v1", transport=MemoryTransport(Answer([sse()]))
    )
    history = [user("a"), assistant(call("1")), result("1"), assistant(TextBlock(text="b"))]
    for _ in range(2):
        history += [user("next"), assistant(TextBlock(text="c"))]
        request = ask(*history[:-1], model="anthropic/claude-opus-5-5")
        body = json.loads(provider.prepare(request).body)
        marked = [message for message in body["messages"] if "cache_control" in str(message)]
        assert marked == body["messages"][-1:]
        assert len(body["messages"]) == len(history) - 1


# --- messages ---------------------------------------------------------------------------------


async def test_white_space_blocks_and_empty_messages_are_left_out() -> None:
    assert await messages_of(
        user(" \n", "a"),
        user("  "),
        assistant(TextBlock(text=" ")),
        assistant(ThinkingBlock(text="only a thought")),
        user("b", "c"),
        system=["", " "],
    ) == [{"role": "user", "content": "a"}, {"role": "user", "content": "b\n\nc"}]


async def test_an_empty_last_user_message_is_refused() -> None:
    transport = MemoryTransport(Answer([sse()]))
    provider = OpenAIChatProvider(base_url=PLAIN, transport=transport)
    reading = read(await collect(provider, ask(user("Hi"), user("  "))))
    assert reading.code == "invalid_request"
    assert transport.sent == []


async def test_images_go_as_parts_or_as_a_placeholder() -> None:
    message = user("See:", PICTURE, ImageBlock(url="https://images.test/a.png"))
    assert (await messages_of(message))[0]["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,aGk="}},
        {"type": "image_url", "image_url": {"url": "https://images.test/a.png"}},
    ]
    text_only = {"capabilities": ModelCapabilities(input=["text"])}
    sent, reading = await send(ask(message, config=text_only))
    omitted = "(image omitted: the model has no image input)"
    assert sent.body["messages"][0]["content"] == f"See:\n\n{omitted}\n\n{omitted}"
    assert reading.notices == ["image_omitted"]


async def test_images_of_results_follow_the_whole_run_of_results() -> None:
    sent = await messages_of(
        assistant(call("1"), call("2")),
        result("1", PICTURE),
        result("2", TextBlock(text="two"), PICTURE),
        user("go on"),
    )
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user", "user"]
    assert sent[0]["content"] is None
    assert sent[1]["content"] == "(the image is in the next user message)"
    assert sent[2]["content"] == "two"
    assert [part["type"] for part in sent[3]["content"]] == ["text", "image_url", "image_url"]


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (result("1"), "(no output)"),
        (result("1", TextBlock(text="a"), TextBlock(text="b")), "a\nb"),
        (result("1", result="plain"), "plain"),
        (result("1", result={"b": 1, "a": [None]}), '{"b":1,"a":[null]}'),
        (result("1", result=2**70), str(2**70)),
        (result("1", error=ErrorInfo(message="no file")), "Error: no file"),
        (
            result("1", TextBlock(text="tried: no file"), error=ErrorInfo(message="no file")),
            "tried: no file",
        ),
    ],
)
async def test_every_form_of_result_becomes_text(message: Message, content: str) -> None:
    sent = await messages_of(assistant(call("1")), message)
    assert sent[1] == {"role": "tool", "tool_call_id": "1", "content": content}


async def test_foreign_blocks_are_not_sent() -> None:
    sent = await messages_of(
        user("a", OpaqueBlock(type="hologram", raw=b"{}")),
        assistant(
            NativeBlock(api="openai-responses", kind="web_search_call", data="{}"),
            TextBlock(text="b"),
        ),
        user("c"),
    )
    assert [message["content"] for message in sent] == ["a", "b", "c"]


async def test_a_system_message_stays_at_its_place() -> None:
    note = Message(role="system", content=[TextBlock(text="note")])
    assert (await messages_of(user("a"), note, user("b")))[1] == {
        "role": "system",
        "content": "note",
    }
    sent = await messages_of(user("a"), note, compat={"system_notes": "user"})
    assert sent[1]["role"] == "user"


# --- reasoning --------------------------------------------------------------------------------

HERE = ModelRef(provider="test", model="test-model", api="openai-chat")


def thought(kind: str, data: str, *, text: str = "hm", api: str = "openai-chat") -> ThinkingBlock:
    return ThinkingBlock(text=text, replay=Replay(api=api, kind=kind, data=data))


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_back_in_the_field_it_came_in(field: str) -> None:
    sent, *_ = await messages_of(
        assistant(thought("field", field), TextBlock(text="a"), call("1"), model=HERE), result("1")
    )
    assert sent[field] == "hm"
    assert sent["content"] == "a"


async def test_reasoning_details_go_back_as_they_were_and_alone() -> None:
    details = '[{"type":"reasoning.text","text":"hm","signature":"s","index":0}]'
    sent, _ = await messages_of(
        assistant(thought("details", details), TextBlock(text="a"), model=HERE), user("b")
    )
    assert sent["reasoning_details"] == [
        {"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}
    ]
    assert "reasoning" not in sent


async def test_reasoning_that_came_as_parts_goes_back_as_parts() -> None:
    sent, _ = await messages_of(
        assistant(thought("field", "content.thinking"), TextBlock(text="a"), model=HERE), user("b")
    )
    assert sent["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
    ]


@pytest.mark.parametrize(
    ("writer", "block"),
    [
        (ModelRef(provider="test", model="other"), thought("field", "reasoning")),
        (ModelRef(provider="other", model="test-model"), thought("field", "reasoning")),
        (
            ModelRef(provider="test", model="test-model", api="anthropic-messages"),
            thought("field", "reasoning"),
        ),
        (HERE, thought("signature", "s", api="anthropic-messages")),
        (HERE, ThinkingBlock(text="hm", signature="s")),
    ],
)
async def test_foreign_reasoning_is_left_out(writer: ModelRef, block: ThinkingBlock) -> None:
    sent, _ = await messages_of(assistant(block, TextBlock(text="a"), model=writer), user("b"))
    assert sent == {"role": "assistant", "content": "a"}


async def test_an_endpoint_can_refuse_reasoning() -> None:
    sent, _ = await messages_of(
        assistant(thought("field", "reasoning"), TextBlock(text="a"), model=HERE),
        user("b"),
        compat={"thinking_out": False},
    )
    assert sent == {"role": "assistant", "content": "a"}


# --- switches ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("switch", "request_", "key", "value"),
    [
        ({"max_tokens_field": "n"}, ask(config={"parameters": {"maxTokens": 5}}), "n", 5),
        ({"stream_usage": False}, ask(), "stream_options", None),
        ({"store_false": True}, ask(), "store", False),
        ({"tools_with_history": True}, ask(assistant(call("1")), result("1")), "tools", []),
        ({"tools_with_history": True}, ask(), "tools", None),
        ({"response_format": "json_object"}, ask(output_schema={"type": "object"}),
         "response_format", {"type": "json_object"}),
        ({}, ask(output_schema={"type": "object"}), "response_format",
         {"type": "json_schema", "json_schema": {"name": "output", "schema": {"type": "object"}}}),
        ({"body": {"top_k": 4}}, ask(), "top_k", 4),
        ({"maxTokensField": "n"}, ask(config={"parameters": {"max_tokens": 5}}), "n", 5),
    ],
)  # fmt: skip
async def test_a_switch_changes_the_body(
    switch: dict[str, Any], request_: ProviderRequest, key: str, value: Any
) -> None:
    assert (await body_of(request_, compat=switch)).get(key) == value


async def test_switches_of_messages() -> None:
    parts = await messages_of(user("a"), system=["S", "T"], compat={"merge_system": False})
    assert [message["content"] for message in parts] == ["S", "T", "a"]
    developer = await messages_of(user("a"), system=["S"], compat={"developer_role": True})
    assert developer[0]["role"] == "developer"
    turns = (assistant(call("1")), result("1", result="r"), user("a"))
    named = await messages_of(*turns, compat={"tool_result_name": True})
    assert named[1]["name"] == "add"
    spaced = await messages_of(*turns, compat={"assistant_after_tool": True})
    assert [message["role"] for message in spaced] == ["assistant", "tool", "assistant", "user"]


async def test_strict_tools_are_sent_only_when_asked_for() -> None:
    request = ask(tools=[ADD, ToolSpec(name="now", description="", parameters={})])
    body = await body_of(request)
    assert all("strict" not in tool["function"] for tool in body["tools"])
    assert body["tools"][1]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert "tool_choice" not in body
    strict = await body_of(request, compat={"strict_tools": True})
    assert all(tool["function"]["strict"] for tool in strict["tools"])


@pytest.mark.parametrize("choice", ["required", {"name": "add"}])
async def test_a_call_that_cannot_be_forced_is_left_to_the_model(choice: Any) -> None:
    options = ProviderOptions(tool_choice=choice)
    request = ask(model="moonshotai/Kimi-K2", tools=[ADD], options=options)
    sent, reading = await send(request)
    assert sent.body["tool_choice"] == "auto"
    assert reading.notices == ["tool_choice_downgraded"]


@pytest.mark.parametrize("choice", ["maybe", {}, {"name": 1}])
async def test_an_unknown_tool_choice_is_refused(choice: Any) -> None:
    options = ProviderOptions(tool_choice=choice)
    provider = OpenAIChatProvider(base_url=PLAIN, transport=MemoryTransport(Answer([sse()])))
    reading = read(await collect(provider, ask(tools=[ADD], options=options)))
    assert reading.code == "invalid_request"


async def test_the_models_switches_win_over_the_providers() -> None:
    request = ask(config={"compat": {"storeFalse": True, "thinkingFamily": "other adapters"}})
    assert (await body_of(request, compat={"store_false": False}))["store"] is False
    wrong = ask(config={"compat": {"storeFalse": "yes"}})
    provider = OpenAIChatProvider(base_url=PLAIN, transport=MemoryTransport(Answer([sse()])))
    assert read(await collect(provider, wrong)).code == "invalid_request"


@pytest.mark.parametrize("compat", [{"nonsense": 1}, {"store_false": "yes"}, {"id_style": "x"}])
def test_a_wrong_switch_of_the_provider_is_refused(compat: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="compat"):
        OpenAIChatProvider(transport=MemoryTransport(), compat=compat)


async def test_later_fragments_of_the_body_win_and_none_takes_what_is_ours() -> None:
    options = ProviderOptions(
        compat={"thinking": {"level": "low", "body": {"reasoning_effort": "low", "a": 2, "b": 2}}},
        extra={"body": {"b": 3, "model": "mine", "messages": []}},
    )
    sent, reading = await send(
        ask(user("Hi"), options=options), compat={"body": {"a": 1, "c": 1, "stream": False}}
    )
    body = sent.body
    assert (body["reasoning_effort"], body["a"], body["b"], body["c"]) == ("low", 2, 3, 1)
    assert (body["model"], body["stream"]) == ("test-model", True)
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert reading.notices == ["body_key_ignored"] * 3


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9"])
async def test_max_tokens_must_be_a_positive_integer(value: Any) -> None:
    provider = OpenAIChatProvider(base_url=PLAIN, transport=MemoryTransport(Answer([sse()])))
    request = ask(config={"parameters": {"maxTokens": value}})
    reading = read(await collect(provider, request))
    assert reading.code == "invalid_request"
    assert reading.error is not None
    assert "maxTokens" in reading.error.message


@pytest.mark.parametrize("name", ["parallelToolCalls", "parallel_tool_calls"])
async def test_calls_one_at_a_time_are_asked_for_only_beside_tools(name: str) -> None:
    config = {"parameters": {name: False}}
    assert (await body_of(ask(config=config, tools=[ADD])))["parallel_tool_calls"] is False
    sent, reading = await send(ask(config=config))
    assert "parallel_tool_calls" not in sent.body
    assert reading.notices == []


async def test_an_unknown_parameter_is_named() -> None:
    sent, reading = await send(ask(config={"parameters": {"topK": 3, "seed": 7}}))
    assert sent.body["seed"] == 7
    assert "topK" not in sent.body
    assert reading.notices == ["parameter_ignored"]


# --- ids --------------------------------------------------------------------------------------


async def test_ids_are_mapped_alike_on_call_and_result() -> None:
    long, short = "toolu_" + "x" * 60, "functions.add:0"
    sent = await messages_of(assistant(call(long), call(short)), result(long), result(short))
    ids = [item["id"] for item in sent[0]["tool_calls"]]
    assert ids == [sent[1]["tool_call_id"], sent[2]["tool_call_id"]]
    assert ids[1] == short
    assert len(ids[0]) <= 40
    mistral = await messages_of(
        assistant(call(long), call("abcDEF123")), result(long), result("abcDEF123"), id="mistral"
    )
    ids = [item["id"] for item in mistral[0]["tool_calls"]]
    assert ids[1] == "abcDEF123"
    assert len(ids[0]) == 9
    assert ids[0].isalnum()


@given(st.lists(st.text(st.sampled_from("ab_|"), min_size=1, max_size=12), unique=True))
def test_two_ids_never_become_one(ids: list[str]) -> None:
    # Two letters make 3844 ids: collisions happen, and are stepped around.
    mapped = IdMap(lambda text: len(text) == 2 and text.isalnum(), length=2)
    sent = [mapped[call_id] for call_id in ids]
    assert len(set(sent)) == len(ids)
    assert [mapped[call_id] for call_id in ids] == sent
    assert all(len(text) == 2 for text in sent)


# --- text -------------------------------------------------------------------------------------


async def test_lone_surrogates_and_nul_are_replaced_in_the_copy_that_is_sent() -> None:
    request = ask(
        user("a\ud83d b\x00", "\ud83d\ude00"),
        assistant(call("1", arguments={"k\udc00": ["\ud83d\ude00\x00", 2**70]})),
        result("1", result={"x": "\udfff"}),
        system=["\ud800"],
        tools=[ToolSpec(name="t", description="\udc00\x00", parameters={})],
    )
    body = await body_of(request)
    messages = body["messages"]
    assert messages[0]["content"] == "\ufffd"
    assert messages[1]["content"] == "a\ufffd b\ufffd\n\n😀"
    arguments = messages[2]["tool_calls"][0]["function"]["arguments"]
    assert arguments == '{"k\ufffd":["😀\ufffd",1180591620717411303424]}'
    assert messages[3]["content"] == '{"x":"\ufffd"}'
    assert body["tools"][0]["function"]["description"] == "\ufffd\ufffd"
    assert request.messages[0].text == "a\ud83d b\x00\ud83d\ude00"


async def test_text_that_only_looks_like_an_escaped_nul_stays() -> None:
    text = r"\u0000 and \\u0000"
    sent = await messages_of(user(text), assistant(call("1", arguments={"a": text})), result("1"))
    assert sent[0]["content"] == text
    assert r"\\u0000 and \\\\u0000" in sent[1]["tool_calls"][0]["function"]["arguments"]


async def test_arguments_that_nest_too_deep_are_refused() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    provider = OpenAIChatProvider(base_url=PLAIN, transport=MemoryTransport(Answer([sse()])))
    request = ask(assistant(call("1", arguments={"a": deep})), result("1"))
    assert read(await collect(provider, request)).code == "invalid_request"
