"""Order, idempotence, conflicts: what an append does and refuses."""

from __future__ import annotations

from typing import Final

from prism.core._errors import EncodeError, StoreConflict
from prism.core._wire import CustomEntry, encode_entry, opaque_entry
from prism.core.testing._store_conformance._harness import (
    Stage,
    case,
    cases_of,
    chain,
    expect,
    expect_equal,
    expect_stored,
    message,
    refused,
)

# Order


@case()
async def an_append_returns_the_number_of_stored_entries(stage: Stage) -> None:
    e1, e2, e3 = chain(3)
    expect_equal(await stage.store.append("s", [e1]), 1, "The version")
    expect_equal(await stage.store.append("s", [e2, e3], expected_version=1), 3, "The version")


@case()
async def entries_keep_the_order_in_which_they_were_appended(stage: Stage) -> None:
    e1, e2, e3, e4 = chain(4)
    await stage.store.append("s", [e1, e2])
    await stage.store.append("s", [e3])
    await stage.store.append("s", [e4])
    await expect_stored(stage.store, ["e1", "e2", "e3", "e4"])


@case()
async def equal_and_falling_timestamps_do_not_change_the_order(stage: Stage) -> None:
    late, early = "2026-01-02T00:00:00.000Z", "2026-01-01T00:00:00.000Z"
    await stage.store.append("s", [message("z", timestamp=late)])
    await stage.store.append("s", [message("b", "z", timestamp=late)])
    await stage.store.append("s", [message("a", "b", timestamp=late)])
    await stage.store.append("s", [message("y", "a", timestamp=early)])
    await expect_stored(stage.store, ["z", "b", "a", "y"])


@case()
async def an_empty_batch_changes_nothing(stage: Stage) -> None:
    expect_equal(await stage.store.append("s", []), 0, "The version of a new session")
    await stage.store.append("s", chain(2))
    expect_equal(await stage.store.append("s", []), 2, "The version")
    expect_equal([info.session_id for info in await stage.store.sessions()], ["s"], "Sessions")


# Appending again


@case()
async def the_same_batch_again_changes_nothing(stage: Stage) -> None:
    batch = chain(3)
    await stage.store.append("s", batch)
    expect_equal(await stage.store.append("s", batch), 3, "The version")
    await expect_stored(stage.store, ["e1", "e2", "e3"])


@case()
async def the_same_batch_again_is_accepted_with_a_stale_version(stage: Stage) -> None:
    batch = chain(2)
    await stage.store.append("s", batch, expected_version=0)
    expect_equal(await stage.store.append("s", batch, expected_version=0), 2, "The version")


@case()
async def the_same_batch_again_returns_the_version_of_now(stage: Stage) -> None:
    e1, e2, e3 = chain(3)
    await stage.store.append("s", [e1], expected_version=0)
    await stage.store.append("s", [e2, e3])
    expect_equal(await stage.store.append("s", [e1], expected_version=0), 3, "The version")
    await expect_stored(stage.store, ["e1", "e2", "e3"])


@case()
async def order_of_keys_and_spacing_do_not_make_content_different(stage: Stage) -> None:
    await stage.store.append("s", [opaque_entry(b'{"kind":"k","id":"e1","sessionId":"s","n":[1]}')])
    again = opaque_entry(b'{"n": [ 1 ], "sessionId": "s",\n "id": "e1", "kind": "k"}')
    expect_equal(await stage.store.append("s", [again]), 1, "The version")


@case()
async def true_and_one_are_different_content(stage: Stage) -> None:
    one, true = (
        CustomEntry(id="e1", session_id="s", timestamp="t", data={"type": "x", "n": value})
        for value in (1, True)
    )
    await stage.store.append("s", [one])
    with refused("id_conflict", StoreConflict):
        await stage.store.append("s", [true])


# Conflicts


@case()
async def a_stored_id_with_other_content_is_a_conflict(stage: Stage) -> None:
    await stage.store.append("s", [message("e1", text="One")])
    with refused("id_conflict", StoreConflict):
        await stage.store.append("s", [message("e1", text="Other")])
    (stored,) = await stage.store.entries("s")
    expect_equal(stored.entry, message("e1", text="One"), "The entry")


@case()
async def a_batch_of_which_a_part_is_stored_is_a_conflict(stage: Stage) -> None:
    e1, e2, e3 = chain(3)
    await stage.store.append("s", [e1, e2])
    with refused("id_conflict", StoreConflict):
        await stage.store.append("s", [e2, e3])
    await expect_stored(stage.store, ["e1", "e2"])


@case()
async def one_id_twice_in_a_batch_is_a_conflict(stage: Stage) -> None:
    with refused("id_conflict", StoreConflict):
        await stage.store.append("s", [message("e1"), message("e1")])
    await expect_stored(stage.store, [])


