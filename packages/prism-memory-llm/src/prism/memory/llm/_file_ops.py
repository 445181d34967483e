"""Which files a conversation read and changed, taken from its tool calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from prism.core import Message, ToolCallBlock, ToolResultBlock

MAX_FILES: Final = 1_000
"""Most paths that are kept in each list; beyond it the ones seen first go."""

MAX_PATH_CHARS: Final = 4_096
"""Longest path that is taken for one, as on Linux."""

_READING: Final = "read"
_MODIFYING: Final = frozenset({"write", "edit"})
_PATH_KEYS: Final = ("path", "file_path", "filePath")
_READ_TAG: Final = "read-files"
_MODIFIED_TAG: Final = "modified-files"


class FileOperations(msgspec.Struct, frozen=True, kw_only=True):
    """Paths by what was done to them, each once, in the order in which they were first seen.

    Attributes:
        read_files: Only read.
        modified_files: Written or edited, whether or not they were also read.
    """

    read_files: list[str] = []
    modified_files: list[str] = []


def collect_file_operations(
    messages: Iterable[Message], *, earlier: FileOperations | None = None
) -> FileOperations:
    """The paths of `read`, `write` and `edit` calls that succeeded.

    Args:
        messages: Calls and their results; a call counts when its result is there and is no error.
            The tool's name may be written in any case; the path is its argument `path`,
            `file_path` or `filePath`.
        earlier: What was collected before; its paths come first.
    """
    read: dict[str, None] = {}
    modified: dict[str, None] = {}
    if earlier is not None:
        read.update(dict.fromkeys(earlier.read_files))
        modified.update(dict.fromkeys(earlier.modified_files))
    asked: dict[str, tuple[dict[str, None], str]] = {}
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                name = block.name.lower()
                if name == _READING or name in _MODIFYING:
                    path = _path_of(block)
                    if path is not None:
                        asked[block.id] = (read if name == _READING else modified), path
            elif isinstance(block, ToolResultBlock) and asked:
                operation = asked.pop(block.tool_call_id, None)
                if operation is not None and block.error is None:
                    files, path = operation
                    files[path] = None
    return FileOperations(
        read_files=[path for path in read if path not in modified][-MAX_FILES:],
        modified_files=list(modified)[-MAX_FILES:],
    )


def _path_of(call: ToolCallBlock) -> str | None:
    for key in _PATH_KEYS:
        path = call.arguments.get(key)
        if isinstance(path, str) and path.strip() and len(path) <= MAX_PATH_CHARS:
            return path
    return None


def format_file_operations(files: FileOperations, *, max_chars: int | None = None) -> str:
    """The lists as two tagged blocks, one path a line; empty lists have none.

    Args:
        files: What to show.
        max_chars: Longest text; the paths seen first go, and a line says how many. `None` shows
            all.
    """
    blocks: list[str] = []
    both = bool(files.read_files) and bool(files.modified_files)
    room = max_chars
    # The changed files get their place first: they matter more.
    for tag, paths in (
        (_MODIFIED_TAG, files.modified_files),
        (_READ_TAG, files.read_files),
    ):
        if not paths:
            continue
        share = room // 2 if room is not None and both and not blocks else room
        block = _format_block(tag, paths, share)
        if block:
            blocks.append(block)
            if room is not None:
                room -= len(block) + 1
    return "\n".join(reversed(blocks))


def _format_block(tag: str, paths: list[str], room: int | None) -> str:
    frame = len(tag) * 2 + 7
    lines: list[str] = []
    size = 0
    for number, path in enumerate(reversed(paths)):
        line = _one_line(path)
        rest = len(paths) - number - 1
        more = f"(and {rest + 1} earlier)"
        if room is not None and frame + size + len(line) + 1 + (len(more) if rest else 0) > room:
            lines.append(more)
            if frame + size + len(more) > room:
                return ""
            break
        lines.append(line)
        size += len(line) + 1
    return "\n".join([f"<{tag}>", *reversed(lines), f"</{tag}>"])


def _one_line(path: str) -> str:
    """The path; characters that could end its line or the block are escaped."""
    if path.isprintable() and "<" not in path:
        return path
    return "".join(
        char
        if char.isprintable() and char != "<"
        else char.encode("unicode_escape").decode().replace("<", "\\x3c")
        for char in path
    )


def without_file_blocks(summary: str) -> str:
    """*summary* without the blocks of `format_file_operations` at its end."""
    text = summary.rstrip()
    for tag in (_MODIFIED_TAG, _READ_TAG):
        if text.endswith(f"\n</{tag}>"):
            start = text.rfind(f"<{tag}>\n")
            if start == 0 or (start > 0 and text[start - 1] == "\n"):
                text = text[:start].rstrip()
    return text
