"""Record what real engines answer: record.py URL {vllm-tools,vllm-reasoning,vllm-limits,llamacpp} (see README.md).

Writes ENGINE/NAME.json (request, status, headers) and ENGINE/NAME.txt (the body's exact bytes) for every case.

A model of 135M parameters calls no tools unprompted, and its chat template shows it none. The calls are real all the
same: `required` and a named function constrain the decoding, and the other cases show worked examples in the history.
"""

from __future__ import annotations

import http.client
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
MODEL = "smollm2-135m"


def function(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    """A function tool; `strict` makes vLLM constrain the arguments too, not only the envelope around them."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "strict": True, "parameters": parameters},
    }


WEATHER = function(
    "get_weather",
    "Current weather of a city.",
    {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
)
ADD = function("add", "Sum of two integers.", {"a": {"type": "integer"}, "b": {"type": "integer"}})
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def call(name: str, **arguments: Any) -> str:
    """A tool call as the hermes parser reads it in the model's text."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def history(*turns: tuple[str, str], ask: str) -> list[dict[str, Any]]:
    """Worked examples, then the question."""
    messages: list[dict[str, Any]] = []
    for question, answer in turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return [*messages, {"role": "user", "content": ask}]


def weather(*cities: str) -> str:
    return "\n".join(call("get_weather", city=city, unit="celsius") for city in cities)


PARIS = [{"role": "user", "content": "What is the weather in Paris, in celsius?"}]
SUM = [{"role": "user", "content": "What is 3 + 4?"}]
TWO_CITIES = history(
    ("Weather in Rome and in Oslo?", weather("Rome", "Oslo")),
    ("Weather in Madrid and in Vienna?", weather("Madrid", "Vienna")),
    ask="Weather in Paris and in Berlin?",
)
TEXT_FIRST = history(
    ("What is 3 + 4?", "I will add them.\n" + call("add", a=3, b=4)),
    ("What is 8 + 1?", "I will add them.\n" + call("add", a=8, b=1)),
    ask="What is 5 + 6?",
)
ANSWERED = [
    {"role": "user", "content": "What is 5 + 6?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 5, "b": 6}'}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "11"},
]

STREAM = {"stream": True, "stream_options": {"include_usage": True}}
TOOL_CASES: dict[str, dict[str, Any]] = {
    "required_1": {"messages": PARIS, "tools": [WEATHER], "tool_choice": "required"},
    "required_2": {"messages": SUM, "tools": [WEATHER, ADD], "tool_choice": "required"},
    "named": {"messages": PARIS, "tools": [WEATHER, ADD], "tool_choice": NAMED},
    "parallel": {"messages": TWO_CITIES, "tools": [WEATHER, ADD], "tool_choice": "auto", "parallel_tool_calls": True},
    "parallel_off": {"messages": TWO_CITIES, "tools": [WEATHER, ADD], "parallel_tool_calls": False},
    "text_then_call": {"messages": TEXT_FIRST, "tools": [WEATHER, ADD]},
    "text_then_call_n2": {"messages": TEXT_FIRST, "tools": [ADD], "n": 2, "temperature": 0.8, "seed": 1},
    "choice_none": {"messages": TEXT_FIRST, "tools": [ADD], "tool_choice": "none"},
    "cut_by_length": {"messages": PARIS, "tools": [WEATHER], "tool_choice": "required", "max_tokens": 24},
    "result_in_history": {"messages": ANSWERED, "tools": [ADD], "max_tokens": 24},
}

THOUGHT = "Here is my thought process: {}\nHere is my response: {}"
PUZZLE = history(
    ("What is 3 + 4?", THOUGHT.format("I add 3 and 4 and get 7.", "The answer is 7.")),
    ("What is 8 + 1?", THOUGHT.format("I add 8 and 1 and get 9.", "The answer is 9.")),
    ask="What is 2 + 3?",
)
REASONING_CASES: dict[str, dict[str, Any]] = {
    "both": {"messages": PUZZLE},
    "cut_by_length": {"messages": PUZZLE, "max_tokens": 12},
    "answer_only": {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 12},
}


CAPITAL = [504, 3575, 282, 7158, 314]  # The capital of Italy is
ROME, END = 7268, 2
NORTH, PART = [30158, 241], 16736  # the character for north, and a token of two of the next one's three bytes
BEGUN = [{"role": "user", "content": "What is 7 + 5?"}, {"role": "assistant", "content": "The sum of 7 and 5 is"}]


def forced(prompt: list[int], token: int | str) -> dict[str, Any]:
    """A request whose only possible token is `token`; its score is the model's own."""
    return {"prompt": prompt, "max_tokens": 1, "logit_bias": [[token, 1000.0]], "logprobs": 1, "cache_prompt": True}


LLAMACPP_CASES: dict[str, dict[str, Any]] = {
    "score_token": forced(CAPITAL, ROME),
    "score_end_token": forced([*CAPITAL, ROME], END),
    "score_part_of_character": forced(NORTH, PART),
    "score_listed": forced(NORTH, "a") | {"logprobs": 300},
    "continue": {"messages": BEGUN, "max_tokens": 12},
    "continue_stream": {"messages": BEGUN, "max_tokens": 12} | STREAM,
    "two_assistants": {"messages": [*BEGUN, BEGUN[-1]], "max_tokens": 4},
    "n3": {"messages": BEGUN[:1], "max_tokens": 5, "temperature": 0.9, "seed": 1, "n": 3},
    "n3_stream": {"messages": BEGUN[:1], "max_tokens": 5, "temperature": 0.9, "seed": 1, "n": 3} | STREAM,
    "n_over_slots": {"messages": BEGUN[:1], "max_tokens": 5, "n": 5},
}


LIMIT_CASES: dict[str, dict[str, Any]] = {
    "max_tokens_over_context": {"messages": SUM, "max_tokens": 5000},
    "prompt_and_max_tokens_over_context": {"messages": SUM, "max_tokens": 2040},
}


def record(url: str, folder: str, name: str, body: dict[str, Any]) -> None:
    """Send one request and write what was sent and what came, byte for byte."""
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)
    connection.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
    answer = connection.getresponse()
    received = answer.read()
    connection.close()
    about = {
        "request": {"method": "POST", "path": path, "body": body},
        "status": answer.status,
        "headers": dict(answer.getheaders()),
        "response_text_file": f"{name}.txt",
    }
    (HERE / folder / f"{name}.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    (HERE / folder / f"{name}.txt").write_bytes(received)
    print(folder, name, answer.status, len(received), "bytes")


def main() -> None:
    url, which = sys.argv[1:]
    if which == "llamacpp":
        for case, body in LLAMACPP_CASES.items():
            record(url, which, case, {"model": MODEL, "temperature": 0} | body)
        return
    if which == "vllm-limits":
        for case, body in LIMIT_CASES.items():
            record(url, "vllm", case, {"model": MODEL, "temperature": 0} | body)
        return
    cases, prefix = {"vllm-tools": (TOOL_CASES, "tool"), "vllm-reasoning": (REASONING_CASES, "reasoning")}[which]
    for case, body in cases.items():
        plain = {"model": MODEL, "max_tokens": 120, "temperature": 0} | body
        record(url, "vllm", f"{prefix}_{case}", plain)
        record(url, "vllm", f"{prefix}_{case}_stream", plain | STREAM)


if __name__ == "__main__":
    main()
