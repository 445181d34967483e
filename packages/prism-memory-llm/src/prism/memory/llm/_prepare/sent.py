"""What of a path is sent to the model now, and where it can be cut."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from prism.core import (
    CompactionEntry,
    Message,
    MessageEntry,
    SessionEntry,
    SummaryEntry,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.core.compaction import latest_compaction
from prism.memory.llm._tokens import estimate_message_tokens, estimate_text_tokens

_MAX_SCALE: Final = 4.0
_MIN_SCALE_TOKENS: Final = 1_000


class Sent:
    """What of a path is sent to the model now.

    Attributes:
        covered: Place of the last entry that the previous compaction covers; -1 without one.
        places: Of messages and summary entries that are sent raw, in path order.
        tokens: Estimate of each.
        can_cut: For each number of entries to leave, whether no call is parted from its result.
    """

    __slots__ = (
        "can_cut",
        "covered",
        "entries",
        "places",
        "previous",
        "previous_summary",
        "tokens",
    )

    def __init__(self, entries: Sequence[SessionEntry]) -> None:
        self.entries = entries
        previous = latest_compaction(entries)
        self.previous: CompactionEntry | None = None if previous is None else previous.entry
        self.previous_summary = None if previous is None else previous.entry.summary
        self.covered = -1 if previous is None else previous.through
        raw: Collection[int] = () if previous is None else previous.keep
        self.places: list[int] = []
        self.tokens: list[int] = []
        for place in range(min(raw, default=self.covered + 1), len(entries)):
            entry = entries[place]
            if isinstance(entry, MessageEntry):
                if place > self.covered or place in raw:
                    self.places.append(place)
                    self.tokens.append(estimate_message_tokens(entry.message))
            elif isinstance(entry, SummaryEntry) and place > self.covered and entry.summary.strip():
                self.places.append(place)
                self.tokens.append(estimate_text_tokens(entry.summary))
        self.can_cut = self._find_cuts()

    @property
    def tokens_before(self) -> int:
        return sum(self.tokens) + estimate_text_tokens(self.previous_summary or "")

    def message(self, at: int) -> Message | None:
        entry = self.entries[self.places[at]]
        return entry.message if isinstance(entry, MessageEntry) else None

    def starts_turn(self, at: int) -> bool:
        message = self.message(at)
        return message is not None and message.role == "user"

    def _find_cuts(self) -> list[bool]:
        size = len(self.places)
        steps = [0] * (size + 2)  # sums of these: how many pairs a cut would part
        calls: dict[str, int] = {}
        unanswered: set[str] = set()
        asked_at = 0
        before = -1
        role = ""
        for at in range(size):
            message = self.message(at)
            if message is None:
                continue
            role = message.role
            if role == "tool":  # never the first message that is kept
                steps[before + 1] += 1
                steps[at + 1] -= 1
            else:
                unanswered.clear()
            for block in message.content:
                if isinstance(block, ToolCallBlock):
                    calls[block.id] = asked_at = at
                    unanswered.add(block.id)
                elif isinstance(block, ToolResultBlock):
                    unanswered.discard(block.tool_call_id)
                    call = calls.get(block.tool_call_id, at)
                    steps[call + 1] += 1
                    steps[at + 1] -= 1
            before = at
        if unanswered:  # their results may still come
            steps[asked_at + 1] += 1
        if role == "user":  # it waits for an answer
            steps[size] += 1
        cuts: list[bool] = []
        parted = 0
        for step in steps[: size + 1]:
            parted += step
            cuts.append(parted == 0)
        return cuts


def usage_scale(sent: Sent) -> float:
    """How many tokens the provider counts for one that is estimated, from 1 to 4.

    Taken from two answers behind the latest compaction: what their inputs differ by was estimated
    too, while the system prompt and the tools are in both.
    """
    after = -1
    if sent.previous is not None:
        places = range(len(sent.entries) - 1, -1, -1)
        after = next(place for place in places if sent.entries[place] is sent.previous)
    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    for at in range(len(sent.places) - 1, -1, -1):
        if sent.places[at] < after:
            break
        message = sent.message(at)
        usage = None if message is None else message.usage
        if usage is None or usage.input_tokens is None:
            continue
        counted = usage.input_tokens + (usage.cache_read_tokens or 0)
        counted += usage.cache_write_tokens or 0
        first = (at, counted)
        last = last or first
    if first is None or last is None:
        return 1.0
    estimated = sum(sent.tokens[first[0] : last[0]])
    if estimated < _MIN_SCALE_TOKENS:
        return 1.0
    return min(_MAX_SCALE, max(1.0, (last[1] - first[1]) / estimated))
