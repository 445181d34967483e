"""Lines are cut at line feeds alone, whatever the chunks and the characters."""

from __future__ import annotations

from hypothesis import given, strategies as st

from prism.cli._rpc.framing import LINE_TOO_LONG, Framer, LineTooLong


def lines_of(
    data: bytes, *, sizes: list[int] | None = None, limit: int = 1_000
) -> list[bytes | None]:
    """The lines of *data*, fed in chunks of the given sizes; `None` for one that is too long."""
    framer = Framer(limit)
    found: list[bytes | LineTooLong] = []
    rest = data
    for size in sizes or []:
        found += framer.feed(rest[:size])
        rest = rest[size:]
    found += framer.feed(rest)
    found += framer.end()
    return [line if isinstance(line, bytes) else None for line in found]


def test_only_a_line_feed_ends_a_line() -> None:
    inside = "a\u2028b\u2029c\u0085d\x0b\x0ce\rf".encode()
    assert lines_of(inside + b"\nsecond\n") == [inside, b"second"]


def test_one_carriage_return_before_the_line_feed_goes() -> None:
    assert lines_of(b"one\r\ntwo\r\r\nthree") == [b"one", b"two\r", b"three"]


def test_blank_lines_are_skipped() -> None:
    assert lines_of(b"\n\r\n  \t\none\n\n") == [b"one"]


def test_a_byte_order_mark_is_taken_off_the_first_line_only() -> None:
    assert lines_of(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n") == [b"one", b"\xef\xbb\xbftwo"]


def test_a_last_line_without_a_line_feed_counts() -> None:
    assert lines_of(b"one\ntwo") == [b"one", b"two"]


def test_a_line_may_have_the_limit_exactly() -> None:
    assert lines_of(b"x" * 1_000 + b"\r\nnext\n") == [b"x" * 1_000, b"next"]


def test_a_line_above_the_limit_is_reported_once_and_the_next_line_works() -> None:
    for size in (1_001, 1_005, 50_000):
        assert lines_of(b"x" * size + b"\nnext\n") == [None, b"next"]
        assert lines_of(b"x" * size + b"\nnext\n", sizes=[7] * 100) == [None, b"next"]


def test_a_line_above_the_limit_is_reported_before_it_ends() -> None:
    assert list(Framer(10).feed(b"x" * 20)) == [LINE_TOO_LONG]


@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    st.lists(st.integers(1, 9), max_size=60),
)
def test_chunking_makes_no_difference(lines: list[bytes], sizes: list[int]) -> None:
    data = b"\n".join(lines)
    assert lines_of(data, sizes=sizes, limit=20) == lines_of(data, limit=20)
