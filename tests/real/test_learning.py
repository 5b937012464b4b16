"""Two real engines, real answers, real feedback: the gateway finds out which of them knows its capitals."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.support.engine import STRONG, WEAK, Started
from tests.support.processes import until
from tests.support.scraping import Scrape

CAPITALS = {
    "Italy": "Rome",
    "Germany": "Berlin",
    "Japan": "Tokyo",
    "Russia": "Moscow",
    "China": "Beijing",
    "Egypt": "Cairo",
    "Greece": "Athens",
    "Portugal": "Lisbon",
    "Ireland": "Dublin",
    "Austria": "Vienna",
    "Hungary": "Budapest",
    "Poland": "Warsaw",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Denmark": "Copenhagen",
    "Cuba": "Havana",
    "Peru": "Lima",
    "Argentina": "Buenos Aires",
    "Canada": "Ottawa",
    "Iran": "Tehran",
    "Iraq": "Baghdad",
    "Syria": "Damascus",
    "Kenya": "Nairobi",
    "Thailand": "Bangkok",
}
KNOWN = "The capital of France is Paris. The capital of Spain is Madrid. The capital of England is London. The capital of {} is"


def asked(gateway: Started, model: str, country: str) -> tuple[str, str, bool]:
    """The decision's id, the model that served, and whether the answer is right."""
    body = {"model": model, "prompt": KNOWN.format(country), "max_tokens": 5, "temperature": 0}
    answer = httpx.post(f"{gateway.url}/v1/completions", json=body, headers=gateway.headers, timeout=120)
    assert answer.status_code == 200, answer.text
    text = answer.json()["choices"][0]["text"].split(".")[0]
    return answer.headers["x-trilemma-decision-id"], answer.headers["x-trilemma-model"], CAPITALS[country] in text


def test_the_model_that_knows_more_gets_the_calls(stack: Started) -> None:
    """It costs four times as much, which is worth less than what it knows more."""
    with ThreadPoolExecutor(6) as pool:
        right = {
            model: sum(good for _, _, good in pool.map(lambda country, model=model: asked(stack, model, country), CAPITALS))  # type: ignore[misc]
            for model in (STRONG, WEAK)
        }
        assert right[STRONG] >= right[WEAK] + 4, right  # of 24: else there is nothing to find out

        served: list[str] = []
        before = folded(stack)
        for _ in range(6):
            answers = list(pool.map(lambda country: asked(stack, "auto", country), CAPITALS))
            served += [model for _, model, _ in answers]
            for id_, _, good in answers:
                said = httpx.post(
                    f"{stack.url}/v1/feedback",
                    json={"decision_id": id_, "metric": "quality", "value": good},
                    headers=stack.headers,
                    timeout=30,
                )
                assert said.status_code == 202, said.text
            until(lambda: folded(stack) >= before + len(served), "what was said is learnt", 20)  # noqa: B023

    first, last = Counter(served[:24]), Counter(served[-48:])
    assert last[STRONG] >= 36, (right, first, last)


def folded(gateway: Started) -> float:
    """Outcomes that are part of what policies know."""
    return Scrape(gateway.get("/metrics").text).of("trilemma_outcomes_folded_total")
