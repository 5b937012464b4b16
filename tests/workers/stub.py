"""A worker that serves nobody: FOLDER BEHAVIOUR, and what every worker is given.

Says that it listens, and how it is, once. `dies`: then ends with status 3. `stands`: then does nothing, and SIGTERM ends it. `stubborn`:
SIGTERM does not. Each writes its environment's names to FOLDER/PID.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path


def main() -> None:
    folder, behaviour, *options = sys.argv[1:]
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (Path(folder) / str(os.getpid())).write_text("\n".join(os.environ))
    with socket.socket(fileno=int(options[options.index("--channel") + 1])) as channel:
        for frame in (["tell", 0, "status", {"waiting": [], "running": 0}], ["tell", 0, "listening", None]):
            data = json.dumps(frame).encode()
            channel.sendall(struct.pack(">I", len(data)) + data)
        if behaviour != "dies":
            time.sleep(600)
    sys.exit(3)


if __name__ == "__main__":
    main()
