"""What a user reads for each kind of mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.config.problems import Problem

Problems = Callable[..., tuple[Problem, ...]]


def mistake(minimal: str, problems: Problems, added: str) -> list[str]:
    """The problems of the minimal configuration with lines added at its end (from line 8)."""
    return [str(problem) for problem in problems(minimal + added)]


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("server: {prot: 1}\n", "8:10: server.prot: unknown key; did you mean `port`?"),
        ("sever: {}\n", "8:1: sever: unknown key; did you mean `server`?"),
        ("server: {wrkrs: 1}\n", "8:10: server.wrkrs: unknown key; did you mean `workers`?"),
        ("storage:\n  zzz: 1\n", "9:3: storage.zzz: unknown key; known here: url, keep_days, contents, keys_grace_s"),
        ("virtual_models: {v: {policy: fixed, plans: {p: {modle: small, model: small}}}}\n",
         "8:49: virtual_models.v.plans.p.modle: unknown key; did you mean `model`?"),
        ("policies: {p: {type: weighted, parms: {}}}\n", "8:32: policies.p.parms: unknown key; did you mean `params`?"),
        ("server: {port: 70000}\n", "8:16: server.port: should be less than or equal to 65535"),
        ("server: {port: true}\n", "8:16: server.port: should be a valid integer"),
        ("server: {port: 80.5}\n", "8:16: server.port: should be a valid integer"),
        ('server: {port: "80"}\n', "8:16: server.port: should be a valid integer: write it without quotes"),
        ("server: {watch: yes}\n", "8:17: server.watch: should be true or false"),
        ("server: {host: 1}\n", "8:16: server.host: should be a valid string: put it in quotes"),
        ("server: {grace_s: .nan}\n", "8:19: server.grace_s: should be a finite number"),
        ("server: {secret: ''}\n", "8:18: server.secret: must not be empty"),
        ("server: {secret: a, secret_file: b}\n", "8:1: server: give `secret` or `secret_file`, not both"),
        ("server:\n", "8:8: server: is empty; should be a mapping (`key: value` lines)"),
        ("server: 5\n", "8:9: server: should be a mapping (`key: value` lines)"),
        ("server: [1]\n", "8:1: server: should be a mapping (`key: value` lines)"),
        ("policies:\n  a b: {type: fixed}\n",
         "9:3: policies.a b: the name should begin with a letter or digit, and hold only letters, digits and . _ : / @ + -"),
        ("virtual_models: {v: {policy: fixed, plans: {}}}\n", "8:37: virtual_models.v.plans: needs at least 1 entry"),
        ("limits: {key: {rpm: 0}}\n", "8:21: limits.key.rpm: should be greater than or equal to 1"),
        ("limits: {key: {rpd: 5}}\n", "8:16: limits.key.rpd: unknown key; did you mean `rpm`?"),
        ("virtual_models: {v: {policy: fixed}}\n", "8:18: virtual_models.v.plans: missing"),
    ],
)  # fmt: skip
def test_one_mistake(minimal: str, problems: Problems, added: str, message: str) -> None:
    assert mistake(minimal, problems, added) == [message]


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("{url: 'http://a', engine: vlm, models: {m: m}}", "3:32: backends.a.engine: should be 'vllm', 'llama.cpp' or 'openai'"),
        ("{url: 'a:8000', models: {m: m}}",
         "3:12: backends.a.url: should be http://HOST[:PORT][/PATH] or https://..., without user, query or fragment "
         "(a key stands in `key`)"),
        ("{models: {m: m}}",
         "3:3: backends.a: give either `url` (an engine that runs), `launch` (one to start) or `discover` (several that run)"),
        ("{launch: vllm, models: {m: m}}", "3:3: backends.a: `launch` needs `model`: a packaged model's name or a path"),
        ("{url: 'http://a', key: k, key_file: f, models: {m: m}}", "3:3: backends.a: give `key` or `key_file`, not both"),
        ("{url: 'http://a', models: {m: 1}}", "3:36: backends.a.models.m: should be a valid string: put it in quotes"),
        ("{url: 'http://a', models: {}}", "3:24: backends.a.models: needs at least 1 entry"),
        ("{url: 'http://a', models: {m: m}, forward_headers: [a b]}",
         "3:58: backends.a.forward_headers[0]: should be the name of a header: letters, digits and -"),
        ("{url: 'http://a', models: {m: m}, timeouts: {idle: 1}}",
         "3:51: backends.a.timeouts.idle: unknown key; did you mean `idle_s`?"),
    ],
)  # fmt: skip
def test_one_mistake_in_a_backend(problems: Problems, backend: str, message: str) -> None:
    assert [str(each) for each in problems(f"version: 1\nbackends:\n  a: {backend}\n")] == [message]


def test_a_version_is_asked_for(problems: Problems) -> None:
    text = "backends: {a: {url: 'http://a', models: {m: m}}}\n"
    assert [str(each) for each in problems(text)] == ["1:1: version: missing: write `version: 1`"]
    assert [str(each) for each in problems("version: 2\n" + text)] == ["1:10: version: should be 1"]


def test_a_digest_is_asked_for_in_its_form(problems: Problems) -> None:
    text = "version: 1\nbackends: {a: {url: 'http://a', models: {m: m}}}\nkeys: [{name: k, sha256: sk-plain}]\n"
    assert [str(each) for each in problems(text)] == ["3:26: keys[0].sha256: should be a SHA-256 digest: 64 digits of 0-9 and a-f"]


def test_a_configuration_is_a_mapping(problems: Problems) -> None:
    assert [str(each) for each in problems("- a\n")] == ["1:1: should be a mapping (`key: value` lines)"]


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(problems: Problems) -> None:
    text = """\
version: 1
virtual_models: {v: {polcy: a, plans: {}}}
backends:
  a: {ulr: 'http://a', models: {m: "${GONE}"}}
  b: {url: ftp://b, models: {m: m}, weight: -1}
  b: {}
"""
    assert [(problem.line, problem.path) for problem in problems(text)] == [
        (2, "virtual_models.v.policy"),
        (2, "virtual_models.v.polcy"),
        (2, "virtual_models.v.plans"),
        (4, "backends.a.ulr"),
        (4, "backends.a.models.m"),
        (5, "backends.b.url"),
        (5, "backends.b.weight"),
        (6, "backends.b"),
    ]
