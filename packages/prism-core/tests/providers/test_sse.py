"""Server-sent events from bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from prism.core._errors import ProviderError
from prism.core.providers._sse import SseDecoder

BOM = b"\xef\xbb\xbf"
STREAM = (
    b": a comment\n\n"
    b"data: first\n\n"
    b"event: named\ndata:no space\nid: 7\nretry: 10\n\n"
    b"data: two\ndata:  lines\n\n"
    b"event: dropped\n\n"
    b"data\n\n"
    b"unknown: field\ndata: \xf0\x9f\x98\x80 end\n\n"
)
EVENTS = [
    ("", b"first"),
    ("named", b"no space"),
    ("", b"two\n lines"),
    ("", b""),
    ("", "😀 end".encode()),
]


def events_of(*chunks: bytes, max_event_bytes: int = 1_000) -> list[tuple[str, bytes]]:
    decoder = SseDecoder(max_event_bytes=max_event_bytes)
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    events += decoder.finish()
    assert decoder.finish() == []
    return [(event.name, event.data) for event in events]


@pytest.mark.parametrize("bom", [b"", BOM], ids=["plain", "bom"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_every_line_end_and_every_cut_gives_the_same_events(newline: bytes, bom: bytes) -> None:
    stream = bom + STREAM.replace(b"\n", newline)
    assert events_of(stream) == EVENTS
    for cut in range(len(stream) + 1):
        assert events_of(stream[:cut], stream[cut:]) == EVENTS
    for size in (1, 2, 3, 7):
        assert events_of(*(stream[at : at + size] for at in range(0, len(stream), size))) == EVENTS


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["", "a", "b"]),
            st.lists(st.text(st.characters(exclude_characters="\r\n")), min_size=1),
        )
    ),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 500)),
)
def test_what_is_written_is_read(
    events: list[tuple[str, list[str]]], newline: str, cuts: list[int]
) -> None:
    text = "".join(
        (f"event: {name}{newline}" if name else "")
        + "".join(f"data: {line}{newline}" for line in lines)
        + newline
        for name, lines in events
    )
    stream = text.encode()
    places = sorted({min(cut, len(stream)) for cut in cuts})
    chunks = [
        stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)
    ]
    wanted = [(name, "\n".join(lines).encode()) for name, lines in events]
    assert events_of(*chunks, max_event_bytes=100_000) == wanted


def test_the_last_event_needs_no_blank_line() -> None:
    assert events_of(b"data: a\n\ndata: b\n") == [("", b"a"), ("", b"b")]
    assert events_of(b"data: a\n\ndata: b") == [("", b"a"), ("", b"b")]
    assert events_of(b"event: only a name\n") == []


def test_a_bom_counts_only_at_the_start() -> None:
    assert events_of(BOM[:1], BOM[1:] + b"data: a\n\n") == [("", b"a")]
    assert events_of(b"data: a\n\n" + BOM + b"data: b\n\n") == [("", b"a")]
    assert events_of(BOM[:2]) == []


def test_an_event_may_fill_the_limit_and_no_more() -> None:
    line = b"data: " + b"x" * 13 + b"\n"
    assert events_of(line + b"\n", max_event_bytes=len(line)) == [("", b"x" * 13)]
    for chunks in ([line + b"\n"], [line[:9], line[9:]], [line[:-1]], [line[:-1] + b"x"]):
        with pytest.raises(ProviderError) as caught:
            events_of(*chunks, max_event_bytes=len(line) - 2)
        assert caught.value.code == "response_too_large"
        assert caught.value.details == {"limit": len(line) - 2}


def test_many_lines_count_together_and_events_apart() -> None:
    with pytest.raises(ProviderError):
        events_of(b"data:\n" * 20, max_event_bytes=100)
    assert len(events_of(b"data: x\n\n" * 100, max_event_bytes=100)) == 100
    with pytest.raises(ProviderError):
        events_of(b":" + b"x" * 200, max_event_bytes=100)


def test_a_huge_event_in_small_pieces_is_joined_once() -> None:
    decoder = SseDecoder()
    piece = b"x" * 1_000
    decoder.feed(b"data: ")
    for _ in range(5_000):
        assert decoder.feed(piece) == []
    (event,) = decoder.feed(b"\n\n")
    assert event.data == piece * 5_000
