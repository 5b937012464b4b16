"""What processes learn, each from the words that reach any of them; through restarts, new configurations, and a database that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import numpy as np
import pytest

from gateway.learning.learner import Learner, Snapshots
from gateway.learning.scopes import Scope
from gateway.learning.snapshots import Version
from gateway.store.database import Database
from gateway.store.erasure import erase
from gateway.store.urls import SqliteUrl
from gateway.store.writer import Item
from policies.routing.fixed import Fixed
from tests.learning.making import NAME, PLANS, decided, fill, id_of, said, scope, sums
from tests.support.means import Means
from tests.support.stored import Place, SqlitePlace
from tests.support.waiting import until


@contextlib.asynccontextmanager
async def process(place: Place, *scopes: Scope) -> AsyncIterator[Learner]:
    """A learner that does nothing by itself."""
    learner = Learner(place.location)
    learner.configure(scopes or [scope()])
    yield learner
    await learner.close()


async def look(*learners: Learner) -> None:
    """Each looks until there is nothing to do for any of them."""
    for _ in range(2):
        for learner in learners:
            await learner.step()
    assert [learner.trouble for learner in learners] == [None] * len(learners)


def words(count: int, seed: int) -> list[Item]:
    """So many decisions, first and second words on each, in some order."""
    random_ = random.Random(seed)
    rows = [decided(n, random_.choice(PLANS)) for n in range(count)]
    rows += [said(n, random_.random(), f"{n}-{at}", at) for n in range(count) for at in range(2)]
    random_.shuffle(rows)
    return rows


def batches(rows: Iterable[Item], size: int = 7) -> list[list[Item]]:
    """In order."""
    all_ = list(rows)
    return [all_[start : start + size] for start in range(0, len(all_), size)]


def the_same(one: Version, other: Version) -> bool:
    """To the bit."""
    pairs = zip(vars(one.state).values(), vars(other.state).values(), strict=True)
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


async def test_before_anything_is_learnt_nothing_is_known(place: Place) -> None:
    async with process(place, scope(), Scope("auto/fixed", Fixed("small"), PLANS)) as learner:
        assert learner.snapshots.keys() == {NAME}, "who learns nothing has no snapshot"
        assert learner.snapshots[NAME].version == 0
        await look(learner)
        assert learner.snapshots[NAME].version == 0
        assert (learner.folded, learner.last_fold, learner.waiting) == (0, None, 0)


async def test_an_outcome_reaches_every_process_by_itself(place: Place) -> None:
    """Both run; the words come through the writer of either."""
    told: list[Snapshots] = []
    one, other = Learner(place.location, told.append), Learner(place.location)
    for learner in (one, other):
        learner.configure([scope()])
    tasks = [asyncio.create_task(learner.run()) for learner in (one, other)]
    fill(place, decided(1), said(1, 1.0))
    await until(lambda: [each.snapshots[NAME].version for each in (one, other)] == [1, 1], "both know")
    fill(place, said(1, 0.25, "better", 1))
    await until(lambda: [each.snapshots[NAME].version for each in (one, other)] == [2, 2], "both know better")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for learner in (one, other):
        assert sums(learner.snapshots[NAME])[:2] == ([1.0, 0.0], [0.25, 0.0])
        await learner.close()
    assert [each[NAME].version for each in told] == [0, 1, 2]
    assert one.folded + other.folded == 2


@pytest.mark.parametrize("seed", range(3))
async def test_two_processes_learn_what_one_would(place: Place, tmp_path: Path, migrated: Path, seed: int) -> None:
    """Rows arrive in any order, and each process looks when it likes: after all, both hold the same, which is what one alone comes to."""
    rows = words(60, seed)
    random_ = random.Random(seed + 100)
    async with process(place) as one, process(place) as other:
        for batch in batches(rows):
            fill(place, *batch)
            for learner in random_.sample([one, other], random_.randint(0, 2)):
                await learner.step()
        place.execute("UPDATE to_learn SET due = 0")
        await look(one, other)
        both = one.snapshots[NAME], other.snapshots[NAME]
        assert min(one.folded, other.folded) > 0
    alone = SqlitePlace(Path(shutil.copy(migrated, tmp_path / "alone.db")))
    fill(alone, *rows)
    async with process(alone) as learner:
        await look(learner)
        expected = learner.snapshots[NAME]
    assert the_same(*both)
    assert both[0].observations == expected.observations == 60
    assert sum(sums(expected)[0]) == 60, "each decision counts once"
    for found, wanted in zip(sums(both[0]), sums(expected), strict=True):
        assert np.allclose(found, wanted, rtol=0, atol=1e-9)


async def test_a_restart_goes_on_from_the_same_bits(place: Place) -> None:
    async with process(place) as before:
        for batch in batches(words(20, 1)):
            fill(place, *batch)
            await look(before)
        async with asyncio.timeout(10):
            while before.waiting:  # words that came before their decision wait a moment
                await look(before)
        known = before.snapshots[NAME]
    async with process(place) as after:
        await after.step()
        assert after.snapshots[NAME].version == known.version
        assert the_same(after.snapshots[NAME], known)
        assert (after.folded, len(place.rows("learned"))) == (0, len(place.rows("learned")))


KILLED = """
import asyncio, os, signal, sys
from gateway.learning.learner import Learner
from gateway.store import learning as store
from gateway.store.urls import located
from tests.learning.making import scope

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    learner = Learner(located(sys.argv[1]))
    learner.configure([scope()])
    if sys.argv[2] != "after":
        setattr(store, sys.argv[2], killed)
    await learner.step()
    killed()

