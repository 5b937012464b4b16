"""The Kubernetes API server as a pod sees it: where it is, whom it believes, and whom we believe."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.config.files import Stamp, read_secret, reason, stamp
from gateway.pool.discovery.spec import KubernetesSpec
from gateway.pool.http1 import Http1Transport, Reply
from gateway.pool.transport import ConnectFailed
from gateway.wire.errors import Header

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Cluster:
    """server: its URL. token_file: read anew for every request, because tokens are rotated. ca_file: what signs its certificate."""

    server: str
    namespace: str
    token_file: Path | None = None
    ca_file: Path | None = None

    def token(self) -> str | None:
        """The token as it is now. Raises OSError."""
        return None if self.token_file is None else read_secret(self.token_file)


def cluster(spec: KubernetesSpec, env: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT) -> Cluster:
    """The cluster of a spec: the one it names, else the one that this process is a pod of. Raises ValueError where that is none."""
    if spec.server is not None:
        if spec.namespace is None:
            raise ValueError("`server` needs `namespace`")
        return Cluster(spec.server.rstrip("/"), spec.namespace, spec.token_file, spec.ca_file)
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ValueError("not in a Kubernetes cluster (KUBERNETES_SERVICE_HOST is not set): give `server`")
    namespace = spec.namespace
    if namespace is None:
        try:
            namespace = read_secret(account / "namespace")
        except OSError as error:
            raise ValueError(f"give `namespace`: the pod's own is not known ({account / 'namespace'}: {reason(error)})") from None
    return Cluster(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace,
        spec.token_file or account / "token",
        spec.ca_file or account / "ca.crt",
    )


class ClusterTransport:
    """A Transport that believes the certificates which `ca_file` vouches for now: it is looked at before each request."""

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self._stamp: Stamp | None = None
        self._inner: Http1Transport | None = None
        self._closed = False

    async def send(self, method: str, url: str, headers: Sequence[Header], body: bytes, connect_s: float, *, fresh: bool = False) -> Reply:
        """See Transport.send."""
        return await (await self._current()).send(method, url, headers, body, connect_s, fresh=fresh)

    async def close(self) -> None:
        """See Transport.close."""
        self._closed = True
        if self._inner is not None:
            await self._inner.close()

    async def _current(self) -> Http1Transport:
        if self._closed:
            raise ConnectFailed("the transport is closed")
        now = None if self._ca_file is None else await asyncio.to_thread(stamp, self._ca_file)
        if self._inner is None or now != self._stamp:
            try:
                context = await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file)
            except OSError as error:  # ssl.SSLError is one
                raise ConnectFailed(f"{self._ca_file}: {reason(error)}") from None
            if self._inner is not None:
                await self._inner.close()
            self._inner, self._stamp = _Trusting(context), now
        return self._inner


class _Trusting(Http1Transport):
    """Believes what `context` believes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._tls = context
