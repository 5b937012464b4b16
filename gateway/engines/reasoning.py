"""How engines are told how much to think, in a chat request's body.

vLLM        reasoning_effort, and chat_template_kwargs.enable_thinking for templates with a switch (Qwen3, DeepSeek V3.1, Granite)
llama.cpp   chat_template_kwargs alone: enable_thinking, reasoning_effort (gpt-oss)
others      reasoning_effort, OpenAI's own; none: not at all

A model whose template knows neither ignores them. Tokens of thought have a bound of their own with the first two: vLLM's
`thinking_token_budget` (where it was started with a reasoning parser or config; else it refuses) and llama.cpp's `thinking_budget_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import orjson

from policies.values.plan import Reasoning

_THINKING: Mapping[str, str] = MappingProxyType({"vllm": "thinking_token_budget", "llama.cpp": "thinking_budget_tokens"})


def reasoning_members(engine: str, effort: Reasoning) -> Mapping[str, bytes]:
    """Members of the body, JSON by name. engine: as Adapter.name says."""
    if engine == "openai":
        return {"reasoning_effort": orjson.dumps("none" if effort == "off" else effort)}
    switches: dict[str, object] = {"enable_thinking": effort != "off"}
    if effort == "off":
        return {"chat_template_kwargs": orjson.dumps(switches)}
    if engine == "vllm":
        return {"reasoning_effort": orjson.dumps(effort), "chat_template_kwargs": orjson.dumps(switches)}
    return {"chat_template_kwargs": orjson.dumps(switches | {"reasoning_effort": effort})}


def thinking_members(engine: str, tokens: int) -> Mapping[str, bytes]:
    """Members of the body that bound its thoughts; empty: the engine has no such bound."""
    name = _THINKING.get(engine)
    return {} if name is None else {name: b"%d" % tokens}
