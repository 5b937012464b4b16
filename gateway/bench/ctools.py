"""The C programs of loadtests/c: compiled once per source, and the load generator as a function.

A Python load generator would cost more than the gateway it loads; these cost about as much as nginx.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

import gateway

CHAT = "/v1/chat/completions"
NAMES = ("mock", "lg")
FLAGS = ("-O2", "-std=gnu11", "-Wall")
_GRACE_S = 30.0  # what the load generator may take beyond its own limit


class BenchError(Exception):
    """The benchmark cannot run here; the text says why and what would help."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Paths of the compiled programs, and the SHA-256 of each source."""

    mock: Path
    lg: Path
    digests: dict[str, str]


@dataclass(frozen=True, slots=True)
class Load:
    """One closed-loop load: `requests` requests over `connections` connections. `usage`: ask for usage in streams."""

    model: str
    connections: int
    requests: int
    stream: bool = False
    usage: bool = True
    path: str = CHAT


class LoadResult(msgspec.Struct, frozen=True):
    """What the load generator saw. Times in ms; `events` counts "data:" lines, `reads` the reads that brought some."""

    n: int
    err: int
    sec: float
    rps: float
    bytes: int
    events: int
    reads: int
    p50: float
    p90: float
    p99: float
    max: float
    ttft50: float
    ttft99: float
    gap50: float
    gap99: float


def sources() -> Path:
    """The folder of the C sources. Raises BenchError when the product was installed without them."""
    folder = Path(gateway.__file__).resolve().parent.parent / "loadtests" / "c"
    if not all((folder / f"{name}.c").is_file() for name in NAMES):
        raise BenchError(
            f"the overhead suite compiles loadtests/c, which is not part of an installed wheel ({folder} lacks it): "
            "run it from a clone of the repository"
        )
    return folder


def compile_tools(cache: Path | None = None) -> Tools:
    """Compile what the cache folder does not hold yet (default: $XDG_CACHE_HOME/trilemma/bench). Raises BenchError."""
    if not Path("/proc/self/stat").exists():
        raise BenchError("the overhead suite needs Linux: epoll and /proc")
    folder = sources()
    cache = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trilemma" / "bench"
    digests = {f"{name}.c": hashlib.sha256((folder / f"{name}.c").read_bytes()).hexdigest() for name in NAMES}
    mock, lg = (_compiled(folder / f"{name}.c", digests[f"{name}.c"], cache) for name in NAMES)
    return Tools(mock, lg, digests)


def _compiled(source: Path, digest: str, cache: Path) -> Path:
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        raise BenchError("no C compiler: install one (Debian: apt-get install gcc libc6-dev) or name it in CC")
    build = hashlib.sha256(" ".join([digest, compiler, *FLAGS]).encode()).hexdigest()[:16]
    target = cache / f"{source.stem}-{build}"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        # Built aside and moved into place, so that no other run ever starts half a file.
        fresh = Path(scratch) / source.stem
        command = [compiler, *FLAGS, "-o", str(fresh), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the user's compiler
        if done.returncode != 0:
            raise BenchError(f"{compiler} cannot compile {source}:\n{done.stderr.strip()}")
        fresh.replace(target)
    return target


def run_load(lg: Path, port: int, key: str, load: Load, limit_s: float = 60.0) -> tuple[LoadResult, str]:
    """Run the load against 127.0.0.1:port; returns what was seen and the first error's description ("" if none)."""
    command = [str(lg), "-p", str(port), "-k", key, "-m", load.model, "-c", str(load.connections)]
    command += ["-n", str(load.requests), "-t", f"{limit_s:g}", "-a", load.path]
    command += ["-s"] * load.stream + ["-u"] * (not load.usage)
    done = subprocess.run(  # noqa: S603 - compiled above
        command, capture_output=True, text=True, timeout=limit_s + _GRACE_S, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"the load generator failed: {done.stderr.strip()}")
    return msgspec.json.decode(done.stdout, type=LoadResult), done.stderr.strip()
