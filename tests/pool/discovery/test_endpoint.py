"""A replica's place: what is one, and what two names of one are."""

from __future__ import annotations

import pytest

from gateway.pool.discovery.endpoint import Endpoint, at, endpoint, merged


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://10.0.0.1:8000", "http://10.0.0.1:8000"),
        ("http://10.0.0.1:8000/", "http://10.0.0.1:8000"),
        ("http://10.0.0.1:8000/v1", "http://10.0.0.1:8000"),
        ("http://10.0.0.1:8000/v1/", "http://10.0.0.1:8000"),
        ("https://gpu.example/models/a/v1", "https://gpu.example/models/a"),
        ("http://[fd00::1]:8000", "http://[fd00::1]:8000"),
        ("http://gpu", "http://gpu"),
    ],
)
def test_the_ways_to_write_a_url_are_one(url: str, kept: str) -> None:
    assert endpoint(url) == Endpoint(kept, 1.0, ())


@pytest.mark.parametrize(
    "url",
    [
        "",
        "10.0.0.1:8000",
        "ftp://10.0.0.1",
        "http://",
        "http:///v1",
        "http://user:hunter2@10.0.0.1",
        "http://10.0.0.1?key=hunter2",
        "http://10.0.0.1#hunter2",
        "http://10.0.0.1 hunter2",
        "http://10.0.0.1:99999",
        "http://10.0.0.1:0",
        "http://10.0.0.1:port",
        "http://[fd00::1:8000",
        "http://:8000",
        "http://10.0.0.1\n",
    ],
)
def test_what_is_no_url_of_a_replica_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        endpoint(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("weight", [0, -1, 1_001, float("nan"), float("inf")])
def test_weights_have_bounds(weight: float) -> None:
    with pytest.raises(ValueError, match="weight"):
        endpoint("http://a", weight)


def test_addresses_stand_in_urls_as_they_must() -> None:
    assert at("http", "10.0.0.1", 8000).url == "http://10.0.0.1:8000"
    assert at("https", "fd00::1", 8443).url == "https://[fd00::1]:8443"
    with pytest.raises(ValueError):
        at("http", "10.0.0.1", 70_000)


def test_names_tell_replicas_apart() -> None:
    urls = ["http://10.0.0.1:8000", "https://10.0.0.1:8000", "http://10.0.0.1:8000/a", "http://[fd00::1]:8000"]
    names = [endpoint(url).name for url in urls]
    assert names == ["10.0.0.1:8000", "https://10.0.0.1:8000", "10.0.0.1:8000/a", "[fd00::1]:8000"]


def test_the_first_to_name_a_url_counts_and_the_order_stays() -> None:
    b, a, again = endpoint("http://b", 2), endpoint("http://a"), endpoint("http://b/v1", 5)
    assert merged([b, a, again, a]) == (b, a)
