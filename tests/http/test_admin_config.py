"""The configuration is seen and changed over HTTP: nobody overwrites what they have not seen, and a bad text changes nothing."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml

from gateway.config.load import Loaded
from gateway.config.problems import ConfigError, Problem
from gateway.mock import MockBackend
from tests.support.asking import CHAT, error_of, question
from tests.support.running import KEY, Running, config_for, running
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/admin/config"
YAML = {"content-type": "application/yaml"}
Own = tuple[Running, httpx.AsyncClient]
NEW_KEY = "canary-9f31-literal"


@pytest_asyncio.fixture(loop_scope="module")
async def own(mock: MockBackend, tmp_path: Path) -> AsyncIterator[Own]:
    """A gateway of this test's own, whose configuration may change; its file lies alone in a folder."""
    (tmp_path / "etc").mkdir()
    config = config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}})
    async with running(config, tmp_path / "etc" / "trilemma") as run, run.client() as client:
        yield run, client


def with_alias(run: Running, alias: str, **more: Any) -> str:
    """The configuration as YAML, with another alias: it means something new."""
    changed = copy.deepcopy(run.config) | {"models": {"mock-model": {"aliases": [alias]}}} | more
    text: str = yaml.safe_dump(changed, sort_keys=False)
    return text


async def tag(client: httpx.AsyncClient) -> str:
    return (await client.get(PATH)).headers["etag"]


async def put(client: httpx.AsyncClient, text: str, if_match: str | None = None, **params: str) -> httpx.Response:
    headers = YAML | {"if-match": await tag(client) if if_match is None else if_match}
    return await client.put(PATH, content=text, headers=headers, params=params)


async def names(client: httpx.AsyncClient) -> list[str]:
    return [card["id"] for card in (await client.get("/v1/models")).json()["data"]]


