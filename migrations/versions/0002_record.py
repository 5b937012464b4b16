"""The rest of the record: more of each decision, its calls, outcomes, feedback and contents; keys, configurations, changes and leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002_record"
down_revision = "0001_decisions"


def upgrade() -> None:
    """Adds columns, tables and indexes."""
    _decisions()
    _of_a_decision()
    _administration()
    op.create_table(
        "leases",
        sa.Column("subject", sa.Text(), nullable=False, comment="whose limit"),
        sa.Column("kind", sa.Text(), nullable=False, comment="which limit"),
        sa.Column("window", sa.BigInteger(), nullable=False, comment="when the limit's time began; seconds since 1970, 0 for one without"),
        sa.Column("holder", sa.Text(), nullable=False, comment="the process"),
        sa.Column("amount", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False, comment="seconds since 1970"),
        sa.PrimaryKeyConstraint("subject", "kind", "window", "holder"),
    )
    op.create_index("leases_by_expiry", "leases", ["expires"])


def _decisions() -> None:
    for column in (
        sa.Column("policy_version", sa.Integer(), comment="null: the policy has no versions"),
        sa.Column("plan", sa.Text(), comment="null: no policy chose one"),
        sa.Column("explored", sa.Boolean(), comment="the draw was not the policy's favourite"),
        sa.Column("code", sa.Text(), comment="of the error that the gateway answered with"),
        sa.Column("session", sa.Text(), comment="keyed hash of tenant and session id"),
        sa.Column("tags", sa.Text(), comment="JSON object of names"),
        sa.Column("learn", sa.Boolean(), comment="false: the caller asked that no policy learns from it"),
        sa.Column("usage_estimated", sa.Boolean(), comment="the counts were made here, for the backend never told"),
        sa.Column("first_s", sa.Double(), comment="until the answer was at hand, or the first event of a stream"),
        sa.Column("features", sa.LargeBinary(), comment="the vector that the policy saw, float32, little-endian"),
        sa.Column("feature_version", sa.Text()),
    ):
        op.add_column("decisions", column)
    for name, column in (("key", "key_name"), ("policy", "policy"), ("outcome", "outcome"), ("session", "session")):
        op.create_index(f"decisions_by_{name}", "decisions", [column, "created", "id"])


def _of_a_decision() -> None:
    op.create_table(
        "calls",
        sa.Column("decision_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False, comment="0, 1, ... in the order in which they began"),
        sa.Column("purpose", sa.Text(), nullable=False, comment="served, candidate, judge, scorer or shadow"),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False, comment="its public name"),
        sa.Column("status", sa.Integer(), comment="null: the backend never answered"),
        sa.Column("outcome", sa.Text(), comment="ok, caller_error, backend_error or cancelled"),
        sa.Column("fault", sa.Text(), comment="what the breaker was told"),
        sa.Column("prompt_tokens", sa.BigInteger(), comment="null, like the other counts and the cost: not known"),
        sa.Column("cached_tokens", sa.BigInteger()),
        sa.Column("completion_tokens", sa.BigInteger()),
        sa.Column("usage_estimated", sa.Boolean(), comment="the counts were made here, for the backend never told"),
        sa.Column("cost_usd", sa.Double()),
        sa.Column("start_ms", sa.Double(), nullable=False, comment="since the request came"),
        sa.Column("first_ms", sa.Double(), comment="since the request came; the answer was at hand, or the first event of a stream"),
        sa.Column("end_ms", sa.Double(), comment="since the request came"),
        sa.PrimaryKeyConstraint("decision_id", "n"),
    )
    op.create_table(
        "outcomes",
        sa.Column("decision_id", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("labelling_probability", sa.Double(), nullable=False, comment="that such a decision gets a value from this source"),
        sa.Column("created", sa.Double(), nullable=False, comment="seconds since 1970"),
        sa.PrimaryKeyConstraint("decision_id", "metric", "source"),
    )
    op.create_table(
        "feedback",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False, comment="the caller's, else one of our own; of one tenant, not of all"),
        sa.Column("decision_id", sa.Text(), nullable=False, comment="its row may not be there yet"),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("verdict", sa.Text()),
        sa.Column("key_name", sa.Text(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False, comment="seconds since 1970"),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_index("feedback_by_decision", "feedback", ["decision_id"])
    op.create_table(
        "contents",
        sa.Column("decision_id", sa.Text(), primary_key=True),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), comment="null: there was none, or it was not collected"),
        sa.Column("truncated", sa.Boolean(), nullable=False, comment="one of them was longer than is kept"),
    )


def _administration() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True, comment="what rows, logs and metrics call it"),
        sa.Column("sha256", sa.Text(), nullable=False, unique=True, comment="digest of the key, hex"),
        sa.Column("scopes", sa.Text(), nullable=False, comment="JSON array"),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("models", sa.Text(), nullable=False, comment="JSON array of names and patterns"),
        sa.Column("tags", sa.Text(), nullable=False, comment="JSON object of names"),
        sa.Column("priority", sa.Text(), nullable=False),
        sa.Column("rpm", sa.Integer(), comment="requests a minute; null: no limit"),
        sa.Column("tpm", sa.BigInteger(), comment="tokens a minute; null: no limit"),
        sa.Column("concurrency", sa.Integer(), comment="null: no limit"),
        sa.Column("expires", sa.Double(), comment="seconds since 1970; null: never"),
        sa.Column("created", sa.Double(), nullable=False, comment="seconds since 1970"),
        sa.Column("revoked", sa.Double(), comment="seconds since 1970; null: it is good"),
        sa.Column(
            "changed", sa.BigInteger(), nullable=False, unique=True, comment="changes of any key so far, when this one was last changed"
        ),
    )
    op.create_table(
        "config_versions",
        sa.Column("version", sa.Integer(), primary_key=True, autoincrement=False, comment="1, 2, ..."),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False, comment="seconds since 1970"),
        sa.Column("by_key", sa.Text(), comment="name of the key that brought it; null: it stood in the file"),
        sa.Column("text", sa.Text(), comment="null: it held secrets"),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("created", sa.Double(), nullable=False, comment="seconds since 1970"),
        sa.Column("key_name", sa.Text(), nullable=False, comment="who"),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("before_hash", sa.Text()),
        sa.Column("after_hash", sa.Text()),
        sa.Column("detail", sa.Text(), comment="JSON object without secrets"),
    )
    op.create_index("audit_by_time", "audit", ["created", "id"])
