"""Session entries: the append-only tree, one JSON text each."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from prism.core._errors import DecodeError, EncodeError
from prism.core._wire.base import (
    REFUSALS,
    Codec,
    RawJson,
    WireStruct,
    encode,
    has_non_finite,
)
from prism.core._wire.content import Message, block_codec, gather_result
from prism.core._wire.models import ModelConfig
from prism.core._wire.text import SHALLOW_BYTES, JsonText, parse_json, to_bytes


class EntryBase(WireStruct, frozen=True, kw_only=True, tag_field="kind"):
    """What every entry has.

    Attributes:
        id: Unique within its session.
        timestamp: ISO-8601 UTC with milliseconds; for people, never for order.
        parent_id: The entry that it follows; `None` at the root.
    """

    id: str
    session_id: str
    timestamp: str
    parent_id: str | None = None
    run_id: str | None = None
    metadata: dict[str, Any] | None = None


class MessageEntry(EntryBase, frozen=True, kw_only=True, tag="message"):
    """A message; sent to the model."""

    message: Message


class SummaryEntry(EntryBase, frozen=True, kw_only=True, tag="summary"):
    """A host's own summary; sent to the model while it is after the latest compaction."""

    summary: str
    data: dict[str, Any] | None = None


class CompactionEntry(EntryBase, frozen=True, kw_only=True, tag="compaction"):
    """The summary of what is no longer sent raw; `data` is read by `CompactionData.from_entry`."""

    summary: str
    data: dict[str, Any] | None = None


class ModelChangeEntry(EntryBase, frozen=True, kw_only=True, tag="model_change"):
    """From here on the branch uses this model or thinking level."""

    model: ModelConfig | None = None
    previous_model: ModelConfig | None = None
    thinking_level: str | None = None


class LabelEntry(EntryBase, frozen=True, kw_only=True, tag="label"):
    """Names the entry `data["targetId"]`; without `label` it takes the name away."""

    label: str | None = None
    data: dict[str, Any] | None = None

    @property
    def target_id(self) -> str | None:
        """The entry that is named."""
        target = (self.data or {}).get("targetId")
        return target if isinstance(target, str) else None


class MetadataEntry(EntryBase, frozen=True, kw_only=True, tag="metadata"):
    """Facts about the session; `{"type": "leaf", "leafId"}` is what a checkout leaves."""

    data: dict[str, Any]

    @property
    def is_leaf_marker(self) -> bool:
        """Whether this entry only says where the session stands."""
        return self.data.get("type") == "leaf"

    @property
    def leaf_id(self) -> str | None:
        """Where a leaf marker points; `None` is the empty root."""
        leaf = self.data.get("leafId")
        return leaf if isinstance(leaf, str) else None


class EventEntry(EntryBase, frozen=True, kw_only=True, tag="event"):
    """An event that a host wanted to keep, as its JSON object; never sent to the model."""

    event: dict[str, Any]


class CustomEntry(EntryBase, frozen=True, kw_only=True, tag="custom"):
    """A host's own record, `{"type": …}`; never sent to the model."""

    data: dict[str, Any]


class OpaqueEntry(RawJson):
    """An entry of a kind that this version does not know, or one to be stored as its text.

    Attributes:
        id: As in the text, like `session_id`, `parent_id`, `kind`, `timestamp`.
        raw: The JSON text on one line, otherwise as it came.
    """

    __slots__ = ("id", "kind", "parent_id", "session_id", "timestamp")

    run_id: None = None
    metadata: None = None

    def __init__(
        self,
        *,
        id: str,  # noqa: A002
        session_id: str,
        raw: bytes,
        kind: str = "",
        parent_id: str | None = None,
        timestamp: str = "",
    ) -> None:
        super().__init__(raw)
        self.id: str = id
        self.session_id: str = session_id
        self.kind: str = kind
        self.parent_id: str | None = parent_id
        self.timestamp: str = timestamp

    def __repr__(self) -> str:
        return f"OpaqueEntry(id={self.id!r}, kind={self.kind!r})"


KnownEntry: TypeAlias = (
    MessageEntry
    | SummaryEntry
    | CompactionEntry
    | ModelChangeEntry
    | LabelEntry
    | MetadataEntry
    | EventEntry
    | CustomEntry
)
SessionEntry: TypeAlias = KnownEntry | OpaqueEntry

ENTRY_KINDS: Final = frozenset({
    "message", "summary", "compaction", "model_change", "label", "metadata", "event", "custom",
})  # fmt: skip

_codec: Codec[KnownEntry] = block_codec(KnownEntry)
_fast = _codec.fast


