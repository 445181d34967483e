"""Walking a session's tree, and what of a branch the model sees. Pure, linear in the entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from prism.core._errors import BranchError
from prism.core._wire import (
    CompactionEntry,
    LabelEntry,
    Message,
    MessageEntry,
    MetadataEntry,
    ModelChangeEntry,
    ModelConfig,
    SessionEntry,
    SummaryEntry,
    ToolCallBlock,
    ToolResultBlock,
)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a rebuild met and went around."""

    code: str
    message: str
    entry_id: str | None = None


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A path that ends in an entry without children.

    Attributes:
        entry_count: Entries on the path.
        label: Latest label of the leaf, or, when labels alone follow it, of the entry that they
            follow.
    """

    leaf_id: str
    entry_count: int
    label: str | None = None


class SessionContext(msgspec.Struct, frozen=True, kw_only=True):
    """What `rebuild_session_context` gives.

    Attributes:
        entries: The whole branch, from the root to the leaf.
        messages: Messages that are sent raw, in path order.
        summaries: What stands for the rest, oldest first.
        model: The branch's latest model, from the whole path.
        thinking_level: The branch's latest thinking level.
        warnings: Holes and invalid compactions that were met.
    """

    leaf_id: str | None
    entries: list[SessionEntry]
    messages: list[Message]
    summaries: list[str]
    model: ModelConfig | None = None
    thinking_level: str | None = None
    warnings: list[Problem] = []


def is_leaf_marker(entry: SessionEntry) -> bool:
    """Whether the entry only says where the session stands; it is on no path."""
    return isinstance(entry, MetadataEntry) and entry.is_leaf_marker


def current_leaf(entries: Sequence[SessionEntry]) -> str | None:
    """Where a session stands: its last entry, or where its last leaf marker points."""
    if not entries:
        return None
    last = entries[-1]
    if isinstance(last, MetadataEntry) and last.is_leaf_marker:
        return last.leaf_id
    return last.id


def walk_path(
    by_id: Mapping[str, SessionEntry], leaf_id: str | None
) -> tuple[list[SessionEntry], Problem | None]:
    """The path to a leaf as far as it can be walked, and what stopped it."""
    path: list[SessionEntry] = []
    seen: set[str] = set()
    child: str | None = None
    at = leaf_id
    while at is not None:
        entry = by_id.get(at)
        if entry is None:
            where = f"entry {child!r}" if child else "the session's leaf"
            problem = Problem(
                code="missing_parent",
                message=f"Entry {at!r}, which {where} follows, is not in the session.",
                entry_id=child,
            )
            path.reverse()
            return path, problem
        if at in seen:
            path.reverse()
            return path, Problem(
                code="cycle", message=f"Entry {at!r} is its own ancestor.", entry_id=at
            )
        seen.add(at)
        if not is_leaf_marker(entry):
            path.append(entry)
        child = at
        at = entry.parent_id
    path.reverse()
    return path, None


def branch_entries(
    entries: Iterable[SessionEntry], leaf_id: str | None = None
) -> list[SessionEntry]:
    """The path from the root to a leaf.

    Args:
        entries: All entries of one session, in append order.
        leaf_id: Default: where the session stands.

    Raises:
        BranchError: `missing_parent` or `cycle`.
    """
    known = list(entries)
    leaf = current_leaf(known) if leaf_id is None else leaf_id
    path, problem = walk_path({entry.id: entry for entry in known}, leaf)
    if problem is not None:
        raise BranchError(problem.message, code=problem.code, details={"entryId": problem.entry_id})
    return path


def labels_by_target(entries: Iterable[SessionEntry]) -> dict[str, str]:
    """The label that each labelled entry has now: the latest one wins, an empty one clears."""
    labels: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, LabelEntry) and entry.target_id is not None:
            if entry.label:
                labels[entry.target_id] = entry.label
            else:
                labels.pop(entry.target_id, None)
    return labels


def list_branches(entries: Iterable[SessionEntry]) -> list[Branch]:
    """Every branch of a session, in the order in which their leaves were appended.

    A leaf marker is on no branch: what names it as parent follows the marker's own parent.
    """
    known = list(entries)
    by_id = {entry.id: entry for entry in known}
    parents: set[str] = set()
    for entry in known:
        if is_leaf_marker(entry):
            continue
        at = entry.parent_id
        while at is not None and at not in parents:
            parents.add(at)
            above = by_id.get(at)
            at = above.parent_id if above is not None and is_leaf_marker(above) else None
    counts: dict[str, int] = {}
    labels = labels_by_target(known)
    return [
        Branch(
            leaf_id=entry.id,
            entry_count=_count_path(by_id, entry.id, counts),
            label=_label_of(by_id, entry, labels),
        )
        for entry in known
        if entry.id not in parents and not is_leaf_marker(entry)
    ]


def _label_of(
    by_id: Mapping[str, SessionEntry], leaf: SessionEntry, labels: Mapping[str, str]
) -> str | None:
    """The leaf's label; to label it had made the label the leaf."""
    at: SessionEntry | None = leaf
    seen: set[str] = set()
    while at is not None and at.id not in seen:
        if at.id in labels:
            return labels[at.id]
        if not isinstance(at, LabelEntry):
            return None
        seen.add(at.id)
        at = None if at.parent_id is None else by_id.get(at.parent_id)
    return None


