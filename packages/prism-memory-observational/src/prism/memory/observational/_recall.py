"""From a memory back to the messages that it came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from prism.core import Secret, SecretRedactor, SessionEntry, UsageError
from prism.memory.observational._ledger import Ledger, fold_ledger
from prism.memory.observational._records import Observation, Reflection, is_memory_id
from prism.memory.observational._sources import calls_of, is_source, source_block

DEFAULT_RECALL_CHARS: Final = 16_000
"""How much of the sources one call shows, in characters."""

MAX_RECALL_CHARS: Final = 200_000


class RecalledObservation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An observation and where it comes from.

    Attributes:
        status: `active` or `dropped`.
        source_ids: Sources that are on the branch.
        missing_source_ids: Sources that are not on it.
        non_source_ids: Entries of the branch that are no part of the conversation.
    """

    observation: Observation
    status: str
    source_ids: tuple[str, ...] = ()
    missing_source_ids: tuple[str, ...] = ()
    non_source_ids: tuple[str, ...] = ()


class RecalledReflection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A reflection and what it rests on.

    Attributes:
        status: `active` or `superseded`.
        superseded_by: What stands for it, if anything.
        missing_observation_ids: Supporting observations that are not on the branch.
    """

    reflection: Reflection
    status: str
    superseded_by: str | None = None
    missing_observation_ids: tuple[str, ...] = ()


class Recall(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is known of one memory.

    Attributes:
        id: As it was asked for.
        kind: `observation`, `reflection` or `mixed`; `unknown` when nothing has the id.
        found: Whether anything has it.
        status: `ok`, `partial` when some evidence is not on the branch, or `not_found`.
        observations: The observation, or those that support the reflection.
        source_ids: All sources that were found, in the order in which they are shown.
        missing_source_ids: Sources that are not on the branch.
        non_source_ids: Named sources that are no part of the conversation.
        missing_observation_ids: Supporting observations that are not on the branch.
        text: A page of the sources as they were said.
        total_chars: Length of all pages together.
        offset: Where this page begins.
        next_offset: Where the next one begins; `None` on the last.
    """

    id: str
    kind: str
    found: bool
    status: str
    observations: tuple[RecalledObservation, ...] = ()
    reflections: tuple[RecalledReflection, ...] = ()
    source_ids: tuple[str, ...] = ()
    missing_source_ids: tuple[str, ...] = ()
    non_source_ids: tuple[str, ...] = ()
    missing_observation_ids: tuple[str, ...] = ()
    text: str = ""
    total_chars: int = 0
    offset: int = 0
    next_offset: int | None = None


def check_memory_id(value: object) -> str:
    """*value*, when it has the form of a memory id.

    Raises:
        UsageError: `invalid_id`.
    """
    if isinstance(value, str) and is_memory_id(value):
        return value
    shown = repr(value[:40]) if isinstance(value, str) else f"a {type(value).__name__}"
    raise UsageError(
        f"A memory id is 12 lowercase hex digits, as it stands in brackets; not {shown}.",
        code="invalid_id",
    )


def recall(
    entries: Iterable[SessionEntry],
    id: str,  # noqa: A002
    *,
    offset: int = 0,
    max_chars: int = DEFAULT_RECALL_CHARS,
    secrets: Sequence[str | Secret] = (),
) -> Recall:
    """The evidence of one memory of a branch. Dropped and superseded ones answer too.

    Args:
        entries: One path, from the root to the leaf.
        id: 12 lowercase hex digits; nothing is searched by topic.
        offset: Where the page of the sources' text begins: 0, or a `next_offset`.
        max_chars: Length of the page, 1 to `MAX_RECALL_CHARS`.
        secrets: Exact strings that must not be in the result; taken out before the page is cut.

    Raises:
        UsageError: `invalid_id` before anything is read, or `invalid_limit`.
    """
    memory = check_memory_id(id)
    if type(offset) is not int or offset < 0:
        raise UsageError("offset must be an integer of at least 0.", code="invalid_limit")
    if type(max_chars) is not int or not 0 < max_chars <= MAX_RECALL_CHARS:
        raise UsageError(
            f"max_chars must be an integer from 1 to {MAX_RECALL_CHARS}.", code="invalid_limit"
        )
    path = entries if isinstance(entries, list) else list(entries)
    found = _Evidence(path, fold_ledger(path), memory)
    if not found.kind:
        return Recall(id=memory, kind="unknown", found=False, status="not_found")
    redactor = SecretRedactor(secrets)
    text = redactor.redact_text(found.text())
    end = min(offset + max_chars, len(text))
    return Recall(
        id=memory,
        kind=found.kind,
        found=True,
        status="partial" if found.partial else "ok",
        observations=tuple(redactor.redact_value(one) for one in found.observations),
        reflections=tuple(redactor.redact_value(one) for one in found.reflections),
        source_ids=tuple(found.sources),
        missing_source_ids=tuple(found.missing),
        non_source_ids=tuple(found.non_sources),
        missing_observation_ids=tuple(found.missing_observations),
        text=text[offset:end],
        total_chars=len(text),
        offset=offset,
        next_offset=end if end < len(text) else None,
    )


