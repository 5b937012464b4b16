"""Whatever stands in a LiteLLM configuration, what is written can be served, or nothing is written."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.importing.document import Value
from gateway.importing.dump import Dump, Record
from gateway.importing.litellm import UnusableError
from gateway.importing.report import Place
from tests.importing.conftest import convert

NAMES = st.sampled_from(["a", "b", "c d", "ä", "gpt-4o", "openai/x:1", "*", "", "${X}", "x" * 250])
ODD = st.sampled_from([None, "", "0", "-1", "1e400", "yes", "many", "os.environ/N-1", [], {}, ["a"], {"a": "b"}, "1.5", "100000000000"])
PARAMS = st.fixed_dictionaries(
    {"model": st.sampled_from(["openai/m", "hosted_vllm/M/n", "ollama/l:7b", "gpt-4o", "azure/x", "m", "openai/", "lm_studio/${Y}"]) | ODD},
    optional={
        "api_base": st.sampled_from(["http://h:1/v1", "http://h:1", "https://u:p@i/x?y", "os.environ/BASE", "h:1", "${URL}"]) | ODD,
        "api_key": st.sampled_from(["sk-1", "sk-2", "none", "os.environ/KEY", "${KEY}"]) | ODD,
    }
    | dict.fromkeys(
        ["weight", "rpm", "timeout", "stream_timeout", "max_retries", "max_parallel_requests", "input_cost_per_token", "tags"], ODD
    ),
)
INFO = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ["max_tokens", "max_input_tokens", "mode", "supports_vision", "id", "access_groups", "allowed_fails", "cooldown_time", "blocked"],
        ODD,
    ),
)
ENTRIES = st.fixed_dictionaries({"model_name": NAMES | ODD, "litellm_params": PARAMS | ODD}, optional={"model_info": INFO | ODD}) | ODD
CHAINS = st.lists(st.dictionaries(NAMES, st.lists(NAMES | ODD, max_size=3) | ODD, max_size=2) | ODD, max_size=4) | ODD
ROUTER = st.fixed_dictionaries(
    {},
    optional={
        "fallbacks": CHAINS,
        "context_window_fallbacks": CHAINS,
        "default_fallbacks": st.lists(NAMES, max_size=2) | ODD,
        "model_group_alias": st.dictionaries(NAMES, NAMES | st.fixed_dictionaries({"model": NAMES, "hidden": ODD}) | ODD, max_size=3) | ODD,
    }
    | dict.fromkeys(["num_retries", "timeout", "allowed_fails", "cooldown_time", "routing_strategy", "redis_host"], ODD),
)
CONFIGS = st.fixed_dictionaries(
    {"model_list": st.lists(ENTRIES, max_size=6) | ODD},
    optional={
        "router_settings": ROUTER | ODD,
        "litellm_settings": ROUTER | ODD,
        "general_settings": st.fixed_dictionaries({"master_key": ODD}) | ODD,
    },
)
KEYS = st.lists(
    st.fixed_dictionaries(
        {"token": st.sampled_from(["1" * 64, "2" * 64, "A" * 64, "sk-x", "?"]) | ODD},
        optional={
            "key_alias": NAMES | ODD,
            "team_id": NAMES | ODD,
            "models": st.lists(NAMES, max_size=3) | ODD,
            "expires": st.sampled_from(["2020-01-01", "2099-01-01 00:00:00", "soon"]) | ODD,
            "max_budget": ODD,
            "rpm_limit": ODD | st.integers(),
            "tpm_limit": ODD | st.floats(),
            "max_parallel_requests": ODD | st.booleans(),
            "metadata": ODD,
            "allowed_routes": st.lists(NAMES, max_size=2) | ODD,
        },
    ),
    max_size=4,
)


def tree(data: Any, path: str = "") -> Value:
    """The data as a document would hold it."""
    place = Place("c.yaml", 1, 1, path)
    if isinstance(data, dict):
        return Value(place, {key: tree(value, f"{path}.{key}".lstrip(".")) for key, value in data.items()})
    if isinstance(data, list):
        return Value(place, tuple(tree(value, f"{path}[{index}]") for index, value in enumerate(data)))
    return Value(place, "" if data is None else data, plain=data is None)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CONFIGS, KEYS, st.dictionaries(NAMES, st.lists(NAMES, max_size=2), max_size=2) | st.none())
def test_what_is_written_can_be_served(config: dict[str, Any], keys: list[dict[str, Any]], teams: dict[str, list[str]] | None) -> None:
    records = [Record(Place("k", line), values) for line, values in enumerate(keys, 1)]
    known = None if teams is None else {name: Record(Place("t"), {"team_id": name, "models": models}) for name, models in teams.items()}
    try:
        result = convert(tree(config), Dump(records, known))
    except UnusableError as error:
        assert "no model of it can be mapped" in str(error)
    else:
        assert len({key.sha256 for key in result.config.keys}) == len(result.config.keys) >= 1
