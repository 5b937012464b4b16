"""The rows that the writer stores: of which tables, and the columns of each in order. Known without SQLAlchemy; a test compares.

A column of `tables.py` that is not named here is one that nothing is written to yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COLUMNS: Mapping[str, Sequence[str]] = {
    "decisions": (
        "id",
        "request_id",
        "created",
        "tenant",
        "key_name",
        "requested_model",
        "served_model",
        "backend",
        "policy",
        "plan",
        "strategy",
        "propensity",
        "explored",
        "attempts",
        "status",
        "outcome",
        "code",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "usage_estimated",
        "cost_usd",
        "first_s",
        "latency_s",
        "overhead_s",
        "events",
        "session",
        "tags",
        "learn",
        "config_hash",
        "features",
        "feature_version",
        "decided",
        "snapshot",
        "unit",
        "first_turn",
        "tried",
    ),
    "calls": (
        "decision_id",
        "n",
        "purpose",
        "backend",
        "model",
        "status",
        "outcome",
        "fault",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "usage_estimated",
        "cost_usd",
        "start_ms",
        "first_ms",
        "end_ms",
    ),
    "outcomes": ("decision_id", "metric", "source", "value", "labelling_probability", "created"),
    "feedback": ("tenant", "id", "decision_id", "metric", "value", "verdict", "key_name", "weight", "created"),
    "contents": ("decision_id", "prompt", "answer", "truncated"),
}

DECISION: Mapping[str, str] = {table: "id" if table == "decisions" else "decision_id" for table in (*COLUMNS, "to_learn", "learned")}
"""The tables of what belongs to decisions, and the column of each that holds the decision's id."""


def first_id(at: float) -> str:
    """The least decision id of requests that came at `at` (seconds since 1970) or later: ids begin with their time (UUIDv7)."""
    return f"{max(0, int(at * 1e3)):012x}"
