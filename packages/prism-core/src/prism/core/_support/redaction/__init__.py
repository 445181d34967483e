"""Known secrets become a placeholder, in values of any shape and in streams."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from prism.core._errors import EncodeError, UsageError
from prism.core._support.limits import truncate_utf8
from prism.core._support.redaction.matcher import MAX_SECRET_CHARS, Hidden, Matcher, forms_of
from prism.core._support.redaction.walk import Walker
from prism.core._wire import MAX_DEPTH, AgentEvent, ContentBlock, ErrorInfo, Message, SessionEntry

__all__ = [
    "MAX_SECRET_CHARS",
    "PLACEHOLDER",
    "KnownSecret",
    "SecretRedactor",
    "StreamRedactor",
    "redact_secrets",
]

PLACEHOLDER: Final = "[REDACTED]"
"""What a secret becomes."""

_SPARE_PLACEHOLDERS: Final = ("***", "###", "[?]")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")

T = TypeVar("T")
BlockT = TypeVar("BlockT", bound=ContentBlock)
EntryT = TypeVar("EntryT", bound=SessionEntry)
EventT = TypeVar("EventT", bound=AgentEvent)


@runtime_checkable
class Revealable(Protocol):
    """A `Secret`."""

    def reveal(self) -> str:
        """The value itself."""
        ...


KnownSecret: TypeAlias = str | Revealable


class SecretRedactor(Hidden):
    """Replaces known secrets, wherever they stand, by a placeholder.

    A secret is found as it is and as JSON escapes it. Occurrences that overlap become one
    placeholder, so that no part of a secret that occurs is left. Nothing is copied that holds no
    secret: the same object comes back.

    Left as they are, since changing them breaks a session: ids and references to them, roles,
    statuses, timestamps, `replay`, `signature`, native blocks, the data of images, usage, names of
    providers and models, and entries, events and blocks that are kept as JSON text. Numbers are
    not text.

    A redactor without secrets is false, and returns everything as it is.

    Args:
        secrets: Strings or `Secret`s; empty ones are ignored.
        placeholder: What stands for a secret. When a secret overlaps with it, another one is used,
            so that redacted text never holds a secret, and is not changed by another redaction.

    Raises:
        UsageError: `invalid_secret` for one that is no string, or longer than `MAX_SECRET_CHARS`;
            `invalid_params` for an empty placeholder.
    """

    __slots__ = ("__asked", "__matcher", "__secrets", "__walker", "_placeholder")

    def __init__(
        self, secrets: Iterable[KnownSecret] = (), *, placeholder: str = PLACEHOLDER
    ) -> None:
        if not placeholder:
            raise UsageError(
                "placeholder must not be empty: it keeps apart what it stands between."
            )
        self.__asked = placeholder
        self.__secrets = frozenset(_reveal_all(secrets))
        self.__matcher: Matcher | None = None
        self._placeholder = placeholder
        if self.__secrets:
            forms = {form for secret in self.__secrets for form in forms_of(secret)}
            self.__matcher = Matcher(forms)
            self._placeholder = _free_placeholder(placeholder, forms)
        self.__walker = Walker(self.redact_text, self._redact_name)

    def __bool__(self) -> bool:
        return self.__matcher is not None

    def __repr__(self) -> str:
        return f"SecretRedactor({len(self.__secrets)} secrets)"

    @property
    def placeholder(self) -> str:
        """What stands for a secret."""
        return self._placeholder

    def reveal(self) -> tuple[str, ...]:
        """The secrets themselves, for code that has to redact before it cuts."""
        return tuple(sorted(self.__secrets))

    def extended(self, secrets: Iterable[KnownSecret] | SecretRedactor) -> SecretRedactor:
        """A redactor that knows *secrets* too; this one, when it knows them all."""
        if isinstance(secrets, SecretRedactor):
            secrets = secrets.__secrets  # noqa: SLF001 - of its own class
        more = _reveal_all(secrets)
        if self.__secrets.issuperset(more):
            return self
        return SecretRedactor(self.__secrets.union(more), placeholder=self.__asked)

    def redact_text(self, text: str) -> str:
        """*text* without secrets."""
        matcher = self.__matcher
        if matcher is None or not matcher.is_in(text):
            return text
        redacted = matcher.sweep(text, self._placeholder)[0]
        return text if redacted == text else redacted

    def redact_value(self, value: T) -> T:
        """*value* without secrets in its strings and keys, at any depth.

        Args:
            value: Dictionaries, lists and scalars, wire structs, or both in each other. Keys that
                become equal are numbered, so that no value is lost.

        Raises:
            EncodeError: `too_deep`, since such a value cannot be written either.
        """
        if self.__matcher is None:
            return value
        try:
            redacted: T = self.__walker.value(value)
        except RecursionError:
            raise EncodeError(
                f"JSON nests deeper than {MAX_DEPTH} levels.",
                code="too_deep",
                details={"limit": MAX_DEPTH},
            ) from None
        return redacted

    def redact_message(self, message: Message) -> Message:
        """*message* without secrets."""
        return self.redact_value(message)

    def redact_block(self, block: BlockT) -> BlockT:
        """*block* without secrets."""
        return self.redact_value(block)

    def redact_entry(self, entry: EntryT) -> EntryT:
        """*entry* without secrets."""
        return self.redact_value(entry)

    def redact_event(self, event: EventT) -> EventT:
        """*event* without secrets; deltas need `stream()`, since a secret may be cut by them."""
        return self.redact_value(event)

    def redact_error(self, error: ErrorInfo) -> ErrorInfo:
        """*error* without secrets."""
        return self.redact_value(error)

    def redact_and_truncate(self, text: str, max_bytes: int) -> str:
        """*text* without secrets, then cut to *max_bytes* of UTF-8.

        In the other order, a secret that lies across the cut would leave its beginning.
        """
        return truncate_utf8(self.redact_text(text), max_bytes)

    def stream(self) -> StreamRedactor:
        """A redactor of one text that comes in pieces."""
        return StreamRedactor(self.__matcher, self._placeholder)

    def _redact_name(self, name: str) -> str:
        """A tool's name, in which vendors accept no other characters."""
        redacted = self.redact_text(name)
        if redacted is name:
            return name
        bare = _NOT_IN_NAMES.sub("", self._placeholder) or "REDACTED"
        return redacted.replace(self._placeholder, bare)


