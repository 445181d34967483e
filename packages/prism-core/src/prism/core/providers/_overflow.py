"""Whether a vendor's error says that the context window is full, and by how much."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Overflow(NamedTuple):
    """A full context window, with the vendor's numbers of tokens when it gave them."""

    used: int | None = None
    limit: int | None = None


def _number(name: str) -> str:
    return rf"(?P<{name}>\d[\d,]*)"


_USED, _MORE, _LIMIT = _number("used"), _number("more"), _number("limit")

# These words come with rate, quota and size limits, which waiting or paying helps against.
_NOT_OVERFLOW: Final = re.compile(
    r"per (minute|hour|day)|\b[TR]P[MD]\b|rate.?limit|quota|try again in|throttl", re.IGNORECASE
)

_OVERFLOW: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # Anthropic
        rf"prompt is too long(?:: {_USED} tokens > {_LIMIT} maximum)?",
        rf"input length and `?max_tokens`? exceed context limit: {_USED} \+ {_MORE} > {_LIMIT}",
        # Gemini
        (
            rf"input token count(?: \(?{_USED}\)?)? exceeds the maximum number of tokens allowed"
            rf"(?: \(?{_LIMIT}\)?)?"
        ),
        # Bedrock
        r"input is too long for (?:the )?requested model",
        r"too many total text bytes",
        # xAI
        rf"maximum prompt length is {_LIMIT} but the request contains {_USED} tokens",
        # Groq
        r"reduce the length of the messages or completion",
        # vLLM of 2026
        (
            rf"passed {_USED} input tokens and requested {_MORE} output tokens.{{0,80}}?"
            rf"context length is (?:only )?{_LIMIT}"
        ),
        rf"maximum context length is {_LIMIT} tokens.{{0,80}}? has {_USED} input tokens",
        # OpenAI of old, OpenRouter, vLLM, Together, DeepSeek
        (
            rf"maximum context length is {_LIMIT} tokens(?:.{{0,80}}?"
            rf"(?:requested|resulted in|contains?) (?:about )?{_USED})?"
        ),
        # llama.cpp
        rf"request \({_USED} tokens\) exceeds the available context size(?: \({_LIMIT} tokens\))?",
        r"exceeds the available context size",
        # LM Studio
        r"tokens to keep from the initial prompt is greater than the context length",
        # Copilot
        rf"prompt token count of {_USED} exceeds the limit of {_LIMIT}",
        # MiniMax
        r"context window exceeds limit",
        # Kimi
        rf"exceeded model token limit: {_LIMIT}(?: \(requested: {_USED}\))?",
        # Mistral
        rf"prompt contains {_USED} tokens.{{0,120}}?too large for model with {_LIMIT} maximum",
        # Text Generation Inference
        (
            rf"inputs`? tokens \+ `?max_new_tokens`? must be <= {_LIMIT}. "
            rf"Given: {_USED} `?inputs`? tokens(?: and {_MORE})?"
        ),
        # Many, OpenAI of today among them
        r"exceeds? (?:the |this |its )?(?:model'?s? )?(?:maximum )?context (?:window|length|size)",
        r"context (?:window|length) (?:was |has been )?exceeded",
    )
)


def find_overflow(text: str) -> Overflow | None:
    """The overflow that *text* speaks of; words of rate limits and quotas rule it out."""
    if _NOT_OVERFLOW.search(text):
        return None
    for pattern in _OVERFLOW:
        match = pattern.search(text)
        if match is not None:
            groups = match.groupdict()
            used = _to_int(groups.get("used"))
            more = _to_int(groups.get("more"))
            if used is not None and more is not None:
                used += more
            return Overflow(used, _to_int(groups.get("limit")))
    return None


def _to_int(digits: str | None) -> int | None:
    if digits is None or len(digits) > 18:
        return None
    return int(digits.replace(",", ""))
