"""The bodies that go out to Responses endpoints."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from prism.core._errors import UsageError
from prism.core._wire import (
    ContentBlock,
    ErrorInfo,
    ImageBlock,
    Message,
    ModelCapabilities,
    ModelRef,
    NativeBlock,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.providers import (
    OpenAIResponsesProvider,
    ProviderOptions,
    ProviderRequest,
    ToolSpec,
    apply_thinking_level,
)

from .wire import Answer, MemoryTransport, Reading, Sent, ask, collect, read, sse, user

PLAIN = "https://vendor.test/v1"
OPENAI = "https://api.openai.com/v1"
API = "openai-responses"
HERE = ModelRef(provider="test", model="test-model", api=API)
PICTURE = ImageBlock(data="aGk=", mime_type="image/jpeg")
ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"type": "integer"}},
    },
)
DONE = sse({"type": "response.completed", "response": {}}, end=b"")


async def send(
    request: ProviderRequest, *, base_url: str = PLAIN, **provider: Any
) -> tuple[Sent, Reading]:
    transport = MemoryTransport(Answer([DONE]))
    asked = OpenAIResponsesProvider(base_url=base_url, transport=transport, **provider)
    events = await collect(asked, request)
    return transport.sent[0], read(events)


async def body_of(request: ProviderRequest, **provider: Any) -> Any:
    return (await send(request, **provider))[0].body


async def input_of(*messages: Message, **more: Any) -> Any:
    provider = {name: more.pop(name) for name in ("base_url", "compat") if name in more}
    return (await body_of(ask(*messages, **more), **provider))["input"]


async def refusal_of(request: ProviderRequest, **provider: Any) -> Reading:
    transport = MemoryTransport(Answer([DONE]))
    asked = OpenAIResponsesProvider(base_url=PLAIN, transport=transport, **provider)
    reading = read(await collect(asked, request))
    assert transport.sent == []
    assert reading.code == "invalid_request"
    return reading


def assistant(*content: ContentBlock, **fields: Any) -> Message:
    fields.setdefault("model", HERE)
    return Message(role="assistant", content=list(content), **fields)


def call(call_id: str = "call_1", **fields: Any) -> ToolCallBlock:
    given: dict[str, Any] = {"id": call_id, "name": "add", "arguments": {"a": 1}, **fields}
    return ToolCallBlock(**given)


def result(call_id: str = "call_1", *content: ContentBlock, **fields: Any) -> Message:
    block = ToolResultBlock(
        tool_call_id=call_id, name="add", content=list(content) or None, **fields
    )
    return Message(role="tool", content=[block])


def thought(data: str, item_id: str = "rs_1") -> ThinkingBlock:
    replay = Replay(api=API, kind="item", data=data, item_id=item_id)
    return ThinkingBlock(text="hm", replay=replay)


def item(item_id: str | None = None, phase: str | None = None, data: str = "") -> Replay:
    return Replay(api=API, kind="item", data=data, item_id=item_id, phase=phase)


RAW = '{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"x","n":1.50}'


# --- the whole body ---------------------------------------------------------------------------


async def test_the_body_of_a_whole_conversation() -> None:
    request = ask(
        user("What is 1+1?", PICTURE),
        assistant(
            thought(RAW),
            TextBlock(text="Let me add.", replay=item("msg_1", "commentary")),
            call(replay=item("fc_1")),
        ),
        result("call_1", result={"sum": 2}),
        Message(role="system", content=[TextBlock(text="Be quick.")]),
        user("And?"),
        system=["Be brief.", " ", "Be kind."],
        tools=[ADD],
        config={"parameters": {"maxTokens": 100, "temperature": 0.5, "parallelToolCalls": False}},
        output_schema={"type": "object"},
        options=ProviderOptions(session_id="s1", tool_choice="required"),
    )
    sent, reading = await send(request)
    assert sent.url == f"{PLAIN}/responses"
    assert reading.notices == []
    assert RAW.encode() in sent.content, "verbatim, to the last digit"
    assert sent.body == {
        "model": "test-model",
        "input": [
            {
                "role": "developer",
                "content": [
                    {"type": "input_text", "text": "Be brief."},
                    {"type": "input_text", "text": "Be kind."},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is 1+1?"},
                    {
                        "type": "input_image",
                        "image_url": "data:image/jpeg;base64,aGk=",
                        "detail": "auto",
                    },
                ],
            },
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [],
                "encrypted_content": "x",
                "n": 1.5,
            },
            {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Let me add.", "annotations": []}],
                "id": "msg_1",
                "phase": "commentary",
            },
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "add",
                "arguments": '{"a":1}',
                "id": "fc_1",
            },
            {"type": "function_call_output", "call_id": "call_1", "output": '{"sum":2}'},
            {"role": "developer", "content": [{"type": "input_text", "text": "Be quick."}]},
            {"role": "user", "content": [{"type": "input_text", "text": "And?"}]},
        ],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream_options": {"include_obfuscation": False},
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": "Add two numbers.",
                "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
                "strict": False,
            }
        ],
        "tool_choice": "required",
        "max_output_tokens": 100,
        "temperature": 0.5,
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_schema", "name": "output", "schema": {"type": "object"}}},
    }


async def test_the_smallest_body() -> None:
    assert await body_of(ask()) == {
        "model": "test-model",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream_options": {"include_obfuscation": False},
    }


# --- items ------------------------------------------------------------------------------------


async def test_ids_go_back_only_behind_the_reasoning_they_belong_to() -> None:
    said = TextBlock(text="a", replay=item("msg_1", "final_answer"))
    items = await input_of(user("x"), assistant(said, call(replay=item("fc_1"))), result())
    assert "id" not in items[1]
    assert items[1]["phase"] == "final_answer"
    assert "id" not in items[2]
    long = item("m" * 65)
    items = await input_of(
        user("x"), assistant(thought(RAW), TextBlock(text="a", replay=long)), user("y")
    )
    assert "id" not in items[2]


async def test_reasoning_that_nothing_follows_is_left_out() -> None:
    items = await input_of(
        user("x"),
        assistant(TextBlock(text="a"), thought(RAW)),
        user("y"),
        assistant(thought(RAW)),
        user("z"),
    )
    assert [one.get("type", one.get("role")) for one in items] == [
        "user", "message", "user", "user",
    ]  # fmt: skip


@pytest.mark.parametrize("data", ["", "{broken", "[1]", "\ud83d"])
async def test_reasoning_that_is_no_item_is_left_out(data: str) -> None:
    items = await input_of(user("x"), assistant(thought(data), TextBlock(text="a")), user("y"))
    assert [one.get("type") for one in items] == [None, "message", None]


async def test_items_of_the_vendors_own_go_back_verbatim() -> None:
    search = '{"type":"web_search_call","id":"ws_1","status":"completed","n":1.0}'
    compaction = '{"type":"compaction","id":"cmp_1","encrypted_content":"e"}'
    answer = assistant(
        NativeBlock(api=API, kind="web_search_call", data=search),
        NativeBlock(api=API, kind="compaction", data=compaction),
        TextBlock(text="a"),
    )
    sent, _ = await send(ask(user("x"), answer, user("y")))
    assert search.encode() in sent.content
    assert compaction.encode() in sent.content
    file = NativeBlock(api=API, kind="input_file", data='{"type":"input_file","file_id":"f"}')
    (asked,) = await input_of(user("read", file))
    assert asked["content"][1] == {"type": "input_file", "file_id": "f"}


async def test_results_hold_images() -> None:
    turns = (user("x"), assistant(call()), result("call_1", TextBlock(text="see"), PICTURE))
    output = (await input_of(*turns))[2]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image"]
    plain = await input_of(*turns, compat={"result_images": False})
    assert plain[2]["output"] == "see"
    assert [part["type"] for part in plain[3]["content"]] == ["input_text", "input_image"]
    text_only = {"capabilities": ModelCapabilities(input=["text"])}
    blind = await input_of(*turns, config=text_only)
    assert blind[2]["output"] == "see\n(image omitted: the model has no image input)"


async def test_an_error_is_told_in_the_output() -> None:
    error = ErrorInfo(message="no file", name="OSError")
    items = await input_of(user("x"), assistant(call()), result("call_1", error=error))
    assert items[2]["output"] == "Error (OSError): no file"


@pytest.mark.parametrize("call_id", ["call_1", "call_a|fc_b", "x" * 80, "trailing_"])
async def test_ids_are_mapped_alike_on_call_and_output(call_id: str) -> None:
    items = await input_of(user("x"), assistant(call(call_id)), result(call_id))
    assert items[1]["call_id"] == items[2]["call_id"]
    assert len(items[1]["call_id"]) <= 64
    assert (items[1]["call_id"] == call_id) == (call_id == "call_1")


async def test_lone_surrogates_and_nul_are_replaced_in_the_copy_that_is_sent() -> None:
    answer = assistant(thought(RAW), call(arguments={"k\udc00": "\x00"}))
    sent, _ = await send(ask(user("a\ud83d", "\x00"), answer, result("call_1", result="\x00")))
    items = sent.body["input"]
    assert [part["text"] for part in items[0]["content"]] == ["a\ufffd", "\ufffd"]
    assert items[2]["arguments"] == '{"k\ufffd":"\ufffd"}'
    assert items[3]["output"] == "\ufffd"


# --- tools ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        (ProviderOptions(), None),
        (ProviderOptions(tool_choice="auto"), "auto"),
        (ProviderOptions(tool_choice="none"), "none"),
        (ProviderOptions(tool_choice={"name": "add"}), {"type": "function", "name": "add"}),
        (
            ProviderOptions(compat={"allowedTools": ["add"]}),
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "add"}],
            },
        ),
        (
            ProviderOptions(tool_choice="required", compat={"allowedTools": []}),
            {"type": "allowed_tools", "mode": "required", "tools": []},
        ),
        (ProviderOptions(tool_choice="none", compat={"allowedTools": ["add"]}), "none"),
    ],
)
async def test_which_tools_may_be_called(options: ProviderOptions, choice: Any) -> None:
    body = await body_of(ask(tools=[ADD], options=options))
    assert body.get("tool_choice") == choice
    assert [one["name"] for one in body["tools"]] == ["add"], "the tools stay as they are"


@pytest.mark.parametrize(
    "options",
    [
        ProviderOptions(tool_choice="maybe"),
        ProviderOptions(tool_choice={}),
        ProviderOptions(compat={"allowedTools": ["unknown"]}),
        ProviderOptions(compat={"allowedTools": "add"}),
    ],
)
async def test_a_wrong_choice_of_tools_is_refused(options: ProviderOptions) -> None:
    await refusal_of(ask(tools=[ADD], options=options))


async def test_a_call_that_cannot_be_forced_is_left_to_the_model() -> None:
    options = ProviderOptions(tool_choice="required")
    request = ask(model="openai/gpt-oss-20b", tools=[ADD], options=options)
    sent, reading = await send(request)
    assert sent.body["tool_choice"] == "auto"
    assert reading.notices == ["tool_choice_downgraded"]


# --- reasoning --------------------------------------------------------------------------------


def thinking(effort: str | None, **more: Any) -> ProviderOptions:
    body = {"reasoning": {"effort": effort, "summary": "auto"}}
    return ProviderOptions(compat={"thinking": {"level": effort, "body": body, **more}})


@pytest.mark.parametrize("model", ["o3", "gpt-5.5", "gpt-6-sol"])
async def test_a_model_that_reasons_takes_no_sampling(model: str) -> None:
    sampling = {"parameters": {"temperature": 1, "topP": 0.5, "topLogprobs": 2}}
    include = ["reasoning.encrypted_content", "message.output_text.logprobs"]
    options = ProviderOptions(extra={"body": {"include": include}})
    sent, reading = await send(ask(model=model, config=sampling, options=options))
    assert not {"temperature", "top_p", "top_logprobs"} & sent.body.keys()
    assert sent.body["include"] == ["reasoning.encrypted_content"]
    assert reading.notices == ["sampling_dropped"]
    quiet = await body_of(ask(model=model, config=sampling, options=thinking("none")))
    assert quiet["temperature"] == 1


async def test_what_the_thinking_level_refuses_is_left_out() -> None:
    sampling = {"parameters": {"temperature": 1}}
    sent, reading = await send(ask(config=sampling, options=thinking("high", drop=["temperature"])))
    assert "temperature" not in sent.body
    assert reading.notices == ["sampling_dropped"]


async def test_a_level_becomes_the_models_own_body() -> None:
    request = ask(model="gpt-5.5")
    options, _ = apply_thinking_level(request.options, request.model, "high", api=API)
    body = await body_of(ask(model="gpt-5.5", options=options))
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    mine = ProviderOptions(
        compat=options.compat, extra={"body": {"reasoning": {"summary": "concise"}}}
    )
    merged = await body_of(ask(model="gpt-5.5", options=mine))
    assert merged["reasoning"] == {"effort": "high", "summary": "concise"}


async def answer(text: str, history: list[Message], effort: str, model: str) -> Any:
    """Ask, and put the answer into the history as the runtime would."""
    output = {
        "type": "message",
        "id": "msg_1",
        "content": [{"type": "output_text", "text": text}],
    }
    data = sse({"type": "response.completed", "response": {"output": [output]}}, end=b"")
    transport = MemoryTransport(Answer([data]))
    provider = OpenAIResponsesProvider(id="test", base_url=OPENAI, transport=transport)
    request = ask(*history, model=model, options=thinking(effort), system=["S"])
    reading = read(await collect(provider, request))
    writer = ModelRef(provider="test", model=model, api=API)
    history.append(assistant(*reading.blocks.values(), model=writer))
    return transport.sent[0].body


def told(body: Any) -> list[Any]:
    return [
        one["reasoning"]["effort"] if one.get("type") == "configuration_update" else
        one["content"][0]["text"]
        for one in body["input"]
    ]  # fmt: skip


async def test_a_change_of_effort_is_appended_and_the_prefix_stays() -> None:
    history: list[Message] = []
    bodies: list[Any] = []
    for number, effort in enumerate(["low", "low", "high", "high", "low"]):
        history.append(user(f"u{number}"))
        bodies.append(await answer(f"a{number}", history, effort, "gpt-6.2"))
    assert [body["reasoning"]["effort"] for body in bodies] == ["low"] * 5
    assert told(bodies[1]) == ["S", "u0", "a0", "u1"]
    assert told(bodies[2]) == ["S", "u0", "a0", "u1", "a1", "u2", "high"]
    assert told(bodies[3]) == ["S", "u0", "a0", "u1", "a1", "u2", "high", "a2", "u3"]
    assert told(bodies[4])[-3:] == ["a3", "u4", "low"]
    for earlier, later in pairwise(bodies):
        assert later["input"][: len(earlier["input"])] == earlier["input"]


async def test_older_models_get_their_effort_in_the_request() -> None:
    history = [user("u0")]
    await answer("a0", history, "low", "gpt-5.5")
    history.append(user("u1"))
    body = await answer("a1", history, "high", "gpt-5.5")
    assert body["reasoning"]["effort"] == "high"
    assert told(body) == ["S", "u0", "a0", "u1"]


async def test_a_message_without_a_known_effort_changes_nothing() -> None:
    broken = TextBlock(text="a0", replay=item("msg_1", data="{broken"))
    writer = ModelRef(provider="test", model="gpt-6.2", api=API)
    history = [user("u0"), assistant(broken, model=writer), user("u1")]
    body = await answer("a1", history, "high", "gpt-6.2")
    assert body["reasoning"]["effort"] == "high"
    assert told(body) == ["S", "u0", "a0", "u1"]


# --- caching ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "retention", "expected"),
    [
        ("gpt-5.5", None, {"prompt_cache_key"}),
        ("gpt-5.5", "none", set[str]()),
        ("gpt-5.5", "long", {"prompt_cache_key", "prompt_cache_retention"}),
        ("gpt-5.6", "short", {"prompt_cache_key"}),
        ("gpt-5.6", "none", {"prompt_cache_options"}),
        ("gpt-6.1-sol", "long", {"prompt_cache_key", "prompt_cache_options"}),
    ],
)
async def test_caching_is_asked_for_as_the_models_generation_wants_it(
    model: str, retention: str | None, expected: set[str]
) -> None:
    options = ProviderOptions(session_id="user@example.test", cache_retention=retention)
    body = await body_of(ask(model=model, options=options), base_url=OPENAI)
    assert {key for key in body if key.startswith("prompt_cache")} == expected
    assert "example" not in str(body)
    if retention == "long" and model != "gpt-5.5":
        assert body["prompt_cache_options"] == {"ttl": "12h"}
    if expected == {"prompt_cache_options"}:
        assert body["prompt_cache_options"] == {"mode": "explicit"}
    elsewhere = await body_of(ask(model=model, options=options))
    assert not {key for key in elsewhere if key.startswith("prompt_cache_key")}


# --- switches ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("switch", "key", "value"),
    [
        ({"store_false": False}, "store", None),
        ({"encrypted_reasoning": False}, "include", None),
        ({"no_obfuscation": False}, "stream_options", None),
        ({"body": {"service_tier": "flex"}}, "service_tier", "flex"),
        ({"storeFalse": False}, "store", None),
    ],
)
async def test_a_switch_changes_the_body(switch: dict[str, Any], key: str, value: Any) -> None:
    assert (await body_of(ask(), compat=switch)).get(key) == value
    by_model = ask(config={"compat": {**switch, "thinkingFamily": "another adapter's"}})
    assert (await body_of(by_model)).get(key) == value


async def test_switches_of_messages() -> None:
    system = await input_of(user("a"), system=["S"], compat={"developer_role": False})
    assert system[0]["role"] == "system"
    strict = await body_of(ask(tools=[ADD]), compat={"strict_tools": True})
    assert strict["tools"][0]["strict"] is True
    turns = (user("x"), assistant(thought(RAW), TextBlock(text="a")), user("y"))
    assert len(await input_of(*turns, compat={"reasoning_out": False})) == 3
    foreign = ModelRef(provider="q", model="n", api="gemini")
    told = (user("x"), assistant(thought(RAW), TextBlock(text="a"), model=foreign), user("y"))
    items = await input_of(*told, compat={"foreign_thinking": "text"})
    assert [one["content"][0]["text"] for one in items] == ["x", "hm", "a", "y"]


@pytest.mark.parametrize("compat", [{"nonsense": 1}, {"store_false": "yes"}])
async def test_a_wrong_switch_is_refused(compat: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="compat"):
        OpenAIResponsesProvider(transport=MemoryTransport(), compat=compat)
    if "store_false" in compat:
        await refusal_of(ask(config={"compat": compat}))


async def test_azure_takes_the_key_in_a_header_of_its_own() -> None:
    base_url = "https://x.openai.azure.com/openai/v1"
    sent, _ = await send(ask(), base_url=base_url, credential="k")
    assert sent.headers["api-key"] == "k"
    assert "authorization" not in sent.headers


async def test_fragments_cannot_take_what_is_ours_and_unknown_parameters_are_named() -> None:
    options = ProviderOptions(extra={"body": {"input": [], "model": "mine", "user": "u"}})
    sent, reading = await send(ask(options=options, config={"parameters": {"stop": ["x"]}}))
    assert (sent.body["model"], sent.body["user"]) == ("test-model", "u")
    assert reading.notices == ["parameter_ignored", "body_key_ignored", "body_key_ignored"]
    await refusal_of(ask(config={"parameters": {"maxTokens": 0}}))
