"""How engines are told how much to think, in a chat request's body.

vLLM        reasoning_effort, and chat_template_kwargs.enable_thinking for templates with a switch (Qwen3, DeepSeek V3.1, Granite)
llama.cpp   chat_template_kwargs alone: enable_thinking, reasoning_effort (gpt-oss)
others      reasoning_effort, OpenAI's own; none: not at all

A model whose template knows neither ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from policies.values.plan import Reasoning


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
