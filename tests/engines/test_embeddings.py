"""What is asked of an embeddings endpoint, and what of its answers is taken."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from gateway.config.schema import Embeddings
from gateway.engines.embeddings import Embedder, Unanswered, endpoint, version
from gateway.engines.spec import free_port
from tests.support.clock import Clock
from tests.support.vectors import Vectors

TEXTS = ["the secret of a caller", "another"]
VECTORS = {TEXTS[0]: [1.0, 2.0], TEXTS[1]: [-3, 4.5]}


def settings(url: str, **more: Any) -> Embeddings:
    return Embeddings.model_validate({"url": url, "model": "org/mini", "dimensions": 2, "timeout_s": 30} | more)


def test_texts_go_together_and_vectors_come_in_their_order() -> None:
    with Vectors(VECTORS) as server:
        embedder = Embedder("emb", settings(server.url, key="sk-1"))
        assert embedder.ask(TEXTS) == [[1.0, 2.0], [-3.0, 4.5]]
        assert embedder.ask(TEXTS[1:]) == [[-3.0, 4.5]]

    assert server.asked == [{"model": "org/mini", "input": texts, "encoding_format": "float"} for texts in (TEXTS, TEXTS[1:])]
    assert server.paths == ["/v1/embeddings"] * 2
    assert server.headers[0]["authorization"] == "Bearer sk-1"
    assert server.headers[0]["accept-encoding"] == "identity"
    assert server.connections == 1


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/"])
def test_the_address_may_end_in_v1(path: str) -> None:
    with Vectors(VECTORS) as server:
        Embedder("emb", settings(server.url + path)).ask(TEXTS)
    assert server.paths == ["/v1/embeddings"]
    assert "authorization" not in server.headers[0]


def test_vectors_are_shortened_on_demand() -> None:
    with Vectors(VECTORS) as server:
        Embedder("emb", settings(server.url, shorten=True)).ask(TEXTS)
    assert server.asked[0]["dimensions"] == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], "vectors of 3 numbers; `dimensions` says 2"),
        ([[1.0], [1.0, 2.0]], "vectors of 1 numbers"),
        ([[1.0, 2.0]], "not one vector for each text"),
        ([[1.0, 2.0]] * 3, "not one vector for each text"),
        ([[1.0, None], [1.0, 2.0]], "holds no vectors"),
        ([["1", "2"], [1.0, 2.0]], "holds no vectors"),
        (["AACAPwAAAEA=", "AACAPwAAAEA="], "holds no vectors"),
        ([[1.0, float("nan")], [1.0, 2.0]], "holds no vectors"),
    ],
)
def test_another_shape_is_refused(data: list[Any], said: str) -> None:
    with Vectors({}) as server:
        found = json.dumps({"data": [{"index": i, "embedding": vector} for i, vector in enumerate(data)]}).encode()
        server.data = lambda _: found
        with pytest.raises(Unanswered, match=said):
            Embedder("emb", settings(server.url)).ask(TEXTS)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"data": [{"index": 0, "embedding": [1e999, 0]}]}', b"<html>"])
def test_what_is_no_answer_of_openais_form(data: bytes) -> None:
    with Vectors({}) as server:
        server.data = lambda _: data
        with pytest.raises(Unanswered, match="holds no vectors"):
            Embedder("emb", settings(server.url)).ask(TEXTS[:1])


def test_an_answer_without_end_is_not_read() -> None:
    with Vectors({}) as server:
        server.data = lambda _: b" " * 10_000_000
        with pytest.raises(Unanswered, match="too long"):
            Embedder("emb", settings(server.url)).ask(TEXTS)


def test_a_redirect_leads_nowhere() -> None:
    with Vectors(VECTORS) as elsewhere, Vectors({}) as server:
        server.status, server.location, server.data = 307, f"{elsewhere.url}/v1/embeddings", lambda _: b""
        with pytest.raises(Unanswered, match="status 307"):
            Embedder("emb", settings(server.url)).ask(TEXTS)
        assert elsewhere.asked == []


def test_who_is_too_slow_is_too_late() -> None:
    with Vectors(VECTORS) as server:
        server.held.clear()
        with pytest.raises(TimeoutError):
            Embedder("emb", settings(server.url, timeout_s=0.05)).ask(TEXTS)


def test_after_a_failure_it_is_left_alone_for_a_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trilemma.embeddings")
    clock = Clock()
    with Vectors(VECTORS) as server:
        embedder = Embedder("emb", settings(server.url), now=clock)
        server.status = 503
        for later in (0.0, 0.9, 0.2):
            clock.now += later
            with pytest.raises(Unanswered):
                embedder.ask(TEXTS)
        assert len(server.asked) == 2
        server.status = 200
        clock.now += 1.1
        embedder.ask(TEXTS)
        embedder.ask(TEXTS)

    assert caplog.messages == [
        "the embeddings endpoint `emb` gives no features: status 503",
        "the embeddings endpoint `emb` answers again",
    ]
    assert TEXTS[0] not in caplog.text


def test_a_text_that_it_refuses_says_nothing_of_the_next() -> None:
    with Vectors(VECTORS) as server:
        embedder = Embedder("emb", settings(server.url), now=Clock())
        server.status = 400
        with pytest.raises(Unanswered, match="status 400"):
            embedder.ask(TEXTS)
        server.status = 200
        assert embedder.ask(TEXTS) == [[1.0, 2.0], [-3.0, 4.5]]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "no connection"),
        ({"url": "http://127.0.0.1:99999"}, "its address or its key cannot be used"),
        ({"key": "sk-\r\nx: y"}, "its address or its key cannot be used"),
    ],
)
def test_nobody_there(more: dict[str, str], said: str) -> None:
    with pytest.raises(Unanswered, match=said) as raised:
        Embedder("emb", settings(**({"url": f"http://127.0.0.1:{free_port()}"} | more))).ask(TEXTS)
    assert "sk-" not in str(raised.value)
    assert TEXTS[0] not in str(raised.value)


@pytest.mark.parametrize("more", [{"model": "other"}, {"dimensions": 3}, {"shorten": True}, {"characters": 100}])
def test_other_numbers_have_another_name(more: dict[str, Any]) -> None:
    one, other = (version("emb", settings("http://a", **each)) for each in ({}, more))
    assert one != other
    assert one.startswith("endpoint:emb-") and other.startswith("endpoint:emb-")


def test_another_way_to_the_same_numbers_has_the_same_name() -> None:
    one = version("emb", settings("http://a"))
    assert one == version("emb", settings("https://b/v1", key="k", timeout_s=1))
    assert one != version("emb-2", settings("http://a"))


def test_nothing_is_asked_before_there_is_a_text() -> None:
    made = endpoint("emb", settings(f"http://127.0.0.1:{free_port()}", characters=100))
    assert (made.name, made.dim, made.budget) == (version("emb", settings("http://a", characters=100)), 2, 100)
