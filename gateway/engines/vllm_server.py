"""The command line and the environment of a managed vLLM.

The OpenAI server is started as a module, not by `vllm serve`: the CPU wheel's command does not find its own metadata.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from gateway.engines.spec import EngineSpec

_QUIET: Mapping[str, str] = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}
# On CPU the first request for logprobs waits some 20 s for a compiler otherwise; the cache is in GiB, in host memory.
_ON_CPU: Mapping[str, str] = {"TORCH_COMPILE_DISABLE": "1", "VLLM_CPU_KVCACHE_SPACE": "2"}


def command(spec: EngineSpec) -> list[str]:
    """What starts vLLM for `spec`, on 127.0.0.1 only."""
    return [
        *(spec.python or sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", spec.model),
        *(("--served-model-name", *spec.served_names) if spec.served_names else ()),
        *("--host", "127.0.0.1"),
        *("--port", str(spec.port)),
        *("--max-model-len", str(spec.context)),
        *("--max-num-seqs", str(spec.slots)),
        *spec.args,
    ]


def environment(spec: EngineSpec, inherited: Mapping[str, str], *, cpu: bool) -> dict[str, str]:
    """`inherited` with quiet defaults under it, the interpreter's own tools first on PATH, and `spec.env` over it."""
    merged = {**_QUIET, **(_ON_CPU if cpu else {}), **inherited}
    if spec.python is not None:
        merged["PATH"] = os.pathsep.join(filter(None, (str(Path(spec.python).parent), inherited.get("PATH"))))
    return {**merged, **spec.env}


def is_cpu_build(python: str | None) -> bool:
    """Whether the vLLM beside this interpreter was built for CPU: its distribution says so, as vLLM itself asks."""
    home = Path(python or sys.executable).parent.parent
    patterns = ("vllm_cpu-*.dist-info", "vllm-*cpu*.dist-info")
    return any(True for pattern in patterns for _ in home.glob(f"lib*/python*/*-packages/{pattern}"))
