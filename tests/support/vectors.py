"""An embeddings server on a real socket, in threads of its own, that answers as a test says.

with Vectors({"hello": [1.0, 0.0]}) as server: ...
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Vectors:
    """vectors: by text; what is not there gets `other`. asked: the bodies that came, in order; headers: theirs; connections: made so far.

    status, data: what is answered instead. held: while it is not set, nothing is answered. location: of a redirect.
    """

    def __init__(self, vectors: Mapping[str, Sequence[float]], other: Sequence[float] | None = None) -> None:
        self.vectors = dict(vectors)
        self.other = other
        self.asked: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.status = 200
        self.data: Callable[[list[str]], bytes] = self.answer
        self.location: str | None = None
        self.held = threading.Event()
        self.held.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, texts: list[str]) -> bytes:
        """The vectors, the last one first."""
        found = [{"object": "embedding", "index": i, "embedding": self.vectors.get(text, self.other)} for i, text in enumerate(texts)]
        return json.dumps({"object": "list", "data": found[::-1], "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}).encode()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.held.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(vectors: Vectors) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def setup(self) -> None:
            super().setup()
            vectors.connections += 1

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            vectors.paths.append(self.path)
            vectors.headers.append({name.lower(): value for name, value in self.headers.items()})
            vectors.asked.append(body)
            vectors.held.wait(30)
            data = vectors.data(body["input"])
            self.send_response(vectors.status)
            if vectors.location is not None:
                self.send_header("location", vectors.location)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:  # whoever asked has left
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: a test's output is its own."""

    return Handler
