"""All sources of a configuration: who is followed after a reload, and that one source's trouble is its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.pool.discovery.discovery import Discovery, replica, source
from gateway.pool.discovery.dns import Dns
from gateway.pool.discovery.endpoint import Endpoint, endpoint
from gateway.pool.discovery.file import File
from gateway.pool.discovery.follower import Status
from gateway.pool.discovery.kubernetes import Kubernetes
from gateway.pool.discovery.source import Failed, Found, News, Source
from gateway.pool.discovery.spec import DnsSpec, FileSpec, KubernetesSpec, Spec, StaticSpec
from gateway.pool.discovery.static import Static
from tests.pool.scripted import WITH_CLOCK, eventually, turns

A, B = endpoint("http://a"), endpoint("http://b")


class Told:
    """A source that says one thing and then nothing; `opened` and `closed` say how often it was read."""

    def __init__(self, news: News | None) -> None:
        self.news = news
        self.opened = self.closed = 0

    async def watch(self) -> AsyncGenerator[News, None]:
        self.opened += 1
        try:
            if self.news is not None:
                yield self.news
            await asyncio.get_running_loop().create_future()
        finally:
            self.closed += 1


class Taken:
    """What was taken up, by backend, and the sources that were made, by spec."""

    def __init__(self) -> None:
        self.replicas: dict[str, tuple[Endpoint, ...]] = {}
        self.made: dict[Spec, Told] = {}
        self.discovery: Discovery

    async def changed(self, name: str, endpoints: tuple[Endpoint, ...]) -> None:
        self.replicas[name] = endpoints

    def make(self, spec: Spec) -> Source:
        if isinstance(spec, KubernetesSpec):
            raise ValueError("not in a Kubernetes cluster")
        news = Found(spec.endpoints) if isinstance(spec, StaticSpec) else Failed("no name server") if isinstance(spec, DnsSpec) else None
        self.made[spec] = Told(news)
        return self.made[spec]


@asynccontextmanager
async def discovering() -> AsyncIterator[Taken]:
    taken = Taken()
    async with asyncio.TaskGroup() as group:
        taken.discovery = Discovery(group, taken.changed, taken.make)
        yield taken
        taken.discovery.stop()
    assert all(told.opened == told.closed for told in taken.made.values())


@WITH_CLOCK
async def test_each_backend_has_its_own_replicas_and_troubles() -> None:
    async with discovering() as taken:
        taken.discovery.follow({"x": StaticSpec((A,)), "y": StaticSpec((A, B)), "z": DnsSpec("gpu", 8000)})
        await taken.discovery.heard(5)
        assert taken.replicas == {"x": (A,), "y": (A, B)}
        status = taken.discovery.status()
        assert [(name, each.endpoints, each.last_error) for name, each in status.items()] == [
            ("x", (A,), None),
            ("y", (A, B), None),
            ("z", (), "no name server"),
        ]


@WITH_CLOCK
async def test_after_a_reload_only_what_changed_is_looked_up_anew() -> None:
    same, old, new, gone = StaticSpec((A,)), StaticSpec((B,)), StaticSpec((A, B)), StaticSpec(())
    async with discovering() as taken:
        taken.discovery.follow({"same": same, "changed": old, "gone": gone})
        await taken.discovery.heard(5)
        taken.discovery.follow({"same": StaticSpec((A,)), "changed": new})
        await taken.discovery.heard(5)
        await turns(5)
        assert [(told.opened, told.closed) for told in taken.made.values()] == [(1, 0), (1, 1), (1, 1), (1, 0)]
        assert taken.replicas["changed"] == (A, B)
        assert set(taken.discovery.status()) == {"same", "changed"}


@WITH_CLOCK
async def test_what_cannot_be_followed_changes_nothing() -> None:
    async with discovering() as taken:
        taken.discovery.follow({"x": StaticSpec((A,))})
        await taken.discovery.heard(5)
        with pytest.raises(ValueError, match="not in a Kubernetes cluster"):
            taken.discovery.follow({"y": StaticSpec((B,)), "z": KubernetesSpec("vllm")})
        assert set(taken.discovery.status()) == {"x"}
        await turns(5)
        assert taken.made[StaticSpec((A,))].closed == 0


@WITH_CLOCK
async def test_a_start_waits_for_slow_sources_so_long_and_no_longer() -> None:
    async with discovering() as taken:
        taken.discovery.follow({"x": StaticSpec((A,)), "slow": FileSpec(Path("gpus.yaml"))})
        await taken.discovery.heard(0.01)
        assert taken.replicas == {"x": (A,)}
        assert taken.discovery.status()["slow"] == Status((), None, None)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (StaticSpec((A,)), Static),
        (DnsSpec("gpu", 8000), Dns),
        (FileSpec(Path("gpus.yaml")), File),
        (KubernetesSpec("vllm", namespace="inference", server="http://127.0.0.1:8001"), Kubernetes),
    ],
)
def test_each_spec_has_its_source(spec: Spec, kind: type) -> None:
    assert type(source(spec)) is kind


def test_kubernetes_needs_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ValueError, match="not in a Kubernetes cluster"):
        source(KubernetesSpec("vllm"))


def test_replicas_are_named_after_their_backend() -> None:
    assert replica("gpu", endpoint("http://10.0.0.1:8000/v1")) == "gpu/10.0.0.1:8000"


@WITH_CLOCK
async def test_a_file_is_followed_for_real(tmp_path: Path) -> None:
    """Nothing stands in for anything: the loop's own sleep, threads and clock."""
    path = tmp_path / "gpus.yaml"
    path.write_text("[http://a]")
    taken = Taken()
    async with asyncio.TaskGroup() as group:
        discovery = Discovery(group, taken.changed)
        discovery.follow({"gpu": FileSpec(path, interval_s=0.01)})
        await eventually(lambda: taken.replicas == {"gpu": (A,)})
        path.with_suffix(".new").write_text("[http://a, http://b]")
        path.with_suffix(".new").rename(path)
        await eventually(lambda: taken.replicas == {"gpu": (A, B)})
        discovery.stop()
