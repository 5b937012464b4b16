"""Secrets and texts, planted wherever a request or a configuration can hold them, and looked for in all that the gateway leaves behind:
its log at its most talkative, errors, numbers, spans, the database with its journal, what admins see."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.config.load import load
from gateway.config.schema import Logs
from gateway.mock import Behaviour, MockBackend
from gateway.telemetry.logs import LogOutput
from gateway.telemetry.redaction import Redactor, secrets_of, secrets_of_environment
from tests.support.asking import CHAT
from tests.support.raw import wire
from tests.support.running import Running, config_for, running
from tests.support.waiting import until
from tests.telemetry.collector import Collector, collecting

NAMES = (
    "user",
    "admin",
    "backend",
    "secret",
    "collector",
    "wrong",
    "prompt",
    "system",
    "answer",
    "session",
    "tag",
    "tool",
    "path",
    "query",
    "model",
    "cookie",
)
CANARY = {name: f"canary-{name}-7d2e" for name in NAMES}


def canaries(text: str) -> list[str]:
    return [name for name, canary in CANARY.items() if canary in text]


@dataclass
class Watched:
    """A gateway, and what it has said so far. errors: answers that are no success."""

    run: Running
    mock: MockBackend
    collector: Collector
    log: io.StringIO
    folder: Path
    errors: list[httpx.Response] = field(default_factory=list)

    async def ask(self, status: int, *behaviours: Behaviour, key: str = "user", path: str = CHAT, **more: Any) -> None:
        """A chat with a canary in every place that takes one."""
        self.mock.script(*behaviours)
        body = {
            "model": "m",
            "messages": [{"role": "system", "content": CANARY["system"]}, {"role": "user", "content": CANARY["prompt"]}],
            "tools": [{"type": "function", "function": {"name": CANARY["tool"], "parameters": {}}}],
            "user": CANARY["session"],
            "trilemma": {"session_id": CANARY["session"], "tags": {"team": CANARY["tag"]}},
        }
        headers = {"authorization": f"Bearer {CANARY[key]}", "cookie": CANARY["cookie"], "proxy-authorization": f"Basic {CANARY['wrong']}"}
        async with httpx.AsyncClient(base_url=self.run.url, timeout=30) as client:
            answer = await client.post(path, json=body | more, headers=headers)
        assert answer.status_code == status, answer.text
        if status != 200:
            self.errors.append(answer)

    async def shown(self, path: str) -> str:
        """What an admin sees."""
        async with self.run.client(CANARY["admin"]) as client:
            answer = await client.get(path)
        assert answer.status_code in (200, 503), answer.text
        return answer.text + str(answer.headers)

    def database(self) -> str:
        """The file, its journal and its index, as they lie on disk."""
        found = []
        for file in self.folder.glob("rows.db*"):
            with contextlib.suppress(FileNotFoundError):  # a journal of the moment in which the database is made
                found.append(file.read_bytes().decode("latin-1"))
        return "".join(found)


@pytest.fixture(params=["text", "json"])
def output(request: pytest.FixtureRequest) -> Iterator[tuple[io.StringIO, Redactor]]:
    """The process's log at level debug, but for what the test's own client says."""
    stream, redactor, root = io.StringIO(), Redactor(), logging.getLogger()
    before = root.level
    found = LogOutput(redactor, "debug", stream)
    found.apply(Logs.model_validate({"format": request.param}))
    found._handler.addFilter(lambda record: not record.name.startswith(("httpx", "httpcore")))
    root.addHandler(found._handler)
    logging.getLogger("uvicorn").setLevel("WARNING")  # as LogOutput.install has it
    yield stream, redactor
    logging.getLogger("uvicorn").setLevel(logging.NOTSET)
    root.removeHandler(found._handler)
    root.setLevel(before)


@pytest.fixture
async def watched(
    output: tuple[io.StringIO, Redactor], mock: MockBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watched]:
    stream, redactor = output
    backend = {
        "url": mock.url,
        "engine": "vllm",
        "key": CANARY["backend"],
        "models": {"m": "mock-model"},
        "timeouts": {"first_byte_s": 0.2},
    }
    config = config_for(
        {"a": backend, "gone": {"url": "http://127.0.0.1:9", "key": CANARY["backend"], "models": {"gone": "gone"}}},
        models={"m": {"attempts": 1}},
        server={"secret": CANARY["secret"]},
        storage={"url": f"sqlite:///{tmp_path}/rows.db"},
        telemetry={"logs": {"access": True}},
    )
    config["keys"] = [
        {"name": "u", "sha256": hashlib.sha256(CANARY["user"].encode()).hexdigest()},
        {"name": "a", "sha256": hashlib.sha256(CANARY["admin"].encode()).hexdigest(), "scopes": ["admin"]},
    ]
    mock.script(default=Behaviour(text=f"{CANARY['answer']} and more"))
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"api-key={CANARY['collector']}")
        redactor.know(secrets_of_environment({"OTEL_EXPORTER_OTLP_HEADERS": f"api-key={CANARY['collector']}"}))
        async with running(config, tmp_path / "state") as run:
            redactor.know(secrets_of(load(tmp_path / "state.yaml", {}).config))
            yield Watched(run, mock, collector, stream, tmp_path)


async def test_none_is_found(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    await provoke(watched)
    await crash(watched, monkeypatch)
    watched.run.config["backends"]["a"]["zz_key"] = CANARY["backend"]
    async with watched.run.client(CANARY["admin"]) as admin:
        watched.errors.append(await admin.post("/admin/config/reload"))
    assert watched.errors[-1].status_code == 400
    shown = [await watched.shown(path) for path in ("/admin/config", "/admin/backends", "/metrics", "/ready", "/openapi.json")]
    asked = len(watched.run.settled)
    spans = sum(1 + len(receipt.calls) for receipt in watched.run.settled)
    await until(lambda: len(watched.collector.spans) == spans, "all spans")
    await until(
        lambda: CHAT in watched.log.getvalue() and watched.log.getvalue().count("trilemma.access") == asked, "a line for each request"
    )
    await until(lambda: all(each.decision_id in watched.database() for each in watched.run.settled if each.principal), "all rows")
    assert (watched.folder / "rows.db-wal").exists()

    assert canaries("".join(answer.text + str(answer.headers) for answer in watched.errors)) == []
    assert canaries("".join(shown)) == []
    assert canaries(watched.log.getvalue()) == []
    assert canaries(watched.collector.bodies.decode("latin-1")) == []
    assert set(canaries(watched.database())) <= {"tag"}  # which is a label for the record
    # What went out by the book.
    assert watched.collector.headers[0]["api-key"] == CANARY["collector"]
    assert "backend" in canaries(str([request.headers for request in watched.mock.requests]))


async def provoke(watched: Watched) -> None:
    """Answers of every kind."""
    ask = watched.ask
    await ask(200)
    await ask(200, stream=True)
    await ask(401, key="wrong")
    await ask(404, model="nobody")
    await ask(404, path=f"/v1/files/{CANARY['path']}")
    await ask(405, path="/admin/config")
    await ask(400, n="many")
    await ask(400, trilemma={"zz": CANARY["prompt"]})
    await ask(502, model="gone")
    await ask(502, Behaviour(status=401, body=json.dumps({"error": {"message": f"Incorrect API key {CANARY['backend']}"}})))
    await ask(504, Behaviour(never_answer=True))
    await ask(502, Behaviour(reset_after_events=-1))
    await ask(200, Behaviour(text=CANARY["answer"], reset_after_events=1), stream=True)
    await ask(502, Behaviour(body=CANARY["answer"]))
    async with wire(watched.run.url) as caller:  # what is no HTTP
        caller.send(f"GET /{CANARY['path']} HTTP/9\r\nauthorization: Bearer {CANARY['user']}\r\n\r\n".encode())
        assert canaries((await caller.answer()).body.decode()) == []
    for path in ("/v1/models/nobody", f"/metrics?key={CANARY['query']}", f"/nowhere/{CANARY['path']}?api_key={CANARY['query']}"):
        for key in ("user", "wrong"):
            async with watched.run.client(CANARY[key]) as client:
                watched.errors.append(await client.get(path))
                assert watched.errors[-1].status_code in (401, 403, 404)


async def crash(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults of the gateway's own, whose tracebacks speak of keys."""

    async def send(_method: str, _url: str, headers: object, *_: object, **__: object) -> None:
        raise RuntimeError(f"sending {headers} with {CANARY['backend']} failed")

    with monkeypatch.context() as patch:
        patch.setattr(watched.run.gateway.transport, "send", send)
        await watched.ask(500)
        await watched.ask(500, stream=True)
    with monkeypatch.context() as patch:

        def status() -> None:
            raise ValueError(f"Authorization: Bearer {CANARY['admin']}, api_key={CANARY['user']}, secret {CANARY['secret']}")

        patch.setattr(watched.run.app.reloader, "status", status)
        async with watched.run.client(CANARY["admin"]) as admin:
            watched.errors.append(await admin.get("/admin/config"))
            assert watched.errors[-1].status_code == 500
    said = watched.log.getvalue()
    assert said.count("RuntimeError: sending") == 2 and "ValueError: Authorization: Bearer ***" in said
