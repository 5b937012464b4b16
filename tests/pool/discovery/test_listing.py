"""Lists of replicas as text: what is one, and how what is none is refused."""

from __future__ import annotations

import json

import pytest

from gateway.pool.discovery.endpoint import endpoint
from gateway.pool.discovery.listing import replicas


def test_json_is_read_as_json() -> None:
    text = json.dumps(["http://a", {"url": "http://b", "weight": 0.5}], indent="\t")
    assert replicas(text, json=True) == (endpoint("http://a"), endpoint("http://b", 0.5))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://a", "Expected `array`"),
        ("{a: http://a}", "Expected `array`"),
        ("[1]", "got `int`"),
        ("[{weight: 2}]", "missing required field `url`"),
        ("[{url: http://a, wieght: 2}]", "unknown field `wieght`"),
        ("[{url: http://a, weight: heavy}]", "got `str`"),
        ("[{url: http://a, weight: 0}]", "replica 1: the weight should be above 0"),
        ("[{url: http://a, weight: .nan}]", "replica 1: the weight should be above 0"),
        ("[http://a, 'http://me:hunter2@b']", "replica 2: the URL should be"),
        ("[{url: http://a, url: http://b}]", "the key stands twice"),
        ("[&a [*a]]", "1:"),
        ("[http://${HOST}]", "1:"),
        ("['http://${HOST}']", "is not answered here"),
        ("[!!python/object:os.system http://a]", "tags are not allowed"),
    ],
)
def test_what_is_no_list_of_replicas_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        replicas(text, json=False)
    assert why in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", ["[", "[" * 100_000, '["http://a"] x', "- http://a"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        replicas(text, json=True)
