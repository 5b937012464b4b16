"""Where replicas of a model differ, the careful reading holds."""

from __future__ import annotations

from collections.abc import Callable

from tests.importing.conftest import Result

Import = Callable[..., Result]


def pair(litellm: Import, first: str, second: str, params: tuple[str, str] = ("", "")) -> Result:
    return litellm(
        "model_list:\n"
        f"  - {{model_name: a, litellm_params: {{model: openai/x, api_base: 'http://h:1/v1', {params[0]}}}, model_info: {{{first}}}}}\n"
        f"  - {{model_name: a, litellm_params: {{model: openai/x, api_base: 'http://i:1/v1', {params[1]}}}, model_info: {{{second}}}}}\n"
    )


def test_context_price_and_capabilities(litellm: Import) -> None:
    result = pair(
        litellm,
        "max_input_tokens: 8192, input_cost_per_token: 1e-6, supports_vision: true, supports_function_calling: true",
        "max_input_tokens: 4096, output_cost_per_token: 2e-6, input_cost_per_token: 3e-6, supports_vision: false",
    )
    model = result.config.models["a"]
    assert (model.context, model.price.input, model.price.output, model.capabilities) == (4_096, 3, 2, ["tools"])
    assert set(result.settings("changed")) == {"model_info.max_input_tokens", "model_info.input_cost_per_token"}


def test_calls_at_once(litellm: Import) -> None:
    both = pair(litellm, "", "", ("max_parallel_requests: 4", "max_parallel_requests: 6")).config.models["a"].queue
    assert both is not None
    assert both.slots == 10
    one = pair(litellm, "", "", ("max_parallel_requests: 4", ""))
    assert "a" not in one.config.models
    assert one.says("lost", "litellm_params.max_parallel_requests", "only some replicas")
    general = litellm(
        "model_list: [{model_name: a, litellm_params: {model: openai/x, api_base: 'http://h:1/v1'}}]\n"
        "router_settings: {default_max_parallel_requests: 8}\n"
    ).config.models["a"]
    assert general.queue is not None
    assert general.queue.slots == 8


def test_what_is_as_by_default_is_not_written(litellm: Import) -> None:
    assert pair(litellm, "", "").config.models == {}
