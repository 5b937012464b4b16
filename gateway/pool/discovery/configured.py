"""The sources that a configuration names."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.config.schema import Config, Discover, Listed
from gateway.pool.discovery.endpoint import Endpoint, endpoint
from gateway.pool.discovery.spec import DnsSpec, FileSpec, KubernetesSpec, Spec, StaticSpec


def specs(config: Config) -> Mapping[str, Spec]:
    """Backend -> where its replicas are found, of those that are discovered. Raises ValueError for an impossible URL."""
    return {name: _spec(backend.discover) for name, backend in config.backends.items() if backend.discover is not None}


def _spec(asked: Discover) -> Spec:
    if asked.dns is not None:
        return DnsSpec(asked.dns.host, asked.dns.port, asked.dns.interval_s, asked.dns.scheme, asked.dns.family)
    if asked.file is not None:
        return FileSpec(asked.file.path, asked.file.interval_s)
    if asked.kubernetes is not None:
        return KubernetesSpec(**asked.kubernetes.model_dump())
    return StaticSpec(tuple(_listed(each) for each in asked.static or ()))


def _listed(each: str | Listed) -> Endpoint:
    return endpoint(each) if isinstance(each, str) else endpoint(each.url, each.weight)
