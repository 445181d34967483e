"""Bytes in and out of the process without ever blocking the event loop.

Pipes, sockets and terminals are asked whether they are ready and then read and written directly;
what cannot be asked (files, `/dev/null`) never blocks for long.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import sys
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from errno import EIO
from io import TextIOWrapper
from time import monotonic
from typing import Final, TextIO, TypeAlias

import anyio
from anyio import to_thread

from prism.cli._main import EXIT_FAILED, complain

EXIT_READER_GONE: Final = 141
"""Exit status when nobody reads stdout any more: what a shell shows for SIGPIPE."""

READ_BYTES: Final = 65_536
"""Most that one read takes; the capacity of a Linux pipe."""

_ATOMIC_BYTES: Final = getattr(select, "PIPE_BUF", 512)
"""What a pipe that was reported as writable takes without blocking."""

_ROOM_SECONDS: Final = 0.001
"""How long that holds: another process may write to the same pipe."""

_SELECT_LIMIT: Final = 1_024
"""Descriptors from here on are not for `select`."""

LINGER_SECONDS: Final = 0.0005
"""How long the next request is waited for right away: a client that asks in turns takes less."""

WATCH_SECONDS: Final = 1.0
"""How often it is looked whether the reader is still there, when nothing is written."""

_GONE: Final = getattr(select, "POLLERR", 0) | getattr(select, "POLLHUP", 0)

Data: TypeAlias = bytes | memoryview


class Output:
    """One writer of one file descriptor: each record in one `write`, none lost, none mixed.

    A record that does not fit waits in memory until the reader takes it; whoever produces many
    records waits in `drain` when `put` says so.

    Args:
        fd: Where to write; its flags are left alone, because other processes may share them.
        on_close: Called once, when it turns out that nobody reads any more.

    Attributes:
        closed: Whether the reader has gone; what is put then is thrown away.
        error: Why it is closed.
        pending_bytes: What waits for the reader.
    """

    def __init__(self, fd: int, *, on_close: Callable[[], None] | None = None) -> None:
        self.closed = False
        self._on_close = on_close
        self.error: OSError | None = None
        self.pending_bytes = 0
        self._pending: deque[memoryview] = deque()
        self._lock = anyio.Lock(fast_acquire=True)
        self._blocked: anyio.Event | None = None
        self._waiting: anyio.CancelScope | None = None
        self._own_fd: int | None = None
        self._socket: socket.socket | None = None
        self._poll: Callable[[int], list[tuple[int, int]]] = lambda _timeout: [(fd, 0)]
        self._room = 0
        self._room_until = 0.0
        self._fd = fd
        kind = os.fstat(fd).st_mode
        if stat.S_ISSOCK(kind):
            self._socket = socket.socket(fileno=os.dup(fd))
            self._write: Callable[[Data], int] = self._write_socket
        elif os.isatty(fd):
            self._write = self._write_fd
            self._own_terminal()
        elif stat.S_ISFIFO(kind) and hasattr(select, "poll"):
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            self._poll = poll.poll
            self._write = self._write_pipe
        else:
            self._write = self._write_fd

    async def watch(self) -> None:
        """Notice that the reader has gone, also when nothing is written; runs beside the work."""
        if not hasattr(select, "poll"):
            return
        poll = select.poll()
        poll.register(self._fd, 0)
        while True:
            await anyio.sleep(WATCH_SECONDS)
            if self.closed:
                return
            if any(what & _GONE for _, what in poll.poll(0)):
                self._close(BrokenPipeError())

    def _own_terminal(self) -> None:
        """Open the terminal once more: that one can be set not to block, with nobody noticing."""
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK
            self._own_fd = self._fd = os.open(os.ttyname(self._fd), flags)

    def put(self, record: bytes) -> bool:
        """Write a record, now or as soon as the reader takes it.

        Returns:
            Whether nothing waits; if not, a producer calls `drain` before it goes on.
        """
        if self.closed:
            return True
        rest = memoryview(record)
        if not self._pending:
            try:
                written = self._write(record)
            except OSError:  # told apart below
                written = 0
            if written == len(record):
                return True
            rest = self._attempt(rest[written:])
            if not rest:
                return True
        self._pending.append(rest)
        self.pending_bytes += len(rest)
        if self._blocked is not None:
            self._blocked.set()
        return False

    def _attempt(self, data: memoryview) -> memoryview:
        """Write what can be written now; returns the rest."""
        try:
            while data:
                written = self._write(data)
                if not written:
                    break
                data = data[written:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._close(error)
            return data[:0]
        return data

    def _write_fd(self, data: Data) -> int:
        return os.write(self._fd, data)

    def _write_socket(self, data: Data) -> int:
        assert self._socket is not None  # noqa: S101
        return self._socket.send(data, socket.MSG_DONTWAIT)

    def _write_pipe(self, data: Data) -> int:
        if len(data) > self._room or monotonic() > self._room_until:
            if not self._poll(0):
                self._room = 0
                return 0
            self._room = _ATOMIC_BYTES
            self._room_until = monotonic() + _ROOM_SECONDS
            if len(data) > _ATOMIC_BYTES:
                data = data[:_ATOMIC_BYTES]
        written = os.write(self._fd, data)
        self._room -= written
        return written

    async def drain(self) -> None:
        """Wait until the reader has taken everything; returns at once when it has gone."""
        while self._pending:
            async with self._lock:
                while self._pending:
                    await self._wait()
                    self._write_pending()

    async def wait_blocked(self) -> None:
        """Wait until something waits for the reader."""
        if not self._pending:
            self._blocked = anyio.Event()
            await self._blocked.wait()
            self._blocked = None

    async def _wait(self) -> None:
        target = self._fd if self._socket is None else self._socket
        with anyio.CancelScope() as self._waiting:
            try:
                await anyio.wait_writable(target)
            except OSError as error:
                self._close(error)
        self._waiting = None

    def _write_pending(self) -> None:
        while self._pending:
            data = self._pending[0]
            rest = self._attempt(data)
            if self.closed:
                return
            self.pending_bytes -= len(data) - len(rest)
            if rest:
                self._pending[0] = rest
                return
            self._pending.popleft()

    def _close(self, error: OSError) -> None:
        if self.closed:
            return
        self.closed = True
        self.error = error
        self._pending.clear()
        self.pending_bytes = 0
        if self._on_close is not None:
            self._on_close()

    @property
    def failure(self) -> str | None:
        """Why nothing can be written, unless it is that the reader has gone."""
        error = self.error
        gone = isinstance(error, ConnectionError) or (error is not None and error.errno == EIO)
        return None if error is None or gone else str(error.strerror)

    def abandon(self) -> None:
        """Throw away what waits, and all that follows; `drain` returns."""
        self._close(BrokenPipeError())
        if self._waiting is not None:
            self._waiting.cancel()

    def close(self) -> None:
        """Release what was opened here; the descriptor that was given stays open."""
        self.closed = True
        if self._own_fd is not None:
            os.close(self._own_fd)
            self._own_fd = None
        if self._socket is not None:
            self._socket.close()


def output_status(output: Output) -> int:
    """The exit status of a process whose output is closed; says what was wrong, if anything was."""
    if output.failure is None:
        return EXIT_READER_GONE
    complain(f"stdout cannot be written: {output.failure}")
    return EXIT_FAILED


class Input:
    """Reads a file descriptor chunk by chunk."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        kind = os.fstat(fd).st_mode
        self._ready = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(fd)

    def read_soon(self) -> bytes | None:
        """The next chunk, if it comes within `LINGER_SECONDS`, else `None`.

        Blocks the event loop that long, and spares it two turns when the chunk comes.
        """
        if not self._ready or self._fd >= _SELECT_LIMIT:
            return None
        try:
            if not select.select([self._fd], [], [], LINGER_SECONDS)[0]:
                return None
            return os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    async def read(self) -> bytes:
        """The next chunk; empty at the end, which a vanished other side is too."""
        try:
            if not self._ready:
                return await to_thread.run_sync(
                    os.read, self._fd, READ_BYTES, abandon_on_cancel=True
                )
            while True:
                await anyio.wait_readable(self._fd)
                with suppress(BlockingIOError):
                    return os.read(self._fd, READ_BYTES)
        except OSError:
            return b""


