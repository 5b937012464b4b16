"""`trilemma export`, from either kind of database, read back as whoever computes with it would."""

from __future__ import annotations

import base64
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gateway import cli
from gateway.store.columns import first_id
from gateway.store.tables import metadata
from tests.store.making import decision, fill, item
from tests.support.stored import Place

NOW = time.time()
NEW, OLD, GONE = (f"{first_id(at)}a" for at in (NOW - 60, NOW - 3 * 86_400, NOW - 30))
TABLES = ("decisions", "calls", "outcomes", "feedback")


@pytest.fixture
def filled(place: Place) -> Place:
    """Two decisions with all that belongs to them, and feedback on one that is not there."""
    for id_ in (NEW, OLD):
        fill(
            place,
            decision(
                id_, tenant="shop", tags='{"team": "red"}', status=None, explored=True, usage_estimated=None, cost_usd=0.25, features=None
            ),
            item("calls", decision_id=id_, n=0),
            item("calls", decision_id=id_, n=1),
            item("feedback", tenant="shop", id=id_, decision_id=id_, metric="quality", value=0.5, verdict=None),
            item("contents", decision_id=id_, prompt='[{"content": "PROMPT"}]', answer="ANSWER"),
        )
    fill(place, item("feedback", tenant="shop", id="gone", decision_id=GONE))
    return place


