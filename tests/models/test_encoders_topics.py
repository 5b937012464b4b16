"""Soft topics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from models.encoders.conversation import Conversation
from models.encoders.softmax import Softmax
from models.encoders.topics import TopicEncoder, Topics, cross_fitted, encoder, fit_topics, save
from policies.values.prompt import Prompt, Turn


def letters(name: str = "letters-1") -> Conversation:
    return Conversation(name, 2, lambda text: [float(text.count("a")), float(text.count("b"))], slow=True)


def prompt(text: str) -> Prompt:
    return Prompt(turns=(Turn("user", text),))


def test_topics_are_probabilities_in_the_order_of_their_names() -> None:
    x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])

    topics = fit_topics(x, ["sums", "sums", "code", "code"])

    assert topics.classes == ("code", "sums")
    code, sums = topics.probabilities(np.array([1.0, 0.0]))
    assert code + sums == pytest.approx(1.0)
    assert sums > 0.75
    assert topics.probabilities(x).shape == (4, 2)


@pytest.mark.parametrize("number", [1, 15])
def test_there_must_be_2_to_14_topics(number: int) -> None:
    with pytest.raises(ValueError, match=f"2 to 14 topics; these are {number}"):
        fit_topics(np.ones((number, 2)), [f"t{index}" for index in range(number)])


def test_cross_fitting_never_sees_the_row() -> None:
    """The features are noise, and there are as many as rows: who saw a row knows it by heart, who did not can only guess."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 60))
    y = rng.choice(["a", "b", "c"], size=60).tolist()
    truth = np.array(["abc".index(label) for label in y])

    known = fit_topics(x, y, 0.1).probabilities(x)[np.arange(60), truth]
    guessed = cross_fitted(x, y, 0.1, 5, 0)

    assert known.mean() > 0.9
    assert guessed[np.arange(60), truth].mean() < 0.5
    assert guessed.sum(axis=1).tolist() == pytest.approx([1.0] * 60)
    assert guessed.tolist() == cross_fitted(x, y, 0.1, 5, 0).tolist()


def test_a_topic_of_one_row_is_unknown_to_those_who_did_not_see_it() -> None:
    x = np.array([[float(number % 2), 1.0] for number in range(9)])
    y = ["odd" if number % 2 else "even" for number in range(8)] + ["rare"]

    found = cross_fitted(x, y, 1.0, 3, 0)

    assert found[8, 2] == 0.0
    assert found[8, :2].sum() == pytest.approx(1.0)


def test_who_saw_one_topic_only_knows_no_other() -> None:
    assert cross_fitted(np.eye(2), ["a", "b"], 1.0, 2, 0).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_what_is_saved_is_what_is_read(tmp_path: Path) -> None:
    topics = Topics(("code", "sums"), Softmax(np.array([[-1.0, 1.0], [0.5, -0.5]]), np.array([0.25, -0.25])))
    file = tmp_path / "topics.safetensors"
    inner = letters()
    save(topics, inner.name, "letters", file)
    asked: list[str] = []

    def encoders(name: str) -> Conversation:
        asked.append(name)
        return inner

    made = encoder(str(file), encoders)

    assert asked == ["letters"]
    assert (made.dim, made.slow, made.topics.classes) == (2, True, ("code", "sums"))
    block = made.encode(prompt("aaa"))
    # The features are (1, 0): logits -0.75 and 0.75.
    assert block.tolist() == pytest.approx([1 / (1 + np.exp(1.5)), 1 / (1 + np.exp(-1.5))])
    assert block.dtype == np.float32
    assert made.name == encoder(str(file), encoders).name
    save(Topics(topics.classes, Softmax(topics.head.weight + 1, topics.head.bias)), inner.name, "letters", file)
    assert made.name != encoder(str(file), encoders).name


def test_topics_of_other_features_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "topics.safetensors"
    save(Topics(("a", "b"), Softmax(np.zeros((2, 2)), np.zeros(2))), "letters-1", "letters", file)
    with pytest.raises(ValueError, match="was fitted on the features letters-1, and these are letters-2"):
        encoder(str(file), lambda _name: letters("letters-2"))

    save_file({"weight": np.zeros((2, 2))}, str(file))
    with pytest.raises(ValueError, match="holds no topics"):
        encoder(str(file), lambda _name: letters())
    with pytest.raises(ValueError, match="there is no file"):
        encoder(str(tmp_path / "nothing"), lambda _name: letters())


def test_without_text_there_are_topics_all_the_same() -> None:
    made = TopicEncoder("topics-1", Topics(("a", "b"), Softmax(np.ones((2, 2)), np.array([np.log(3), 0.0]))), letters())

    assert made.encode(Prompt()).tolist() == pytest.approx([0.75, 0.25])
