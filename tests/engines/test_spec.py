"""From the config's managed backends to engine specs."""

from __future__ import annotations

import socket

import msgspec

from gateway.config.schema import Config
from gateway.engines.spec import EngineSpec, free_port, specs

CONFIG = Config.model_validate(
    {
        "version": 1,
        "backends": {
            "given": {"url": "http://127.0.0.1:9000", "models": {"a": "a"}},
            "small": {"launch": "llama-server", "model": "smollm2", "models": {"smollm2": "smollm2"}, "embeddings": True},
            "big": {
                "launch": "vllm",
                "model": "/models/qwen",
                "models": {"qwen": "q", "qwen-2": "q", "other": "o"},
                "python": "/opt/vllm/bin/python",
                "slots": 4,
                "context": 2048,
                "args": ["--enforce-eager"],
                "port": 8200,
            },
        },
    }
)


def test_each_managed_backend_is_a_spec_and_its_written_port_wins() -> None:
    assert specs(CONFIG, {"small": 8301, "big": 8302}) == [
        EngineSpec(
            name="small",
            kind="llama-server",
            port=8301,
            model="smollm2",
            served_names=("smollm2",),
            slots=8,
            context=1_024,
            embeddings=True,
        ),
        EngineSpec(
            name="big",
            kind="vllm",
            port=8200,
            model="/models/qwen",
            served_names=("q", "o"),
            slots=4,
            context=2_048,
            python="/opt/vllm/bin/python",
            args=("--enforce-eager",),
        ),
    ]


def test_a_spec_survives_its_trip_as_json() -> None:
    for spec in specs(CONFIG, {"small": 8301}):
        assert msgspec.json.decode(msgspec.json.encode(spec), type=EngineSpec) == spec


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))
        server.listen()
