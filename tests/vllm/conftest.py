"""Real vLLM on CPU, started once for all tests here as the gateway starts a managed engine (`make test-vllm` prepares it)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from gateway.engines.spec import EngineSpec, free_port
from gateway.engines.supervisor import Supervisor

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
WEIGHTS = ROOT / ".trilemma" / "models" / "hf-smollm2"
MODEL = "smollm2-135m"
CONTEXT = 2048
ARGS = (
    *("--dtype", "bfloat16", "--enforce-eager", "--block-size", "32", "--enable-prompt-tokens-details"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
)
START_S = 400
"""Some 45 s on two idle cores; a busy or cold machine takes longer."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """http://127.0.0.1:PORT of a running vLLM that serves MODEL."""
    for needed, how in ((PYTHON, "make install-vllm"), (WEIGHTS / "config.json", "make test-vllm")):
        if not needed.exists():
            pytest.fail(f"{needed} is missing; {how} makes it")
    spec = EngineSpec(
        name="vllm",
        kind="vllm",
        port=free_port(),
        model=str(WEIGHTS),
        served_names=(MODEL,),
        slots=16,
        context=CONTEXT,
        python=str(PYTHON),
        args=ARGS,
        env={"VLLM_CPU_KVCACHE_SPACE": "1"},
    )
    async with Supervisor(tmp_path_factory.mktemp("state")) as supervisor:
        await supervisor.apply([spec])
        await supervisor.wait_ready([spec.name], timeout=START_S)
        yield f"http://127.0.0.1:{spec.port}"


@pytest_asyncio.fixture
async def vllm(vllm_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of that vLLM."""
    async with httpx.AsyncClient(base_url=vllm_url, timeout=120) as client:
        yield client
