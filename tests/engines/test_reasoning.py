"""How engines are told how much to think."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.engines.reasoning import reasoning_members, thinking_members
from policies.values.plan import Reasoning


@pytest.mark.parametrize(
    ("engine", "effort", "members"),
    [
        ("vllm", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("vllm", "low", {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": True}}),
        ("llama.cpp", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("llama.cpp", "high", {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "high"}}),
        ("openai", "off", {"reasoning_effort": "none"}),
        ("openai", "medium", {"reasoning_effort": "medium"}),
    ],
)
def test_each_engine_is_told_in_its_own_way(engine: str, effort: Reasoning, members: dict[str, Any]) -> None:
    assert {name: json.loads(value) for name, value in reasoning_members(engine, effort).items()} == members


@pytest.mark.parametrize(
    ("engine", "members"),
    [("vllm", {"thinking_token_budget": b"64"}), ("llama.cpp", {"thinking_budget_tokens": b"64"}), ("openai", {})],
)
def test_each_engine_has_its_own_bound_on_thoughts_or_none(engine: str, members: dict[str, bytes]) -> None:
    assert thinking_members(engine, 64) == members
