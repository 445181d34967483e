"""A session as a person reads it: a tree that is indented only where it branches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prism.core import (
    CompactionEntry,
    CustomEntry,
    LabelEntry,
    Message,
    MessageEntry,
    ModelChangeEntry,
    SessionEntry,
    SummaryEntry,
    ToolResultBlock,
    TreeNode,
)

MIN_TEXT_CHARS: Final = 20
"""Text that a line shows however narrow the terminal is."""

_NAME_CHARS: Final = 10


def draw(
    nodes: Sequence[TreeNode],
    entries: Mapping[str, SessionEntry],
    *,
    leaf_id: str | None,
    width: int,
) -> Iterator[str]:
    """The lines of a tree.

    Args:
        nodes: Every entry's place, in append order.
        entries: The entries by id.
        leaf_id: Where the session stands.
        width: Characters in a line; ids may go beyond it.
    """
    children: dict[str | None, list[TreeNode]] = {}
    known = {node.id for node in nodes}
    for node in nodes:
        parent = node.parent_id if node.parent_id in known else None
        children.setdefault(parent, []).append(node)
    drawn: set[str] = set()
    roots = children.get(None, [])
    # A loop hangs on no root: each of its entries may begin what is left.
    for start in [*_places(roots, ""), *((node, "", "") for node in nodes)]:
        stack = [start]
        while stack:
            node, head, below = stack.pop()
            if node.id in drawn:
                continue
            drawn.add(node.id)
            yield _line(node, entries.get(node.id), head, leaf_id, width)
            stack += reversed(_places(children.get(node.id, []), below))


def _places(nodes: Sequence[TreeNode], indent: str) -> list[tuple[TreeNode, str, str]]:
    """Each node with what stands before it, and before what is below it."""
    if len(nodes) == 1:
        return [(nodes[0], indent, indent)]
    last = len(nodes) - 1
    return [
        (
            node,
            indent + ("└─ " if index == last else "├─ "),
            indent + ("   " if index == last else "│  "),
        )
        for index, node in enumerate(nodes)
    ]


def _line(
    node: TreeNode, entry: SessionEntry | None, head: str, leaf_id: str | None, width: int
) -> str:
    name, text = describe(node, entry)
    tail = f"  {node.id}"
    if node.label:
        tail += f"  [{printable(node.label)}]"
    if node.id == leaf_id:
        tail += "  <- here"
    line = f"{head}{name:{_NAME_CHARS}} "
    room = max(MIN_TEXT_CHARS, width - len(line) - len(tail))
    return f"{line}{shorten(text, room)}{tail}".rstrip()


def describe(node: TreeNode, entry: SessionEntry | None) -> tuple[str, str]:
    """What an entry is, and what it says."""
    if isinstance(entry, MessageEntry):
        return entry.message.role, _message_text(entry.message)
    if isinstance(entry, CompactionEntry | SummaryEntry):
        return node.kind, entry.summary or ""
    if isinstance(entry, ModelChangeEntry):
        model = "" if entry.model is None else f"{entry.model.provider}/{entry.model.model}"
        level = "" if entry.thinking_level is None else f"thinking: {entry.thinking_level}"
        return "model", "  ".join(part for part in (model, level) if part)
    if isinstance(entry, LabelEntry):
        return "label", f"[{entry.label}]" if entry.label else "(taken away)"
    if isinstance(entry, CustomEntry):
        return "custom", str(entry.data.get("type", ""))
    return node.kind, ""


def _message_text(message: Message) -> str:
    parts = [message.text] if message.text else []
    parts += [f"{call.name}(…)" for call in message.tool_calls]
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            said = "failed" if block.error is not None else "answered"
            parts.insert(0, f"{block.name} {said}")
    if message.stop_reason in {"aborted", "error", "length"}:
        parts.append(f"({message.stop_reason})")
    return "  ".join(parts)


def printable(text: str) -> str:
    """*text* on one line, without what would steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def shorten(text: str, room: int) -> str:
    """The start of a text, on one line of at most *room* characters."""
    # No line is so wide that more of the text could matter.
    line = printable(text[: 4 * room])
    return line if len(line) <= room else f"{line[: room - 1]}…"
