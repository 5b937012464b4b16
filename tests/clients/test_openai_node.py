"""The stream helper of the official Node SDK: it refuses a stream in which a role or a finish reason is missing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import STRONG, Started

Seen = dict[str, Any]
Ask = Callable[..., Seen]

NODE = Path(__file__).with_name("node")


@pytest.fixture
def ask(stack: Started, node_folder: Path) -> Ask:
    """Asks through the helper; what it saw. abort_after: chunks after which the caller leaves."""

    def asked(abort_after: int | None = None, **fields: Any) -> Seen:
        body = {"model": STRONG, "messages": [{"role": "user", "content": "What is the capital of Japan?"}], "max_tokens": 40} | fields
        told = json.dumps({"baseURL": f"{stack.url}/v1", "apiKey": stack.key, "body": body, "abortAfter": abort_after})
        ran = subprocess.run(["node", "ask.mjs", told], cwd=node_folder, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, ran.stderr
        seen: Seen = json.loads(ran.stdout)
        return seen

    return asked


def test_a_stream(ask: Ask, stack: Started) -> None:
    greedy = {"temperature": 0, "cache_prompt": False}
    seen = ask(**greedy)
    assert seen["error"] is None
    (choice,) = seen["completion"]["choices"]
    assert (choice["message"]["role"], choice["finish_reason"]) == ("assistant", "stop")
    whole = stack.chat(messages=[{"role": "user", "content": "What is the capital of Japan?"}], max_tokens=40, **greedy).json()
    assert choice["message"]["content"] == "".join(seen["deltas"]) == whole["choices"][0]["message"]["content"]
    assert (seen["completion"]["object"], seen["completion"]["model"]) == ("chat.completion", STRONG)


def test_a_stream_cut_by_its_length_with_usage(ask: Ask) -> None:
    seen = ask(max_tokens=3, stream_options={"include_usage": True})
    assert seen["error"] is None
    assert seen["completion"]["choices"][0]["finish_reason"] == "length"
    # totalUsage adds up the usage of all completions; asking for it twice would show
    assert seen["usage"]["completion_tokens"] == seen["completion"]["usage"]["completion_tokens"] == 3
    assert seen["usage"]["total_tokens"] == seen["usage"]["prompt_tokens"] + 3


def test_two_choices(ask: Ask) -> None:
    seen = ask(max_tokens=3, n=2)
    assert seen["error"] is None
    choices = seen["completion"]["choices"]
    assert sorted(choice["index"] for choice in choices) == [0, 1]
    assert {choice["message"]["role"] for choice in choices} == {"assistant"}
    assert all(choice["message"]["content"] for choice in choices)


def test_logprobs(ask: Ask) -> None:
    seen = ask(max_tokens=4, logprobs=True, top_logprobs=2)
    assert seen["error"] is None
    (choice,) = seen["completion"]["choices"]
    scored = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in scored) == choice["message"]["content"]
    assert {len(entry["top_logprobs"]) for entry in scored} == {2}


def test_a_schema(ask: Ask) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}, "certain": {"type": "boolean"}},
        "required": ["colour", "certain"],
        "additionalProperties": False,
    }
    seen = ask(response_format={"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": schema}})
    assert seen["error"] is None
    answer = json.loads(seen["completion"]["choices"][0]["message"]["content"])
    assert answer["colour"] in ("red", "green")
    assert isinstance(answer["certain"], bool)


def test_an_unknown_model(ask: Ask) -> None:
    error = ask(model="nothing")["error"]
    assert (error["name"], error["status"], error["code"], error["param"]) == ("NotFoundError", 404, "model_not_found", "model")


def test_an_aborted_stream_frees_the_engine(ask: Ask, stack: Started) -> None:
    engine = stack.engine()
    before = engine.metric("tokens_predicted_total")
    seen = ask(abort_after=3, max_tokens=900, ignore_eos=True)
    assert seen["error"]["name"] == "APIUserAbortError"
    engine.until_idle()
    assert engine.metric("tokens_predicted_total") - before < 900
    assert stack.backends()["strong"]["in_flight"] == 0


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((NODE / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
