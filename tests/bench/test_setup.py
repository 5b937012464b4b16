"""The measured gateway's configuration, and how its records are looked at."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gateway.bench.setup import KEY, Recorded, Setup, counted, rows, switched_on
from gateway.config.load import load_checked
from gateway.config.schema import Config


def test_the_configuration_is_one_that_starts(tmp_path: Path) -> None:
    file = tmp_path / "gateway.json"
    file.write_bytes(Setup("gateway", 8_082, tmp_path).file(8_081))
    config = load_checked(file).config
    assert config.server.port == 8_081
    assert config.backends["mock"].url == "http://127.0.0.1:8082"
    assert set(config.virtual_models["auto"].plans) == {"one", "two"}
    assert config.storage.url == f"sqlite:///{tmp_path}/gateway.db"


def test_everything_is_on_or_only_the_key_check() -> None:
    folder = Path("/var/bench")
    on = switched_on(Setup("a", 1, folder).file(2))
    off = switched_on(Setup("a", 1, folder, everything=False).file(2))
    assert (on["metrics"], on["decision rows"]) == ("on", "sqlite")
    assert (off["metrics"], off["decision rows"]) == ("off", "off")
    assert on["limits of a key"] == on["limits of a tenant"] == "rpm, tpm, concurrency"
    assert off["limits of a key"] == off["limits of a tenant"] == "off"
    assert on["keys"] == off["keys"] == "1, by digest"
    assert KEY not in str(Config.model_validate_json(Setup("a", 1, folder).file(2)))


def test_rows_are_counted_where_there_is_a_database(tmp_path: Path) -> None:
    file = tmp_path / "a b.db"
    assert rows(file) is None
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE something (id)")
    assert rows(file) is None
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE decisions (id)")
        connection.execute("INSERT INTO decisions VALUES (1), (2)")
        connection.commit()
    assert rows(file) == 2


METRICS = """# TYPE trilemma_requests counter
trilemma_requests_total{route="/v1/chat/completions",model="mock"} 40
trilemma_requests_total{route="/v1/chat/completions",model="mock-slow"} 2
trilemma_requests_created{route="/v1/chat/completions"} 17
"""


@contextmanager
def metrics(status: int) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers["Authorization"] == f"Bearer {KEY}" and self.path == "/metrics"
            self.send_response(status if allowed else 401)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "found"), [(200, 42), (404, None)])
def test_requests_are_read_from_the_metrics(status: int, found: int | None) -> None:
    with metrics(status) as port:
        assert counted(port) == found
    assert counted(port) is None


@pytest.mark.parametrize(
    ("recorded", "whole"),
    [(Recorded(10, 10, 12), True), (Recorded(10, 9, 10), False), (Recorded(10, 10, 9), False), (Recorded(10, None, 10), False)],
)
def test_a_record_is_whole_when_nothing_is_missing(recorded: Recorded, whole: bool) -> None:
    assert recorded.whole is whole


def test_the_key_of_the_load_generator_is_the_configured_one() -> None:
    file = json.loads(Setup("a", 1, Path("/x")).file(2))
    assert file["keys"][0]["sha256"] == hashlib.sha256(KEY.encode()).hexdigest()
