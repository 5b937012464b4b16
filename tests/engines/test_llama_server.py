"""The runner over the real llama.cpp: chat and embeddings on one engine, slots, closed to others, an orderly end."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.engines import llama_server
from gateway.engines.spec import EngineSpec, free_port
from tests.engines.real_processes import chat, get, listens, llama, post

OPPOSITES = "hot cold,up down,fast slow,rich poor,love hate,first last,war peace,near far,buy sell,true false"
OPPOSITES += ",day night,black white,above below,high low"


def spec(name: str, model: str, *, embeddings: bool = False) -> EngineSpec:
    served = (f"the-{name}",)
    return EngineSpec(name=name, kind="llama-server", port=free_port(), model=model, served_names=served, slots=4, embeddings=embeddings)


@pytest.fixture(scope="module")
def engine(state: Path) -> Iterator[tuple[int, int]]:
    """Port and process id of a real engine with embeddings, started with no word on OpenMP in its environment."""
    wished = spec("strong", "smollm2", embeddings=True)
    bare = {name: value for name, value in os.environ.items() if name not in llama_server.OPENMP}
    with llama(wished, state, bare) as process:
        yield wished.port, process.pid


def test_it_chats_and_embeds_and_chats_again(engine: tuple[int, int]) -> None:
    port, _ = engine
    assert chat(port, "What is the capital of Japan?") == "The capital of Japan is Tokyo."
    status, answer = post(port, "/v1/embeddings", {"input": ["a cat", "a kitten", "a cat"]})
    assert status == 200
    cat, kitten, same = (item["embedding"] for item in answer["data"])
    assert len(cat) == 576
    assert math.isclose(math.fsum(x * x for x in kitten), 1.0, abs_tol=1e-4)
    assert cat == pytest.approx(same, abs=1e-3)
    assert cat != pytest.approx(kitten, abs=1e-3)
    assert chat(port, "What is the capital of Japan?") == "The capital of Japan is Tokyo."


def test_a_text_longer_than_the_usual_batch_is_embedded_whole(engine: tuple[int, int]) -> None:
    status, answer = post(engine[0], "/v1/embeddings", {"input": "hello world " * 270})
    assert status == 200, answer
    assert answer["usage"]["prompt_tokens"] > 512


def test_slots_metrics_and_the_name(engine: tuple[int, int]) -> None:
    slots = json.loads(get(engine[0], "/slots")[1])
    assert [slot["n_ctx"] for slot in slots] == [1_024] * 4
    assert b"llamacpp:requests_processing" in get(engine[0], "/metrics")[1]
    assert [model["id"] for model in json.loads(get(engine[0], "/v1/models")[1])["data"]] == ["the-strong"]


def test_it_listens_on_the_loopback_address_only_and_no_web_page_may_read_it(engine: tuple[int, int]) -> None:
    port, _ = engine
    assert listens(port, "127.0.0.1")
    assert not listens(port, "127.0.0.2")  # a server on all addresses would answer here
    assert get(port, "/v1/models")[0].get("Access-Control-Allow-Origin", "") == ""


def test_its_threads_wait_without_spinning(engine: tuple[int, int]) -> None:
    environment = Path(f"/proc/{engine[1]}/environ").read_bytes().split(b"\0")
    assert {b"OMP_WAIT_POLICY=passive", b"GOMP_SPINCOUNT=0"} <= set(environment)


def test_the_weak_model_is_right_less_often_and_its_engine_ends_in_order(engine: tuple[int, int], state: Path) -> None:
    pairs = [pair.split() for pair in OPPOSITES.split(",")]

    def right(port: int) -> int:
        def ask(pair: list[str]) -> bool:
            return pair[1] in chat(port, f"What is the opposite of {pair[0]}?", 12).lower()

        with ThreadPoolExecutor(4) as threads:
            return sum(threads.map(ask, pairs))

    wished = spec("weak", "smollm2-weak")
    with llama(wished, state, dict(os.environ)) as process:
        strong, weak = right(engine[0]), right(wished.port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert strong >= 8, strong
    assert weak <= strong - 3, (strong, weak)


def test_what_cannot_work_ends_with_the_code_of_a_wrong_configuration(state: Path) -> None:
    command = llama_server.command(spec("none", "/no/such.gguf"), state)
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 78
    assert ended.stderr.startswith("cannot start: there is no model file '/no/such.gguf'")


def test_a_file_that_is_no_model_is_told_without_a_traceback(state: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    command = llama_server.command(spec("broken", str(tmp_path / "broken.gguf")), state)
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("cannot start: ")
    assert "Traceback" not in ended.stderr
