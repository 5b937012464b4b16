"""Which models a key may ask for: never more than its row, and its team's, said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.importing.dump import Dump, Record
from gateway.importing.report import Place
from tests.importing.conftest import Result, digest

Import = Callable[..., Result]
CONFIG = (
    "model_list:\n"
    "  - {model_name: a, litellm_params: {model: openai/a, api_base: 'http://a:1/v1'}, model_info: {access_groups: [g]}}\n"
    "  - {model_name: b, litellm_params: {model: openai/b, api_base: 'http://b:1/v1'}, model_info: {access_groups: [g]}}\n"
    "  - {model_name: 'c d', litellm_params: {model: openai/c, api_base: 'http://c:1/v1'}}\n"
    "router_settings: {model_group_alias: {fast: a}}\n"
)


def row(table: str = "k", **values: Any) -> Record:
    return Record(Place(table, len(repr(values))), values)


def allowed(litellm: Import, models: list[str], team: list[str] | None = None) -> list[str]:
    keys = [row(token=digest("sk-x"), key_alias="x", models=models, team_id=None if team is None else "t")]
    teams = None if team is None else {"t": row("t", team_id="t", models=team)}
    return litellm(CONFIG, Dump(keys, teams)).keys["x"].models


@pytest.mark.parametrize(
    ("models", "team", "found"),
    [
        ([], None, ["*"]),
        (["a"], None, ["a", "fast"]),  # who may use a model may use its aliases
        (["fast"], None, ["fast"]),  # but not the other way round
        (["g"], None, ["a", "b", "fast"]),
        (["c d"], None, ["c-d"]),
        (["a", "nobody"], None, ["a", "fast"]),
        (["nobody"], None, []),
        (["all-proxy-models"], None, ["*"]),
        (["*"], None, ["*"]),
        (["no-default-models"], None, []),
        (["all-team-models"], None, []),
        (["c*"], None, ["c*"]),
        (["openai/*"], None, []),
        (["[abc]*"], None, []),
        ([], [], ["*"]),
        ([], ["a"], ["a", "fast"]),
        (["all-team-models"], ["b"], ["b"]),
        (["all-team-models"], [], ["*"]),
        (["a", "b"], ["b", "c d"], ["b"]),
        (["a", "b"], [], ["a", "fast", "b"]),
        (["a"], ["b"], []),
        (["*"], ["b"], ["b"]),
        (["a", "b"], ["a*"], ["a"]),
        (["a*"], ["a", "b"], ["a"]),
    ],
)
def test_allowed(litellm: Import, models: list[str], team: list[str] | None, found: list[str]) -> None:
    assert allowed(litellm, models, team) == found


def test_a_team_that_the_dump_does_not_have(litellm: Import) -> None:
    key = row(token=digest("sk-x"), key_alias="x", models=[], team_id="t")
    without_teams = litellm(CONFIG, Dump([key]))
    assert without_teams.keys["x"].models == ["*"]  # as its own row says
    assert without_teams.says("lost", "team_id", "LiteLLM_TeamTable", "are not known")
    without_this_team = litellm(CONFIG, Dump([key], {"u": row("t", team_id="u", models=[])}))
    assert without_this_team.keys["x"].models == []
    assert without_this_team.says("lost", "team_id", "no team `t`")
