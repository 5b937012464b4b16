"""curl: the very line that `trilemma up` prints, and a stream."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.support.engine import STRONG, WEAK, Started

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def shell(line: str) -> str:
    """What a line of a terminal prints."""
    ran = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def printed(stack: Started, start: str) -> str:
    """The line of the start-up message that begins so."""
    (line,) = [line.strip() for line in stack.output.read_text().splitlines() if line.strip().startswith(start)]
    return line


@needs_curl
def test_the_printed_line_answers(stack: Started) -> None:
    line = printed(stack, "curl ")
    assert f"-H 'Authorization: Bearer {stack.key}'" in line
    answer = json.loads(shell(line + " --silent --show-error"))
    assert (answer["object"], answer["model"]) == ("chat.completion", STRONG)
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] <= 32


@needs_curl
def test_a_stream_in_a_terminal(stack: Started) -> None:
    line = printed(stack, "curl ").replace('"max_tokens": 32', '"max_tokens": 5, "stream": true')
    assert '"stream": true' in line
    head, _, events = shell(line + " --silent --show-error --no-buffer --include").replace("\r\n", "\n").partition("\n\n")
    assert head.startswith("HTTP/1.1 200 OK\n")
    assert "content-type: text/event-stream" in head.splitlines()
    *chunks, done, rest = events.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    parsed = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
    assert parsed[0]["choices"][0]["delta"]["role"] == "assistant"
    assert parsed[-1]["choices"][0]["finish_reason"] == "length"
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in parsed)


@needs_curl
def test_an_error_in_a_terminal(stack: Started) -> None:
    line = printed(stack, "curl ").replace(stack.key, "sk-wrong") + " --silent --write-out '\\n%{http_code}'"
    body, _, status = shell(line).rpartition("\n")
    assert status == "401"
    assert json.loads(body)["error"]["code"] == "invalid_api_key"


def test_the_printed_lines_of_python_answer(stack: Started) -> None:
    told = stack.output.read_text()
    start, end = told.index("  from openai import OpenAI"), told.index("\nCtrl-C ends it")
    code = "\n".join(line.removeprefix("  ") for line in told[start:end].splitlines())
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()


def test_the_start_up_message_names_what_there_is(stack: Started) -> None:
    assert f"Trilemma is ready on {stack.url}" in stack.output.read_text()
    assert printed(stack, "key") == f"key     {stack.key}"
    assert printed(stack, "models").split("models  ")[1].startswith(f"{STRONG}, {WEAK} ")
    assert stack.key.replace("-", "").replace("_", "").isalnum()
    first = stack.get("/v1/models").json()["data"][0]
    assert first["id"] == STRONG
