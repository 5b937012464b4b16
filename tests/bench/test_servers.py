"""Servers that are measured, started and ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gateway.bench import proctree, servers
from gateway.bench.ctools import BenchError, Tools
from gateway.bench.servers import Ask, Site
from gateway.bench.setup import Setup


def test_servers_are_measured_with_cached_byte_code() -> None:
    assert servers.environment({"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/home/x"}) == {"HOME": "/home/x"}


def test_a_server_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(BenchError, match=r"(?s)status 3 .*no such luck"),
        servers.gateway_server(
            Site(tmp_path, None), Setup("x", 1, tmp_path), f"{sys.executable} -c \"import sys; print('no such luck'); sys.exit(3)\""
        ),
    ):
        pass


def test_a_server_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"]
    with (
        pytest.raises(BenchError, match="silent did not answer a request in time"),
        servers.running("silent", command, servers.free_port(), Site(tmp_path, None), folder=tmp_path, within_s=1.0),
    ):
        pass
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


def test_a_server_may_name_its_port_in_a_file_and_be_asked_otherwise(tools: Tools, tmp_path: Path) -> None:
    port, file = servers.free_port(), tmp_path / "port"
    program = "import os, sys; open(sys.argv[2], 'w').write(sys.argv[3]); os.execv(sys.argv[1], [sys.argv[1], sys.argv[3]])"
    command = [sys.executable, "-c", program, str(tools.mock), str(file), str(port)]
    with servers.running("mock", command, file, Site(tmp_path, None), ask=Ask("other", "/else/chat/completions")) as server:
        assert server.port == port
        assert server.start_s > 0
        assert proctree.tree(server.pid) == [server.pid]


def test_load_and_server_have_a_cpu_each_where_there_are_two() -> None:
    load, server, why = servers.apart()
    if len(os.sched_getaffinity(0)) < 2:
        assert (load, server) == (None, None)
        assert "one CPU" in why
    else:
        assert load is not None
        assert server is not None
        assert not load & server
        assert why == ""
