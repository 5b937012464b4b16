"""What a strategy tried for a decision."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004_strategies"
down_revision = "0003_learning"


def upgrade() -> None:
    """Adds a column."""
    comment = "JSON: a strategy's candidates, and why one of them won; null: one call"
    op.add_column("decisions", sa.Column("tried", sa.Text(), comment=comment))
