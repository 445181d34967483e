"""What an entry holds comes back as it was, whatever it is."""

from __future__ import annotations

from typing import Any, Final

from prism.core._errors import EncodeError
from prism.core._wire import (
    CompactionEntry,
    CustomEntry,
    EventEntry,
    LabelEntry,
    Message,
    MessageEntry,
    MetadataEntry,
    ModelChangeEntry,
    ModelConfig,
    OpaqueEntry,
    SessionEntry,
    SummaryEntry,
    ToolCallBlock,
    ToolResultBlock,
    opaque_entry,
)
from prism.core.testing._store_conformance._harness import (
    Stage,
    case,
    cases_of,
    expect,
    expect_equal,
    message,
    plain,
    refused,
)

HOSTILE_TEXTS: Final = (
    "\x00",
    "a\x00b",
    "\ud83d",
    "\ude00 before \ud83d",
    "\u2028\u2029\u0085",
    "line\nline\r\nline\r",
    "\x01\x1f\x7f\x80",
    "\ufeff\ufffe\uffff",
    "😀 日本語 é e\u0301",
    '"\\/\b\f\t',
    "",
)


async def _round_trip(stage: Stage, entry: SessionEntry) -> None:
    await stage.store.append("s", [entry])
    if stage.harness.persistent:
        await stage.reopen()
    stored = await stage.store.entry("s", entry.id)
    expect(stored is not None, f"Entry {entry.id} is gone.")
    if stored is not None:
        expect_equal(stored.entry, entry, f"Entry {entry.id}")


def _custom(entry_id: str, value: Any) -> CustomEntry:
    return CustomEntry(id=entry_id, session_id="s", timestamp="t", data={"type": "x", "v": value})


@case()
async def every_kind_of_entry_comes_back(stage: Stage) -> None:
    common: dict[str, Any] = {"session_id": "s", "timestamp": "2026-01-02T03:04:05.678Z"}
    model = ModelConfig(provider="mock", model="demo")
    call = ToolCallBlock(id="c1", name="add", arguments={"a": 1})
    result = ToolResultBlock(tool_call_id="c1", name="add", result={"sum": 2})
    entries: list[SessionEntry] = [
        MessageEntry(id="1", message=Message(role="assistant", content=[call]), **common),
        MessageEntry(id="2", message=Message(role="tool", content=[result]), **common),
        SummaryEntry(id="3", summary="So far", data={"a": None}, **common),
        CompactionEntry(id="4", summary="So far", data={"throughEntryId": "2"}, **common),
        ModelChangeEntry(id="5", model=model, thinking_level="high", **common),
        LabelEntry(id="6", label="Here", data={"targetId": "2"}, **common),
        MetadataEntry(id="7", data={"type": "leaf", "leafId": "2"}, **common),
        EventEntry(id="8", event={"type": "session_settled", "sessionId": "s"}, **common),
        CustomEntry(id="9", data={"type": "x"}, run_id="r", metadata={"k": [None]}, **common),
    ]
    await stage.store.append("s", entries)
    if stage.harness.persistent:
        await stage.reopen()
    expect_equal([one.entry for one in await stage.store.entries("s")], entries, "The entries")


@case()
async def hostile_text_survives(stage: Stage) -> None:
    for number, text in enumerate(HOSTILE_TEXTS):
        await _round_trip(stage, message(f"m{number}", text=text))
        await _round_trip(stage, _custom(f"c{number}", {text: [text]}))
    expect_equal(len(await stage.store.entries("s")), 2 * len(HOSTILE_TEXTS), "The count")


@case()
async def numbers_stay_exact(stage: Stage) -> None:
    for number, value in enumerate((0, -1, 2**53 + 1, 2**63, -(2**63), 2**70, 10**300)):
        await _round_trip(stage, _custom(f"i{number}", value))
    for number, fraction in enumerate((0.1, 1e308, 5e-324, 1.0)):
        await _round_trip(stage, _custom(f"f{number}", fraction))


@case()
async def deep_nesting_survives_and_deeper_is_refused(stage: Stage) -> None:
    deep: Any = "bottom"
    for _ in range(500):
        deep = [deep]
    await _round_trip(stage, _custom("deep", deep))
    for _ in range(20):
        deep = {"in": deep}
    with refused("too_deep", EncodeError):
        await stage.store.append("s", [_custom("deeper", deep)])


@case()
async def an_entry_of_five_mebibytes_survives(stage: Stage) -> None:
    await stage.store.append("s", [message("before")])
    await _round_trip(stage, message("large", "before", text="é\n" + "x" * (5 * 1024 * 1024)))
    await stage.store.append("s", [message("after", "large")])
    positions = [one.position for one in await stage.store.entries("s")]
    expect_equal(positions, [1, 2, 3], "The positions")


@case()
async def an_unknown_kind_is_kept_as_its_text(stage: Stage) -> None:
    raw = b'{"kind":"of tomorrow","id":"e1","sessionId":"s","timestamp":"t","payload":{"n":1e2}}'
    await stage.store.append("s", [opaque_entry(raw), message("e2", "e1")])
    if stage.harness.persistent:
        await stage.reopen()
    stored = await stage.store.entry("s", "e1")
    expect(
        stored is not None and isinstance(stored.entry, OpaqueEntry),
        "The entry of an unknown kind is no OpaqueEntry.",
    )
    if stored is not None and isinstance(stored.entry, OpaqueEntry):
        expect_equal((stored.entry.kind, stored.entry.id), ("of tomorrow", "e1"), "The entry")
        expect_equal(plain(stored.entry.raw), plain(raw), "Its text")


@case()
async def unknown_fields_and_blocks_are_kept_in_the_text(stage: Stage) -> None:
    raw = (
        b'{"kind": "message", "id": "e1", "sessionId": "s", "timestamp": "t", "new": {"a": [1.50]},'
        b' "message": {"role": "user", "new": "\\u00e9", "content": [{"type": "new", "x": null},'
        b' {"type": "text", "text": "Hi"}]}}'
    )
    await stage.store.append("s", [opaque_entry(raw)])
    if stage.harness.persistent:
        await stage.reopen()
    (stored,) = await stage.store.entries("s")
    expect(isinstance(stored.entry, MessageEntry), "A text of a known kind is read as that kind.")
    expect_equal(plain(stored.raw), plain(raw), "The text")
    if stage.harness.exact_text:
        expect_equal(stored.raw, raw, "The text, byte for byte")


@case()
async def a_payload_of_the_wrong_shape_is_kept_as_its_text(stage: Stage) -> None:
    raw = b'{"kind":"message","id":"e1","sessionId":"s","timestamp":"t","message":"not an object"}'
    await stage.store.append("s", [opaque_entry(raw), message("e2", "e1")])
    if stage.harness.persistent:
        await stage.reopen()
    first, second = await stage.store.entries("s")
    expect(isinstance(first.entry, OpaqueEntry), "The entry is no OpaqueEntry.")
    expect_equal(plain(first.raw), plain(raw), "Its text")
    expect_equal(second.entry.id, "e2", "The next entry")


@case()
async def the_text_says_what_the_entry_says(stage: Stage) -> None:
    await stage.store.append("s", [message("e1", text="Hi")])
    (stored,) = await stage.store.entries("s")
    wanted = {
        "kind": "message",
        "id": "e1",
        "sessionId": "s",
        "timestamp": "2026-01-02T03:04:05.678Z",
        "message": {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    }
    expect_equal(plain(stored.raw), wanted, "The text")


CASES: Final = cases_of(globals())
