"""What several sources say of one decision becomes one label."""

from __future__ import annotations

import pytest

from gateway.learning.labels import label
from gateway.store.learning import Outcome
from policies.signals.calibration import Calibration

FEEDBACK = Outcome("quality", "feedback", 0.25, 1.0)
JUDGE = Outcome("quality", "judge", 0.75, 0.1)
VERIFIER = Outcome("quality", "verifier", 1.0, 0.5)


def test_what_callers_say_wins() -> None:
    assert label([JUDGE, FEEDBACK, VERIFIER]) == (0.25, 1.0)


def test_a_sample_stands_for_as_many_as_it_was_drawn_from() -> None:
    assert label([JUDGE]) == (0.75, 10.0)
    assert label([JUDGE, VERIFIER]) == (1.0, 2.0), "of two the one that labels the most"


def test_an_answer_must_pass_every_check() -> None:
    """Until something is known: 0.7 of what has the right form are right, and a twentieth of what is no JSON though it should be."""
    checks = [Outcome("quality", source, value, 1.0) for source, value in (("refusal", 1.0), ("schema", 0.0), ("truncation", 1.0))]
    assert label(checks) == (0.05, 1.0)
    assert label(checks[:1] + checks[2:]) == (0.7, 1.0)


def test_who_reads_the_answer_wins_over_who_looks_at_its_form() -> None:
    """But it stands for no other decision then: each of those has its own label."""
    form = Outcome("quality", "schema", 0.0, 1.0)
    assert label([form, JUDGE]) == (0.75, 1.0)
    assert label([form, FEEDBACK, JUDGE]) == (0.25, 1.0)


def test_a_source_that_compares_nothing_does_not_count() -> None:
    form = Outcome("quality", "schema", 0.0, 1.0)
    assert label([form, JUDGE], None, lambda source: source != "schema") == (0.75, 10.0)
    assert label([JUDGE], None, lambda _source: False) is None
    assert label([JUDGE, FEEDBACK], None, lambda _source: False) == (0.25, 1.0)


def test_no_single_label_outweighs_all_others() -> None:
    assert label([Outcome("quality", "judge", 1.0, 1e-9)]) == (1.0, 1000.0)


def test_nothing_of_quality_is_no_label() -> None:
    assert label([]) is None
    assert label([Outcome("latency", "feedback", 1.0, 1.0)]) is None
    assert label([Outcome("quality", "judge", 1.0, 0.0)]) is None, "what is never said cannot be weighed"


@pytest.mark.parametrize(("value", "quality"), [(0.0, 0.2), (0.5, 0.55), (1.0, 0.9)])
def test_a_source_is_calibrated(value: float, quality: float) -> None:
    """A judge that says 0 is right four times in five, and one that says 1 nine times in ten."""
    found = label([Outcome("quality", "judge", value, 1.0), VERIFIER], {"judge": Calibration(0.2, 0.9)})
    assert found is not None
    assert found.quality == pytest.approx(quality)


def test_a_calibrated_value_is_still_a_probability() -> None:
    assert label([VERIFIER], {"verifier": Calibration(-1.0, 3.0)}) == (1.0, 2.0)
