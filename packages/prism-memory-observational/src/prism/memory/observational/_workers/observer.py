"""The observer: from new messages to observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

import msgspec

from prism.core import MessageEntry, SessionEntry
from prism.core.compaction import estimate_text_tokens
from prism.memory.observational._ledger import Ledger
from prism.memory.observational._lines import bounded_content, local_time, parse_time
from prism.memory.observational._records import RELEVANCES, Observation, make_observation
from prism.memory.observational._shapes import as_ids, as_list, is_mapping
from prism.memory.observational._sources import (
    calls_of,
    indented,
    is_source,
    message_text,
    source_block,
)
from prism.memory.observational._workers.engine import Conversation, WorkerTool
from prism.memory.observational._workers.guard import is_repetitive

NUDGE: Final = (
    "You wrote text, which nobody reads. Call `record_observations`; with an empty list when "
    "nothing is worth a note."
)

_MAX_REASONS: Final = 20

PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "observations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string", "description": "One fact, in one sentence."},
                    "relevance": {"type": "string", "enum": list(RELEVANCES)},
                    "sourceEntryIds": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Entry ids from the labels.",
                    },
                },
                "required": ["content", "relevance", "sourceEntryIds"],
            },
        }
    },
    "required": ["observations"],
}


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that the observer is shown at once.

    Attributes:
        entries: Every source that the chunk covers, in the order of the branch.
        shown_ids: Those that have something to show.
        text: What is shown; empty when none has.
    """

    entries: Sequence[MessageEntry]
    shown_ids: tuple[str, ...]
    text: str

    @property
    def first_id(self) -> str:
        """The first source."""
        return self.entries[0].id

    @property
    def last_id(self) -> str:
        """The last source."""
        return self.entries[-1].id


def next_chunk(
    path: Sequence[SessionEntry], ledger: Ledger, max_tokens: int, zone: tzinfo | None
) -> Chunk | None:
    """The oldest messages that nobody observed, whole, as many as there is room for.

    A first message that has no room alone is shown by its head and tail.

    Returns:
        `None` when everything is observed.
    """
    calls = calls_of(path)
    entries: list[MessageEntry] = []
    shown: list[str] = []
    blocks: list[str] = []
    left = max_tokens
    for entry in path[ledger.observed.place + 1 :]:
        if not is_source(entry):
            continue
        if not message_text(entry.message):
            entries.append(entry)
            continue
        block = source_block(entry, calls, timestamp=local_time(entry.timestamp, zone))
        cost = estimate_text_tokens(block) + 1
        if cost > left:
            if shown:
                break
            block = _excerpt(block, left)
            cost = left
        entries.append(entry)
        shown.append(entry.id)
        blocks.append(block)
        left -= cost
    if not entries:
        return None
    return Chunk(entries=entries, shown_ids=tuple(shown), text="\n\n".join(blocks))


def _excerpt(block: str, max_tokens: int) -> str:
    """A block's label, and the head and the tail of what is under it."""
    label, _, body = block.partition("\n")
    low, high = 0, len(body)
    best = label
    while low < high:  # the longest excerpt that fits
        half = (low + high + 1) // 2
        text = _cut(label, body, half)
        if estimate_text_tokens(text) + 1 <= max_tokens:
            low, best = half, text
        else:
            high = half - 1
    return best


def _cut(label: str, body: str, chars: int) -> str:
    head = chars * 2 // 3
    tail = chars - head
    end = body[len(body) - tail :] if tail else ""
    missing = len(body) - chars
    return f"{label}\n{body[:head]}\n{indented(f'[… {missing} characters are not shown …]')}\n{end}"


def observer_prompt(chunk: Chunk, known: str, now: str) -> str:
    """What the observer is asked."""
    return (
        f"It is {now}.\n\nWhat you noted before:\n\n{known}\n\n"
        f"The newest messages:\n\n{chunk.text}\n\n"
        "Record what is new in them."
    )


