"""Keys: digests, names, tenants, who is left out, and the key that opens everything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.importing.dump import Dump, Record
from gateway.importing.report import Place
from tests.importing.conftest import Result, digest

Import = Callable[..., Result]
MODEL = "model_list: [{model_name: a, litellm_params: {model: openai/a, api_base: 'http://a:1/v1'}}]\n"


COLUMNS = ("models", "expires", "blocked", "team_id", "allowed_routes", "rpm_limit", "tpm_limit", "max_parallel_requests")
NOTHING: dict[str, Any] = dict.fromkeys(COLUMNS)


def with_keys(litellm: Import, *rows: dict[str, Any], config: str = MODEL) -> Result:
    return litellm(config, Dump([Record(Place("k", line), NOTHING | values) for line, values in enumerate(rows, 1)]))


def names(result: Result) -> list[str]:
    return [key.name for key in result.config.keys]


def test_names_and_tenants(litellm: Import) -> None:
    result = with_keys(
        litellm,
        {"token": digest("1"), "key_alias": "web", "team_id": "search"},
        {"token": digest("2"), "key_alias": "web"},
        {"token": digest("3"), "key_name": "sk-...x1Yz"},
        {"token": digest("4"), "key_alias": "sk-somebody-put-the-key-here"},
        {"token": digest("8"), "key_alias": "team-search-production-batch-ingestion-service-2"},
        {"token": digest("5"), "key_alias": "two\nlines " + "x" * 200, "team_id": "t" * 200},
        {"token": digest("6"), "key_alias": "${HOME}: # x", "team_id": "${USER}"},
        {"token": digest("7").upper(), "key_alias": "upper"},
    )
    assert names(result)[:5] == ["master", "web", "web-2", f"key-{digest('3')[:8]}", f"key-{digest('4')[:8]}"]
    assert names(result)[5] == "team-search-production-batch-ingestion-service-2"
    assert names(result)[6].startswith("two lines xxx")
    assert names(result)[7:] == ["${HOME}: # x", "upper"]
    assert [key.tenant for key in result.config.keys][1:3] == ["search", "default"]
    assert result.config.keys[7].tenant == "${USER}"
    assert all(1 <= len(key.name) <= 100 and len(key.tenant) <= 100 for key in result.config.keys)
    assert result.keys["upper"].sha256 == digest("7")


def test_who_is_left_out(litellm: Import) -> None:
    result = with_keys(
        litellm,
        {"token": digest("good"), "key_alias": "good", "blocked": False, "expires": "2026-12-01T12:00:01"},
        {"token": digest("1"), "key_alias": "expired", "expires": "2026-12-01T12:00:00"},
        {"token": digest("2"), "key_alias": "odd", "expires": "infinity"},
        {"token": digest("6"), "key_alias": "epoch", "expires": 1_700_000_000},
        {"token": digest("7"), "key_alias": "models", "models": "['a']"},
        {"token": digest("good"), "key_alias": "again"},
        {"token": "no digest", "key_alias": "broken"},
        {"token": None, "key_alias": "empty"},
        {"token": digest("3"), "key_alias": "routes", "allowed_routes": ["/key/info", "info_routes"]},
        {"token": digest("4"), "key_alias": "paths", "allowed_routes": ["/v1/chat/completions"]},
        {"token": digest("5"), "key_alias": "all paths", "allowed_routes": ["llm_api_routes", "info_routes"]},
    )
    assert names(result) == ["master", "good", "all paths"]
    for kind, words in [
        ("unneeded", "`expired` has expired"),
        ("lost", "`odd` has a list, a time or a limit that cannot be read"),
        ("lost", "`epoch` has a list, a time or a limit that cannot be read"),
        ("lost", "`models` has a list, a time or a limit that cannot be read"),
        ("unneeded", "`again` is there already"),
        ("unneeded", "`routes` opens LiteLLM's own routes only"),
        ("lost", "`paths` opens some paths only"),
    ]:
        assert result.says(kind, "keys", words), words  # type: ignore[arg-type]
    (entry,) = [entry for entry in result.entries if entry.setting == "token"]
    assert [place.line for place in entry.places] == [7, 8]


@pytest.mark.parametrize(
    ("stored", "written", "until"),
    [
        ("2099-01-31 00:00:00", "2099-01-31T00:00:00Z", datetime(2099, 1, 31, tzinfo=UTC)),
        ("2027-06-01 10:00:00.5", "2027-06-01T10:00:00.500000Z", datetime(2027, 6, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-12-01T13:00:01+01:00", "2026-12-01T12:00:01Z", datetime(2026, 12, 1, 12, 0, 1, tzinfo=UTC)),
        ("2030-01-01", "2030-01-01T00:00:00Z", datetime(2030, 1, 1, tzinfo=UTC)),  # its beginning, as LiteLLM means it
        (None, None, None),
    ],
)
def test_a_key_ends_when_it_did(litellm: Import, stored: str | None, written: str | None, until: datetime | None) -> None:
    result = with_keys(litellm, {"token": digest("1"), "key_alias": "x", "expires": stored})
    key = result.keys["x"]
    assert (key.expires, key.expires_at) == (written, None if until is None else until.timestamp())
    assert result.settings("todo") == []


def test_a_team_is_not_mixed_with_another_nor_with_keys_that_have_none(litellm: Import) -> None:
    result = with_keys(
        litellm,
        {"token": digest("1"), "key_alias": "none"},
        {"token": digest("2"), "key_alias": "named like none", "team_id": "default"},
        {"token": digest("3"), "key_alias": "again", "team_id": "default"},
        {"token": digest("4"), "key_alias": "one", "team_id": "a  b"},
        {"token": digest("5"), "key_alias": "other", "team_id": "a b"},
    )
    assert {name: key.tenant for name, key in result.keys.items()} == {
        "master": "default",
        "none": "default",
        "named like none": "default-2",
        "again": "default-2",
        "one": "a b",
        "other": "a b-2",
    }
    assert result.says("changed", "team_id", "`default` is the tenant `default-2` now")


def test_columns_that_the_dump_does_not_have(litellm: Import) -> None:
    result = litellm(MODEL, Dump([Record(Place("k", 1), {"token": digest("1"), "models": []})]))
    assert set(result.settings("lost")) == {
        "expires",
        "blocked",
        "team_id",
        "allowed_routes",
        "rpm_limit",
        "tpm_limit",
        "max_parallel_requests",
    }


def test_a_key_in_clear_is_digested(litellm: Import) -> None:
    assert with_keys(litellm, {"token": "sk-by-hand", "key_alias": "x"}).keys["x"].sha256 == digest("sk-by-hand")


def test_the_master_key_is_not_written_twice(litellm: Import) -> None:
    result = with_keys(litellm, {"token": digest("sk-master"), "key_alias": "master"})
    assert [(key.name, key.scopes) for key in result.config.keys] == [("master", ["inference", "admin", "metrics"])]


def test_what_a_row_says_beyond(litellm: Import) -> None:
    result = with_keys(
        litellm,
        {
            "token": digest("1"),
            "key_alias": "x",
            "max_budget": 10,
            "tpd_limit": 1_000_000,
            "budget_id": "b",
            "aliases": '{"x": "a"}',
            "config": {},
            "model_max_budget": {"a": 1},
        },
    )
    assert set(result.settings("lost")) == {"max_budget", "tpd_limit", "budget_id", "aliases", "model_max_budget"}


@pytest.mark.parametrize(
    ("general", "environment", "sha256", "variables"),
    [
        ("{master_key: sk-own}", {}, digest("sk-own"), ()),
        ("{master_key: os.environ/MINE}", {"MINE": "sk-env"}, digest("sk-env"), ()),
        ("{master_key: os.environ/MINE}", {}, digest("MINE_SHA256"), ("MINE_SHA256",)),
        ("{master_key: os.environ/MINE}\nenvironment_variables: {MINE: sk-file}", {"MINE": "sk-env"}, digest("sk-file"), ()),
        ("{}", {"LITELLM_MASTER_KEY": "sk-default"}, digest("sk-default"), ()),
        ("{}\nenvironment_variables: {LITELLM_MASTER_KEY: sk-file}", {}, digest("sk-file"), ()),
        ("{}", {}, digest("TRILEMMA_KEY_SHA256"), ("TRILEMMA_KEY_SHA256",)),
        ('{master_key: ""}', {}, digest("TRILEMMA_KEY_SHA256"), ("TRILEMMA_KEY_SHA256",)),
    ],
)
def test_the_master_key(litellm: Import, general: str, environment: dict[str, str], sha256: str, variables: tuple[str, ...]) -> None:
    result = litellm(f"{MODEL}general_settings: {general}\n", env=environment)
    assert [key.sha256 for key in result.config.keys] == [sha256]
    assert result.variables == variables


def test_a_master_key_that_is_none(litellm: Import) -> None:
    assert litellm(f"{MODEL}general_settings: {{master_key: [sk-x]}}\n").says("lost", "master_key", "should be text")


def test_the_master_key_of_all_examples(litellm: Import) -> None:
    assert litellm(f"{MODEL}general_settings: {{master_key: sk-1234}}\n").says("todo", "master_key", "everybody knows it")


def test_keys_of_a_dump_are_enough(litellm: Import) -> None:
    result = with_keys(litellm, {"token": digest("1"), "key_alias": "x"}, config=f"{MODEL}general_settings: {{}}\n")
    assert names(result) == ["x"]
