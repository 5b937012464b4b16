"""One decision, from a request's body to the plan that runs it: what it is made from, and that nothing in it fails the request."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from gateway.access.keys import Principal
from gateway.config.load import parse
from gateway.learning.blocks import unpacked
from gateway.serving.call import Receipt
from gateway.serving.choice import Choice, Decided
from gateway.serving.deciding import Deciding, choose
from gateway.serving.eligible import least
from gateway.serving.options import NONE, Options, Preference
from gateway.serving.state import RealModel, State, VirtualModel, build
from gateway.wire.errors import ApiError
from gateway.wire.request import read
from gateway.wire.usage import Usage
from policies.policy import Policy, decide
from policies.routing.linucb import LinUCB
from policies.routing.linucb import Params as LinUCBParams
from policies.values.plan import Candidate
from policies.values.prompt import Prompt
from policies.values.situation import Situation
from policies.wrappers.canary import Canary
from policies.wrappers.canary import Params as CanaryParams
from policies.wrappers.shadow import Shadow
from tests.support.encoders import Letters
from tests.support.given import Given

MODELS: dict[str, Any] = {
    "small": {"context": 4_000, "capabilities": ["tools"], "price": {"input": 1, "output": 2}},
    "large": {"context": 8_000, "capabilities": ["tools", "vision"], "price": {"input": 10, "output": 20}},
}
USER = {"role": "user", "content": "hi"}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
TOOL = {"role": "tool", "tool_call_id": "1", "content": "4"}
ANSWER = {"role": "assistant", "content": "Hello."}
SECRET = "the prompt that nobody may log"


class Reads(Given):
    """A policy that thinks as it is told, and fails where a block is not there. quality: by plan name."""

    def __init__(self, encoders: tuple[Any, ...], quality: dict[str, float]) -> None:
        super().__init__(quality)
        self.encoders = encoders

    def estimate(self, state: Any, situation: Situation) -> Any:
        for each in self.encoders:
            situation.blocks[each.name]
        return super().estimate(state, situation)


@dataclass
class Stuck:
    """A slow encoder that does not come to an end before it is let go."""

    name: str = "stuck-1"
    dim: int = 2
    slow: bool = True
    go: threading.Event = field(default_factory=threading.Event)

    def encode(self, _prompt: Prompt) -> npt.NDArray[np.float32]:
        self.go.wait(30)
        return np.zeros(2, np.float32)


@dataclass
class Broken:
    """An encoder that fails with the prompt's own words."""

    name: str = "broken-1"
    dim: int = 2
    slow: bool = False

    def encode(self, prompt: Prompt) -> npt.NDArray[np.float32]:
        raise ValueError(prompt.turns[-1].text)


@pytest.fixture
async def stuck() -> AsyncIterator[Stuck]:
    """Let go at the end, while there is a loop that waits for it."""
    encoder = Stuck()
    yield encoder
    encoder.go.set()


def built(**virtual: Any) -> State:
    plans = {name: {"model": name} for name in MODELS}
    config = {
        "version": 1,
        "backends": {name: {"url": f"http://{name}", "models": {name: name}} for name in MODELS},
        "models": MODELS,
        "policies": {"any": {"type": "random"}},
        "virtual_models": {
            "auto": {"policy": "any", "plans": plans, "baseline": "large", **virtual},
            "other": {"policy": "any", "plans": plans},
        },
        "keys": [{"name": "k", "sha256": "a" * 64}],
    }
    return build(parse(json.dumps(config), {}).config, "hash", lambda name: name)


def virtual(state: State, name: str = "auto") -> VirtualModel:
    found = state.names[name]
    assert isinstance(found, VirtualModel)
    return found


class House:
    """Decides by `algorithm`. time boxes are over at once where `encoder_s` is 0."""

    def __init__(self, algorithm: Any, *, floor: float = 0.0, seed: int = 1, encoder_s: float = 30.0, **settings: Any) -> None:
        self.state = built(**settings)
        self.policy = Policy("any", algorithm, floor, seed, algorithm.empty())
        self.encoder_s = encoder_s
        self.deciding = Deciding(now=lambda: 1_000.0, pseudonym=lambda tenant, id_: f"<{tenant}/{len(id_)}/{hash(id_)}>")
        self.count = 0

    async def ask(
        self, *messages: Any, asked: Options = NONE, model: str = "auto", learn: bool = True, tags: Any = None, **fields: Any
    ) -> tuple[Receipt, RealModel]:
        """What was decided stands on the receipt."""
        self.count += 1
        principal = Principal("k", "shop", frozenset(), None)
        receipt = Receipt("r", f"d{self.count}", 0.0, principal, session=asked.session_id, learn=learn, tags=tags)
        body = {"model": model, **({"messages": list(messages)} if messages else {}), **fields}
        route = replace(virtual(self.state, model), encoder_s=self.encoder_s)
        served = await choose(self.deciding, route, self.policy, receipt, read(json.dumps(body).encode(), 8), asked)
        return receipt, served

    async def served(self, *messages: Any, **asked: Any) -> Receipt:
        """Asks, and an answer comes."""
        receipt, model = await self.ask(*messages, **asked)
        receipt.outcome, receipt.served_model, receipt.usage = "ok", model.public, Usage(prompt=100, cached=0, completion=20)
        self.deciding.ended(receipt)
        return receipt


