"""Finding the API server, and believing only those that its cluster's authority vouches for."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.pool.discovery.cluster import SERVICE_ACCOUNT, Cluster, ClusterTransport, cluster
from gateway.pool.discovery.spec import KubernetesSpec
from gateway.pool.http1 import KEEP_ALIVE_S
from gateway.pool.transport import ConnectFailed
from tests.pool.scripted import BOTH_LOOPS, Peer, Scripted, ask, eventually, scripted

CERTIFICATE = Path(__file__).parents[1] / "localhost.pem"
ENV = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def account(folder: Path) -> Path:
    """What the kubelet mounts into a pod."""
    for name, text in {"namespace": "inference", "token": "first", "ca.crt": "..."}.items():
        (folder / name).write_text(text)
    return folder


def test_a_pod_knows_its_cluster(tmp_path: Path) -> None:
    found = cluster(KubernetesSpec("vllm"), ENV, account(tmp_path))
    assert found == Cluster("https://10.96.0.1:443", "inference", tmp_path / "token", tmp_path / "ca.crt")
    assert found.token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert found.token() == "second"


def test_what_a_configuration_says_goes_before(tmp_path: Path) -> None:
    spec = KubernetesSpec("vllm", namespace="other", token_file=tmp_path / "t", ca_file=tmp_path / "c")
    assert cluster(spec, ENV, tmp_path / "absent") == Cluster("https://10.96.0.1:443", "other", tmp_path / "t", tmp_path / "c")
    assert cluster(KubernetesSpec("vllm", namespace="other"), ENV).token_file == SERVICE_ACCOUNT / "token"


def test_an_ipv6_cluster_has_brackets(tmp_path: Path) -> None:
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert cluster(KubernetesSpec("vllm"), env, account(tmp_path)).server == "https://[fd00::1]:6443"


def test_a_server_from_outside_is_sent_no_token_of_ours() -> None:
    spec = KubernetesSpec("vllm", namespace="inference", server="http://127.0.0.1:8001/")
    assert cluster(spec, ENV) == Cluster("http://127.0.0.1:8001", "inference", None, None)
    assert cluster(spec, {}).token() is None


@pytest.mark.parametrize(
    ("spec", "env", "why"),
    [
        (KubernetesSpec("vllm"), {}, "not in a Kubernetes cluster"),
        (KubernetesSpec("vllm"), {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "not in a Kubernetes cluster"),
        (KubernetesSpec("vllm"), ENV, "give `namespace`"),
        (KubernetesSpec("vllm", server="http://127.0.0.1:8001"), ENV, "`server` needs `namespace`"),
    ],
)
def test_what_can_never_work_is_refused(spec: KubernetesSpec, env: dict[str, str], why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=why):
        cluster(spec, env, tmp_path)


@asynccontextmanager
async def secure() -> AsyncIterator[Scripted]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    async with scripted(script, tls=context) as served:
        yield served


@BOTH_LOOPS
async def test_the_clusters_authority_is_believed_and_may_change(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    transport = ClusterTransport(ca_file)
    async with secure() as served:
        with pytest.raises(ConnectFailed, match=r"ca\.crt: no such file"):
            await ask(transport, served.url)
        ca_file.write_text("not yet\n")
        with pytest.raises(ConnectFailed, match=r"ca\.crt: "):
            await ask(transport, served.url)
        ca_file.write_bytes(CERTIFICATE.read_bytes())
        for _ in range(2):
            assert (await ask(transport, served.url)).body == b"{}"
        assert len(served.peers) == 1  # the same file, the same connections
        ca_file.write_bytes(CERTIFICATE.read_bytes() + b"\n")
        assert (await ask(transport, served.url)).body == b"{}"
        assert len(served.peers) == 2
        await eventually(lambda: len(served.tasks) == 1, within_s=KEEP_ALIVE_S / 2)
        ca_file.write_text("no longer\n")
        with pytest.raises(ConnectFailed):
            await ask(transport, served.url)
        await transport.close()
    with pytest.raises(ConnectFailed, match="closed"):
        await ask(transport, served.url)


@BOTH_LOOPS
async def test_nobody_else_is_believed() -> None:
    transport = ClusterTransport(None)
    async with secure() as served:
        with pytest.raises(ConnectFailed, match="SSLCertVerificationError"):
            await ask(transport, served.url)
    await transport.close()
