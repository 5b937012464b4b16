"""How many tokens a request is taken to want, and how many it has used."""

from __future__ import annotations

import base64
import json
import os

import pytest

from gateway.access.limit import Need
from gateway.serving.call import Outcome, Receipt, UpstreamCall
from gateway.serving.needs import need_of, spent
from gateway.wire.request import read
from gateway.wire.usage import Usage


def need(*, answers: bool = True, **fields: object) -> Need:
    body = json.dumps({"model": "m", **fields}).encode()
    return need_of(body, read(body, 128), answers=answers)


@pytest.mark.parametrize(
    ("fields", "completion"),
    [
        ({"max_tokens": 50}, 50),
        ({"max_completion_tokens": 60}, 60),
        ({"max_tokens": 50, "max_completion_tokens": 60}, 60),
        ({"max_tokens": 50, "n": 4}, 200),
        ({"max_tokens": 0}, 0),
        ({}, None),
        ({"n": 4}, None),
        ({"max_tokens": -1}, None),
        ({"max_tokens": None}, None),
    ],
)
def test_an_answer_is_as_long_as_it_may_be(fields: dict[str, object], completion: int | None) -> None:
    assert need(**fields).completion == completion


def test_what_only_reads_writes_nothing() -> None:
    assert need(answers=False, max_tokens=50).completion == 0


@pytest.mark.parametrize("words", [0, 1, 10, 1_000, 100_000])
def test_four_bytes_are_a_token(words: int) -> None:
    text = "word " * words
    assert 0 <= need(messages=[{"role": "user", "content": text}]).prompt - len(text) / 4 < 20


@pytest.mark.parametrize("size", [100_000, 5_000_000])
@pytest.mark.parametrize("form", ["data:image/png;base64,{}", "{}"])
def test_an_image_is_not_read_as_text(size: int, form: str) -> None:
    image = base64.b64encode(os.urandom(size)).decode()
    parts = [{"type": "image_url", "image_url": {"url": form.format(image)}}, {"type": "text", "text": "word " * 4_000}]
    assert 6_000 <= need(messages=[{"role": "user", "content": parts}]).prompt <= 6_100


def test_a_form_is_no_text() -> None:
    assert need_of(b"", read(b'{"model":"m"}', 1), answers=False) == Need(0, 0)


def call(usage: Usage | None) -> UpstreamCall:
    return UpstreamCall("a", "m", 0.0, usage=usage)


@pytest.mark.parametrize(
    ("usages", "outcome", "tokens"),
    [
        ([], "caller_error", 0),
        ([], "client_closed", 0),
        ([Usage(10, 4, 5)], "ok", 15),
        ([None, Usage(10, 0, 5)], "ok", 15),
        ([Usage(10, 0, 5), Usage(20, 0, 1)], "ok", 36),
        ([None], "ok", None),
        ([None], "client_closed", None),
        ([None], "gateway_error", None),
        ([None], "backend_error", 0),
        ([None], "caller_error", 0),
        ([Usage(10, 0, 3)], "backend_error", 13),
    ],
)
def test_all_calls_of_a_request_are_what_it_has_used(usages: list[Usage | None], outcome: Outcome, tokens: int | None) -> None:
    receipt = Receipt("r", "d", 0.0, calls=[call(usage) for usage in usages], outcome=outcome)

    assert spent(receipt) == tokens
