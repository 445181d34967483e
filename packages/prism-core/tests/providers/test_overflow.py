"""When a vendor says that the context window is full."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prism.core._wire import ErrorInfo
from prism.core.providers import OpenAIChatProvider
from prism.core.providers._errors_map import ErrorMapper
from prism.core.providers._overflow import find_overflow

from .wire import Answer, MemoryTransport, collect, read

FULL = [
    (208_310, 200_000, "prompt is too long: 208310 tokens > 200000 maximum"),
    (9_200, 9_000, "input length and `max_tokens` exceed context limit: 9000 + 200 > 9000"),
    (
        1_200_000,
        1_048_576,
        "input token count (1,200,000) exceeds the maximum number of tokens allowed (1,048,576)",
    ),
    (None, None, "Input is too long for requested model."),
    (None, None, "too many total text bytes: 9 > 8"),
    (2_000, 1_310, "maximum prompt length is 1310 but the request contains 2000 tokens."),
    (None, None, "Please reduce the length of the messages or completion."),
    (9_001, 8_192, "maximum context length is 8192 tokens. However, you requested 9001 tokens"),
    (9_001, 8_192, "maximum context length is 8192 tokens. But you requested about 9001 tokens"),
    (9_001, 8_192, "maximum context length is 8192 tokens. Your messages resulted in 9001 tokens"),
    (5_000, 8_192, "maximum context length is 8192 tokens and this has 5000 input tokens"),
    (None, 8_192, "maximum context length is 8192 tokens, so this is too much"),
    (
        4_200,
        4_096,
        "You passed 4000 input tokens and requested 200 output tokens; context length is 4096",
    ),
    (9_012, 4_096, "request (9012 tokens) exceeds the available context size (4096 tokens)"),
    (None, None, "the request exceeds the available context size. try increasing it"),
    (
        None,
        None,
        "number of tokens to keep from the initial prompt is greater than the context length",
    ),
    (70_000, 64_000, "prompt token count of 70000 exceeds the limit of 64000"),
    (None, None, "invalid params, context window exceeds limit"),
    (300_000, 262_144, "exceeded model token limit: 262144 (requested: 300000)"),
    (
        40_000,
        32_768,
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum",
    ),
    (
        4_200,
        4_096,
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 200",
    ),
    (None, None, "Your input exceeds the context window of this model."),
]

OTHER = [
    "Rate limit reached: please reduce the length of the messages or completion, TPM: 6000",
    "Request too large on tokens per minute (TPM): Limit 6000, Requested 9000",
    "Too many tokens, try again in 3s",
    "You exceeded your current quota",
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "max_tokens must be at most 4096",
    "image exceeds the limit of 5242880 bytes",
    "token limit exceeded for this minute",
    "Request exceeds the maximum size",
    "The file is too long",
]


@pytest.mark.parametrize(("used", "limit", "text"), FULL)
def test_a_full_window_is_recognised_with_its_numbers(
    used: int | None, limit: int | None, text: str
) -> None:
    assert find_overflow(text) == (used, limit)
    info = mapped(400, text)
    assert info.code == "context_overflow"
    known = {"used": used, "limit": limit}
    assert info.details == ({k: v for k, v in known.items() if v is not None} or None)


@pytest.mark.parametrize("text", OTHER)
def test_other_limits_are_none(text: str) -> None:
    assert find_overflow(text) is None


@pytest.mark.parametrize("text", [text for _, _, text in FULL])
def test_status_429_is_never_an_overflow(text: str) -> None:
    assert mapped(429, text).code == "rate_limit"
    assert mapped(429, text, code="context_length_exceeded").code == "rate_limit"


def test_a_server_error_is_an_overflow_only_by_its_code() -> None:
    text = "Your input exceeds the context window of this model."
    assert mapped(500, text).code == "server_error"
    assert mapped(500, text, code="context_length_exceeded").code == "context_overflow"


def test_the_numbers_of_llama_cpp_stand_beside_the_message() -> None:
    body = {
        "error": {
            "code": 400,
            "message": "the request exceeds the available context size. try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 9012,
            "n_ctx": 4096,
        }
    }
    info = ErrorMapper().http(400, json.dumps(body).encode(), where="https://vendor.test")
    assert info.code == "context_overflow"
    assert info.details is not None
    assert (info.details["used"], info.details["limit"]) == (9_012, 4_096)


async def test_an_empty_body_is_an_overflow_where_it_is_known_to_be_one() -> None:
    async def code(base_url: str, status: int) -> Any:
        transport = MemoryTransport(Answer(status=status, headers={}))
        return read(await collect(OpenAIChatProvider(base_url=base_url, transport=transport))).code

    assert await code("https://api.cerebras.ai/v1", 400) == "context_overflow"
    assert await code("https://api.cerebras.ai/v1", 413) == "context_overflow"
    assert await code("https://api.cerebras.ai/v1", 429) == "rate_limit"
    assert await code("https://vendor.test/v1", 400) == "invalid_request"


def mapped(status: int, text: str, *, code: str | None = None) -> ErrorInfo:
    body = {"error": {"message": text, "code": code}}
    return ErrorMapper().http(status, json.dumps(body).encode(), where="https://vendor.test")