class _Evidence:
    """Everything that one id leads to."""

    def __init__(self, path: Sequence[SessionEntry], ledger: Ledger, memory: str) -> None:
        self._path = path
        self._ledger = ledger
        self._dropped = frozenset(ledger.dropped_ids)
        self.sources: dict[str, None] = {}
        self.missing: dict[str, None] = {}
        self.non_sources: dict[str, None] = {}
        self.missing_observations: dict[str, None] = {}
        self.reflections: list[RecalledReflection] = []
        self.observations: list[RecalledObservation] = []
        observation = ledger.observations_by_id.get(memory)
        reflection = ledger.reflections_by_id.get(memory)
        if observation is not None:
            self._add(observation)
        if reflection is not None:
            self._add_reflection(reflection)
        self.kind = (
            "mixed"
            if observation is not None and reflection is not None
            else "observation"
            if observation is not None
            else "reflection"
            if reflection is not None
            else ""
        )

    @property
    def partial(self) -> bool:
        return bool(self.missing or self.non_sources or self.missing_observations)

    def _add_reflection(self, reflection: Reflection) -> None:
        known = self._ledger.observations_by_id
        lost = [key for key in reflection.supporting_observation_ids if key not in known]
        self.missing_observations.update(dict.fromkeys(lost))
        superseded = reflection.id in self._ledger.superseded
        self.reflections.append(
            RecalledReflection(
                reflection=reflection,
                status="superseded" if superseded else "active",
                superseded_by=self._ledger.superseded.get(reflection.id),
                missing_observation_ids=tuple(lost),
            )
        )
        have = {one.observation.id for one in self.observations}
        for key in reflection.supporting_observation_ids:
            if key in known and key not in have:
                self._add(known[key])

    def _add(self, observation: Observation) -> None:
        places = self._ledger.places
        sources: list[str] = []
        missing: list[str] = []
        others: list[str] = []
        for key in dict.fromkeys(observation.source_entry_ids):
            place = places.get(key)
            if place is None:
                missing.append(key)
            elif is_source(self._path[place]):
                sources.append(key)
            else:
                others.append(key)
        self.sources.update(dict.fromkeys(sources))
        self.missing.update(dict.fromkeys(missing))
        self.non_sources.update(dict.fromkeys(others))
        self.observations.append(
            RecalledObservation(
                observation=observation,
                status="dropped" if observation.id in self._dropped else "active",
                source_ids=tuple(sources),
                missing_source_ids=tuple(missing),
                non_source_ids=tuple(others),
            )
        )

    def text(self) -> str:
        """The sources as they were said, in the order of the branch."""
        calls = calls_of(self._path)
        places = self._ledger.places
        ordered = sorted(self.sources, key=places.__getitem__)
        self.sources = dict.fromkeys(ordered)
        blocks: list[str] = []
        for key in ordered:
            entry = self._path[places[key]]
            if is_source(entry):
                blocks.append(source_block(entry, calls))
        return "\n\n".join(blocks)


def recall_text(found: Recall) -> str:
    """What recall tells a reader: the memory, what is missing, and a page of its sources."""
    if not found.found:
        return f"No memory of this branch has the id {found.id}."
    lines: list[str] = []
    for reflection in found.reflections:
        note = ""
        if reflection.status == "superseded":
            by = reflection.superseded_by
            note = f" (superseded by [{by}])" if by else " (superseded)"
        lines.append(f"Reflection {reflection.reflection.line}{note}")
    for one in found.observations:
        note = " (dropped from the summary)" if one.status == "dropped" else ""
        lines.append(f"Observation {one.observation.line}{note}")
    for label, ids in (
        ("Supporting observations that are not on this branch", found.missing_observation_ids),
        ("Sources that are not on this branch", found.missing_source_ids),
        ("Named sources that are no messages", found.non_source_ids),
    ):
        if ids:
            lines.append(f"{label}: {', '.join(ids)}")
    if found.text:
        lines += ["", "Sources:", "", found.text]
    if found.next_offset is not None:
        page = f"characters {found.offset} to {found.next_offset} of {found.total_chars}"
        lines += ["", f"({page}; for more call recall with offset {found.next_offset})"]
    return "\n".join(lines)


def recall_value(found: Recall) -> dict[str, Any]:
    """The result as JSON."""
    value: dict[str, Any] = msgspec.to_builtins(found)
    return value
