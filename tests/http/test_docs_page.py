"""`/docs` is read in any browser, by anybody, without a script and without anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from gateway.http.docs import page
from tests.support.asking import error_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

_VOID = ("meta", "link", "br", "hr", "img", "input")


class Page(HTMLParser):
    """tags: of every element. links: every address that is followed or loaded. ids: elements by id. text: what is read."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on") and name != "style"
            if name in ("href", "src", "action"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data


async def test_it_is_open_to_anybody(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs", headers={"authorization": ""})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-request-id"]


async def test_nothing_runs_in_it_and_nothing_comes_from_elsewhere(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")
    found = Page(answer.text)
    assert not {"script", "img", "iframe", "form", "link", "object"} & set(found.tags)
    assert found.links == ["/openapi.json"]
    rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_everything_that_can_be_asked_stands_in_it(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    found = Page((await client.get("/docs")).text)
    operations = [(path, method, each) for path, item in document["paths"].items() for method, each in item.items()]
    assert sorted(found.ids) == sorted(each["operationId"] for _, _, each in operations)
    for path, method, each in operations:
        assert f"{method.upper()}{path}{each['summary']}" in found.text.replace("`", "")
        for status, response in each["responses"].items():
            assert f"{status}{response['description']}".replace("`", "") in found.text
    for _, _, each in operations:
        for parameter in each.get("parameters", ()):
            assert parameter["description"].replace("`", "") in found.text


async def test_a_line_for_a_shell(client: httpx.AsyncClient) -> None:
    found = Page((await client.get("/docs")).text)
    assert (
        'curl -sS -X POST \\\n  "$URL/v1/chat/completions" \\\n  -H "Authorization: Bearer $KEY" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        '  -d \'{"model": "auto", "messages": [{"role": "user", "content": "Hello!"}]}\''
    ) in found.text
    assert 'curl -sS \\\n  "$URL/health"From' not in found.text
    assert 'curl -sS \\\n  "$URL/health"' in found.text


async def test_words_of_the_document_are_only_words() -> None:
    evil = "<script>alert(1)</script>"
    operation: dict[str, Any] = {
        "operationId": '"><script>',
        "summary": evil,
        "description": f"`{evil}`",
        "parameters": [{"name": evil, "in": "query", "schema": {"enum": [evil]}, "description": evil}],
        "requestBody": {"description": evil, "content": {evil: {"schema": {"properties": {evil: {"description": evil}}}, "example": evil}}},
        "responses": {"200": {"description": evil, "headers": {evil: {"description": evil}}, "content": {evil: {}}}},
    }
    document = {"info": {"title": evil, "version": evil, "summary": evil}, "paths": {f"/{evil}": {"post": operation}}}
    found = Page(page(document))
    assert "script" not in found.tags
    assert evil in found.text


async def test_it_is_no_part_of_the_document(client: httpx.AsyncClient) -> None:
    assert "/docs" not in (await client.get("/openapi.json")).json()["paths"]
    refused = await client.post("/docs")
    assert (refused.status_code, error_of(refused)["code"]) == (405, "caller_method_not_allowed")
