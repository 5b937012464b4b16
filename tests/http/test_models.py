"""`/v1/models`: what the key may use, with all that the backends say of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import error_of
from tests.support.running import config_for, running
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_real_models_first_then_aliases_and_virtual_models(mock: MockBackend, client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert [card["id"] for card in listed["data"]] == ["mock-model", "alias", "auto"]
    for card in listed["data"]:
        assert (card["object"], isinstance(card["created"], int), isinstance(card["owned_by"], str)) == ("model", True, True)


async def test_cards_keep_what_backends_say_and_the_smallest_context(tmp_path: Path) -> None:
    """Two replicas with different lengths: a prompt must fit whichever serves it."""
    async with MockBackend(["org/name"], max_model_len=4096) as one, MockBackend(["org/name"], max_model_len=2048) as two:
        config = config_for(
            {name: {"url": each.url, "engine": "vllm", "models": {"org/small": "org/name"}} for name, each in (("a", one), ("b", two))}
            | {"c": {"url": one.url, "engine": "vllm", "models": {"capped": "org/name", "raised": "org/name"}}},
            models={"capped": {"context": 1000, "aliases": ["team/alias"]}, "raised": {"context": 100_000}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            await until(lambda: all(backend.cards for backend in run.gateway.state.backends.values()), "every backend's list")
            card = (await client.get("/v1/models/org/small")).json()
            assert card["max_model_len"] == 2048
            assert (card["id"], card["root"], card["parent"], card["owned_by"]) == ("org/small", "/models/org/name", None, "vllm")
            assert card["permission"][0]["object"] == "model_permission"
            lengths = {
                name: (await client.get(f"/v1/models/{name}")).json()["max_model_len"] for name in ("capped", "team/alias", "raised")
            }
            assert lengths == {"capped": 1000, "team/alias": 1000, "raised": 4096}
            assert (await client.get("/v1/models/org%2Fsmall")).json() == card


async def test_unknown_models(client: httpx.AsyncClient, mock: MockBackend) -> None:
    for name in ("nobody", "mock-model/", "a" * 3000, "%00", "..%2fadmin"):
        answer = await client.get(f"/v1/models/{name}")
        error = error_of(answer)
        assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
        assert len(error["message"]) < 300


async def test_a_key_sees_and_uses_its_own_models(mock: MockBackend, tmp_path: Path) -> None:
    names = {"open-a": "mock-model", "open-b": "mock-model", "closed": "mock-model"}
    config = config_for({"mock": {"url": mock.url, "models": names}}, models={"closed": {"aliases": ["open-door"]}})
    config["keys"].append({"name": "guest", "sha256": hashlib.sha256(b"sk-guest").hexdigest(), "models": ["open-?", "nothing*"]})
    async with running(config, tmp_path) as run, run.client("sk-guest") as client:
        assert [card["id"] for card in (await client.get("/v1/models")).json()["data"]] == ["open-a", "open-b"]
        assert (await client.get("/v1/models/closed")).status_code == 404
        mock.script(Behaviour(body="{}", times=0))
        assert (await client.post("/v1/embeddings", json={"model": "open-a", "input": ""})).status_code == 200
        for path in ("/v1/chat/completions", "/v1/embeddings", "/v1/rerank"):
            for name in ("closed", "open-door"):
                answer = await client.post(path, json={"model": name})
                assert (answer.status_code, error_of(answer)["code"]) == (403, "caller_forbidden_model")
        answer = await client.get("/v1/audio/voices/v", params={"model": "closed"})
        assert answer.status_code == 403


async def test_no_key_no_list(mock: MockBackend, client: httpx.AsyncClient) -> None:
    for path in ("/v1/models", "/v1/models/mock-model"):
        answer = await client.get(path, headers={"authorization": "Bearer sk-wrong"})
        assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