async def versions(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    answer = await client.get(f"{PATH}/versions")
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def until_stored(client: httpx.AsyncClient) -> None:
    """The first start makes the schema."""
    async with asyncio.timeout(60):
        while (await client.get(f"{PATH}/versions")).json()["source"] != "database":  # noqa: ASYNC110 (another process's work)
            await asyncio.sleep(0.05)


class Unchanged:
    """What runs and what stands in the file, to be compared with what was."""

    def __init__(self, run: Running) -> None:
        self._run = run
        self._before = run.gateway.state, run.file.read_bytes(), sorted(run.file.parent.iterdir())

    def holds(self) -> bool:
        return self._before == (self._run.gateway.state, self._run.file.read_bytes(), sorted(self._run.file.parent.iterdir()))


async def test_what_runs_has_a_tag_and_a_version(own: Own) -> None:
    run, client = own
    answer = await client.get(PATH)
    assert answer.headers["etag"] == f'"{run.gateway.state.hash}"' == f'"{answer.json()["hash"]}"'
    assert answer.json()["version"] == 1


async def test_the_source_is_the_file_s_text(own: Own) -> None:
    run, client = own
    answer = await client.get(f"{PATH}/source")
    assert answer.content == run.file.read_bytes()
    assert answer.headers["content-type"] == "application/yaml"
    assert answer.headers["etag"] == await tag(client)


async def test_a_text_becomes_the_configuration(own: Own) -> None:
    """In the file, byte for byte, and in use, when the answer comes."""
    run, client = own
    run.file.chmod(0o640)
    before = await tag(client)
    text = f"# by hand, ä\n{with_alias(run, 'short')}"

    answer = await put(client, text)

    assert answer.status_code == 200, answer.text
    assert run.file.read_text() == text
    assert run.file.stat().st_mode & 0o777 == 0o640
    assert list(run.file.parent.iterdir()) == [run.file]
    assert await names(client) == ["mock-model", "short"]
    assert (await client.post(CHAT, json=question(model="short"))).status_code == 200
    told = answer.json()
    assert told["hash"] == run.gateway.state.hash
    assert answer.headers["etag"] == f'"{told["hash"]}"' == await tag(client) != before
    assert (told["version"], told["last_error"]) == (2, None)
    assert [(each["path"], each["severity"]) for each in told["warnings"]] == [("models.mock-model", "warning")]
    assert "+    - short\n" in told["diff"]


async def test_json_is_taken_too(own: Own) -> None:
    run, client = own
    body = copy.deepcopy(run.config) | {"models": {"mock-model": {"aliases": ["short"]}}}
    body["keys"][0]["tenant"] = "1e3"

    answer = await client.put(PATH, json=body, headers={"if-match": await tag(client)})

    assert answer.status_code == 200, answer.text
    assert json.loads(run.file.read_text()) == body
    assert await names(client) == ["mock-model", "short"]


@pytest.mark.parametrize("kind", [None, "application/yaml", "text/yaml", "text/plain; charset=utf-8", "APPLICATION/X-YAML"])
async def test_what_yaml_is_called(own: Own, kind: str | None) -> None:
    run, client = own
    headers = {"if-match": await tag(client)} | ({} if kind is None else {"content-type": kind})
    assert (await client.put(PATH, content=with_alias(run, "short"), headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("kind", "body", "status", "code"),
    [
        ("application/x-www-form-urlencoded", b"version: 1", 415, "caller_unsupported_media_type"),
        ("image/png", b"version: 1", 415, "caller_unsupported_media_type"),
        ("application/json", b"version: 1", 400, "caller_invalid_json"),
        ("application/json", b"[]", 400, "caller_invalid_json"),
        ("application/yaml", b"version: 1 # \xff", 400, "caller_invalid_value"),
        ("application/yaml", b"#" * 1_000_001, 413, "caller_body_too_large"),
    ],
)
async def test_what_is_no_text_of_a_configuration(own: Own, kind: str, body: bytes, status: int, code: str) -> None:
    run, client = own
    unchanged = Unchanged(run)
    answer = await client.put(PATH, content=body, headers={"if-match": await tag(client), "content-type": kind})
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert unchanged.holds()


@pytest.mark.parametrize(
    ("if_match", "status", "code"),
    [
        (None, 428, "caller_precondition_required"),
        ('"' + "0" * 64 + '"', 412, "caller_precondition_failed"),
        ("W/TAG", 412, "caller_precondition_failed"),
        ('""', 412, "caller_precondition_failed"),
        ("unquoted", 400, "caller_invalid_value"),
        ('"half', 400, "caller_invalid_value"),
        ("", 400, "caller_invalid_value"),
    ],
)
@pytest.mark.parametrize("how", ["put", "rollback"])
async def test_what_was_not_seen_is_not_overwritten(own: Own, how: str, if_match: str | None, status: int, code: str) -> None:
    run, client = own
    headers = {} if if_match is None else {"if-match": if_match.replace("TAG", await tag(client))}
    unchanged = Unchanged(run)
    if how == "put":
        answer = await client.put(PATH, content=with_alias(run, "short"), headers=headers | YAML)
    else:
        answer = await client.post(f"{PATH}/rollback", json={"version": 1}, headers=headers)
    assert (answer.status_code, error_of(answer)["code"], error_of(answer)["param"]) == (status, code, "If-Match")
    assert unchanged.holds()


@pytest.mark.parametrize("if_match", ["TAG", '"other", TAG', '"other" ,TAG', "*"])
async def test_what_was_seen_is_overwritten(own: Own, if_match: str) -> None:
    run, client = own
    assert (await put(client, with_alias(run, "short"), if_match.replace("TAG", await tag(client)))).status_code == 200
    assert await names(client) == ["mock-model", "short"]


async def test_of_two_who_saw_the_same_one_wins(own: Own) -> None:
    run, client = own
    seen = await tag(client)

    answers = await asyncio.gather(*(put(client, with_alias(run, f"alias-{n}"), seen) for n in range(6)))

    assert sorted(each.status_code for each in answers) == [200, 412, 412, 412, 412, 412]
    (winner,) = (n for n, each in enumerate(answers) if each.status_code == 200)
    assert await names(client) == ["mock-model", f"alias-{winner}"]
    assert f"alias-{winner}" in run.file.read_text()
    assert len(await versions(client)) == 2


async def test_every_problem_is_told_at_its_line_and_nothing_changes(own: Own) -> None:
    run, client = own
    unchanged = Unchanged(run)
    text = "version: 1\nbackends:\n  a:\n    url: ftp://x\n    key: " + NEW_KEY + "\n    models: {m: m}\nsever: {}\n"

    answer = await put(client, text)

    assert answer.status_code == 400
    told = answer.json()
    assert [(each["line"], each["column"], each["path"]) for each in told["problems"]] == [
        (4, 10, "backends.a.url"),
        (5, 10, "backends.a.key"),
        (7, 1, "sever"),
    ]
    assert {each["severity"] for each in told["problems"]} == {"error"}
    assert (told["error"]["code"], told["error"]["param"]) == ("caller_invalid_value", "backends.a.url")
    assert told["error"]["message"].startswith("The old configuration stays: 3 problems, the first: 4:10: backends.a.url: ")
    assert NEW_KEY not in answer.text
    assert unchanged.holds()
    assert (await client.get(PATH)).json()["last_error"] is None, "no reload failed: there was none"


async def test_what_parses_but_cannot_work_is_refused(own: Own) -> None:
    run, client = own
    unchanged = Unchanged(run)
    answer = await put(client, with_alias(run, "short", virtual_models={"v": {"policy": "nobody", "plans": {"p": {"model": "gone"}}}}))
    assert [each["path"] for each in answer.json()["problems"]] == ["virtual_models.v.policy", "virtual_models.v.plans.p.model"]
    assert unchanged.holds()


async def test_what_no_state_can_be_built_of_is_refused(own: Own) -> None:
    """A queue's weight is looked at late."""
    run, client = own
    unchanged = Unchanged(run)
    text = with_alias(run, "short", models={"mock-model": {"queue": {"slots": 1, "weights": {"shop": 0}}}})
    answer = await put(client, text)
    assert (answer.status_code, len(answer.json()["problems"])) == (400, 1)
    assert unchanged.holds()


async def test_a_new_secret_in_plain_text_is_refused(own: Own) -> None:
    run, client = own
    unchanged = Unchanged(run)
    answer = await put(client, with_alias(run, "short", server={"secret": NEW_KEY}))
    (problem,) = answer.json()["problems"]
    assert (answer.status_code, problem["path"]) == (400, "server.secret")
    assert "`secret_file`" in problem["message"]
    assert NEW_KEY not in answer.text
    assert unchanged.holds()


async def test_a_secret_by_reference_is_taken_and_shown_as_it_is_written(
    own: Own, mock: MockBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, client = own
    monkeypatch.setenv("MOCK_KEY", NEW_KEY)
    changed = copy.deepcopy(run.config)
    changed["backends"]["a"]["key"] = "${MOCK_KEY}"

    assert (await put(client, yaml.safe_dump(changed))).status_code == 200

    await client.post(CHAT, json=question())
    assert mock.requests_to(CHAT)[-1].header("authorization") == f"Bearer {NEW_KEY}"
    shown = await client.get(f"{PATH}/source")
    assert "key: ${MOCK_KEY}" in shown.text
    assert NEW_KEY not in shown.text
    assert (await client.get(f"{PATH}/versions/2")).json()["text"] == run.file.read_text()


async def test_secrets_that_are_there_are_masked_and_stay(mock: MockBackend, tmp_path: Path) -> None:
    """What is shown can be changed and given back."""
    config = config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}, "key": NEW_KEY}})
    async with running(config, tmp_path / "state") as run, run.client() as client:
        shown = (await client.get(f"{PATH}/source")).text
        assert '"key": "***"' in shown
        text = shown.replace('"models": {"mock-model": "mock-model"}', '"models": {"mock-model": "mock-model", "more": "mock-model"}')

        answer = await put(client, text)

        assert answer.status_code == 200, answer.text
        assert await names(client) == ["mock-model", "more"]
        await client.post(CHAT, json=question(model="more"))
        assert mock.requests_to(CHAT)[-1].header("authorization") == f"Bearer {NEW_KEY}"
        assert run.file.read_text() == text.replace("***", NEW_KEY)
        listed = [await client.get(f"{PATH}/versions/{n}") for n in (1, 2)]
        assert [each.json()["text"] for each in listed] == [None, None], "they hold a secret"
        refused = [
            await client.post(f"{PATH}/rollback", json={"version": 1}, headers={"if-match": "*"}),
            await client.get(f"{PATH}/diff", params={"from": "1"}),
        ]
        assert [each.status_code for each in refused] == [404, 404]
        assert "held secrets" in error_of(refused[0])["message"]
        said = [answer, *listed, *refused, await client.get(PATH), await client.get("/admin/audit")]
        assert NEW_KEY not in "".join(each.text for each in said)


