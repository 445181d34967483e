"""The structs against the tables of the wire, transcribed as text.

`?` marks a field that may be absent, `!` one that the TypeScript original does not write and Prism
always gives. Everything else is required.
"""

from typing import Any, get_args

import msgspec
import pytest

from prism.core import _wire as wire
from prism.core._wire import (
    KnownEntry,
    KnownEvent,
    encode,
    is_thinking_level,
    normalize_thinking_level,
)

BLOCKS = {
    "text": "text replay?",
    "thinking": "text signature? redacted? replay?",
    "image": "mimeType? data? url?",
    "tool_call": "id name arguments rawArguments? replay?",
    "tool_result": "toolCallId name content? result? error?",
    "native": "api kind data",
}
SHAPES = {
    wire.Replay: "api kind data itemId? phase? prefix?",
    wire.Message: "role content id? metadata? model? stopReason? usage?",
    wire.ModelRef: "provider api? model",
    wire.ToolResult: "toolCallId name content? value? error? metadata?",
    wire.CommandResult: "name content? value? error? metadata?",
    wire.Usage: (
        "inputTokens? outputTokens? cacheReadTokens? cacheWriteTokens? cacheWriteLongTokens? "
        "reasoningTokens? totalTokens? cost? currency?"
    ),
    wire.ErrorInfo: "message name? code? status? retryAfterMs? cause? details?",
    wire.ModelConfig: (
        "provider model displayName? capabilities? limits? cost? compat? parameters? metadata?"
    ),
    wire.ModelCapabilities: "input? output? reasoning? tools? streaming?",
    wire.ModelLimits: "contextWindow? maxOutputTokens?",
    wire.ModelCost: "input? output? cacheRead? cacheWrite? currency? unit?",
    wire.CompactionData: (
        "throughEntryId? keepEntryIds? strategy? trigger? firstKeptEntryId? "
        "estimatedTokensBefore? estimatedTokensAfter? splitTurn? readFiles? modifiedFiles? "
        "memory? uncoveredEntryIds?"
    ),
    wire.RpcRequest: "id command params?",
    wire.RpcResponse: "id ok result? error?",
}
ENTRY_COMMON = "id sessionId timestamp parentId? runId? metadata?"
ENTRIES = {
    "message": "message",
    "summary": "summary data?",
    "compaction": "summary data?",
    "model_change": "model? previousModel? thinkingLevel?",
    "label": "label? data?",
    "metadata": "data",
    "event": "event",
    "custom": "data",
}
EVENT_COMMON = "sessionId runId?"
EVENTS = {
    "agent_started": "",
    "agent_finished": "status! usage? error?",
    "turn_started": "turn",
    "turn_finished": "turn usage? stopReason?",
    "message_started": "message",
    "message_delta": "content index!",
    "message_finished": "message entryId! partial?",
    "tool_call_delta": "index toolCallId? name? argumentsText",
    "tool_execution_started": "call",
    "tool_execution_progress": "toolCallId name progress? metadata?",
    "tool_execution_finished": "result",
    "tool_execution_error": "call error",
    "tool_execution_blocked": "toolCallId name reason error",
    "tool_approval_requested": "approvalId call reason?",
    "tool_approval_resolved": "approvalId call reason? decision by",
    "queue_updated": "size steer! followUp!",
    "compaction_started": "trigger! strategy!",
    "compaction_finished": "summary trigger! strategy! entryId! tokensBefore? tokensAfter?",
    "compaction_failed": "trigger strategy error",
    "retry_scheduled": "attempt delayMs error",
    "model_changed": "model previousModel? thinkingLevel?",
    "usage": "usage source",
    "worker_started": "worker",
    "worker_finished": "worker status counts usage? error?",
    "extension_error": "extension? phase error",
    "warning": "code message",
    "session_settled": "leafId?",
    "error": "error fatal!",
}
ENVELOPES = {
    wire.EventEnvelope: ("event", "sessionId runId? event"),
    wire.ErrorEnvelope: ("error", "error"),
    wire.RpcEvent: ("event", "id sessionId runId? event"),
}


def rows() -> list[Any]:
    """Struct, tag field, tag, and the row of its table."""
    blocks = {kind.__struct_config__.tag: kind for kind in get_args(wire.ContentBlock)}
    entries = {kind.__struct_config__.tag: kind for kind in get_args(KnownEntry)}
    events = {kind.__struct_config__.tag: kind for kind in get_args(KnownEvent)}
    return [
        *((blocks.get(tag), "type", tag, row) for tag, row in BLOCKS.items()),
        *((kind, None, None, row) for kind, row in SHAPES.items()),
        *((entries.get(tag), "kind", tag, f"{ENTRY_COMMON} {row}") for tag, row in ENTRIES.items()),
        *((events.get(tag), "type", tag, f"{EVENT_COMMON} {row}") for tag, row in EVENTS.items()),
        *((kind, "type", tag, row) for kind, (tag, row) in ENVELOPES.items()),
    ]


