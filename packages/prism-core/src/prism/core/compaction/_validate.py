"""What a compaction's result must be, whoever made it."""

from __future__ import annotations

from typing import Any

from prism.core._contracts import CompactionContext, CompactionResult
from prism.core._errors import CompactionError
from prism.core._support.branch import why_unusable
from prism.core._wire import CompactionEntry, MessageEntry


def validate_compaction(context: CompactionContext, result: CompactionResult) -> CompactionEntry:
    """Check a strategy's result against the branch it was made for.

    Args:
        context: Its `entries` are the branch as it is stored, to the leaf.
        result: What the strategy gave, after all middleware.

    Returns:
        The one entry of the result.

    Raises:
        CompactionError: `invalid_compaction`: not exactly one compaction entry of this session
            under the leaf; an empty summary; a `throughEntryId` that is not on the branch;
            `keepEntryIds` that are not messages of the branch, each once, in its order.
    """
    found: list[Any] = list(result.entries)
    if len(found) != 1:
        raise _invalid(f"it has {len(found)} entries, and must have exactly one")
    entry = found[0]
    if not isinstance(entry, CompactionEntry):
        raise _invalid(f"its entry is a {type(entry).__name__}, not a CompactionEntry")
    if entry.session_id != context.session_id:
        raise _invalid(f"its entry is of session {entry.session_id!r}, not {context.session_id!r}")
    if entry.parent_id != context.leaf_id:
        raise _invalid(
            f"its entry follows {entry.parent_id!r}, and must follow the leaf {context.leaf_id!r}"
        )
    places = {known.id: place for place, known in enumerate(context.entries)}
    reason = why_unusable(entry, places, len(context.entries))
    if reason is not None:
        raise _invalid(reason)
    last = -1
    for key in (entry.data or {}).get("keepEntryIds") or ():
        place = places.get(key)
        if place is None:
            raise _invalid(f"it keeps {key!r}, which is not on the branch")
        if not isinstance(context.entries[place], MessageEntry):
            raise _invalid(f"it keeps {key!r}, which is not a message")
        if place <= last:
            raise _invalid(f"it keeps {key!r} twice, or not in the order of the branch")
        last = place
    return entry


def _invalid(reason: str) -> CompactionError:
    return CompactionError(
        f"The compaction cannot be used: {reason}.",
        code="invalid_compaction",
        details={"reason": reason},
    )
