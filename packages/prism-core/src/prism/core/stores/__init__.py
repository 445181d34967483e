"""Where sessions are kept: the contract, stores in memory, in files and in SQLite, and copies."""

from prism.core._contracts import SessionInfo, SessionStore, StoredEntry
from prism.core.stores._jsonl import (
    JsonlSessionStore,
    LineProblem,
    SessionFileContent,
    read_session_file,
)
from prism.core.stores._memory import MemorySessionStore
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
