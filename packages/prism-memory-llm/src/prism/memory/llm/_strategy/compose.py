"""The finished summary, within its limit."""

from __future__ import annotations

from typing import Final

from prism.core import SecretRedactor
from prism.memory.llm._file_ops import FileOperations, format_file_operations
from prism.memory.llm._tokens import clean_text, cut_utf16, utf16_length

_CUT: Final = "\n[…]"
_FILES_SHARE: Final = 4
_PREFIX_SHARE: Final = 2


def compose_summary(
    *,
    history: str | None,
    turn_prefix: str | None,
    turn_heading: str,
    files: FileOperations | None,
    max_units: int,
    redactor: SecretRedactor,
) -> tuple[str, bool]:
    """History, the beginning of the turn, and the files.

    Args:
        history: Summary of what came before the turn in which the cut falls.
        turn_prefix: Summary of that turn's beginning.
        turn_heading: Stands above it.
        files: To be listed; at most a quarter of the summary.
        max_units: UTF-16 code units of the whole.
        redactor: Takes secrets out of the whole too, which may lie across two parts.

    Returns:
        The summary, and whether something of the model's own was cut.
    """
    listed = ""
    if files is not None:
        listed = clean_text(
            redactor.redact_text(
                format_file_operations(files, max_chars=max_units // _FILES_SHARE // 2)
            )
        )
    room = max_units - (utf16_length(listed) + 2 if listed else 0)
    parts = [history] if history else []
    was_cut = False
    if turn_prefix:
        section = f"{turn_heading}\n\n{turn_prefix}"
        if history:
            section = f"---\n\n{section}"
            was_cut = utf16_length(history) + utf16_length(section) + 2 > room
            section = _fitted(section, max(room - utf16_length(history) - 2, room // _PREFIX_SHARE))
            parts = [_fitted(history, room - utf16_length(section) - 2)]
        parts.append(section)
    body = "\n\n".join(parts)
    was_cut = was_cut or utf16_length(body) > room
    whole = "\n\n".join(part for part in (_fitted(body, room), listed) if part)
    return cut_utf16(redactor.redact_text(whole), max_units).strip(), was_cut


def _fitted(text: str, max_units: int) -> str:
    if utf16_length(text) <= max_units:
        return text
    if max_units <= len(_CUT):
        return cut_utf16(text, max_units)
    return cut_utf16(text, max_units - len(_CUT)).rstrip() + _CUT
