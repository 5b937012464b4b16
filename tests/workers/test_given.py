"""A configuration as workers get it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import Loaded, parse
from gateway.config.schema import Config
from gateway.workers.given import Place, given, received, share

TEXT = """
version: 1
server: {port: 0, secret: "${SECRET}"}
backends:
  a: {url: "http://h:1", key: sk-backend, models: {m: m, n: n}, timeouts: {connect_s: 1.5}}
  own: {launch: llama-server, model: smollm2, models: {o: o}}
  fixed: {launch: llama-server, model: smollm2, port: 4000, models: {p: p}}
models: {m: {queue: {slots: 5, room: 3, weights: {shop: 2}}, price: {input: 0.1}}}
keys: [{name: k, sha256: "0000000000000000000000000000000000000000000000000000000000000000"}]
storage: {url: "sqlite:///d.db"}
"""
EVERYTHING = """
version: 1
server: {host: "::1", workers: 4, heartbeat_s: 1.5, client: aiohttp, keep_alive_s: 3}
backends:
  given: {url: "https://h/v1", engine: vllm, models: {m: m, "team/n:1": n}, weight: 0.5, enabled: false, forward_headers: [x-team],
          breaker: {trip_after: 7}, timeouts: {idle_s: 9}}
  found: {discover: {dns: {host: h, port: 8000, family: ipv6}}, models: {f: f}}
  listed: {discover: {static: ["http://a:1", {url: "http://b:2", weight: 3}]}, models: {f: f}}
  pods: {discover: {kubernetes: {service: vllm, port: 8000}}, models: {f: f}}
  filed: {discover: {file: {path: /replicas.json}}, models: {f: f}}
models: {m: {aliases: [x], context: 5, capabilities: [tools], attempts: 9, fallbacks: [f], hedge: {share: 0.3}, deadline_ms: 5,
             price: {input: 1, cached_input: 0, output: 2.5}}, f: {retry_wait_s: 0}}
policies: {p: {type: weighted, params: {weights: {a: 1, b: 2.5}}, floor: 0.1, seed: 3}}
virtual_models: {auto: {policy: p, plans: {a: {model: m}, b: {model: f}}, baseline: a, caps: {deadline_ms: 7}}}
keys: [{name: k, sha256: "0000000000000000000000000000000000000000000000000000000000000000", scopes: [admin, metrics], tenant: t,
        models: [m, "f*"], priority: batch, expires: "2031-01-01", tags: {team: x}, limits: {rpm: 5, tpm: 6, concurrency: 7}}]