async def test_looking_at_a_text_changes_nothing(own: Own) -> None:
    run, client = own
    unchanged = Unchanged(run)
    answer = await client.put(PATH, content=with_alias(run, "short"), headers=YAML, params={"dry_run": "true"})
    assert answer.status_code == 200
    told = answer.json()
    assert told["object"] == "config.check"
    assert told["running"] == run.gateway.state.hash != told["hash"]
    assert "+    - short\n" in told["diff"]
    assert [each["path"] for each in told["warnings"]] == ["models.mock-model"]
    bad = await put(client, "version: 2", dry_run="true")
    assert (bad.status_code, bad.json()["problems"][0]["path"]) == (400, "backends")
    assert (await put(client, with_alias(run, "short"), '"other"', dry_run="true")).status_code == 412
    assert unchanged.holds()
    assert len(await versions(client)) == 1
    assert (await put(client, with_alias(run, "short"))).json()["hash"] == told["hash"]


@pytest.mark.parametrize("query", ["dryrun=true", "dry_run=yes", "dry_run=true&dry_run=true"])
async def test_a_misspelt_wish_is_not_passed_over(own: Own, query: str) -> None:
    run, client = own
    unchanged = Unchanged(run)
    answer = await client.put(f"{PATH}?{query}", content=with_alias(run, "short"), headers=YAML | {"if-match": "*"})
    assert answer.status_code == 400
    assert error_of(answer)["param"] in ("dryrun", "dry_run")
    assert unchanged.holds()


