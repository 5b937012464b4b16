"""Runs in TensorZero's environment: its HTTP gateway, which its package starts only in-process and on a port of its own choice.

python tensorzero_gateway.py CONFIG PORT_FILE
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit


def main(config: str, port_file: str) -> None:
    """Serves until a signal."""
    import tensorzero  # type: ignore[import-not-found]

    gateway = tensorzero._start_http_gateway(config_file=config, clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False)
    Path(port_file).write_text(str(urlsplit(gateway.base_url).port))
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
