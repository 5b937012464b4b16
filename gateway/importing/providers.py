"""The providers of LiteLLM: which of them speak OpenAI's API, so that a backend can reach them, and where they are.

    served(model, provider, has_base) -> Served     raises Unreachable, whose text says why

LiteLLM writes the provider before the model's name (`hosted_vllm/Qwen/Qwen3-8B`), or in `custom_llm_provider`, or
leaves it out for OpenAI's own models. Sources: its `get_llm_provider` and the transformation modules of its providers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from gateway.config.problems import shown
from gateway.importing.names import words

Engine = Literal["vllm", "llama.cpp", "openai"]


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider that speaks OpenAI's API. `url`: where, unless `api_base` says so; `url_variable`, `key_variable`: where
    LiteLLM looks when the configuration gives none. `differs`: what is not the same through Trilemma."""

    url: str | None = None
    url_variable: str | None = None
    key_variable: str | None = None
    engine: Engine | None = None
    differs: str = ""


@dataclass(frozen=True, slots=True)
class Served:
    """A model as its provider knows it."""

    provider: Provider
    provider_name: str
    model: str


class Unreachable(Exception):
    """A model that no backend can reach; the text says why."""


_OLLAMA = Provider(
    "http://localhost:11434", differs="asked by Ollama's OpenAI route (/v1), not by its own API: its own parameters do not apply"
)
_PLAIN = Provider()

REACHABLE: Final[Mapping[str, Provider]] = MappingProxyType(
    {
        "openai": Provider("https://api.openai.com/v1", key_variable="OPENAI_API_KEY"),
        "text-completion-openai": Provider(
            "https://api.openai.com/v1",
            key_variable="OPENAI_API_KEY",
            differs="chat requests are not turned into completions: clients ask /v1/completions themselves",
        ),
        "custom_openai": _PLAIN,
        "openai_like": _PLAIN,
        "aiohttp_openai": _PLAIN,
        "litellm_proxy": Provider(url_variable="LITELLM_PROXY_API_BASE", key_variable="LITELLM_PROXY_API_KEY"),
        "hosted_vllm": Provider(url_variable="HOSTED_VLLM_API_BASE", engine="vllm"),
        "llamafile": Provider("http://127.0.0.1:8080/v1"),
        "lm_studio": Provider(url_variable="LM_STUDIO_API_BASE"),
        "xinference": Provider("http://127.0.0.1:9997/v1"),
        "docker_model_runner": _PLAIN,
        "lemonade": Provider("http://localhost:8000/api/v1"),
        "ollama": _OLLAMA,
        "ollama_chat": _OLLAMA,
        "groq": Provider("https://api.groq.com/openai/v1", key_variable="GROQ_API_KEY"),
        "deepseek": Provider("https://api.deepseek.com/v1", key_variable="DEEPSEEK_API_KEY"),
        "mistral": Provider("https://api.mistral.ai/v1", key_variable="MISTRAL_API_KEY"),
        "openrouter": Provider("https://openrouter.ai/api/v1", key_variable="OPENROUTER_API_KEY"),
        "together_ai": Provider("https://api.together.ai/v1", key_variable="TOGETHERAI_API_KEY"),
        "xai": Provider("https://api.x.ai/v1", key_variable="XAI_API_KEY"),
        "cerebras": Provider("https://api.cerebras.ai/v1", key_variable="CEREBRAS_API_KEY"),
        "sambanova": Provider("https://api.sambanova.ai/v1", key_variable="SAMBANOVA_API_KEY"),
        "nvidia_nim": Provider("https://integrate.api.nvidia.com/v1", key_variable="NVIDIA_NIM_API_KEY"),
    }
)

_OWN = (
    "speaks a protocol of its own, and Trilemma relays OpenAI's: put a server in between that translates, or leave this model where it is"
)
_ROUTER = "is a router of LiteLLM's own: a virtual model of Trilemma does such things"

UNREACHABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "azure": "has paths, versions and a key header of its own, which Trilemma does not speak",
        "azure_ai": "has paths, versions and a key header of its own, which Trilemma does not speak",
        "azure_text": "has paths, versions and a key header of its own, which Trilemma does not speak",
        "huggingface": "is many kinds of endpoint: add it by hand as a backend if it answers /v1/chat/completions, as TGI does",
        "vllm": "runs vLLM inside LiteLLM's process: start it as a server and give its `url`, or let Trilemma run it with `launch: vllm`",
        "fireworks_ai": "renames models and parameters on the way: add it by hand as a backend, with the names its own API has",
        "auto_router": _ROUTER,
    }
    | dict.fromkeys(
        words(
            "anthropic anthropic_text bedrock bedrock_converse bedrock_mantle sagemaker sagemaker_chat vertex_ai "
            "vertex_ai_beta gemini cohere cohere_chat replicate watsonx watsonx_text databricks ai21 ai21_chat nlp_cloud "
            "petals oobabooga predibase clarifai cloudflare perplexity deepinfra jina_ai voyage triton oci snowflake "
            "github_copilot custom volcengine codestral text-completion-codestral friendliai anyscale baseten infinity "
            "deepgram elevenlabs assemblyai gigachat dashscope moonshot novita nebius hyperbolic"
        ),
        _OWN,
    )
)

# Names without a provider that LiteLLM knows whose they are.
_BARE: Final = (
    (
        re.compile(r"(gpt-|chatgpt-|o[134](-|$)|text-embedding-|ft:|davinci|babbage|omni-moderation|text-moderation|dall-e|whisper|tts-)"),
        "openai",
    ),
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"(gemini-|chat-bison|text-bison)"), "vertex_ai"),
    (re.compile(r"(command-|embed-)"), "cohere"),
)


def served(model: str, provider: str | None, has_base: bool) -> Served:
    """Who serves LiteLLM's `model`, and under which name there. Raises Unreachable."""
    if "*" in model:
        raise Unreachable("its provider's name is a pattern, for whatever models there are: name those that are wanted, one by one")
    name, rest = _split(model, provider)
    if name is None:
        raise Unreachable("no provider is named, and it is none of the models that are known without one")
    if name == "vllm" and has_base:
        name = "hosted_vllm"
    if name not in REACHABLE:
        reason = UNREACHABLE.get(name, "is none that this import knows: if it speaks OpenAI's API, add it by hand as a backend")
        raise Unreachable(f"provider `{shown(name)}` {reason}")
    found = REACHABLE[name]
    if not has_base and found.url is None and found.url_variable is None:
        raise Unreachable(f"provider `{name}` needs an `api_base`, and there is none")
    if not rest:
        raise Unreachable("a provider is named, but no model")
    return Served(found, name, rest)


def _split(model: str, provider: str | None) -> tuple[str | None, str]:
    """(provider, the model's name there)."""
    first, slash, rest = model.partition("/")
    if provider is not None:
        return provider, rest if slash and first == provider else model
    if slash:
        return first, rest
    return next((owner for pattern, owner in _BARE if pattern.match(model)), None), model