asyncio.run(main())
"""


@pytest.mark.parametrize("where", ["due", "put_state", "put_learned", "done", "after"])
async def test_a_process_is_killed(place: Place, where: str) -> None:
    """In the middle of a fold, or right behind it: the next one makes it whole."""
    rows = words(20, 2)
    fill(place, *rows)
    run = [sys.executable, "-c", KILLED, place.url, where]
    child = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert child.returncode == -9, child.stderr
    assert len(place.rows("policy_states")) == (1 if where == "after" else 0)
    async with process(place) as learner:
        await look(learner)
        assert sum(sums(learner.snapshots[NAME])[0]) == 20
        assert learner.snapshots[NAME].version == 1
    assert len(place.rows("learned")) == 20


def breaks(file: Path) -> Path:
    """It is no database any more; where that is now."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    aside = Path(shutil.move(file, file.with_name("aside")))
    for beside in file.parent.glob(f"{file.name}*"):
        beside.unlink()
    file.write_bytes(b"broken" * 1000)
    return aside


async def test_a_database_that_goes_away(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is known stays in use; it is said once; and when the database is back, learning goes on."""
    place = SqlitePlace(database)
    async with process(place) as learner:
        fill(place, decided(1), said(1, 1.0))
        await look(learner)
        aside = breaks(database)
        pauses = [await learner.step() for _ in range(7)]
        assert pauses == [0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
        assert learner.trouble is not None
        assert learner.failures == 7
        assert sums(learner.snapshots[NAME])[0] == [1.0, 0.0]
        assert len([each for each in caplog.records if "cannot learn now" in each.message]) == 1
        shutil.move(aside, database)
        fill(place, decided(2), said(2, 1.0))
        await look(learner)
        assert learner.trouble is None
        assert sums(learner.snapshots[NAME])[0] == [2.0, 0.0]


async def test_a_database_that_is_not_there_yet_is_no_trouble(tmp_path: Path) -> None:
    learner = Learner(SqliteUrl(tmp_path / "none.db"))
    learner.configure([scope()])
    assert await learner.step() == 0.2
    assert learner.trouble is None
    await learner.close()


async def test_a_fault_of_a_policy_ends_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Means):
        def empty(self) -> None:  # type: ignore[override]
            raise ZeroDivisionError("a fault")

    async with process(place) as learner:
        learner._scopes = {NAME: Scope(NAME, Broken(PLANS), PLANS)}
        assert await learner.step() == 0.4
        assert learner.trouble == "a fault of the gateway, see its log"
        assert "a fault" in caplog.text


async def test_a_plan_that_is_added_has_nothing_to_forget(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """What was learnt of the others stays, made anew from the log; who has not heard of the new configuration keeps to what it knows, folds
    nothing of it, and says so once."""
    new = scope((*PLANS, "third"))
    async with process(place) as old, process(place) as changed:
        fill(place, *(each for n in range(4) for each in (decided(n, PLANS[n % 2]), said(n, 0.5))))
        await look(old, changed)
        changed.configure([new])
        assert sums(changed.snapshots[NAME])[0] == [0.0, 0.0, 0.0], "until it has looked"
        await changed.step()
        assert sums(changed.snapshots[NAME])[:2] == ([2.0, 2.0, 0.0], [1.0, 1.0, 0.0])
        assert changed.snapshots[NAME].note == "made anew from 4 decisions: it is of other plans"
        fill(place, decided(9, "third"), said(9, 1.0))
        await old.step()
        await old.step()
        assert sums(old.snapshots[NAME])[0] == [2.0, 2.0]
        assert [each.message for each in caplog.records if "another configuration" in each.message] == [
            f"`{NAME}` learns under another configuration than this process has; it serves with what it knows"
        ]
        await changed.step()
        assert sums(changed.snapshots[NAME])[:2] == ([2.0, 2.0, 1.0], [1.0, 1.0, 1.0])
        old.configure([new])
        await old.step()
        assert the_same(old.snapshots[NAME], changed.snapshots[NAME])


async def test_a_plan_that_is_gone(place: Place) -> None:
    """A word on what it did is not learnt, and the others keep what they have."""
    async with process(place) as learner:
        fill(place, decided(1), said(1, 1.0), decided(2, "large"), said(2, 0.5))
        await look(learner)
        learner.configure([scope(("large",))])
        fill(place, said(1, 0.0, "late", 1))
        await look(learner)
        assert sums(learner.snapshots[NAME])[:2] == ([1.0], [0.5])
        assert learner.skipped == {"unknown_plan": 1}
        known = [row for row in place.rows("learned") if row["version"] == learner.snapshots[NAME].version]
        assert {row["decision_id"]: row["quality"] for row in known} == {id_of(1): None, id_of(2): 0.5}


async def test_other_features(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that was learnt can be used; it begins anew, and says so."""
    async with process(place) as learner:
        fill(place, decided(1), said(1, 1.0))
        await look(learner)
        learner.configure([scope(dim=2)])
        await look(learner)
        assert sums(learner.snapshots[NAME])[0] == [0.0, 0.0]
        assert learner.snapshots[NAME].note == "made anew from 0 decisions: it is of other features"
        assert "does not fit: it is of other features" in caplog.text


async def test_a_policy_may_know_by_itself_what_to_do_with_other_plans(place: Place) -> None:
    class Adapts(Means):
        def adapted(self, arrays: dict[str, np.ndarray], old: tuple[str, ...], new: tuple[str, ...]) -> dict[str, np.ndarray]:
            at = [old.index(plan) for plan in new]
            return {name: array[at] for name, array in arrays.items()}

    async with process(place) as learner:
        fill(place, decided(1), said(1, 1.0), decided(2, "large"), said(2, 0.5))
        await look(learner)
        turned = PLANS[::-1]
        learner.configure([Scope(NAME, Adapts(turned), turned)])
        await look(learner)
        assert sums(learner.snapshots[NAME])[:2] == ([1.0, 1.0], [0.5, 1.0])
        assert learner.snapshots[NAME].note == "taken over: it is of other plans"
        assert learner.snapshots[NAME].observations == 2


async def test_a_new_configuration_of_the_same_shape_forgets_nothing(place: Place) -> None:
    async with process(place) as learner:
        fill(place, decided(1), said(1, 1.0))
        await look(learner)
        learner.configure([scope()])
        assert sums(learner.snapshots[NAME])[0] == [1.0, 0.0], "at once"
        await look(learner)
        assert learner.snapshots[NAME].version == 1
        learner.configure([])
        assert learner.snapshots == {}


async def test_what_was_folded_under_an_older_configuration_is_not_taken_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes while a fold runs."""
    async with process(place) as learner:
        fill(place, decided(1), said(1, 1.0))
        run = learner._link.run

        async def changes(work: object) -> object:
            found = await run(work)  # type: ignore[arg-type]
            learner.configure([scope((*PLANS, "third"))])
            return found

        with monkeypatch.context() as patched:
            patched.setattr(learner._link, "run", changes)
            await learner.step()
        assert sums(learner.snapshots[NAME])[0] == [0.0, 0.0, 0.0]
        await learner.step()
        assert sums(learner.snapshots[NAME])[0] == [1.0, 0.0, 0.0]


async def test_every_version_can_be_made_again(place: Place) -> None:
    """Those too that are not kept: from the one before that is, and what was learnt since; to the bit."""
    seen: dict[int, Version] = {}
    async with process(place) as learner:
        for batch in batches(words(60, 3), 5):
            fill(place, *batch)
            place.execute("UPDATE to_learn SET due = 0")
            await look(learner)
            seen[learner.snapshots[NAME].version] = learner.snapshots[NAME]
        kept = {row["version"] for row in place.rows("policy_states")}
        assert len(kept) == 21 < len(seen), "the newest 20, and the first of the hour"
        for number, version in seen.items():
            again = await learner.recomputed(NAME, number)
            assert the_same(again, version), number
            assert again.observations == version.observations
        assert (await learner.recomputed(NAME, 0)).version == 0


async def test_what_cannot_be_made_again_is_told(place: Place) -> None:
    async with process(place) as learner:
        for n in range(24):
            fill(place, decided(n), said(n, 1.0))
            await learner.step()
        place.execute(f"DELETE FROM decisions WHERE id = '{id_of(2)}'")
        assert (await learner.recomputed(NAME, 2)).version == 2
        with pytest.raises(ValueError, match=r"decisions that version 3 of .* are gone"):
            await learner.recomputed(NAME, 3)
        with pytest.raises(LookupError, match="no version 25 yet"):
            await learner.recomputed(NAME, 25)
        place.execute("DELETE FROM policy_states WHERE version < 10")
        with pytest.raises(LookupError, match="as old as 2"):
            await learner.recomputed(NAME, 2)


async def test_a_state_is_made_anew_when_asked(place: Place) -> None:
    """It comes to the same, but for what is not there any more; the log says what is in it."""
    async with process(place) as learner, process(place) as other:
        for batch in batches(words(20, 4)):
            fill(place, *batch)
            await look(learner, other)
        place.execute("UPDATE to_learn SET due = 0")
        await look(learner, other)
        before = learner.snapshots[NAME]
        made = await learner.rebuild(NAME)
        assert made.version == before.version + 1
        assert (made.observations, made.note) == (20, "made anew from 20 decisions: as was asked for")
        for found, wanted in zip(sums(made), sums(before), strict=True):
            assert np.allclose(found, wanted, rtol=0, atol=1e-9)
        await look(learner, other)
        assert the_same(other.snapshots[NAME], made)
        assert len([row for row in place.rows("learned") if row["version"] == made.version]) == 20
        fill(place, said(0, 1.0, "last", 9))
        await look(learner)
        assert sum(sums(learner.snapshots[NAME])[0]) == 20


async def test_the_newest_are_remembered_when_there_are_too_many(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.learning.rebuilding.MOST", 3)
    async with process(place) as learner:
        fill(place, *(each for n in range(5) for each in (decided(n), said(n, 1.0))))
        await look(learner)
        assert sums(await learner.rebuild(NAME))[2][0] == [2 + 3 + 4.0, 3.0, 6.0]
        fill(place, said(0, 0.5, "again", 9))
        await look(learner)
        assert sums(learner.snapshots[NAME])[:2] == ([4.0, 0.0], [3.5, 0.0]), "what was forgotten is new when somebody speaks of it"


async def test_who_is_erased_after_having_been_forgotten_is_in_no_version_any_more(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.learning.rebuilding.MOST", 3)
    async with process(place) as learner:
        fill(place, decided(0, session="s"), said(0, 1.0), *(each for n in range(1, 5) for each in (decided(n), said(n, 1.0))))
        await look(learner)
        made = await learner.rebuild(NAME)
        assert [row["version"] for row in place.rows("policy_states")] == [made.version - 1, made.version]
        database = Database(place.location)
        await erase(database, session="s", pause_s=0)
        await database.close()
        assert [row["version"] for row in place.rows("policy_states")] == [made.version]
        assert place.rows("to_retract") == [], "there is nothing to take back"
        await look(learner)
        assert sums(learner.snapshots[NAME]) == sums(made)


async def test_versions_from_before_it_was_made_anew_are_not_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """They can be made again and gone back to, with what was forgotten since."""
    monkeypatch.setattr("gateway.learning.rebuilding.MOST", 10)
    seen: dict[int, Version] = {}
    async with process(place) as learner:
        for batch in batches(words(60, 3), 5):
            fill(place, *batch)
            place.execute("UPDATE to_learn SET due = 0")
            await look(learner)
            seen[learner.snapshots[NAME].version] = learner.snapshots[NAME]
        newest = learner.snapshots[NAME]
        assert sum(sums(newest)[0]) == 60
        for _ in range(2):
            assert sum(sums(await learner.rebuild(NAME))[0]) == 10
        for number, version in seen.items():
            assert the_same(await learner.recomputed(NAME, number), version), number
        middle, last = sorted(seen)[3], newest.version
        assert middle not in {row["version"] for row in place.rows("policy_states")}
        for to in (middle, last):
            back = await learner.roll_back(NAME, to)
            assert the_same(back, seen[to]) and (back.observations, back.note) == (seen[to].observations, f"back to version {to}")
        fill(place, said(3, 1.0, "new", 9))
        await look(learner)
        assert sum(sums(learner.snapshots[NAME])[0]) == 60, "a correction of what is known again"


async def test_versions_of_other_plans_are_there_for_who_has_these(place: Place) -> None:
    seen: dict[int, Version] = {}
    async with process(place) as learner:
        for n in range(24):
            fill(place, decided(n), said(n, 1.0))
            await learner.step()
            seen[learner.snapshots[NAME].version] = learner.snapshots[NAME]
        learner.configure([scope((*PLANS, "third"))])
        await look(learner)
        assert (learner.snapshots[NAME].version, learner.snapshots[NAME].observations) == (25, 24)
        with pytest.raises(ValueError, match="other plans"):
            await learner.recomputed(NAME, 3)
        with pytest.raises(ValueError, match="other plans"):
            await learner.roll_back(NAME, 3)
        learner.configure([scope()])
        await look(learner)
        for number, version in seen.items():
            assert the_same(await learner.recomputed(NAME, number), version), number
        assert the_same(await learner.roll_back(NAME, 3), seen[3])


async def test_what_is_noted_in_part_makes_no_version(place: Place) -> None:
    """What belongs to the oldest decisions goes first."""
    async with process(place) as learner:
        for n in range(0, 48, 2):
            fill(place, decided(n), said(n, 1.0), decided(n + 1), said(n + 1, 0.5))
            await learner.step()
        place.execute(f"DELETE FROM learned WHERE decision_id = '{id_of(4)}'")
        with pytest.raises(ValueError, match=r"decisions that version 3 of .* are gone"):
            await learner.recomputed(NAME, 3)


async def test_no_number_is_used_twice(place: Place) -> None:
    """A version that is gone is not another one with its number, and what it knew is not lost."""
    async with process(place) as learner:
        for n in range(3):
            fill(place, decided(n), said(n, 1.0))
            await learner.step()
    place.execute("DELETE FROM policy_states")
    async with process(place) as learner:
        await look(learner)
        assert (learner.snapshots[NAME].version, learner.snapshots[NAME].observations) == (4, 3)
        assert (await learner.rebuild(NAME)).version == 5


async def test_the_log_says_what_is_wrong(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with process(place) as learner:
        fill(place, decided(1), said(1, 0.666))
        await look(learner)
        assert learner.skipped == {"refused": 1}
        assert learner.snapshots[NAME].version == 0
        assert "cannot learn from 1 decisions" in caplog.text
