"""The preset for programming sessions."""

from __future__ import annotations

from typing import Unpack

from prism.core import UsageError
from prism.memory.llm._prompts import CODING_FOCUS
from prism.memory.llm._strategy.options import CodingOptions
from prism.memory.llm._strategy.strategy import LlmCompactionStrategy


class CodingCompactionStrategy(LlmCompactionStrategy):
    """The preset for programming sessions, always named `coding`.

    It asks for paths, the intent of changes, commands and checks, the plan, what blocks it and what
    to verify next, and always keeps and lists the files that were read and modified. Calls, limits
    and what is retained are those of `LlmCompactionStrategy`.

    Args:
        **options: As for `LlmCompactionStrategy`, without `name`, `track_file_operations` and
            `include_file_operations`, which are fixed.
    """

    __slots__ = ()

    def __init__(self, **options: Unpack[CodingOptions]) -> None:
        for fixed in ("name", "track_file_operations", "include_file_operations"):
            if fixed in options:
                raise UsageError(
                    f"{fixed} is fixed by the preset `coding`; for another one, use "
                    "LlmCompactionStrategy."
                )
        focus = [CODING_FOCUS, options.get("custom_instructions")]
        options["custom_instructions"] = "\n".join(text for text in focus if text)
        super().__init__(name="coding", **options)