def labelled_leaf(path: Sequence[SessionEntry]) -> str | None:
    """What a label on the leaf of *path* names: the last entry that is no label itself."""
    for entry in reversed(path):
        if not isinstance(entry, LabelEntry):
            return entry.id
    return path[-1].id if path else None


def _count_path(by_id: Mapping[str, SessionEntry], leaf_id: str, counts: dict[str, int]) -> int:
    """Entries of `walk_path`, remembered for every entry that was passed."""
    passed: dict[str, int] = {}
    at: str | None = leaf_id
    while at is not None and at in by_id and at not in counts and at not in passed:
        passed[at] = 0 if is_leaf_marker(by_id[at]) else 1
        at = by_id[at].parent_id
    total = 0 if at is None else counts.get(at, 0)
    below = list(passed)
    if at in passed:  # a loop: from each of its entries the walk meets all of them
        loop = below[below.index(at) :]
        total = sum(passed[key] for key in loop)
        counts.update(dict.fromkeys(loop, total))
        below = below[: len(below) - len(loop)]
    for key in reversed(below):
        total += passed[key]
        counts[key] = total
    return counts.get(leaf_id, 0)


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The latest valid compaction of a path.

    Attributes:
        entry: It.
        through: Place of the last covered entry on the path; -1 covers nothing.
        keep: Places up to there whose messages are sent raw all the same.
    """

    entry: CompactionEntry
    through: int
    keep: frozenset[int]


def latest_compaction(
    path: Sequence[SessionEntry], warnings: list[Problem] | None = None
) -> Compacted | None:
    """The latest compaction of a path that can be used, whole pairs kept together."""
    places: dict[str, int] | None = None
    for place in range(len(path) - 1, -1, -1):
        entry = path[place]
        if not isinstance(entry, CompactionEntry):
            continue
        if places is None:
            places = {known.id: at for at, known in enumerate(path)}
        reason = why_unusable(entry, places, place)
        if reason is not None:
            if warnings is not None:
                warnings.append(
                    Problem(
                        code="invalid_compaction",
                        message=f"Compaction {entry.id!r} was passed over: {reason}.",
                        entry_id=entry.id,
                    )
                )
            continue
        data = entry.data or {}
        if data.get("throughEntryId") is None:
            return Compacted(entry=entry, through=-1, keep=frozenset())
        through = places[data["throughEntryId"]]
        named = (places.get(key, -1) for key in data.get("keepEntryIds") or ())
        kept = {at for at in named if 0 <= at <= through and isinstance(path[at], MessageEntry)}
        keep = whole_groups(path, kept, through=through)
        return Compacted(entry=entry, through=through, keep=keep)
    return None


def why_unusable(entry: CompactionEntry, places: Mapping[str, int], place: int) -> str | None:
    """Why the compaction at *place* says nothing about its path, or `None` when it does.

    Only `throughEntryId` and `keepEntryIds` are read: the rest of the data is its strategy's own.
    """
    if not entry.summary.strip():
        return "its summary is empty"
    data = entry.data or {}
    keep: Any = data.get("keepEntryIds")
    if keep is not None and not (
        isinstance(keep, list) and all(isinstance(key, str) for key in keep)  # pyright: ignore[reportUnknownVariableType]
    ):
        return "its keepEntryIds are not a list of ids"
    through_id: object = data.get("throughEntryId")
    if through_id is None:
        return None
    if not isinstance(through_id, str):
        return "its throughEntryId is not an id"
    through = places.get(through_id)
    if through is None or through >= place:
        return f"its throughEntryId {through_id!r} is not before it on the path"
    return None


def whole_groups(
    path: Sequence[SessionEntry], kept: Collection[int], *, through: int
) -> frozenset[int]:
    """*kept*, with the calls and results that must stay with it and with what is behind *through*.

    Args:
        path: From the root to the leaf.
        kept: Places up to *through*.
        through: Places behind it are all kept; they are not in the result.

    A result belongs to the nearest call of its id before it.
    """
    links = _pair_links(path)
    whole = set(kept)
    todo = list(whole)
    todo += (at for at, linked in links.items() if at > through and min(linked) <= through)
    seen = set(todo)
    while todo:
        place = todo.pop()
        if place <= through:
            whole.add(place)
        for linked in links.get(place, ()):
            if linked not in seen:
                seen.add(linked)
                todo.append(linked)
    return frozenset(whole)


def _pair_links(path: Sequence[SessionEntry]) -> dict[int, list[int]]:
    """For each place with an answered call or an answering result, the places at the other end."""
    calls: dict[str, int] = {}
    links: dict[int, list[int]] = {}
    for place, entry in enumerate(path):
        if not isinstance(entry, MessageEntry):
            continue
        for block in entry.message.content:
            if isinstance(block, ToolCallBlock):
                calls[block.id] = place
            elif isinstance(block, ToolResultBlock):
                call = calls.get(block.tool_call_id)
                if call is not None:
                    links.setdefault(call, []).append(place)
                    links.setdefault(place, []).append(call)
    return links


def normalize_thinking(level: str | None) -> str | None:
    """`none` is read as `off`."""
    return "off" if level == "none" else level


def rebuild_session_context(
    entries: Iterable[SessionEntry], leaf_id: str | None = None
) -> SessionContext:
    """What the model sees of a branch. The result depends on the arguments alone.

    Args:
        entries: All entries of one session, in append order.
        leaf_id: Default: where the session stands.

    A missing parent or a cycle ends the path there, with a warning.
    """
    known = list(entries)
    leaf = current_leaf(known) if leaf_id is None else leaf_id
    path, problem = walk_path({entry.id: entry for entry in known}, leaf)
    warnings = [problem] if problem is not None else []
    return context_of_path(path, warnings=warnings)


def context_of_path(
    path: list[SessionEntry], *, warnings: list[Problem] | None = None
) -> SessionContext:
    """`rebuild_session_context` for a path that is already known."""
    problems = warnings if warnings is not None else []
    compacted = latest_compaction(path, problems)
    through = -1 if compacted is None else compacted.through
    keep: frozenset[int] = frozenset() if compacted is None else compacted.keep
    messages: list[Message] = []
    summaries: list[str] = [] if compacted is None else [compacted.entry.summary]
    model: ModelConfig | None = None
    thinking_level: str | None = None
    for place, entry in enumerate(path):
        if isinstance(entry, MessageEntry):
            if place > through or place in keep:
                messages.append(entry.message)
        elif isinstance(entry, SummaryEntry):
            if place > through and entry.summary.strip():
                summaries.append(entry.summary)
        elif isinstance(entry, ModelChangeEntry):
            model = entry.model or model
            thinking_level = normalize_thinking(entry.thinking_level) or thinking_level
    return SessionContext(
        leaf_id=path[-1].id if path else None,
        entries=path,
        messages=messages,
        summaries=summaries,
        model=model,
        thinking_level=thinking_level,
        warnings=problems,
    )


UNCOUNTED_KINDS = frozenset({"custom", "label", "metadata", "event"})
"""Kinds that `threshold_entries` does not count."""


def entry_kind(entry: SessionEntry) -> str:
    """The entry's `kind` as on the wire."""
    config: Any = getattr(entry, "__struct_config__", None)
    return entry.kind if config is None else str(config.tag)  # type: ignore[union-attr]


def count_context_entries(path: Sequence[SessionEntry], compacted: Compacted | None) -> int:
    """Entries that auto-compaction counts: the latest compaction, what it kept, what follows."""
    through = -1 if compacted is None else compacted.through
    keep: frozenset[int] = frozenset() if compacted is None else compacted.keep
    return sum(
        1
        for place, entry in enumerate(path)
        if (place > through or place in keep) and entry_kind(entry) not in UNCOUNTED_KINDS
    )
