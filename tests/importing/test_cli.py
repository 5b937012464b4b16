"""The command: what goes to stdout, stderr and the file, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli import main as trilemma
from gateway.config.cli import main as check
from gateway.importing.cli import main
from tests.importing.conftest import CONFIGS, DUMPS, digest, environment

Write = Callable[[str, str], Path]
Output = pytest.CaptureFixture[str]
CLEAN = (
    "model_list: [{model_name: a, litellm_params: {model: openai/a, api_base: 'http://a:1/v1'}}]\ngeneral_settings: {master_key: sk-m}\n"
)


def test_nothing_lost(write: Write, tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "trilemma.yaml"
    assert main(["litellm", str(write("c.yaml", CLEAN)), "--out", str(out)], {}) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"written to {out}: 0 lost, 0 changed, 0 for you to do\nsee what is missing: trilemma check {out}\n"
    assert check([str(out)], {}) == 0


def test_losses_are_a_table_on_stderr_and_the_file_can_be_served(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CONFIGS)
    out = tmp_path / "trilemma.yaml"
    assert main(["litellm", "enterprise.yaml", "--keys", str(DUMPS / "copy.sql"), "--out", str(out)], {}) == 1
    lines = capsys.readouterr().err.splitlines()
    titles = [line for line in lines if not line.startswith("  ")]
    assert [title.partition(" (")[0] for title in titles[:3]] == ["could not be mapped", "needs you", "not needed"]
    (row,) = [line for line in lines if "guardrails" in line]
    assert row.split()[:2] == ["enterprise.yaml:37", "guardrails"]
    assert lines[-2] == "variables to set: CLUSTER_KEY, BURST_API_BASE, BURST_KEY, LITELLM_MASTER_KEY_SHA256"
    assert check([str(out)], environment(out.read_text())) == 0
    capsys.readouterr()
    assert check([str(out)], {}) == 1
    assert "environment variable CLUSTER_KEY is not set" in capsys.readouterr().out


def test_without_out_the_file_goes_to_stdout(write: Write, capsys: Output) -> None:
    path = write("c.yaml", CLEAN)
    assert main(["litellm", str(path)], {}) == 0
    told = capsys.readouterr()
    assert told.out.startswith("# Made by `trilemma import litellm` from c.yaml.")
    assert told.err.startswith("written to stdout: ")


def test_json(write: Write, tmp_path: Path, capsys: Output) -> None:
    path = write("c.yaml", CLEAN + "guardrails: [{guardrail_name: x}]\n")
    assert main(["litellm", str(path), "--json"], {}) == 1
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert told.err == ""
    assert (found["file"], found["out"], found["written"], found["problems"], found["variables"]) == (str(path), None, True, [], [])
    assert found["counts"] == {"lost": 1, "changed": 0, "todo": 0, "unneeded": 0}
    assert found["entries"] == [
        {
            "kind": "lost",
            "setting": "guardrails",
            "message": "nothing looks into prompts or answers",
            "places": [{"file": str(path), "line": 3, "column": 1, "path": "guardrails"}],
        }
    ]
    out = tmp_path / "o.yaml"
    assert main(["litellm", str(path), "--json", "--out", str(out)], {}) == 1
    second = json.loads(capsys.readouterr().out)
    assert (second["out"], "config" in second) == (str(out), False)
    assert out.read_text() == found["config"]


def test_the_environment_gives_the_master_key(write: Write, capsys: Output) -> None:
    path = write("c.yaml", CLEAN.replace("sk-m", "os.environ/MASTER"))
    assert main(["litellm", str(path)], {"MASTER": "sk-env"}) == 0
    told = capsys.readouterr()
    assert digest("sk-env") in told.out
    assert "sk-env" not in told.out + told.err


@pytest.mark.parametrize("as_json", [False, True])
def test_what_ends_with_nothing_written(write: Write, tmp_path: Path, capsys: Output, as_json: bool) -> None:
    good, there = write("c.yaml", CLEAN), write("there.yaml", "mine")
    bad = write("bad.yaml", "model_list: [\n")
    none = write("none.yaml", "model_list: [{model_name: a, litellm_params: {model: anthropic/claude}}]\n")
    for argv, words in [
        ([str(bad)], f"{bad}:2:1: not YAML"),
        ([str(tmp_path / "gone.yaml")], "gone.yaml: cannot be read: no such file or directory"),
        ([str(none)], f"{none}: no model of it can be mapped"),
        ([str(good), "--keys", str(bad)], f"{bad}:1: neither a dump"),
        ([str(good), "--out", str(there)], f"{there}: is there already"),
        ([str(good), "--out", str(tmp_path / "no" / "such.yaml")], "cannot be written: no such file or directory"),
    ]:
        assert main(["litellm", *argv, *(["--json"] if as_json else [])], {}) == 2, argv
        told = capsys.readouterr()
        if as_json:
            found = json.loads(told.out)
            assert (found["written"], found["out"]) == (False, None)
            assert any(words in problem for problem in found["problems"]), argv
        else:
            assert told.out == ""
            assert words in told.err
            assert told.err.endswith("nothing was written\n")
    assert there.read_text() == "mine"


def test_what_could_not_be_mapped_is_told_even_when_nothing_is_left(write: Write, capsys: Output) -> None:
    assert main(["litellm", str(write("c.yaml", "model_list: [{model_name: a, litellm_params: {model: azure/x}}]\n"))], {}) == 2
    assert "`a`: provider `azure`" in capsys.readouterr().err


def test_a_wrong_command_line(capsys: Output) -> None:
    for argv in ([], ["other"], ["litellm"]):
        with pytest.raises(SystemExit) as caught:
            main(argv, {})
        assert caught.value.code == 2
    assert "usage: trilemma import" in capsys.readouterr().err


def test_it_is_a_command_of_trilemma(write: Write, capsys: Output) -> None:
    assert trilemma(["import", "litellm", str(write("c.yaml", CLEAN))]) == 0
    assert "version: 1" in capsys.readouterr().out
