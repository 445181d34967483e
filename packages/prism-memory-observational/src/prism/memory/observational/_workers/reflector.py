"""The reflector: from observations to lasting facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from prism.memory.observational._ledger import Ledger
from prism.memory.observational._lines import bounded_content, one_line
from prism.memory.observational._records import Reflection, make_reflection
from prism.memory.observational._shapes import as_ids, as_list, is_mapping
from prism.memory.observational._workers.engine import WorkerTool
from prism.memory.observational._workers.guard import is_repetitive

NUDGE: Final = (
    "You wrote text, which nobody reads. Call `record_reflections`; with an empty list when there "
    "is nothing new."
)

_MAX_REASONS: Final = 20

_IDS: Final[Mapping[str, Any]] = {"type": "array", "items": {"type": "string"}}

PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "reflections": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string", "description": "One sentence."},
                    "supportingObservationIds": _IDS,
                    "supersedes": _IDS,
                },
                "required": ["content", "supportingObservationIds"],
            },
        },
        "obsolete": _IDS,
    },
    "required": ["reflections"],
}


def reflector_prompt(known: str, now: str) -> str:
    """What the reflector is asked."""
    return f"It is {now}.\n\n{known}\n\nRecord the lasting facts that are new."


class ReflectorDesk:
    """Takes the reflector's calls and keeps what is good of them."""

    def __init__(self, ledger: Ledger, timestamp: str, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._order = {one.id: at for at, one in enumerate(ledger.active_observations)}
        self._timestamp = timestamp
        self._taken: dict[str, Reflection] = dict(ledger.reflections_by_id)
        self._active: dict[str, Reflection] = {one.id: one for one in ledger.active_reflections}
        self._said = {one_line(one.content).casefold() for one in ledger.active_reflections}
        self._nudged = False
        self.accepted: list[Reflection] = []
        self.superseded: dict[str, list[str]] = {}
        self.obsolete: list[str] = []
        self.said_nothing = False
        self.rejected = 0
        self.duplicates = 0

    @property
    def tool(self) -> WorkerTool:
        return WorkerTool(
            name="record_reflections",
            description="Record lasting facts; an empty list when there is nothing new.",
            parameters=PARAMETERS,
            handle=self.handle,
        )

    @property
    def clean(self) -> bool:
        """Whether the model said that there is nothing, in so many words."""
        return self.said_nothing or bool(self.duplicates)

    def nudge(self) -> str | None:
        if self._nudged or self.accepted or self.clean or self.rejected or self.obsolete:
            return None
        self._nudged = True
        return NUDGE

    def handle(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found = as_list(arguments.get("reflections"))
        gone = as_list(arguments.get("obsolete") or [])
        if found is None or gone is None:
            self.rejected += 1
            return {"error": "`reflections` must be a list.", "total": len(self.accepted)}
        if not found and not gone:
            self.said_nothing = True
        before, twice = len(self.accepted), self.duplicates
        refused: list[dict[str, Any]] = []
        for at, item in enumerate(found):
            reason = self._take(item)
            if reason is not None:
                self.rejected += 1
                refused.append({"item": at, "reason": reason})
        for key in gone:
            reason = self._retire(key)
            if reason is not None:
                self.rejected += 1
                refused.append({"obsolete": str(key)[:40], "reason": reason})
        return {
            "added": [one.id for one in self.accepted[before:]],
            "duplicates": self.duplicates - twice,
            "rejected": refused[:_MAX_REASONS],
            "total": len(self.accepted),
        }

    def _take(self, item: Any) -> str | None:
        if not is_mapping(item):
            return "A reflection is an object."
        content = item.get("content")
        supports = as_ids(item.get("supportingObservationIds"))
        old = as_ids(item.get("supersedes") or [])
        if not isinstance(content, str) or not bounded_content(content):
            return "`content` must be a sentence."
        if len(content.strip().splitlines()) > 1:
            return "`content` must be one line."
        if not supports:
            return "`supportingObservationIds` must be a list of observation ids."
        if any(key not in self._order for key in supports):
            return "A supporting id is no observation that is in use."
        if old is None or any(key not in self._active for key in old):
            return "A superseded id is no reflection that is in use."
        if is_repetitive(content):
            return "`content` repeats itself."
        if one_line(content).casefold() in self._said:
            self.duplicates += 1
            return None
        keys = sorted(set(supports), key=self._order.__getitem__)
        one = make_reflection(
            content=self._redact(content),
            supporting_observation_ids=keys,
            timestamp=self._timestamp,
            taken=self._taken,
        )
        self._taken[one.id] = one
        self._said.add(one_line(content).casefold())
        self.accepted.append(one)
        old = list(dict.fromkeys(old))
        if old:
            self.superseded[one.id] = old
            for key in old:
                self._active.pop(key)
        return None

    def _retire(self, key: Any) -> str | None:
        if not isinstance(key, str) or key not in self._active:
            return "It is no reflection that is in use."
        if len(self._active) + len(self.accepted) <= 1:
            return "Something has to stay: record what stands for it instead."
        self._active.pop(key)
        self.obsolete.append(key)
        return None
