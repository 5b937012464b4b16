"""What the tables hold is shown by what is migrated (test_migrate.py) and asked (test_queries.py); here, what they must not."""

from __future__ import annotations

from sqlalchemy import Text

from gateway.store.tables import metadata

# What a text may be: an id, a hash, a name that a configuration gives or that is checked to be one, or one of a few words.
IDS = {"id", "request_id", "decision_id", "session", "unit", "holder", "subject", "target"}
HASHES = {"config_hash", "hash", "before_hash", "after_hash", "sha256"}
NAMES = {
    "tenant",
    "key_name",
    "by_key",
    "name",
    "requested_model",
    "served_model",
    "model",
    "backend",
    "policy",
    "plan",
    "strategy",
    "feature_version",
    "metric",
}
WORDS = {"outcome", "code", "purpose", "fault", "verdict", "source", "priority", "action", "kind"}
JSON = {"tags", "scopes", "models", "detail", "decided", "plans", "tried"}


def test_no_text_of_prompts_or_answers_has_a_place() -> None:
    """A new column of text is a decision to be taken here."""
    texts = {(table.name, column.name) for table in metadata.sorted_tables for column in table.columns if isinstance(column.type, Text)}
    assert {name for name in texts if name[1] not in IDS | HASHES | NAMES | WORDS | JSON} == {
        ("contents", "prompt"),
        ("contents", "answer"),
        ("config_versions", "text"),
        ("policy_states", "note"),
    }
