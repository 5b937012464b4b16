from __future__ import annotations

import pytest

from gateway.importing.address import address, host
from gateway.importing.document import Value
from gateway.importing.report import Place, Report

PLACE = Place("c.yaml", 1)


@pytest.mark.parametrize(
    ("given", "url", "kinds"),
    [
        ("http://gpu:8000/v1", "http://gpu:8000/v1", []),
        ("http://gpu:8000/", "http://gpu:8000", []),
        (" HTTPS://Gpu.Example/v1/ ", "https://Gpu.Example/v1", []),
        ("https://h/openai/v1", "https://h/openai/v1", []),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1", []),
        ("http://gpu/v1/chat/completions", "http://gpu/v1", ["changed"]),
        ("https://h/beta", "https://h/beta", ["todo"]),
        ("https://user:secret@h/v1?key=secret#secret", "https://h/v1", ["lost", "lost"]),
        ("gpu:8000", None, []),
        ("ftp://gpu", None, []),
        ("http://", None, []),
        ("http://gpu:port/v1", None, []),
        ("http://g pu/v1", None, []),
        ("http://[::1", None, []),
        ("", None, []),
    ],
)
def test_address(given: str, url: str | None, kinds: list[str]) -> None:
    report = Report()
    assert address(Value(PLACE, given), report) == url
    assert [entry.kind for entry in report.entries] == kinds
    assert "secret" not in repr(report.entries)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://gpu-1.ml.internal:8000/v1", "gpu-1"),
        ("http://10.0.0.5:8000", "10.0.0.5"),
        ("https://api.example.com/v1", "example"),
        ("http://localhost:11434", "localhost"),
        ("http://[::1]:8000", "::1"),
        ("${VLLM_API_BASE}", "vllm"),
        ("${MY_GPU_URL}", "my-gpu"),
        ("${_}", "engine"),
    ],
)
def test_host(url: str, name: str) -> None:
    assert host(url) == name
