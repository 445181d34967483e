"""Encoded conversations are kept: what is sent is the same, only cheaper."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prism.core import Agent, ModelConfig, tool
from prism.core._errors import ProviderError
from prism.core._wire import (
    ErrorInfo,
    Message,
    ModelRef,
    Replay,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.providers import (
    AnthropicProvider,
    GoogleProvider,
    OpenAIChatProvider,
    OpenAIResponsesProvider,
    ProviderOptions,
    ProviderRequest,
    ToolSpec,
)
from prism.core.providers._transform import Conversations, Encode, Sent, Target, transform

from .test_transform import (
    OWN,
    PICTURE,
    TARGETS,
    assistant,
    call,
    messages as histories,
    result,
    target,
)
from .wire import Answer, MemoryTransport, ask, sse, user


class Counter:
    """Encodes a message as Prism has it, and counts."""

    def __init__(self) -> None:
        self.encoded = 0

    def __call__(self) -> Encode:
        return self._encode

    def _encode(self, message: Message) -> list[Any]:
        self.encoded += 1
        return [{"role": message.role, "content": message.content}]


def render(
    kept: Conversations,
    *messages: Message,
    to: Target | None = None,
    head: bytes = b"",
    counter: Counter | None = None,
    switches: object = None,
) -> Sent:
    request = ProviderRequest(model=ModelConfig(provider="p", model="m"), messages=messages)
    return kept.render(
        request, to or target(), head=head, encoder=counter or Counter(), switches=switches
    )


def turns(count: int) -> list[Message]:
    history: list[Message] = []
    for number in range(count):
        call_id = f"call_{number}"
        history += [user(f"question {number}"), assistant(call(call_id)), result(call_id, "r")]
        history += [assistant(f"answer {number}")]
    return history


def same(left: Sent, right: Sent) -> bool:
    return (left.messages, left.items, left.starts, left.prefix) == (
        right.messages,
        right.items,
        right.starts,
        right.prefix,
    )


@given(histories, st.sampled_from(TARGETS), st.data())
def test_a_conversation_that_grew_is_sent_as_if_it_had_come_at_once(
    history: list[Message], to: Target, data: st.DataObject
) -> None:
    kept = Conversations()
    for at in range(len(history) + 1):
        part = [*history[:at], *([user("end")] if at == len(history) else [])]
        if at < len(history) and data.draw(st.booleans()):
            continue
        try:
            whole = transform(part, to)
        except ProviderError as error:
            with pytest.raises(ProviderError, match=error.message[:20]):
                render(kept, *part, to=to)
        else:
            assert same(render(kept, *part, to=to), whole)


def test_a_turn_encodes_what_it_adds_and_the_rest_only_once() -> None:
    kept, counter, history = Conversations(), Counter(), [*turns(50), user("next")]
    render(kept, *history, counter=counter)
    before = counter.encoded
    grown = [*history, assistant("a"), user("more")]
    first = render(kept, *history, counter=counter)
    render(kept, *grown, counter=counter)
    # What the model has not answered yet is laid out again.
    assert counter.encoded - before <= 4
    assert first.items == render(kept, *grown).items[: len(first.items)]


def test_what_was_sent_is_the_callers_own() -> None:
    kept, history = Conversations(), [*turns(2), user("next")]
    whole = render(kept, *history)
    expected = [*whole.items]
    whole.items.clear()
    whole.messages.clear()
    assert render(kept, *history).items == expected


def test_old_items_stand_together_and_the_last_ones_alone() -> None:
    kept, history = Conversations(), turns(200)
    for end in (4, 300, 304, 640, 800):
        sent = render(kept, *history[:end], user("next"))
        assert b",".join(sent.body) == b",".join(sent.items)
        alone = min(64, len(sent.items))
        assert sent.body[-alone:] == sent.items[-alone:]
    assert len(sent.body) < 200 < len(sent.items)


def test_messages_that_are_equal_but_not_the_same_are_found_at_the_front_alone() -> None:
    kept, counter = Conversations(), Counter()
    history = turns(20)
    render(kept, user("context"), *history, user("next"), counter=counter)
    before = counter.encoded
    grown = [user("context"), *history, history[0]]
    assert same(render(kept, *grown, counter=counter), transform(grown, target()))
    other = [user("another context"), *history, history[0]]
    assert same(render(kept, *other, counter=counter), transform(other, target()))
    assert counter.encoded - before > 80, "another context is another conversation"


def test_true_and_one_are_not_the_same_argument() -> None:
    kept = Conversations()
    rest = [result(), user("next")]
    one = [user("a"), assistant(call(arguments={"a": 1}))]
    true = [user("a"), assistant(call(arguments={"a": True}))]
    render(kept, *one, *rest)
    assert b"true" in bytes(render(kept, *true, *rest).items[1])


def test_every_branch_of_a_fork_is_sent_right() -> None:
    kept, stem = Conversations(), turns(5)
    left, right = [*stem, user("left")], [*stem, user("right")]
    for _ in range(3):
        for branch in (left, right):
            assert same(render(kept, *branch), transform(branch, target()))
            branch += [assistant("a"), user("b")]


@pytest.mark.parametrize(
    "change",
    [
        {"head": b"other tools"},
        {"to": target("openai-chat")},
        {"to": target(images=False)},
        {"switches": "other"},
    ],
)
def test_another_head_target_or_switch_is_another_conversation(change: dict[str, Any]) -> None:
    kept, counter, history = Conversations(), Counter(), [*turns(3), user("next")]
    render(kept, *history, counter=counter)
    before = counter.encoded
    render(kept, *history, counter=counter, **change)
    assert counter.encoded == 2 * before


def test_a_late_result_takes_the_place_of_the_one_that_was_sent_for_it() -> None:
    kept = Conversations()
    history = [user("a"), assistant(call()), user("b"), assistant("c"), user("d")]
    assert b"interrupted" in bytes(render(kept, *history).items[2])
    late = [*history, result("call_1", "real"), user("e")]
    sent = render(kept, *late)
    assert same(sent, transform(late, target()))
    assert b"real" in bytes(sent.items[2])


def test_notices_are_told_once_for_each_thing() -> None:
    kept, blind = Conversations(), target(images=False)
    error = ErrorInfo(code="interrupted", message="?")
    history = [user("a"), assistant(call("a"), call("b")), result("a", error=error)]
    assert [one.code for one in render(kept, *history).notices] == ["history_repaired"]
    assert render(kept, *history, user("b")).notices == []
    seen = [user("a", PICTURE)]
    assert [one.code for one in render(kept, *seen, to=blind).notices] == ["image_omitted"]
    seen += [assistant("b"), user("c")]
    assert render(kept, *seen, to=blind).notices == []
    seen += [assistant("d"), user(PICTURE)]
    assert [one.code for one in render(kept, *seen, to=blind).notices] == ["image_omitted"]


def test_what_is_kept_is_bounded_in_number_and_in_bytes() -> None:
    kept = Conversations(max_conversations=3, max_bytes=10_000)
    for number in range(10):
        render(kept, user(str(number)), assistant("a"), user("b"))
        assert len(kept) <= 3
    big = [user("x" * 20_000), assistant("a"), user("b")]
    render(kept, *big)
    assert len(kept) == 0
    assert same(render(kept, *big), transform(big, target()))


@pytest.mark.parametrize("make", [OpenAIChatProvider, OpenAIResponsesProvider])
def test_lists_of_a_host_may_change_between_requests(make: Any) -> None:
    provider = make(base_url="https://vendor.test/v1", transport=MemoryTransport())
    system, tools = ["one"], [ToolSpec(name="add", description="", parameters={})]
    first = json.loads(provider.prepare(ask(user("a"), system=system, tools=tools)).body)
    system.append("two")
    tools.append(ToolSpec(name="sub", description="", parameters={}))
    second = json.loads(provider.prepare(ask(user("a"), system=system, tools=tools)).body)
    assert len(first["tools"]) == 1
    assert len(second["tools"]) == 2
    assert "two" in str(second)


def test_a_request_that_fails_is_not_kept() -> None:
    kept, history = Conversations(), turns(2)
    with pytest.raises(ProviderError):
        render(kept, *history)
    assert len(kept) == 0
    assert same(render(kept, *history, user("b")), transform([*history, user("b")], target()))


async def test_a_history_of_one_vendor_goes_to_another_whole() -> None:
    writer = ModelRef(provider="openai", model="gpt-6-sol", api="openai-responses")
    thought = Replay(api="openai-responses", kind="item", data="{}", item_id="rs_1")
    calls = [
        ToolCallBlock(
            id=f"call_{name}|fc_{name}",
            name="look",
            arguments={"at": name},
            replay=Replay(api="openai-responses", kind="item", data="", item_id=f"fc_{name}"),
        )
        for name in ("a", "b")
    ]
    answer = Message(
        role="assistant",
        content=[ThinkingBlock(text="hm", replay=thought), *calls],
        model=writer,
        stop_reason="aborted",
    )
    seen = ToolResultBlock(tool_call_id=calls[1].id, name="look", content=[PICTURE])
    provider = AnthropicProvider(transport=MemoryTransport())
    request = ask(user("Look."), answer, Message(role="tool", content=[seen]), user("And?"))
    body = json.loads(provider.prepare(request).body)
    asked, said, results = body["messages"]
    assert asked["role"] == "user"
    ids = [block["id"] for block in said["content"]]
    assert [block["type"] for block in said["content"]] == ["tool_use", "tool_use"]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one) for one in ids)
    first, second, text = results["content"]
    assert [first["tool_use_id"], second["tool_use_id"]] == ids
    assert first["is_error"]
    assert second["content"][0]["type"] == "image"
    assert text["text"] == "And?"
    assert "rs_1" not in str(body)
    assert "fc_" not in str(said["content"][0].get("input"))


# --- through the adapters ---------------------------------------------------------------------


def responses_turn(number: int) -> bytes:
    thought: dict[str, Any] = {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [],
        "encrypted_content": f"secret {number}",
    }
    asked = {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": "add",
        "arguments": f'{{"a":{number},"b":1}}',
    }
    output = [thought, asked]
    return sse({"type": "response.completed", "response": {"output": output}}, end=b"")


def chat_turn(number: int) -> bytes:
    function = {"name": "add", "arguments": f'{{"a":{number},"b":1}}'}
    tool_call = {"index": 0, "id": f"call_{number}", "function": function}
    delta = {"reasoning_content": f"thought {number}", "tool_calls": [tool_call]}
    return sse({"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]})


def anthropic_turn(number: int) -> bytes:
    block: dict[str, Any] = {"type": "tool_use", "id": f"call_{number}", "name": "add", "input": {}}
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    signature = {"type": "signature_delta", "signature": f"secret {number}"}
    arguments = {"type": "input_json_delta", "partial_json": f'{{"a":{number},"b":1}}'}
    return sse(
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": thinking},
        {"type": "content_block_delta", "index": 0, "delta": signature},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": block},
        {"type": "content_block_delta", "index": 1, "delta": arguments},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
        {"type": "message_stop"},
        end=b"",
    )


def gemini_turn(number: int) -> bytes:
    called = {"name": "add", "args": {"a": number, "b": 1}}
    part = {"functionCall": called, "thoughtSignature": f"secret {number}"}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    return sse({"candidates": [candidate]}, end=b"")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


WIRES: list[tuple[Callable[..., Any], Callable[[int], bytes], str, str]] = [
    (OpenAIResponsesProvider, responses_turn, "input", "secret"),
    (OpenAIChatProvider, chat_turn, "messages", "thought"),
    (AnthropicProvider, anthropic_turn, "messages", "secret"),
    (GoogleProvider, gemini_turn, "contents", "secret"),
]


def _between(body: bytes, start: bytes) -> bytes:
    """What stands in the list that begins with *start*."""
    rest = body[body.index(start) + len(start) :]
    decoder = json.JSONDecoder()
    text = rest.decode()
    at = 0
    while text[at] != "]":
        _, at = decoder.raw_decode(text, at + (text[at] == ","))
    return text[:at].encode()


@pytest.mark.parametrize(("make", "turn", "key", "state"), WIRES, ids=lambda one: str(one)[:40])
async def test_over_ten_turns_with_tools_each_request_begins_with_the_one_before(
    make: Callable[..., Any], turn: Callable[[int], bytes], key: str, state: str
) -> None:
    transport = MemoryTransport(*[Answer([turn(number)]) for number in range(12)])
    provider = make(id="p", base_url="https://vendor.test/v1", transport=transport)
    agent = Agent(
        model=ModelConfig(provider="p", model="m"),
        provider=provider,
        tools=[add],
        system="Be brief.",
        options=ProviderOptions(cache_retention="none"),
        max_tool_rounds=10,
    )
    result = await agent.session("s").run("Hi")
    assert result.status == "max_tool_rounds"
    bodies = [request.body[key] for request in transport.sent]
    # Byte for byte, not only as JSON: up to the bracket that ends the list.
    lists = [_between(request.content, b'"%s":[' % key.encode()) for request in transport.sent]
    assert all(later.startswith(earlier + b",") for earlier, later in pairwise(lists))
    assert str(bodies[-1]).count(state) == 10, "all reasoning goes back"


async def test_a_store_that_redacts_input_strips_the_reasoning_behind_it_and_says_so() -> None:
    provider = OpenAIResponsesProvider(
        id="p",
        base_url="https://vendor.test/v1",
        transport=MemoryTransport(Answer([responses_turn(0)])),
    )
    thinking = ThinkingBlock(text="")
    history = [user("my password is hunter2")]
    call_block: ToolCallBlock | None = None
    async for event in provider.generate(ask(*history, provider="p", model="m")):
        block = getattr(event, "block", None)
        if isinstance(block, ThinkingBlock):
            thinking = block
        elif isinstance(block, ToolCallBlock):
            call_block = block
    assert call_block is not None
    answer = Message(role="assistant", content=[thinking, call_block], model=OWN)
    answered = ToolResultBlock(tool_call_id=call_block.id, name="add", result=1)
    rest = [answer, Message(role="tool", content=[answered])]
    kept = provider.prepare(ask(*history, *rest, provider="p", model="m"))
    assert b"secret 0" in kept.body
    redacted = [Message(role="user", content=[TextBlock(text="my password is [REDACTED]")])]
    stripped = provider.prepare(ask(*redacted, *rest, provider="p", model="m"))
    assert b"secret 0" not in stripped.body
    assert b'"id":"fc_0"' not in stripped.body
    assert [notice.code for notice in stripped.notices] == ["thinking_stripped"]
