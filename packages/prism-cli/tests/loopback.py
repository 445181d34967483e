"""A Chat Completions server on the loopback interface that sends what a test tells it to."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def chunk(text: str | None = None, *, finish: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    body = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


DONE = chunk(finish="stop") + b"data: [DONE]\n\n"


class Loopback:
    """Answers every request with the bytes that the test `send`s, until it sends `DONE`.

    Attributes:
        requests: The JSON bodies that came, in order.
        headers: Their headers.
        gone: Set when a client has closed its connection before the end.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.gone = threading.Event()
        self.status = 200
        self._pieces: queue.Queue[bytes] = queue.Queue()
        loopback = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                loopback.requests.append(json.loads(body))
                loopback.headers.append({k.lower(): v for k, v in self.headers.items()})
                self.send_response(loopback.status)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                loopback.stream(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._pieces.put(piece)

    def stream(self, handler: BaseHTTPRequestHandler) -> None:
        handler.connection.settimeout(0.01)
        while True:
            try:
                piece = self._pieces.get(timeout=0.01)
            except queue.Empty:
                if self._has_left(handler):
                    self.gone.set()
                    return
                continue
            handler.wfile.write(piece)
            handler.wfile.flush()
            if piece.endswith(b"[DONE]\n\n"):
                return

    @staticmethod
    def _has_left(handler: BaseHTTPRequestHandler) -> bool:
        try:
            return handler.connection.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving() -> Generator[Loopback]:
    server = Loopback()
    server.start()
    try:
        yield server
    finally:
        server.stop()
