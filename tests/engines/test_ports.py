"""Where managed engines listen, over several configurations."""

from __future__ import annotations

from gateway.config.load import Loaded, parse
from gateway.engines.ports import Ports


def loaded(*backends: str) -> Loaded:
    return parse("version: 1\nbackends:\n  " + "\n  ".join(backends) + "\n", {})


def test_a_port_stays_with_its_name() -> None:
    ports = Ports()
    one, two = (f"{name}: {{launch: llama-server, model: smollm2, models: {{{name}: m}}}}" for name in ("one", "two"))
    first = ports.of(loaded(one, two))
    assert first.keys() == {"one", "two"}
    assert first["one"] != first["two"]
    ports.of(loaded(two))
    assert ports.of(loaded(one, two)) == first


def test_a_configured_port_wins_and_given_backends_have_none() -> None:
    ports = Ports()
    free = "own: {launch: llama-server, model: smollm2, models: {m: m}}"
    ports.of(loaded(free))
    assert ports.of(loaded(free.replace("model:", "port: 4000, model:"), 'given: {url: "http://h:1", models: {n: n}}')) == {"own": 4000}
