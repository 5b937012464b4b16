"""What tells models apart in what engines list of them, and what does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.engines.registry import adapter
from gateway.pool.fingerprint import Fingerprints, difference

SAMPLES = Path(__file__).parents[1] / "samples"
Json = dict[str, Any]


class Engine:
    """An engine behind a URL, and what is made of its list; it serves `public` under its own name `own`."""

    def __init__(self, kind: str, own: str = "own") -> None:
        self.adapter = adapter(kind)
        self.own = own
        self.fingerprints = Fingerprints()

    def lists(self, *cards: Json) -> str | None:
        """Why it does not serve `public` now."""
        self.fingerprints.see(self.adapter, {"public": self.own}, self.adapter.models({"object": "list", "data": list(cards)}))
        assert set(self.fingerprints.strangers) <= {"public"}
        return self.fingerprints.strangers.get("public")


def vllm(name: str = "own", root: str = "/models/one", **more: Any) -> Json:
    return {"id": name, "object": "model", "created": 1, "owned_by": "vllm", "root": root, "parent": None, "max_model_len": 2048} | more


def llama(name: str = "own", **meta: Any) -> Json:
    told = {"vocab_type": 2, "n_vocab": 49152, "n_ctx": 2048, "n_ctx_train": 8192, "n_embd": 576, "n_params": 134515008, "size": 96576768}
    return {"id": name, "aliases": [name], "object": "model", "created": 1, "owned_by": "llamacpp", "meta": told | meta}


@pytest.mark.parametrize("kind", ["vllm", "openai"])
def test_another_root_is_another_model(kind: str) -> None:
    engine = Engine(kind)
    assert engine.lists(vllm()) is None

    assert engine.lists(vllm(root="/models/two")) == "root is '/models/two', it was '/models/one'"
    assert engine.lists(vllm(root="/models/three")) == "root is '/models/three', it was '/models/one'"
    assert engine.lists(vllm()) is None


def test_an_adapter_over_another_base_model_is_another_model() -> None:
    engine = Engine("vllm")
    engine.lists(vllm(root="/adapters/sql", parent="base-a"))

    assert engine.lists(vllm(root="/adapters/sql", parent="base-b")) == "parent is 'base-b', it was 'base-a'"


@pytest.mark.parametrize(
    "again", [vllm(created=2), vllm(max_model_len=4096), vllm(owned_by="us"), vllm(permission=[{"id": "modelperm-2"}]), vllm(later="field")]
)
def test_a_restart_of_vllm_with_other_settings_is_none(again: Json) -> None:
    engine = Engine("vllm")
    engine.lists(vllm())

    assert engine.lists(again) is None


@pytest.mark.parametrize(("field", "value"), [("n_params", 630_167_424), ("n_vocab", 151_936), ("n_embd", 896), ("size", 1)])
@pytest.mark.parametrize("name", ["own", "other"])
def test_llama_cpp_with_other_weights_is_another_model_whatever_its_name(field: str, value: int, name: str) -> None:
    """It answers to any name: the one that is asked for need not be its own."""
    engine = Engine("llama.cpp")
    was = llama()["meta"][field]
    assert engine.lists(llama(name)) is None

    assert engine.lists(llama(name, **{field: value})) == f"{field} is {value}, it was {was}"


@pytest.mark.parametrize("again", [llama(n_ctx=512), llama(n_ctx_train=4096), llama(ftype="Q4_1"), llama() | {"created": 2}])
def test_a_restart_of_llama_cpp_with_other_settings_is_none(again: Json) -> None:
    engine = Engine("llama.cpp")
    engine.lists(llama())

    assert engine.lists(again) is None


@pytest.mark.parametrize(("kind", "card"), [("vllm", vllm), ("llama.cpp", llama)])
def test_a_name_that_is_not_listed_any_more(kind: str, card: Callable[[str], Json]) -> None:
    engine = Engine(kind)
    assert engine.lists(card("own")) is None

    assert engine.lists(card("new")) == "the engine lists 'new', and 'own' no longer"
    assert engine.lists(card("a"), card("b"), card("c"), card("d")) == "the engine lists 'a', 'b', 'c', and 'own' no longer"
    assert engine.lists(card("own")) is None


def test_a_name_may_be_an_alias() -> None:
    engine = Engine("llama.cpp")
    engine.lists(llama("file.gguf") | {"aliases": ["x", "own"]})

    assert engine.lists(llama("elsewhere/file.gguf") | {"aliases": ["own"]}) is None
    assert engine.lists(llama("file.gguf") | {"aliases": []}) is not None


def test_a_generic_server_need_not_list_what_it_serves() -> None:
    """Hosted services leave out what is in preview, or retired, and answer for it."""
    engine = Engine("openai")
    engine.lists({"id": "own", "owned_by": "us"})

    assert engine.lists({"id": "other", "owned_by": "us"}) is None


@pytest.mark.parametrize("kind", ["vllm", "llama.cpp", "openai"])
def test_a_name_that_was_never_listed_is_not_missed(kind: str) -> None:
    """An adapter that is loaded when it is first asked for, for instance."""
    engine = Engine(kind)

    assert engine.lists({"id": "base"}) is None
    assert engine.lists({"id": "other"}) is None


def test_but_from_when_it_is_listed_it_is() -> None:
    engine = Engine("vllm")
    engine.lists(vllm("base"))
    assert engine.lists(vllm("base"), vllm("own", "/adapters/one")) is None

    assert engine.lists(vllm("base")) == "the engine lists 'base', and 'own' no longer"
    assert engine.lists(vllm("base"), vllm("own", "/adapters/two")) == "root is '/adapters/two', it was '/adapters/one'"


def test_an_engine_with_several_models_says_nothing_of_a_name_that_is_none_of_them() -> None:
    engine = Engine("llama.cpp")
    engine.lists(llama("a"), llama("b"))

    assert engine.lists(llama("a", n_params=1), llama("b", n_params=2)) is None


@pytest.mark.parametrize("kind", ["vllm", "llama.cpp", "openai"])
@pytest.mark.parametrize("card", [vllm, llama])
def test_an_empty_list_says_nothing(kind: str, card: Callable[[], Json]) -> None:
    engine = Engine(kind)
    engine.lists(card())
    assert engine.lists() is None
    assert engine.lists(card() | {"root": "/models/two", "meta": {"n_params": 7}})

    assert engine.lists(), "nor that it is well again"


ODD: list[Json] = [{"root": value} for value in (None, "", 1.5, True, ["x"])] + [{}, {"meta": None}, {"meta": 1}]


@pytest.mark.parametrize("odd", ODD)
def test_what_is_odd_says_nothing(odd: Json) -> None:
    engine = Engine("vllm")
    engine.lists(vllm())
    bare = {"id": "own"} | odd

    assert engine.lists(bare) is None
    assert engine.lists(vllm(root="/models/two")) is not None, "what was known stays known"
    assert engine.lists(bare) is not None, "nor does it say that all is well again"
    assert engine.lists(vllm()) is None


def test_what_was_odd_at_first_is_learnt_later() -> None:
    engine = Engine("vllm")
    engine.lists({"id": "own"})
    assert engine.lists(vllm()) is None

    assert engine.lists(vllm(root="/models/two")) is not None


def test_another_kind_of_engine_under_the_same_name() -> None:
    engine = Engine("openai")
    engine.lists(vllm())

    assert engine.lists(llama()) == "another kind of engine answers: it tells n_params, n_vocab, n_embd, size, before it was root"


def test_one_model_of_several_is_another() -> None:
    engine = adapter("vllm")
    models = {"p1": "one", "p2": "two", "again": "one"}
    fingerprints = Fingerprints()
    fingerprints.see(engine, models, engine.models({"data": [vllm("one", "/1"), vllm("two", "/2")]}))
    assert not fingerprints.strangers

    fingerprints.see(engine, models, engine.models({"data": [vllm("one", "/3"), vllm("two", "/2")]}))

    assert set(fingerprints.strangers) == {"p1", "again"}


def test_what_is_accepted_is_what_should_be_there() -> None:
    engine = Engine("vllm")
    engine.fingerprints.accept()
    engine.lists(vllm())
    engine.lists(vllm(root="/models/two"))

    engine.fingerprints.accept()

    assert not engine.fingerprints.strangers
    assert engine.lists(vllm(root="/models/two")) is None
    assert engine.lists(vllm()) == "root is '/models/one', it was '/models/two'"


def test_a_name_that_is_accepted_as_gone_is_learnt_anew() -> None:
    engine = Engine("vllm")
    engine.lists(vllm())
    engine.lists(vllm("new"))
    engine.fingerprints.accept()
    assert engine.lists(vllm("new")) is None

    assert engine.lists(vllm(root="/models/two")) is None
    assert engine.lists(vllm()) is not None


def test_a_reason_is_short() -> None:
    reason = difference({"root": "x" * 1_000_000}, {"root": "y\n" * 1_000_000})

    assert reason is not None
    assert len(reason) < 250
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("folder", "kind", "identity"),
    [
        ("vllm", "vllm", {"root": "/models/hf-smollm2"}),
        ("llamacpp", "llama.cpp", {"n_params": 134515008, "n_vocab": 49152, "n_embd": 576, "size": 96576768}),
    ],
)
def test_real_answers(folder: str, kind: str, identity: dict[str, Any]) -> None:
    recorded = json.loads((SAMPLES / folder / "models.json").read_text())["response"]
    engine = Engine(kind, "smollm2-135m")
    assert engine.lists(*recorded["data"]) is None

    for field in identity:
        changed = json.loads(json.dumps(recorded["data"][0]))
        place = changed if field in changed else changed["meta"]
        assert place[field] == identity[field]
        place[field] = 1 if isinstance(identity[field], int) else "/models/other"
        assert str(engine.lists(changed)).startswith(f"{field} is ")
