"""EndpointSlices (discovery.k8s.io/v1) as the API server writes them, and the replicas that the slices of one Service make together.

A pod of a dual-stack Service stands in a slice of each address family, so only one family is used: a pod is one replica. It may also stand
in two slices of one family, when the controller moves it. `ready` absent means ready, `serving` absent means as `ready`, `terminating`
absent means it is not. Where no pod is ready, those that end but still serve are better than nothing (kube-proxy does the same).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Final

import msgspec

from gateway.pool.discovery.endpoint import Endpoint, at, merged
from gateway.pool.discovery.spec import KubernetesSpec

# The first of which there are slices is used, if no family is asked for.
_FAMILIES: Final[Mapping[str, str]] = {"ipv4": "IPv4", "ipv6": "IPv6", "name": "FQDN"}


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """`metadata` of an object."""

    name: str = ""
    resource_version: str = ""


class Conditions(msgspec.Struct, frozen=True):
    """Three-valued: None is not known."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Reference(msgspec.Struct, frozen=True):
    """`targetRef`: the object that the endpoint is, a Pod mostly."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class SliceEndpoint(msgspec.Struct, frozen=True, rename="camel"):
    """An element of `endpoints`. Its addresses are interchangeable; the first is used."""

    addresses: list[str] | None = None
    conditions: Conditions | None = None
    target_ref: Reference | None = None
    node_name: str | None = None
    zone: str | None = None


class Port(msgspec.Struct, frozen=True):
    """An element of `ports`. `port` None: any."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class Slice(msgspec.Struct, frozen=True, rename="camel"):
    """An EndpointSlice. Go writes an empty list as null."""

    metadata: Meta
    address_type: str = ""
    endpoints: list[SliceEndpoint] | None = None
    ports: list[Port] | None = None
    kind: str = ""


class ListMeta(msgspec.Struct, frozen=True, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    """`metadata` of a list. `continue_`: where the next part begins, if this is not all."""

    resource_version: str = ""
    continue_: str = ""


class SliceList(msgspec.Struct, frozen=True):
    """An EndpointSliceList."""

    kind: str
    metadata: ListMeta
    items: list[Slice] | None


class Event(msgspec.Struct, frozen=True):
    """A line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK with a slice, or ERROR with a Status."""

    type: str
    object: msgspec.Raw


class Status(msgspec.Struct, frozen=True):
    """What the API server says when it refuses."""

    message: str = ""
    code: int = 0


def replicas(slices: Collection[Slice], spec: KubernetesSpec) -> tuple[Endpoint, ...]:
    """The replicas of one Service, by URL. Raises ValueError where none of its pods has the port or the address that is asked for."""
    types = {each.address_type for each in slices}
    family: str = spec.family or next((name for name, kind in _FAMILIES.items() if kind in types), "name")
    filled = [each for each in slices if each.endpoints]
    usable = [each for each in filled if each.address_type == _FAMILIES[family]]
    if filled and _FAMILIES[family] not in types:
        raise ValueError(f"its pods have no {family} address, only {', '.join(sorted({each.address_type for each in filled}))}")
    ported = [(port, each) for each in usable if (port := _port(each, spec.port)) is not None]
    if usable and not ported:
        raise ValueError(_no_port(usable, spec.port))
    ready: list[Endpoint] = []
    ending: list[Endpoint] = []
    for port, each in ported:
        for one in each.endpoints or ():
            conditions = one.conditions or Conditions()
            terminating = conditions.terminating is True
            serving = conditions.ready if conditions.serving is None else conditions.serving
            if conditions.ready is not False and not terminating:
                ready += _endpoints(one, family, port, spec.scheme)
            elif terminating and serving is not False:
                ending += _endpoints(one, family, port, spec.scheme)
    return merged(sorted(ready or ending, key=lambda endpoint: (endpoint.url, endpoint.labels)))


def _endpoints(one: SliceEndpoint, family: str, port: int, scheme: str) -> Iterator[Endpoint]:
    """One, or none where it has no address."""
    for address in (one.addresses or ())[:1]:
        ref = one.target_ref
        labels = {"pod": ref.name if ref and ref.kind == "Pod" else "", "node": one.node_name, "zone": one.zone}
        host = address if family == "name" else str(ip_address(address))
        yield at(scheme, host, port, [(name, value) for name, value in labels.items() if value])


def _port(each: Slice, wanted: str | int | None) -> int | None:
    if isinstance(wanted, int):
        return wanted
    ports = _tcp(each)
    if wanted is None:
        return ports[0].port if len(ports) == 1 else None
    return next((port.port for port in ports if port.name == wanted), None)


def _tcp(each: Slice) -> list[Port]:
    return [port for port in each.ports or () if port.protocol in (None, "", "TCP")]


def _no_port(slices: Iterable[Slice], wanted: str | int | None) -> str:
    names = sorted({port.name or "(unnamed)" for each in slices for port in _tcp(each)})
    there = f"there are: {', '.join(names)}" if names else "it has no TCP port: give a number"
    return f"the Service has no port `{wanted}`; {there}" if wanted is not None else f"which port is not clear: name one; {there}"