@pytest.mark.parametrize("which", ["file", "folder"])
async def test_a_file_that_is_kept_elsewhere(own: Own, which: str) -> None:
    """A mounted ConfigMap, say: nobody is to write there."""
    run, client = own
    unchanged = Unchanged(run)
    target = run.file if which == "file" else run.file.parent
    mode = target.stat().st_mode
    target.chmod(mode & 0o555)
    try:
        answer = await put(client, with_alias(run, "short"))
    finally:
        target.chmod(mode)
    assert (answer.status_code, error_of(answer)["code"]) == (409, "gateway_read_only")
    assert str(run.file) in error_of(answer)["message"]
    assert "where it is kept" in error_of(answer)["message"]
    assert unchanged.holds()


async def test_a_file_that_was_changed_behind_the_gateway_is_not_overwritten(own: Own) -> None:
    run, client = own
    by_hand = with_alias(run, "by-hand")
    run.file.write_text(by_hand)

    answer = await put(client, with_alias(run, "short"))

    assert (answer.status_code, error_of(answer)["code"]) == (412, "caller_precondition_failed")
    assert "/admin/config/reload" in error_of(answer)["message"]
    assert run.file.read_text() == by_hand
    assert (await client.post(f"{PATH}/reload")).status_code == 200
    assert await names(client) == ["mock-model", "by-hand"]
    assert (await put(client, with_alias(run, "short"))).status_code == 200


async def test_a_broken_file_can_be_mended(own: Own) -> None:
    run, client = own
    run.file.write_text("version: [")
    assert (await client.post(f"{PATH}/reload")).status_code == 400
    assert (await put(client, with_alias(run, "short"))).status_code == 412

    answer = await put(client, with_alias(run, "short"), "*")

    assert (answer.status_code, answer.json()["last_error"]) == (200, None)
    assert await names(client) == ["mock-model", "short"]