def chosen(receipt: Receipt) -> Choice:
    assert receipt.choice is not None
    return receipt.choice


def odds(receipt: Receipt) -> dict[str, float]:
    return {each.plan: each.probability for each in chosen(receipt).decided.candidates}


def reasons(receipt: Receipt) -> dict[str, str]:
    return {each.plan: each.reason for each in chosen(receipt).decided.excluded}


def reading(*encoders: Any, **quality: float) -> Reads:
    return Reads(encoders, quality)


# Nothing fails the request


async def test_late_features_leave_the_request_to_the_baseline(stuck: Stuck) -> None:
    house = House(reading(stuck, small=1.0), floor=0.5, encoder_s=0.0)
    receipt, model = await house.ask(USER)

    assert (receipt.plan, receipt.policy, model.public) == ("large", "any", "large")
    assert (receipt.propensity, receipt.explored, odds(receipt)) == (1.0, False, {"small": 0.0, "large": 1.0})
    assert chosen(receipt).decided.fallback == "features_late"
    assert (chosen(receipt).features, chosen(receipt).feature_version) == (None, None)


async def test_the_first_that_may_serve_stands_in_for_a_baseline_that_may_not(stuck: Stuck) -> None:
    house = House(reading(stuck), encoder_s=0.0)
    house.state.backends["large"].disabled = True

    assert (await house.ask(USER))[0].plan == "small"


@pytest.mark.parametrize("slow", [False, True])
async def test_an_encoder_that_fails_is_told_of_without_the_prompt(caplog: pytest.LogCaptureFixture, slow: bool) -> None:
    house = House(reading(Broken(slow=slow), small=1.0))
    with caplog.at_level(logging.DEBUG):
        receipt, _ = await house.ask({"role": "user", "content": SECRET})

    assert (receipt.plan, receipt.propensity, chosen(receipt).decided.fallback) == ("large", 1.0, "failed")
    (line,) = [each for each in caplog.records if each.name == "trilemma.decisions"]
    assert (line.levelname, line.decision_id) == ("ERROR", "d1")  # type: ignore[attr-defined]
    assert "`auto`" in line.getMessage() and "ValueError" in line.getMessage() and "encode" in line.getMessage()
    assert SECRET not in caplog.text and line.exc_info is None


async def test_what_goes_on_failing_is_told_of_once_and_again_when_it_was_well_between(caplog: pytest.LogCaptureFixture) -> None:
    encoder = Letters()
    well = encoder.encode
    house = House(reading(encoder, small=1.0))
    told = []
    for fails in (True, True, False, True):
        encoder.__dict__["encode"] = Broken().encode if fails else well
        await house.ask(USER)
        told.append(sum(each.name == "trilemma.decisions" for each in caplog.records))
    assert told == [1, 1, 1, 2]


@pytest.mark.parametrize(
    "policy",
    [Given(fails=RuntimeError(SECRET)), Given(odds={"small": float("nan")}), Given(odds={"small": -1.0, "large": 2.0}), Given(odds={})],
)
async def test_so_does_a_policy_that_fails_or_whose_odds_are_none(caplog: pytest.LogCaptureFixture, policy: Given) -> None:
    house = House(policy, floor=0.5)
    receipt, _ = await house.ask(USER)

    assert (receipt.plan, receipt.propensity, chosen(receipt).decided.fallback) == ("large", 1.0, "failed")
    assert SECRET not in caplog.text


async def test_features_that_cannot_be_kept_are_a_failure_too() -> None:
    encoder = Letters()
    encoder.__dict__["encode"] = lambda _prompt: [1.0, 2.0, 3.0]
    receipt, _ = await House(reading(encoder, small=1.0)).ask(USER)

    assert (receipt.plan, chosen(receipt).decided.fallback, chosen(receipt).features) == ("large", "failed", None)


