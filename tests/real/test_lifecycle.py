"""The life of `trilemma up` and `trilemma serve` with real engines: start, trouble, reload, end. Nothing they started outlives them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gateway.engines.packaged import model_path
from gateway.engines.spec import free_port
from tests.support.engine import STRONG, Started, trilemma, up
from tests.support.processes import alive, family, until
from tests.support.running import DIGEST, KEY


@pytest.fixture
def models(stack: Started) -> Path:
    """Where the weak model is already made."""
    return stack.output.parent / "state" / "models"


@contextmanager
def serve(folder: Path, config: str) -> Iterator[Started]:
    """`trilemma serve` over FOLDER/trilemma.yaml, where PORT stands for a free port and KEYS for the test's key."""
    port = free_port()
    write(folder, config.replace("PORT", str(port)))
    url = f"http://127.0.0.1:{port}"
    with trilemma("serve", "--config", folder / "trilemma.yaml", "--state", folder / "state", folder=folder, url=url, key=KEY) as started:
        yield started


def write(folder: Path, config: str) -> None:
    """Puts a configuration in place as editors do: a new file over the old one."""
    draft = folder / "trilemma.yaml.new"
    draft.write_text(config.replace("KEYS", f"[{{name: test, sha256: {DIGEST}, scopes: [inference, admin]}}]"))
    draft.replace(folder / "trilemma.yaml")


def engines(gateway: Started) -> set[int]:
    """Process ids of the managed engines."""
    return {backend["managed"]["pid"] for backend in gateway.backends().values()}


def models_of(gateway: Started) -> list[str]:
    """What /v1/models lists."""
    return [model["id"] for model in gateway.get("/v1/models").json()["data"]]


