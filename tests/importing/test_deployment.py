"""One entry of `model_list`: each parameter that a backend or a model has a word for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.importing.conftest import Result

Import = Callable[..., Result]


def one(litellm: Import, params: str = "", info: str = "", rest: str = "") -> Result:
    return litellm(
        f"model_list:\n  - model_name: a\n    litellm_params: {{model: hosted_vllm/x, api_base: 'http://gpu:8000/v1', {params}}}\n"
        f"    model_info: {{{info}}}\n{rest}"
    )


@pytest.mark.parametrize(
    ("params", "rest", "bounds"),
    [
        ("timeout: 60", "", (60, 60, 3_600)),
        ("stream_timeout: 20", "", (20, 20, 3_600)),
        ("timeout: 60, stream_timeout: 20", "", (60, 20, 3_600)),
        ("timeout: 7200", "", (7_200, 7_200, 7_200)),
        ("", "router_settings: {timeout: 90, stream_timeout: 30}", (90, 30, 3_600)),
        ("", "litellm_settings: {request_timeout: 90}", (90, 90, 3_600)),
        ("timeout: 10", "litellm_settings: {request_timeout: 90}", (10, 10, 3_600)),
        ("timeout: soon", "", (300, 120, 3_600)),
        ("timeout: os.environ/T", "", (300, 120, 3_600)),
    ],
)
def test_timeouts(litellm: Import, params: str, rest: str, bounds: tuple[float, float, float]) -> None:
    timeouts = one(litellm, params, rest=rest).config.backends["gpu"].timeouts
    assert (timeouts.first_byte_s, timeouts.idle_s, timeouts.total_s) == bounds


@pytest.mark.parametrize(
    ("info", "rest", "breaker"),
    [
        ("", "", (3, 1, 30)),
        ("", "router_settings: {allowed_fails: 0}", (1, 1, 30)),
        ("", "router_settings: {allowed_fails: 5, cooldown_time: 60}", (6, 60, 60)),
        ("allowed_fails: 1, cooldown_time: 7", "router_settings: {allowed_fails: 5, cooldown_time: 60}", (2, 7, 7)),
        ("allowed_fails: 5000", "", (1_000, 1, 30)),
    ],
)
def test_breaker(litellm: Import, info: str, rest: str, breaker: tuple[int, float, float]) -> None:
    found = one(litellm, info=info, rest=rest).config.backends["gpu"].breaker
    assert (found.trip_after, found.first_s, found.longest_s) == breaker


@pytest.mark.parametrize(
    ("params", "info", "price"),
    [
        ("input_cost_per_token: 0.0000001", "", (0.1, None, 0)),
        ("", "input_cost_per_token: 2.5e-06, output_cost_per_token: 1e-05, cache_read_input_token_cost: 1.25e-6", (2.5, 1.25, 10)),
        ("input_cost_per_token: 3e-6", "input_cost_per_token: 1e-6", (3, None, 0)),
        ("input_cost_per_token: 0, output_cost_per_token: '0.0'", "", (0, None, 0)),
        ("input_cost_per_token: -1", "", (0, None, 0)),
    ],
)
def test_prices_are_per_million(litellm: Import, params: str, info: str, price: tuple[float, float | None, float]) -> None:
    found = one(litellm, params, info).config.models["a"].price
    assert (found.input, found.cached_input, found.output) == price


def test_context_and_capabilities(litellm: Import) -> None:
    result = one(
        litellm, info="max_tokens: 4096, max_input_tokens: 8192, max_output_tokens: 1024, supports_vision: true, supports_reasoning: false"
    )
    assert (result.config.models["a"].context, result.config.models["a"].capabilities) == (8_192, ["vision"])
    assert result.settings("todo") == []
    assert result.settings("lost") == ["model_info.max_output_tokens"]


def test_retries(litellm: Import) -> None:
    assert one(litellm, "max_retries: 0").config.models["a"].attempts == 1
    assert one(litellm, "num_retries: 4, max_retries: 1").config.models["a"].attempts == 5
    assert one(litellm, rest="router_settings: {num_retries: 1}").config.models["a"].attempts == 2
    assert one(litellm, "num_retries: 100").config.models["a"].attempts == 20


def test_a_key_of_the_provider_s_own_variable_goes_only_where_it_belongs(litellm: Import) -> None:
    result = litellm(
        "model_list:\n"
        "  - {model_name: a, litellm_params: {model: openai/a}}\n"
        "  - {model_name: b, litellm_params: {model: openai/b, api_base: 'http://own:1/v1'}}\n"
        "  - {model_name: c, litellm_params: {model: openai/c, api_base: 'https://api.openai.com/v1/'}}\n"
    )
    keys = {name: None if backend.key is None else backend.key.get_secret_value() for name, backend in result.config.backends.items()}
    assert keys == {"openai": "sk-OPENAI_API_KEY", "own": None}
    assert result.served["openai"] == {"a": "a", "c": "c"}


def test_credentials_by_name(litellm: Import) -> None:
    result = litellm(
        "credential_list:\n"
        "  - {credential_name: x, credential_values: {api_key: os.environ/X_KEY, api_base: 'http://x:1/v1'}}\n"
        "  - {credential_name: broken}\n"
        "model_list:\n"
        "  - {model_name: a, litellm_params: {model: openai/a, litellm_credential_name: x}}\n"
        "  - {model_name: b, litellm_params: {model: openai/b, litellm_credential_name: x, api_base: 'http://y:1/v1'}}\n"
        "  - {model_name: c, litellm_params: {model: openai/c, litellm_credential_name: nobody}}\n"
    )
    assert {name: backend.url for name, backend in result.config.backends.items()} == {
        "x": "http://x:1/v1",
        "y": "http://y:1/v1",
        "openai": "https://api.openai.com/v1",
    }
    assert result.says("lost", "litellm_params.litellm_credential_name", "`nobody`")
    assert result.says("lost", "credential_list", "needs `credential_name`")


def test_a_model_list_that_is_none(litellm: Import) -> None:
    result = litellm(
        "model_list:\n  - {model_name: a, litellm_params: {model: openai/a}}\n  - [b]\n  - {model_name: c, litellm_params: [d]}\n"
    )
    assert result.says("lost", "model_list", "without `model_name`")
    assert result.says("lost", "model_list", "`c`: no `litellm_params`")


def test_shapes_that_are_told(litellm: Import) -> None:
    result = litellm(
        "model_list:\n"
        "  - {model_name: a, litellm_params: {model: openai/a}, model_info: [x], extra: 1}\n"
        "  - {model_name: b, litellm_params: {model: os.environ/MODEL}}\n"
        '  - {model_name: "\\e[31m", litellm_params: {model: "\\e[31m/x"}}\n'
    )
    assert result.says("lost", "model_info", "should be a mapping")
    assert result.says("lost", "litellm_params.extra")
    assert result.says("lost", "model_list", "`b`: the name of its model stands in a variable")
    assert not any("\x1b" in entry.message for entry in result.entries)
