"""Where sessions are kept: the contract, stores in memory, in files and in SQLite, and copies."""

import typing

from prism.core._contracts import SessionInfo, SessionStore, StoredEntry
from prism.core._support import lazy as _lazy
from prism.core.stores._memory import MemorySessionStore

if typing.TYPE_CHECKING:
    from prism.core.stores._jsonl import (
        JsonlSessionStore,
        LineProblem,
        SessionFileContent,
        read_session_file,
    )
    from prism.core.stores._sqlite import SqliteSessionStore
    from prism.core.stores._transfer import export_session, import_session

__all__ = [
    "JsonlSessionStore",
    "LineProblem",
    "MemorySessionStore",
    "SessionFileContent",
    "SessionInfo",
    "SessionStore",
    "SqliteSessionStore",
    "StoredEntry",
    "export_session",
    "import_session",
    "read_session_file",
]

__getattr__: _lazy.GetAttribute = _lazy.lazy_names(
    __name__,
    {
        "JsonlSessionStore": "_jsonl",
        "LineProblem": "_jsonl",
        "SessionFileContent": "_jsonl",
        "SqliteSessionStore": "_sqlite",
        "export_session": "_transfer",
        "import_session": "_transfer",
        "read_session_file": "_jsonl",
    },
)