@pytest.fixture
def config(place: Place, tmp_path: Path) -> Path:
    file = tmp_path / "trilemma.yaml"
    backends = {"a": {"url": "http://127.0.0.1:9", "models": {"m": "m"}}}
    file.write_text(json.dumps({"version": 1, "backends": backends, "storage": {"url": place.url}}))
    return file


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_lines_of_json(filled: Place, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made" / "here"
    assert cli.main(["export", "--config", str(config), "--out", str(out), "--format", "jsonl", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    counts = {"decisions": 2, "calls": 4, "outcomes": 2, "feedback": 2}
    assert said == {"ok": True, "rows": counts, "files": {table: str(out / f"{table}.jsonl") for table in TABLES}}
    assert sorted(file.name for file in out.iterdir()) == sorted(f"{table}.jsonl" for table in TABLES)
    old, new = lines(out / "decisions.jsonl")
    assert (old["id"], new["id"]) == (OLD, NEW)
    assert set(new) == set(metadata.tables["decisions"].columns.keys())
    assert (new["tags"], new["status"], new["explored"], new["usage_estimated"], new["cost_usd"]) == (
        {"team": "red"},
        None,
        True,
        None,
        0.25,
    )
    assert [(row["decision_id"], row["n"]) for row in lines(out / "calls.jsonl")] == [(OLD, 0), (OLD, 1), (NEW, 0), (NEW, 1)]
    assert [(row["decision_id"], row["metric"], row["value"]) for row in lines(out / "outcomes.jsonl")] == [
        (OLD, "quality", 0.5),
        (NEW, "quality", 0.5),
    ]
    assert {row["decision_id"] for row in lines(out / "feedback.jsonl")} == {OLD, NEW}
    assert not any(b"PROMPT" in file.read_bytes() for file in out.iterdir())


def test_parquet(filled: Place, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default: the same rows, with the columns' own types, also where a column holds nothing."""
    assert cli.main(["export", "--config", str(config), "--out", str(tmp_path / "out")]) == 0
    assert f"{tmp_path / 'out' / 'decisions.parquet'}" in capsys.readouterr().out
    found = {table: pq.read_table(tmp_path / "out" / f"{table}.parquet") for table in TABLES}
    assert {table: rows.num_rows for table, rows in found.items()} == {"decisions": 2, "calls": 4, "outcomes": 2, "feedback": 2}
    kinds = {field.name: str(field.type) for field in found["decisions"].schema}
    assert list(kinds) == list(metadata.tables["decisions"].columns.keys())
    assert (kinds["created"], kinds["prompt_tokens"], kinds["attempts"], kinds["explored"]) == ("double", "int64", "int32", "bool")
    assert (kinds["id"], kinds["features"], kinds["status"]) == ("string", "binary", "int32")
    new = found["decisions"].to_pylist()[1]
    assert (new["id"], new["tags"], new["status"], new["explored"], new["features"]) == (NEW, '{"team": "red"}', None, True, None)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_contents_only_when_asked_for(filled: Place, config: Path, tmp_path: Path, form: str) -> None:
    assert cli.main(["export", "--config", str(config), "--out", str(tmp_path / "out"), "--format", form, "--contents"]) == 0
    file = tmp_path / "out" / f"contents.{form}"
    rows = lines(file) if form == "jsonl" else pq.read_table(file).to_pylist()
    assert [(row["decision_id"], row["answer"]) for row in rows] == [(OLD, "ANSWER"), (NEW, "ANSWER")]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--since", str(NOW - 3_600)], [NEW]),
        (["--until", str(NOW - 3_600)], [OLD]),
        (["--since", time.strftime("%Y-%m-%d", time.gmtime(NOW - 5 * 86_400))], [OLD, NEW]),
        (["--since", time.strftime("%Y-%m-%d", time.gmtime(NOW + 2 * 86_400)), "--until", "2100-01-01T00:00:00Z"], []),
        (["--since", "2000-01-01T00:00:00+02:00", "--until", "2000-01-02"], []),
    ],
)
def test_a_stretch_of_time(filled: Place, config: Path, tmp_path: Path, options: list[str], found: list[str]) -> None:
    """Of all tables; where there is nothing, the files are there all the same."""
    assert cli.main(["export", "--config", str(config), "--out", str(tmp_path), "--format", "jsonl", *options]) == 0
    assert [row["id"] for row in lines(tmp_path / "decisions.jsonl")] == found
    assert sorted({row["decision_id"] for row in lines(tmp_path / "calls.jsonl")}) == sorted(found)
    assert cli.main(["export", "--config", str(config), "--out", str(tmp_path), *options]) == 0
    assert pq.read_table(tmp_path / "decisions.parquet").num_rows == len(found)


@pytest.mark.parametrize("when", ["yesterday", "2026-01-01T00:00:00", "nan", ""])
def test_a_time_that_is_none(config: Path, tmp_path: Path, when: str) -> None:
    with pytest.raises(SystemExit) as exited:
        cli.main(["export", "--config", str(config), "--out", str(tmp_path), "--since", when])
    assert exited.value.code == 2


def test_bytes_in_lines_of_json(place: Place, config: Path, tmp_path: Path) -> None:
    fill(place, decision(NEW, tags=None))
    place.execute("UPDATE decisions SET features = " + ("decode('0001ff', 'hex')" if place.url.startswith("postgres") else "x'0001ff'"))
    assert cli.main(["export", "--config", str(config), "--out", str(tmp_path), "--format", "jsonl"]) == 0
    (row,) = lines(tmp_path / "decisions.jsonl")
    assert base64.b64decode(row["features"]) == b"\x00\x01\xff"


def test_many_batches(place: Place, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row once."""
    monkeypatch.setattr("gateway.exporting.export._ROWS", 7)
    fill(place, *(decision(f"{first_id(NOW - 60)}{n:03}") for n in range(100)))
    assert cli.main(["export", "--config", str(config), "--out", str(tmp_path)]) == 0
    rows = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    assert [row["id"][12:] for row in rows] == [f"{n:03}" for n in range(100)]


def test_what_was_there_is_replaced_only_by_something_whole(
    filled: Place, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", "--config", str(config), "--out", str(tmp_path / "out"), "--format", "jsonl"]
    assert cli.main(arguments) == 0
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    filled.execute("UPDATE decisions SET tenant = 'other'")
    filled.execute("ALTER TABLE feedback RENAME TO elsewhere")
    assert cli.main(arguments) == 1
    assert "the database cannot be read" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before
    filled.execute("ALTER TABLE elsewhere RENAME TO feedback")
    assert cli.main(arguments) == 0
    assert {row["tenant"] for row in lines(tmp_path / "out" / "decisions.jsonl")} == {"other"}


def test_what_is_wrong(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 2 where nothing can be asked, 1 where it cannot be done; in a sentence."""
    out = tmp_path / "out"

    def run(storage: str, *options: str) -> tuple[int, str]:
        file = tmp_path / "trilemma.yaml"
        backends = '{"a": {"url": "http://127.0.0.1:9", "models": {"m": "m"}}}'
        file.write_text(f'{{"version": 1, "backends": {backends}, "storage": {storage}}}')
        status = cli.main(["export", "--config", str(file), "--out", str(out), *options])
        return status, capsys.readouterr().err

    assert run("{}") == (2, "trilemma export: there is no database: `storage.url` is empty\n")
    status, said = run('{"url": 5}')
    assert (status, "storage.url" in said) == (2, True)
    status, said = run(f'{{"url": "sqlite:///{tmp_path}/no.db"}}', "--format", "jsonl")
    assert (status, "the database cannot be read" in said) == (1, True)
    assert not (tmp_path / "no.db").exists()
    good = f'{{"url": "sqlite:///{database}"}}'
    monkeypatch.setitem(sys.modules, "gateway.exporting.parquet", None)
    status, said = run(good)
    assert (status, "trilemma[parquet]" in said) == (1, True)
    shutil.rmtree(out, ignore_errors=True)
    out.write_text("in the way")
    status, said = run(good, "--format", "jsonl")
    assert (status, f"{out} cannot be written" in said) == (1, True)
    assert cli.main(["export", "--config", str(tmp_path / "none.yaml"), "--out", str(out), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["ok"] is False
