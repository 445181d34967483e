"""Depth, recursion, numbers, encodings: what JSON can be made to hold, and cannot."""

import dataclasses
import enum
import json
import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from prism.core._errors import DecodeError, EncodeError
from prism.core._wire import (
    MAX_DEPTH,
    CustomEntry,
    JsonText,
    Message,
    MessageDelta,
    MessageEntry,
    OpaqueBlock,
    RpcRequest,
    TextBlock,
    ToolCallBlock,
    convert_blocks,
    convert_message,
    decode_entry,
    decode_event,
    decode_message,
    depth_exceeds,
    encode,
    encode_ascii,
    encode_entry,
    entry_with_session,
    escape_ascii,
    has_non_finite,
    opaque_entry,
    parse_json,
    rpc_request_codec,
    to_plain,
)

HEAD = '"id":"e","sessionId":"s","timestamp":"t"'


def lists(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def brackets(levels: int, inside: str = "") -> str:
    return "[" * levels + inside + "]" * levels


READERS: dict[str, tuple[Callable[[JsonText], Any], str, int]] = {
    "entry": (decode_entry, f'{{{HEAD},"kind":"custom","data":{{"x":@}}}}', 2),
    "entry with unknown field": (decode_entry, f'{{{HEAD},"kind":"label","x":@}}', 1),
    "entry of unknown kind": (decode_entry, f'{{{HEAD},"kind":"k","x":@}}', 1),
    "opaque entry": (opaque_entry, f'{{{HEAD},"kind":"label","x":@}}', 1),
    "moved entry": (lambda text: entry_with_session(text, "o"), f'{{{HEAD},"kind":"k","x":@}}', 1),
    "event": (
        decode_event,
        '{"type":"tool_execution_progress","sessionId":"s","toolCallId":"","name":"","progress":@}',
        1,
    ),
    "event of unknown type": (decode_event, '{"type":"t","sessionId":"s","x":@}', 1),
    "message": (decode_message, '{"role":"user","content":[],"metadata":{"x":@}}', 2),
    "message with unknown block": (
        decode_message,
        '{"role":"u","content":[{"type":"k","x":@}]}',
        3,
    ),
    "request": (rpc_request_codec.decode, '{"id":1,"command":"c","params":{"x":@}}', 2),
    "any JSON": (parse_json, "@", 0),
}


@pytest.mark.parametrize("inside", ["1", r'"\ud800"', '"é"'])
@pytest.mark.parametrize("name", READERS)
def test_reading_takes_512_levels_and_refuses_513(name: str, inside: str):
    read, template, above = READERS[name]
    read(template.replace("@", brackets(MAX_DEPTH - above, inside)))
    for levels in (MAX_DEPTH + 1, 700, 5_000, 200_000):
        text = template.replace("@", brackets(levels - above, inside))
        for data in (text, text.encode(), bytearray(text.encode()), memoryview(text.encode())):
            with pytest.raises(DecodeError) as caught:
                read(data)
            assert caught.value.code == "too_deep"
            assert caught.value.details == {"limit": 512}


@pytest.mark.parametrize("leaf", [1, "\ud800", 2**70])
def test_writing_and_converting_take_512_levels_and_refuse_513(leaf: Any):
    def value(levels: int) -> Any:
        tree = lists(levels)
        inner = tree
        while inner:
            inner = inner[0]
        inner.append(leaf)
        return tree

    def entry(levels: int) -> CustomEntry:
        return CustomEntry(id="e", session_id="s", timestamp="t", data={"x": value(levels - 2)})

    def tree(levels: int) -> dict[str, Any]:
        return {"role": "user", "content": [], "metadata": {"x": value(levels - 2)}}

    def blocks(levels: int) -> list[Any]:
        return [{"type": "unheard_of", "x": value(levels - 2)}]

    writers: list[Callable[[int], object]] = [
        lambda levels: encode(value(levels)),
        lambda levels: encode_ascii(value(levels)),
        lambda levels: encode_entry(entry(levels)),
        lambda levels: convert_message(tree(levels)),
        lambda levels: convert_blocks(blocks(levels)),
    ]
    for write in writers:
        write(MAX_DEPTH)
        for levels in (MAX_DEPTH + 1, 700, 5_000):
            with pytest.raises((EncodeError, DecodeError)) as caught:
                write(levels)
            assert caught.value.code == "too_deep"


def test_raw_text_counts_towards_the_depth_of_what_holds_it():
    block = OpaqueBlock(type="k", raw=f'{{"type":"k","x":{brackets(500)}}}'.encode())
    value: Any = block
    for _ in range(11):
        value = [value]
    encode(value)
    with pytest.raises(EncodeError, match="512"):
        encode([value])


def test_values_that_hold_themselves_are_refused_everywhere():
    ring: list[Any] = []
    ring.extend((ring, ring))
    loop: dict[str, Any] = {"role": "user", "content": []}
    loop["metadata"] = {"a": loop, "b": loop}
    for act in (
        lambda: encode(ring),
        lambda: encode([ring, "\ud800"]),
        lambda: to_plain(ring),
        lambda: convert_message(loop),
        lambda: convert_blocks(ring),
    ):
        with pytest.raises((EncodeError, DecodeError)) as caught:
            act()
        assert caught.value.code == "too_deep"
    assert not has_non_finite(ring)
    assert has_non_finite([ring, math.nan])


def near_the_limit(frames: int, act: Callable[[], object]) -> BaseException | None:
    """What *act* raises when only *frames* more calls are allowed; runs on a stack of its own."""
    raised: list[BaseException | None] = [None]

    def descend(left: int) -> None:
        if left > 0:
            descend(left - 1)
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001
            raised[0] = error

    def start() -> None:
        # The thread's own few frames, `start`, `descend` and `act` count too.
        descend(sys.getrecursionlimit() - frames - 6)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    return raised[0]


DEEP_ENTRY = f'{{{HEAD},"kind":"custom","data":{{"x":{brackets(300)}}}}}'
NEAR: dict[str, Callable[[], object]] = {
    "decode entry": lambda: decode_entry(DEEP_ENTRY),
    "decode entry slowly": lambda: decode_entry(DEEP_ENTRY.replace("[]", r'["\ud800"]')),
    "decode unknown kind": lambda: decode_entry(DEEP_ENTRY.replace("custom", "unknown")),
    "opaque entry": lambda: opaque_entry(DEEP_ENTRY.replace("{", "{\n", 1)),
    "decode unknown event": lambda: decode_event(f'{{"type":"t","x":{brackets(300)}}}'),
    "request": lambda: rpc_request_codec.decode(
        f'{{"id":1,"command":"c","params":{{"x":{brackets(300)}}}}}'
    ),
    "parse": lambda: parse_json(brackets(300)),
    "parse slowly": lambda: parse_json(brackets(300, r'"\ud800"')),
    "encode": lambda: encode(lists(300)),
    "encode slowly": lambda: encode([lists(300), "\ud800"]),
    "convert": lambda: convert_blocks([{"type": "unheard_of", "x": lists(300)}]),
}


@pytest.mark.parametrize("name", NEAR)
def test_a_recursion_error_never_escapes_near_the_limit_of_recursion(name: str):
    for frames in (20, 25, 40, 90, 200, 400):
        error = near_the_limit(frames, NEAR[name])
        assert error is None or isinstance(error, DecodeError | EncodeError), (frames, error)
        if error is not None:
            assert error.code == "too_deep"
    assert near_the_limit(900, NEAR[name]) is None


@pytest.mark.parametrize(
    ("text", "deep"),
    [
        ("[" * 600 + "]" * 600, True),
        ("[]" * 600, False),
        ("[" + ",".join(["[{}]"] * 600) + "]", False),
        ('"' + "[" * 600 + '"', False),
        ('["\\"' + "[" * 600 + '"]', False),
        ('["\\\\",' + brackets(600) + ',"\\\\"]', True),
        ('["\\\\\\"' + "[{" * 600 + '"]', False),
        ('{"a":"[","b":' * 511 + "1" + "}" * 511, False),
        ('{"a":"[","b":' * 513 + "1" + "}" * 513, True),
        ('[{"k":' * 256 + "[]" + "}]" * 256, True),
        ('[{"k":' * 256 + "1" + "}]" * 256, False),
        ("[" * 600, True),
    ],
)
def test_depth_is_that_of_the_brackets_outside_of_strings(text: str, deep: bool):  # noqa: FBT001
    assert depth_exceeds(text) is deep
    assert depth_exceeds(text.encode()) is deep
    assert depth_exceeds(memoryview(text.encode())) is deep


@pytest.mark.parametrize(
    "text",
    ['\\"' * 500_000, '"' + '\\"' * 500_000, '"[' * 300_000, "[]" * 500_000, '"\\' * 400_000],
)
def test_the_check_of_depth_is_linear_for_hostile_texts(text: str):
    # Anything quadratic would take minutes here and run into the time limit of the tests.
    data = (text + "[" * 600).encode()
    depth_exceeds(data)
    with pytest.raises(DecodeError):
        parse_json(data)


@pytest.mark.parametrize("number", [2**70, -(2**70), 2**63, 2**64 - 1, 10**4299, -(10**4299)])
def test_integers_are_exact_up_to_4300_digits(number: int):
    text = f'{{{HEAD},"kind":"custom","data":{{"n":{number}}}}}'
    for line in (text, text.replace('"t"', r'"\ud800"')):
        entry = decode_entry(line)
        assert isinstance(entry, CustomEntry)
        assert entry.data["n"] == number
        assert json.loads(encode_entry(entry)) == json.loads(line)


def test_integers_above_4300_digits_are_refused_both_ways():
    for line in ("1" * 4301, f'["\\ud800",{"1" * 4301}]', f'{{"a":-{"1" * 4301}}}'):
        with pytest.raises(DecodeError, match="4,300") as caught:
            parse_json(line)
        assert caught.value.code == "parse_error"
    with pytest.raises(DecodeError, match="4,300"):
        decode_entry(f'{{{HEAD},"kind":"custom","data":{{"n":{"1" * 4301}}}}}')
    for value in (10**4300, {"n": -(10**4300)}, ["\ud800", 10**4300]):
        with pytest.raises(EncodeError, match="4,300") as error:
            encode(value)
        assert error.value.code == "invalid_value"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999"])
def test_numbers_that_json_or_a_float_has_not_are_refused_when_read(number: str):
    for line in (f"[{number}]", f'["\\ud800",{number}]'):
        with pytest.raises(DecodeError) as caught:
            parse_json(line)
        assert caught.value.code == "parse_error"
    with pytest.raises(DecodeError):
        rpc_request_codec.decode(f'{{"id":{number},"command":"c"}}')


@pytest.mark.parametrize("flag", ["true", "null", "[]", "{}"])
def test_a_request_id_is_a_string_or_a_number(flag: str):
    with pytest.raises(DecodeError, match=r"\$\.id"):
        rpc_request_codec.decode(f'{{"id":{flag},"command":"c"}}')
    with pytest.raises(DecodeError, match=r"\$\.id"):
        rpc_request_codec.decode(f'{{"id":{flag},"command":"\\ud800"}}')


@dataclasses.dataclass
class Point:
    x: float


class Ratio(enum.Enum):
    BAD = math.inf
    GOOD = 0.5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_found_wherever_they_hide(bad: float):
    for value in (
        bad, [bad], {"a": [1, {"b": bad}]}, (1, bad), {bad}, frozenset({bad}), {bad: 1},
        Point(bad), [Point(bad)], {"x": Ratio.BAD},
        ToolCallBlock(id="c", name="n", arguments={"x": [bad]}),
        Message(role="u", content=[TextBlock(text="")], metadata={"x": bad}),
    ):  # fmt: skip
        assert has_non_finite(value)


def test_finite_values_and_values_that_json_has_not_are_no_non_finite_numbers():
    shared = [1.5, {"a": None}]
    for value in (
        None, True, 1, 2**70, 1.5, "NaN", b"nan", [], {}, {"a": (1, {2.5})}, Point(1.0), Ratio.GOOD,
        object(), [object(), 1.0], msgspec.Raw(b"1"), OpaqueBlock(type="x", raw=b'{"type":"x"}'),
        [shared, shared], lists(100_000),
    ):  # fmt: skip
        assert not has_non_finite(value)


def test_a_value_shared_a_million_times_is_looked_at_once():
    value: Any = [1.0]
    for _ in range(60):
        value = [value, value]
    assert not has_non_finite(value)


def test_non_finite_numbers_are_refused_in_entries_that_hosts_fill():
    for number in (math.nan, math.inf):
        entry = CustomEntry(id="e", session_id="s", timestamp="t", data={"x": [number]})
        with pytest.raises(EncodeError, match="NaN"):
            encode_entry(entry)
        with pytest.raises(EncodeError, match="NaN"):
            encode(["\ud800", number])


def test_values_that_json_has_not_are_refused_by_name():
    for value in (
        object(),
        [object()],
        {None: 1},
        {(): 1},
        ["\ud800", object()],
        ["\ud800", {(): 1}],
    ):
        with pytest.raises(EncodeError, match="written as JSON"):
            encode(value)
    with pytest.raises(EncodeError, match="object"):
        to_plain(object())


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "line 1, column 1"), (b"{", "column 2"), (b'{"a":1}}', "column 8"),
        (b"\xef\xbb\xbf{}", "BOM"), (b'["a\nb"]', "control character"), (b"[1,]", "column"),
        (b'["\\q"]', "escape"), (b"\xff", "UTF-8 at byte 0"), (b'["\xed\xa0\x80"]', "byte 2"),
        (b"nan", "line 1"),
    ],
)  # fmt: skip
def test_what_is_not_json_is_a_parse_error_with_its_place(data: bytes, place: str):
    for read in (parse_json, decode_entry, decode_event, opaque_entry, rpc_request_codec.decode):
        with pytest.raises(DecodeError, match=place) as caught:
            read(data)
        assert caught.value.code == "parse_error"


