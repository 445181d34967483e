from __future__ import annotations

from typing import Any

import pytest

from prism.core import Message, ToolCallBlock
from prism.memory.llm import (
    MAX_FILES,
    FileOperations,
    collect_file_operations,
    format_file_operations,
)
from prism.memory.llm._file_ops import without_file_blocks

from .branches import answer, call, say


def used(*calls: tuple[str, Any]) -> list[Message]:
    """Calls that succeeded, each with its result."""
    messages: list[Message] = []
    for number, (name, path) in enumerate(calls):
        block = ToolCallBlock(id=f"c{number}", name=name, arguments={"path": path})
        messages += [say("assistant", block), answer(f"c{number}")]
    return messages


def test_paths_are_collected_in_the_order_in_which_they_were_first_seen() -> None:
    files = collect_file_operations(
        used(("read", "b"), ("write", "w"), ("read", "a"), ("edit", "e"), ("read", "b"))
    )
    assert files == FileOperations(read_files=["b", "a"], modified_files=["w", "e"])


def test_a_file_that_was_changed_is_no_longer_only_read() -> None:
    files = collect_file_operations(used(("read", "a"), ("edit", "a"), ("read", "a")))
    assert files == FileOperations(modified_files=["a"])


def test_calls_that_failed_or_were_not_answered_do_not_count() -> None:
    messages = [
        say("assistant", call("1", "write", path="failed"), call("2", "edit", path="never")),
        answer("1", error="no"),
        say("assistant", call("3", "read", path="ok")),
        answer("3"),
        answer("2x"),
    ]
    assert collect_file_operations(messages) == FileOperations(read_files=["ok"])


@pytest.mark.parametrize("key", ["path", "file_path", "filePath"])
@pytest.mark.parametrize("name", ["read", "Read", "READ"])
def test_names_of_other_agents_are_understood(name: str, key: str) -> None:
    messages = [say("assistant", call("1", name, **{key: "f"})), answer("1")]
    assert collect_file_operations(messages).read_files == ["f"]


@pytest.mark.parametrize("path", [None, 7, "", "  ", ["x"], "x" * 5_000])
def test_what_is_no_path_is_passed_over(path: Any) -> None:
    assert collect_file_operations(used(("read", path))) == FileOperations()


def test_other_tools_are_not_looked_at() -> None:
    assert collect_file_operations(used(("bash", "x"), ("read_all", "y"))) == FileOperations()


def test_earlier_lists_come_first_and_are_kept() -> None:
    earlier = FileOperations(read_files=["r", "both"], modified_files=["m"])
    files = collect_file_operations(used(("edit", "both"), ("read", "m")), earlier=earlier)
    assert files == FileOperations(read_files=["r"], modified_files=["m", "both"])


def test_the_lists_are_bounded_and_lose_what_was_seen_first() -> None:
    files = collect_file_operations(used(*(("read", f"f{n}") for n in range(MAX_FILES + 5))))
    assert len(files.read_files) == MAX_FILES
    assert files.read_files[-1] == f"f{MAX_FILES + 4}"


def test_the_lists_are_shown_as_tagged_blocks() -> None:
    files = FileOperations(read_files=["a", "b"], modified_files=["c"])
    assert format_file_operations(files) == (
        "<read-files>\na\nb\n</read-files>\n<modified-files>\nc\n</modified-files>"
    )
    assert format_file_operations(FileOperations()) == ""


def test_a_path_cannot_end_its_line_or_its_block() -> None:
    files = FileOperations(read_files=["a\nb", "</read-files>", "é\u2028x", "C:\\dir"])
    assert format_file_operations(files) == (
        "<read-files>\na\\nb\n\\x3c/read-files>\né\\u2028x\nC:\\dir\n</read-files>"
    )


@pytest.mark.parametrize("limit", [10, 40, 60, 100, 150, 400])
def test_a_limit_leaves_out_what_was_seen_first_and_says_so(limit: int) -> None:
    files = FileOperations(
        read_files=[f"read/{n}.py" for n in range(20)],
        modified_files=[f"changed/{n}.py" for n in range(20)],
    )
    text = format_file_operations(files, max_chars=limit)
    assert len(text) <= limit
    if limit >= 150:
        assert "earlier)" in text
        assert "changed/19.py" in text


@pytest.mark.parametrize(
    "files",
    [
        FileOperations(read_files=["a", "<x>"]),
        FileOperations(modified_files=["a\nb"]),
        FileOperations(read_files=["a"], modified_files=["b"]),
        FileOperations(),
    ],
)
def test_the_blocks_can_be_taken_off_a_summary(files: FileOperations) -> None:
    summary = "# Goal\n\nMention <read-files> inside."
    listed = f"{summary}\n\n{format_file_operations(files)}".strip()
    assert without_file_blocks(listed) == summary
    assert without_file_blocks(f"{listed}\nand more") == f"{listed}\nand more"


def test_taking_blocks_off_is_linear_in_hostile_text() -> None:
    hostile = "<read-files>\n" * 40_000 + "\n</read-files>" * 40_000
    assert len(without_file_blocks(hostile)) < len(hostile)
