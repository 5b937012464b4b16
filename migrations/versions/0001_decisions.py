"""Decisions: one row for each request."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001_decisions"
down_revision = None


def upgrade() -> None:
    """Creates the table and its indexes."""
    op.create_table(
        "decisions",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False, comment="when the request came; seconds since 1970"),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key_name", sa.Text(), nullable=False),
        sa.Column("requested_model", sa.Text(), comment="null: none was named, or what was named could be no model"),
        sa.Column("served_model", sa.Text(), comment="null: it never came to a model"),
        sa.Column("backend", sa.Text()),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("propensity", sa.Double(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("status", sa.Integer(), comment="null: the caller left before there was one"),
        sa.Column("outcome", sa.Text()),
        sa.Column("prompt_tokens", sa.BigInteger(), comment="null, like the other counts and the cost: not known"),
        sa.Column("cached_tokens", sa.BigInteger()),
        sa.Column("completion_tokens", sa.BigInteger()),
        sa.Column("cost_usd", sa.Double()),
        sa.Column("latency_s", sa.Double(), nullable=False, comment="until the answer, or the stream, had ended"),
        sa.Column("overhead_s", sa.Double(), comment="as in x-trilemma-overhead-ms; null: there was no answer"),
        sa.Column("events", sa.Integer(), nullable=False, comment="of a stream; several that came at once may count as one"),
        sa.Column("config_hash", sa.Text(), nullable=False),
    )
    op.create_index("decisions_by_time", "decisions", ["created", "id"])
    op.create_index("decisions_by_tenant", "decisions", ["tenant", "created", "id"])
    op.create_index("decisions_by_model", "decisions", ["served_model", "created", "id"])
