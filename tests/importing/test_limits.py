"""Limits of keys and teams: who may use how much, and who is left out because a limit lets nothing through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.config.schema import Rules
from gateway.importing.dump import Dump, Record
from gateway.importing.report import Place
from tests.importing.conftest import Result, digest

Import = Callable[..., Result]
MODEL = "model_list: [{model_name: a, litellm_params: {model: openai/a, api_base: 'http://a:1/v1'}}]\n"
COLUMNS = ("models", "expires", "blocked", "team_id", "allowed_routes", "rpm_limit", "tpm_limit", "max_parallel_requests")
NOTHING: dict[str, Any] = dict.fromkeys(COLUMNS)


def of(litellm: Import, key: dict[str, Any], team: dict[str, Any] | None = None) -> Result:
    """One key `x`, of a team `t` where that is given."""
    row = NOTHING | {"token": digest("1"), "key_alias": "x", "team_id": None if team is None else "t"} | key
    teams = None if team is None else {"t": Record(Place("t", 1), {"team_id": "t", "models": []} | team)}
    return litellm(MODEL, Dump([Record(Place("k", 1), row)], teams))


@pytest.mark.parametrize(
    ("row", "rules"),
    [
        ({}, Rules()),
        ({"rpm_limit": 5}, Rules(rpm=5)),
        ({"rpm_limit": "600", "tpm_limit": "100000", "max_parallel_requests": "8"}, Rules(rpm=600, tpm=100_000, concurrency=8)),
        ({"rpm_limit": "", "tpm_limit": 1.0}, Rules(tpm=1)),
        (
            {"rpm_limit": 2**63 - 1, "tpm_limit": 2**63 - 1, "max_parallel_requests": 2**31 - 1},
            Rules(rpm=10**9, tpm=10**12, concurrency=10**6),
        ),
    ],
)
def test_a_key(litellm: Import, row: dict[str, Any], rules: Rules) -> None:
    result = of(litellm, row)
    assert result.keys["x"].limits == rules
    assert result.keys["master"].limits == Rules()
    assert (result.config.limits.key, result.config.limits.tenants) == (Rules(), {})
    assert result.entries == ()


def test_keys_of_a_team_share_its_limits(litellm: Import) -> None:
    teams = {
        "shop": Record(Place("t", 1), {"team_id": "shop", "models": [], "rpm_limit": 60, "tpm_limit": "200000"}),
        "free": Record(Place("t", 2), {"team_id": "free", "models": [], "rpm_limit": None}),
        "gone": Record(Place("t", 3), {"team_id": "gone", "models": [], "rpm_limit": 7}),  # nobody's
        "a: b # c": Record(Place("t", 5), {"team_id": "a: b # c", "models": [], "rpm_limit": 3}),
        "default": Record(Place("t", 4), {"team_id": "default", "models": [], "tpm_limit": 9}),
    }
    rows: list[dict[str, Any]] = [
        {"key_alias": "web", "team_id": "shop", "rpm_limit": 10},
        {"key_alias": "app", "team_id": "shop"},
        {"key_alias": "free", "team_id": "free"},
        {"key_alias": "odd", "team_id": "default"},
        {"key_alias": "none"},
        {"key_alias": "awkward", "team_id": "a: b # c"},
    ]
    keys = [Record(Place("k", n), NOTHING | {"token": digest(str(n))} | row) for n, row in enumerate(rows, 1)]
    result = litellm(MODEL, Dump(keys, teams))
    # A team that is called as Trilemma calls those without one does not bind the master key and `none`.
    assert result.config.limits.tenants == {"shop": Rules(rpm=60, tpm=200_000), "default-2": Rules(tpm=9), "a: b # c": Rules(rpm=3)}
    assert {name: key.tenant for name, key in result.keys.items()} == {
        "master": "default",
        "web": "shop",
        "app": "shop",
        "free": "free",
        "odd": "default-2",
        "none": "default",
        "awkward": "a: b # c",
    }
    assert (result.keys["web"].limits, result.keys["app"].limits) == (Rules(rpm=10), Rules())
    assert "\nlimits:\n  tenants:\n    shop: {rpm: 60, tpm: 200000}\n    default-2: {tpm: 9}\n" in result.text


@pytest.mark.parametrize(
    ("row", "team", "kind", "words"),
    [
        ({"rpm_limit": 0}, None, "unneeded", "lets no request through (`rpm_limit`)"),
        ({"tpm_limit": -1}, None, "unneeded", "lets no request through (`tpm_limit`)"),
        ({"max_parallel_requests": "0"}, None, "unneeded", "lets no request through (`max_parallel_requests`)"),
        ({"rpm_limit": 5}, {"tpm_limit": 0}, "unneeded", "belongs to a team that lets no request through (`tpm_limit`)"),
        ({"rpm_limit": "many"}, None, "lost", "a limit that cannot be read"),
        ({"rpm_limit": "nan"}, None, "lost", "a limit that cannot be read"),
        ({"tpm_limit": [5]}, None, "lost", "a limit that cannot be read"),
        ({"max_parallel_requests": True}, None, "lost", "a limit that cannot be read"),
        ({}, {"rpm_limit": "many"}, "lost", "a limit that cannot be read"),
    ],
)
def test_who_is_left_out(litellm: Import, row: dict[str, Any], team: dict[str, Any] | None, kind: Any, words: str) -> None:
    result = of(litellm, row, team)
    assert list(result.keys) == ["master"]
    assert result.config.limits.tenants == {}
    assert result.says(kind, "keys", "`x` ", words, "left out")


def test_what_has_no_equal(litellm: Import) -> None:
    result = of(
        litellm,
        {
            "rpm_limit": 5,
            "tpm_limit": 50,
            "tpd_limit": 1_000,
            "metadata": '{"rpm_limit_type": "dynamic", "tpm_limit_type": "guaranteed_throughput", "model_rpm_limit": {"a": 1}}',
        },
        {"max_parallel_requests": 3, "metadata": {"model_tpm_limit": {"a": 9}}},
    )
    assert result.keys["x"].limits == Rules(rpm=5, tpm=50)
    assert result.config.limits.tenants == {}
    assert result.settings("lost") == ["tpd_limit", "metadata.model_rpm_limit", "metadata.model_tpm_limit"]
    assert result.settings("changed") == ["rpm_limit"]
    assert result.says("todo", "max_parallel_requests", "`limits.tenants`")
    assert "# changed: rpm_limit: LiteLLM lets `x` pass it" in result.text