CONTENTS: list[Any] = [None, [], "", [[]], 5, {"a": 1}, [{"type": 5}], [{"type": "tool_result", "content": [[1]]}]]
MESSAGES: list[Any] = [None, [], 5, "text", {"role": "user"}, [None], [[1]], *([{"role": "user", "content": each}] for each in CONTENTS)]
OTHERS: list[dict[str, Any]] = [
    {"prompt": None},
    {"prompt": [[1, 2]]},
    {"input": [1]},
    {"input": {"a": 1}},
    {"system": 5, "messages": [USER]},
    {},
]


@pytest.mark.parametrize("fields", [*({"messages": each} for each in MESSAGES), *OTHERS])
async def test_there_is_a_decision_whatever_the_body_holds(fields: dict[str, Any]) -> None:
    receipt, _ = await House(reading(Letters(), small=1.0)).ask(**fields)

    assert (receipt.plan, chosen(receipt).decided.fallback) == ("small", None)


@pytest.mark.parametrize(
    "body", [b'{"model":"auto","messages":[{"role":"user","content":[1e999,"x"]}]}', b'{"model":"auto","prompt":[1e999]}']
)
async def test_a_number_beyond_all_bounds_is_no_text(body: bytes) -> None:
    house = House(reading(small=1.0))
    receipt = Receipt("r", "d", 0.0, Principal("k", "shop", frozenset(), None))
    await choose(house.deciding, virtual(house.state), house.policy, receipt, read(body, 8), NONE)

    assert receipt.plan == "small"


# Policies that watch


async def test_late_features_of_a_watching_policy_cost_nobody_its_policy(stuck: Stuck) -> None:
    letters = Letters()
    house = House(Shadow(reading(letters, small=1.0), "new", reading(stuck, letters, large=1.0)), encoder_s=0.0)
    receipt, _ = await house.ask(USER)

    assert (receipt.plan, chosen(receipt).decided.fallback) == ("small", None)
    assert chosen(receipt).decided.shadow == {"new": ""}
    assert chosen(receipt).feature_version == "letters-1:3"


async def test_nor_do_features_of_it_that_fail(caplog: pytest.LogCaptureFixture) -> None:
    house = House(Shadow(reading(small=1.0), "new", reading(Broken(), large=1.0)))
    receipt, _ = await house.ask({"role": "user", "content": SECRET})

    assert (receipt.plan, chosen(receipt).decided.fallback, chosen(receipt).decided.shadow) == ("small", None, {"new": ""})
    assert "broken-1" in caplog.text and SECRET not in caplog.text


async def test_features_of_a_watching_policy_that_are_there_are_used() -> None:
    house = House(Shadow(reading(small=1.0), "new", reading(Letters(slow=True), large=1.0)))
    receipt, _ = await house.ask(USER)

    assert (receipt.plan, chosen(receipt).decided.shadow) == ("small", {"new": "large"})
    assert chosen(receipt).feature_version == "letters-1:3"


async def test_late_features_of_a_canary_are_missed(stuck: Stuck) -> None:
    """Its side has a part in the probability that is logged."""
    house = House(Canary(reading(small=1.0), reading(stuck, large=1.0), CanaryParams("new", 0.1)), encoder_s=0.0)

    assert chosen((await house.ask(USER))[0]).decided.fallback == "features_late"


# Exploration


async def test_the_floor_is_there_only_where_it_is_explored() -> None:
    house = House(reading(small=1.0), floor=0.2)
    greedy = {"small": 1.0, "large": 0.0}

    assert odds((await house.ask(USER))[0]) == pytest.approx({"small": 0.9, "large": 0.1})
    assert odds((await house.ask(USER, learn=False))[0]) == greedy
    loop, _ = await house.ask(USER, CALL, TOOL)
    assert (odds(loop), chosen(loop).decided.tool_loop, chosen(loop).decided.explore) == (greedy, True, False)
    assert odds((await house.ask(USER, CALL, TOOL, USER))[0]) == pytest.approx({"small": 0.9, "large": 0.1})


