"""Small models in folders, as encoders read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from models.encoders.distil import write

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def tokenizer(words: Sequence[str]) -> Tokenizer:
    """Small letters, parted at spaces; between [CLS] and [SEP]."""
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate((*SPECIAL, *words))}, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.enable_truncation(3)
    made.enable_padding(length=5)
    return made


def static(folder: Path, **vectors: Sequence[float]) -> Path:
    """A static embedding of these words; [UNK] and its like are zeros."""
    rows = [[0.0] * len(next(iter(vectors.values())))] * len(SPECIAL) + [list(vector) for vector in vectors.values()]
    write(folder, np.array(rows, dtype=np.float32), tokenizer(list(vectors)))
    return folder


def minilm(folder: Path, words: Sequence[str]) -> Path:
    """A BERT of one layer with random weights, 24 numbers wide, for texts of up to 256 tokens."""
    rng = np.random.default_rng(11)
    shapes = {
        "embeddings.word_embeddings.weight": (len(SPECIAL) + len(words), 24),
        "embeddings.position_embeddings.weight": (256, 24),
        "embeddings.token_type_embeddings.weight": (2, 24),
        "embeddings.LayerNorm.weight": (24,),
        "embeddings.LayerNorm.bias": (24,),
    }
    parts = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    dense = dict.fromkeys(parts, (24, 24)) | {"intermediate.dense": (48, 24), "output.dense": (24, 48)}
    for name, shape in dense.items():
        shapes |= {f"encoder.layer.0.{name}.weight": shape, f"encoder.layer.0.{name}.bias": shape[:1]}
    for name in ("attention.output.LayerNorm", "output.LayerNorm"):
        shapes |= {f"encoder.layer.0.{name}.weight": (24,), f"encoder.layer.0.{name}.bias": (24,)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}, str(folder / "model.safetensors"))
    tokenizer(words).save(str(folder / "tokenizer.json"))
    return folder
