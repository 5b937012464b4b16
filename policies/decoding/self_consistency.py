"""Self-consistency (Wang et al. 2023, arXiv 2203.11171): several answers, and the one that most of them give.

    votes     majority      each counts 1
              cisc          softmax of the confidences within the question (Taubenfeld et al. 2025, arXiv 2502.06233)
              deepconf      only the most confident, each weighing its confidence (Fu et al. 2025, arXiv 2508.15260)
    rounds    `first` answers at once, then `then`, until the vote is decided (policies/pricing/stopping.py); what still runs is cancelled

Tool calls vote by name and arguments. Confidences need the engine's log-probabilities; without them each answer counts 1.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Final, Literal

import msgspec

from models.response import Response
from policies.answers.ballots import ballot
from policies.answers.confidence import bottom_groups, cisc_weights, mean_logprob, most_confident, read, token_confidences
from policies.answers.equivalence import OPTIONS, Key, Wanted, joined
from policies.answers.votes import Tally, tally
from policies.decoding.strategy import Needs, NoneLeft, Progress, Roles, Sample, Won, whole
from policies.pricing.stopping import Fixed, Priced, Stop, Threshold, Votes

_TOP: Final = 5
Count = Annotated[int, msgspec.Meta(ge=1, le=64)]


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """n: most answers. stop: `threshold` (confident that the leader leads), `price` (another vote is not worth its tokens) or `never`.
    confidence, price: of these rules. first, then: how many are asked for at once. vote: see above. keep: the share of the most confident
    answers that deepconf counts. answer: what is looked for in them. options: letters that may be chosen."""

    n: Count = 20
    stop: Literal["threshold", "price", "never"] = "threshold"
    confidence: Annotated[float, msgspec.Meta(gt=0.5, lt=1)] = 0.88
    price: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.005
    first: Count = 4
    then: Count = 2
    vote: Literal["majority", "cisc", "deepconf"] = "majority"
    keep: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    answer: Wanted = "any"
    options: str = OPTIONS


class SelfConsistency:
    """The strategy."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._stop = _stop(params)

    @property
    def needs(self) -> Needs:
        """See Strategy."""
        vote = self._params.vote
        return Needs(logprobs=vote != "majority", top=_TOP if vote == "deepconf" else 0)

    @property
    def most(self) -> int:
        """See Strategy."""
        return self._params.n

    @property
    def asks(self) -> int:
        """See Strategy."""
        return 0

    @property
    def response(self) -> Response | None:
        """See Strategy."""
        # A vote of two is a draw, which the first decides: one of the answers changes nothing.
        return Response(f"self_consistency/{self._params.vote}", max(1, self._params.n - 1))

    async def run(self, roles: Roles) -> AsyncGenerator[Progress | Won, None]:
        """See Strategy."""
        samples: list[Sample] = []
        keys: list[Key | None] = []
        while more := self._stop.more(_votes(samples, keys)):
            ended = len(samples)
            async with aclosing(roles.sample(more)) as coming:
                async for sample in coming:
                    samples.append(sample)
                    keys.append(ballot(sample.said, self._params.answer, self._params.options).key)
                    yield Progress(len(samples))
                    if not self._stop.more(_votes(samples, keys)):
                        break
            if len(samples) == ended:
                break  # nobody answers any more: what there is has to do
        yield self._won(samples, keys)

    def _won(self, samples: Sequence[Sample], keys: Sequence[Key | None]) -> Won:
        if not samples:
            raise NoneLeft
        order = sorted(range(len(samples)), key=lambda place: samples[place].index)  # who was quick has no advantage
        samples, keys = [samples[place] for place in order], [keys[place] for place in order]
        confidences = [self._confidence(sample) for sample in samples]
        found = tally(joined(keys), self._weights(confidences), confidences)
        if found.chosen is None:  # nobody has an answer that can be voted on
            chosen = next((sample for sample in samples if whole(sample)), samples[0])
            return Won(chosen.index, "no_vote")
        scores = {samples[place].index: group.weight for group in found.groups for place in group.members}
        return Won(samples[found.chosen].index, "unanimous" if not found.split else "vote", scores)

    def _confidence(self, sample: Sample) -> float | None:
        vote = self._params.vote
        logprobs = read(sample.logprobs) if vote != "majority" else None
        if logprobs is None:
            return None
        if vote == "cisc":
            return mean_logprob(logprobs.chosen)
        return bottom_groups(token_confidences(logprobs.top))

    def _weights(self, confidences: Sequence[float | None]) -> Sequence[float] | None:
        if self._params.vote == "majority" or not any(each is not None for each in confidences):
            return None
        if self._params.vote == "cisc":
            return cisc_weights(confidences, standardised=True)
        kept = set(most_confident(confidences, self._params.keep))
        return [max(0.0, each or 0.0) if place in kept else 0.0 for place, each in enumerate(confidences)]


def _votes(samples: Sequence[Sample], keys: Sequence[Key | None]) -> Votes:
    found: Tally = tally(joined(keys))
    return Votes(found.v1, found.v2, len(samples), float(sum(sample.tokens for sample in samples)))


def _stop(params: Params) -> Stop:
    if params.stop == "never":
        return Fixed(params.n)
    if params.stop == "price":
        return Priced(params.price, first=min(params.first, params.n), then=params.then, cap=params.n)
    return Threshold(params.confidence, min(params.first, params.n), params.then, params.n)


def build(params: Params) -> SelfConsistency:
    """The strategy of these parameters."""
    return SelfConsistency(params)
