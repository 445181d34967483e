"""What every store of ours does alike: checks of a batch, JSON equality, a session's summary."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from prism.core._contracts import SessionInfo
from prism.core._errors import DecodeError, StoreConflict, StoreError
from prism.core._wire import (
    MessageEntry,
    OpaqueEntry,
    SessionEntry,
    TextBlock,
    decode_entry,
    encode_entry,
    opaque_entry,
    parse_json,
)

Place = TypeVar("Place")

MAX_ENTRY_BYTES: Final = 64 * 1024 * 1024
"""Largest JSON text of one entry: four times the longest line that RPC accepts."""

FIRST_MESSAGE_CHARS: Final = 200
"""How much of the first user text a list of sessions shows."""

_SHOWN_CHARS: Final = 80


def shown(text: str) -> str:
    """An id for a message to people: quoted, and cut when it is long."""
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}…"


def encode_batch(session_id: str, entries: Sequence[SessionEntry]) -> list[bytes]:
    """The JSON texts of a batch; nothing of it is stored when one entry cannot be.

    Raises:
        EncodeError: An entry holds what JSON cannot.
        StoreError: `invalid_session_id`, `wrong_session`, `invalid_entry` or `entry_too_large`.
    """
    if not session_id:
        raise StoreError("A session id must not be empty.", code="invalid_session_id")
    if not session_id.isascii():
        _check_pairs(session_id)
    raws: list[bytes] = []
    for entry in entries:
        if entry.session_id != session_id:
            raise StoreError(
                f"Entry {shown(entry.id)} belongs to session {shown(entry.session_id)}, not to"
                f" {shown(session_id)}.",
                code="wrong_session",
            )
        if not entry.id.isascii():
            _check_pairs(entry.id)
        raw = encode_entry(entry)
        if isinstance(entry, OpaqueEntry):
            _check_text(entry)
        if len(raw) > MAX_ENTRY_BYTES:
            raise StoreError(
                f"Entry {shown(entry.id)} has {len(raw)} bytes; at most {MAX_ENTRY_BYTES} are"
                " stored.",
                code="entry_too_large",
                details={"used": len(raw), "limit": MAX_ENTRY_BYTES},
            )
        raws.append(raw)
    return raws


def _check_pairs(text: str) -> None:
    """Refuse an id that JSON gives back as another one: two surrogates that belong together."""
    if text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass") != text:
        raise StoreError(
            f"The id {shown(text)} holds a character in two halves: join them.",
            code="invalid_session_id",
        )


def _check_text(entry: OpaqueEntry) -> None:
    """Hold a text that a host wrapped to what the wrapper says of it."""
    try:
        inner = load_entry(entry.raw)
        entry.raw.decode()  # skipped fields too must be UTF-8
    except (DecodeError, UnicodeDecodeError) as error:
        raise StoreError(
            f"The text of entry {shown(entry.id)} is not a session entry: {error}",
            code="invalid_entry",
        ) from None
    if (inner.id, inner.session_id, inner.parent_id) != (
        entry.id,
        entry.session_id,
        entry.parent_id,
    ):
        raise StoreError(
            f"The text of entry {shown(entry.id)} has another id, session or parent.",
            code="invalid_entry",
        )


def already_stored(
    entries: Sequence[SessionEntry],
    raws: Sequence[bytes],
    *,
    known: Mapping[str, Place],
    text_at: Callable[[Place], bytes],
    version: int,
    expected_version: int | None,
) -> bool:
    """Whether the whole batch is there; when not, whether it may be added.

    Args:
        entries: The batch.
        raws: Its JSON texts.
        known: Where each stored id of the session is; the batch's ids and parents suffice.
        text_at: Reads a stored JSON text.
        version: How many entries the session has.
        expected_version: What the writer believes that number to be.

    Raises:
        StoreConflict: `id_conflict` or `version_conflict`.
        StoreError: `missing_parent`.
    """
    found = 0
    for at, entry in enumerate(entries):
        place = known.get(entry.id)
        if place is not None:
            found += 1
            if not same_json(text_at(place), raws[at]):
                raise _id_conflict(f"Entry {shown(entry.id)} is stored with other content.")
    if found == len(entries):
        return True
    if found:
        raise _id_conflict(f"{found} of the batch's {len(entries)} entries are already stored.")
    if len(entries) > 1 and len({entry.id for entry in entries}) < len(entries):
        raise _id_conflict("Two entries of the batch have the same id.")
    if expected_version is not None and expected_version != version:
        raise StoreConflict(
            f"The session has {version} entries, not the {expected_version} that the writer knew:"
            " reload it, then append again.",
            code="version_conflict",
            details={"version": version, "expectedVersion": expected_version},
        )
    if len(entries) > 1 or (parent := entries[0].parent_id) is None or parent not in known:
        _check_parents(entries, known)
    return False


def _id_conflict(message: str) -> StoreConflict:
    return StoreConflict(f"{message} Nothing was added.", code="id_conflict")


def _check_parents(entries: Sequence[SessionEntry], known: Collection[str]) -> None:
    earlier: set[str] = set()
    for entry in entries:
        parent = entry.parent_id
        if parent is not None and parent not in earlier and parent not in known:
            raise StoreError(
                f"Entry {shown(entry.id)} follows {shown(parent)}, which is neither stored nor"
                " earlier in the batch. Nothing was added.",
                code="missing_parent",
            )
        earlier.add(entry.id)


def same_json(left: bytes, right: bytes) -> bool:
    """Whether two texts are the same JSON: order of keys and spacing do not count."""
    if left == right:
        return True
    try:
        todo: list[tuple[Any, Any]] = [(parse_json(left), parse_json(right))]
    except DecodeError:
        return False
    while todo:
        one, two = todo.pop()
        if isinstance(one, dict) and isinstance(two, dict):
            fields, others = cast("dict[str, Any]", one), cast("dict[str, Any]", two)
            if fields.keys() != others.keys():
                return False
            todo.extend((fields[key], others[key]) for key in fields)
        elif isinstance(one, list) and isinstance(two, list):
            items, rest = cast("Sequence[Any]", one), cast("Sequence[Any]", two)
            if len(items) != len(rest):
                return False
            todo.extend(zip(items, rest, strict=True))
        elif one != two or isinstance(one, bool) != isinstance(two, bool):
            return False
    return True


def load_entry(raw: bytes) -> SessionEntry:
    """Read a stored text; one whose payload is not what its kind says is kept as its text.

    Raises:
        DecodeError: Not even its id, session and kind can be read.
    """
    try:
        return decode_entry(raw)
    except DecodeError:
        return opaque_entry(raw)


def kind_of(entry: SessionEntry) -> str:
    """The entry's `kind` as on the wire."""
    if isinstance(entry, OpaqueEntry):
        return entry.kind
    return "message" if isinstance(entry, MessageEntry) else str(entry.__struct_config__.tag)


