"""What a configuration says of a source: one frozen value per kind. Equal values need no new source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gateway.pool.discovery.endpoint import Endpoint

Scheme = Literal["http", "https"]
Family = Literal["ipv4", "ipv6"]


@dataclass(frozen=True, slots=True)
class StaticSpec:
    """Replicas that the configuration lists."""

    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class DnsSpec:
    """Every address of a name. family: only these addresses; by default IPv4, or IPv6 where the name has no IPv4 address.

    interval_s: seconds between two look-ups.
    """

    host: str
    port: int
    interval_s: float = 10.0
    scheme: Scheme = "http"
    family: Family | None = None


@dataclass(frozen=True, slots=True)
class FileSpec:
    """A file with a list of URLs, JSON where its name ends in `.json`, else YAML. interval_s: seconds between two looks at it."""

    path: Path
    interval_s: float = 1.0


@dataclass(frozen=True, slots=True)
class KubernetesSpec:
    """The pods behind a Service.

    namespace: by default the gateway's own. port: a port's name in the Service, or a number that is taken as it is; by default the only
    port there is. family: only these addresses; by default IPv4, or IPv6 where the Service has no IPv4 slice. server: the API server, where
    the gateway is no pod of the cluster, such as http://127.0.0.1:8001 (`kubectl proxy`); token_file and ca_file go with it.
    """

    service: str
    namespace: str | None = None
    port: str | int | None = None
    scheme: Scheme = "http"
    family: Family | None = None
    server: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None


Spec = StaticSpec | DnsSpec | FileSpec | KubernetesSpec
