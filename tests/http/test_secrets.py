"""No key and no prompt shows where it does not belong: in answers, headers, logs, tracebacks or anything's repr."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, error_of
from tests.support.running import Running, config_for, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER, ADMIN, BACKEND, SECRET, WRONG, PROMPT = (f"canary-{name}-5e1f" for name in ("user", "admin", "backend", "secret", "wrong", "prompt"))


def canaries(text: str) -> list[str]:
    return [each for each in (USER, ADMIN, BACKEND, SECRET, WRONG, PROMPT) if each in text]


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


async def test_canaries_stay_where_they_are(mock: MockBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "httpcore")  # the test's own client
    caplog.set_level(logging.DEBUG)  # last, for it is the last that counts for what is caught
    backend = {"url": mock.url, "engine": "vllm", "key": BACKEND, "models": {"m": "mock-model"}, "timeouts": {"first_byte_s": 0.2}}
    gone = {"url": "http://127.0.0.1:9/secret-path", "key": BACKEND, "models": {"gone": "gone"}}
    config = config_for({"a": backend, "b": gone}, server={"secret": SECRET})
    config["keys"] = [
        {"name": "u", "sha256": digest(USER), "models": ["m", "gone"]},
        {"name": "a", "sha256": digest(ADMIN), "scopes": ["admin"]},
    ]
    answers: list[httpx.Response] = []
    async with running(config, tmp_path) as run, run.client(USER) as user, run.client(ADMIN) as admin, run.client(WRONG) as wrong:
        await _provoke(mock, run, user, wrong, answers)
        answers += [await admin.get(path) for path in ("/admin/config", "/admin/backends", "/ready", "/health")]
        answers += [await admin.get(f"/admin/{path}") for path in ("config/source", "config/versions/1", "config/diff?from=1", "audit")]
        run.config["backends"]["a"]["zz_key"] = BACKEND
        answers.append(await admin.post("/admin/config/reload"))
        answers.append(await admin.get("/admin/config"))
        assert answers[-1].json()["last_error"]
        gateway = run.gateway
        things = [gateway, gateway.state, gateway.state.config, *gateway.state.backends.values(), *run.settled, run.app.reloader.status()]
        shown = "".join(map(repr, things))
    said = "".join(answer.text + str(answer.headers) for answer in answers)
    assert not canaries(said)
    assert "127.0.0.1:9" not in "".join(answer.text for answer in answers if "/admin/" not in str(answer.url))
    assert not canaries(shown)
    assert not canaries(caplog.text)
    # What went out by the book: the backend's key to the backend, the caller's to nobody.
    heard = str([request.headers for request in mock.requests])
    assert canaries(heard) == [BACKEND]


async def _provoke(
    mock: MockBackend, run: Running, user: httpx.AsyncClient, wrong: httpx.AsyncClient, answers: list[httpx.Response]
) -> None:
    """Every kind of failure that can be had."""
    messages = [{"role": "user", "content": PROMPT}]

    async def ask(client: httpx.AsyncClient, status: int, *behaviours: Behaviour, model: str = "m", **extra: object) -> None:
        mock.script(*behaviours)
        answers.append(await client.post(CHAT, json={"model": model, "messages": messages, **extra}))
        assert answers[-1].status_code == status, answers[-1].text

    await ask(user, 200)
    await ask(user, 200, stream=True)
    await ask(wrong, 401)
    await ask(user, 404, model="nobody")
    await ask(user, 502, model="gone")
    await ask(user, 400, n="many")
    await ask(user, 400, trilemma={"zz": PROMPT})
    await ask(user, 502, Behaviour(status=401, body=json.dumps({"error": {"message": f"Incorrect API key {BACKEND}"}})))
    await ask(user, 504, Behaviour(never_answer=True))
    await ask(user, 502, Behaviour(reset_after_events=-1))
    await ask(user, 200, Behaviour(reset_after_events=1), stream=True)
    await ask(user, 502, Behaviour(body="not json"))
    answers.append(await user.post(CHAT, content=b'{"model":"m","x":"' + PROMPT.encode()))
    answers.append(await user.get("/admin/config"))
    assert answers[-1].status_code == 403
    answers.append(await wrong.get("/admin/config"))
    answers.append(await user.get("/v1/models/nobody", headers={"x-request-id": "mine"}))


async def test_a_crash_tells_the_caller_no_more_than_an_id(
    gateway: Running, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traceback is in the log, under the id that the caller got."""

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(gateway.gateway.transport, "send", broken)
    for stream in (False, True):
        answer = await client.post(CHAT, json={"model": "mock-model", "messages": [PROMPT], "stream": stream})
        error = error_of(answer)
        assert (answer.status_code, error["code"], error["type"]) == (500, "gateway_internal", "server_error")
        assert "a fault of our own" not in answer.text
        assert answer.headers["x-request-id"] in error["message"]
        assert answer.headers["x-request-id"] in caplog.text
    assert "a fault of our own" in caplog.text
    assert not canaries(caplog.text)
    assert [receipt.outcome for receipt in gateway.settled] == ["gateway_error"] * 2
    assert gateway.in_flight() == 0


async def test_a_crash_outside_of_inference_is_an_openai_error_too(
    gateway: Running, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(gateway.app.reloader, "status", broken)
    answer = await client.get("/admin/config")
    assert (answer.status_code, error_of(answer)["code"]) == (500, "gateway_internal")
    assert "a fault of our own" not in answer.text
    assert "a fault of our own" in caplog.text
