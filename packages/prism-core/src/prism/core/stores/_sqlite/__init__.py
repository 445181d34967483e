"""Sessions in one SQLite file; `sqlite3` is imported when a store is first used."""

from prism.core.stores._sqlite._store import SqliteSessionStore

__all__ = ["SqliteSessionStore"]
