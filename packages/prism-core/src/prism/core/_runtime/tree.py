"""The shape of a session's tree, and copies of it under another id."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from prism.core._contracts import SessionStore, StoredEntry
from prism.core._errors import SessionExists, StoreConflict, UsageError
from prism.core._support.branch import (
    branch_entries,
    current_leaf,
    entry_kind,
    is_leaf_marker,
    labels_by_target,
)
from prism.core._support.ids import IdMaker
from prism.core._wire import (
    LabelEntry,
    MetadataEntry,
    OpaqueEntry,
    SessionEntry,
    encode,
    entry_with_session,
    opaque_entry,
)


class TreeNode(msgspec.Struct, frozen=True, kw_only=True):
    """An entry's place in the tree and the label that it has now."""

    id: str
    kind: str
    parent_id: str | None = None
    label: str | None = None

    @classmethod
    def list_of(cls, entries: Sequence[SessionEntry]) -> list[TreeNode]:
        """All entries but leaf markers, in append order."""
        labels = labels_by_target(entries)
        return [
            cls(
                id=entry.id,
                kind=entry_kind(entry),
                parent_id=entry.parent_id,
                label=labels.get(entry.id),
            )
            for entry in entries
            if not is_leaf_marker(entry)
        ]


async def copy_path(
    store: SessionStore,
    source: str,
    target: str,
    leaf_id: str | None,
    *,
    make_id: IdMaker,
    timestamp: str,
) -> None:
    """Copy the path to *leaf_id*, and the labels whose target is on it, to a new session."""
    stored = await store.entries(source)
    _check_leaf(stored, source, leaf_id)
    entries = [item.entry for item in stored]
    path: set[str] = set()
    if leaf_id is not None:
        path = {entry.id for entry in branch_entries(entries, leaf_id)}
    copies: list[OpaqueEntry] = []
    for item in stored:
        entry = item.entry
        if entry.id in path:
            copies.append(entry_with_session(item.raw, target))
        elif isinstance(entry, LabelEntry) and entry.target_id in path:
            # What it followed is not copied, so it hangs on what it names.
            copies.append(_under(entry_with_session(item.raw, target), entry.target_id))
    await _write_copy(store, target, copies, leaf_id, make_id=make_id, timestamp=timestamp)


async def copy_all(
    store: SessionStore,
    source: str,
    target: str,
    leaf_id: str | None,
    *,
    make_id: IdMaker,
    timestamp: str,
) -> None:
    """Copy every entry in store order to a new session that stands at *leaf_id*."""
    stored = await store.entries(source)
    _check_leaf(stored, source, leaf_id)
    copies = [entry_with_session(item.raw, target) for item in stored]
    stands_at = current_leaf([item.entry for item in stored])
    await _write_copy(
        store, target, copies, leaf_id, make_id=make_id, timestamp=timestamp, stands_at=stands_at
    )


def _check_leaf(stored: Sequence[StoredEntry], source: str, leaf_id: str | None) -> None:
    if leaf_id is not None and all(item.entry.id != leaf_id for item in stored):
        raise UsageError(f"Session {source!r} has no entry {leaf_id!r}.", code="entry_not_found")


def _under(entry: OpaqueEntry, parent_id: str | None) -> OpaqueEntry:
    fields = msgspec.json.decode(entry.raw, type=dict[str, msgspec.Raw])
    fields["parentId"] = msgspec.Raw(encode(parent_id))
    return opaque_entry(msgspec.json.encode(fields))


async def _write_copy(
    store: SessionStore,
    target: str,
    copies: list[OpaqueEntry],
    leaf_id: str | None,
    *,
    make_id: IdMaker,
    timestamp: str,
    stands_at: str | None = None,
) -> None:
    at = stands_at if stands_at is not None or not copies else copies[-1].id
    batch: list[SessionEntry] = list(copies)
    if copies and at != leaf_id:
        data = {"type": "leaf"} if leaf_id is None else {"type": "leaf", "leafId": leaf_id}
        batch.append(
            MetadataEntry(
                id=make_id("entry"),
                session_id=target,
                timestamp=timestamp,
                parent_id=leaf_id,
                data=data,
            )
        )
    # A batch that is there already, with equal JSON, is no conflict to a store.
    if await store.entries(target, limit=1):
        raise SessionExists(f"Session {target!r} exists already.")
    try:
        await store.append(target, batch, expected_version=0)
    except StoreConflict as error:
        raise SessionExists(f"Session {target!r} exists already.") from error