class StreamRedactor(Hidden):
    """Redacts one text that comes in pieces, wherever it is cut.

    What `feed` and `flush` return, joined, is what `redact_text` makes of the whole. Only the end
    of what came is held back, from the first place on at which a secret may have begun.
    """

    __slots__ = ("__covered", "__held", "__matcher", "__placeholder")

    def __init__(self, matcher: Matcher | None, placeholder: str) -> None:
        self.__matcher = matcher
        self.__placeholder = placeholder
        self.__held = ""
        self.__covered = 0

    def __bool__(self) -> bool:
        """Whether there is anything to redact."""
        return self.__matcher is not None

    def __repr__(self) -> str:
        return f"StreamRedactor(held={len(self.__held)})"

    @property
    def held(self) -> int:
        """Number of characters that are held back."""
        return len(self.__held)

    def feed(self, text: str) -> str:
        """What can be shown, now that *text* came."""
        matcher = self.__matcher
        if matcher is None:
            return text
        if not self.__held and not matcher.may_begin_in(text):
            return text
        shown, self.__held, self.__covered = matcher.sweep(
            self.__held + text, self.__placeholder, covered=self.__covered, final=False
        )
        return shown

    def flush(self) -> str:
        """The rest, now that nothing more comes; afterwards another text may begin."""
        if not self.__held or self.__matcher is None:
            return ""
        held, covered = self.__held, self.__covered
        self.__held, self.__covered = "", 0
        return self.__matcher.sweep(held, self.__placeholder, covered=covered)[0]


def redact_secrets(value: T, secrets: Iterable[KnownSecret]) -> T:
    """*value* without *secrets*; to redact more than once, make one `SecretRedactor`."""
    return SecretRedactor(secrets).redact_value(value)


def _reveal_all(secrets: Iterable[KnownSecret]) -> list[str]:
    if isinstance(secrets, str | bytes):
        raise UsageError(
            "secrets must be a list of strings, and is one string.", code="invalid_secret"
        )
    revealed: list[str] = []
    for secret in cast("Iterable[object]", secrets):
        value: object = secret.reveal() if isinstance(secret, Revealable) else secret
        if not isinstance(value, str):
            raise UsageError(
                f"A secret must be a string or a Secret, not {type(value).__name__}.",
                code="invalid_secret",
            )
        if len(value) > MAX_SECRET_CHARS:
            raise UsageError(
                f"A secret has {len(value)} characters, more than {MAX_SECRET_CHARS}.",
                code="invalid_secret",
                details={"limit": MAX_SECRET_CHARS},
            )
        if value:
            revealed.append(value)
    return revealed


def _free_placeholder(asked: str, strings: set[str]) -> str:
    """*asked*, or another one that no string can share a character with when they are adjacent."""
    for candidate in (asked, *_SPARE_PLACEHOLDERS):
        if not any(_overlap(candidate, string) for string in strings):
            return candidate
    used = set("".join(strings))
    return next(chr(code) for code in range(0x2588, 0xD800) if chr(code) not in used) * 3


def _overlap(left: str, right: str) -> bool:
    """Whether one holds the other, or begins with what the other ends with."""
    if left in right or right in left:
        return True
    return any(
        right.startswith(left[-size:]) or right.endswith(left[:size])
        for size in range(1, len(left))
    )
