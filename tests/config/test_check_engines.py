from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config.check_engines import check_engines
from gateway.config.load import parse

Write = Callable[..., Path]


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., list[str]]:
    """What is wrong with these backends, files being looked for in the test's folder."""

    def found(backends: str, more: str = "") -> list[str]:
        loaded = parse(f"version: 1\nbackends:\n{backends}{more}", {}, folder=tmp_path)
        problems = loaded.located(check_engines(loaded.config))
        return [str(problem).split(": ", 1)[1].replace(f"{tmp_path}/", "") for problem in problems]

    return found


Found = Callable[..., list[str]]
GIVEN = "  g: {url: 'http://g', models: {m: m}}\n"


@pytest.mark.parametrize("model", ["smollm2", "smollm2-weak", "x.gguf"])
def test_models_that_are_there(found: Found, write: Write, model: str) -> None:
    write("x.gguf", "GGUF")
    assert found(f"  a: {{launch: llama-server, model: {model}, models: {{m: m}}}}\n") == []


def test_models_that_are_not_there(found: Found, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    a = "  {}: {{launch: {}, model: {}, models: {{m: m}}}}\n".format
    assert found(a("a", "llama-server", "x.gguf") + a("b", "llama-server", "smolm2") + a("c", "llama-server", "folder")) == [
        "backends.a.model: there is no model file x.gguf; packaged models: smollm2, smollm2-weak",
        "backends.b.model: there is no model file smolm2; did you mean `smollm2`?",
        "backends.c.model: folder is not a file: llama-server loads one GGUF file",
    ]


def test_the_interpreter_of_an_engine(found: Found, write: Write) -> None:
    program = write("venv/bin/python", "#!/bin/sh\n")
    program.chmod(0o700)
    write("data/python", "no program")
    a = "  {}: {{launch: vllm, model: Qwen/Q, python: {}, models: {{m: m}}}}\n".format
    llama = "  e: {launch: llama-server, model: smollm2, python: also/no, models: {m: m}}\n"
    assert found(a("a", "venv/bin/python") + a("b", "no/python") + a("c", "data/python") + a("d", "no-such-program") + llama) == [
        "backends.b.python: there is no program no/python",
        "backends.c.python: there is no program data/python",
        "backends.d.python: there is no program no-such-program",
        "backends.e.python: there is no program also/no",
    ]


def test_vllm_has_to_be_somewhere(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)  # not to be found, wherever the tests run
    assert found("  a: {launch: vllm, model: Qwen/Q, models: {m: m}}\n") == [
        "backends.a.launch: vLLM is not installed beside the gateway: name its interpreter in `python`"
    ]


def test_engines_that_collide(found: Found) -> None:
    a = "  {}: {{launch: llama-server, model: smollm2, port: {}, models: {{m: m}}}}\n".format
    assert found(a("a", 9001) + a("b", 9001) + a("c/d", 9002) + a("C:d", 8080)) == [
        "backends.b.port: `a` has this port too",
        "backends.C:d: too like `c/d`: the engines' logs would share one file",
        "backends.C:d.port: the gateway itself listens on this port",
    ]


def test_keys_that_are_of_no_effect(found: Found) -> None:
    assert found("  a: {url: 'http://a', slots: 4, args: [-v], models: {m: m}}\n") == [
        "warning: backends.a.slots: has no effect with `url`: it is for engines that `launch` starts",
        "warning: backends.a.args: has no effect with `url`: it is for engines that `launch` starts",
    ]


def test_a_secret_that_everybody_can_read_is_a_warning(found: Found, write: Write) -> None:
    write("key", "k").chmod(0o644)
    write("own", "s")
    backends = "  a: {url: 'http://a', key_file: key, models: {m: m}}\n"
    assert found(backends, "server: {secret_file: own}\n") == ["warning: backends.a.key_file: every user of this machine can read key"]


def test_a_secret_that_went_away_since(tmp_path: Path, write: Write) -> None:
    path = write("key", "k")
    text = "version: 1\nbackends: {a: {url: 'http://a', key_file: key, models: {m: m}}}\n"
    config = parse(text, {}, folder=tmp_path).config
    path.unlink()
    assert [each.message for each in check_engines(config)] == [f"{path} cannot be read: no such file or directory"]
    path.mkdir()
    assert [each.message for each in check_engines(config)] == [f"{path} cannot be read: is a directory"]


@pytest.mark.parametrize("key", ["two words", "line\\nend", "schlüssel"])
def test_a_key_that_no_header_can_carry(found: Found, key: str) -> None:
    assert found(f'  a: {{url: "http://a", key: "{key}", models: {{m: m}}}}\n') == [
        "backends.a.key: the key cannot be sent in a header: it holds spaces, line ends or letters beyond ASCII"
    ]


def test_given_engines_are_not_looked_for(found: Found) -> None:
    assert found(GIVEN) == []
