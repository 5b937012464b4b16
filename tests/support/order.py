"""The order of the test files."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]

# Those that take longest, by what they took once; it need not be exact.
LONGEST = (
    "real/test_faithful.py",
    "http/test_openapi.py",
    "learning/test_learner.py",
    "workers/test_processes.py",
    "store/test_degraded.py",
    "learning/test_serving.py",
    "bench/test_overhead.py",
    "http/test_cancellation.py",
    "http/test_limits.py",
    "http/test_decisions.py",
    "http/test_timeouts.py",
    "http/test_feedback.py",
    "pool/test_http1.py",
    "store/test_process.py",
    "engines/test_packaged.py",
    "engines/test_llama_server.py",
    "real/test_lifecycle.py",
    "loadtests/test_affinity.py",
    "loadtests/test_peers.py",
    "load/test_run.py",
    "bench/test_routing.py",
    "test_serve_process.py",
    "learning/test_explaining.py",
    "http/test_admin_policies.py",
    "http/test_erasure.py",
    "http/test_routing_reports.py",
    "http/test_route.py",
    "clients/test_openai_python.py",
    "engines/test_supervisor.py",
)


def longest_first(file: Path) -> int:
    """A file's place, to sort by; the files that are not named stay in the order that they have."""
    name = str(file.relative_to(TESTS))
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)
