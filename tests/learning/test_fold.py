"""What is said of decisions comes into the policies' states, once, whatever happens on the way; in either kind of database."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import psycopg
import pytest

from gateway.access.link import Link, Session
from gateway.learning import fold as folding
from gateway.learning.fold import Known, fold_some
from gateway.learning.observations import Reason
from gateway.store import joining
from gateway.store import learning as store
from gateway.store.columns import first_id
from gateway.store.database import Database
from gateway.store.erasure import erase
from gateway.store.joining import GRACE_S
from gateway.store.writer import Item
from policies.values.outcome import Observation
from tests.learning.making import NAME, NOW, PLANS, decided, features, fill, fold, found, id_of, said, scope, sums
from tests.store.making import decision
from tests.support.means import Means, Sums
from tests.support.stored import Place, PostgresPlace

NOTHING = ([0.0, 0.0], [0.0, 0.0], [[0.0] * 3] * 2)


async def newest(link: Link) -> tuple[list[float], list[float], list[list[float]]]:
    """The numbers of the newest version, as another process would find them."""

    def read(session: Session) -> Any:
        row = store.state(session, NAME, 1 << 30)
        return None if row is None else folding.snapshots.opened(scope(), row)

    version = await link.read(read)
    return NOTHING if version is None else sums(version)


async def test_what_is_said_is_learnt(link: Link, place: Place) -> None:
    """Counts, gains, and moments: sums over decisions of quality x features."""
    fill(place, decided(1), decided(2, "large"), decided(3), said(1, 1.0), said(2, 0.5), said(3, 0.25))
    folded = await link.run(fold)
    assert (folded.count, dict(folded.skipped), folded.waiting, folded.more) == (3, {}, 0, False)
    version = folded.versions[NAME]
    assert sums(version) == ([2.0, 1.0], [1.25, 0.5], [[1.75, 1.25, 2.5], [1.0, 0.5, 1.0]])
    assert (version.version, version.observations, version.config_hash, version.note) == (1, 3, "hash", None)
    assert version.data_from == pytest.approx(NOW + 1)
    assert version.data_to == pytest.approx(NOW + 3)
    assert await newest(link) == sums(version)
    assert place.rows("to_learn") == []
    assert [(row["decision_id"], row["version"], row["n"], row["quality"]) for row in place.rows("learned")] == [
        (id_of(1), 1, 0, 1.0),
        (id_of(2), 1, 1, 0.5),
        (id_of(3), 1, 2, 0.25),
    ]


async def test_a_policy_is_given_all_that_is_known_of_a_decision(link: Link, place: Place) -> None:
    given: list[Observation] = []

    class Listens(Means):
        def fold(self, state: Sums, observations: Sequence[Observation]) -> Sums:
            given.extend(observations)
            return super().fold(state, observations)

    weighed = '{"candidates":[["large",0.25,0,0,1,0,0,0],["small",0.75,0,0,1,0,0,0]],"prices":{}}'
    fill(place, decided(1, cost_usd=0.5, latency_s=2.5, decided=weighed), said(1, 0.5))
    listens = folding.Scope(NAME, Listens(PLANS), PLANS, "small")
    await link.run(lambda session: fold(session, listens))
    (one,) = given
    assert one.blocks["size-1"].tolist() == [1.0, 1.0, 2.0]
    assert (one.decision_id, one.plan, one.quality, one.before, one.weight, one.propensity) == (id_of(1), "small", 0.5, None, 1.0, 0.5)
    assert (one.unit, one.tenant, one.cost, one.latency, one.baseline) == ("u1", "shop", 0.5, 2.5, 0.75)
    assert one.at == pytest.approx(NOW + 1)


async def test_nothing_happens_where_nothing_was_said(link: Link, place: Place) -> None:
    fill(place, decided(1))
    folded = await link.run(fold)
    assert (folded.count, folded.versions) == (0, {})
    assert place.rows("policy_states") == []


async def test_the_same_word_counts_once(link: Link, place: Place) -> None:
    fill(place, decided(1), said(1, 1.0))
    first = await link.run(fold)
    fill(place, said(1, 1.0), said(1, 1.0, "again", 1))
    second = await link.run(fold)
    assert (second.count, dict(second.skipped), second.versions) == (0, {"nothing_new": 1}, {})
    assert await newest(link) == sums(first.versions[NAME])


async def test_a_correction_takes_the_place_of_what_was_said_before(link: Link, place: Place) -> None:
    """As if only the last word had been said."""
    fill(place, decided(1), said(1, 1.0))
    await link.run(fold)
    fill(place, said(1, 0.25, "better", 1))
    folded = await link.run(fold)
    assert sums(folded.versions[NAME]) == ([1.0, 0.0], [0.25, 0.0], [[0.25, 0.25, 0.5], [0.0] * 3])
    assert folded.versions[NAME].observations == 1
    assert [(row["version"], row["quality"], row["before"]) for row in place.rows("learned")] == [(1, 1.0, None), (2, 0.25, 1.0)]


async def test_a_correction_by_a_source_of_another_weight(link: Link, place: Place) -> None:
    """A judge's sample of a tenth stands for ten; when the caller says better, its one word is all that counts."""
    fill(place, decided(1), found(1, 0.5, probability=0.1), decided(2, "large", learn=False), found(2, 0.5, probability=0.1))
    assert sums((await link.run(fold)).versions[NAME])[:2] == ([10.0, 0.0], [5.0, 0.0])
    fill(place, said(1, 0.25))
    version = (await link.run(fold)).versions[NAME]
    assert sums(version) == ([1.0, 0.0], [0.25, 0.0], [[0.25, 0.25, 0.5], [0.0] * 3])
    assert version.observations == 1


