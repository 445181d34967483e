"""Answers every POST with the stream that its path names: `python stream_server.py FOLDER`.

Prints its port. `FOLDER/name` holds the events of a stream, one after the other; each goes out as
one chunk, and all at once.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(stream: bytes) -> bytes:
    """The whole answer."""
    events = [event + b"\n\n" for event in stream.split(b"\n\n") if event]
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"


def serve(connection: socket.socket, answers: dict[str, bytes]) -> None:
    """Answer the requests of one connection."""
    data = b""
    with connection:
        while True:
            while b"\r\n\r\n" not in data:
                got = connection.recv(65_536)
                if not got:
                    return
                data += got
            head, _, data = data.partition(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
            while len(data) < length:
                data += connection.recv(65_536)
            data = data[length:]
            name = head.split(b" ")[1].split(b"/")[1].decode()
            connection.sendall(answers[name])


def main(folder: Path) -> None:
    """Serve until the process is ended."""
    answers = {path.name: chunked(path.read_bytes()) for path in folder.iterdir()}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(connection, answers), daemon=True).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
