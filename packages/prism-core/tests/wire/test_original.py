"""What the TypeScript original writes is read, and written back equal."""

import json

import pytest

from prism.core._wire import (
    CompactionData,
    MessageEntry,
    TextBlock,
    ToolResultBlock,
    convert_message,
    decode_entry,
    decode_event,
    decode_message,
    encode,
    encode_ascii,
    encode_entry,
    event_type,
    opaque_entry,
    parse_json,
    rpc_event_codec,
    rpc_request_codec,
    rpc_response_codec,
)

ENTRY_LINES = r"""
{"id":"e1","sessionId":"s1","timestamp":"2025-03-01T09:00:00.000Z","kind":"message","message":{"role":"user","content":[{"type":"text","text":"Was ist \u00fcber 2\u2028?"},{"type":"image","mimeType":"image/png","data":"iVBORw0K"},{"type":"image","url":"https://pictures.invalid/1.png"}]}}
{"id":"e2","parentId":"e1","sessionId":"s1","timestamp":"2025-03-01T09:00:01.000Z","runId":"run_1","kind":"message","message":{"role":"assistant","id":"m2","content":[{"type":"thinking","text":"hm","signature":"c2ln","redacted":false,"replay":{"api":"anthropic-messages","kind":"signature","data":"c2ln","prefix":"9f"}},{"type":"text","text":"Let me see.","replay":{"api":"openai-responses","kind":"item","data":"{}","itemId":"msg_1","phase":"commentary"}},{"type":"tool_call","id":"c1","name":"add","arguments":{"a":1,"b":{"type":"text"}}},{"type":"tool_call","id":"c2","name":"add","arguments":{},"rawArguments":"{\"a\":"},{"type":"native","api":"openai-responses","kind":"web_search_call","data":"{\"id\":\"ws_1\"}"}],"model":{"provider":"openai","api":"openai-responses","model":"gpt-x"},"stopReason":"tool_use","usage":{"inputTokens":12,"outputTokens":7,"cacheReadTokens":0,"cacheWriteTokens":3,"cacheWriteLongTokens":1,"reasoningTokens":2,"totalTokens":22,"cost":0.00021,"currency":"USD"},"metadata":{"content":[{"type":"not a block"}]}}}
{"id":"e3","parentId":"e2","sessionId":"s1","timestamp":"2025-03-01T09:00:02.000Z","runId":"run_1","kind":"message","message":{"role":"tool","content":[{"type":"tool_result","toolCallId":"c1","name":"add","content":[{"type":"text","text":"3"}],"result":{"sum":3,"content":[{"type":"not a block"}]}}]}}
{"id":"e4","parentId":"e3","sessionId":"s1","timestamp":"2025-03-01T09:00:02.100Z","runId":"run_1","kind":"message","message":{"role":"tool","content":[{"type":"tool_result","toolCallId":"c2","name":"add","error":{"message":"b is missing","name":"ValidationError","code":"invalid_arguments","details":{"reason":"b"}}}]}}
{"id":"e5","parentId":"e4","sessionId":"s1","timestamp":"2025-03-01T09:00:03.000Z","kind":"summary","summary":"They add.","data":{"by":"host"}}
{"id":"e6","parentId":"e5","sessionId":"s1","timestamp":"2025-03-01T09:00:04.000Z","kind":"compaction","summary":"user: older question\nassistant: older answer","data":{"throughEntryId":"e4","keepEntryIds":["e3","e4"],"strategy":"default-compaction","trigger":"manual"}}
{"id":"e7","parentId":"e6","sessionId":"s1","timestamp":"2025-03-01T09:00:05.000Z","kind":"model_change","model":{"provider":"openai","model":"gpt-x","displayName":"GPT X","capabilities":{"input":["text","image"],"output":["text"],"reasoning":true,"tools":true,"streaming":true},"limits":{"contextWindow":200000,"maxOutputTokens":8192},"cost":{"input":1.25,"output":10,"cacheRead":0.125,"cacheWrite":0,"currency":"USD","unit":1000000},"compat":{"thinking":"effort"},"parameters":{"maxTokens":512,"temperature":0.2},"metadata":{"tier":"a"}},"previousModel":{"provider":"mock","model":"demo"},"thinkingLevel":"high"}
{"id":"e8","parentId":"e7","sessionId":"s1","timestamp":"2025-03-01T09:00:06.000Z","kind":"label","label":"start","data":{"targetId":"e1"}}
{"id":"e9","parentId":"e8","sessionId":"s1","timestamp":"2025-03-01T09:00:07.000Z","kind":"label","data":{"targetId":"e1"}}
{"id":"e10","parentId":"e9","sessionId":"s1","timestamp":"2025-03-01T09:00:08.000Z","kind":"metadata","data":{"type":"leaf","leafId":"e2"},"metadata":{"host":"h"}}
{"id":"e11","parentId":"e9","sessionId":"s1","timestamp":"2025-03-01T09:00:09.000Z","kind":"event","event":{"type":"agent_started","sessionId":"s1","runId":"run_1","extra":[1,2.5]}}
{"id":"e12","parentId":"e11","sessionId":"s1","timestamp":"2025-03-01T09:00:10.000Z","kind":"custom","data":{"type":"om.observations.recorded","observations":[{"id":"aaaaaaaaaaaa","content":[{"type":"x"}]}],"coversUpToId":"e5"}}
"""  # noqa: E501

