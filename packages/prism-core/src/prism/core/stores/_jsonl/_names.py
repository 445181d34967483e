"""Session ids as file names, and back."""

from __future__ import annotations

import re
from typing import Final

SUFFIX: Final = ".jsonl"

_MAX_STEM: Final = 200
"""File systems take 255 bytes; the rest is for `.jsonl`, `.quarantine` and `.lock`."""

_KEPT_OF_LONG: Final = 120
_DIGEST_CHARS: Final = 32
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.-]|^\.")
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)", re.IGNORECASE)
_ESCAPE = re.compile(rb"%([0-9a-f]{2})")


def file_name(session_id: str) -> str:
    """The name of a session's file: no two ids share one, on any file system.

    All but letters, digits, `_`, `-` and inner dots is percent-encoded. An id with capital letters
    gets a digest behind a `~`, because some file systems take `A` for `a`; so does a long one,
    of which only the beginning stands in front.
    """
    stem = _UNSAFE.sub(_escape, session_id.encode("utf-8", "surrogatepass")).decode("ascii")
    if _DEVICE.match(stem):  # Windows opens a device under these names, whatever the suffix
        stem = f"%{ord(stem[0]):02x}{stem[1:]}"
    if len(stem) > _MAX_STEM:
        stem = f"{stem[:_KEPT_OF_LONG]}~{_digest(session_id)}"
    elif stem != stem.lower():
        stem = f"{stem}~{_digest(session_id)}"
    return stem + SUFFIX


def session_id_of(name: str) -> str | None:
    """The session of a file name; `None` when the name alone does not tell."""
    stem = name.removesuffix(SUFFIX).partition("~")[0]
    try:
        session_id = _ESCAPE.sub(_unescape, stem.encode("ascii")).decode("utf-8", "surrogatepass")
    except UnicodeError:
        return None
    return session_id if session_id and file_name(session_id) == name else None


def _escape(match: re.Match[bytes]) -> bytes:
    return b"".join(b"%%%02x" % byte for byte in match.group())


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes([int(match.group(1), 16)])


def _digest(session_id: str) -> str:
    import hashlib

    data = session_id.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:_DIGEST_CHARS]
