"""A small HTTP server that stands in for an engine where the engine itself is not what is tested: PORT [option...].

mute: never answers. stubborn: ignores SIGTERM. parent: has a child, as vLLM does, that ignores SIGTERM too. chatty: writes without end.
Its first line of output is a JSON object: its child's process id and its environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    port, options = int(sys.argv[1]), set(sys.argv[2:])
    if options & {"stubborn", "parent"}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = None
    if "parent" in options:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # inherits that SIGTERM is ignored
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    print(json.dumps({"child": child and child.pid, "environment": dict(os.environ)}), flush=True)
    if "mute" in options:
        time.sleep(600)
    if "chatty" in options:
        threading.Thread(target=write, daemon=True).start()
    HTTPServer(("127.0.0.1", port), Answer).serve_forever()


def write() -> None:
    while True:
        print("." * 200, flush=True)
        time.sleep(0.001)


if __name__ == "__main__":
    main()