EVENT_LINES = r"""
{"type":"agent_started","sessionId":"s1","runId":"run_1"}
{"type":"agent_finished","sessionId":"s1","runId":"run_1","usage":{"inputTokens":3},"error":{"message":"m","status":429,"retryAfterMs":1500,"code":429}}
{"type":"turn_started","sessionId":"s1","runId":"run_1","turn":1}
{"type":"turn_finished","sessionId":"s1","runId":"run_1","turn":1,"usage":{"outputTokens":3},"stopReason":"stop"}
{"type":"message_started","sessionId":"s1","runId":"run_1","message":{"role":"assistant","content":[]}}
{"type":"message_delta","sessionId":"s1","runId":"run_1","content":{"type":"text","text":"Hel"}}
{"type":"message_delta","sessionId":"s1","runId":"run_1","content":{"type":"tool_call","id":"c1","name":"add","arguments":{"a":1}}}
{"type":"message_finished","sessionId":"s1","runId":"run_1","message":{"role":"assistant","content":[{"type":"text","text":"Hello"}],"stopReason":"stop"},"partial":true}
{"type":"tool_call_delta","sessionId":"s1","runId":"run_1","index":0,"toolCallId":"c1","name":"add","argumentsText":"{\"a\""}
{"type":"tool_execution_started","sessionId":"s1","runId":"run_1","call":{"type":"tool_call","id":"c1","name":"add","arguments":{"a":1}}}
{"type":"tool_execution_progress","sessionId":"s1","runId":"run_1","toolCallId":"c1","name":"add","progress":{"done":0.5},"metadata":{"k":null}}
{"type":"tool_execution_finished","sessionId":"s1","runId":"run_1","result":{"toolCallId":"c1","name":"add","content":[{"type":"text","text":"3"}],"value":[3],"metadata":{"ms":4}}}
{"type":"tool_execution_error","sessionId":"s1","runId":"run_1","call":{"type":"tool_call","id":"c1","name":"add","arguments":{}},"error":{"message":"boom","cause":{"message":"inner"}}}
{"type":"tool_execution_blocked","sessionId":"s1","runId":"run_1","toolCallId":"c1","name":"rm","reason":"unknown_tool","error":{"message":"no such tool"}}
{"type":"tool_approval_requested","sessionId":"s1","runId":"run_1","approvalId":"a1","call":{"type":"tool_call","id":"c1","name":"add","arguments":{}},"reason":"writes"}
{"type":"tool_approval_resolved","sessionId":"s1","runId":"run_1","approvalId":"a1","call":{"type":"tool_call","id":"c1","name":"add","arguments":{}},"reason":"ok","decision":"allowed","by":"user"}
{"type":"queue_updated","sessionId":"s1","runId":"run_1","size":2}
{"type":"compaction_started","sessionId":"s1"}
{"type":"compaction_finished","sessionId":"s1","summary":"old things","tokensBefore":900,"tokensAfter":90}
{"type":"compaction_failed","sessionId":"s1","trigger":"auto","strategy":"default-compaction","error":{"message":"m"}}
{"type":"retry_scheduled","sessionId":"s1","runId":"run_1","attempt":2,"delayMs":100.5,"error":{"message":"overloaded","code":"rate_limit"}}
{"type":"model_changed","sessionId":"s1","model":{"provider":"mock","model":"b"},"previousModel":{"provider":"mock","model":"a"},"thinkingLevel":"off"}
{"type":"usage","sessionId":"s1","runId":"run_1","usage":{"inputTokens":1,"cost":0},"source":"turn"}
{"type":"worker_started","sessionId":"s1","worker":"observer"}
{"type":"worker_finished","sessionId":"s1","worker":"observer","status":"completed","counts":{"observations":2},"usage":{"inputTokens":1},"error":{"message":"m"}}
{"type":"extension_error","sessionId":"s1","extension":"log","phase":"tool_call","error":{"message":"m"}}
{"type":"warning","sessionId":"s1","code":"history_repaired","message":"one result was missing"}
{"type":"session_settled","sessionId":"s1","leafId":"e2"}
{"type":"error","sessionId":"s1","runId":"run_1","error":{"message":"Agent run aborted"}}
"""  # noqa: E501

