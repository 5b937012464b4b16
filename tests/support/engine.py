"""The command `trilemma` as a user runs it: a process of its own, over real llama.cpp engines.

with trilemma("serve", "--config", file, folder=tmp_path, url=url) as gateway: ...
with up(tmp_path) as gateway: ...
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gateway.engines.spec import free_port
from tests.support.processes import alive, family, kill, until
from tests.support.running import NO_TLS

STRONG = "smollm2-135m"
WEAK = "smollm2-135m-weak"
COMMAND = Path(sys.executable).with_name("trilemma")


@dataclass(frozen=True)
class Started:
    """A running `trilemma`. url: without `/v1`; key: one with the scopes inference and admin. Its output goes to files."""

    url: str
    key: str
    process: subprocess.Popen[bytes]
    output: Path
    log: Path

    @property
    def headers(self) -> dict[str, str]:
        """The key, as a header."""
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def get(self, path: str) -> httpx.Response:
        """One GET with the key."""
        return httpx.get(self.url + path, headers=self.headers, timeout=30, verify=NO_TLS)

    def chat(self, **fields: Any) -> httpx.Response:
        """A short chat with the strong model; fields replace or add."""
        body = {"model": STRONG, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4} | fields
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=self.headers, timeout=120, verify=NO_TLS)

    def backends(self) -> dict[str, dict[str, Any]]:
        """/admin/backends by name."""
        return {backend["name"]: backend for backend in self.get("/admin/backends").json()["data"]}

    def engine(self, name: str = "strong") -> Engine:
        """The engine behind a backend."""
        return Engine(self.backends()[name]["url"])

    def answers(self, path: str, status: int = 200) -> bool:
        """Whether GET `path` answers with that status now."""
        with contextlib.suppress(httpx.NetworkError, httpx.RemoteProtocolError):
            return self.get(path).status_code == status
        return False

    def until_answers(self, path: str, status: int = 200, within_s: float = 120.0) -> None:
        """Waits for that status; fails with the log when the process ends or the time passes."""

        def settled() -> bool:
            assert self.process.poll() is None, f"it ended with status {self.process.returncode}\n{self.told()}"
            return self.answers(path, status)

        try:
            until(settled, f"GET {path} answers {status}", within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None

    def told(self) -> str:
        """What it has written so far."""
        return f"--- stdout\n{self.output.read_text()}\n--- stderr\n{self.log.read_text()}"

    def end(self, number: int = signal.SIGTERM, *, group: bool = False) -> int:
        """Signals the process, or as Ctrl-C does its whole group; its exit status. Fails when anything it started is left."""
        everybody = family(self.process.pid)
        (os.killpg if group else os.kill)(self.process.pid, number)
        status = self.process.wait(60)
        until(lambda: not alive(everybody), f"all of these end: {everybody}", 20)
        return status


@dataclass(frozen=True)
class Engine:
    """A llama.cpp server, asked directly."""

    url: str

    def metric(self, name: str) -> float:
        """A number of its /metrics."""
        text = httpx.get(f"{self.url}/metrics", timeout=30, verify=NO_TLS).text
        found = re.search(rf"^llamacpp:{name} (\S+)$", text, re.MULTILINE)
        assert found is not None, text
        return float(found.group(1))

    def until_idle(self) -> None:
        """Waits until it works on nothing.

        Asked seldom: llama.cpp looks whether the caller of a whole answer is still there after a second in which it had no result for
        anybody, and its metrics are a result.
        """
        until(lambda: self.metric("requests_processing") == 0, "the engine is idle", pause_s=1.5)


@contextlib.contextmanager
def trilemma(*arguments: str | Path, folder: Path, url: str, key: str = "") -> Iterator[Started]:
    """Runs the command in a process group of its own, in `folder`, where its output goes too. At the end nothing of it is left."""
    output, log = folder / "stdout.txt", folder / "stderr.txt"
    command = [str(COMMAND), *map(str, arguments)]
    with output.open("wb") as out, log.open("wb") as err:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
    everybody = family(process.pid)
    try:
        yield Started(url, key, process, output, log)
    finally:
        everybody |= family(process.pid)
        kill(everybody)
        process.wait(60)


@contextlib.contextmanager
def up(folder: Path, models: Path | None = None) -> Iterator[Started]:
    """`trilemma up`, ready. models: a folder of made models to use, so that the weak one is not made again."""
    state = folder / "state"
    state.mkdir()
    if models is not None:
        (state / "models").symlink_to(models)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with trilemma("up", "--state", state, "--port", str(port), folder=folder, url=url) as started:
        started.until_answers("/ready")
        until(lambda: "Ctrl-C ends it" in started.output.read_text(), "it says how to use it")
        yield Started(url, (state / "key").read_text().strip(), started.process, started.output, started.log)