class _Head(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What must be readable in an entry of any kind."""

    id: str
    session_id: str
    kind: str
    parent_id: str | None = None
    timestamp: str = ""


_head_codec: Codec[_Head] = Codec(_Head)


def decode_entry(data: JsonText) -> SessionEntry:
    """Read an entry; one of unknown kind becomes an `OpaqueEntry`.

    Raises:
        DecodeError: with the JSON path of what is wrong.
    """
    try:
        if isinstance(data, bytes) and len(data) <= SHALLOW_BYTES:
            if not data.isascii():
                data.decode()  # msgspec takes any bytes in fields that it skips
            entry = _fast(data)
        else:
            entry = _codec.decode(data)
    except REFUSALS:
        return _decode_slowly(data)
    except DecodeError as error:
        return _decode_unknown(data, error)
    if type(entry) is MessageEntry and entry.message.role == "tool":
        return _gathered(entry)
    return entry


def _decode_slowly(data: JsonText) -> SessionEntry:
    try:
        entry = _codec.decode_slowly(data)
    except DecodeError as error:
        return _decode_unknown(data, error)
    return _gathered(entry) if isinstance(entry, MessageEntry) else entry


def _gathered(entry: MessageEntry) -> MessageEntry:
    message = gather_result(entry.message)
    return entry if message is entry.message else replace(entry, message=message)


def _decode_unknown(data: JsonText, error: DecodeError) -> OpaqueEntry:
    if error.code != "invalid_value":
        raise error
    try:
        entry = opaque_entry(data)
    except DecodeError:
        raise error from None
    if entry.kind in ENTRY_KINDS:
        raise error
    return entry


def opaque_entry(data: JsonText) -> OpaqueEntry:
    """Wrap an entry's JSON text, whatever its kind, so that a store writes it as it is.

    Only line breaks between its tokens are taken out: one record is one line.

    Raises:
        DecodeError: `id`, `sessionId` or `kind` cannot be read, or the text is not JSON.
    """
    head = _head_codec.decode(data)
    return OpaqueEntry(
        id=head.id,
        session_id=head.session_id,
        kind=head.kind,
        parent_id=head.parent_id,
        timestamp=head.timestamp,
        raw=to_bytes(data),
    )


def encode_entry(entry: SessionEntry) -> bytes:
    """An entry as one line of JSON.

    Raises:
        EncodeError: as `encode`; also for NaN and Infinity in an entry that is no message. In
            messages they are looked for where a host's values come in, as results of tools.
    """
    if isinstance(entry, MessageEntry):
        return encode(entry)
    if isinstance(entry, OpaqueEntry):
        return entry.raw
    if has_non_finite(entry):
        raise EncodeError(f"Entry {entry.id!r} holds NaN or Infinity, which JSON cannot.")
    return encode(entry)


_SESSION_ID: Final = re.compile(rb'("sessionId"[ \t]*:[ \t]*)"(?:[^"\\]|\\.)*+"')


def entry_with_session(raw: JsonText, session_id: str) -> OpaqueEntry:
    """The entry of a JSON text, moved to another session: only `sessionId` changes.

    Raises:
        DecodeError: as `opaque_entry`.
    """
    entry = opaque_entry(raw)
    if entry.session_id == session_id:
        return entry
    value = encode(session_id)
    moved = opaque_entry(_SESSION_ID.sub(lambda found: found[1] + value, entry.raw, count=1))
    if moved.session_id == session_id:
        return moved
    # The first one in the text is not the entry's own, or its name is written with escapes.
    return opaque_entry(encode({**parse_json(entry.raw), "sessionId": session_id}))


class CompactionData(WireStruct, frozen=True, kw_only=True):
    """What a compaction says about itself in `CompactionEntry.data`.

    Attributes:
        through_entry_id: Last entry that the summary covers; `None` keeps everything.
        keep_entry_ids: Message entries up to there that stay raw.
        trigger: `manual`, `auto`, `overflow` or the host's own.
        uncovered_entry_ids: Entries that left the context without being covered.
    """

    through_entry_id: str | None = None
    keep_entry_ids: list[str] | None = None
    strategy: str | None = None
    trigger: str | None = None
    first_kept_entry_id: str | None = None
    estimated_tokens_before: int | None = None
    estimated_tokens_after: int | None = None
    split_turn: bool | None = None
    read_files: list[str] | None = None
    modified_files: list[str] | None = None
    memory: dict[str, Any] | None = None
    uncovered_entry_ids: list[str] | None = None

    @classmethod
    def from_entry(cls, entry: object) -> CompactionData | None:
        """Read the data of a compaction entry; `None` when it is none, or malformed.

        A strategy's own fields are left out when they are malformed; the first four decide.
        """
        if not isinstance(entry, CompactionEntry):
            return None
        data = entry.data or {}
        core = {name: data[name] for name in _CORE_COMPACTION_DATA if name in data}
        for tree in (data, core):
            try:
                return _compaction_data_codec.convert(tree)
            except DecodeError:
                continue
        return None


_CORE_COMPACTION_DATA: Final = ("throughEntryId", "keepEntryIds", "strategy", "trigger")
_compaction_data_codec: Codec[CompactionData] = Codec(CompactionData)
