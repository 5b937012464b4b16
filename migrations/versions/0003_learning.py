"""What policies learn: more of each decision, what is to be learnt and taken back, what was learnt, and what they know."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_learning"
down_revision = "0002_record"


def upgrade() -> None:
    """Adds columns, tables and indexes."""
    for column in (
        sa.Column("decided", sa.Text(), comment="JSON: what else was weighed"),
        sa.Column("snapshot", sa.Integer(), comment="version of what the policy had learnt; null: it does not learn"),
        sa.Column("unit", sa.Text(), comment="keyed hash of what stays together in an experiment"),
        sa.Column("first_turn", sa.Boolean(), comment="nothing of its conversation was decided before"),
    ):
        op.add_column("decisions", column)
    _learning()
    op.create_table(
        "policy_states",
        sa.Column("policy", sa.Text(), nullable=False, comment="VIRTUAL_MODEL/POLICY"),
        sa.Column("version", sa.Integer(), nullable=False, comment="1, 2, ..."),
        sa.Column("created", sa.Double(), nullable=False, comment="seconds since 1970"),
        sa.Column("kind", sa.Text(), nullable=False, comment="full"),
        sa.Column("config_hash", sa.Text(), nullable=False, comment="of who folded it"),
        sa.Column("plans", sa.Text(), nullable=False, comment="JSON array of names"),
        sa.Column(
            "feature_version", sa.Text(), nullable=False, comment="names and sizes of the blocks that it reads: shape-1:24,static-1:64"
        ),
        sa.Column("state", sa.LargeBinary(), nullable=False, comment="numpy's npz"),
        sa.Column("observations", sa.BigInteger(), nullable=False, comment="decisions that are in it"),
        sa.Column("data_from", sa.Double(), comment="when the first of them was decided; seconds since 1970"),
        sa.Column("data_to", sa.Double(), comment="when the last of them was decided; seconds since 1970"),
        sa.Column("note", sa.Text(), comment="why it is not the one before and what came since; null: it is"),
        sa.PrimaryKeyConstraint("policy", "version"),
    )


def _learning() -> None:
    op.create_table(
        "to_learn",
        sa.Column("decision_id", sa.Text(), nullable=False, comment="its row may not be there yet"),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False, comment="when it was last said; seconds since 1970"),
        sa.Column("due", sa.Double(), nullable=False, comment="when to look at it again, if it had to wait; seconds since 1970"),
        sa.PrimaryKeyConstraint("decision_id", "metric"),
    )
    op.create_index("to_learn_by_due", "to_learn", ["due", "decision_id"])
    op.create_table(
        "learned",
        sa.Column("decision_id", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False, comment="VIRTUAL_MODEL/POLICY"),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, comment="of policy_states, since which it is known"),
        sa.Column("n", sa.Integer(), nullable=False, comment="place within that version"),
        sa.Column("quality", sa.Double(), comment="null: it was taken back"),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("before", sa.Double(), comment="what had been learnt until then; null: nothing"),
        sa.Column("weight_before", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("decision_id", "policy", "metric", "version"),
    )
    op.create_index("learned_by_version", "learned", ["policy", "version", "n"])
    op.create_table(
        "to_retract",
        sa.Column("decision_id", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False, comment="VIRTUAL_MODEL/POLICY"),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("features", sa.LargeBinary()),
        sa.Column("feature_version", sa.Text()),
        sa.Column("quality", sa.Double(), nullable=False, comment="as it was learnt"),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("propensity", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False, comment="when it was decided; seconds since 1970"),
        sa.Column("cost_usd", sa.Double()),
        sa.Column("latency_s", sa.Double(), nullable=False),
        sa.Column("decided", sa.Text(), comment="as of decisions"),
        sa.Column("created", sa.Double(), nullable=False, comment="when it was erased; seconds since 1970"),
        sa.PrimaryKeyConstraint("decision_id", "policy", "metric"),
    )
