"""The SQLite file. Everything here blocks, and one thread at a time may call it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import quote

from prism.core._contracts import SessionInfo
from prism.core._errors import StoreError
from prism.core._wire import SessionEntry, escape_ascii
from prism.core.stores._records import Activity, already_stored, kind_of, os_failure

SCHEMA_VERSION: Final = 1

PAGE_BYTES: Final = 1024 * 1024
"""About how much is read from the file at once."""

PAGE_ROWS: Final = 512

_SCHEMA: Final = """
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    entry_count INTEGER NOT NULL,
    message_count INTEGER NOT NULL,
    created_at TEXT,
    last_activity_at TEXT,
    first_message TEXT
);
CREATE TABLE entries (
    session INTEGER NOT NULL REFERENCES sessions (key),
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (session, position),
    UNIQUE (session, id)
);
"""

_VARIABLES: Final = 500
"""Ids in one query: old builds of SQLite take at most 999 variables."""

_MAX_INTEGER: Final = 2**63 - 1
_FIRST_WAIT_S: Final = 0.002
_LONGEST_WAIT_S: Final = 0.05

_CODES: Final = {
    sqlite3.SQLITE_FULL: "disk_full",
    sqlite3.SQLITE_READONLY: "permission_denied",
    sqlite3.SQLITE_PERM: "permission_denied",
    sqlite3.SQLITE_AUTH: "permission_denied",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_NOTADB: "invalid_database",
    sqlite3.SQLITE_CORRUPT: "invalid_database",
    sqlite3.SQLITE_TOOBIG: "entry_too_large",
}


_NOT_AGAIN: Final = {"locked", "file_changed"}
"""What says no to a whole group of appends, after a wait or only once."""


class Append:
    """One batch, and what became of it.

    Attributes:
        version: The new version, once the batch is committed.
        error: Why it was refused.
    """

    __slots__ = ("entries", "error", "expected_version", "raws", "session_id", "version")

    def __init__(
        self,
        session_id: str,
        entries: Sequence[SessionEntry],
        raws: Sequence[bytes],
        expected_version: int | None,
    ) -> None:
        self.session_id = session_id
        self.entries = entries
        self.raws = raws
        self.expected_version = expected_version
        self.version = 0
        self.error: StoreError | None = None


class Database:
    """One connection.

    Args:
        path: The file; made with mode 0600 by the first append.
        durable: Each commit waits until it is on the disk.
        busy_timeout_ms: How long to wait for another connection.
    """

    def __init__(self, path: str, *, durable: bool, busy_timeout_ms: int) -> None:
        self._path = path
        self._durable = durable
        self._busy_timeout_ms = busy_timeout_ms
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def append(self, appends: Sequence[Append]) -> None:
        """Add batches in one commit; when that fails, each in its own."""
        try:
            with self._failures("write"):
                self._commit(self._open(), appends)
        except StoreError as error:
            for one in appends:
                one.error = error
                if len(appends) > 1 and error.code not in _NOT_AGAIN:
                    one.error = None
                    self.append([one])

    def entries(
        self, session_id: str, after: int, limit: int | None
    ) -> tuple[list[tuple[int, str]], bool]:
        """A page of positions and JSON texts, and whether more may follow."""
        if not self._exists():
            return [], False
        wanted = PAGE_ROWS if limit is None else min(limit, PAGE_ROWS)
        page: list[tuple[int, str]] = []
        total = 0
        with self._failures("read"):
            rows = self._open().execute(
                "SELECT position, json FROM entries"
                " WHERE session = (SELECT key FROM sessions WHERE id = ?) AND position > ?"
                " ORDER BY position LIMIT ?",
                (key(session_id), min(after, _MAX_INTEGER), wanted),
            )
            for position, text in rows:
                page.append((position, text))
                total += len(text)
                if total > PAGE_BYTES:
                    break
            rows.close()
        return page, total > PAGE_BYTES or len(page) == wanted

    def entry(self, session_id: str, entry_id: str) -> tuple[int, str] | None:
        """The position and the JSON text of one entry."""
        if not self._exists():
            return None
        with self._failures("read"):
            row = (
                self._open()
                .execute(
                    "SELECT position, json FROM entries"
                    " WHERE session = (SELECT key FROM sessions WHERE id = ?) AND id = ?",
                    (key(session_id), key(entry_id)),
                )
                .fetchone()
            )
        return None if row is None else (row[0], row[1])

    def sessions(self) -> list[SessionInfo]:
        """All sessions."""
        if not self._exists():
            return []
        with self._failures("read"):
            rows = self._open().execute(
                "SELECT id, entry_count, message_count, created_at, last_activity_at,"
                " first_message FROM sessions"
            )
            return [_activity(row[2:]).info(unkey(row[0]), row[1]) for row in rows if row[1]]

    def close(self) -> None:
        """Close the connection; the last one writes the log back into the file."""
        if self._connection is not None:
            with self._failures("close"):
                self._connection.close()
            self._connection = None

    # Writing

    def _commit(self, connection: sqlite3.Connection, appends: Sequence[Append]) -> None:
        with _transaction(connection, "BEGIN IMMEDIATE"):
            for one in appends:
                try:
                    one.version = self._add(connection, one)
                except StoreError as error:  # refused before anything was written
                    one.error = error

    def _add(self, connection: sqlite3.Connection, one: Append) -> int:
        session, version, activity = self._session(connection, one.session_id)

        def text_at(position: int) -> bytes:
            row = connection.execute(
                "SELECT json FROM entries WHERE session = ? AND position = ?", (session, position)
            ).fetchone()
            return str(row[0]).encode("ascii")

        if already_stored(
            one.entries,
            one.raws,
            known=self._known(connection, session, one.entries),
            text_at=text_at,
            version=version,
            expected_version=one.expected_version,
        ):
            return version
        if session is None:
            session = connection.execute(
                "INSERT INTO sessions (id, entry_count, message_count) VALUES (?, 0, 0)",
                (key(one.session_id),),
            ).lastrowid
        rows: list[tuple[int | None, int, str, str]] = []
        for position, (entry, raw) in enumerate(
            zip(one.entries, one.raws, strict=True), version + 1
        ):
            activity.add(kind_of(entry), entry.timestamp, raw, entry)
            text = raw if raw.isascii() else escape_ascii(raw)
            rows.append((session, position, key(entry.id), text.decode("ascii")))
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)
        version += len(rows)
        connection.execute(
            "UPDATE sessions SET entry_count = ?, message_count = ?, created_at = ?,"
            " last_activity_at = ?, first_message = ? WHERE key = ?",
            (
                version,
                activity.message_count,
                _text(activity.created_at),
                _text(activity.last_activity_at),
                _text(activity.first_message),
                session,
            ),
        )
        return version

    @staticmethod
    def _session(
        connection: sqlite3.Connection, session_id: str
    ) -> tuple[int | None, int, Activity]:
        row = connection.execute(
            "SELECT key, entry_count, message_count, created_at, last_activity_at, first_message"
            " FROM sessions WHERE id = ?",
            (key(session_id),),
        ).fetchone()
        return (None, 0, Activity()) if row is None else (row[0], row[1], _activity(row[2:]))

    @staticmethod
    def _known(
        connection: sqlite3.Connection, session: int | None, entries: Sequence[SessionEntry]
    ) -> Mapping[str, int]:
        """Positions of the batch's ids and parents, as far as they are stored."""
        if session is None:
            return {}
        wanted = {entry.id: None for entry in entries}
        wanted |= {entry.parent_id: None for entry in entries if entry.parent_id is not None}
        ids = list(wanted)
        found: dict[str, int] = {}
        for start in range(0, len(ids), _VARIABLES):
            some = [key(one) for one in ids[start : start + _VARIABLES]]
            marks = ", ".join("?" * len(some))
            rows = connection.execute(
                f"SELECT id, position FROM entries WHERE session = ? AND id IN ({marks})",  # noqa: S608 - only question marks
                (session, *some),
            )
            found.update((unkey(entry_id), position) for entry_id, position in rows)
        return found

    # Opening

    def _exists(self) -> bool:
        """Whether there is a file, so that reading makes none."""
        return self._connection is not None or os.path.exists(self._path)  # noqa: PTH110

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            self._check_file(self._connection)
            return self._connection
        self._create_file()
        connection = sqlite3.connect(
            f"file:{quote(self._path)}?mode=rw",  # an URI, so that no path has a meaning of its own
            uri=True,
            timeout=self._busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,  # one thread at a time
        )
        ready = False
        try:
            self._patiently(connection, self._set_up)
            ready = True
        finally:
            if not ready:
                connection.close()
        status = os.stat(self._path)  # noqa: PTH116
        self._identity = (status.st_dev, status.st_ino)
        self._connection = connection
        return connection

    def _check_file(self, connection: sqlite3.Connection) -> None:
        """Notice a file that was removed or replaced, whose entries nobody would find again."""
        try:
            status = os.stat(self._path)  # noqa: PTH116
        except FileNotFoundError:
            status = None
        if status is not None and (status.st_dev, status.st_ino) == self._identity:
            return
        self._connection = None
        with suppress(sqlite3.Error):
            # SQLite sees that the file moved, and leaves the log of the new one alone.
            connection.close()
        raise StoreError(
            f"{self._path} was removed or replaced by somebody else. Nothing was done: reload what"
            " you know of its sessions.",
            code="file_changed",
        )

    def _create_file(self) -> None:
        """Make the file, for its owner only, unless it is there.

        It must not be opened under its own name: closing any descriptor of a file drops all locks
        that this process holds on it, those of another store's connection too.
        """
        if os.path.exists(self._path):  # noqa: PTH110
            return
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        blank = f"{self._path}.{os.urandom(8).hex()}.new"
        os.close(os.open(blank, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            os.link(blank, self._path)
        except FileExistsError:  # another one was faster
            pass
        finally:
            os.unlink(blank)  # noqa: PTH108

    def _patiently(
        self, connection: sqlite3.Connection, step: Callable[[sqlite3.Connection], None]
    ) -> None:
        """Run *step* until no other process is in its way: the switch to WAL does not wait."""
        deadline = time.monotonic() + self._busy_timeout_ms / 1000
        wait = _FIRST_WAIT_S
        while True:
            try:
                step(connection)
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
                if not busy or time.monotonic() > deadline:
                    raise
            else:
                return
            time.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_S)

    def _set_up(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection, "BEGIN"):  # one view for all that is looked at
            version = self._version(connection)
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        if version == SCHEMA_VERSION:
            return
        with _transaction(connection, "BEGIN IMMEDIATE"):
            if self._version(connection) == 0:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _version(self, connection: sqlite3.Connection) -> int:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self._path} has schema version {version}; this Prism reads up to"
                f" {SCHEMA_VERSION}: use a newer one.",
                code="newer_schema",
                details={"version": version, "limit": SCHEMA_VERSION},
            )
        if version == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise StoreError(
                f"{self._path} is a database of something else: give the store a file of its own.",
                code="invalid_database",
            )
        return version

    @contextmanager
    def _failures(self, doing: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise os_failure(error, self._path, doing) from error
        except sqlite3.Error as error:
            code = _CODES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "io_error")
            raise StoreError(
                f"Cannot {doing} {self._path}: {error}.", code=code, details={"path": self._path}
            ) from error


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Generator[None]:
    connection.execute(begin)
    committed = False
    try:
        yield
        connection.execute("COMMIT")
        committed = True
    finally:
        if not committed and connection.in_transaction:
            connection.execute("ROLLBACK")


def key(text: str) -> str:
    r"""An id as SQLite text: a backslash escape for all that is not ASCII, and for controls.

    SQLite takes no lone surrogates, and its tools end a text at a NUL.
    """
    return text.encode("unicode_escape").decode("ascii")


def unkey(text: str) -> str:
    """What `key` was given."""
    return text.encode("ascii").decode("unicode_escape")


def _text(value: str | None) -> str | None:
    return None if value is None else key(value)


def _activity(row: Sequence[Any]) -> Activity:
    """The columns from `message_count` on."""
    activity = Activity()
    activity.message_count = row[0]
    activity.created_at, activity.last_activity_at, activity.first_message = (
        None if value is None else unkey(value) for value in row[1:]
    )
    return activity