def test_bytes_that_are_not_utf8_are_refused_also_in_fields_that_nobody_reads():
    padding = b" " * 2_000
    for line in (
        f'{{{HEAD},"kind":"label","x":"'.encode() + b'\xff"}',
        f'{{{HEAD},"kind":"unheard_of","x":"'.encode() + b'\xff"}',
    ):
        for data in (line, bytearray(line), memoryview(line), line + padding):
            for read in (decode_entry, opaque_entry):
                with pytest.raises(DecodeError, match="UTF-8") as caught:
                    read(data)
                assert caught.value.code == "parse_error"
    with pytest.raises(DecodeError, match="UTF-8"):
        decode_event(b'{"type":"agent_started","sessionId":"s","x":"\xff"}')


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("[]", "$"),
        ("{}", "$"),
        ('{"kind":"label"}', "$"),
        ('{"kind":5}', "$.kind"),
        (f'{{{HEAD},"kind":"label","label":5}}', "$.label"),
        (f'{{{HEAD},"kind":"message","message":{{"role":"u","content":5}}}}', "$.message.content"),
        (
            f'{{{HEAD},"kind":"message","message":{{"role":"u","content":[{{"type":"text","text":1}}]}}}}',
            "$.message.content[0].text",
        ),
    ],
)
@pytest.mark.parametrize("extra", ["", r',"\ud800":1'])
def test_a_wrong_shape_is_refused_with_its_path(line: str, path: str, extra: str):
    if extra:
        if not line.endswith("}") or line == "{}":
            return
        line = line[:-1] + extra + "}"
    with pytest.raises(DecodeError) as caught:
        decode_entry(line)
    assert caught.value.code == "invalid_value"
    assert caught.value.details == {"path": path}
    assert str(caught.value).endswith(f" - at `{path}`.")


