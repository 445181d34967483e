"""Finding known strings in text, whole or in pieces."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NoReturn

MAX_SECRET_CHARS: Final = 64 * 1024
"""Longest secret; a key file or a certificate chain is far below it."""

_MAX_HEAD: Final = 16
_FEW: Final = 8
_NON_BMP = re.compile("[\U00010000-\U0010ffff]")


class Hidden:
    """Base of what holds secrets: no pickling, no copying, nothing in `repr`."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"A {type(self).__name__} holds secrets and cannot be pickled or copied.")


def forms_of(secret: str) -> set[str]:
    """How *secret* can stand in text.

    As it is; inside a JSON string, with non-ASCII characters escaped or not; inside JSON that is
    itself a JSON string, as in the streamed arguments of a call that carries JSON; and with
    characters beyond U+FFFF as two surrogates, as they arrive when a stream cuts them.
    """
    whole = secret.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    forms = {secret, whole, _NON_BMP.sub(_as_surrogates, whole)}
    escaped = {text for form in forms for text in _escape(form)}
    return forms | escaped | {text for form in escaped for text in _escape(form)}


def _as_surrogates(match: re.Match[str]) -> str:
    code = ord(match.group()) - 0x10000
    return chr(0xD800 | code >> 10) + chr(0xDC00 | code & 0x3FF)


def _escape(text: str) -> tuple[str, str, str]:
    import json  # only who has secrets pays for it

    in_ascii = json.dumps(text)[1:-1]
    # Encoders differ over DEL, which is ASCII, but not printable.
    return json.dumps(text, ensure_ascii=False)[1:-1], in_ascii, in_ascii.replace("\\u007f", "\x7f")


class Matcher(Hidden):
    """Finds every occurrence of any of many strings, in time linear in the text.

    The strings are kept sorted: the longest one that begins at a place is then the place's
    predecessor in that order, or one of its prefixes.

    Args:
        strings: Not empty, and none of them empty.
    """

    __slots__ = ("_first", "_head", "_heads", "_jumps", "_longest", "_parents", "_strings")

    def __init__(self, strings: Iterable[str]) -> None:
        # The empty string is the root of the tree of prefixes.
        ordered = ["", *sorted(strings)]
        self._strings = ordered
        self._longest = max(map(len, ordered))
        self._head = min(_MAX_HEAD, *map(len, ordered[1:]))
        self._heads = frozenset(string[: self._head] for string in ordered[1:])
        firsts = sorted({string[0] for string in ordered[1:]})
        self._first = re.compile(f"[{''.join(map(re.escape, firsts))}]")
        self._parents, self._jumps = _prefix_tree(ordered)

    def is_in(self, text: str) -> bool:
        """Whether any of the strings is in *text*; quick, but may say yes without reason."""
        if len(self._strings) > _FEW:
            return self._first.search(text) is not None
        for string in self._strings[1:]:  # noqa: SIM110 - any() would take twice as long
            if string in text:
                return True
        return False

    def may_begin_in(self, text: str) -> bool:
        """Whether *text* holds a character that one of the strings begins with."""
        return self._first.search(text) is not None

    def sweep(
        self, text: str, placeholder: str, *, covered: int = 0, final: bool = True
    ) -> tuple[str, str, int]:
        """Replace every run of overlapping occurrences in *text* by *placeholder*.

        Args:
            text: What was held back of the text so far, and what came.
            placeholder: What stands for a run.
            covered: How much of the start of *text* belongs to a run whose placeholder is out.
            final: Whether nothing follows *text*.

        Returns:
            The output; the end of *text* from the first place on at which one of the strings may
            have begun; and how much of that end is covered.
        """
        output: list[str] = []
        size, head, heads = len(text), self._head, self._heads
        kept = size
        for found in self._first.finditer(text):
            start = found.start()
            if text[start : start + head] not in heads and (final or start + head <= size):
                continue
            if not final and self._may_grow(text, start):
                kept = start
                break
            length = self._longest_at(text, start)
            if not length:
                continue
            if start >= covered:
                output += (text[covered:start], placeholder)
            covered = max(covered, start + length)
        if covered < kept:
            output.append(text[covered:kept])
        return "".join(output), text[kept:], max(0, covered - kept)

    def _longest_at(self, text: str, start: int) -> int:
        window = text[start : start + self._longest]
        strings, jumps = self._strings, self._jumps
        node = bisect_right(strings, window) - 1
        while not window.startswith(strings[node]):
            jump = jumps[node]
            node = self._parents[node] if window.startswith(strings[jump]) else jump
        return len(strings[node])

    def _may_grow(self, text: str, start: int) -> bool:
        """Whether *text* from *start* on is the beginning of a string that is longer."""
        if len(text) - start >= self._longest:
            return False
        tail = text[start:]
        node = bisect_right(self._strings, tail)
        return node < len(self._strings) and self._strings[node].startswith(tail)


def _prefix_tree(ordered: list[str]) -> tuple[list[int], list[int]]:
    """For each string the longest other one that it begins with, and one further up.

    The second pointers skip far enough that any ancestor is reached in logarithmic time, whatever
    the number of strings that begin with each other.
    """
    parents, jumps, depths = [0], [0], [0]
    line = [0]
    for node in range(1, len(ordered)):
        while not ordered[node].startswith(ordered[line[-1]]):
            line.pop()
        parent = line[-1]
        line.append(node)
        jump = jumps[parent]
        equal = depths[parent] - depths[jump] == depths[jump] - depths[jumps[jump]]
        parents.append(parent)
        jumps.append(jumps[jump] if equal else parent)
        depths.append(depths[parent] + 1)
    return parents, jumps