@case()
async def a_version_that_moved_is_a_conflict(stage: Stage) -> None:
    e1, e2, e3 = chain(3)
    await stage.store.append("s", [e1, e2])
    for wrong in (0, 1, 3):
        with refused("version_conflict", StoreConflict):
            await stage.store.append("s", [e3], expected_version=wrong)
    await expect_stored(stage.store, ["e1", "e2"])


@case()
async def a_version_above_zero_of_a_new_session_is_a_conflict(stage: Stage) -> None:
    with refused("version_conflict", StoreConflict):
        await stage.store.append("s", chain(1), expected_version=1)
    await expect_stored(stage.store, [])


@case()
async def a_taken_id_is_told_before_a_version_and_that_before_a_parent(stage: Stage) -> None:
    await stage.store.append("s", chain(2))
    other = message("e2", "nobody", text="Other")
    with refused("id_conflict", StoreConflict):
        await stage.store.append("s", [other], expected_version=7)
    with refused("version_conflict", StoreConflict):
        await stage.store.append("s", [message("e3", "nobody")], expected_version=7)


@case()
async def a_missing_parent_is_refused(stage: Stage) -> None:
    with refused("missing_parent"):
        await stage.store.append("s", [message("e1", "nobody")])
    with refused("missing_parent"):
        await stage.store.append("s", [message("e1", "e1")])
    await expect_stored(stage.store, [])


@case()
async def a_parent_may_stand_earlier_in_the_batch_and_not_later(stage: Stage) -> None:
    e1, e2, e3 = chain(3)
    with refused("missing_parent"):
        await stage.store.append("s", [e2, e1])
    await expect_stored(stage.store, [])
    await stage.store.append("s", [e1, e2])
    await stage.store.append("s", [e3])
    await expect_stored(stage.store, ["e1", "e2", "e3"])


@case()
async def a_parent_in_another_session_is_none(stage: Stage) -> None:
    await stage.store.append("s", chain(1))
    with refused("missing_parent"):
        await stage.store.append("t", [message("e2", "e1", session_id="t")])


@case()
async def an_entry_of_another_session_is_refused(stage: Stage) -> None:
    with refused("wrong_session"):
        await stage.store.append("s", [message("e1"), message("e2", "e1", session_id="t")])
    await expect_stored(stage.store, [])
    await expect_stored(stage.store, [], session_id="t")


@case()
async def a_value_that_json_cannot_hold_refuses_the_whole_batch(stage: Stage) -> None:
    for value in (float("nan"), float("inf"), object()):
        bad = CustomEntry(
            id="e2", session_id="s", timestamp="t", parent_id="e1", data={"type": "x", "v": value}
        )
        with refused("invalid_value", EncodeError):
            await stage.store.append("s", [message("e1"), bad])
    await expect_stored(stage.store, [])


@case()
async def a_text_that_is_not_the_entry_it_says_is_refused(stage: Stage) -> None:
    honest = opaque_entry(encode_entry(message("e1")))
    for raw in (
        encode_entry(message("e2")),
        encode_entry(message("e1", session_id="t")),
        b"not JSON",
        b"[]",
    ):
        lying = type(honest)(id="e1", session_id="s", raw=raw, kind="message")
        with refused("invalid_entry"):
            await stage.store.append("s", [lying])
    await expect_stored(stage.store, [])


@case()
async def a_refused_batch_does_not_hinder_the_next(stage: Stage) -> None:
    e1, e2, _ = chain(3)
    await stage.store.append("s", [e1])
    with refused("missing_parent"):
        await stage.store.append("s", [e2, message("e9", "nobody")])
    expect_equal(await stage.store.append("s", [e2], expected_version=1), 2, "The version")


@case()
async def changing_a_value_afterwards_changes_nothing_that_is_stored(stage: Stage) -> None:
    data = {"type": "x", "list": [1]}
    entry = CustomEntry(id="e1", session_id="s", timestamp="t", data=data)
    await stage.store.append("s", [entry])
    data["list"] = "changed"
    first = await stage.store.entry("s", "e1")
    expect(first is not None, "The entry is gone.")
    if first is not None and isinstance(first.entry, CustomEntry):
        expect_equal(first.entry.data, {"type": "x", "list": [1]}, "After changing what was given")
        first.entry.data["list"].append(2)
    (second,) = await stage.store.entries("s")
    wanted = CustomEntry(id="e1", session_id="s", timestamp="t", data={"type": "x", "list": [1]})
    expect_equal(second.entry, wanted, "After changing what was read")


CASES: Final = cases_of(globals())