@pytest.mark.parametrize("where", ["caller", "operator"])
async def test_nothing_is_tried_out_on_a_request_that_has_no_time_for_it(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slowest plan takes 5 s now and then."""
    caps: dict[str, Any] = {"caps": {"deadline_ms": 4_000}} if where == "operator" else {}
    house = House(reading(small=1.0), floor=0.2, **caps)
    monkeypatch.setattr(type(house.deciding.expectations), "p95", lambda _self, plan: 5.0 if plan.name == "large" else None)
    late = Options(deadline_ms=4_000) if where == "caller" else NONE
    greedy, _ = await house.ask(USER, asked=late)

    assert odds(greedy) == {"small": 1.0, "large": 0.0}
    if where == "caller":
        assert odds((await house.ask(USER, asked=Options(deadline_ms=6_000)))[0])["large"] == pytest.approx(0.1)
        house.state.backends["large"].disabled = True  # and who may not serve takes no time
        assert chosen((await house.ask(USER, asked=late))[0]).decided.explore


async def test_the_propensity_is_that_which_was_drawn_from() -> None:
    """Of 2,000 draws at 0.3 and 0.7: chi-square with one degree of freedom, 10.8 is passed once in 1,000 seeds."""
    house = House(Given(odds={"small": 0.25, "large": 0.75}), floor=0.2)
    small = 0
    for _ in range(2_000):
        receipt, _ = await house.ask(USER)
        assert odds(receipt) == pytest.approx({"small": 0.3, "large": 0.7})
        assert receipt.propensity == odds(receipt)[receipt.plan or ""]
        small += receipt.plan == "small"
    assert (small - 600) ** 2 / 600 + (small - 600) ** 2 / 1_400 < 10.8


# Who may serve


async def test_who_is_ill_is_no_candidate_and_comes_back() -> None:
    house = House(reading(small=1.0), floor=0.5)
    house.state.backends["small"].disabled = True
    receipt, model = await house.ask(USER)
    assert (receipt.plan, model.public, receipt.propensity) == ("large", "large", 1.0)
    assert (odds(receipt), reasons(receipt)) == ({"large": 1.0}, {"small": "unavailable"})
    house.state.backends["small"].disabled = False
    assert odds((await house.ask(USER))[0]) == pytest.approx({"small": 0.75, "large": 0.25})


async def test_a_conversation_moves_when_its_plan_dies() -> None:
    house = House(reading(small=1.0))
    first = await house.served(USER, asked=Options(session_id="s"))
    house.state.backends["small"].disabled = True
    second = await house.served(USER, ANSWER, USER, asked=Options(session_id="s"))
    third = await house.served(USER, ANSWER, USER, asked=Options(session_id="s"))

    assert [each.plan for each in (first, second, third)] == ["small", "large", "large"]
    standing = chosen(third).decided.standing
    assert standing is not None
    assert (standing.plan, standing.switches, standing.tokens) == ("large", 1, 120)


async def test_who_cannot_serve_the_request_does_not_stand_in_either() -> None:
    house = House(reading(large=1.0))

    assert [each.public for each in (await house.ask(USER))[1].stand_ins] == ["small"]
    receipt, model = await house.ask(IMAGE)
    assert (reasons(receipt), model.public, model.stand_ins) == ({"small": "capability:vision"}, "large", ())
    _, model = await house.ask(USER, asked=Options(max_cost=0.0002))  # 100 tokens of `small`, 10 of `large`
    assert (model.public, model.stand_ins) == ("small", ())
    house.state.backends["small"].disabled = True  # who is ill may be well again
    assert [each.public for each in (await house.ask(USER))[1].stand_ins] == ["small"]


async def test_nobody_fits() -> None:
    with pytest.raises(ApiError) as caught:
        await House(reading()).ask({"role": "user", "content": "word " * 10_000})

    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")


async def test_the_money_is_shared_by_all_answers() -> None:
    """1e-4 USD at 2 per million: 50 tokens, less what the prompt costs; for five answers ten each."""
    house = House(reading(small=1.0))
    tokens = len(json.dumps([USER])) // 4
    for n, most in ((1, (100 - tokens) // 2), (5, (100 - tokens) // 2 // 5)):
        receipt, _ = await house.ask(USER, n=n, max_tokens=8, asked=Options(max_cost=1e-4))
        assert (receipt.plan, chosen(receipt).most) == ("small", most)


# Prices


async def test_a_preference_makes_the_dearest_cost_its_share_of_a_right_answer() -> None:
    house = House(reading(small=1.0))
    receipt, _ = await house.ask(USER, max_tokens=10, asked=Options(preference=Preference(0.5, 0.25, 0.0)))
    decided = chosen(receipt).decided

    assert decided.prices.cost * max(each.cost for each in decided.candidates) == pytest.approx(0.5)
    assert decided.prices.latency == 0.0


async def test_who_does_not_care_for_quality_gets_the_cheapest() -> None:
    house = House(reading(large=1.0), preference={"quality": 1, "cost": 0, "latency": 0})

    assert (await house.ask(USER))[0].plan == "large"
    assert (await house.ask(USER, asked=Options(preference=Preference(cost=1.0))))[0].plan == "small"


async def test_prices_of_the_operator_are_taken_as_they_are_and_a_preference_wins() -> None:
    house = House(reading(small=1.0), prices={"cost": 3.0, "latency": 0.5})
    assert chosen((await house.ask(USER))[0]).decided.prices.cost == 3.0
    assert chosen((await house.ask(USER))[0]).decided.prices.latency == 0.5
    assert chosen((await house.ask(USER, asked=Options(preference=Preference(1.0))))[0]).decided.prices.cost == 0.0


# Conversations


async def test_units_and_first_turns() -> None:
    house = House(reading(small=1.0))
    first = await house.served(USER)
    second = await house.served(USER, ANSWER, {"role": "user", "content": "more"})
    alone = (await house.ask(prompt="Once"))[0]

    assert [chosen(each).first_turn for each in (first, second, alone)] == [True, False, True]
    assert chosen(first).unit == chosen(second).unit != chosen(alone).unit == alone.decision_id
    assert chosen(first).unit.startswith("<shop/")  # never as it came
    assert chosen(alone).key is None
    forgotten = await House(reading(small=1.0)).served(USER, ANSWER, {"role": "user", "content": "more"})
    assert not chosen(forgotten).first_turn  # of another process: it is no first turn all the same


async def test_a_session_that_another_process_knows_has_had_its_first_turn() -> None:
    house, asked = House(reading(small=1.0)), Options(session_id="s")

    assert not chosen((await house.ask(USER, ANSWER, USER, asked=asked))[0]).first_turn
    assert chosen(await house.served(USER, asked=asked)).first_turn
    assert not chosen(await house.served(USER, asked=asked)).first_turn


async def test_what_failed_is_no_turn() -> None:
    house, asked = House(reading(small=1.0)), Options(session_id="s")
    receipt, _ = await house.ask(USER, asked=asked)
    receipt.outcome = "backend_error"
    house.deciding.ended(receipt)

    again = chosen((await house.ask(USER, asked=asked))[0])
    assert (again.first_turn, again.decided.standing) == (True, None)


async def test_a_session_stands_in_each_virtual_model_by_itself() -> None:
    house, asked = House(reading(small=1.0)), Options(session_id="s")
    one = await house.served(USER, asked=asked)
    other = await house.served(USER, asked=asked, model="other")

    assert chosen(other).decided.standing is None
    assert chosen(one).unit == chosen(other).unit
    assert chosen(await house.served(USER, asked=asked)).decided.standing is not None


# The record


@pytest.mark.parametrize("body", [[USER], [USER, ANSWER, {"role": "user", "content": "abc"}], [USER, CALL, TOOL]])
async def test_a_row_decides_again_to_the_bit(body: list[Any]) -> None:
    algorithm = LinUCB(LinUCBParams(), virtual(built()).plans, (Letters(),))
    house = House(algorithm, floor=0.1, seed=9)
    receipt, _ = await house.ask(*body, max_tokens=7, asked=Options(preference=Preference(0.6, 0.3, 0.1)))
    choice = chosen(receipt)
    decided = msgspec.json.decode(msgspec.json.encode(choice.decided), type=Decided)
    assert decided == choice.decided

    plans = {plan.name: (plan, index) for index, plan in enumerate(virtual(house.state).plans)}
    situation = Situation(
        candidates=tuple(Candidate(*plans[each.plan], each.cost, each.latency) for each in decided.candidates),
        blocks=unpacked(choice.features, choice.feature_version),
        prices=decided.prices,
        standing=decided.standing,
        unit=choice.unit,
        tool_loop=decided.tool_loop,
        explore=decided.explore,
        now=decided.now,
        tenant="shop",
    )
    again = decide(house.policy, house.policy.start, situation, receipt.decision_id)

    assert decided.candidates[again.chosen].plan == receipt.plan
    assert (again.propensity, again.explored) == (receipt.propensity, receipt.explored)
    assert again.probabilities == tuple(each.probability for each in decided.candidates)
    assert again.scores is not None
    assert again.scores.quality == tuple(each.quality for each in decided.candidates)
    assert again.scores.score == tuple(each.score for each in decided.candidates)


async def test_what_is_kept_holds_no_word_of_the_request() -> None:
    house = House(reading(Letters(), small=1.0))
    receipt = await house.served({"role": "user", "content": SECRET}, asked=Options(session_id="the caller's session"))
    choice = chosen(receipt)

    kept = msgspec.json.encode(choice.decided) + (choice.features or b"") + f"{choice.unit}{choice.key}".encode()
    assert SECRET.encode() not in kept and b"the caller's session" not in kept
    assert choice.longest == least(choice.most, None)
