from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.serving.fair_queue import FairQueue, Place


def drain(queue: FairQueue[str], items: int) -> list[str]:
    served = [queue.pop() for _ in range(items)]
    return [item for item in served if item is not None]


def test_within_a_tenant_first_come_first_served() -> None:
    queue: FairQueue[str] = FairQueue({})
    for item in "abc":
        queue.push("t", item)

    assert drain(queue, 4) == ["a", "b", "c"]


def test_tenants_take_turns() -> None:
    queue: FairQueue[str] = FairQueue({})
    for item in ("a1", "a2", "a3"):
        queue.push("a", item)
    for item in ("b1", "b2"):
        queue.push("b", item)

    assert drain(queue, 5) == ["a1", "b1", "a2", "b2", "a3"]


def test_weights_1_to_3() -> None:
    queue: FairQueue[str] = FairQueue({"heavy": 3.0})
    for _ in range(400):
        queue.push("light", "light")
        queue.push("heavy", "heavy")

    assert Counter(drain(queue, 400)) == {"light": 100, "heavy": 300}


def test_a_newcomer_waits_for_its_turn_only() -> None:
    """One tenant has 1,000 that wait and had 500 served; another's first is next, and has no claim on what it did not use before."""
    queue: FairQueue[str] = FairQueue({})
    for _ in range(1_500):
        queue.push("flood", "flood")
    drain(queue, 500)
    for _ in range(100):
        queue.push("new", "new")

    served = drain(queue, 100)

    assert "new" in served[:2]
    assert Counter(served) == {"flood": 50, "new": 50}


def test_who_comes_back_whenever_it_was_served_gets_no_more_than_its_share() -> None:
    queue: FairQueue[str] = FairQueue({})
    for _ in range(200):
        queue.push("flood", "flood")
    served: Counter[str] = Counter()
    queue.push("back", "back")
    for _ in range(100):
        item = queue.pop()
        assert item is not None
        served[item] += 1
        if item == "back":
            queue.push("back", "back")

    assert served == {"flood": 50, "back": 50}


def test_items_that_leave_cost_their_tenant_nothing() -> None:
    queue: FairQueue[str] = FairQueue({})
    queue.push("other", "other")
    places = [queue.push("t", "t") for _ in range(1_000)]
    for place in places:
        queue.remove(place)
        queue.remove(place)  # twice is no matter

    for _ in range(10):
        queue.push("other", "other")
        queue.push("t", "t")

    assert len(queue) == 21
    assert Counter(drain(queue, 10))["t"] == 5


def test_what_is_next_is_not_yet_served() -> None:
    queue: FairQueue[str] = FairQueue({})
    assert queue.peek() is None
    assert queue.pop() is None
    place = queue.push("t", "one")

    assert queue.peek() == queue.peek() == (place, "one")
    queue.remove(place)
    assert queue.peek() is None


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_is_a_number_above_0(weight: float) -> None:
    with pytest.raises(ValueError, match="weight"):
        FairQueue({"t": weight})


def test_the_longest_line_gives_its_newest() -> None:
    queue: FairQueue[str] = FairQueue({})
    for number in range(3):
        queue.push("long", f"long{number}")
    queue.push("short", "short0")

    assert queue.shed("short") == "long2"
    assert queue.shed("short") is None  # 2 against 1 + 1
    assert queue.shed("long") is None
    assert queue.shed("new") == "long1"
    assert queue.shed() in ("long0", "short0")
    assert len(queue) == 1


def test_a_line_is_long_for_its_weight() -> None:
    queue: FairQueue[str] = FairQueue({"heavy": 3.0})
    for _ in range(5):
        queue.push("heavy", "heavy")
    for _ in range(2):
        queue.push("light", "light")

    assert queue.shed("heavy") is None  # (5 + 1) / 3 is not less than 2 / 1
    assert queue.shed("new") == "light"


def test_new_weights_count_from_the_next_turn_on() -> None:
    """Who waits keeps the place it has, and who comes has the new weight too."""
    queue: FairQueue[str] = FairQueue({"a": 3.0})
    for _ in range(100):
        queue.push("a", "a")
        queue.push("b", "b")
    assert Counter(drain(queue, 40)) == {"a": 30, "b": 10}

    queue.reweigh({"b": 3.0, "c": 4.0})

    assert Counter(drain(queue, 40)) == {"a": 10, "b": 30}
    for _ in range(40):
        queue.push("c", "c")
    assert Counter(drain(queue, 40)) == {"a": 5, "b": 15, "c": 20}