def test_the_path_of_a_key_names_what_holds_it():
    with pytest.raises(DecodeError) as caught:
        decode_event(
            '{"type":"worker_finished","sessionId":"s","worker":"w","status":"x","counts":{"a":"b"}}'
        )
    assert caught.value.details is not None
    assert caught.value.details["path"].startswith("$.counts")


def test_the_message_of_a_refusal_stays_short():
    huge = "k" * 1_000_000
    with pytest.raises(DecodeError) as caught:
        decode_entry(f'{{"kind":"{huge}"}}')
    assert len(str(caught.value)) < 500
    assert "`$.kind`" in str(caught.value)


def test_a_lone_surrogate_where_no_text_can_be_is_refused():
    with pytest.raises(DecodeError) as caught:
        decode_event(r'{"type":"turn_started","sessionId":"s","turn":"\ud800"}')
    assert caught.value.code == "invalid_value"


@pytest.mark.parametrize("line", ['{"a":1,"a":2}', r'{"a":"\ud800","a":2}'])
def test_the_last_value_of_a_repeated_key_wins(line: str):
    assert parse_json(line) == {"a": 2}


@pytest.mark.parametrize("text", ["x", r"\ud800"])
def test_the_last_value_of_a_repeated_field_wins_also_for_the_tag(text: str):
    line = f'{{{HEAD},"kind":"label","label":"{text}","label":"b","kind":"label"}}'
    entry = decode_entry(line)
    assert json.loads(encode_entry(entry)) == json.loads(line)
    line = f'{{"type":"agent_started","sessionId":"{text}","type":"session_settled"}}'
    assert json.loads(encode(decode_event(line))) == json.loads(line)


@pytest.mark.parametrize("text", ["\0", "\ud800", "\u2028", "\U0001f600", "\x85", "\x7f"])
def test_hostile_characters_come_back_the_same_in_both_encodings(text: str):
    entry = MessageEntry(
        id=text,
        session_id="s",
        timestamp="t",
        message=Message(role="user", content=[TextBlock(text=text * 2_000)], metadata={text: text}),
    )
    plain = encode_ascii(entry)
    assert decode_entry(encode(entry)) == decode_entry(plain) == entry
    assert plain.isascii()
    assert len(plain.decode().splitlines()) == 1
    assert b"\n" not in encode(entry)


def test_two_halves_of_a_character_are_read_as_the_whole():
    assert parse_json(encode("\ud83d\ude00")) == "\U0001f600"
    assert escape_ascii('"\U0001f600é"'.encode()) == b'"\\ud83d\\ude00\\u00e9"'


def test_huge_texts_pass():
    delta = MessageDelta(session_id="s", content=TextBlock(text='é["' * 3_000_000), index=0)
    assert decode_event(encode(delta)) == delta
    request = RpcRequest(id=1, command="prompt", params={"input": "\ud800" + "x" * 8_000_000})
    assert rpc_request_codec.decode(encode_ascii(request)) == request
