from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.telemetry.redaction import Redactor, secrets_of, secrets_of_environment


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("authorization=Basic dXNlcjpwYXNz and more", "authorization=Basic *** and more"),
        ("{'Authorization': 'Bearer abc'}", "{'Authorization': 'Bearer ***'}"),
        ("(b'authorization', b'Bearer abc')", "(b'authorization', b'Bearer ***')"),
        ("(b'x-api-key', b'abc def')", "(b'x-api-key', b'*** def')"),
        ("key sk-abcd1234_x-y was refused", "key sk-*** was refused"),
        ("hf_AbCdEfGhIj and xoxb-123456", "hf_*** and xoxb-***"),
        ("https://x/y?api_key=abc&z=1", "https://x/y?api_key=***&z=1"),
        ('{"password": "hunter2", "user": "me"}', '{"password": "***", "user": "me"}'),
        (r'"{\"api_key\": \"abc\", \"n\": 1}"', r'"{\"api_key\": \"***\", \"n\": 1}"'),
        ("password=hunter2 user=me", "password=*** user=me"),
        ("client_secret: abc", "client_secret: ***"),
        ("postgresql://me:hunter2@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("postgresql://:hunter2@db/x", "postgresql://:***@db/x"),
    ],
)
def test_what_looks_like_a_secret(text: str, masked: str) -> None:
    assert Redactor()(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "1,000 prompt_tokens: 12, completion_tokens=3",
        "a task-force met at risk-free disk-based http://host:8080/path",
        "no password is set; the secret of success",
        "backend gpu-a answers at http://10.0.0.5:8000/v1",
        "bearing news of basic things",
        "2026-11-30 12:00:00,123 INFO trilemma: reloaded",
        "",
    ],
)
def test_what_does_not(text: str) -> None:
    assert Redactor()(text) == text


def test_known_secrets_however_they_are_quoted() -> None:
    redactor = Redactor()
    secret = 'p@ss "wörd"/\\x'
    redactor.know([secret, "longer-secret", "longer-secret-still", "tiny"])
    for form in (secret, json.dumps(secret), repr(secret), "p%40ss%20%22w%C3%B6rd%22%2F%5Cx"):
        assert redactor(f"a {form} b") in ("a *** b", 'a "***" b', "a '***' b")
    assert redactor("longer-secret-still, longer-secret!") == "***, ***!"
    # Too short to be told from other words.
    assert redactor("a tiny thing") == "a tiny thing"


def test_what_was_known_stays_known() -> None:
    redactor = Redactor()
    redactor.know(["first-secret"])
    redactor.know(["second-secret"])
    redactor.know([])
    assert redactor("first-secret second-secret") == "*** ***"


def test_long_text_takes_no_time() -> None:
    """No pattern goes over a text again and again."""
    redactor = Redactor()
    redactor.know(["some-secret"])
    begin = time.process_time()
    for text in (
        "a" * 100_000,
        "://" * 30_000,
        "://a:" * 20_000,
        "password " * 10_000,
        "sk-" * 30_000,
        "secret=" * 15_000,
        "bearer " * 15_000,
    ):
        redactor(text)
    assert time.process_time() - begin < 5


def test_all_that_a_configuration_keeps_to_itself(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("key-in-a-file\n")
    (tmp_path / "c.yaml").write_text(
        """
version: 1
server: {secret: the-secret}
backends:
  a: {url: "http://a", key: key-of-a, models: {a: a}}
  b: {url: "http://b", key_file: key, models: {b: b}}
  c: {url: "http://c", models: {c: c}}
embeddings: {e: {url: "http://e", model: m, dimensions: 2, key: key-of-e}}
strategies: {s: {type: best_of_n, params: {select: verifier}, verifier: {url: "http://v", key: key-of-s}}}
learning: {verifier: {url: "http://v", key: key-of-v}}
storage: {url: "postgresql://me:p%40ss-word@db/x"}
"""
    )
    keys = {"key-of-a", "key-of-e", "key-of-s", "key-of-v", "key-in-a-file"}
    assert set(secrets_of(load(tmp_path / "c.yaml", {}).config)) == {*keys, "the-secret", "p@ss-word"}


def test_headers_for_the_collector() -> None:
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=one%20two,x=three", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "y=four", "HOME": "/root"}
    assert secrets_of_environment(environ) == ["one%20two", "three", "four"]
