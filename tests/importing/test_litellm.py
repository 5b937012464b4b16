"""Configurations as people have them, each with what has to come of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.config.schema import Rules
from gateway.importing.document import load
from gateway.importing.dump import Dump, Record
from gateway.importing.litellm import UnusableError, imported
from gateway.importing.report import Place
from tests.importing.conftest import CONFIGS, NOW, Result, digest

Example = Callable[..., Result]
Import = Callable[..., Result]


def test_one_vllm(example: Example) -> None:
    result = example("small")

    (backend,) = result.config.backends.values()
    assert (backend.url, backend.engine, backend.key) == ("http://10.20.0.5:8000/v1", "vllm", None)
    assert backend.models == {"llama-3.1-8b": "meta-llama/Llama-3.1-8B-Instruct"}
    assert (backend.weight, backend.timeouts.first_byte_s, backend.breaker.trip_after) == (1, 300, 3)  # Trilemma's own
    assert result.variables == ("LITELLM_MASTER_KEY_SHA256",)
    assert result.keys["master"].scopes == ["inference", "admin", "metrics"]
    assert (result.settings("lost"), result.settings("changed"), result.settings("todo")) == ([], [], ["master_key"])
    assert 'printf %s "$LITELLM_MASTER_KEY" | sha256sum' in result.text


def test_the_master_key_of_the_environment_is_digested(example: Example) -> None:
    result = example("small", env={"LITELLM_MASTER_KEY": "sk-of-the-environment"})
    assert result.keys["master"].sha256 == digest("sk-of-the-environment")
    assert (result.variables, result.settings("todo")) == ((), [])


def test_replicas_with_weights_and_router_settings(example: Example) -> None:
    result = example("replicas")
    config = result.config

    qwen = {"qwen3-32b": "Qwen/Qwen3-32B"}
    assert result.served == {"gpu-a": qwen, "gpu-b": qwen, "gpu-c": qwen, "gpu-a-2": {"bge-m3": "BAAI/bge-m3"}}
    assert [backend.url for backend in config.backends.values()] == [
        "http://gpu-a.ml.internal:8000/v1",
        "http://gpu-b.ml.internal:8000/v1",
        "http://gpu-c.ml.internal:8000/v1",
        "http://gpu-a.ml.internal:8001/v1",
    ]
    assert [backend.weight for backend in config.backends.values()] == [1, 2, 10, 1]  # 60 : 120 : 600 requests a minute
    secret = config.backends["gpu-b"].key
    assert secret is not None
    assert secret.get_secret_value() == "sk-VLLM_KEY"
    assert config.backends["gpu-a-2"].key is None
    for backend in config.backends.values():
        assert (backend.breaker.trip_after, backend.breaker.first_s, backend.breaker.longest_s) == (3, 20, 20)
    assert (config.backends["gpu-a"].timeouts.first_byte_s, config.backends["gpu-a"].timeouts.idle_s) == (300, 45)
    assert (config.backends["gpu-a-2"].timeouts.first_byte_s, config.backends["gpu-a-2"].timeouts.idle_s) == (120, 120)

    model = config.models["qwen3-32b"]
    assert model.context == 16_384  # of 32768, 32768 and 16384
    assert (model.price.input, model.price.cached_input, model.price.output) == (0.3, 0.02, 0.6)
    assert model.capabilities == ["tools", "reasoning"]
    assert model.attempts == 2
    assert model.queue is not None
    assert model.queue.slots == 3 * 32
    assert config.models["bge-m3"].capabilities == ["embeddings"]
    assert config.server.max_body_bytes == 64 * 1024 * 1024
    assert result.keys["master"].sha256 == digest("sk-replicas-master")

    assert set(result.settings("lost")) == {"router_settings.retry_after", "litellm_settings.drop_params", "litellm_params.rpm"}
    assert set(result.settings("changed")) == {
        "router_settings.routing_strategy",
        "router_settings.enable_pre_call_checks",
        "stream_timeout",
        "model_info.max_input_tokens",
        "model_info.input_cost_per_token",
        "litellm_params.max_parallel_requests",
    }
    assert set(result.settings("unneeded")) == {f"router_settings.redis_{each}" for each in ("host", "password", "port")}


def test_fallbacks_in_a_circle(example: Example) -> None:
    result = example("circle")
    models = result.config.models

    assert {name: model.fallbacks for name, model in models.items()} == {
        "small": ["medium", "large"],  # its own, then for what is too long
        "medium": ["large"],
        "large": [],
        "spare": ["medium"],  # by default: `legacy` is an alias of `default`, and that of `medium`
        "vectors": [],
    }
    # LiteLLM retries each model `num_retries` times, so that is one call for each in the chain, here in one number.
    assert {name: model.attempts for name, model in models.items()} == {"small": 3, "medium": 2, "large": 1, "spare": 2, "vectors": 1}
    assert models["medium"].aliases == ["default", "legacy"]
    assert {name: model.context for name, model in models.items() if model.context} == {"small": 8_192, "medium": 32_768}
    assert result.served["large-1"] == result.served["large-2"] == {"large": "large-it"}

    assert result.says("lost", "fallbacks", "`small` does not stand in for `medium`", "(medium -> small -> medium)")
    assert result.says("lost", "fallbacks", "`medium` does not stand in for `large`", "(large -> medium -> large)")
    assert result.says("lost", "fallbacks", "`claude` is no model that was mapped")
    assert result.says("lost", "fallbacks", "`vectors`", "embeddings")
    assert result.says("lost", "model_group_alias", "`gone` leads to no model")
    assert result.says("lost", "model_group_alias", "`small` is a model itself")
    assert result.says("lost", "router_settings.content_policy_fallbacks")
    assert result.says("lost", "model_list", "`claude`: provider `anthropic`")
    assert result.says("changed", "model_group_alias", "`hidden`")
    assert result.says("changed", "context_window_fallbacks")


def test_ollama_openai_and_what_a_laptop_has(example: Example) -> None:
    result = example("laptop")
    config = result.config

    assert result.served == {
        "ollama": {"mistral": "mistral:7b", "llama3": "llama3.1:8b"},
        "openai": {"gpt-4o": "gpt-4o", "instruct": "gpt-3.5-turbo-instruct"},
        "openai-2": {"gpt-4o-mini": "gpt-4o-mini", "text-embedding-3-small": "text-embedding-3-small"},
        "lm-studio": {"studio": "qwen2.5-coder"},
        "groq": {"groq-llama": "llama-3.3-70b-versatile"},
        "llamafile": {"local-gguf": "mine"},
    }
    assert config.backends["ollama"].url == "http://localhost:11434"
    assert config.backends["openai"].url == "https://api.openai.com/v1"
    assert config.backends["groq"].url == "https://api.groq.com/openai/v1"
    assert result.variables == ("OPENAI_API_KEY", "GPT_4O_MINI_KEY", "LM_STUDIO_API_BASE", "GROQ_API_KEY", "TRILEMMA_KEY_SHA256")
    assert "key: ${OPENAI_API_KEY}" in result.text
    assert "key: ${GPT_4O_MINI_KEY}" in result.text  # one literal key, of two models
    assert "url: ${LM_STUDIO_API_BASE}" in result.text
    gpt = config.models["gpt-4o"]
    assert (gpt.context, gpt.capabilities, gpt.price.input, gpt.price.output) == (128_000, ["vision"], 2.5, 10)
    assert config.models["text-embedding-3-small"].capabilities == ["embeddings"]
    assert list(result.keys) == ["first"]

    for name, words in {
        "azure-gpt": "azure",
        "sonnet": "bedrock",
        "gemini": "vertex_ai",
        "*": "pattern",
        "in-process": "vllm",
        "odd provider": "frobnicator",
    }.items():
        assert result.says("lost", "model_list", f"`{name}`: ", words), name
    assert set(result.settings("lost")) == {
        "model_list",
        "litellm_params.temperature",
        "litellm_params.num_ctx",
        "litellm_params.organization",
        "litellm_settings.cache",
        "litellm_settings.cache_params",
        "litellm_settings.success_callback",
    }
    assert set(result.settings("todo")) == {"environment_variables", "model_info.max_tokens", "litellm_params.api_key", "keys"}
    assert result.says("todo", "litellm_params.api_key", "GPT_4O_MINI_KEY", "GPT_4O_MINI_KEY_FILE")


def test_a_company_with_includes_credentials_and_a_dump_of_its_keys(example: Example) -> None:
    result = example("enterprise", "copy.sql")
    config = result.config

    chat = {"chat-small": "chat-small-v3", "chat-large": "chat-large-v2", "code": "code-v1", "legal": "legal-lora"}
    assert result.served == {"inference": chat, "burst": {"chat-small": "chat-small-v3"}}
    assert (config.backends["inference"].weight, config.backends["burst"].weight) == (3, 1)
    assert config.backends["inference"].url == "https://inference.corp.example/v1"
    assert {name: model.fallbacks for name, model in config.models.items() if model.fallbacks} == {
        "chat-large": ["chat-small"],
        "code": ["chat-large"],
    }
    assert {name: model.attempts for name, model in config.models.items()} == {"chat-small": 4, "chat-large": 6, "code": 5, "legal": 4}
    assert {alias: name for name, model in config.models.items() for alias in model.aliases} == {
        "gpt-4": "chat-large",
        "gpt-3.5-turbo": "chat-small",
    }
    assert result.variables == ("CLUSTER_KEY", "BURST_API_BASE", "BURST_KEY", "LITELLM_MASTER_KEY_SHA256")

    assert {name: (key.sha256, key.tenant, key.models) for name, key in result.keys.items() if name != "master"} == {
        # The access group `chat` (both chat models), held to what its team may use (chat-small, code).
        "web-frontend": (digest("sk-web-7f3e"), "team-search", ["chat-small", "gpt-3.5-turbo"]),
        "nightly": (digest("sk-nightly-11"), "team-search", ["chat-small", "gpt-3.5-turbo", "code"]),
        "search-default": (digest("sk-search-22"), "team-search", ["chat-small", "gpt-3.5-turbo", "code"]),
        "contract review (legal)": (digest("sk-legal-33"), "team-legal", ["legal"]),
        f"key-{digest('sk-dev-44')[:8]}": (digest("sk-dev-44"), "default", ["*"]),
        "trial": (digest("sk-trial-66"), "default", ["code"]),
        "intern": (digest("sk-spent-bb"), "team-legal", ["chat-small", "gpt-3.5-turbo"]),
    }
    assert all(key.scopes == ["inference"] for name, key in result.keys.items() if name != "master")
    for name, why in {
        "contractor": "has expired",
        "leaver": "is blocked",
        f"key-{digest('sk-session-88')[:8]}": "LiteLLM's own pages",
        "ci-provisioning": "LiteLLM's own routes",
        "old-batch": "a team that is blocked",
    }.items():
        assert result.says("unneeded", "keys", f"`{name}`", why, "left out"), name
    assert result.says("lost", "keys", "`embedder`", "some paths only", "left out")
    assert not {digest("sk-deleted"), digest("sk-injected")} & {key.sha256 for key in config.keys}

    assert result.says("lost", "models", "`opus` is no model that was mapped")
    assert result.says("lost", "model_list", "`legal-drafts`: a team's own")
    assert result.says("todo", "max_budget", "`intern` has spent its budget")
    assert {name: key.expires for name, key in result.keys.items() if key.expires} == {"trial": "2099-01-31T00:00:00Z"}
    assert {name: key.limits.model_dump(exclude_none=True) for name, key in result.keys.items() if key.limits != Rules()} == {
        "nightly": {"rpm": 600, "tpm": 100_000},
        f"key-{digest('sk-dev-44')[:8]}": {"concurrency": 5},
    }
    assert config.limits.tenants == {}
    assert result.says("todo", "general_settings.max_parallel_requests", "limits: {key: {concurrency: N}}")
    assert result.says("todo", "models", "models of the database")
    assert {"max_budget", "guardrails"} <= set(result.settings("lost"))
    assert not {"rpm_limit", "tpm_limit", "max_parallel_requests", "expires"} & {entry.setting for entry in result.entries}
    assert {"general_settings.database_url", "litellm_settings.json_logs"} <= set(result.settings("unneeded"))


def test_odd_shapes(example: Example) -> None:
    result = example("odd")
    config = result.config

    assert result.served == {
        "numbers": {"numbers": "numbers-as-text"},
        "odd": {"spaces-brackets": "custom"},
        "odd-2": {"spaces-brackets-2": "other ${HOME} model"},
        "twice": {"twice": "twice"},
    }
    assert config.backends["numbers"].url == "http://numbers.example:9000/v1"
    assert config.backends["odd"].url == "https://odd.example/api"
    assert (config.backends["numbers"].timeouts.first_byte_s, config.backends["numbers"].breaker.trip_after) == (90, 1)
    numbers = config.models["numbers"]
    assert (numbers.context, numbers.attempts, numbers.aliases) == (4_096, 5, ["an-alias"])
    assert config.models["twice"].fallbacks == ["numbers"]
    assert result.variables == ("MY_KEY", "TRILEMMA_KEY_SHA256")

    for words in ("`no-params`: no `litellm_params`", "`no-address`: no `api_base`", "`off`: blocked", "`live`: ", "without `model_name`"):
        assert result.says("lost", "model_list", words), words
    assert result.says("lost", "router_settings.num_retries", "should be a number")
    assert result.says("lost", "model_info.input_cost_per_token", "should be a number")
    assert result.says("lost", "mystery_section", "there is no such setting")
    assert result.says("changed", "model_list", "`spaces & (brackets)` is called `spaces-brackets` now")
    assert result.says("changed", "model_list", "`spaces - [brackets]` is called `spaces-brackets-2` now")
    assert result.says("changed", "model_list", "`twice` stands twice")
    assert result.says("todo", "litellm_params.api_key", "MY-KEY is called MY_KEY")


def test_every_entry_has_the_place_where_it_stands(example: Example) -> None:
    result = example("enterprise", "copy.sql")
    lines = {path.name: path.read_text().splitlines() for path in CONFIGS.iterdir()}
    by_setting = {entry.setting: entry.places for entry in result.entries}
    (place,) = by_setting["litellm_params.tags"]
    assert place.path == "model_list[2].litellm_params.tags"
    assert "tags: [paid]" in lines["enterprise_models.yaml"][place.line - 1]
    (place,) = by_setting["general_settings.database_url"]
    assert lines["enterprise.yaml"][place.line - 1].lstrip().startswith("database_url:")


def test_a_configuration_of_two_hundred_engines_and_thousands_of_keys(litellm: Import) -> None:
    entries = "".join(
        f"  - {{model_name: m{n % 50}, litellm_params: {{model: hosted_vllm/x{n % 50}, api_base: 'http://n{n}:8000', rpm: {60 + n}}}}}\n"
        for n in range(200)
    )
    rows = [Record(Place("k", n), {"token": digest(f"sk-{n}"), "key_alias": f"key {n}", "models": [f"m{n % 50}"]}) for n in range(3_000)]
    result = litellm(f"model_list:\n{entries}", Dump(rows))
    assert len(result.config.backends) == 200
    assert len(result.config.keys) == 3_001
    assert result.keys["key 1234"].models == ["m34"]


def test_more_keys_than_one_file_may_hold_are_refused() -> None:
    rows = [Record(Place("k", n), {"token": digest(f"sk-{n}")}) for n in range(12_000)]
    with pytest.raises(UnusableError, match=r"more than one file may hold \(12000 keys"):
        imported(load(CONFIGS / "laptop.yaml"), Dump(rows), {}, NOW)


def test_nothing_that_can_be_mapped(litellm: Import) -> None:
    with pytest.raises(UnusableError, match="no model of it can be mapped") as caught:
        litellm("model_list: [{model_name: sonnet, litellm_params: {model: anthropic/claude-sonnet-4}}]")
    assert [entry.setting for entry in caught.value.entries] == ["model_list"]
