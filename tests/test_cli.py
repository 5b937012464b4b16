"""The command finds its commands, and says so when there is none."""

from __future__ import annotations

import importlib
from typing import NoReturn

import pytest

from gateway import __version__
from gateway.cli import COMMANDS, main


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"\n  {name} " in told for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"trilemma {__version__}\n"


@pytest.mark.parametrize("argv", [["serv"], ["--nothing"]])
def test_an_unknown_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"trilemma: there is no command `{argv[0]}`\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: trilemma {name}" in capsys.readouterr().out


def test_ctrl_c_before_a_command_handles_it_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_name: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    assert main(["serve"]) == 130
