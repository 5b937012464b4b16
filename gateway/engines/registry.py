"""The engines that have an adapter, by the name that `engine:` gives them in the configuration."""

from __future__ import annotations

from gateway.engines.base import Adapter
from gateway.engines.llamacpp import LlamaCppAdapter
from gateway.engines.openai import OpenAIAdapter
from gateway.engines.vllm import VLLMAdapter


def adapter(name: str) -> Adapter:
    """The adapter called `name`: vllm, llama.cpp or openai. Raises ValueError for any other."""
    known: tuple[Adapter, ...] = (VLLMAdapter(), LlamaCppAdapter(), OpenAIAdapter())
    for one in known:
        if one.name == name:
            return one
    raise ValueError(f"no engine is called {name!r}; there are: {', '.join(one.name for one in known)}")
