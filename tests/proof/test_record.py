"""The record of decisions as a log: from the database, and as `trilemma export` wrote it, the same."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from gateway import cli
from gateway.proof.record import Reading, Record, read_database, read_folder, rows_of
from gateway.proof.replay import main
from gateway.serving.choice import Decided, Weighed
from gateway.store.columns import first_id
from gateway.store.urls import located
from policies.offpolicy.log import LogError, Row
from policies.signals.calibration import BELIEVED, Calibration
from policies.values.situation import Prices
from tests.store.making import decision, fill, item
from tests.support.stored import Place

NOW = time.time()


def decided(**changes: Any) -> str:
    candidates = (Weighed("small", 0.75, 0.5, 0.4, 0.6, 0.5, 0.001, 1.0), Weighed("large", 0.25, 0.7, 0.6, 0.8, 0.6, 0.01, 2.0))
    return msgspec.json.encode(Decided(candidates, Prices(10.0, 0.5), now=NOW - 50, **changes)).decode()


def one(id_: str, **changes: Any) -> Any:
    """A decision of the virtual model `auto`."""
    features = np.array([0.5, -2.0, 3.0], dtype="<f4").tobytes()
    base: dict[str, Any] = {
        "created": int(id_[:12], 16) / 1e3,
        "requested_model": "auto",
        "policy": "now",
        "plan": "large",
        "propensity": 0.25,
        "outcome": "ok",
        "decided": decided(),
        "features": features,
        "feature_version": "shape-1:2,static-1:1",
        "cost_usd": 0.02,
        "latency_s": 1.5,
        "tenant": "shop",
        "session": "s1",
        "unit": "u1",
        "first_turn": True,
        "snapshot": 4,
        "tags": None,
    }
    return decision(id_, **(base | changes))


def said(id_: str, source: str, value: float, probability: float, metric: str = "quality") -> Any:
    return item("outcomes", decision_id=id_, source=source, metric=metric, value=value, labelling_probability=probability)


@pytest.fixture
def ids() -> list[str]:
    return [f"{first_id(NOW - 100 + i)}{i}" for i in range(7)]


@pytest.fixture
def filled(place: Place, ids: Sequence[str]) -> Place:
    fill(
        place,
        one(ids[0]),
        said(ids[0], "judge", 0.75, 0.2),
        said(ids[0], "judge", 0.1, 0.5, metric="style"),
        one(ids[1], session=None, decided=decided(explore=False), first_turn=False, cost_usd=None),
        one(ids[2], decided=decided(fallback="features_late"), features=None, feature_version=None),
        one(ids[3], outcome="backend_error", plan="small"),
        said(ids[3], "judge", 0.0, 0.2),
        one(ids[4], plan=None, decided=None),
        one(ids[5], requested_model="other"),
        one(ids[6], policy="split", tenant="lab"),
    )
    return place


@pytest.fixture
def config(place: Place, tmp_path: Path) -> Path:
    file = tmp_path / "trilemma.yaml"
    plans = {"small": {"model": "m"}, "large": {"model": "m"}}
    file.write_text(
        json.dumps(
            {
                "version": 1,
                "backends": {"a": {"url": "http://127.0.0.1:9", "models": {"m": "m"}}},
                "models": {"m": {}},
                "virtual_models": {"auto": {"policy": "now", "plans": plans}},
                "policies": {"now": {"type": "fixed"}, "candidate": {"type": "fixed", "params": {"plan": "large"}}},
                "storage": {"url": place.url},
            }
        )
    )
    return file


def by_id(reading: Reading) -> dict[str, Row]:
    return {row.id: row for row in reading.rows}


def of_database(place: Place, believed: Mapping[str, Calibration] = BELIEVED) -> Record:
    location = located(place.url)
    assert location is not None
    return asyncio.run(read_database(location, "auto", 1.0, believed))


def test_rows_are_what_was_decided_and_what_was_said_of_it(filled: Place, ids: Sequence[str]) -> None:
    reading = rows_of(of_database(filled), "auto", {"split"})
    found = by_id(reading)
    assert sorted(found) == [ids[0], ids[1], ids[2], ids[6]]
    assert reading.left_out == {"failed, cut or cancelled": 1, "not decided by a policy": 1}
    first = found[ids[0]]
    assert (first.plan, first.propensity, first.created, first.version, first.tenant) == ("large", 0.25, NOW - 50, 4, "shop")
    assert [(each.plan, each.probability, each.cost, each.latency) for each in first.candidates] == [
        ("small", 0.75, 0.001, 1.0),
        ("large", 0.25, 0.01, 2.0),
    ]
    assert (first.quality, first.labelling) == (0.75, pytest.approx(0.2))
    assert (first.prices.cost, first.prices.latency, first.cost, first.latency) == (10.0, 0.5, 0.02, 1.5)
    assert (first.unit, first.session, first.first, first.explore) == ("u1", "s1", True, True)
    assert {name: np.frombuffer(block, "<f4").tolist() for name, block in first.blocks.items() if isinstance(block, bytes)} == {
        "shape-1": [0.5, -2.0],
        "static-1": [3.0],
    }
    greedy = found[ids[1]]
    assert (greedy.session, greedy.first, greedy.explore, greedy.quality, greedy.cost) == ("", False, False, None, None)
    assert found[ids[2]].explore is False and found[ids[2]].blocks == {}
    assert found[ids[6]].session == "u1"


def test_an_export_says_the_same(filled: Place, config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert cli.main(["export", "--config", str(config), "--out", str(folder), "--format", "jsonl", "--json"]) == 0
    exported, stored = rows_of(read_folder(folder, BELIEVED), "auto"), rows_of(of_database(filled), "auto")
    assert by_id(exported) == by_id(stored) and exported.left_out == stored.left_out


def test_the_command_reads_the_database(place: Place, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    rows = []
    for i in range(300):
        id_ = f"{first_id(NOW - 1000 + i)}{i:04}"
        large = bool(generator.random() < 0.25)
        rows.append(one(id_, plan="large" if large else "small", propensity=0.25 if large else 0.75, session=f"s{i}"))
        rows.append(said(id_, "feedback", float(generator.random() < (0.8 if large else 0.4)), 1.0))
    fill(place, *rows)
    assert main(["--config", str(config), "--policy", "candidate", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["evaluated"]) == (300, 300)
    best = found["quality"]["target"][0]
    assert best["method"] == "dr" and best["labels"] == 300 and best["low"] < 0.8 < best["high"]
    assert main(["--config", str(config), "--days", "0.001", "--json"]) == 1
    assert "the log is empty" in json.loads(capsys.readouterr().out)["error"]


def with_schema(place: Place, believed: object, config: Path, judged: int = 0) -> None:
    """40 decisions, every other one by the small plan; answers of the large one fit the schema, those of the other do not. As many as are
    judged, callers judge otherwise: half of each are good."""
    rows = []
    for i in range(40 + judged):
        id_ = f"{first_id(NOW - 100 + i)}{i:04}"
        large = i % 2 == 0
        rows.append(one(id_, plan="large" if large else "small", propensity=0.25 if large else 0.75, session=f"s{i}", unit=f"u{i}"))
        rows.append(said(id_, "schema", float(large), 1.0))
        if i >= 40:
            rows.append(said(id_, "feedback", float(i % 4 < 2), 1.0))
    fill(place, *rows)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"learning": {"calibration": {"schema": believed}}}))


def means(found: dict[str, Any]) -> dict[str, float]:
    return {each["method"]: each["value"] for each in found["quality"]["target"]}


def test_words_are_worth_what_the_configuration_says(
    place: Place, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where one plan always serves, each answer is worth what the schema's yes or no is worth."""
    with_schema(place, {"at_0": 0.15, "at_1": 0.35}, config)
    folder = tmp_path / "out"
    assert cli.main(["export", "--config", str(config), "--out", str(folder), "--format", "jsonl", "--json"]) == 0
    capsys.readouterr()
    for more in ([], ["--log", str(folder)]):
        for policy, worth in (("candidate", 0.35), ("now", 0.15)):
            assert main(["--config", str(config), "--policy", policy, "--json", *more]) == 0
            assert means(json.loads(capsys.readouterr().out))["snips"] == pytest.approx(worth)


