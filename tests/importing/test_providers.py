from __future__ import annotations

import pytest

from gateway.importing.providers import Unreachable, served


@pytest.mark.parametrize(
    ("model", "provider", "has_base", "name", "there"),
    [
        ("hosted_vllm/Qwen/Qwen3-8B", None, True, "hosted_vllm", "Qwen/Qwen3-8B"),
        ("openai/gpt-4o", None, False, "openai", "gpt-4o"),
        ("gpt-4o", None, False, "openai", "gpt-4o"),
        ("o3-mini", None, False, "openai", "o3-mini"),
        ("text-embedding-3-large", None, False, "openai", "text-embedding-3-large"),
        ("meta-llama/Llama-3", "openai", True, "openai", "meta-llama/Llama-3"),
        ("openai/gpt-4o", "openai", False, "openai", "gpt-4o"),
        ("vllm/opt", None, True, "hosted_vllm", "opt"),
        ("ollama_chat/llama3.1:8b", None, False, "ollama_chat", "llama3.1:8b"),
    ],
)
def test_served(model: str, provider: str | None, has_base: bool, name: str, there: str) -> None:
    found = served(model, provider, has_base)
    assert (found.provider_name, found.model) == (name, there)


@pytest.mark.parametrize(
    ("model", "provider", "has_base", "words"),
    [
        ("azure/gpt", None, True, "`azure`"),
        ("anthropic/claude", None, True, "`anthropic`"),
        ("claude-3-opus", None, False, "`anthropic`"),
        ("gemini-2.0-flash", None, False, "`vertex_ai`"),
        ("x", "bedrock", False, "`bedrock`"),
        ("frobnicator/x", None, True, "`frobnicator` is none that this import knows"),
        ("llama", None, True, "no provider is named"),
        ("openai/*", None, False, "pattern"),
        ("openai_like/x", None, False, "needs an `api_base`"),
        ("openai/", None, False, "no model"),
        ("vllm/opt", None, False, "inside LiteLLM's process"),
    ],
)
def test_unreachable(model: str, provider: str | None, has_base: bool, words: str) -> None:
    with pytest.raises(Unreachable) as caught:
        served(model, provider, has_base)
    assert words in str(caught.value)
