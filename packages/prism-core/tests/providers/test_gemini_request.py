"""What is sent to `…:streamGenerateContent`."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from prism.core._errors import UsageError
from prism.core._wire import (
    ErrorInfo,
    ImageBlock,
    Message,
    ModelConfig,
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
    GoogleProvider,
    ProviderRequest,
    ToolSpec,
    apply_thinking_level,
)

from .wire import Answer, MemoryTransport, Reading, Sent, ask, collect, read, sse, user

OWN = "https://generativelanguage.googleapis.com"
VERTEX = "https://eu-aiplatform.googleapis.com/v1/projects/p/locations/eu/publishers/google"
PICTURE = ImageBlock(mime_type="image/jpeg", data="aGk=")
INLINE = {"inlineData": {"mimeType": "image/jpeg", "data": "aGk="}}
ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={
        "$schema": "x",
        "type": "object",
        "properties": {
            "a": {"type": "integer", "exclusiveMinimum": 0},
            "b": {"type": "array", "items": {"anyOf": [{"type": "string", "const": "x"}]}},
        },
        "additionalProperties": False,
    },
)


async def send(
    request: ProviderRequest, *, base_url: str = OWN, **provider: Any
) -> tuple[Sent, Reading]:
    transport = MemoryTransport(Answer([sse({"candidates": [{"finishReason": "STOP"}]}, end=b"")]))
    adapter = GoogleProvider(base_url=base_url, transport=transport, **provider)
    reading = read(await collect(adapter, request))
    assert reading.error is None, reading.error
    return transport.sent[0], reading


async def body_of(request: ProviderRequest, **provider: Any) -> dict[str, Any]:
    return (await send(request, **provider))[0].body


async def error_of(request: ProviderRequest) -> Any:
    return read(await collect(GoogleProvider(transport=MemoryTransport()), request)).code


async def contents_of(
    *messages: Message, model: str = "gemini-3-pro", **provider: Any
) -> list[dict[str, Any]]:
    return (await body_of(ask(*messages, model=model), **provider))["contents"]


def writer(model: str = "gemini-3-pro", api: str = "gemini") -> ModelRef:
    return ModelRef(provider="test", model=model, api=api)


def signed(data: str) -> Replay:
    return Replay(api="gemini", kind="signature", data=data)


def call(call_id: str, signature: str | None = None, **arguments: Any) -> ToolCallBlock:
    replay = None if signature is None else signed(signature)
    return ToolCallBlock(id=call_id, name="add", arguments=arguments, replay=replay)


def model_says(*content: ContentBlock, by: ModelRef | None = None, **more: Any) -> Message:
    return Message(role="assistant", content=list(content), model=by or writer(), **more)


def result(call_id: str, *content: ContentBlock, **more: Any) -> Message:
    block = ToolResultBlock(tool_call_id=call_id, name="add", content=list(content) or None, **more)
    return Message(role="tool", content=[block])


async def test_a_whole_conversation_with_tools() -> None:
    request = ask(
        user("What is 1+2?"),
        model_says(TextBlock(text="Let me see."), call("c1", "s1", b=2, a=1)),
        result("c1", result=3),
        model_says(TextBlock(text="3"), TextBlock(text="", replay=signed("s2"))),
        user("Thanks"),
        model="gemini-3-pro",
        system=["Be brief.", " ", "Be kind."],
        tools=[ADD, ToolSpec(name="now", description="", parameters={})],
        config={"parameters": {"maxTokens": 100, "temperature": 0.5, "stop": "END"}},
        options=ProviderOptions(tool_choice={"name": "add"}, cache_retention="long"),
    )
    sent, reading = await send(request, credential="secret")
    assert reading.notices == []
    assert sent.url == f"{OWN}/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert sent.headers["x-goog-api-key"] == "secret"
    assert "secret" not in sent.url
    schema = {key: value for key, value in ADD.parameters.items() if key != "$schema"}
    assert sent.body == {
        "generationConfig": {"maxOutputTokens": 100, "temperature": 0.5, "stopSequences": ["END"]},
        "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "add",
                        "description": "Add two numbers.",
                        "parametersJsonSchema": schema,
                    },
                    {
                        "name": "now",
                        "parametersJsonSchema": {"type": "object", "properties": {}},
                    },
                ]
            }
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "What is 1+2?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Let me see."},
                    {
                        "functionCall": {"name": "add", "args": {"b": 2, "a": 1}, "id": "c1"},
                        "thoughtSignature": "s1",
                    },
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "add", "id": "c1", "response": {"output": "3"}}}
                ],
            },
            {
                "role": "model",
                "parts": [{"text": "3"}, {"text": "", "thoughtSignature": "s2"}],
            },
            {"role": "user", "parts": [{"text": "Thanks"}]},
        ],
    }


@pytest.mark.parametrize(
    ("base_url", "model", "url"),
    [
        (OWN, "models/x", f"{OWN}/v1beta/models/x"),
        (OWN, "tunedModels/my x", f"{OWN}/v1beta/tunedModels/my%20x"),
        (f"{OWN}/v1alpha/", "x", f"{OWN}/v1alpha/models/x"),
        ("https://a.test/gw", "x", "https://a.test/gw/v1beta/models/x"),
        (VERTEX, "x", f"{VERTEX}/models/x"),
    ],
)
async def test_the_address(base_url: str, model: str, url: str) -> None:
    sent, _ = await send(ask(model=model), base_url=base_url)
    assert sent.url == f"{url}:streamGenerateContent?alt=sse"


async def test_vertex_takes_a_token_and_no_ids() -> None:
    sent, _ = await send(
        ask(user("a"), model_says(call("c1")), result("c1"), model="gemini-3-pro"),
        base_url=VERTEX,
        credential="token",
    )
    assert sent.headers["authorization"] == "Bearer token"
    assert "x-goog-api-key" not in sent.headers
    _, calling, answering = sent.body["contents"]
    assert "id" not in calling["parts"][0]["functionCall"]
    assert "id" not in answering["parts"][0]["functionResponse"]


# --- contents ---------------------------------------------------------------------------------


async def test_results_of_a_step_stand_together_before_what_the_user_said() -> None:
    sent = await contents_of(
        user("a"),
        model_says(call("c1", "s"), call("c2")),
        result("c1", TextBlock(text="x"), TextBlock(text="y")),
        result("c2", error=ErrorInfo(message="no file")),
        user("b"),
    )
    assert [content["role"] for content in sent] == ["user", "model", "user"]
    first, second, said = sent[2]["parts"]
    assert first == {
        "functionResponse": {"name": "add", "id": "c1", "response": {"output": "x\ny"}}
    }
    assert second["functionResponse"]["response"].keys() == {"error"}
    assert "no file" in second["functionResponse"]["response"]["error"]
    assert said == {"text": "b"}


async def test_images_in_results_are_native_from_the_third_generation_on() -> None:
    messages = (
        user("a"),
        model_says(call("c1")),
        result("c1", TextBlock(text="x"), PICTURE),
        user("b"),
    )
    new = await contents_of(*messages)
    assert new[2]["parts"][0]["functionResponse"]["parts"] == [INLINE]
    old = await contents_of(*messages, model="gemini-2.5-pro")
    assert [content["role"] for content in old] == ["user", "model", "user", "user"]
    assert old[2]["parts"][0]["functionResponse"]["response"] == {"output": "x"}
    assert INLINE in old[3]["parts"]
    assert old[3]["parts"][-1] == {"text": "b"}


@pytest.mark.parametrize(
    ("image", "part"),
    [
        (PICTURE, INLINE),
        (ImageBlock(data="aGk="), {"inlineData": {"mimeType": "image/png", "data": "aGk="}}),
        (
            ImageBlock(url="data:image/webp;base64,aGk="),
            {"inlineData": {"mimeType": "image/webp", "data": "aGk="}},
        ),
        (
            ImageBlock(url="https://a.test/x.png?y"),
            {"fileData": {"mimeType": "image/png", "fileUri": "https://a.test/x.png?y"}},
        ),
        (ImageBlock(url="gs://a/x"), {"fileData": {"fileUri": "gs://a/x"}}),
    ],
)
async def test_images(image: ImageBlock, part: dict[str, Any]) -> None:
    (content,) = await contents_of(user("Look:", image))
    assert content["parts"] == [{"text": "Look:"}, part]


async def test_images_that_cannot_be_taken_become_text() -> None:
    sent, reading = await send(ask(user("a", ImageBlock(mime_type="image/gif", data="aGk="))))
    assert sent.body["contents"][0]["parts"][1].keys() == {"text"}
    assert len(reading.notices) == 1


async def test_signatures_go_back_on_their_own_parts() -> None:
    code = {"executableCode": {"code": "1+1"}, "thoughtSignature": "s3"}
    sent = await contents_of(
        user("a"),
        model_says(
            ThinkingBlock(text="hm", signature="s1", replay=signed("s1")),
            TextBlock(text="b", replay=signed("s2")),
            TextBlock(text="c"),
            NativeBlock(api="gemini", kind="executableCode", data=json.dumps(code)),
            NativeBlock(api="gemini", kind="broken", data="{"),
            PICTURE,
            NativeBlock(api="gemini", kind="imageSignature", data="s4"),
        ),
        user("d"),
    )
    assert sent[1]["parts"] == [
        {"text": "hm", "thought": True, "thoughtSignature": "s1"},
        {"text": "b", "thoughtSignature": "s2"},
        {"text": "c"},
        code,
        {**INLINE, "thoughtSignature": "s4"},
    ]


STAND_IN = "skip_thought_signature_validator"


@pytest.mark.parametrize(
    ("model", "by", "first"),
    [
        ("gemini-3-pro", None, "s"),
        ("gemini-3-pro", writer("gemini-3-flash"), STAND_IN),
        ("gemini-4-pro", writer("gpt-6", api="openai-responses"), STAND_IN),
        ("gemini-flash-latest", writer("x"), STAND_IN),
        ("gemini-2.5-pro", writer("gemini-3-pro"), None),
        ("gemma-4", writer("gemini-3-pro"), None),
    ],
)
async def test_the_first_call_of_a_step_is_signed(
    model: str, by: ModelRef | None, first: str | None
) -> None:
    sent = await contents_of(
        user("a"),
        model_says(call("c1", "s"), call("c2"), by=by),
        result("c1"),
        result("c2"),
        model=model,
    )
    signatures = [part.get("thoughtSignature") for part in sent[1]["parts"]]
    assert signatures == [first, None]


async def test_foreign_reasoning_and_blocks_are_left_out() -> None:
    by = ModelRef(provider="anthropic", model="claude-opus-5-5", api="anthropic-messages")
    sent = await contents_of(
        user("a"),
        model_says(
            ThinkingBlock(text="hm", signature="s"),
            NativeBlock(api="anthropic-messages", kind="server_tool_use", data="{}"),
            TextBlock(text="b"),
            by=by,
        ),
        user("c"),
    )
    assert sent[1]["parts"] == [{"text": "b"}]


async def test_a_conversation_begins_with_the_user_and_never_ends_with_the_model() -> None:
    sent = await contents_of(model_says(TextBlock(text="a")), user("b"))
    assert [content["role"] for content in sent] == ["user", "model", "user"]
    ending = ask(user("a"), model_says(TextBlock(text="b"), stop_reason="stop"))
    assert await error_of(ending) == "invalid_request"


async def test_a_system_message_in_the_middle_is_the_users() -> None:
    note = Message(role="system", content=[TextBlock(text="note")])
    (content,) = await contents_of(user("a"), note)
    assert content == {"role": "user", "parts": [{"text": "a"}, {"text": "note"}]}


# --- the rest of the body -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "strict", "sent"),
    [
        (None, False, None),
        (None, True, {"mode": "VALIDATED"}),
        ("auto", False, {"mode": "AUTO"}),
        ("auto", True, {"mode": "VALIDATED"}),
        ("none", True, {"mode": "NONE"}),
        ("required", False, {"mode": "ANY"}),
    ],
)
async def test_tool_choices(choice: Any, sent: Any, *, strict: bool) -> None:
    options = ProviderOptions(tool_choice=choice)
    body = await body_of(ask(tools=[ADD], options=options), compat={"strict_tools": strict})
    assert body.get("toolConfig", {}).get("functionCallingConfig") == sent
    assert "toolConfig" not in await body_of(ask(options=options))


@pytest.mark.parametrize("choice", ["maybe", {}, {"name": 1}])
async def test_an_unknown_tool_choice_is_refused(choice: Any) -> None:
    options = ProviderOptions(tool_choice=choice)
    assert await error_of(ask(tools=[ADD], options=options)) == "invalid_request"


async def test_old_hosts_get_what_open_api_knows_of_a_schema() -> None:
    body = await body_of(ask(tools=[ADD]), compat={"schema_field": "parameters"})
    (tools,) = body["tools"]
    assert tools["functionDeclarations"][0]["parameters"] == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "array", "items": {"anyOf": [{"type": "string"}]}},
        },
    }


async def test_the_vendors_own_tools_stand_beside_ours() -> None:
    compat: dict[str, Any] = {"serverTools": [{"googleSearch": {}}]}
    body = await body_of(ask(tools=[ADD]), compat=compat)
    assert [list(tool) for tool in body["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert (await body_of(ask(), compat=compat))["tools"] == [{"googleSearch": {}}]
    assert "tools" not in await body_of(ask())


async def test_parameters() -> None:
    parameters = {"topP": 0.5, "top_k": 4, "seed": 1, "user": "u", "temperature": None}
    sent, reading = await send(ask(config={"parameters": parameters}))
    assert sent.body["generationConfig"] == {"topP": 0.5, "topK": 4, "seed": 1}
    assert reading.notices == ["parameter_ignored"]
    assert "generationConfig" not in await body_of(ask())
    assert await error_of(ask(config={"parameters": {"maxTokens": 0}})) == "invalid_request"


async def test_an_output_schema_asks_for_json() -> None:
    body = await body_of(ask(output_schema={"type": "object"}))
    assert body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
    }


async def test_fragments_of_the_body_are_merged_into_the_configuration() -> None:
    options = ProviderOptions(
        compat={
            "thinking": {"body": {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}}}
        },
        extra={"body": {"generationConfig": {"seed": 1}, "contents": [], "cachedContent": "c"}},
    )
    request = ask(options=options, config={"parameters": {"maxTokens": 5}})
    compat = {"body": {"generationConfig": {"responseModalities": ["TEXT"]}}}
    sent, reading = await send(request, compat=compat)
    assert sent.body["generationConfig"] == {
        "maxOutputTokens": 5,
        "responseModalities": ["TEXT"],
        "thinkingConfig": {"thinkingLevel": "LOW"},
        "seed": 1,
    }
    assert sent.body["cachedContent"] == "c"
    assert reading.notices == ["body_key_ignored"]


@pytest.mark.parametrize("level", THINKING_LEVELS)
@pytest.mark.parametrize(
    "model",
    ["gemini-2.5-pro", "gemini-2.5-flash-lite", "gemini-3-flash", "gemini-3.1-pro", "gemini-4-pro"],
)
async def test_every_family_and_level_makes_a_body(model: str, level: str) -> None:
    config = ModelConfig(provider="test", model=model)
    options, _ = apply_thinking_level(ProviderOptions(), config, level, api="gemini")
    body = await body_of(
        ask(model=model, options=options, config={"parameters": {"maxTokens": 2_000}})
    )
    thinking = body["generationConfig"]["thinkingConfig"]
    # Both together are refused.
    assert len({"thinkingBudget", "thinkingLevel"} & thinking.keys()) == 1
    assert body["generationConfig"]["maxOutputTokens"] == 2_000


async def test_turns_share_their_prefix_byte_by_byte() -> None:
    transport = MemoryTransport(Answer([sse({"candidates": [{"finishReason": "STOP"}]}, end=b"")]))
    adapter = GoogleProvider(transport=transport)
    messages: list[Message] = []
    for turn in range(10):
        messages += [user(f"do {turn} ü"), model_says(call(f"c{turn}", n=turn))]
        messages.append(result(f"c{turn}", PICTURE, result={"n": turn}))
        await collect(adapter, ask(*messages, model="gemini-3-pro", system=["S"], tools=[ADD]))
        messages.append(model_says(TextBlock(text="done")))
    bodies = [sent.content for sent in transport.sent]
    for before, after in pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}"))


@pytest.mark.parametrize("compat", [{"nonsense": 1}, {"call_ids": "yes"}, {"schema_field": "x"}])
def test_a_wrong_switch_of_the_provider_is_refused(compat: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="compat"):
        GoogleProvider(transport=MemoryTransport(), compat=compat)


async def test_the_models_switches_win_over_the_providers() -> None:
    request = ask(model="x", config={"compat": {"apiVersion": "v2"}})
    sent, _ = await send(request, compat={"api_version": "v3"})
    assert "/v2/models/x:" in sent.url
    assert await error_of(ask(config={"compat": {"callIds": "yes"}})) == "invalid_request"