@pytest.mark.parametrize("fault", [ConfigError([Problem(1, 1, "", "it vanished")], "x"), RuntimeError("a fault of our own")])
async def test_what_could_not_be_taken_up_after_all_is_taken_back(own: Own, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    """The file has its old text again, and what ran runs."""
    run, client = own
    unchanged = Unchanged(run)
    before = run.file.read_bytes()

    def broken(_file: Path) -> Loaded:
        assert run.file.read_bytes() != before, "it is written by now"
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr("tests.support.running.load_checked", broken)
        answer = await put(client, with_alias(run, "short"))

    told = (400, "gateway_reload_failed") if isinstance(fault, ConfigError) else (500, "gateway_internal")
    assert (answer.status_code, error_of(answer)["code"]) == told
    assert run.file.read_bytes() == before
    assert unchanged.holds()
    assert len(await versions(client)) == 1
    assert (await put(client, with_alias(run, "short"))).status_code == 200


async def test_every_configuration_that_ran_is_a_version(own: Own) -> None:
    """However it came: from the start, by a reload, by a signal, by hand."""
    run, client = own
    started = run.gateway.state.hash
    run.config["models"] = {"mock-model": {"aliases": ["reloaded"]}}
    assert (await client.post(f"{PATH}/reload")).json()["version"] == 2
    run.config["models"] = {"mock-model": {"aliases": ["signalled"]}}
    run.app.request_reload()
    await until(lambda: "signalled" in run.gateway.state.names, "the reload")
    await put(client, with_alias(run, "put"))
    run.file.write_text("# the same\n" + run.file.read_text())
    assert (await client.post(f"{PATH}/reload")).json()["version"] == 4, "it means the same"

    listed = await versions(client)

    assert [(each["version"], each["by_key"], each["running"]) for each in listed] == [
        (4, "test", True),
        (3, None, False),
        (2, None, False),
        (1, None, False),
    ]
    assert listed[-1]["hash"] == started
    assert listed[0]["hash"] == run.gateway.state.hash
    assert all(earlier["created"] <= later["created"] for later, earlier in pairwise(listed))
    assert (await client.get(f"{PATH}/versions")).json()["source"] == "memory"


async def test_versions_page_by_page(own: Own) -> None:
    run, client = own
    for n in range(4):
        await put(client, with_alias(run, f"alias-{n}"))
    got, cursor = [], None
    for _ in range(4):
        answer = (await client.get(f"{PATH}/versions", params={"limit": "2"} | ({} if cursor is None else {"cursor": cursor}))).json()
        got.append([each["version"] for each in answer["data"]])
        cursor = answer["next"]
        if cursor is None:
            break
    assert got == [[5, 4], [3, 2], [1]]


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "cursor=x", "cursor=-1", "limit=1&limit=2", "befor=3"])
async def test_pages_that_cannot_be(own: Own, query: str) -> None:
    answer = await own[1].get(f"{PATH}/versions?{query}")
    assert answer.status_code == 400
    assert error_of(answer)["param"] == query.partition("=")[0]


async def test_going_back(own: Own) -> None:
    run, client = own
    first = run.file.read_text()
    await put(client, with_alias(run, "short"))

    answer = await client.post(f"{PATH}/rollback", json={"version": 1}, headers={"if-match": await tag(client)})

    assert (answer.status_code, answer.json()["version"]) == (200, 1)
    assert run.file.read_text() == first
    assert await names(client) == ["mock-model"]
    assert [(each["version"], each["running"]) for each in await versions(client)] == [(2, False), (1, True)]
    assert "-    - short\n" in answer.json()["diff"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"version": 7}, 404, "version"),
        ({"version": 0}, 400, "version"),
        ({"version": "1"}, 400, "version"),
        ({"version": True}, 400, "version"),
        ({"version": 1.0}, 400, "version"),
        ({}, 400, "version"),
        ({"version": 1, "force": True}, 400, "force"),
        ([], 400, None),
    ],
)
async def test_nowhere_to_go_back_to(own: Own, body: object, status: int, param: str | None) -> None:
    run, client = own
    unchanged = Unchanged(run)
    answer = await client.post(f"{PATH}/rollback", json=body, headers={"if-match": await tag(client)})
    assert (answer.status_code, error_of(answer)["param"]) == (status, param)
    assert unchanged.holds()


async def test_one_version(own: Own) -> None:
    run, client = own
    first = run.file.read_text()
    await put(client, with_alias(run, "short"))
    answer = (await client.get(f"{PATH}/versions/1")).json()
    assert (answer["version"], answer["text"], answer["running"]) == (1, first, False)
    for number in ("3", "0", "x", "-1", "1" * 30):
        missing = await client.get(f"{PATH}/versions/{number}")
        assert (missing.status_code, error_of(missing)["code"]) == (404, "caller_not_found")


