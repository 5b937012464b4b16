"""Convert a GGUF file to a directory of safetensors that vLLM can serve on CPU.

    .venv-vllm/bin/python deploy/vllm/convert_gguf.py FILE.gguf OUT

vLLM's own GGUF kernels need a GPU, so the weights are dequantized once, to bfloat16. OUT is complete or absent: the
work happens in a directory beside it that is renamed at the end. An OUT made from the same file by the same version of
this program is left as it is.
Exit status: 0 OUT is ready, 1 it is not (message on stderr).
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import time
from pathlib import Path
from typing import Any

DIGEST_FILE = "source.sha256"


def digest(*paths: Path) -> str:
    """SHA-256 over the SHA-256 of files, in hexadecimal."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def is_ready(out: Path, source_digest: str) -> bool:
    """Whether the directory `out` was made from what has this digest."""
    mark = out / DIGEST_FILE
    return mark.is_file() and mark.read_text().strip() == source_digest


def pre_tokenizer(gguf: Path) -> Any:
    """How this file's tokenizer cuts a text before merging bytes, where transformers does not carry that over; else None.

    `smollm` cuts at every digit first: without it "x =   1" becomes other tokens than the model was trained on.
    """
    from gguf import GGUFReader
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    field = GGUFReader(gguf).fields.get("tokenizer.ggml.pre")
    if field is None or field.contents() != "smollm":
        return None
    return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])


def convert(gguf: Path, out: Path) -> None:
    """Write model and tokenizer of `gguf` to the directory `out`; SystemExit when it is no chat model."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if not tokenizer.chat_template:
        raise SystemExit(f"error: {gguf.name} has no chat template: it is not a chat model")
    if (cut := pre_tokenizer(gguf)) is not None:
        tokenizer.backend_tokenizer.pre_tokenizer = cut
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    # The weights are plain now; left in place, this entry would make vLLM look for quantized ones.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> int:
    """Convert, unless it is done already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path, metavar="FILE.gguf")
    parser.add_argument("out", type=Path, metavar="OUT")
    args = parser.parse_args()
    gguf: Path = args.gguf.resolve()
    out: Path = args.out
    if not gguf.is_file():
        raise SystemExit(f"error: no such file: {gguf}")

    source_digest = digest(gguf, Path(__file__))
    if is_ready(out, source_digest):
        sys.stdout.write(f"converted already: {out}\n")
        return 0
    begun = time.monotonic()
    draft = out.with_name(f"{out.name}.draft")
    for stale in (draft, out):
        if stale.exists():
            shutil.rmtree(stale)
    draft.parent.mkdir(parents=True, exist_ok=True)
    convert(gguf, draft)
    (draft / DIGEST_FILE).write_text(f"{source_digest}\n")
    draft.rename(out)
    sys.stdout.write(f"converted {gguf.name} to {out} in {time.monotonic() - begun:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
