"""The tables. Ids, numbers, hashes and names, never a word of a prompt or an answer, but in `contents`, which is filled only on demand.

decisions        one row for each request
  calls          what was asked of backends for it, one row each
  outcomes       what is known of how good it was
  feedback       what callers said of it, also before its row is there
  contents       its prompt and answer, when that is switched on
keys             who may call, beside those of the configuration
config_versions  the configurations that were taken up
audit            who changed what
leases           what a process may spend of a limit that several share

Indexes of what is listed end in (created, id), so that the newest rows are read from their end, page by page, by the last key seen. What
belongs to a decision is found by its id, which begins with its time.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)

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
    Column("policy_version", Integer, comment="null: the policy has no versions"),
    Column("plan", Text, comment="null: no policy chose one"),
    Column("explored", Boolean, comment="the draw was not the policy's favourite"),
    Column("code", Text, comment="of the error that the gateway answered with"),
    Column("session", Text, comment="keyed hash of tenant and session id"),
    Column("tags", Text, comment="JSON object of names"),
    Column("learn", Boolean, comment="false: the caller asked that no policy learns from it"),
    Column("usage_estimated", Boolean, comment="the counts were made here, for the backend never told"),
    Column("first_s", Double, comment="until the answer was at hand, or the first event of a stream"),
    Column("features", LargeBinary, comment="the vector that the policy saw, float32, little-endian"),
    Column("feature_version", Text),
    Column("decided", Text, comment="JSON: what else was weighed"),
    Column("snapshot", Integer, comment="version of what the policy had learnt; null: it does not learn"),
    Column("unit", Text, comment="keyed hash of what stays together in an experiment"),
    Column("first_turn", Boolean, comment="nothing of its conversation was decided before"),
    Column("tried", Text, comment="JSON: a strategy's candidates, and why one of them won; null: one call"),
    Index("decisions_by_time", "created", "id"),
    Index("decisions_by_tenant", "tenant", "created", "id"),
    Index("decisions_by_key", "key_name", "created", "id"),
    Index("decisions_by_model", "served_model", "created", "id"),
    Index("decisions_by_policy", "policy", "created", "id"),
    Index("decisions_by_outcome", "outcome", "created", "id"),
    Index("decisions_by_session", "session", "created", "id"),
)

calls = Table(
    "calls",
    metadata,
    Column("decision_id", Text, nullable=False),
    Column("n", Integer, nullable=False, comment="0, 1, ... in the order in which they began"),
    Column("purpose", Text, nullable=False, comment="served, candidate, judge, scorer or shadow"),
    Column("backend", Text, nullable=False),
    Column("model", Text, nullable=False, comment="its public name"),
    Column("status", Integer, comment="null: the backend never answered"),
    Column("outcome", Text, comment="ok, caller_error, backend_error or cancelled"),
    Column("fault", Text, comment="what the breaker was told"),
    Column("prompt_tokens", BigInteger, comment="null, like the other counts and the cost: not known"),
    Column("cached_tokens", BigInteger),
    Column("completion_tokens", BigInteger),
    Column("usage_estimated", Boolean, comment="the counts were made here, for the backend never told"),
    Column("cost_usd", Double),
    Column("start_ms", Double, nullable=False, comment="since the request came"),
    Column("first_ms", Double, comment="since the request came; the answer was at hand, or the first event of a stream"),
    Column("end_ms", Double, comment="since the request came"),
    PrimaryKeyConstraint("decision_id", "n"),
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("decision_id", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("value", Double, nullable=False),
    Column("labelling_probability", Double, nullable=False, comment="that such a decision gets a value from this source"),
    Column("created", Double, nullable=False, comment="seconds since 1970"),
    PrimaryKeyConstraint("decision_id", "metric", "source"),
)

feedback = Table(
    "feedback",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("id", Text, nullable=False, comment="the caller's, else one of our own; of one tenant, not of all"),
    Column("decision_id", Text, nullable=False, comment="its row may not be there yet"),
    Column("metric", Text, nullable=False),
    Column("value", Double),
    Column("verdict", Text),
    Column("key_name", Text, nullable=False),
    Column("weight", Double, nullable=False),
    Column("created", Double, nullable=False, comment="seconds since 1970"),
    PrimaryKeyConstraint("tenant", "id"),
    Index("feedback_by_decision", "decision_id"),
)

contents = Table(
    "contents",
    metadata,
    Column("decision_id", Text, primary_key=True),
    Column("prompt", Text, nullable=False),
    Column("answer", Text, comment="null: there was none, or it was not collected"),
    Column("truncated", Boolean, nullable=False, comment="one of them was longer than is kept"),
)

to_learn = Table(
    "to_learn",
    metadata,
    Column("decision_id", Text, nullable=False, comment="its row may not be there yet"),
    Column("metric", Text, nullable=False),
    Column("created", Double, nullable=False, comment="when it was last said; seconds since 1970"),
    Column("due", Double, nullable=False, comment="when to look at it again, if it had to wait; seconds since 1970"),
    PrimaryKeyConstraint("decision_id", "metric"),
    Index("to_learn_by_due", "due", "decision_id"),
)

learned = Table(
    "learned",
    metadata,
    Column("decision_id", Text, nullable=False),
    Column("policy", Text, nullable=False, comment="VIRTUAL_MODEL/POLICY"),
    Column("metric", Text, nullable=False),
    Column("version", Integer, nullable=False, comment="of policy_states, since which it is known"),
    Column("n", Integer, nullable=False, comment="place within that version"),
    Column("quality", Double, comment="null: it was taken back"),
    Column("weight", Double, nullable=False),
    Column("before", Double, comment="what had been learnt until then; null: nothing"),
    Column("weight_before", Double, nullable=False),
    PrimaryKeyConstraint("decision_id", "policy", "metric", "version"),
    Index("learned_by_version", "policy", "version", "n"),
)

to_retract = Table(
    "to_retract",
    metadata,
    Column("decision_id", Text, nullable=False),
    Column("policy", Text, nullable=False, comment="VIRTUAL_MODEL/POLICY"),
    Column("metric", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("features", LargeBinary),
    Column("feature_version", Text),
    Column("quality", Double, nullable=False, comment="as it was learnt"),
    Column("weight", Double, nullable=False),
    Column("propensity", Double, nullable=False),
    Column("at", Double, nullable=False, comment="when it was decided; seconds since 1970"),
    Column("cost_usd", Double),
    Column("latency_s", Double, nullable=False),
    Column("decided", Text, comment="as of decisions"),
    Column("created", Double, nullable=False, comment="when it was erased; seconds since 1970"),
    PrimaryKeyConstraint("decision_id", "policy", "metric"),
)

policy_states = Table(
    "policy_states",
    metadata,
    Column("policy", Text, nullable=False, comment="VIRTUAL_MODEL/POLICY"),
    Column("version", Integer, nullable=False, comment="1, 2, ..."),
    Column("created", Double, nullable=False, comment="seconds since 1970"),
    Column("kind", Text, nullable=False, comment="full"),
    Column("config_hash", Text, nullable=False, comment="of who folded it"),
    Column("plans", Text, nullable=False, comment="JSON array of names"),
    Column("feature_version", Text, nullable=False, comment="names and sizes of the blocks that it reads: shape-1:24,static-1:64"),
    Column("state", LargeBinary, nullable=False, comment="numpy's npz"),
    Column("observations", BigInteger, nullable=False, comment="decisions that are in it"),
    Column("data_from", Double, comment="when the first of them was decided; seconds since 1970"),
    Column("data_to", Double, comment="when the last of them was decided; seconds since 1970"),
    Column("note", Text, comment="why it is not the one before and what came since; null: it is"),
    PrimaryKeyConstraint("policy", "version"),
)

keys = Table(
    "keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True, comment="what rows, logs and metrics call it"),
    Column("sha256", Text, nullable=False, unique=True, comment="digest of the key, hex"),
    Column("scopes", Text, nullable=False, comment="JSON array"),
    Column("tenant", Text, nullable=False),
    Column("models", Text, nullable=False, comment="JSON array of names and patterns"),
    Column("tags", Text, nullable=False, comment="JSON object of names"),
    Column("priority", Text, nullable=False),
    Column("rpm", Integer, comment="requests a minute; null: no limit"),
    Column("tpm", BigInteger, comment="tokens a minute; null: no limit"),
    Column("concurrency", Integer, comment="null: no limit"),
    Column("expires", Double, comment="seconds since 1970; null: never"),
    Column("created", Double, nullable=False, comment="seconds since 1970"),
    Column("revoked", Double, comment="seconds since 1970; null: it is good"),
    Column("changed", BigInteger, nullable=False, unique=True, comment="changes of any key so far, when this one was last changed"),
)

config_versions = Table(
    "config_versions",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False, comment="1, 2, ..."),
    Column("hash", Text, nullable=False),
    Column("created", Double, nullable=False, comment="seconds since 1970"),
    Column("by_key", Text, comment="name of the key that brought it; null: it stood in the file"),
    Column("text", Text, comment="null: it held secrets"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created", Double, nullable=False, comment="seconds since 1970"),
    Column("key_name", Text, nullable=False, comment="who"),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("before_hash", Text),
    Column("after_hash", Text),
    Column("detail", Text, comment="JSON object without secrets"),
    Index("audit_by_time", "created", "id"),
)

leases = Table(
    "leases",
    metadata,
    Column("subject", Text, nullable=False, comment="whose limit"),
    Column("kind", Text, nullable=False, comment="which limit"),
    Column("window", BigInteger, nullable=False, comment="when the limit's time began; seconds since 1970, 0 for one without"),
    Column("holder", Text, nullable=False, comment="the process"),
    Column("amount", Double, nullable=False),
    Column("expires", Double, nullable=False, comment="seconds since 1970"),
    PrimaryKeyConstraint("subject", "kind", "window", "holder"),
    Index("leases_by_expiry", "expires"),
)
