"""Choosing where a path is cut."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from prism.memory.llm._prepare.sent import Sent, usage_scale

_MOST: Final = 2
"""What is kept may overshoot the budget to this many times, by the message that crosses it."""

_TURN_BIAS: Final = 4
"""A cut between two turns is preferred when it is within this part of the budget."""


def choose_cut(
    sent: Sent, *, keep_recent_tokens: int, keep_recent_entries: int | None, must_shrink: bool
) -> int | None:
    """How many of the entries that are sent leave."""
    total = sum(sent.tokens)
    half = max(1, total // 2)
    if keep_recent_entries is not None:
        cut = _cut_by_count(sent, keep_recent_entries)
        if not must_shrink or (cut is not None and sum(sent.tokens[cut:]) <= half):
            return cut
    budget = max(1, int(keep_recent_tokens / usage_scale(sent)))
    if must_shrink:
        budget = min(budget, half)
    most = budget if must_shrink else _MOST * budget
    if total <= budget:
        return None
    size = len(sent.places)
    reached = below = turn = None
    reached_kept = kept = 0
    turn_distance = budget // _TURN_BIAS
    for cut in range(size, 0, -1):
        if cut < size:
            kept += sent.tokens[cut]
        if kept > most and (reached is not None or below is not None):
            break
        if not sent.can_cut[cut]:
            continue
        if kept < budget:
            below = cut
        elif reached is None:
            reached, reached_kept = cut, kept
        distance = abs(kept - budget)
        if distance <= turn_distance and kept <= most and cut < size and sent.starts_turn(cut):
            turn, turn_distance = cut, distance
    if turn is not None:
        return turn
    if reached is not None and (reached_kept <= most or below is None):
        return reached
    return below


def _cut_by_count(sent: Sent, keep: int) -> int | None:
    for cut in range(len(sent.places) - 1, 0, -1):
        keep -= sent.message(cut) is not None
        if keep <= 0 and sent.can_cut[cut]:
            return cut
    return None


def turn_start(sent: Sent, cut: int, keep: Collection[int]) -> int | None:
    """Place of the message that began the turn in which *cut* falls."""
    following = next((at for at in range(cut, len(sent.places)) if sent.message(at)), None)
    if following is not None and sent.starts_turn(following):
        return None
    start = next((at for at in range(cut - 1, -1, -1) if sent.starts_turn(at)), None)
    if start is None:
        return None
    place = sent.places[start]
    return place if following is not None or place in keep else None
