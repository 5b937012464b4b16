"""The tables. Ids, numbers and names only: never the text of a prompt or an answer.

Indexes end in (created, id), so that the newest rows of a tenant or a model are read from their end, page by page, by the last key seen.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Table, Text

metadata = MetaData()

decisions = Table(
    "decisions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("request_id", Text, nullable=False),
    Column("created", Double, nullable=False, comment="when the request came; seconds since 1970"),
    Column("tenant", Text, nullable=False),
    Column("key_name", Text, nullable=False),
    Column("requested_model", Text, comment="null: none was named, or what was named could be no model"),
    Column("served_model", Text, comment="null: it never came to a model"),
    Column("backend", Text),
    Column("policy", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("propensity", Double, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("status", Integer, comment="null: the caller left before there was one"),
    Column("outcome", Text),
    Column("prompt_tokens", BigInteger, comment="null, like the other counts and the cost: not known"),
    Column("cached_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("cost_usd", Double),
    Column("latency_s", Double, nullable=False, comment="until the answer, or the stream, had ended"),
    Column("overhead_s", Double, comment="as in x-trilemma-overhead-ms; null: there was no answer"),
    Column("events", Integer, nullable=False, comment="of a stream; several that came at once may count as one"),
    Column("config_hash", Text, nullable=False),
    Index("decisions_by_time", "created", "id"),
    Index("decisions_by_tenant", "tenant", "created", "id"),
    Index("decisions_by_model", "served_model", "created", "id"),
)
