"""The OpenAPI document is true: schemathesis puts what it says to the running gateway, over the mock."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import MockBackend
from tests.support.databases import migrated
from tests.support.running import KEY, Running

__all__ = ["migrated"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

# What is generated should often be served: a random model would be unknown, a deadline of a millisecond passes.
_NARROWED = {
    "model": {"enum": ["mock-model", "alias", "auto", "nobody"]},
    "n": {"maximum": 4},
    "max_tokens": {"maximum": 8},
    "max_completion_tokens": {"maximum": 8},
    "deadline_ms": {"minimum": 60_000},
}
# Whether a backend should accept what the gateway lets pass is not the gateway's to say.
_NOT_CHECKED = "positive_data_acceptance,negative_data_rejection"


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Mapping[str, Any]:
    """With a database, so that what is asked of it is answered."""
    return {"storage": {"url": f"sqlite:///{shutil.copy(migrated, tmp_path_factory.mktemp('data') / 'decisions.db')}"}}


async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    """The document that the gateway serves; reading it needs no key."""
    answer = await client.get("/openapi.json", headers={"authorization": ""})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_the_document_is_openapi_3_1(client: httpx.AsyncClient) -> None:
    import schemathesis  # it takes a second to import, which each process that runs tests would pay

    found = await document(client)
    assert found["openapi"] == "3.1.0"
    schemathesis.openapi.from_dict(found).validate()


async def test_every_operation_says_what_it_is_who_may_and_what_can_go_wrong(client: httpx.AsyncClient) -> None:
    found = await document(client)
    operations = {(path, method): operation for path, item in found["paths"].items() for method, operation in item.items()}
    assert {path for path, _ in operations} >= {"/v1/chat/completions", "/v1/models/{model}", "/health", "/ready", "/admin/backends"}
    assert len({operation["operationId"] for operation in operations.values()}) == len(operations)
    public = {path for (path, _), operation in operations.items() if operation["security"] == []}
    assert public == {"/health", "/ready"}
    for (path, _), operation in operations.items():
        assert operation["summary"]
        if path in public:
            continue
        assert operation["security"] == [{"bearer": []}]
        for status in ("401", "403"):
            schema = operation["responses"][status]["content"]["application/json"]["schema"]
            assert set(schema["properties"]["error"]["required"]) == {"message", "type", "param", "code"}
    assert found["components"]["securitySchemes"]["bearer"] | {"description": ""} == {
        "type": "http",
        "scheme": "bearer",
        "description": "",
    }


async def test_the_gateway_answers_as_documented(mock: MockBackend, gateway: Running, client: httpx.AsyncClient, tmp_path: Path) -> None:
    """Of whatever fits the document, and what hardly does not: no server error, no undocumented answer, no key that is not asked for."""
    found = await document(client)
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/route"):
        properties = found["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        for name, bounds in _NARROWED.items():
            (properties["trilemma"]["properties"] if name == "deadline_ms" else properties).get(name, {}).update(bounds)
    change = found["paths"]["/admin/backends/{name}"]["patch"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    change["state"]["enum"] = ["serving"]  # it finds out what the backend is called, and would drain it under the other requests
    of_policies = [("/admin/policies/{name}", "put"), ("/admin/policies/{name}", "delete")]
    for path, method in (("/admin/config", "put"), ("/admin/config/rollback", "post"), *of_policies):
        for parameter in found["paths"][path][method]["parameters"]:
            if parameter["name"] == "If-Match":
                parameter["schema"] = {"enum": ['"not what runs"']}  # else it might change what is under test
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(found))
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("schemathesis"),
        "run",
        file,
        *("--url", gateway.url, "--header", f"Authorization: Bearer {KEY}"),
        *("--phases", "examples,coverage,fuzzing", "--generation-deterministic", "--max-examples", "40"),
        *("--exclude-checks", _NOT_CHECKED, "--no-color"),
        cwd=tmp_path,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(200):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()
    assert f"Tested: {sum(map(len, found['paths'].values()))}" in said.decode()
    assert any(request.path == "/v1/chat/completions" for request in mock.requests)