async def test_differences(own: Own) -> None:
    run, client = own
    for alias in ("one", "two"):
        await put(client, with_alias(run, alias))

    async def diff(query: str) -> list[str]:
        answer = await client.get(f"{PATH}/diff?{query}")
        assert answer.status_code == 200, answer.text
        return [line for line in answer.json()["diff"].splitlines() if line[0] in "+-"]

    assert await diff("from=2&to=3") == ["--- version 2", "+++ version 3", "-    - one", "+    - two"]
    assert await diff("from=3&to=2") == ["--- version 3", "+++ version 2", "-    - two", "+    - one"]
    assert await diff("from=2") == ["--- version 2", "+++ running", "-    - one", "+    - two"]
    assert await diff("from=3") == []
    for query, status in (("to=1", 400), ("from=9", 404), ("from=1&to=9", 404), ("from=x", 400)):
        assert (await client.get(f"{PATH}/diff?{query}")).status_code == status


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", PATH),
        ("GET", f"{PATH}/source"),
        ("GET", f"{PATH}/versions"),
        ("GET", f"{PATH}/versions/1"),
        ("GET", f"{PATH}/diff"),
        ("POST", f"{PATH}/rollback"),
        ("GET", "/admin/audit"),
    ],
)
async def test_it_takes_an_admin_s_key(own: Own, method: str, path: str) -> None:
    run, client = own
    text = with_alias(run, "short")
    run.config["keys"].append({"name": "user", "sha256": hashlib.sha256(b"sk-user").hexdigest(), "scopes": ["inference", "metrics"]})
    assert (await client.post(f"{PATH}/reload")).status_code == 200
    unchanged = Unchanged(run)
    for key, status, code in (("sk-user", 403, "caller_forbidden_scope"), ("sk-nobody", 401, "invalid_api_key")):
        async with run.client(key) as other:
            refused = await other.request(method, path, content=text, headers=YAML | {"if-match": "*"})
        assert (refused.status_code, error_of(refused)["code"]) == (status, code)
    assert unchanged.holds()


async def test_with_a_database_versions_outlast_the_process(mock: MockBackend, tmp_path: Path) -> None:
    config = config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}}, storage={"url": f"sqlite:///{tmp_path}/d.db"})
    async with running(config, tmp_path / "one") as run, run.client() as client:
        await until_stored(client)
        assert (await put(client, with_alias(run, "short"))).json()["version"] == 2
    config["models"] = {"mock-model": {"aliases": ["short"]}}
    async with running(config, tmp_path / "two") as run, run.client() as client:
        listed = (await client.get(f"{PATH}/versions")).json()
        assert listed["source"] == "database"
        assert [(each["version"], each["by_key"], each["running"]) for each in listed["data"]] == [(2, "test", True), (1, None, False)]
        assert (await client.get(PATH)).json()["version"] == 2
        answer = await client.post(f"{PATH}/rollback", json={"version": 1}, headers={"if-match": await tag(client)})
        assert (answer.status_code, answer.json()["version"]) == (200, 1)
        assert await names(client) == ["mock-model"]


async def test_the_documentation_s_commands(own: Own, tmp_path: Path) -> None:
    """As they are written, one after another, but for the key and the edit."""
    run, client = own
    page = (Path(__file__).parents[2] / "docs/admin.md").read_text()
    export, change, _policies, look = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert "ADMIN=" in export and "URL=" in export
    (edited,) = [line for line in change.splitlines() if line.startswith("#")]
    script = change.replace(edited, """sed -i 's/"mock-model": "mock-model"/&, "more": "mock-model"/' trilemma.yaml""") + look
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=tmp_path,
        env=dict(os.environ) | {"ADMIN": f"Authorization: Bearer {KEY}", "URL": run.url},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        said, _ = await process.communicate()
    assert process.returncode == 0
    checked, taken, audited = (json.loads(each) for each in said.decode().replace("}{", "}\n{").splitlines())
    assert checked["hash"] == taken["hash"] == run.gateway.state.hash != checked["running"]
    assert await names(client) == ["mock-model", "more"]
    assert [each["action"] for each in audited["data"]] == ["config.put"]
