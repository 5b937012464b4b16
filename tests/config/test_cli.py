from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config.cli import main
from gateway.config.load import load

Write = Callable[..., Path]
Output = pytest.CaptureFixture[str]


def test_a_good_file(write: Write, minimal: str, capsys: Output) -> None:
    path = write("c.yaml", minimal)
    assert main([str(path)], {}) == 0
    assert capsys.readouterr().out == f"{path}: good (hash {load(path, {}).hash[:12]})\n"


def test_problems_have_file_line_and_column(write: Write, minimal: str, capsys: Output) -> None:
    path = write("c.yaml", minimal + "server: {prot: 1, port: x}\n")
    assert main([str(path)], {}) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{path}:8:10: server.prot: unknown key; did you mean `port`?",
        f"{path}:8:25: server.port: should be a valid integer",
        f"{path}: not usable: 2 errors",
    ]


def test_what_cannot_work_is_found_too(write: Write, minimal: str, capsys: Output) -> None:
    path = write("c.yaml", minimal + "virtual_models: {v: {policy: fixd, plans: {p: {model: small}}}}\npolicies: {p: {type: fixed}}\n")
    assert main([str(path)], {}) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{path}:8:30: virtual_models.v.policy: there is no policy `fixd`; did you mean `fixed`?",
        f"{path}:9:12: warning: policies.p: no virtual model uses this policy",
        f"{path}: not usable: 1 error, 1 warning",
    ]


def test_warnings_alone_are_no_failure(write: Write, minimal: str, capsys: Output) -> None:
    path = write("c.yaml", minimal + "policies: {p: {type: fixed}}\n")
    assert main([str(path)], {}) == 0
    assert capsys.readouterr().out.endswith(": 1 warning\n")


def test_json_is_one_object(write: Write, minimal: str, capsys: Output) -> None:
    good, bad = write("good.yaml", minimal), write("bad.yaml", minimal + "sever: {}\n")
    assert main([str(good), "--json"], {}) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(good), "ok": True, "hash": load(good, {}).hash, "problems": [],
    }  # fmt: skip
    assert main([str(bad), "--json"], {}) == 1
    message = "unknown key; did you mean `server`?"
    assert json.loads(capsys.readouterr().out) == {
        "file": str(bad), "ok": False, "hash": None,
        "problems": [{"line": 8, "column": 1, "path": "sever", "message": message, "severity": "error"}],
    }  # fmt: skip


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "gone.yaml"
    assert main([str(path)], {}) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: cannot be read: no such file or directory",
        f"{path}: not usable: 1 error",
    ]
    assert main([str(path), "--json"], {}) == 2
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_the_environment_counts(write: Write, minimal: str, capsys: Output) -> None:
    path = write("c.yaml", minimal + "server:\n  port: ${PORT}\n")
    assert main([str(path)], {"PORT": "80"}) == 0
    assert main([str(path)], {}) == 1
    assert "environment variable PORT is not set" in capsys.readouterr().out


def test_a_wrong_command_line(capsys: Output) -> None:
    with pytest.raises(SystemExit) as caught:
        main([], {})
    assert caught.value.code == 2
    assert "trilemma check" in capsys.readouterr().err