RPC_REQUESTS = r"""
{"id":"1","command":"prompt","params":{"input":"Hi"}}
{"id":"run-1","command":"prompt","params":{"input":"Hi"}}
{"id":"abort-1","command":"abort","params":{"reason":"stop"}}
"""
RPC_RESPONSES = r"""
{"id":"1","ok":true,"result":{"sessionId":"s1"}}
{"id":"abort-1","ok":true,"result":{"sessionId":"s1"}}
{"id":"run-1","ok":false,"error":{"message":"Agent run aborted"}}
"""
RPC_EVENTS = {
    '{"type":"event","id":"1","sessionId":"s1","runId":"run_1",'
    '"event":{"type":"message_delta"}}': "message_delta",
    '{"type":"event","id":"run-1","sessionId":"s1","runId":"run_1",'
    '"event":{"type":"error","error":{"message":"Agent run aborted"}}}': "error",
}


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("line", lines(ENTRY_LINES))
def test_an_entry_of_the_original_comes_back_equal(line: str):
    entry = decode_entry(line)
    assert type(entry).__name__ != "OpaqueEntry"
    assert json.loads(encode_entry(entry)) == json.loads(line)
    assert json.loads(encode_ascii(entry)) == json.loads(line)
    assert encode_entry(opaque_entry(line)) == line.encode()
    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize("line", lines(EVENT_LINES))
def test_an_event_of_the_original_comes_back_equal(line: str):
    event = decode_event(line)
    assert type(event).__name__ != "OpaqueEvent"
    assert json.loads(encode(event)) == json.loads(line)
    assert event_type(event) == json.loads(line)["type"]


@pytest.mark.parametrize("line", lines(RPC_REQUESTS))
def test_the_request_lines_of_the_rpc_page_decode(line: str):
    assert encode(rpc_request_codec.decode(line)) == line.encode()


@pytest.mark.parametrize("line", lines(RPC_RESPONSES))
def test_the_response_lines_of_the_rpc_page_decode(line: str):
    assert encode(rpc_response_codec.decode(line)) == line.encode()


@pytest.mark.parametrize(("line", "type"), RPC_EVENTS.items())
def test_the_event_lines_of_the_rpc_page_decode_as_their_type(line: str, type: str):  # noqa: A002
    assert rpc_event_codec.decode(line).event["type"] == type
    assert encode(rpc_event_codec.decode(line)) == line.encode()


@pytest.mark.parametrize(
    "written", ['"a"', "1", "1.5", "-3", "1180591620717411303424", '"\\ud800"']
)
def test_a_request_id_is_echoed_as_it_was_sent(written: str):
    request = rpc_request_codec.decode(f'{{"id":{written},"command":"state"}}')
    assert parse_json(encode(request.id)) == json.loads(written)


BESIDE = {
    "role": "tool",
    "content": [
        {"type": "text", "text": "before"},
        {"type": "tool_result", "toolCallId": "c1", "name": "add", "result": 3},
        {"type": "picture", "of": "a graph"},
    ],
}


def test_blocks_beside_a_tool_result_become_its_content():
    head = {"id": "e", "sessionId": "s", "timestamp": "t", "kind": "message"}
    entry = decode_entry(json.dumps({**head, "message": BESIDE}))
    assert isinstance(entry, MessageEntry)
    for message in (entry.message, decode_message(json.dumps(BESIDE)), convert_message(BESIDE)):
        (block,) = message.content
        assert isinstance(block, ToolResultBlock)
        assert block.result == 3
        assert block.content is not None
        assert block.content[0] == TextBlock(text="before")
        assert json.loads(encode(block.content[1])) == BESIDE["content"][2]


def test_blocks_beside_a_tool_result_come_after_those_that_it_has():
    result = {"type": "tool_result", "toolCallId": "c", "name": "n"}
    inner = {**result, "content": [{"type": "text", "text": "own"}]}
    message = convert_message({"role": "tool", "content": [{"type": "text", "text": "x"}, inner]})
    (block,) = message.content
    assert isinstance(block, ToolResultBlock)
    assert block.content == [TextBlock(text="own"), TextBlock(text="x")]


def test_a_tool_message_with_two_results_is_left_as_it_is():
    result = {"type": "tool_result", "toolCallId": "c", "name": "n"}
    message = convert_message({"role": "tool", "content": [result, result]})
    assert len(message.content) == 2


def test_the_data_of_a_compaction_is_read_also_when_a_strategys_own_field_is_malformed():
    head = '{"id":"e","sessionId":"s","timestamp":"t","kind":"compaction","summary":"x"'
    data = '"throughEntryId":"e4","keepEntryIds":["e3"],"strategy":"llm","trigger":"auto"'
    whole = CompactionData.from_entry(decode_entry(f'{head},"data":{{{data},"readFiles":["a"]}}}}'))
    assert whole == CompactionData(
        through_entry_id="e4", keep_entry_ids=["e3"], strategy="llm", trigger="auto",
        read_files=["a"],
    )  # fmt: skip
    part = CompactionData.from_entry(
        decode_entry(f'{head},"data":{{{data},"estimatedTokensBefore":1.5}}}}')
    )
    assert part is not None
    assert part.through_entry_id == "e4"
    assert part.estimated_tokens_before is None
    assert (
        CompactionData.from_entry(decode_entry(f'{head},"data":{{"throughEntryId":4}}}}')) is None
    )
    assert CompactionData.from_entry(decode_entry(f"{head}}}")) == CompactionData()
    assert CompactionData.from_entry("no entry") is None
