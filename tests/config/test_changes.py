"""What a reload does not take up is said."""

from __future__ import annotations

import pytest

from gateway.config.changes import at_next_start
from gateway.config.load import parse
from gateway.config.schema import Config

TEXT = """
version: 1
server: {port: 8080, max_n: 5}
backends: {a: {url: "http://h:1", models: {m: m}}}
keys: [{name: k, sha256: "0000000000000000000000000000000000000000000000000000000000000000"}]
storage: {url: ""}
"""


def config(text: str = TEXT) -> Config:
    return parse(text, {}).config


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("port: 8080", "port: 8081", ["`server`"]),
        ('url: ""', 'url: "sqlite:///d.db"', ["`storage`"]),
        ("models: {m: m}", "models: {m: n}", []),
        ("name: k", "name: l", []),
    ],
)
def test_what_waits_for_the_next_start(old: str, new: str, words: list[str]) -> None:
    said = at_next_start(config(), config(TEXT.replace(old, new)))
    assert len(said) == len(words)
    assert all(word in sentence for word, sentence in zip(words, said, strict=True))


def test_what_is_taken_up_at_once_is_named() -> None:
    (said,) = at_next_start(config(), config(TEXT.replace("8080", "8081")))
    assert "but for `max_body_bytes`, `max_n` and `heartbeat_s`" in said
