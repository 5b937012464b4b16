from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

from gateway.config.schema import Logs
from gateway.telemetry.logs import LogOutput
from gateway.telemetry.redaction import Redactor

log = logging.getLogger("trilemma.test")


class Output:
    """The log of this test, as it would stand on stderr."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.redactor = Redactor()
        self.output = LogOutput(self.redactor, stream=self.stream)
        self.handler = self.output._handler

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def objects(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def output() -> Iterator[Output]:
    root = logging.getLogger()
    before = root.level
    found = Output()
    log.addHandler(found.handler)
    log.propagate = False
    yield found
    log.propagate = True
    log.removeHandler(found.handler)
    root.setLevel(before)


def failure() -> BaseException:
    try:
        raise RuntimeError("it broke at Bearer abcdef")
    except RuntimeError as error:
        return error


def test_one_object_per_line(output: Output) -> None:
    output.output.apply(Logs(format="json"))
    ids = {"request_id": "req-1", "decision_id": "0190", "status": 500, "cost_usd": 0.5, "zz": "not ours"}
    log.warning("%d of %s\nfailed", 3, "all", extra=ids)
    log.error("bad", exc_info=failure())
    first, second = output.objects()
    at = datetime.fromisoformat(str(first.pop("time")))
    assert at.utcoffset() is not None and abs(at.timestamp() - datetime.now().timestamp()) < 60
    assert first == {
        "level": "WARNING",
        "logger": "trilemma.test",
        "message": "3 of all\nfailed",
        "request_id": "req-1",
        "decision_id": "0190",
        "status": 500,
        "cost_usd": 0.5,
    }
    exception = str(second["exception"])
    assert exception.startswith("Traceback (most recent call last):\n") and exception.endswith("RuntimeError: it broke at Bearer ***")


def test_lines_for_people(output: Output) -> None:
    log.warning("request %s failed", "req-1", extra={"request_id": "req-1", "decision_id": "0190"})
    log.error("bad", exc_info=failure())
    first, second, *rest = output.text.splitlines()
    assert first.endswith(" WARNING trilemma.test: request req-1 failed decision_id=0190")
    assert second.endswith(" ERROR trilemma.test: bad")
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "RuntimeError: it broke at Bearer ***"


def test_nobody_forges_a_line(output: Output) -> None:
    """Line ends and what acts on a terminal stand there as text."""
    log.warning("model %s", "x\n2026-11-30 ERROR trilemma: forged\r\x1b[2J\x9b")
    assert len(output.text.splitlines()) == 1
    assert "\\n2026-11-30" in output.text and "\\x0d\\x1b[2J\\x9b" in output.text


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_masked_wherever_they_stand(output: Output, form: str) -> None:
    output.output.apply(Logs.model_validate({"format": form}))
    output.redactor.know(["known-secret"])
    known, likely, password = "-".join(("known", "secret")), "-".join(("sk", "abcdefgh")), "hunt" + "er2"  # a traceback quotes its source
    log.warning("a %s, %s", known, likely, extra={"request_id": known})
    try:
        raise ValueError(known)
    except ValueError:
        log.exception("password=%s", password)
    assert output.text.count("***") >= 4
    assert not [each for each in (known, likely, password) if each in output.text]


def test_what_is_very_long_is_cut(output: Output) -> None:
    log.warning("begin %s end", "x" * 100_000)
    assert len(output.text) < 9_000
    assert "begin x" in output.text and output.text.endswith("x end\n")


def test_levels(output: Output) -> None:
    output.output.apply(Logs(level="error"))
    log.warning("no")
    log.error("yes")
    assert output.text.count("\n") == 1
    wins = LogOutput(output.redactor, "debug", output.stream)
    wins.apply(Logs(level="error"))
    assert logging.getLogger().level == logging.DEBUG


def in_a_process(code: str) -> str:
    """What a process that logs as JSON writes to stderr."""
    begin = """
import logging, sys, threading, warnings
from gateway.config.schema import Logs
from gateway.telemetry.logs import LogOutput
from gateway.telemetry.redaction import Redactor
output = LogOutput(Redactor())
output.apply(Logs(format="json"))
output.install()
"""
    return subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, check=False).stderr


def test_other_libraries_warnings_and_the_end_go_the_same_way() -> None:
    said = in_a_process("""
logging.getLogger("uvicorn.access").info("of each request")
logging.getLogger("uvicorn.error").warning("password=hunter2")
warnings.warn("password=hunter2")
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start(); thread.join()
raise RuntimeError("password=hunter2")
""")
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["logger"] for line in lines] == ["uvicorn.error", "py.warnings", "trilemma", "trilemma"]
    assert [line["message"] for line in lines[2:]] == ["the thread worker ends", "the process ends"]
    assert "hunter2" not in said
    assert "ZeroDivisionError" in lines[2]["exception"] and "RuntimeError" in lines[3]["exception"]


def test_ctrl_c_is_no_fault() -> None:
    assert "KeyboardInterrupt" in in_a_process("raise KeyboardInterrupt")
