"""Branches made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from prism.core import (
    CompactionEntry,
    CustomEntry,
    Message,
    MessageEntry,
    SessionEntry,
    SummaryEntry,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from prism.memory.observational import (
    Observation,
    Reflection,
    drops_record,
    make_observation,
    make_reflection,
    observations_record,
    reflections_record,
    supersession_record,
)

TIME = "2026-03-01T09:30:00+00:00"
SESSION = "s1"


def seen(
    content: str, *sources: str, relevance: str = "medium", timestamp: str = TIME
) -> Observation:
    """An observation."""
    return make_observation(
        content=content,
        timestamp=timestamp,
        relevance=relevance,
        source_entry_ids=sources or ("m1",),
    )


def lasting(content: str, *supports: Observation, timestamp: str = TIME) -> Reflection:
    """A reflection."""
    return make_reflection(
        content=content,
        supporting_observation_ids=[one.id for one in supports],
        timestamp=timestamp,
    )


class Log:
    """A branch that grows at its end; messages are m1, m2 …, all else is x1, x2 …"""

    def __init__(self) -> None:
        self.entries: list[SessionEntry] = []
        self._messages = 0
        self._others = 0

    def _head(self, prefix: str) -> dict[str, Any]:
        if prefix == "m":
            self._messages += 1
            number = self._messages
        else:
            self._others += 1
            number = self._others
        return {
            "id": f"{prefix}{number}",
            "session_id": SESSION,
            "timestamp": f"2026-03-01T{9 + number // 60 % 12:02d}:{number % 60:02d}:00.000Z",
            "parent_id": self.entries[-1].id if self.entries else None,
        }

    def _add(self, entry: SessionEntry) -> str:
        self.entries.append(entry)
        return entry.id

    def say(self, text: str, role: str = "user", *, metadata: dict[str, Any] | None = None) -> str:
        message = Message(role=role, content=[TextBlock(text=text)], metadata=metadata)
        return self._add(MessageEntry(message=message, **self._head("m")))

    def talk(self, count: int, words: int = 3) -> list[str]:
        """That many messages, of user and model in turn."""
        return [
            self.say(
                f"message {number} " + "word " * words, "user" if number % 2 == 0 else "assistant"
            )
            for number in range(count)
        ]

    def call(self, name: str, arguments: dict[str, Any], result: str) -> tuple[str, str]:
        call_id = f"call_{self._messages}"
        asked = self._add(
            MessageEntry(
                message=Message(
                    role="assistant",
                    content=[ToolCallBlock(id=call_id, name=name, arguments=arguments)],
                ),
                **self._head("m"),
            )
        )
        block = ToolResultBlock(tool_call_id=call_id, name=name, content=[TextBlock(text=result)])
        message = Message(role="tool", content=[block])
        return asked, self._add(MessageEntry(message=message, **self._head("m")))

    def data(self, data: dict[str, Any]) -> str:
        return self._add(CustomEntry(data=data, **self._head("x")))

    def observe(self, covers: str | None, *observations: Observation) -> str:
        data = observations_record(observations, covers or "")
        if covers is None:
            del data["coversUpToId"]
        return self.data(data)

    def reflect(self, covers: str, *reflections: Reflection) -> str:
        return self.data(reflections_record(reflections, covers))

    def drop(self, covers: str, *observations: Observation | str) -> str:
        ids = [one if isinstance(one, str) else one.id for one in observations]
        return self.data(drops_record(ids, covers))

    def supersede(self, covers: str, old: Reflection, new: Reflection | None = None) -> str:
        by = None if new is None else new.id
        return self.data(supersession_record([old.id], covers, by_reflection_id=by))

    def summary(self, text: str) -> str:
        return self._add(SummaryEntry(summary=text, **self._head("x")))

    def compaction(self, through: str, summary: str = "Earlier.", **data: Any) -> str:
        return self._add(
            CompactionEntry(
                summary=summary, data={"throughEntryId": through, **data}, **self._head("x")
            )
        )

    def folded(
        self,
        through: str,
        observations: Sequence[Observation] = (),
        reflections: Sequence[Reflection] = (),
        *,
        full: bool = False,
        version: int = 1,
    ) -> str:
        memory: dict[str, Any] = {
            "type": "om.folded",
            "version": version,
            "fullFold": full,
            "observations": to_builtins(list(observations)),
            "reflections": to_builtins(list(reflections)),
            "droppedObservationIds": [],
        }
        return self.compaction(through, "Memory.", memory=memory)
