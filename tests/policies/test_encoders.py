"""Encoders by name, and what holds for each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from models.encoders.endpoint import Endpoint
from models.encoders.softmax import Softmax
from models.encoders.topics import Topics, save
from policies.encoders import Encoders, encoder
from policies.policy import Encoder
from policies.values.prompt import Prompt, Turn
from tests.support import embeddings

ROOT = Path(__file__).parents[2]
NAMES = ("shape", "hashed", "static", "minilm", "topics", "endpoint")
WORDS = ("sort", "list", "python", "why", "thanks", "integral", "x", "of")
TALK = (
    Turn("system", "You are of help. Sort what is asked."),
    Turn("user", "why does sort fail on this list?\n```python\nx = [1, 'a']\nx.sort()\n```"),
    Turn("assistant", "Numbers and strings cannot be compared: 1 < 'a' raises TypeError."),
    Turn("user", "thanks"),
    Turn("user", "and the integral of x? " * 400),
    Turn("tool", ""),
    Turn("user", "日本語 \ud83d \u0000"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("encoders")
    embeddings.minilm(made / "minilm", WORDS)
    rng = np.random.default_rng(0)
    save(Topics(("a", "b", "c"), Softmax(rng.normal(size=(64, 3)), np.zeros(3))), "static-1", "static", made / "topics.safetensors")
    return made


def made(name: str, folder: Path) -> Encoder:
    """A new encoder that remembers nothing yet."""
    written = {"minilm": f"minilm:{folder / 'minilm'}", "topics": f"topics:{folder / 'topics.safetensors'}", "endpoint": "endpoint:lengths"}
    lengths = Endpoint("lengths-1", 2, lambda texts: [(float(len(text)), 1.0) for text in texts])
    return Encoders({"lengths": lengths})(written.get(name, name))


@pytest.mark.parametrize("name", NAMES)
def test_warm_cold_and_off_line_are_the_same_bits(name: str, folder: Path) -> None:
    growing = [Prompt(turns=TALK[:length], user_turns=length, max_tokens=100) for length in range(len(TALK) + 1)]

    warm = made(name, folder)
    on_line = [warm.encode(each).tobytes() for each in growing]
    once_more = [warm.encode(each).tobytes() for each in growing]
    cold = [made(name, folder).encode(each).tobytes() for each in growing]
    other = made(name, folder)
    off_line = [other.encode(each).tobytes() for each in reversed(growing)][::-1]

    assert on_line == once_more == cold == off_line


@pytest.mark.parametrize("name", NAMES)
def test_a_block_has_the_encoders_dimension(name: str, folder: Path) -> None:
    one = made(name, folder)

    for turns in ((), TALK[:1], TALK):
        block = one.encode(Prompt(turns=turns))
        assert (block.shape, block.dtype) == ((one.dim,), np.float32)
        assert bool(np.isfinite(block).all())
    assert one.name.rpartition("-")[2]


@pytest.mark.parametrize("name", ["shape", "hashed", "static", "minilm"])
def test_features_do_not_hang_on_the_last_message(name: str, folder: Path) -> None:
    """A hard task remains one when the user says `ok do it`."""
    hard = Turn("user", "why sort of list x in python: integral of x " * 5)
    one = made(name, folder)

    def far(first: tuple[Turn, ...], second: tuple[Turn, ...]) -> float:
        return float(np.linalg.norm(one.encode(Prompt(turns=first)) - one.encode(Prompt(turns=second))))

    task, goes_on, other = (hard,), (hard, Turn("user", "ok thanks")), (Turn("user", "ok thanks"),)
    assert far(task, goes_on) < 0.6 * far(other, goes_on)


@pytest.mark.parametrize(
    "slow", [("shape", False), ("hashed", False), ("static", False), ("topics", False), ("minilm", True), ("endpoint", True)]
)
def test_who_is_asked_off_the_loop(slow: tuple[str, bool], folder: Path) -> None:
    assert made(slow[0], folder).slow is slow[1]


def test_each_is_made_once_and_shares_what_it_stands_on(folder: Path) -> None:
    encoders = Encoders()

    assert encoders("shape") is encoders("shape")
    assert encoders("static") is encoders("static")
    assert encoder("shape") is not encoder("shape")
    names = {encoders(name).name for name in ("shape", "hashed", "static", f"topics:{folder / 'topics.safetensors'}")}
    assert len(names) == 4
    assert {"shape-1", "hashed-1", "static-1"} < names


def test_only_what_stands_on_a_changed_endpoint_is_made_anew(folder: Path) -> None:
    def endpoint(name: str) -> Endpoint:
        return Endpoint(name, 64, lambda texts: [[1.0] * 64 for _ in texts])

    one, two, other = endpoint("one-1"), endpoint("two-1"), endpoint("two-2")
    rng = np.random.default_rng(0)
    for base in ("one", "two"):
        save(Topics(("a", "b"), Softmax(rng.normal(size=(64, 2)), np.zeros(2))), f"{base}-1", f"endpoint:{base}", folder / f"{base}.topics")
    names = ["shape", "endpoint:one", f"topics:{folder / 'one.topics'}", "endpoint:two"]
    before = Encoders({"one": one, "two": two})
    made = [before(name) for name in names]
    above = before(f"topics:{folder / 'two.topics'}")

    after = before.over({"one": one, "two": other})

    assert [after(name) is encoder for name, encoder in zip(names, made, strict=True)] == [True, True, True, False]
    assert after("endpoint:two").name == "two-2"
    with pytest.raises(ValueError, match="was fitted on the features two-1, and these are two-2"):
        after(f"topics:{folder / 'two.topics'}")
    assert before("endpoint:two") is made[3] and before(f"topics:{folder / 'two.topics'}") is above  # requests that run still have it
    with pytest.raises(ValueError, match="there is no endpoint `two`; there are: one"):
        after.over({"one": one})("endpoint:two")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shapes", "unknown encoder `shapes`; there are: shape, hashed, static[:FOLDER], minilm[:FOLDER], topics:FILE"),
        ("", "unknown encoder ``"),
        ("shape:x", "the encoder `shape:x` is written as shape"),
        ("static:", "the encoder `static:` is written as static[:FOLDER]"),
        ("topics", "the encoder `topics` is written as topics:FILE"),
        ("topics:nowhere", "there is no file nowhere"),
        ("sentence_transformers", "is written as sentence_transformers:FOLDER"),
        ("endpoint:x", "there is no endpoint `x`"),
        ("endpoint", "the encoder `endpoint` is written as endpoint:NAME"),
    ],
)
def test_what_is_not_there_is_said(name: str, said: str) -> None:
    with pytest.raises(ValueError) as raised:
        encoder(name)
    assert said in str(raised.value)


def test_nothing_heavy_is_loaded_before_it_is_asked_for() -> None:
    code = (
        "import sys, policies.encoders as e; print('numpy' in sys.modules); e.encoder('shape'); e.encoder('hashed');"
        "print(*[name in sys.modules for name in ('numpy', 'tokenizers', 'safetensors')]);"
        "e.encoder('static'); print(*[name in sys.modules for name in ('tokenizers', 'huggingface_hub', 'torch')])"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert told.split() == ["False", "True", "False", "False", "True", "False", "False"]