async def test_early_feedback_waits_for_its_decision(link: Link, place: Place) -> None:
    fill(place, said(1, 1.0))
    folded = await link.run(fold)
    assert (folded.count, dict(folded.skipped), folded.waiting) == (0, {}, 1)
    fill(place, decided(1))
    place.execute("UPDATE to_learn SET due = 0")  # its time has come
    assert (await link.run(fold)).count == 1


async def test_what_waits_is_not_looked_at_all_the_time(link: Link, place: Place) -> None:
    fill(place, said(1, 1.0))
    assert await link.read(store.is_due)
    await link.run(fold)
    (row,) = place.rows("to_learn")
    assert 0.1 <= row["due"] - row["created"] <= 70
    place.execute(f"UPDATE to_learn SET due = {NOW + 3600}")
    assert not await link.read(store.is_due)


LONG_AGO = f"{first_id(NOW - GRACE_S - 60)}-old"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (decided(1, outcome="backend_error"), "failed"),
        (decided(1, outcome="client_closed"), "failed"),
        (decided(1, learn=False), "told_not_to"),
        (decided(1, None, policy="none", requested_model="small"), "relayed"),
        (decided(1, "gone"), "unknown_plan"),
        (decided(1, features=None, feature_version=None), "other_features"),
        (decided(1, features=features(1, 2), feature_version="size-1:2"), "other_features"),
        (decided(1, features=features(1, 2), feature_version="size-1:3"), "other_features"),
        (decided(1, features=features(float("nan"), 0, 0)), "other_features"),
        (decided(1, decided="{no JSON"), "other_features"),
    ],
)
async def test_what_is_not_learnt(link: Link, place: Place, row: Item, reason: Reason) -> None:
    """It is taken out and counted; what else came is learnt."""
    fill(place, row, decided(2), said(1, 1.0), said(2, 1.0))
    folded = await link.run(fold)
    assert (folded.count, dict(folded.skipped), folded.waiting) == (1, {reason: 1}, 0)
    assert sums(folded.versions[NAME])[0] == [1.0, 0.0]


async def test_what_is_said_of_other_metrics_is_not_learnt(link: Link, place: Place) -> None:
    fill(place, decided(1), said(1, 1.0, metric="tone"))
    assert dict((await link.run(fold)).skipped) == {"unlabelled": 1}


async def test_a_decision_that_never_came(link: Link, place: Place) -> None:
    place.execute(f"INSERT INTO to_learn (decision_id, metric, created, due) VALUES ('{LONG_AGO}', 'quality', 0, 0)")
    folded = await link.run(fold)
    assert (dict(folded.skipped), folded.waiting) == ({"never_came": 1}, 0)


async def test_a_policy_without_a_state(link: Link, place: Place) -> None:
    from policies.routing.fixed import Fixed

    fill(place, decided(1), said(1, 1.0))
    folded = await link.run(lambda session: fold(session, folding.Scope(NAME, Fixed("small"), PLANS, config_hash="hash")))
    assert (dict(folded.skipped), folded.waiting) == ({"stateless": 1}, 0)


