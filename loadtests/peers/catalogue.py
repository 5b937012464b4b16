"""The peers, each pinned, set up as its manual says for one OpenAI-compatible backend, with logs at their quietest and no telemetry."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from gateway.bench.servers import Ask, free_port
from gateway.bench.setup import KEY, MODEL, PACED_MODEL
from loadtests.peers.peer import PORT_FILE, Launch, Peer, Place, Work

_HERE: Final = Path(__file__).resolve().parent


def _vllm_router(place: Place) -> Launch:
    return Launch(
        [
            str(place.programs / "vllm-router"),
            *("--host", "127.0.0.1", "--port", str(place.port)),
            *("--worker-urls", place.backend_url),
            *("--policy", "round_robin", "--log-level", "error"),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
        ]
    )


def _sglang_router(place: Place) -> Launch:
    return Launch(
        [
            str(place.programs / "python"),
            *("-m", "sglang_router.launch_router"),
            *("--host", "127.0.0.1", "--port", str(place.port)),
            *("--worker-urls", place.backend_url),
            *("--policy", "round_robin", "--log-level", "error"),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
        ]
    )


def _tensorzero(place: Place) -> Launch:
    models = "".join(
        f"""
[models.{name}]
routing = ["backend"]
[models.{name}.providers.backend]
type = "openai"
model_name = "{name}"
api_base = "{place.backend_url}/v1/"
api_key_location = "none"
"""
        for name in (MODEL, PACED_MODEL)
    )
    quiet = "[gateway]\ndisable_pseudonymous_usage_analytics = true\nobservability.enabled = false\n"
    return Launch(
        [
            str(place.programs / "python"),
            str(_HERE / "tensorzero_gateway.py"),
            str(place.folder / "tensorzero.toml"),
            str(place.folder / PORT_FILE),
        ],
        {"tensorzero.toml": quiet + models},
        names_its_port=True,
    )


def _litellm(place: Place) -> Launch:
    config = {
        "model_list": [
            {
                "model_name": name,
                "litellm_params": {"model": f"openai/{name}", "api_base": f"{place.backend_url}/v1", "api_key": "none"},
            }
            for name in (MODEL, PACED_MODEL)
        ],
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"telemetry": False},
    }
    return Launch(
        [
            str(place.programs / "litellm"),
            *("--config", str(place.folder / "litellm.yaml")),
            *("--host", "127.0.0.1", "--port", str(place.port)),
        ],
        {"litellm.yaml": yaml.safe_dump(config)},
        # Prices from its own package instead of from the network.
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"},
    )


def _optillm(place: Place) -> Launch:
    return Launch(
        [
            str(place.programs / "optillm"),
            *("--host", "127.0.0.1", "--port", str(place.port)),
            *("--base-url", f"{place.backend_url}/v1"),
            *("--approach", "none", "--log", "error"),
            *("--optillm-api-key", KEY),
        ],
        environment={"OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1"},
    )


PEERS: Final[tuple[Peer, ...]] = (
    Peer(
        "vllm-router",
        "vllm-router",
        "0.1.17",
        [["vllm-router==0.1.17"]],
        _vllm_router,
        "Rust; balances, no keys",
    ),
    Peer(
        "sglang-router",
        "sglang-router",
        "0.3.2",
        [["sglang-router==0.3.2"]],
        _sglang_router,
        "Rust; balances, no keys",
    ),
    Peer(
        "tensorzero",
        "TensorZero",
        "2026.6.0",
        [["tensorzero==2026.6.0"]],
        _tensorzero,
        "Rust, in a Python process; reads and rewrites every event; nothing recorded",
        ask=Ask(f"tensorzero::model_name::{MODEL}", "/openai/v1/chat/completions"),
        paced_model=f"tensorzero::model_name::{PACED_MODEL}",
        events=131,
    ),
    Peer(
        "litellm",
        "LiteLLM proxy",
        "1.106.12",
        [["litellm[proxy]==1.106.12"]],
        _litellm,
        "Python; master key, no database",
        work=Work(requests=96, single=100, streams=8, stream_connections=8),
    ),
    Peer(
        "optillm",
        "OptiLLM",
        "0.4.0",
        [["torch==2.13.0"], ["--no-deps", "--requirement", str(_HERE / "optillm.txt")]],
        _optillm,
        "Python; a connection for each request",
        work=Work(requests=32, single=10, connections=4),
        without_streams="it does not stream: it waits for the whole answer, and passes that on as if it did",
    ),
)
