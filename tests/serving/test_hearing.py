"""Which answers are listened to, and for what."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.config.schema import Config
from gateway.serving.call import Call, Receipt
from gateway.serving.choice import Choice, Decided
from gateway.serving.errand import Errand
from gateway.serving.hearing import Hearing
from gateway.wire.request import read
from policies.values.plan import Plan
from policies.values.situation import Prices
from tests.support.running import config_for

SIGNALS = {"signals": ["schema"]}
JUDGES = {"judge": {"model": "m", "share": 1}, "verifier": {"url": "http://v/"}}


def config(learning: dict[str, Any], url: str = "sqlite:///x.db", **storage: Any) -> Config:
    found = config_for({"b": {"url": "http://b", "models": {"m": "m"}}}, storage={"url": url, **storage}, learning=learning)
    return Config.model_validate(found)


def errand(budget: int | None = None, most: int | None = None, path: str = "/v1/chat/completions", **body: Any) -> Errand:
    data = msgspec.json.encode({"model": "auto", "messages": [{"role": "user", "content": "hi"}], **body})
    return Errand(
        call=Call("POST", path, b"", [], 0.0),
        body=data,
        fields=read(data, 1),
        form=None,
        ask_usage=False,
        openai=True,
        may_stand_in=True,
        idle_s=None,
        choice=Choice(Decided((), Prices()), Plan("p", "m", budget_tokens=budget), most=most),
    )


def receipt(id_: str = "id", *, learn: bool = True) -> Receipt:
    return Receipt("req", id_, 0.0, learn=learn)


def test_by_default_nothing_is_held() -> None:
    assert Hearing().words(config({}), receipt(), errand()) is None
    assert Hearing().words(config({"judge": {"model": "m"}}), receipt(), errand()) is None, "a judge's share is 0 by default"


def test_for_signals_the_answer_is_held_and_nothing_of_the_prompt() -> None:
    words = Hearing().words(config(SIGNALS), receipt(), errand(response_format={"type": "json_object"}, tools=[]))
    assert words is not None and words.examined is not None
    assert (words.kept, words.prompt, words.most) == (None, b"", 1_048_576)
    assert msgspec.json.decode(words.examined.response_format) == {"type": "json_object"}
    assert (words.examined.tools, words.examined.judges) == (b"[]", {})


def test_for_a_judge_the_prompt_is_held_too() -> None:
    words = Hearing().words(config(JUDGES), receipt(), errand())
    assert words is not None and words.examined is not None
    assert words.kept is None
    assert msgspec.json.decode(words.prompt) == [{"role": "user", "content": "hi"}]
    assert words.examined.judges == {"judge": 1.0, "verifier": 1.0}


def test_what_is_stored_is_no_more_than_the_operator_said() -> None:
    contents = {"enabled": True, "max_bytes": 10}
    words = Hearing().words(config(SIGNALS, contents=contents), receipt(), errand())
    assert words is not None
    assert (words.kept, len(words.prompt), words.most) == (10, 11, 1_048_576)
    words = Hearing().words(config({}, contents=contents), receipt(), errand())
    assert words is not None
    assert (words.kept, len(words.prompt), words.most, words.examined) == (10, 11, 10, None)


@pytest.mark.parametrize(
    ("settings", "ended", "asked"),
    [
        (config(SIGNALS), receipt(learn=False), errand()),
        (config(SIGNALS), receipt(), errand(path="/v1/responses")),
        (config(SIGNALS), receipt(), msgspec.structs.replace(errand(), choice=None)),
        (config(SIGNALS, url=""), receipt(), errand()),
    ],
    ids=["told not to learn", "no chat", "a real model", "no database"],
)
def test_where_nothing_is_looked_at(settings: Config, ended: Receipt, asked: Errand) -> None:
    assert Hearing().words(settings, ended, asked) is None


@pytest.mark.parametrize(
    ("asked", "limited"),
    [
        (errand(), False),
        (errand(max_tokens=5), True),
        (errand(max_tokens=-1), False),
        (errand(max_completion_tokens=5), True),
        (errand(budget=100, most=100), False),
        (errand(budget=100, most=100, max_tokens=500), False),
        (errand(budget=100, most=100, max_tokens=50), True),
        (errand(budget=100, most=20), True),
        (errand(most=20), True),
        (errand(path="/v1/completions"), True),
        (errand(budget=9, most=9, path="/v1/completions"), False),
    ],
)
def test_who_bounded_the_answer(asked: Errand, limited: bool) -> None:
    """Below the plan's budget it is what the caller, or the price that he would pay, allows. Engines cut completions at 16 tokens."""
    words = Hearing().words(config(SIGNALS), receipt(), asked)
    assert words is not None and words.examined is not None
    assert words.examined.limited is limited


def test_a_share_is_drawn_by_a_secret_hash() -> None:
    ids = [f"d{n}" for n in range(20_000)]
    one, same, other = Hearing(b"a"), Hearing(b"a"), Hearing(b"b")
    drawn = [id_ for id_ in ids if one.sampled(id_, "judge", 0.1)]
    assert abs(len(drawn) - 2_000) < 4 * (20_000 * 0.1 * 0.9) ** 0.5
    assert drawn == [id_ for id_ in ids if same.sampled(id_, "judge", 0.1)]
    for others in ([id_ for id_ in ids if other.sampled(id_, "judge", 0.1)], [id_ for id_ in ids if one.sampled(id_, "verifier", 0.1)]):
        assert len(set(drawn) & set(others)) < 300, "independent: about 200 are in both"
    assert set(drawn) <= {id_ for id_ in ids if one.sampled(id_, "judge", 0.2)}
    assert not any(one.sampled(id_, "judge", 0.0) for id_ in ids[:50])
    assert all(one.sampled(id_, "judge", 1.0) for id_ in ids[:50])