async def test_a_policy_that_this_process_does_not_know_is_left_to_others_for_a_time(link: Link, place: Place) -> None:
    """A new configuration reaches one process before the other."""
    fill(place, decided(1, policy="later"), said(1, 1.0))
    folded = await link.run(fold)
    assert (dict(folded.skipped), folded.waiting) == ({}, 1)
    place.execute(f"UPDATE to_learn SET due = 0, created = {NOW - folding.PATIENCE_S - 60}")
    folded = await link.run(fold)
    assert (dict(folded.skipped), folded.waiting) == ({"unknown_policy": 1}, 0)


@pytest.mark.parametrize("other", [{"plan": "third"}, {"features": features(1, 2), "feature_version": "size-1:2"}])
async def test_what_another_configuration_decided_is_left_to_others_for_a_time(link: Link, place: Place, other: dict[str, Any]) -> None:
    fill(place, decided(1, **{"plan": "small", "config_hash": "newer"} | other), said(1, 1.0))
    folded = await link.run(fold)
    assert (dict(folded.skipped), folded.waiting) == ({}, 1)
    place.execute(f"UPDATE to_learn SET due = 0, created = {NOW - folding.PATIENCE_S - 60}")
    assert (await link.run(fold)).skipped.keys() == {"unknown_plan" if "plan" in other else "other_features"}


async def test_a_policy_that_learns_elsewhere_already(link: Link, place: Place) -> None:
    """Of this name there is a policy here that learns nothing; a newer configuration has another one."""
    from policies.routing.fixed import Fixed

    fill(place, decided(1, config_hash="newer"), said(1, 1.0))
    folded = await link.run(lambda session: fold(session, folding.Scope(NAME, Fixed("small"), PLANS, config_hash="hash")))
    assert (dict(folded.skipped), folded.waiting) == ({}, 1)


async def test_scopes_learn_apart(link: Link, place: Place) -> None:
    other = scope(("large",), name="big/means")
    fill(place, decided(1), decided(2, "large", requested_model="big"), said(1, 1.0), said(2, 0.5))
    versions = (await link.run(lambda session: fold(session, scope(), other))).versions
    assert sums(versions[NAME])[1] == [1.0, 0.0]
    assert sums(versions["big/means"])[1] == [0.5]


async def test_so_many_at_a_time_the_oldest_first(link: Link, place: Place) -> None:
    fill(place, *(each for n in range(5) for each in (decided(n), said(n, 1.0))))
    folds = [await link.run(lambda session: fold(session, most=2)) for _ in range(3)]
    assert [(each.count, each.waiting, each.more) for each in folds] == [(2, 3, True), (2, 1, True), (1, 0, False)]
    assert [row["decision_id"] for row in place.rows("learned")] == [id_of(n) for n in range(5)]
    assert folds[-1].versions[NAME].version == 3


