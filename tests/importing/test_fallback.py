"""Stand-ins: their order, where they may be written, and circles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.importing.conftest import Result

Import = Callable[..., Result]
MODELS = "model_list:\n" + "".join(
    f"  - {{model_name: {name}, litellm_params: {{model: openai/{name}, api_base: 'http://{name}:1/v1'}}, model_info: {{id: id-{name}}}}}\n"
    for name in "abcd"
)


def chains(litellm: Import, router: str) -> dict[str, list[str]]:
    result = litellm(f"{MODELS}router_settings: {{{router}}}\n")
    return {name: model.fallbacks for name, model in result.config.models.items() if model.fallbacks}


@pytest.mark.parametrize(
    ("router", "found"),
    [
        ("fallbacks: [{a: [b, c]}, {b: [c]}]", {"a": ["b", "c"], "b": ["c"]}),
        ("fallbacks: {a: [b], b: c}", {"a": ["b"], "b": ["c"]}),
        ("fallbacks: [{a: [a, b, b]}]", {"a": ["b"]}),
        ("fallbacks: [{a: [id-c]}]", {"a": ["c"]}),
        ("fallbacks: [{a: [{model: b, temperature: 0}]}]", {"a": ["b"]}),
        ("fallbacks: [{a: [b]}, {'*': [d]}]", {"a": ["b"], "b": ["d"], "c": ["d"]}),
        ("default_fallbacks: [d]", {"a": ["d"], "b": ["d"], "c": ["d"]}),
        ("context_window_fallbacks: [{a: [b]}], fallbacks: [{a: [c]}]", {"a": ["c", "b"]}),
        ("context_window_fallbacks: [{'*': [d]}]", {"a": ["d"], "b": ["d"], "c": ["d"]}),
        # Circles: whichever link comes last would close it.
        ("fallbacks: [{a: [b]}, {b: [a]}]", {"a": ["b"]}),
        ("fallbacks: [{b: [a]}, {a: [b]}]", {"b": ["a"]}),
        ("fallbacks: [{a: [b]}, {b: [c]}, {c: [d, a]}]", {"a": ["b"], "b": ["c"], "c": ["d"]}),
        ("fallbacks: [{a: [b, c]}, {b: [a, c]}, {c: [a, b]}]", {"a": ["b", "c"], "b": ["c"]}),
        ("fallbacks: [{d: [a]}], default_fallbacks: [d]", {"d": ["a"], "b": ["d"], "c": ["d"]}),
        ("fallbacks: [a, [b]], default_fallbacks: null", {}),
        ("fallbacks: [{a: [nobody]}, {nobody: [a]}, {}]", {}),
    ],
)
def test_chains(litellm: Import, router: str, found: dict[str, list[str]]) -> None:
    assert chains(litellm, router) == found


def test_what_is_told(litellm: Import) -> None:
    result = litellm(f"{MODELS}router_settings: {{fallbacks: [{{a: [nobody, {{model: b, top_p: 1}}]}}, {{nobody: [a]}}, text]}}\n")
    assert result.says("lost", "fallbacks", "`nobody` is no model")
    assert result.says("lost", "fallbacks", "parameters of its own")
    assert result.says("lost", "fallbacks", "should be a list")
    circle = litellm(f"{MODELS}router_settings: {{fallbacks: [{{a: [b]}}, {{b: [c]}}, {{c: [a]}}]}}\n")
    assert circle.says("lost", "fallbacks", "(c -> a -> b -> c)")


def test_every_stand_in_gets_its_turn(litellm: Import) -> None:
    """Three replicas and no retries: one call, then one for each stand-in, in one number with what comes first."""
    more = "".join(f"  - {{model_name: a, litellm_params: {{model: openai/a, api_base: 'http://a{n}:1/v1'}}}}\n" for n in range(2))
    result = litellm(f"{MODELS}{more}router_settings: {{num_retries: 0, fallbacks: [{{a: [b, c]}}]}}\n")
    assert result.config.models["a"].attempts == 3 + 1 + 1
    assert result.config.models["b"].attempts == 1