@pytest.mark.parametrize(("number", "group"), [(signal.SIGTERM, False), (signal.SIGINT, True)], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_ends_everything(tmp_path: Path, models: Path, number: int, group: bool) -> None:
    with up(tmp_path, models) as gateway:
        started = family(gateway.process.pid)
        assert len(engines(gateway)) == 2
        assert engines(gateway) < {process.pid for process in started}
        assert gateway.end(number, group=group) == 0
        assert not alive(started)
        assert "Traceback" not in gateway.told()


def test_the_death_of_the_gateway_ends_its_engines(tmp_path: Path, models: Path) -> None:
    with up(tmp_path, models) as gateway:
        assert len(engines(gateway)) == 2
        assert gateway.end(signal.SIGKILL) == -signal.SIGKILL  # fails when an engine is left


def test_a_second_one_on_the_same_port_says_so_and_starts_nothing(stack: Started, tmp_path: Path, models: Path) -> None:
    state, port = tmp_path / "state", stack.url.rpartition(":")[2]
    state.mkdir()
    (state / "models").symlink_to(models)
    with trilemma("up", "--state", state, "--port", port, folder=tmp_path, url=stack.url) as second:
        assert second.process.wait(60) == 1
        assert second.log.read_text() == f"trilemma: cannot listen on 127.0.0.1:{port}: Address already in use\n"
        assert second.output.read_text() == ""
    assert not (state / "logs").exists()  # no engine ever ran
    assert stack.answers("/ready")


def test_a_port_on_the_command_line_wins_over_the_configuration(stack: Started, tmp_path: Path, models: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "models").symlink_to(models)
    for name in ("key", "trilemma.yaml"):
        shutil.copy(models.parent / name, state)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with trilemma("up", "--state", state, "--port", str(port), folder=tmp_path, url=stack.url) as second:
            assert second.process.wait(60) == 1
            assert second.log.read_text() == f"trilemma: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    with trilemma("up", "--state", state, "--port", "70000", folder=tmp_path, url=stack.url) as third:
        assert third.process.wait(60) == 2
        assert "a port lies between 0 and 65535" in third.log.read_text()


OWN = """
version: 1
server: {port: PORT}
backends: {own: {launch: llama-server, model: "my models/own model.gguf", python: tools/gated, models: {mine: mine}}}
keys: KEYS
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """What OWN names: a user's model, and an interpreter that begins only while the returned file, its gate, is there."""
    gate, tool, file = tmp_path / "open", tmp_path / "tools" / "gated", tmp_path / "my models" / "own model.gguf"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nwhile [ ! -e "{gate}" ]; do sleep 0.05; done\nexec "{sys.executable}" "$@"\n')
    tool.chmod(0o755)
    file.parent.mkdir()
    file.symlink_to(model_path("smollm2", tmp_path))
    return gate


def test_it_answers_while_an_engine_still_loads(tmp_path: Path, own: Path) -> None:
    with serve(tmp_path, OWN) as gateway:
        gateway.until_answers("/health")
        answer = gateway.get("/ready")
        assert (answer.status_code, answer.json()["status"]) == (503, "waiting")
        assert answer.json()["reasons"] == ["no backend of `mine` has answered"]
        assert models_of(gateway) == ["mine"]
        refused = gateway.chat(model="mine")
        assert refused.status_code in (502, 503)
        assert refused.json()["error"]["code"] in ("backend_unreachable", "backend_unavailable")
        own.touch()
        gateway.until_answers("/ready")
        assert gateway.chat(model="mine").status_code == 200
        assert gateway.end() == 0


def test_a_user_s_own_file_is_served_and_outlives_its_engine_s_death(tmp_path: Path, own: Path) -> None:
    own.touch()
    with serve(tmp_path, OWN) as gateway:
        gateway.until_answers("/ready")
        answer = gateway.chat(model="mine").json()
        assert (answer["model"], answer["choices"][0]["finish_reason"]) == ("mine", "length")

        (engine,) = [process for process in family(gateway.process.pid) if process.pid in engines(gateway)]
        body = {"model": "mine", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 900, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, headers=gateway.headers, timeout=60) as stream:
            lines = (line for line in stream.iter_lines() if line)
            begun = [next(lines) for _ in range(3)]
            own.unlink()
            os.kill(engine.pid, signal.SIGKILL)
            events = [json.loads(line.removeprefix("data: ")) for line in [*begun, *lines]]
        assert events[-1]["error"]["code"] == "backend_stream_broken"
        assert not [event for event in events[:-1] if event["choices"][0]["finish_reason"]]

        until(lambda: not alive([engine]), "the engine is dead")
        meanwhile = gateway.chat(model="mine")
        assert meanwhile.status_code in (502, 503)
        assert meanwhile.json()["error"].keys() == {"message", "type", "param", "code"}
        assert meanwhile.json()["error"]["code"].startswith("backend_")
        assert gateway.get("/health").status_code == 200

        own.touch()
        until(lambda: gateway.chat(model="mine").status_code == 200, "the engine answers again", within_s=60, pause_s=0.3)
        gateway.until_answers("/ready")
        until(lambda: gateway.backends()["own"]["managed"]["state"] == "ready", "its supervisor knows")
        managed = gateway.backends()["own"]["managed"]
        assert managed["restarts"] == 1
        assert managed["pid"] != engine.pid
        assert gateway.end() == 0


def given(stack: Started, server: str, *aliases: str) -> str:
    """A configuration over an engine that already runs."""
    return f"""
version: 1
server: {server}
backends: {{given: {{url: "{stack.engine().url}/v1", engine: llama.cpp, models: {{small: {STRONG}}}}}}}
models: {{small: {{aliases: [{", ".join(aliases)}]}}}}
keys: KEYS
"""


def test_a_stream_that_runs_is_finished_before_the_end(stack: Started, tmp_path: Path) -> None:
    body = {"model": "small", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 40, "ignore_eos": True, "stream": True}
    with serve(tmp_path, given(stack, "{port: PORT}")) as gateway:
        gateway.until_answers("/ready")
        with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, headers=gateway.headers, timeout=60) as answer:
            lines = (line for line in answer.iter_lines() if line)
            first = next(lines)
            os.kill(gateway.process.pid, signal.SIGTERM)
            *chunks, done = lines
        assert done == "data: [DONE]"
        assert first.startswith("data: ")
        assert json.loads(chunks[-1].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        assert gateway.process.wait(60) == 0


def test_sighup_takes_up_the_file_and_a_broken_one_changes_nothing(stack: Started, tmp_path: Path) -> None:
    with serve(tmp_path, given(stack, "{port: PORT}", "before")) as gateway:
        gateway.until_answers("/ready")
        assert models_of(gateway) == ["small", "before"]
        server = f"{{port: {gateway.url.rpartition(':')[2]}}}"

        write(tmp_path, given(stack, server, "after"))
        os.kill(gateway.process.pid, signal.SIGHUP)
        until(lambda: models_of(gateway) == ["small", "after"], "the new alias is listed")
        assert gateway.chat(model="after").json()["model"] == STRONG
        assert gateway.chat(model="before").status_code == 404

        write(tmp_path, given(stack, server, "later").replace("backends", "backend"))
        os.kill(gateway.process.pid, signal.SIGHUP)
        until(lambda: gateway.get("/admin/config").json()["last_error"] is not None, "the failure is shown")
        told = " ".join(gateway.get("/admin/config").json()["last_error"])
        assert "did you mean `backends`" in told
        assert models_of(gateway) == ["small", "after"]
        assert gateway.chat(model="after").status_code == 200
        assert gateway.end() == 0


def test_an_edited_file_is_taken_up_by_itself_and_streams_go_on(stack: Started, tmp_path: Path) -> None:
    body = {"model": "before", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 900, "ignore_eos": True, "stream": True}
    with serve(tmp_path, given(stack, "{port: PORT, watch: true, grace_s: 1}", "before")) as gateway:
        gateway.until_answers("/ready")
        with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, headers=gateway.headers, timeout=60) as answer:
            lines = (line for line in answer.iter_lines() if line)
            assert next(lines).startswith("data: ")
            port = gateway.url.rpartition(":")[2]
            write(tmp_path, given(stack, f"{{port: {port}, watch: true, grace_s: 1}}", "after"))
            until(lambda: models_of(gateway) == ["small", "after"], "the new alias is listed")
            later = [json.loads(next(lines).removeprefix("data: ")) for _ in range(3)]
        assert [chunk["object"] for chunk in later] == ["chat.completion.chunk"] * 3
        assert gateway.end() == 0


def test_a_configuration_with_a_mistake_is_refused_with_its_place(tmp_path: Path) -> None:
    with serve(tmp_path, OWN.replace("launch", "lunch")) as gateway:
        assert gateway.process.wait(60) == 2
        told = gateway.log.read_text()
    assert "did you mean `launch`" in told
    assert "trilemma.yaml:4" in told
    assert "Traceback" not in told