@pytest.mark.parametrize(("kind", "tag_field", "tag", "row"), rows())
def test_a_struct_has_the_fields_of_its_table(
    kind: type[msgspec.Struct], tag_field: str | None, tag: str | None, row: str
):
    assert (kind.__struct_config__.tag_field, kind.__struct_config__.tag) == (tag_field, tag)
    fields = msgspec.structs.fields(kind)
    assert {field.encode_name for field in fields} == {word.rstrip("?!") for word in row.split()}
    required = {word for word in row.split() if word[-1] not in "?!"}
    assert {field.encode_name for field in fields if field.required} == required
    # Absent and null are the same, and no other default is ever left out of the text.
    assert all(field.default is None for field in fields if not field.required)
    assert kind.__struct_config__.frozen
    assert kind.__struct_config__.omit_defaults
    with pytest.raises(TypeError):
        kind("positional")


def test_no_block_entry_or_event_is_in_no_table():
    assert set(BLOCKS) == wire.BLOCK_TYPES
    assert set(ENTRIES) == wire.ENTRY_KINDS
    assert set(EVENTS) == wire.EVENT_TYPES
    assert len(get_args(wire.ContentBlock)) == len(BLOCKS)


def test_required_fields_are_written_also_when_they_are_empty_zero_or_false():
    message = wire.Message(role="", content=[])
    assert encode(message) == b'{"role":"","content":[]}'
    assert encode(wire.TurnStarted(session_id="", turn=0)) == (
        b'{"type":"turn_started","sessionId":"","turn":0}'
    )
    assert encode(wire.RpcResponse(id=None, ok=False)) == b'{"id":null,"ok":false}'
    assert encode(wire.ToolCallBlock(id="", name="", arguments={})) == (
        b'{"type":"tool_call","id":"","name":"","arguments":{}}'
    )
    event = wire.RpcEvent(id=None, session_id="s", event={"type": "x"})
    assert encode(event) == b'{"type":"event","id":null,"sessionId":"s","event":{"type":"x"}}'


def test_what_only_prism_writes_is_written_whenever_it_is_given():
    assert encode(wire.QueueUpdated(session_id="s", size=0, steer=[], follow_up=[])) == (
        b'{"type":"queue_updated","sessionId":"s","size":0,"steer":[],"followUp":[]}'
    )
    delta = wire.MessageDelta(session_id="s", content=wire.TextBlock(text=""), index=0)
    assert encode(delta).endswith(b'"content":{"type":"text","text":""},"index":0}')
    error = wire.ErrorEvent(session_id="s", error=wire.ErrorInfo(message="m"), fatal=False)
    assert encode(error).endswith(b'"error":{"message":"m"},"fatal":false}')


LISTS = {
    wire.RPC_CODES: (
        "parse_error invalid_request invalid_id duplicate_id unknown_command invalid_params "
        "line_too_long too_deep session_busy session_not_found session_exists no_active_run "
        "nothing_to_compact nothing_to_continue command_not_found unsupported aborted "
        "store_conflict"
    ),
    wire.PROVIDER_CODES: (
        "rate_limit temporarily_unavailable server_error timeout connection stream_truncated "
        "malformed_output conflict aborted quota_exhausted auth permission not_found "
        "invalid_request replay_invalid context_overflow request_too_large unsupported "
        "content_blocked response_too_large"
    ),
    wire.TOOL_BLOCK_REASONS: (
        "unknown_tool tool_denied invalid_arguments permission_denied validation_failed skipped "
        "aborted max_tool_rounds"
    ),
    wire.STOP_REASONS: "stop tool_use length context_limit refusal pause error aborted",
    wire.RUN_STATUSES: "completed aborted failed max_tool_rounds limit_reached",
    wire.SESSION_STATUSES: "idle running compacting awaiting_approval",
    wire.APPROVAL_DECISIONS: "allowed edited denied",
}


@pytest.mark.parametrize(("closed", "row"), LISTS.items())
def test_the_codes_and_closed_sets_are_those_of_the_lists(closed: frozenset[str], row: str):
    assert closed == frozenset(row.split())


def test_the_thinking_levels_go_from_none_to_most():
    assert " ".join(wire.THINKING_LEVELS) == "off minimal low medium high xhigh max"


def test_none_is_read_as_the_thinking_level_off():
    assert not is_thinking_level("none")
    assert normalize_thinking_level("none") == "off"
    assert normalize_thinking_level("xhigh") == "xhigh"
    assert normalize_thinking_level("HIGH") is None
    assert normalize_thinking_level(3) is None


def test_closed_sets_are_plain_strings_when_they_are_read():
    event = wire.decode_event(b'{"type":"agent_finished","sessionId":"s","status":"evaporated"}')
    assert isinstance(event, wire.AgentFinished)
    assert event.status == "evaporated"
