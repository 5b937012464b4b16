"""Who is who: renamed models, aliases and where they lead."""

from __future__ import annotations

from collections.abc import Callable

from tests.importing.conftest import Result

Import = Callable[..., Result]
TWO = (
    "model_list:\n  - {model_name: 'my model', litellm_params: {model: openai/a, api_base: 'http://a:1/v1'}}\n"
    "  - {model_name: my-model, litellm_params: {model: openai/b, api_base: 'http://b:1/v1'}}\n"
)


def aliases(result: Result) -> dict[str, str]:
    return {alias: name for name, model in result.config.models.items() for alias in model.aliases}


def test_names_that_become_alike_stay_apart(litellm: Import) -> None:
    result = litellm(TWO)
    assert list(result.served.values()) == [{"my-model": "a"}, {"my-model-2": "b"}]
    assert result.says("changed", "model_list", "`my model` is called `my-model` now")
    assert result.says("changed", "model_list", "`my-model` is called `my-model-2` now")


def test_aliases(litellm: Import) -> None:
    result = litellm(
        f"{TWO}router_settings:\n"
        "  model_group_alias: {a: my model, b: a, c: b, loop: pool, pool: loop, d: {model: my-model, hidden: false}, e: [x]}\n"
        "litellm_settings: {model_alias_map: {old: my-model}}\n"
    )
    assert aliases(result) == {"a": "my-model", "b": "my-model", "c": "my-model", "d": "my-model-2", "old": "my-model-2"}
    for words in ("`loop` leads to no model", "`pool` leads to no model", "`e` leads to nothing"):
        assert result.says("lost", "model_group_alias", words), words


def test_an_alias_is_renamed_like_a_model(litellm: Import) -> None:
    result = litellm(f"{TWO}router_settings: {{model_group_alias: {{'the best!': my-model}}}}\n")
    assert aliases(result) == {"the-best": "my-model-2"}
