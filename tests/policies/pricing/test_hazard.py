"""When to give up on a question, by hand; and the prior of pass rates, against counts and against a grid."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.bench import passes
from policies.pricing.hazard import PRIORS, FirstPass, Prior, fit


def test_the_hazard_by_hand() -> None:
    """Laplace's rule of succession."""
    assert Prior(1.0, 1.0).hazard(0) == 0.5
    assert Prior(1.0, 1.0).hazard(2) == 0.25
    assert Prior(1.0, 1.0).hazard(2, 1) == 0.5


def test_the_cap_is_where_the_hazard_falls_below_the_price() -> None:
    assert Prior(1.0, 1.0).cap(0.1) == 9  # after 8 failures it is 1/10, after 9 1/11
    assert Prior(1.0, 1.0).cap(0.6) == 0
    assert Prior(1.0, 1.0).cap(0.0) == math.inf


@pytest.mark.parametrize("least", [0.3, 0.02, 0.0043, 0.003])
@pytest.mark.parametrize("prior", PRIORS.values())
def test_the_rule_draws_as_many_as_the_cap(prior: Prior, least: float) -> None:
    rule, n = FirstPass(prior, least=least, cap=10_000), 0
    while more := rule.more(n, 0):
        n += more
    assert n == prior.cap(least)


def test_one_pass_is_the_end() -> None:
    rule = FirstPass(batch=4, cap=10)
    assert [rule.more(0, 0), rule.more(4, 0), rule.more(8, 0), rule.more(10, 0), rule.more(4, 1)] == [4, 4, 2, 0, 0]


def test_what_a_pass_is_worth_decides() -> None:
    """After 8 failures the hazard is 1/10: a pass worth 1,000 tokens pays for samples of up to 100."""
    rule = FirstPass(Prior(1.0, 1.0), worth=1_000.0)
    assert rule.more(8, 0, tokens=8 * 99.0) == 1
    assert rule.more(8, 0, tokens=8 * 101.0) == 0
    assert rule.more(0, 0) == 1


def test_a_prior_is_found_again() -> None:
    rng = np.random.default_rng(5)
    rates = rng.beta(1.5, 6.0, 4_000)
    found = fit([(16, int(count)) for count in rng.binomial(16, rates)])
    assert (found.a, found.b) == (pytest.approx(1.5, rel=0.1), pytest.approx(6.0, rel=0.1))


def test_no_prior_of_a_grid_is_more_likely() -> None:
    counts = [(4, 0)] * 5 + [(4, 1)] * 2 + [(8, 3), (8, 8), (2, 1)]

    def likelihood(a: float, b: float) -> float:
        """Sample by sample: the chance of the next one, given those before."""
        total = 0.0
        for n, s in counts:
            for k in range(n):
                total += math.log((a + k if k < s else b + k - s) / (a + b + k))
        return total

    found = fit(counts)
    grid = np.exp(np.linspace(math.log(0.05), math.log(20.0), 80))
    assert likelihood(found.a, found.b) >= max(likelihood(a, b) for a in grid for b in grid)
    with pytest.raises(ValueError, match="questions"):
        fit([])


def test_the_priors_that_ship_fit_the_published_counts() -> None:
    published = passes.published()
    for name, key in (("humaneval", "code"), ("game24_cot", "puzzles"), ("game24_direct", "puzzles, direct")):
        found = fit(published[name].pairs)
        assert (found.a, found.b) == (pytest.approx(PRIORS[key].a, rel=0.1), pytest.approx(PRIORS[key].b, rel=0.1))


def test_questions_that_never_or_always_pass() -> None:
    assert fit([(10, 0)] * 5).hazard(0) < 0.001
    assert fit([(10, 10)] * 5).hazard(0) > 0.999