@contextmanager
def own_stdio() -> Generator[tuple[int, int]]:
    """Take stdin and stdout for the protocol; what tools print then goes to stderr.

    Child processes inherit the safe ones too: nothing to read, and stderr to write to.

    Yields:
        The descriptors of the real stdin and stdout.
    """
    _flush_stdout()
    buffering = _buffer_lines(lines=True)
    stdin, stdout = _dup(0), _dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(null, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # there is no stderr
            os.dup2(null, 1)
        yield stdin, stdout
    finally:
        _flush_stdout()
        _buffer_lines(lines=buffering)
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        for fd in (stdin, stdout, null):
            os.close(fd)


def _flush_stdout() -> None:
    stdout: TextIO | None = sys.stdout  # None when the process was started without one
    if stdout is not None:
        with suppress(OSError, ValueError):
            stdout.flush()


def _buffer_lines(*, lines: bool) -> bool:
    """Let what is printed come line by line, or not; how it was before."""
    stdout: object = sys.stdout
    if not isinstance(stdout, TextIOWrapper):
        return False
    before = stdout.line_buffering
    stdout.reconfigure(line_buffering=lines)
    return before


def _dup(fd: int) -> int:
    """A private copy that children do not inherit; `/dev/null` for a descriptor that is closed."""
    try:
        return os.dup(fd)
    except OSError:
        return os.open(os.devnull, os.O_RDWR)
