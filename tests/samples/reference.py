"""Score texts with transformers in float32, as a reference for engines: MODEL_DIR -> reference_scores.json.

    .venv-vllm/bin/python tests/samples/reference.py .trilemma/models/hf-smollm2

The texts hold what goes wrong: tokens that are part of a character, runs of white space, unlikely words, special
tokens. Per text: its token ids and log p(token i | tokens before i) in nats, null at 0.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TEXTS = [
    "The capital of France is Paris. The capital of Italy is Rome",
    "The capital of France is Paris. The capital of Italy is zebra",
    "北京 is the capital of China 🙂.",
    "def add(a, b):\n    return a + b\n\n\n\tx  =   1",
    "<|im_start|>user\nWhat is 7 + 5?<|im_end|>\n<|im_start|>assistant\n7 + 5 = 12.<|im_end|>",
]


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
    scored = []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        scores = [None, *(round(logits[i - 1, ids[i]].item(), 5) for i in range(1, len(ids)))]
        scored.append({"text": text, "tokens": ids, "logprobs": scores})
    path = Path(__file__).with_name("reference_scores.json")
    path.write_text(json.dumps(scored, ensure_ascii=False).replace('{"text', '\n{"text').replace("}]", "}\n]") + "\n")


if __name__ == "__main__":
    main()