@pytest.mark.parametrize("broken", ["put_state", "put_learned", "done"])
async def test_what_breaks_half_way_has_not_happened(link: Link, place: Place, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Nothing is lost, and nothing counts twice."""
    fill(place, decided(1), said(1, 1.0))

    def breaks(*_: object) -> None:
        raise RuntimeError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(store, broken, breaks)
        with pytest.raises(RuntimeError, match="killed here"):
            await link.run(fold)
    assert place.rows("policy_states") == []
    assert place.rows("learned") == []
    assert len(place.rows("to_learn")) == 1
    await link.run(fold)
    assert await newest(link) == ([1.0, 0.0], [1.0, 0.0], [[1.0, 1.0, 2.0], [0.0] * 3])


async def test_what_a_policy_cannot_take_does_not_keep_the_rest(link: Link, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    fill(place, *(each for n in range(3) for each in (decided(n), said(n, 0.666 if n == 1 else 1.0))))
    folded = await link.run(fold)
    assert (folded.count, dict(folded.skipped), folded.waiting) == (2, {"refused": 1}, 0)
    assert sums(folded.versions[NAME])[1] == [2.0, 0.0]
    assert "this cannot be learnt" in caplog.text
    assert [row["decision_id"] for row in place.rows("learned")] == [id_of(0), id_of(2)]


async def test_what_one_knows_need_not_be_read_again_but_what_others_did_is(link: Link, place: Place) -> None:
    """Whoever folds goes on from the database's newest version, and not from its own memory."""
    mine = {}
    for n in range(4):
        fill(place, decided(n), said(n, 1.0))
        folded = await link.run(partial(fold, versions=mine))
        if n != 1:  # that one is of another process
            mine = dict(folded.versions)
    assert sums(mine[NAME])[0] == [4.0, 0.0]
    assert mine[NAME].version == 4


async def test_one_at_a_time(place: Place) -> None:
    """Who finds somebody at it comes back later; in SQLite it waits."""
    fill(place, *(each for n in range(50) for each in (decided(n), said(n, 1.0))))
    folded: list[int] = []

    def folds() -> None:
        import asyncio

        async def many() -> None:
            link = Link(place.location, 10)
            while place.rows("to_learn"):
                one = await link.run(lambda session: fold_some(session, Known({NAME: scope()}), 3))
                if one is not None:
                    folded.append(one.count)
            await link.close()

        asyncio.run(many())

    threads = [threading.Thread(target=folds) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(folded) == 50
    assert len(place.rows("learned")) == 50
    with contextlib.closing(place.sink()):
        link = Link(place.location, 10)
        assert (await newest(link))[:2] == ([50.0, 0.0], [50.0, 0.0])
        await link.close()


async def test_words_that_come_while_it_folds_are_not_lost(place: Place) -> None:
    """Somebody corrects every word again and again while it is learnt: the last one stands."""
    count, rounds = 10, 15
    fill(place, *(decided(n) for n in range(count)))
    writing = threading.Event()
    failed: list[BaseException] = []

    def writes() -> None:
        try:
            with contextlib.closing(place.sink()) as sink:
                sink.ready()
                for step in range(rounds):
                    sink.store([said(n, (step + n) % 4 / 4, f"{n}-{step}", step) for n in range(count)])
        except BaseException as error:
            failed.append(error)
        finally:
            writing.set()

    thread = threading.Thread(target=writes)
    link = Link(place.location, 10)
    thread.start()
    last = False
    while not last:
        last = writing.is_set()
        await link.run(fold)
    thread.join()
    await link.run(fold)
    assert failed == []
    assert place.rows("to_learn") == []
    counts, gains, _ = await newest(link)
    assert counts == [count, 0.0]
    assert gains[0] == pytest.approx(sum((rounds - 1 + n) % 4 / 4 for n in range(count)))
    await link.close()


async def test_a_word_that_is_being_stored_is_left_for_the_next_fold(postgres: PostgresPlace) -> None:
    """Its transaction is not at its end, so what it says cannot be seen yet; the row that stands for it must stay."""
    fill(postgres, decided(1), decided(2), said(1, 1.0), said(2, 1.0))
    link = Link(postgres.location, 5)
    change = "UPDATE outcomes SET value = 0.25 WHERE decision_id = %s AND metric = 'quality'"
    with contextlib.closing(psycopg.connect(postgres.url)) as writer:
        writer.execute(change, (id_of(1),))
        writer.execute(joining.LEARN.replace("?", "%s"), (NOW, id_of(1), "quality"))  # type: ignore[arg-type]
        folded = await link.run(fold)
        assert (folded.count, folded.waiting) == (1, 1)
        writer.commit()
    await link.run(fold)
    assert (await newest(link))[:2] == ([2.0, 0.0], [1.25, 0.0])
    await link.close()


async def test_an_erasure_takes_back_what_was_learnt(link: Link, place: Place) -> None:
    """The state is as if the decisions had never been; older versions, in which they still are, are gone, and so is all that was kept of
    them for that."""
    ours = [each for n in (1, 3) for each in (decided(n, session="s"), said(n, 0.5))]
    fill(place, *ours, decided(2, "large"), said(2, 1.0))
    fill(place, decided(4, session="s"), said(4, 1.0))
    await link.run(fold)
    fill(place, said(1, 1.0, "better", 1))
    await link.run(fold)
    assert len(place.rows("policy_states")) == 2
    database = Database(place.location)
    await erase(database, session="s", pause_s=0)
    await database.close()
    assert len(place.rows("to_retract")) == 3
    assert place.rows("to_learn") == []
    assert [row["decision_id"] for row in place.rows("learned")] == [id_of(2)]
    assert await link.read(store.is_due)
    folded = await link.run(fold)
    assert (folded.count, folded.more) == (3, False)
    version = folded.versions[NAME]
    assert sums(version) == ([0.0, 1.0], [0.0, 1.0], [[0.0] * 3, [2.0, 1.0, 2.0]])
    assert (version.observations, version.note) == (1, "3 decisions were erased")
    assert [row["version"] for row in place.rows("policy_states")] == [3]
    assert place.rows("to_retract") == []
    assert not await link.read(store.is_due)


async def test_what_was_erased_before_it_was_learnt_is_never_learnt(link: Link, place: Place) -> None:
    fill(place, decided(1, session="s"), said(1, 0.5))
    database = Database(place.location)
    await erase(database, session="s", pause_s=0)
    await database.close()
    folded = await link.run(fold)
    assert (folded.count, folded.waiting, dict(folded.skipped)) == (0, 0, {})


async def test_what_nobody_can_take_back_goes_with_all_that_holds_it(link: Link, place: Place) -> None:
    """The policy is not configured any more."""
    fill(place, decided(1, session="s"), said(1, 0.5), decided(2), said(2, 0.5))
    await link.run(fold)
    database = Database(place.location)
    await erase(database, session="s", pause_s=0)
    await database.close()
    other = scope(name="other/means")
    await link.run(lambda session: fold(session, other))
    assert len(place.rows("policy_states")) == 1, "somebody may still know it"
    place.execute(f"UPDATE to_retract SET created = {NOW - folding.PATIENCE_S - 60}")
    await link.run(lambda session: fold(session, other))
    assert place.rows("policy_states") == []
    assert place.rows("to_retract") == []
    back = await link.run(lambda session: fold(session, fresh=True))
    assert sums(back.versions[NAME])[0] == [1.0, 0.0], "it comes back without the one that was erased"


async def test_a_policy_that_cannot_take_back_is_made_anew(link: Link, place: Place) -> None:
    class Only(Means):
        def fold(self, state: Sums, observations: Sequence[Observation]) -> Sums:
            if any(each.quality is None for each in observations):
                raise NotImplementedError
            return super().fold(state, observations)

    only = folding.Scope(NAME, Only(PLANS), PLANS)
    fill(place, decided(1, session="s"), said(1, 0.5), decided(2), said(2, 0.25))
    await link.run(lambda session: fold(session, only))
    database = Database(place.location)
    await erase(database, session="s", pause_s=0)
    await database.close()
    fill(place, decided(3), said(3, 1.0))
    version = (await link.run(lambda session: fold(session, only))).versions[NAME]
    assert sums(version)[:2] == ([2.0, 0.0], [1.25, 0.0])
    assert [row["version"] for row in place.rows("policy_states")] == [version.version]


async def test_retention_takes_the_log_along(place: Place) -> None:
    """With the decisions, what was learnt of them goes; the state stays."""
    link = Link(place.location, 10)
    fill(place, decided(1), said(1, 0.5))
    await link.run(fold)
    with contextlib.closing(place.sink()) as sink:
        sink.ready()
        assert [sink.expire(table, first_id(NOW + 60), 10) for table in ("decisions", "learned", "to_learn")] == [1, 1, 0]
    assert (await newest(link))[1] == [0.5, 0.0]
    await link.close()


def test_a_row_without_much_in_it(place: Place) -> None:
    """Rows of older versions of Trilemma have no words for some things."""
    fill(place, decision(id_of(1), learn=None, unit=None, cost_usd=None, decided=None))
    assert place.rows()[0]["unit"] is None


async def test_a_source_counts_once_it_speaks_of_two_plans(link: Link, place: Place) -> None:
    """Else the plan that it can speak of would look better, or worse, than all others for that alone. Callers always count."""
    fill(place, decided(1), found(1, 1.0), decided(2), found(2, 0.0, "verifier"), decided(3), said(3, 1.0))
    folded = await link.run(fold)
    assert folded.skipped == {"one_plan": 2}
    assert folded.compared == frozenset()
    assert sums(folded.versions[NAME])[:2] == ([1.0, 0.0], [1.0, 0.0])

    fill(place, decided(4, "large"), found(4, 0.5), decided(5), found(5, 1.0), decided(6), found(6, 0.0, "verifier"))
    folded = await link.run(fold)
    assert folded.skipped == {"one_plan": 1}
    assert folded.compared == {(NAME, "judge")}
    assert sums(folded.versions[NAME])[:2] == ([2.0, 1.0], [2.0, 0.5])


async def test_what_was_learnt_of_a_source_stays(link: Link, place: Place) -> None:
    """Also when only one plan is left of which it has spoken lately."""
    fill(place, decided(1), found(1, 1.0), decided(2, "large"), found(2, 0.0))
    await link.run(fold)
    place.execute("DELETE FROM outcomes WHERE value = 0.0")
    fill(place, found(1, 0.5, "note", metric="other"))
    folded = await link.run(fold)
    assert (folded.skipped, folded.versions) == ({"nothing_new": 1}, {})
