from __future__ import annotations

import pytest

from gateway.importing.reasons import Section, of


@pytest.mark.parametrize(
    ("section", "key", "kind", "words"),
    [
        ("router_settings", "redis_host", "unneeded", "Redis"),
        ("router_settings", "retry_policy", "lost", "attempts"),
        ("litellm_settings", "success_callback", "lost", "storage"),
        ("litellm_settings", "drop_params", "lost", "as they came"),
        ("litellm_settings", "openai_api_key", "todo", "not copied"),
        ("general_settings", "database_url", "unneeded", "keys stand in this file"),
        ("general_settings", "max_parallel_requests", "todo", "concurrency"),
        ("general_settings", "global_max_parallel_requests", "lost", "over all callers"),
        ("general_settings", "token_rate_limit_type", "changed", "together"),
        ("litellm_params", "default_api_key_rpm_limit", "lost", "per model of a key"),
        ("general_settings", "alerting", "lost", "alerts"),
        ("general_settings", "store_model_in_db", "todo", "by hand"),
        ("litellm_params", "temperature", "lost", "a relay adds nothing"),
        ("litellm_params", "input_cost_per_second", "lost", "prices"),
        ("model_info", "supports_audio_input", "unneeded", "capabilities"),
        ("model_info", "owner", "unneeded", "a note"),
        ("", "guardrails", "lost", "nothing looks into"),
        ("router_settings", "no_such_thing", "lost", "there is no such setting"),
    ],
)
def test_reasons(section: Section, key: str, kind: str, words: str) -> None:
    found, message = of(section, key)
    assert found == kind
    assert words in message
