"""`trilemma fit`: what is made is what encoders read."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli import main
from gateway.config.load import load
from gateway.engines.embeddings import endpoints
from policies.encoders import Encoders, encoder
from policies.values.prompt import Prompt, Turn
from tests.support import embeddings
from tests.support.vectors import Vectors


def prompt(text: str) -> Prompt:
    return Prompt(turns=(Turn("user", text),))


def test_a_static_embedding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = embeddings.minilm(tmp_path / "minilm", ["red", "green", "blue"])
    out = tmp_path / "out"

    assert main(["fit", "static", "--source", str(source), "--out", str(out), "--dim", "3"]) == 0

    assert capsys.readouterr().out == f"written: {out}; policies read it as `static:{out}`\n"
    made = encoder(f"static:{out}")
    assert made.dim == 3
    red, blue = made.encode(prompt("red")), made.encode(prompt("blue"))
    assert red @ red == pytest.approx(1.0, rel=1e-5)
    assert red @ blue < 0.99
    again = tmp_path / "again"
    assert main(["fit", "static", "--source", str(source), "--out", str(again), "--dim", "3"]) == 0
    assert {file.name: file.read_bytes() for file in out.iterdir()} == {file.name: file.read_bytes() for file in again.iterdir()}


def test_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(f"{colour} {number}", "warm" if colour in ("red", "orange") else "cold") for number in range(5) for colour in COLOURS]
    labels = tmp_path / "labels.csv"
    labels.write_text("label,text\n" + "".join(f"{label},{text}\n" for text, label in rows))
    folder = embeddings.static(tmp_path / "static", red=(1, 0.2), orange=(0.9, 0.3), blue=(0.1, 1), green=(0.2, 0.8))
    out = tmp_path / "topics.safetensors"

    assert main(["fit", "topics", "--labels", str(labels), "--encoder", f"static:{folder}", "--out", str(out), "--l2", "1"]) == 0

    told = capsys.readouterr().out.splitlines()
    assert told == [
        "20 texts, 2 topics: 100.0% right on texts that were not fitted on",
        f"written: {out}; policies read it as `topics:{out}`",
    ]
    made = encoder(f"topics:{out}")
    cold, warm = made.encode(prompt("orange and red"))
    assert warm > 0.8
    assert cold + warm == pytest.approx(1.0)


def test_topics_of_an_endpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels, out, config = tmp_path / "labels.csv", tmp_path / "topics.safetensors", tmp_path / "trilemma.yaml"
    labels.write_text("label,text\n" + "warm,red\ncold,blue\n" * 5)
    with Vectors({"red": [1.0, 0.1], "blue": [0.1, 1.0]}) as server:
        backends = 'version: 1\nbackends: {one: {url: "http://127.0.0.1:9", models: {m: m}}}\n'
        config.write_text(f"{backends}embeddings: {{emb: {{url: '{server.url}', model: mini, dimensions: 2}}}}\n")
        asked = ["fit", "topics", "--labels", str(labels), "--encoder", "endpoint:emb", "--out", str(out)]

        assert main(asked) == 1
        assert "there is no endpoint `emb`" in capsys.readouterr().err
        assert main([*asked, "--config", str(config), "--l2", "1"]) == 0
        assert "10 texts, 2 topics: 100.0% right" in capsys.readouterr().out

        made = Encoders(endpoints(load(config).config.embeddings))(f"topics:{out}")
        cold, warm = made.encode(prompt("red"))
        assert warm > cold

        server.status = 500
        assert main([*asked, "--config", str(config)]) == 1
        assert "the embeddings endpoint `emb`: status 500" in capsys.readouterr().err


COLOURS = ("red", "orange", "blue", "green")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text,topic\na,b\n", "needs the columns `text` and `label`"),
        ("", "needs the columns `text` and `label`"),
        ("text,label\n", "has no rows"),
        ("text,label\na,x\nb,\n", "row 3 has no label"),
        ("text,label\na,x\nb,x\n", "there must be 2 to 14 topics; these are 1"),
    ],
)
def test_labels_that_are_none(content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text(content)

    assert main(["fit", "topics", "--labels", str(labels), "--encoder", "shape", "--out", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert told.startswith("trilemma fit topics: ")
    assert said in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["topics", "--labels", "nowhere.csv", "--out", "x"], "nowhere.csv"),
        (["static", "--source", "nowhere", "--out", "x"], "there is no file nowhere/tokenizer.json"),
        (["static", "--dim", "0", "--out", "x"], "--dim must be 1 or more"),
    ],
)
def test_what_cannot_be_done(
    argv: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["fit", *argv]) == 1
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_call() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fit", "statics"])
    assert ended.value.code == 2
