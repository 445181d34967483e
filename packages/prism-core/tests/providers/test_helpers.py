"""The short names for provider events."""

from __future__ import annotations

import pytest

from prism.core._errors import ProviderError, UsageError
from prism.core._wire import TextBlock
from prism.core.providers import (
    BlockFinished,
    Done,
    ErrorInfo,
    Failed,
    Notice,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    ToolCallReady,
    Usage,
    UsageUpdate,
    block_finished,
    done,
    error,
    notice,
    text_delta,
    thinking_delta,
    tool_call,
    tool_call_delta,
    usage,
)


def test_each_helper_gives_its_event() -> None:
    spent = Usage(output_tokens=1)
    assert text_delta("a", index=1) == TextDelta(text="a", index=1)
    assert thinking_delta("b") == ThinkingDelta(text="b", index=None)
    assert tool_call_delta(index=0, id="c", name="n", arguments_text="{") == ToolCallChunk(
        index=0, id="c", name="n", arguments_text="{"
    )
    assert tool_call_delta(index=0) == ToolCallChunk(index=0)
    assert tool_call(id="c", name="n") == ToolCallReady(id="c", name="n", arguments={})
    assert tool_call(id="c", name="n", arguments={"a": 1}).arguments == {"a": 1}
    assert block_finished(index=2, block=TextBlock(text="t")) == BlockFinished(
        index=2, block=TextBlock(text="t")
    )
    assert usage(spent) == UsageUpdate(usage=spent)
    assert notice("code", "text") == Notice(code="code", message="text")
    assert done(usage=spent, stop_reason="stop") == Done(usage=spent, stop_reason="stop")
    assert done() == Done()


def test_an_error_is_made_of_data_of_an_exception_or_of_a_message() -> None:
    info = ErrorInfo(message="slow down", code="rate_limit")
    assert error(info) == Failed(error=info)
    assert error("slow down", code="rate_limit", status=429, retry_after_ms=5).error == ErrorInfo(
        message="slow down", code="rate_limit", status=429, retry_after_ms=5
    )
    raised = error(ProviderError("gone", code="not_found", status=404)).error
    assert (raised.message, raised.code, raised.status) == ("gone", "not_found", 404)


def test_facts_beside_an_error_that_has_its_own_are_refused() -> None:
    with pytest.raises(UsageError):
        error(ErrorInfo(message="x"), code="rate_limit")
