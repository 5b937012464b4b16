"""EndpointSlices: which pods of a Service are its replicas, and where."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.pool.discovery.slices import Slice, SliceList, replicas
from gateway.pool.discovery.spec import KubernetesSpec
from tests.pool.discovery.api_server import HTTP, leaving, pod, slice_

SPEC = KubernetesSpec("vllm")
METRICS = {"name": "metrics", "port": 9090, "protocol": "TCP"}


def urls(*slices: dict[str, Any], spec: KubernetesSpec = SPEC) -> list[str]:
    return [endpoint.url for endpoint in replicas(read(slices), spec)]


def read(slices: Sequence[dict[str, Any]]) -> list[Slice]:
    return msgspec.json.decode(json.dumps(slices), type=list[Slice])


def test_the_slices_of_a_service_are_joined() -> None:
    """Two full slices and a placeholder, beside what is of no interest here."""
    sample = (Path(__file__).parent / "endpointslices.json").read_bytes()
    found = replicas(msgspec.json.decode(sample, type=SliceList).items or [], KubernetesSpec("vllm", port="http"))
    assert [endpoint.url for endpoint in found] == ["http://10.244.1.7:8000", "http://10.244.2.11:8000", "http://10.244.3.5:8000"]
    assert found[0].labels == (("node", "gpu-node-1"), ("pod", "vllm-6f9c7d5b8-x2k4p"), ("zone", "eu-west-1a"))


@pytest.mark.parametrize(
    ("ready", "serving", "terminating", "used"),
    [
        (True, True, False, True),
        (False, False, False, False),
        (None, None, None, True),
        (True, None, None, True),
        (False, None, None, False),
        (False, True, True, False),
        (False, False, True, False),
        (True, True, True, False),  # publishNotReadyAddresses says ready of everything
        (False, True, False, False),
    ],
)
def test_conditions_decide_beside_a_ready_pod(ready: bool | None, serving: bool | None, terminating: bool | None, used: bool) -> None:
    this = pod("10.0.0.9", ready=ready, serving=serving, terminating=terminating)
    assert urls(slice_("a", [pod("10.0.0.1"), this])) == ["http://10.0.0.1:8000"] + ["http://10.0.0.9:8000"] * used


def test_a_pod_without_conditions_is_ready() -> None:
    one = pod("10.0.0.1")
    del one["conditions"]
    assert urls(slice_("a", [one])) == ["http://10.0.0.1:8000"]


def test_pods_that_end_serve_only_where_no_other_does() -> None:
    ending = [leaving("10.0.0.1"), leaving("10.0.0.2")]
    broken = pod("10.0.0.3", ready=False, serving=False)
    ended = pod("10.0.0.4", ready=False, serving=False, terminating=True)
    assert urls(slice_("a", [*ending, broken, ended])) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
    assert urls(slice_("a", ending), slice_("b", [pod("10.0.0.5")])) == ["http://10.0.0.5:8000"]


def test_a_pod_that_moves_between_slices_is_one_replica() -> None:
    old, new = pod("10.0.0.1", ready=False, serving=False), pod("10.0.0.1")
    assert urls(slice_("a", [old]), slice_("b", [new])) == ["http://10.0.0.1:8000"]
    assert urls(slice_("a", [new]), slice_("b", [new])) == ["http://10.0.0.1:8000"]


def test_of_several_addresses_the_first_counts() -> None:
    one = pod("10.0.0.1")
    one["addresses"] = ["10.0.0.1", "10.0.0.2"]
    assert urls(slice_("a", [one, pod("10.0.0.3") | {"addresses": []}, pod("") | {"addresses": None}])) == ["http://10.0.0.1:8000"]


def test_a_pod_of_a_dual_stack_service_is_one_replica() -> None:
    v4, v6 = slice_("a", [pod("10.0.0.1", "p")]), slice_("b", [pod("fd00:0:0::1", "p")], family="IPv6")
    assert urls(v6, v4) == ["http://10.0.0.1:8000"]
    assert urls(v6, v4, spec=KubernetesSpec("vllm", family="ipv4")) == ["http://10.0.0.1:8000"]
    assert urls(v6, v4, spec=KubernetesSpec("vllm", family="ipv6")) == ["http://[fd00::1]:8000"]
    assert urls(v6) == ["http://[fd00::1]:8000"]


def test_replicas_do_not_change_family_while_one_slice_is_ahead_of_the_other() -> None:
    v4, v6 = slice_("a", []), slice_("b", [pod("fd00::1", "p")], family="IPv6")
    assert urls(v4, v6) == []


def test_names_serve_as_addresses() -> None:
    assert urls(slice_("a", [pod("gpu.example")], family="FQDN")) == ["http://gpu.example:8000"]


def test_a_family_that_the_service_does_not_have_is_no_empty_service() -> None:
    with pytest.raises(ValueError, match="its pods have no ipv6 address, only IPv4"):
        urls(slice_("a", [pod("10.0.0.1")]), spec=KubernetesSpec("vllm", family="ipv6"))
    with pytest.raises(ValueError, match="only Carrier pigeon"):
        urls(slice_("a", [pod("10.0.0.1")], family="Carrier pigeon"))


@pytest.mark.parametrize("nothing", [None, []])
def test_a_service_without_pods_is_empty(nothing: list[Any] | None) -> None:
    assert urls() == []
    assert urls(slice_("a", nothing, ports=nothing)) == []
    assert urls(slice_("a", nothing), spec=KubernetesSpec("vllm", port="grpc")) == []


@pytest.mark.parametrize(
    ("ports", "wanted", "url"),
    [
        (HTTP, None, "http://10.0.0.1:8000"),
        ([{"name": "", "port": 8000}], None, "http://10.0.0.1:8000"),
        ([{"port": 8000}], None, "http://10.0.0.1:8000"),
        ([*HTTP, METRICS], "metrics", "http://10.0.0.1:9090"),
        ([*HTTP, {"name": "quic", "port": 4433, "protocol": "UDP"}], None, "http://10.0.0.1:8000"),
        ([*HTTP, METRICS], 8123, "http://10.0.0.1:8123"),
        ([], 8123, "http://10.0.0.1:8123"),
        (None, 8123, "http://10.0.0.1:8123"),
    ],
)
def test_a_port_by_name_by_number_or_because_it_is_the_only_one(ports: Any, wanted: str | int | None, url: str) -> None:
    assert urls(slice_("a", [pod("10.0.0.1")], ports=ports), spec=KubernetesSpec("vllm", port=wanted)) == [url]


@pytest.mark.parametrize(
    ("ports", "wanted", "why"),
    [
        ([*HTTP, METRICS], None, "which port is not clear: name one; there are: http, metrics"),
        (HTTP, "grpc", "the Service has no port `grpc`; there are: http"),
        ([{"name": "quic", "port": 4433, "protocol": "UDP"}], "quic", "the Service has no port `quic`; it has no TCP port: give a number"),
        (None, None, "which port is not clear: name one; it has no TCP port: give a number"),
        ([{"name": "any", "port": None}], "any", "the Service has no port `any`; there are: any"),
    ],
)
def test_a_port_that_is_not_there_is_no_empty_service(ports: Any, wanted: str | None, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        urls(slice_("a", [pod("10.0.0.1")], ports=ports), spec=KubernetesSpec("vllm", port=wanted))
    assert str(refused.value) == why


def test_a_named_port_may_have_a_number_per_slice() -> None:
    """Pods of two versions, whose port `http` is not the same."""
    new = slice_("b", [pod("10.0.0.2")], ports=[{"name": "http", "port": 8001, "protocol": "TCP"}])
    without = slice_("c", [pod("10.0.0.3")], ports=[METRICS])
    assert urls(slice_("a", [pod("10.0.0.1")]), new, without, spec=KubernetesSpec("vllm", port="http")) == [
        "http://10.0.0.1:8000",
        "http://10.0.0.2:8001",
    ]


@pytest.mark.parametrize("address", ["10.0.0", "10.0.0.1/../../evil", "::1]:80@evil", ""])
def test_an_address_that_is_none_goes_nowhere(address: str) -> None:
    with pytest.raises(ValueError):
        urls(slice_("a", [pod(address)]))


def test_the_scheme_is_the_operators() -> None:
    assert urls(slice_("a", [pod("10.0.0.1")]), spec=KubernetesSpec("vllm", scheme="https")) == ["https://10.0.0.1:8000"]