limits: {key: {rpm: 3}, tenants: {t: {tpm: 4}}, failed_keys_per_minute: 0}
storage: {url: "postgresql://u:p%40ss@h/d", keep_days: 1.5, contents: {enabled: true, max_bytes: 5}}
embeddings: {e: {url: "http://e", model: m, dimensions: 2, shorten: true, characters: 100, timeout_s: 1.5, key: k}}
learning: {signals: [schema], calibration: {judge: {at_0: 0.1}}, verifier: {url: "http://v", key: k}, judge: {model: m, share: 0.1}}
telemetry: {metrics: {public: true}, logs: {format: json, level: debug, access: true}}
"""


def loaded(text: str = TEXT, **env: str) -> Loaded:
    return parse(text, {"SECRET": "the secret", **env})


def place(first: Loaded, **changes: Any) -> Place:
    whole: dict[str, Any] = {"secret": "made up", "ports": {"own": 5001, "fixed": 4000}, "worker": 1, "of": 1}
    return Place(first.config, **(whole | changes))


def there_and_back(given_: Loaded, at: Place) -> Config:
    return received(given(given_, at)).config


def test_nothing_changes_on_the_way_but_what_is_said() -> None:
    before = loaded()
    carried = received(given(before, place(before)))
    assert (carried.hash, carried.source, carried.text) == (before.hash, before.source, before.text)
    after = carried.config
    assert after.server.secret is not None and after.server.secret.get_secret_value() == "the secret"
    assert after.backends["a"].key is not None and after.backends["a"].key.get_secret_value() == "sk-backend"
    assert {name: each.port for name, each in after.backends.items()} == {"a": None, "own": 5001, "fixed": 4000}
    own = after.backends["own"].model_copy(update={"port": None})
    assert after.model_copy(update={"backends": {**after.backends, "own": own}}) == before.config


def test_all_sections_arrive() -> None:
    before = parse(EVERYTHING, {})
    after = there_and_back(before, place(before))
    same = {name: getattr(after, name) for name in Config.model_fields if name != "server"}
    assert same == {name: getattr(before.config, name) for name in same}
    assert after.model_fields_set == before.config.model_fields_set


def test_secrets_of_files_arrive_without_their_files(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("from a file\n")
    (tmp_path / "backend").write_text("sk-from-a-file\n")
    text = TEXT.replace('secret: "${SECRET}"', "secret_file: server, watch: true").replace("key: sk-backend", "key_file: backend")
    text += "learning: {verifier: {url: 'http://v', key_file: backend}}\n"
    text += "embeddings: {e: {url: 'http://e', model: m, dimensions: 2, key_file: backend}}\n"
    text += "strategies: {s: {type: best_of_n, params: {select: verifier}, verifier: {url: 'http://v', key_file: backend}}}\n"
    before = parse(text, {}, folder=tmp_path)
    after = there_and_back(before, place(before))
    checker = after.strategies["s"].verifier
    assert checker is not None and checker.key is not None
    assert (checker.key.get_secret_value(), checker.key_file) == ("sk-from-a-file", None)
    assert after.learning.verifier is not None and after.learning.verifier.key is not None
    assert (after.learning.verifier.key.get_secret_value(), after.learning.verifier.key_file) == ("sk-from-a-file", None)
    assert after.embeddings["e"].key is not None
    assert (after.embeddings["e"].key.get_secret_value(), after.embeddings["e"].key_file) == ("sk-from-a-file", None)
    assert after.server.secret is not None and after.server.secret.get_secret_value() == "from a file"
    assert after.backends["a"].key is not None and after.backends["a"].key.get_secret_value() == "sk-from-a-file"
    assert (after.server.secret_file, after.backends["a"].key_file) == (None, None)
    assert not after.server.watch, "the parent does that"


def test_without_a_secret_all_have_the_same_one() -> None:
    before = loaded(TEXT.replace(', secret: "${SECRET}"', ""))
    secrets = [there_and_back(before, place(before, worker=worker, of=2)).server.secret for worker in (1, 2)]
    assert [each.get_secret_value() for each in secrets if each is not None] == ["made up", "made up"]


def test_a_worker_that_starts_late_has_what_no_reload_changes_as_the_others() -> None:
    first = loaded()
    text = TEXT.replace(
        'secret: "${SECRET}"', "secret: another, max_n: 7, heartbeat_s: 3, max_body_bytes: 5000, grace_s: 9, client: aiohttp"
    )
    after = there_and_back(loaded(text.replace("d.db", "e.db").replace("0.1", "0.2")), place(first))
    assert after.storage == first.config.storage
    server = after.server
    assert server.secret is not None and server.secret.get_secret_value() == "the secret"
    assert (server.grace_s, server.client) == (20.0, "http1")
    assert (server.max_n, server.heartbeat_s, server.max_body_bytes) == (7, 3.0, 5000)
    assert after.models["m"].price.input == 0.2


@pytest.mark.parametrize("of", [1, 2, 3, 5, 8])
def test_a_queue_s_bounds_are_shared_out(of: int) -> None:
    before = loaded()
    queues = [there_and_back(before, place(before, worker=worker, of=of)).models["m"].queue for worker in range(1, of + 1)]
    assert sum(queue.room for queue in queues if queue is not None) == 3
    slots = [queue.slots for queue in queues if queue is not None]
    assert sum(slots) == max(5, of), "none is without any"
    assert max(slots) - min(slots) <= 1
    assert all(queue is not None and queue.weights == {"shop": 2} for queue in queues)


def test_shares_are_the_whole() -> None:
    for whole in range(20):
        for of in range(1, 9):
            parts = [share(whole, worker, of) for worker in range(1, of + 1)]
            assert sum(parts) == whole and max(parts) - min(parts) <= 1
