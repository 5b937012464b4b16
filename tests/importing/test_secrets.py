"""Keys planted wherever a key, a password or a token may stand: none of them comes out anywhere."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.importing.cli import main

Write = Callable[[str, str], Path]
CANARY = "canary"

CONFIG = """\
environment_variables:
  OPENAI_API_KEY: sk-canary-environment
  LANGFUSE_SECRET_KEY: canary-langfuse
credential_list:
  - credential_name: cluster
    credential_values: {api_key: sk-canary-credential, api_base: "https://canary:canary@cluster.test/v1?sig=canary"}
  - {credential_name: azure, credential_values: {api_key: canary, api_version: canary}}
  - {credential_values: {api_key: sk-canary-nameless}}
model_list:
  - model_name: literal
    litellm_params: {model: openai/a, api_base: "http://a.test/v1", api_key: sk-canary-literal, organization: org-canary}
    model_info: {id: canary-id, note: canary, custom_tokenizer: {auth_token: hf_canary}}
  - model_name: credential
    litellm_params: {model: hosted_vllm/b, litellm_credential_name: cluster, extra_headers: {Authorization: Bearer canary, X-Key: canary}}
  - model_name: address
    litellm_params: {model: openai/c, api_base: "http://canary:canary@c.test:8000/v1#canary", api_key: 12345canary}
  - model_name: broken address
    litellm_params: {model: openai/c, api_base: "canary:canary@c.test", api_key: sk-canary-broken}
  - model_name: azure
    litellm_params: {model: azure/d, api_base: "https://canary.test", api_key: sk-canary, azure_ad_token: canary, client_secret: canary}
  - model_name: bedrock
    litellm_params: {model: bedrock/e, aws_access_key_id: AKIACANARY, aws_secret_access_key: canary, aws_session_token: canary}
  - model_name: vertex
    litellm_params: {model: vertex_ai/f, vertex_credentials: {private_key: canary}}
  - model_name: pattern
    litellm_params: {model: "openai/*", api_key: sk-canary-pattern}
  - {litellm_params: {model: openai/g, api_key: sk-canary-nameless}}
  - {model_name: list, litellm_params: [sk-canary-list]}
  - sk-canary-entry
  - model_name: numbers
    litellm_params: {model: openai/h, api_base: "http://h.test/v1", timeout: canary, rpm: canary, input_cost_per_token: canary}
    model_info: {max_tokens: canary, mode: canary}
router_settings:
  routing_strategy: canary
  num_retries: canary
  redis_password: canary-redis
  redis_url: redis://:canary@redis.test
  cache_kwargs: {password: canary}
  fallbacks: [sk-canary-text, {literal: [{model: numbers, api_key: sk-canary-fallback}]}]
  model_group_alias: {alias: {model: literal, api_key: sk-canary-alias}}
litellm_settings:
  cache_params: {type: redis, password: canary-cache, s3_aws_secret_access_key: canary}
  openai_api_key: sk-canary-module
  callbacks: [canary]
  default_team_settings: [{team_id: t, langfuse_secret: canary}]
general_settings:
  master_key: sk-canary-master
  database_url: postgresql://canary:canary@db.test/litellm
  litellm_license: canary
  alert_to_webhook_url: {budget: https://hooks.test/canary}
  pass_through_endpoints: [{path: /x, target: https://x.test, headers: {Authorization: canary}}]
  unknown: {deep: [{secret: canary}]}
guardrails: [{guardrail_name: g, litellm_params: {api_key: sk-canary-guardrail}}]
unknown_section: sk-canary-unknown
"""

ROWS = [
    {"token": "a" * 64, "key_name": "sk-canary...x", "key_alias": "sk-canary-alias", "metadata": '{"secret": "canary"}', "models": "{}"},
    {"token": "sk-canary-in-clear", "key_name": "sk-...nary", "key_alias": "plain", "metadata": "{}", "models": "{}"},
    {"token": "canary-no-digest", "key_name": "", "key_alias": "broken", "metadata": "canary", "models": "{}"},
    {"token": "b" * 64, "key_name": "sk-canary", "key_alias": "expired", "metadata": "{}", "models": "{}", "expires": "2020-01-01"},
    {"token": "c" * 64, "key_name": "sk-canary", "key_alias": "odd", "metadata": "{}", "models": "{}", "expires": "canary"},
]
COLUMNS = ("token", "key_name", "key_alias", "metadata", "models", "expires", "config", "aliases")


def as_csv() -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, restval="")
    writer.writeheader()
    writer.writerows({**row, "config": '{"api_key": "canary"}', "aliases": '{"canary": "canary"}'} for row in ROWS)
    return buffer.getvalue()


def as_sql() -> str:
    rows = "".join("\t".join(row.get(column) or "\\N" for column in COLUMNS) + "\n" for row in ROWS)
    others = "COPY public.x (y) FROM stdin;\ncanary\n\\.\n"
    return f'COPY public."LiteLLM_VerificationToken" ({", ".join(COLUMNS)}) FROM stdin;\n{rows}\\.\n{others}'


@pytest.mark.parametrize(("name", "content"), [("k.csv", as_csv()), ("k.json", json.dumps(ROWS)), ("k.sql", as_sql())])
@pytest.mark.parametrize("as_json", [False, True])
def test_no_secret_comes_out(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, as_json: bool
) -> None:
    out = tmp_path / "out.yaml"
    argv = [
        "litellm",
        str(write("c.yaml", CONFIG)),
        "--keys",
        str(write(name, content)),
        "--out",
        str(out),
        *(["--json"] if as_json else []),
    ]
    assert main(argv, {"OPENAI_API_KEY": "sk-canary-process", "LITELLM_MASTER_KEY": "sk-canary-process"}) == 1
    told = capsys.readouterr()
    for text in (told.out, told.err, out.read_text()):
        assert CANARY not in text.lower(), [line for line in text.splitlines() if CANARY in line.lower()]
    assert "LITERAL_KEY" in out.read_text()
    assert "http://c.test:8000/v1" in out.read_text()


@pytest.mark.parametrize("cut", [*range(40, len(CONFIG), 97), CONFIG.index("sk-canary-literal") + 4])
def test_no_error_about_a_broken_file_shows_one(write: Write, capsys: pytest.CaptureFixture[str], cut: int) -> None:
    """The file breaks off, in mid-key at times."""
    main(["litellm", str(write("c.yaml", CONFIG[:cut] + "\n  'x"))], {})
    told = capsys.readouterr()
    assert CANARY not in (told.out + told.err).lower()


@pytest.mark.parametrize("cut", range(60, len(as_sql()), 41))
def test_no_error_about_a_broken_dump_shows_one(write: Write, capsys: pytest.CaptureFixture[str], cut: int) -> None:
    path = write("c.yaml", "model_list: [{model_name: a, litellm_params: {model: openai/a}}]\n")
    for name, content in (("k.sql", as_sql()), ("k.csv", as_csv()), ("k.json", json.dumps(ROWS))):
        main(["litellm", str(path), "--keys", str(write(name, content[:cut]))], {})
        told = capsys.readouterr()
        assert CANARY not in (told.out + told.err).lower(), name
