"""The shapes of the model list and of embeddings, with vectors that are hashes."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4


def models(names: Sequence[str], max_model_len: int) -> dict[str, Any]:
    """The body of /v1/models."""
    return {"object": "list", "data": [_card(name, max_model_len) for name in names]}


def _card(name: str, max_model_len: int) -> dict[str, Any]:
    now = int(time.time())
    permission = {
        "id": f"modelperm-{hashlib.sha256(name.encode()).hexdigest()[:16]}",
        "object": "model_permission",
        "created": now,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": now,
        "owned_by": "vllm",
        "root": f"/models/{name}",
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }


def embeddings(body: dict[str, Any], model: str, inputs: list[list[str]], request_id: str | None) -> dict[str, Any]:
    """The body of /v1/embeddings: one vector per input, of `dimensions` (64) numbers or their float32 bytes in base64."""
    vectors = [_vector("".join(pieces), body.get("dimensions") or 64) for pieces in inputs]
    packed = body.get("encoding_format") == "base64"
    count = sum(map(len, inputs))
    return {
        "id": f"embd-{request_id or uuid4().hex[:16]}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [
            {"index": index, "object": "embedding", "embedding": base64.b64encode(raw).decode() if packed else _floats(raw)}
            for index, raw in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": count, "total_tokens": count, "completion_tokens": 0, "prompt_tokens_details": None},
    }


def _vector(text: str, dimensions: int) -> bytes:
    """A unit vector from a hash of the text, as little-endian float32."""
    raw = struct.unpack(f"<{dimensions}I", hashlib.shake_128(text.encode()).digest(4 * dimensions))
    values = [number / 2**31 - 1 for number in raw]
    norm = math.sqrt(sum(value * value for value in values)) or 1.0
    return struct.pack(f"<{dimensions}f", *(value / norm for value in values))


def _floats(raw: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(raw) // 4}f", raw)
