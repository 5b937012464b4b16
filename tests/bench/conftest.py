from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.bench import servers
from gateway.bench.ctools import Tools, compile_tools
from gateway.bench.servers import Server, Site


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return compile_tools(tmp_path_factory.mktemp("compiled"))


@pytest.fixture
def mock(tools: Tools, tmp_path: Path) -> Iterator[Server]:
    with servers.mock_backend(Site(tmp_path, None), tools.mock) as server:
        yield server