class Activity:
    """What a list of sessions says about one session, kept up while entries are added."""

    __slots__ = ("created_at", "first_message", "last_activity_at", "message_count")

    def __init__(self) -> None:
        self.message_count = 0
        self.created_at: str | None = None
        self.last_activity_at: str | None = None
        self.first_message: str | None = None

    def add(self, kind: str, timestamp: str, raw: bytes, entry: SessionEntry | None = None) -> None:
        """Count one entry; *entry* spares reading *raw* where it is at hand."""
        if timestamp:
            self.last_activity_at = timestamp
            if self.created_at is None:
                self.created_at = timestamp
        if kind == "message":
            self.message_count += 1
            if self.first_message is None:
                self.first_message = _user_text(raw, entry)

    def info(self, session_id: str, entry_count: int) -> SessionInfo:
        """The summary as a list of sessions gives it."""
        return SessionInfo(
            session_id=session_id,
            entry_count=entry_count,
            message_count=self.message_count,
            created_at=self.created_at,
            last_activity_at=self.last_activity_at,
            first_message=self.first_message,
        )


def _user_text(raw: bytes, entry: SessionEntry | None) -> str | None:
    if not isinstance(entry, MessageEntry):
        try:
            entry = load_entry(raw)
        except DecodeError:
            return None
    if not isinstance(entry, MessageEntry) or entry.message.role != "user":
        return None
    for block in entry.message.content:
        if isinstance(block, TextBlock) and block.text:
            return block.text[:FIRST_MESSAGE_CHARS]
    return None


def newest_first(infos: list[SessionInfo]) -> list[SessionInfo]:
    """Sort by last activity, the newest first; sessions without a timestamp come last."""
    return sorted(infos, key=lambda info: info.last_activity_at or "", reverse=True)


_CODES: Final = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EFBIG: "disk_full",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.EROFS: "permission_denied",
}

_ADVICE: Final = {
    "disk_full": "Make room, then append again.",
    "permission_denied": "Give this user the right to read and write it.",
    "io_error": "Check the disk and the path.",
}


def os_failure(error: OSError, path: str, doing: str) -> StoreError:
    """What the operating system refused, as `disk_full`, `permission_denied` or `io_error`."""
    code = _CODES.get(error.errno or 0, "io_error")
    return StoreError(
        f"Cannot {doing} {path}: {error.strerror or error}. {_ADVICE[code]}",
        code=code,
        details={"path": path, "errno": error.errno},
    )


def closed() -> StoreError:
    """The store was used after `aclose()`."""
    return StoreError("The store is closed: open a new one.", code="closed")
