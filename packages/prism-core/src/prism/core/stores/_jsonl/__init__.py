"""Sessions in files of JSON lines: the store, and a reader of any such file."""

from prism.core.stores._jsonl._lines import LineProblem
from prism.core.stores._jsonl._reader import SessionFileContent, read_session_file
from prism.core.stores._jsonl._store import JsonlSessionStore, OnWarning

__all__ = [
    "JsonlSessionStore",
    "LineProblem",
    "OnWarning",
    "SessionFileContent",
    "read_session_file",
]
