"""The dropper: which observations leave the pool, by a model's proposal or by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

from prism.memory.observational._ledger import Ledger, coverage_tier
from prism.memory.observational._lines import parse_time
from prism.memory.observational._records import RELEVANCES, Observation
from prism.memory.observational._shapes import as_list
from prism.memory.observational._workers.engine import WorkerTool

NUDGE: Final = (
    "You wrote text, which nobody reads. Call `drop_observations`; with an empty list when none "
    "should go."
)

PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "ids": {"type": "array", "items": {"type": "string"}},
        "reason": {"type": "string"},
    },
    "required": ["ids"],
}

_TIERS: Final = {"strong": 0, "partial": 1, "none": 2}
_RANK: Final = {relevance: rank for rank, relevance in enumerate(RELEVANCES)}


def max_drops(pool_tokens: int, target_tokens: int, count: int) -> int:
    """How many of *count* observations of average size have to go to reach the target."""
    if pool_tokens <= target_tokens or not count:
        return 0
    average = pool_tokens / count
    return min(count, max(1, ceil((pool_tokens - target_tokens) / average)))


def dropper_prompt(known: str, *, pool: int, target: int, most: int, now: str) -> str:
    """What the dropper is asked."""
    percent = round(100 * pool / target)
    return (
        f"It is {now}.\n\n{known}\n\n"
        f"The observations take about {pool} tokens, {percent}% of the {target} that they should "
        f"take: {pool - target} too many. Name at most {most} that can go."
    )


def may_drop(one: Observation, ledger: Ledger) -> bool:
    """Whether code may let it go: not what is critical and kept by no reflection."""
    return one.relevance != "critical" or ledger.citations.get(one.id, 0) > 0


class DropperDesk:
    """Takes the dropper's proposals."""

    def __init__(self, ledger: Ledger, most: int) -> None:
        self._ledger = ledger
        self._most = most
        self._active = {one.id: one for one in ledger.active_observations}
        self._nudged = False
        self.proposed: dict[str, None] = {}
        self.said_nothing = False
        self.rejected = 0
        self.duplicates = 0

    @property
    def tool(self) -> WorkerTool:
        return WorkerTool(
            name="drop_observations",
            description="Name observations that can go; an empty list when none can.",
            parameters=PARAMETERS,
            handle=self.handle,
        )

    def nudge(self) -> str | None:
        if self._nudged or self.proposed or self.said_nothing or self.rejected:
            return None
        self._nudged = True
        return NUDGE

    def handle(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found = as_list(arguments.get("ids"))
        if found is None:
            self.rejected += 1
            return {"error": "`ids` must be a list.", "total": len(self.proposed)}
        if not found:
            self.said_nothing = True
        ignored = 0
        for key in found:
            one = self._active.get(key) if isinstance(key, str) else None
            if one is None or not may_drop(one, self._ledger):
                ignored += 1
            elif key in self.proposed:
                self.duplicates += 1
            else:
                self.proposed[key] = None
        self.rejected += ignored
        return {"queued": len(self.proposed), "ignored": ignored, "maximum": self._most}

    def selected(self) -> tuple[str, ...]:
        """Of what was proposed, as many as may go.

        The best kept by reflections go first, then the least relevant, then the oldest.
        """
        order = list(self.proposed)

        def key(memory: str) -> tuple[int, int, float, int]:
            one = self._active[memory]
            tier = _TIERS[coverage_tier(self._ledger.citations.get(memory, 0))]
            at = parse_time(one.timestamp)
            return (
                tier,
                _RANK[one.relevance],
                float("inf") if at is None else at,
                order.index(memory),
            )

        return tuple(sorted(order, key=key)[: self._most])


def backstop_drops(ledger: Ledger, target_tokens: int) -> tuple[str, ...]:
    """What goes by rule, to bring the pool down to the target without a model.

    The least relevant go first, of these the best kept by reflections, then the oldest; never what
    is critical and kept by no reflection.
    """
    pool = ledger.pool_tokens
    places = {one.id: at for at, one in enumerate(ledger.active_observations)}
    candidates: Sequence[Observation] = sorted(
        (one for one in ledger.active_observations if may_drop(one, ledger)),
        key=lambda one: (
            _RANK[one.relevance],
            _TIERS[coverage_tier(ledger.citations.get(one.id, 0))],
            places[one.id],
        ),
    )
    gone: list[str] = []
    for one in candidates:
        if pool <= target_tokens:
            break
        pool -= int(one.token_count)
        gone.append(one.id)
    return tuple(gone)
