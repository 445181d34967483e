"""Reading: pages, single entries, sessions apart from each other, their list."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from prism.core._contracts import SessionStore
from prism.core._wire import LabelEntry, MessageEntry
from prism.core.testing._store_conformance._harness import (
    Stage,
    case,
    cases_of,
    chain,
    expect_equal,
    expect_stored,
    ids,
    message,
    refused,
)

HOSTILE_IDS: Final = (
    "a",
    "A",
    "a%",
    "a%25",
    "a_b",
    "a-b",
    "a b",
    " a",
    "a.",
    ".",
    "..",
    "a/../b",
    "../a",
    "/a",
    "a\\b",
    "a:b",
    "a?*<>|\"'",
    "con",
    "a\x00",
    "\x00",
    "a\n",
    "a~b",
    "~",
    "é",
    "e\u0301",
    "\u2028",
    "日本語",
    "\ud83d",
    "😀",
    "a.jsonl",
    "a' OR '1'='1",
    "x" * 5_000,
    "x" * 4_999 + "y",
    "é" * 300,
)
"""Ids that file systems, SQL, globs and URLs could take for something else, or for each other."""


@case()
async def an_unknown_session_is_empty(stage: Stage) -> None:
    await expect_stored(stage.store, [])
    expect_equal(await stage.store.entry("s", "e1"), None, "The entry")
    expect_equal([one async for one in stage.store.iter_entries("s")], [], "The stream")
    expect_equal(await stage.store.sessions(), [], "The sessions")


@case()
async def an_entry_comes_back_as_it_was(stage: Stage) -> None:
    await stage.store.append("s", chain(3))
    expect_equal([one.entry for one in await stage.store.entries("s")], chain(3), "The entries")


@case()
async def an_entry_is_found_by_its_id(stage: Stage) -> None:
    await stage.store.append("s", chain(3))
    found = await stage.store.entry("s", "e2")
    expect_equal(found and (found.position, found.entry), (2, chain(3)[1]), "The entry")
    expect_equal(await stage.store.entry("s", "e"), None, "An unknown id")
    expect_equal(await stage.store.entry("t", "e2"), None, "An id of another session")


@case()
async def reading_after_a_position_leaves_out_what_is_before(stage: Stage) -> None:
    await stage.store.append("s", chain(5))
    for after, wanted in ((0, 5), (1, 4), (4, 1), (5, 0), (9, 0)):
        found = await stage.store.entries("s", after=after)
        expect_equal([one.position for one in found], list(range(6 - wanted, 6)), f"After {after}")


@case()
async def pages_put_together_are_the_whole(stage: Stage) -> None:
    await stage.store.append("s", chain(7))
    pages: list[list[str]] = []
    after = 0
    while page := await stage.store.entries("s", after=after, limit=3):
        pages.append(ids(page))
        after = page[-1].position
    expect_equal(pages, [["e1", "e2", "e3"], ["e4", "e5", "e6"], ["e7"]], "The pages")


@case()
async def a_stream_gives_what_a_list_gives(stage: Stage) -> None:
    await stage.store.append("s", chain(600))
    for after in (0, 1, 599, 600):
        streamed = [one async for one in stage.store.iter_entries("s", after=after)]
        expect_equal(streamed, await stage.store.entries("s", after=after), f"After {after}")


@case()
async def a_stream_may_be_left_early_and_written_to_meanwhile(stage: Stage) -> None:
    await stage.store.append("s", chain(600))
    seen = 0
    stream = stage.store.iter_entries("s")
    async for one in stream:
        seen = one.position
        if seen == 1:
            await stage.store.append("s", [message("more", "e600")])
        if seen == 300:
            break
    if isinstance(stream, AsyncGenerator):
        await stream.aclose()
    expect_equal(seen, 300, "The last position seen")
    expect_equal(len(await stage.store.entries("s")), 601, "The entries afterwards")


# Sessions apart


@case()
async def two_sessions_may_hold_the_same_entry_ids(stage: Stage) -> None:
    await stage.store.append("s", chain(2))
    await stage.store.append("t", chain(3, session_id="t"), expected_version=0)
    await expect_stored(stage.store, ["e1", "e2"])
    await expect_stored(stage.store, ["e1", "e2", "e3"], session_id="t")


@case()
async def hostile_session_ids_are_kept_apart(stage: Stage) -> None:
    for number, session_id in enumerate(HOSTILE_IDS):
        entry = message(f"only{number}", session_id=session_id, text=f"In {number}")
        version = await stage.store.append(session_id, [entry], expected_version=0)
        expect_equal(version, 1, f"The version of session {session_id!r}")
    for number, session_id in enumerate(HOSTILE_IDS):
        await expect_stored(stage.store, [f"only{number}"], session_id=session_id)
    listed = sorted(info.session_id for info in await stage.store.sessions())
    expect_equal(listed, sorted(HOSTILE_IDS), "The list")


@case()
async def hostile_entry_ids_are_kept_apart(stage: Stage) -> None:
    parents = [None, *HOSTILE_IDS[:-1]]
    batch = [message(one, up, text=one) for one, up in zip(HOSTILE_IDS, parents, strict=True)]
    await stage.store.append("s", batch)
    await expect_stored(stage.store, list(HOSTILE_IDS))
    for position, entry in enumerate(batch, 1):
        found = await stage.store.entry("s", entry.id)
        expect_equal(found and (found.position, found.entry), (position, entry), repr(entry.id))


@case()
async def an_empty_session_id_is_refused(stage: Stage) -> None:
    with refused("invalid_session_id"):
        await stage.store.append("", [message("e1", session_id="")])


# The list


def _at(second: int) -> str:
    return f"2026-01-02T03:04:{second:02d}.000Z"


async def _fill(store: SessionStore) -> None:
    await store.append("old", [message("e1", session_id="old", timestamp=_at(1))])
    await store.append(
        "mid",
        [
            message("e1", session_id="mid", role="assistant", text="Welcome", timestamp=_at(2)),
            message("e2", "e1", session_id="mid", text="x" * 500, timestamp=_at(3)),
            LabelEntry(
                id="e3", session_id="mid", parent_id="e2", timestamp=_at(4), data={"targetId": "e2"}
            ),
        ],
    )
    await store.append("mid", [message("e4", "e3", session_id="mid", timestamp=_at(5))])
    await store.append("new", [message("e1", session_id="new", text="Hello", timestamp=_at(9))])


@case()
async def the_list_tells_counts_times_and_the_first_user_text(stage: Stage) -> None:
    await _fill(stage.store)
    (info,) = [one for one in await stage.store.sessions() if one.session_id == "mid"]
    expect_equal((info.entry_count, info.message_count), (4, 3), "The counts")
    expect_equal((info.created_at, info.last_activity_at), (_at(2), _at(5)), "The times")
    expect_equal(info.first_message, "x" * 200, "The first user text, 200 characters of it")


@case()
async def the_list_begins_with_the_newest_activity(stage: Stage) -> None:
    await _fill(stage.store)
    listed = [info.session_id for info in await stage.store.sessions()]
    expect_equal(listed, ["new", "mid", "old"], "The list")
    await stage.store.append("old", [message("e2", "e1", session_id="old", timestamp=_at(10))])
    listed = [info.session_id for info in await stage.store.sessions()]
    expect_equal(listed, ["old", "new", "mid"], "The list after an append")


@case()
async def a_session_without_user_text_is_listed_too(stage: Stage) -> None:
    await stage.store.append("s", [message("e1", role="assistant")])
    (info,) = await stage.store.sessions()
    expect_equal((info.entry_count, info.first_message), (1, None), "The session")


# Closing


@case()
async def a_closed_store_refuses_everything(stage: Stage) -> None:
    await stage.store.append("s", chain(1))
    await stage.store.aclose()
    await stage.store.aclose()
    with refused("closed"):
        await stage.store.append("s", [message("e2", "e1")])
    with refused("closed"):
        await stage.store.entries("s")
    with refused("closed"):
        await stage.store.entry("s", "e1")
    with refused("closed"):
        await stage.store.sessions()
    with refused("closed"):
        [one async for one in stage.store.iter_entries("s")]


@case("persistent")
async def a_reopened_store_holds_what_it_held(stage: Stage) -> None:
    await _fill(stage.store)
    listed = await stage.store.sessions()
    before = await stage.store.entries("mid")
    await stage.reopen()
    expect_equal(await stage.store.sessions(), listed, "The list")
    expect_equal(await stage.store.entries("mid"), before, "The entries")
    found = await stage.store.entry("mid", "e2")
    expect_equal(found and isinstance(found.entry, MessageEntry) and found.position, 2, "e2")


@case("persistent")
async def a_reopened_store_knows_its_version_ids_and_parents(stage: Stage) -> None:
    e1, e2, e3 = chain(3)
    await stage.store.append("s", [e1, e2])
    await stage.reopen()
    expect_equal(await stage.store.append("s", [e1, e2], expected_version=0), 2, "Again")
    with refused("id_conflict"):
        await stage.store.append("s", [message("e2", "e1", text="Other")])
    with refused("version_conflict"):
        await stage.store.append("s", [e3], expected_version=0)
    expect_equal(await stage.store.append("s", [e3], expected_version=2), 3, "The version")


@case("persistent")
async def hostile_session_ids_survive_reopening(stage: Stage) -> None:
    for session_id in HOSTILE_IDS:
        await stage.store.append(session_id, chain(1, session_id=session_id))
    await stage.reopen()
    listed = sorted(info.session_id for info in await stage.store.sessions())
    expect_equal(listed, sorted(HOSTILE_IDS), "The list")
    for session_id in HOSTILE_IDS:
        await expect_stored(stage.store, ["e1"], session_id=session_id)


CASES: Final = cases_of(globals())