def test_new_weights_decide_which_line_is_the_longest() -> None:
    queue: FairQueue[str] = FairQueue({})
    for number in range(4):
        queue.push("a", f"a{number}")
    for number in range(3):
        queue.push("b", f"b{number}")

    queue.reweigh({"a": 4.0})

    assert queue.shed("new") == "b2"
    assert queue.shed("b") is None  # 3 against 4 / 4
    queue.reweigh({"b": 4.0})
    assert queue.shed("b") == "a3"


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_weights_that_cannot_be_change_nothing(weight: float) -> None:
    queue: FairQueue[str] = FairQueue({"a": 3.0})
    for _ in range(40):
        queue.push("a", "a")
        queue.push("b", "b")

    with pytest.raises(ValueError, match="weight"):
        queue.reweigh({"a": 1.0, "b": weight})

    assert Counter(drain(queue, 40)) == {"a": 30, "b": 10}


def test_memory_does_not_grow_with_what_has_left() -> None:
    queue: FairQueue[str] = FairQueue({})
    queue.push("t", "stays")

    for number in range(20_000):
        queue.remove(queue.push(f"tenant-{number}", "goes"))
        queue.remove(queue.push("t", "goes"))

    assert len(queue) == 1
    assert len(queue._lines) + len(queue._starts) + len(queue._lengths) < 500


class Model:
    """Start-time fair queueing written down plainly: all items in a list, exact fractions, the formula on every look."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self.weights = weights
        self.items: list[tuple[str, int]] = []
        self.finish: dict[str, Fraction] = {}
        self.virtual = Fraction(0)
        self.begun: dict[str, Fraction] = {}  # the virtual time at which a tenant's line began

    def starts(self) -> dict[str, Fraction]:
        return {t: max(self.begun[t], self.finish.get(t, Fraction(0))) for t, _ in self.items}

    def push(self, tenant: str, number: int) -> None:
        if all(t != tenant for t, _ in self.items):
            self.begun[tenant] = self.virtual
        self.items.append((tenant, number))

    def pop(self, tenant: str) -> int:
        start = self.starts()[tenant]
        assert start == min(self.starts().values())
        number = next(n for t, n in self.items if t == tenant)
        self.virtual, self.finish[tenant] = start, start + Fraction(1, self.weights[tenant])
        self.remove(tenant, number)
        return number

    def remove(self, tenant: str, number: int) -> None:
        self.items.remove((tenant, number))
        if not self.items:
            self.finish, self.virtual = {}, Fraction(0)

    def shed(self, tenant: str) -> set[int]:
        length = Counter(t for t, _ in self.items)
        per_weight = {t: Fraction(n, self.weights[t]) for t, n in length.items()}
        longest = max(per_weight.values(), default=Fraction(0))
        if Fraction(length[tenant] + 1, self.weights[tenant]) >= longest:
            return set()
        return {max(n for t, n in self.items if t == name) for name, value in per_weight.items() if value == longest}


def test_forgetting_tenants_changes_nothing_for_those_that_wait() -> None:
    """Hundreds of tenants come and leave between the turns of two that stay."""
    queue: FairQueue[str] = FairQueue({"heavy": 3.0})
    served: Counter[str] = Counter()
    for number in range(4_000):
        queue.push("heavy", "heavy")
        queue.push("light", "light")
        queue.remove(queue.push(f"tenant-{number}", "goes"))
        item = queue.pop()
        assert item is not None
        served[item] += 1

    assert served == {"heavy": 3_000, "light": 1_000}
    assert queue.shed() == "light"


# Weights of a power of two: exact in floating point as well.
WEIGHTS = {"a": 1, "b": 1, "c": 2, "d": 4}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "push", "pop", "pop", "remove", "shed", "tidy", "reweigh"]),
        st.sampled_from("abcd"),
        st.integers(0, 99),
    ),
    min_size=20,
    max_size=150,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_it_does_as_the_formula_says(steps: list[tuple[str, str, int]]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue(WEIGHTS)
    model = Model(WEIGHTS)
    places: dict[tuple[str, int], Place] = {}
    for number, (step, tenant, draw) in enumerate(steps):
        if step == "push":
            places[tenant, number] = queue.push(tenant, (tenant, number))
            model.push(tenant, number)
        elif step == "pop":
            served = queue.pop()
            assert (served is None) == (not model.items)
            if served is not None:
                assert model.pop(served[0]) == served[1]
        elif step == "remove" and model.items:
            gone = model.items[draw % len(model.items)]
            queue.remove(places[gone])
            model.remove(*gone)
        elif step == "tidy":
            queue._tidy()  # it happens by itself once there are many tenants, and must change nothing
        elif step == "reweigh":
            model.weights = {name: 1 << (draw + each) % 3 for each, name in enumerate("abcd")}
            queue.reweigh(model.weights)
        elif step == "shed":
            allowed = model.shed(tenant)
            out = queue.shed(tenant)
            assert (out is None) == (not allowed)
            if out is not None:
                assert out[1] in allowed
                model.remove(*out)
        assert len(queue) == len(model.items)
