"""The families of metrics that the gateway exposes: name, labels, and how the numbers of several processes become one.

Seconds and base units. Labels come from configured names, else they are `other`; never a key, a path or a caller's word.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram", "info"]
Merge = Literal["sum", "max", "min"]


class Family(msgspec.Struct, frozen=True):
    """One family. name: without the `_total` of a counter and the `_info` of an info. bounds: upper ends of a histogram's bins, without the
    last. merge: of a gauge's values in several processes; counters and histograms are added up."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    merge: Merge = "sum"


_FAST: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_SLOW: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_WAIT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_PACE: Final = (0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
_LATE: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

REQUESTS: Final = Family(
    "trilemma_requests",
    "counter",
    "Inference requests that ended. model: as asked for, an alias as its model; status_class: none, if the caller left before an answer.",
    ("route", "model", "strategy", "status_class", "error_type"),
)
CANDIDATES: Final = Family(
    "trilemma_candidates",
    "counter",
    "Candidates of strategies. outcome: won, lost, failed, or cancelled when nobody waited for them any more.",
    ("strategy", "outcome"),
)
VERDICTS: Final = Family(
    "trilemma_verdicts",
    "counter",
    "Choices of judges between answers side by side, drawn by lot or in both orders. shown: how many; place: of the one chosen, from 1.",
    ("strategy", "shown", "place"),
)
DURATION: Final = Family(
    "trilemma_request_duration_seconds", "histogram", "From a request's head to the end of its answer.", ("route", "model"), _SLOW
)
OVERHEAD: Final = Family(
    "trilemma_overhead_seconds",
    "histogram",
    "Time spent in the gateway itself, up to the head of the answer. phase: before the call to the backend, after the answer was at hand; "
    "other: of requests with no call, or several.",
    ("phase",),
    _FAST,
)
TTFT: Final = Family(
    "trilemma_time_to_first_token_seconds", "histogram", "Of streams: from the request's head to the first event.", ("model",), _WAIT
)
TPOT: Final = Family(
    "trilemma_time_per_output_token_seconds",
    "histogram",
    "Of streams that ended well: from the first event to the end, for each token but the first.",
    ("model",),
    _PACE,
)
UPSTREAM: Final = Family("trilemma_upstream_requests", "counter", "Calls to backends that ended.", ("backend", "outcome", "purpose"))
UPSTREAM_DURATION: Final = Family(
    "trilemma_upstream_duration_seconds", "histogram", "From a call to a backend to the end of its answer.", ("backend",), _SLOW
)
TOKENS: Final = Family(
    "trilemma_tokens",
    "counter",
    "Tokens as backends told. type: input (not cached), cached_input, output; together they are all.",
    ("model", "type", "purpose"),
)
COST: Final = Family("trilemma_cost", "counter", "Cost of those tokens, USD.", ("model", "purpose"))
DECISIONS: Final = Family(
    "trilemma_decisions",
    "counter",
    "Plans drawn. arm: the plan; explored: not the one that the policy likes best.",
    ("policy", "arm", "explored"),
)
DECISION: Final = Family(
    "trilemma_decision_seconds",
    "histogram",
    "From a request that was read to the plan that runs it: features, filters, scores, draw.",
    ("policy",),
    _FAST,
)
UNDECIDED: Final = Family(
    "trilemma_decisions_failed",
    "counter",
    "Decisions that a policy did not make, so that the baseline served. reason: features_late, failed.",
    ("policy", "reason"),
)
DISCONNECTS: Final = Family("trilemma_client_disconnects", "counter", "Callers that left before their answer was whole.")
RETRIES: Final = Family("trilemma_client_retries", "counter", "Requests that a client library says it sends again.")
HEDGES: Final = Family("trilemma_hedges", "counter", "Second calls to another replica. won: it gave the answer.", ("model", "won"))
FALLBACKS: Final = Family("trilemma_fallbacks", "counter", "Requests that another model served than the first one tried.", ("from", "to"))
FEEDBACK: Final = Family(
    "trilemma_feedback",
    "counter",
    "Feedback taken; what was said before counts no second time. metric: quality, a verdict's own name, or other.",
    ("metric",),
)

LEARNED: Final = Family("trilemma_outcomes_folded", "counter", "Outcomes that this process made part of what policies know.")
UNLEARNED: Final = Family("trilemma_outcomes_waiting", "gauge", "Outcomes that no policy knows yet, as last seen.", merge="max")
LEARNED_AT: Final = Family(
    "trilemma_snapshot_version", "gauge", "Of what a policy knows, in the process that has the newest.", ("scope",), merge="max"
)

IN_FLIGHT: Final = Family("trilemma_inflight", "gauge", "Calls to a backend that run.", ("backend",))
UP: Final = Family(
    "trilemma_backend_up", "gauge", "1: it has answered, and its breaker is not open; the lowest of all workers.", ("backend",), merge="min"
)
BREAKER: Final = Family(
    "trilemma_breaker_state", "gauge", "0: closed, 1: half open, 2: open; the highest of all workers.", ("backend",), merge="max"
)
CHANGED: Final = Family(
    "trilemma_backend_changed", "gauge", "1: another model than at first answers for a name of it.", ("backend",), merge="max"
)
PROBE_AGE: Final = Family("trilemma_probe_age_seconds", "gauge", "Since the last probe of a backend ended.", ("backend",), merge="max")
QUEUE_WAITING: Final = Family("trilemma_queue_waiting", "gauge", "Calls that wait in front of a model.", ("model",))
QUEUE_RUNNING: Final = Family("trilemma_queue_running", "gauge", "Calls of a model with a queue that run.", ("model",))
DECODE: Final = Family(
    "trilemma_decode_tokens_per_second",
    "gauge",
    "Tokens sampled by a pool, a configured backend with all its replicas: of the calls that ended in the last 30 seconds.",
    ("pool",),
)
CONNECTIONS: Final = Family("trilemma_connections", "gauge", "Open sockets. side: clients, backends.", ("side",))
LOG_WAITING: Final = Family("trilemma_outcome_log_waiting", "gauge", "Rows that are not in the database yet.")
LOG_DROPPED: Final = Family("trilemma_outcome_log_dropped", "counter", "Rows that were dropped because too many waited.")
SPANS: Final = Family(
    "trilemma_spans",
    "counter",
    "Spans. outcome: exported, failed (the collector did not take them), dropped (too many waited).",
    ("outcome",),
)
LOOP_LAG: Final = Family("trilemma_loop_lag_seconds", "gauge", "How late the event loop was: the most in the last 10 seconds.", merge="max")
LOOP_DELAY: Final = Family("trilemma_loop_delay_seconds", "histogram", "How late the event loop was, ten times a second.", (), _LATE)
CONFIG: Final = Family("trilemma_config", "info", "The configuration in use.", ("hash",), merge="max")
RELOAD_FAILURES: Final = Family("trilemma_config_reload_failures", "counter", "Reloads that changed nothing because something was wrong.")
BUILD: Final = Family("trilemma_build", "info", "The gateway.", ("version", "python"), merge="max")

CPU: Final = Family("process_cpu_seconds", "counter", "User and system CPU time.")
RSS: Final = Family("process_resident_memory_bytes", "gauge", "Resident memory.")
VIRTUAL: Final = Family("process_virtual_memory_bytes", "gauge", "Virtual memory.")
STARTED: Final = Family("process_start_time_seconds", "gauge", "Start, seconds since 1970.", merge="min")
FDS: Final = Family("process_open_fds", "gauge", "Open file descriptors.")
MAX_FDS: Final = Family("process_max_fds", "gauge", "Most open file descriptors.", merge="min")

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        family.name: family
        for family in (
            REQUESTS, DURATION, OVERHEAD, TTFT, TPOT, UPSTREAM, UPSTREAM_DURATION, TOKENS, COST, DECISIONS, DISCONNECTS, RETRIES, HEDGES,
            CANDIDATES, VERDICTS, FALLBACKS, FEEDBACK, DECISION, UNDECIDED, LEARNED, UNLEARNED, LEARNED_AT, IN_FLIGHT, UP, BREAKER, CHANGED,
            PROBE_AGE, QUEUE_WAITING, QUEUE_RUNNING, DECODE, CONNECTIONS,
            LOG_WAITING, LOG_DROPPED, SPANS, LOOP_LAG, LOOP_DELAY, CONFIG, RELOAD_FAILURES, BUILD, CPU, RSS, VIRTUAL, STARTED, FDS,
            MAX_FDS,
        )
    }
)  # fmt: skip
"""All of them by name, in the order in which they are shown."""
