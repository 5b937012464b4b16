"""Engines and shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.importing.conftest import Result

Import = Callable[..., Result]


def replicas(litellm: Import, params: Sequence[str]) -> Result:
    entries = "".join(
        f"  - {{model_name: a, litellm_params: {{model: openai/x, api_base: 'http://h{n}:1/v1', {each}}}}}\n"
        for n, each in enumerate(params)
    )
    return litellm(f"model_list:\n{entries}")


@pytest.mark.parametrize(
    ("params", "weights"),
    [
        (["", ""], [1, 1]),
        (["weight: 1", "weight: 3"], [1, 3]),
        (["weight: 4", "weight: 4"], [1, 1]),
        (["weight: 10, rpm: 1", "weight: 5, rpm: 100"], [2, 1]),
        (["rpm: 60", "rpm: 600", "rpm: 90"], [1, 10, 1.5]),
        (["tpm: 1000", "tpm: 3000"], [1, 3]),
        (["weight: 2", ""], [1, 1]),
        (["rpm: 60", "rpm: 60000000"], [0.001, 1_000]),
        (["weight: 0", "weight: 0"], [1, 1]),
    ],
)
def test_weights(litellm: Import, params: list[str], weights: list[float]) -> None:
    assert [backend.weight for backend in replicas(litellm, params).config.backends.values()] == weights


def test_a_weight_of_zero_gets_no_calls(litellm: Import) -> None:
    result = replicas(litellm, ["weight: 1", "weight: 0", "weight: 3", ""])
    assert [backend.enabled for backend in result.config.backends.values()] == [True, False, True, True]
    assert [backend.weight for backend in result.config.backends.values()] == [1, 1, 3, 1]
    assert result.says("changed", "litellm_params.weight", "`enabled: false`")
    assert result.says("changed", "litellm_params.weight", "count as the smallest")


def test_one_engine_with_many_models_is_one_backend(litellm: Import) -> None:
    result = litellm(
        "model_list:\n"
        "  - {model_name: a, litellm_params: {model: openai/x, api_base: 'http://h:1/v1', weight: 2}}\n"
        "  - {model_name: b, litellm_params: {model: openai/y, api_base: 'http://h:1/v1', rpm: 7}}\n"
        "  - {model_name: c, litellm_params: {model: openai/z, api_base: 'http://h:1/v1', api_key: os.environ/K}}\n"
        "  - {model_name: d, litellm_params: {model: openai/z, api_base: 'http://h:1/v1', timeout: 5}}\n"
        "  - {model_name: e, litellm_params: {model: hosted_vllm/z, api_base: 'http://h:1/v1'}}\n"
        "  - {model_name: a, litellm_params: {model: openai/x2, api_base: 'http://h:1/v1', weight: 1}}\n"
        "  - {model_name: a, litellm_params: {model: openai/x, api_base: 'http://i:1/v1', weight: 2}}\n"
        "  - {model_name: f, litellm_params: {model: openai/f, api_base: 'http://i:1/v1'}}\n"
    )
    assert list(result.served.values()) == [{"a": "x", "b": "y"}, {"a": "x2"}, {"a": "x", "f": "f"}, {"c": "z"}, {"d": "z"}, {"e": "z"}]
    assert list(result.served) == ["h", "h-2", "i", "h-3", "h-4", "h-5"]
    assert {backend.url: backend.weight for backend in result.config.backends.values() if "f" in backend.models} == {"http://i:1/v1": 2}
