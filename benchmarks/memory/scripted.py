"""Worker models that follow a script: one that forgets nothing, and one that forgets half."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from prism.core.providers import MockProvider, ProviderRequest, done, text_delta, tool_call

TOKEN = re.compile(r"fact-[\w-]+-\d{3}")
BLOCK = re.compile(r"^\[entry (\S+) \| ([^|\n]*)[^\n]*\]\n((?:  .*(?:\n|$))*)", re.MULTILINE)
EXCERPT = 160

Keep = Callable[[str, int], bool]
"""Whether a fact is kept, the fact and how often the worker was asked before."""


def keep_all(_token: str, _asked: int) -> bool:
    """A perfect worker."""
    return True


def keep_half(token: str, asked: int) -> bool:
    """A worker that overlooks half of the facts, another half each time it is asked."""
    return sha256(f"{token}/{asked}".encode()).digest()[0] % 2 == 0


class Summariser(MockProvider):
    """Writes summaries that hold the facts it saw and kept."""

    def __init__(self, keep: Keep) -> None:
        def answer(request: ProviderRequest) -> Iterable[Any]:
            text = "\n".join(message.text for message in request.messages)
            asked = len(self.requests) - 1
            tokens = dict.fromkeys(TOKEN.findall(text))
            kept = [token for token in tokens if keep(token, asked)]
            words = "## Facts\n" + "\n".join(f"- {token}" for token in kept)
            return [text_delta(words + "\nAnd work went on."), done()]

        super().__init__(answer)


class Observer(MockProvider):
    """Notes each message: its first words, and the facts in it that it kept."""

    def __init__(self, keep: Keep) -> None:
        def answer(request: ProviderRequest) -> Iterable[Any]:
            if any(message.role != "user" for message in request.messages):
                return [text_delta("Done."), done()]
            if request.tools[0].name == "record_reflections":
                return [_call("record_reflections", reflections=[]), done()]
            if request.tools[0].name == "drop_observations":
                return [_call("drop_observations", ids=[]), done()]
            asked = len(self.requests) - 1
            prompt = request.messages[0].text.split("The newest messages:\n", 1)[1]
            notes = [
                note
                for entry_id, label, body in BLOCK.findall(prompt)
                for note in _notes(entry_id, label, body, lambda token: keep(token, asked))
            ]
            return [_call("record_observations", observations=notes), done()]

        super().__init__(answer)


def _call(name: str, **arguments: Any) -> Any:
    return tool_call(id=name, name=name, arguments=arguments)


def _notes(
    entry_id: str, label: str, body: str, keep: Callable[[str], bool]
) -> Iterable[dict[str, Any]]:
    first = next((line.strip() for line in body.split("\n") if line.strip()), "")
    tokens = dict.fromkeys(TOKEN.findall(body))
    if not tokens and label.strip() == "user":
        yield _note(f"The user said: {first[:EXCERPT]}", "high", entry_id)
    elif not tokens and not label.startswith("tool"):
        yield _note(f"The assistant went on: {first[:EXCERPT]}", "low", entry_id)
    for token in tokens:
        if keep(token):
            yield _note(f"The code {token} was given.", "high", entry_id)


def _note(content: str, relevance: str, entry_id: str) -> dict[str, Any]:
    return {"content": content, "relevance": relevance, "sourceEntryIds": [entry_id]}