def test_words_are_worth_what_was_found_out(place: Place, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """30 pairs at either end, half of them good, with what was believed like five more."""
    believed = Calibration(0.15, 0.35)
    with_schema(place, believed._asdict(), config, judged=60)
    folder = tmp_path / "out"
    assert cli.main(["export", "--config", str(config), "--out", str(folder), "--format", "jsonl", "--json"]) == 0
    capsys.readouterr()
    given = {"schema": believed}
    for record in (of_database(place, given), read_folder(folder, given)):
        rows = [row for row in rows_of(record, "auto").rows if row.quality not in (0.0, 1.0)]
        assert len(rows) == 40
        worth = {"large": (15 + 5 * 0.35) / 35, "small": (15 + 5 * 0.15) / 35}
        assert [row.quality for row in rows] == [pytest.approx(worth[row.plan]) for row in rows]


def test_who_speaks_of_one_plan_only_is_not_heard(place: Place, config: Path, tmp_path: Path) -> None:
    ids = [f"{first_id(NOW - 100 + i)}{i}" for i in range(4)]
    rows = [one(id_, plan="large" if i % 2 else "small") for i, id_ in enumerate(ids)]
    fill(place, *rows, said(ids[1], "judge", 0.5, 1.0), said(ids[3], "judge", 0.5, 1.0), said(ids[3], "feedback", 0.75, 1.0))
    folder = tmp_path / "out"
    assert cli.main(["export", "--config", str(config), "--out", str(folder), "--format", "jsonl", "--json"]) == 0
    for record in (of_database(place), read_folder(folder, BELIEVED)):
        assert record.labels == {ids[3]: (0.75, 1.0)}


def test_a_row_that_cannot_be_read_is_named(ids: Sequence[str]) -> None:
    row = dict.fromkeys(("plan", "decided", "features", "feature_version", "outcome", "policy"), None)
    broken = {**row, "id": "d9", "requested_model": "auto", "plan": "large", "outcome": "ok", "decided": "{"}
    with pytest.raises(LogError, match="the decision `d9`"):
        rows_of(Record([broken], {}), "auto")


def test_a_damaged_export_is_said(tmp_path: Path) -> None:
    (tmp_path / "decisions.jsonl").write_text("{\n")
    (tmp_path / "outcomes.jsonl").write_text("")
    with pytest.raises(LogError, match=r"decisions\.jsonl"):
        read_folder(tmp_path, BELIEVED)


def test_without_a_database_a_log_must_be_named(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = json.loads(config.read_text())
    given["storage"] = {"url": ""}
    config.write_text(json.dumps(given))
    assert main(["--config", str(config)]) == 2
    assert "there is no database" in capsys.readouterr().err
