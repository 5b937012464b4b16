"""The record of a virtual model is read page by page from either database, the newest decisions first, and becomes rows for estimates."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import numpy as np
import pytest

from gateway.access.link import Link
from gateway.learning import logged
from gateway.learning.fold import Known, fold_some
from gateway.learning.logged import Asked, recorded
from gateway.learning.statistics import curve
from gateway.proof.record import rows_of
from gateway.serving.choice import Decided, Weighed
from gateway.store.columns import first_id
from gateway.store.history import Stretch
from policies.signals.calibration import Calibration
from policies.values.situation import Prices
from tests.learning import making
from tests.store.making import decision, fill, item
from tests.support.stored import Place

NOW = time.time()
BLOCK = np.array([0.5, -2.0], dtype="<f4")


def at(number: int) -> float:
    return NOW - 100 + number


def id_of(number: int) -> str:
    return f"{first_id(at(number))}{number}"


def one(number: int, **changes: Any) -> Any:
    """A decision of `auto`."""
    candidates = (Weighed("small", 0.75, 0.5, 0.4, 0.6, 0.5, 0.001, 1.0), Weighed("large", 0.25, 0.7, 0.6, 0.8, 0.6, 0.01, 2.0))
    decided = Decided(candidates, Prices(10.0, 0.5), now=at(number))
    base: dict[str, Any] = {
        "created": at(number),
        "requested_model": "auto",
        "policy": "now",
        "plan": "large",
        "propensity": 0.25,
        "outcome": "ok",
        "decided": msgspec.json.encode(decided).decode(),
        "features": BLOCK.tobytes(),
        "feature_version": "shape-1:2",
        "cost_usd": 0.02,
        "latency_s": 1.5,
        "tenant": "shop",
        "session": "s1",
        "unit": "u1",
        "first_turn": number % 2 == 0,
        "snapshot": 4,
        "tags": None,
    }
    return decision(id_of(number), **(base | changes))


def said(number: int, value: float, probability: float) -> Any:
    return item("outcomes", decision_id=id_of(number), source="judge", metric="quality", value=value, labelling_probability=probability)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that several are read."""
    monkeypatch.setattr(logged, "_PAGE", 3)


@pytest.fixture
def filled(place: Place) -> Place:
    """A judge has said something of both plans."""
    rows = [one(number, policy="now" if number < 6 else "later", plan="large" if number % 4 else "small") for number in range(10)]
    words = [said(0, 0.0, 0.2), said(2, 0.5, 0.2), said(8, 0.0, 1.0), said(9, 1.0, 1.0)]
    fill(place, *rows, *words, one(20, requested_model="other"))
    return place


async def ids(link: Link, asked: Asked) -> list[int]:
    return [int(row["id"][-1]) for row in (await recorded(link.read, asked, {})).decisions]


async def test_the_newest_are_read_in_the_order_of_time(filled: Place, link: Link) -> None:
    assert await ids(link, Asked(Stretch("auto"))) == list(range(10))
    assert await ids(link, Asked(Stretch("auto"), last=4)) == [6, 7, 8, 9]
    assert await ids(link, Asked(Stretch("auto"), last=3)) == [7, 8, 9]
    assert await ids(link, Asked(Stretch("auto", "now"))) == [0, 1, 2, 3, 4, 5]
    assert await ids(link, Asked(Stretch("auto", None, at(3), at(6)))) == [3, 4, 5]
    assert await ids(link, Asked(Stretch("nobody"))) == []


async def test_rows_of_one_moment_are_read_once(place: Place, link: Link) -> None:
    fill(place, *(one(number, created=NOW) for number in range(8)))
    assert sorted(await ids(link, Asked(Stretch("auto")))) == list(range(8))


async def test_what_is_read_becomes_rows_for_estimates(filled: Place, link: Link) -> None:
    record = await recorded(link.read, Asked(Stretch("auto")), {})
    rows = {int(row.id[-1]): row for row in rows_of(record, "auto").rows}
    row = rows[2]
    assert (row.plan, row.propensity, row.tenant, row.unit, row.first, row.version) == ("large", 0.25, "shop", "u1", True, 4)
    assert (row.quality, row.labelling) == (0.5, pytest.approx(0.2)) and rows[1].quality is None and rows[1].first is False
    assert (row.cost, row.latency, row.prices.cost, row.created) == (0.02, 1.5, 10.0, at(2))
    assert [(each.plan, each.probability) for each in row.candidates] == [("small", 0.75), ("large", 0.25)]
    assert {name: np.frombuffer(block, "<f4").tolist() for name, block in row.blocks.items() if isinstance(block, bytes)} == {
        "shape-1": [0.5, -2.0]
    }


async def test_features_can_be_left_where_they_are(filled: Place, link: Link) -> None:
    record = await recorded(link.read, Asked(Stretch("auto"), features=False), {})
    assert len(record.decisions) == 10 and all("features" not in row for row in record.decisions)
    assert sorted(record.labels) == [id_of(0), id_of(2), id_of(8), id_of(9)]


async def test_words_are_worth_what_they_are_calibrated_to(filled: Place, link: Link) -> None:
    """A judge's grade of g is worth 0.2 + 0.6 g, and stands for as many as it leaves out."""
    record = await recorded(link.read, Asked(Stretch("auto")), {"judge": Calibration(0.2, 0.8)})
    assert record.labels == {
        id_of(0): (pytest.approx(0.2), pytest.approx(5)),
        id_of(2): (pytest.approx(0.5), pytest.approx(5)),
        id_of(8): (pytest.approx(0.2), 1),
        id_of(9): (pytest.approx(0.8), 1),
    }
    [stretch] = curve(record, 1)
    assert stretch["plans"]["small"]["quality"] == pytest.approx(0.2)
    assert stretch["plans"]["large"]["quality"] == pytest.approx((5 * 0.5 + 0.8) / 6)


async def test_labels_are_what_policies_learn(place: Place, link: Link) -> None:
    """Of the same decisions, with the same calibrations; a source that speaks of one plan only is heard by nobody, and callers always."""
    known = {"schema": Calibration(0.3, 0.6), "judge": Calibration(0.1, 0.9)}
    rows = [making.decided(n, making.PLANS[n % 2]) for n in range(4)]
    words = [making.found(n, n / 4, "schema", 0.5) for n in range(3)]
    making.fill(place, *rows, *words, making.found(3, 0.5, "judge", 0.1), making.said(1, 0.75))
    folded = await link.run(lambda session: fold_some(session, Known({making.NAME: making.scope()}, calibrations=known)))
    assert folded is not None and dict(folded.skipped) == {"one_plan": 1}
    record = await recorded(link.read, Asked(Stretch("auto")), known)
    assert record.labels == {row["decision_id"]: (row["quality"], row["weight"]) for row in place.rows("learned")}
    assert record.labels == {
        making.id_of(0): (pytest.approx(0.3), pytest.approx(2)),
        making.id_of(1): (0.75, 1),
        making.id_of(2): (pytest.approx(0.45), pytest.approx(2)),
    }


async def test_what_was_learnt_goes_on_to_count(place: Place, link: Link) -> None:
    """Though the only other plan of which the source spoke is gone."""
    making.fill(place, *(each for n in range(2) for each in (making.decided(n, making.PLANS[n]), making.found(n, 0.5))))
    await link.run(making.fold)
    place.execute(f"DELETE FROM decisions WHERE id = '{making.id_of(1)}'")
    assert (await recorded(link.read, Asked(Stretch("auto")), {})).labels == {making.id_of(0): (0.5, 1)}