class ObserverDesk:
    """Takes the observer's calls and keeps what is good of them."""

    def __init__(
        self,
        chunk: Chunk,
        ledger: Ledger,
        zone: tzinfo | None,
        redact: Callable[[str], str],
    ) -> None:
        self._chunk = chunk
        self._redact = redact
        self._zone = zone
        self._order = {entry.id: at for at, entry in enumerate(chunk.entries)}
        self._shown = frozenset(chunk.shown_ids)
        self._taken: dict[str, Observation] = dict(ledger.observations_by_id)
        self._nudged = False
        self.accepted: list[Observation] = []
        self.said_nothing = False
        self.rejected = 0
        self.duplicates = 0

    @property
    def tool(self) -> WorkerTool:
        return WorkerTool(
            name="record_observations",
            description="Record what is worth remembering; an empty list when nothing is.",
            parameters=PARAMETERS,
            handle=self.handle,
        )

    def nudge(self) -> str | None:
        if self._nudged or self.accepted or self.said_nothing or self.rejected:
            return None
        self._nudged = True
        return NUDGE

    def handle(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found = as_list(arguments.get("observations"))
        if found is None:
            self.rejected += 1
            return {"error": "`observations` must be a list.", "total": len(self.accepted)}
        if not found:
            self.said_nothing = True
        before, twice = len(self.accepted), self.duplicates
        refused: list[dict[str, Any]] = []
        for at, item in enumerate(found):
            reason = self._take(item)
            if reason is not None:
                self.rejected += 1
                refused.append({"item": at, "reason": reason})
        return {
            "added": len(self.accepted) - before,
            "duplicates": self.duplicates - twice,
            "rejected": refused[:_MAX_REASONS],
            "total": len(self.accepted),
        }

    def _take(self, item: Any) -> str | None:
        """Keep an item, or say why not."""
        if not is_mapping(item):
            return "An observation is an object."
        content, relevance = item.get("content"), item.get("relevance")
        wanted = as_ids(item.get("sourceEntryIds"))
        if not isinstance(content, str) or not bounded_content(content):
            return "`content` must be a sentence."
        if not isinstance(relevance, str) or relevance not in RELEVANCES:
            return f"`relevance` must be one of {', '.join(RELEVANCES)}."
        if not wanted:
            return "`sourceEntryIds` must be a list of entry ids."
        unknown = [key for key in wanted if key not in self._shown]
        if unknown:
            shown = ", ".join(key[:40] for key in unknown[:5])
            return f"These entries were not shown: {shown}."
        if is_repetitive(content):
            return "`content` repeats itself."
        keys = sorted(set(wanted), key=self._order.__getitem__)
        newest = self._chunk.entries[self._order[keys[-1]]]
        one = make_observation(
            content=self._redact(content),
            timestamp=local_time(newest.timestamp, self._zone),
            relevance=relevance,
            source_entry_ids=keys,
            taken=self._taken,
        )
        if one.id in self._taken:
            self.duplicates += 1
            return None
        self._taken[one.id] = one
        self.accepted.append(one)
        return None

    def in_order(self) -> tuple[Observation, ...]:
        """What was accepted, by time; of one time in the order in which it came."""
        return tuple(sorted(self.accepted, key=lambda one: parse_time(one.timestamp) or 0.0))

    def covers(self, ended: Conversation) -> str | None:
        """Up to which source the chunk was worked through; `None` when it was not.

        A model that came to its own end has seen all of it. One that broke off, or whose items
        were refused, has worked through it up to the last source that it named.
        """
        if ended.error is None and not self.rejected and (self.accepted or self._clean):
            return self._chunk.last_id
        if not self.accepted:
            return None
        last = max(self._order[key] for one in self.accepted for key in one.source_entry_ids)
        return self._chunk.entries[last].id

    @property
    def _clean(self) -> bool:
        return self.said_nothing or bool(self.duplicates)
