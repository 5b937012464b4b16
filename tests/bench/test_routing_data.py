"""The data that routing is measured on, and the rule that what is scored was not trained on."""

from __future__ import annotations

import numpy as np
import pytest

from policies.bench import data

MULTIPLE = "What is the capital of France?\nA. Paris\nB. Lyon\nC. Nice\nD. Lille\nAnswer:"


def test_the_sets_are_as_published() -> None:
    mmlu, gsm8k, pro = data.mmlu(), data.gsm8k(), data.mmlu_pro()
    assert (len(mmlu.ids), len(gsm8k.ids), pro.rewards.shape) == (14_037, 1_307, (12_032, 29))
    assert mmlu.prompts[0].startswith("Find the degree for the given field extension")
    assert (mmlu.categories[0], gsm8k.categories[0]) == ("abstract_algebra", "")
    assert float((mmlu.strong - mmlu.weak).mean()) == pytest.approx(0.125, abs=0.01)
    online = data.complete(pro, data.ONLINE_ARMS)
    assert online.rewards.shape == (12_002, 11)
    assert online.plans[int(online.rewards.mean(axis=0).argmax())] == "gemini-1.5-pro-002"
    assert set(data.digests()) == {"mmlu_pro.csv.gz", "routellm_gsm8k.csv.gz", "routellm_mmlu.csv.gz"}


def test_questions_are_the_same_whatever_their_options_case_and_punctuation() -> None:
    assert data.question(MULTIPLE) == "What is the capital of France?"
    same = data.key("  what is the CAPITAL of France ")
    assert data.key(MULTIPLE) == same
    assert data.key(MULTIPLE.replace("Nice", "Metz")) == same
    assert data.key("What is the capital of Spain?") != same
    assert data.key("?!") != data.key("!?")


def test_overlap_is_counted_by_training_prompt() -> None:
    training = ["What is the capital of France?", "what is the capital of france", "Something else"]
    assert data.count(training, [MULTIPLE]) == 2
    assert data.count(training, ["Nothing of it"]) == 0
    assert data.disjoint(training, [MULTIPLE]).tolist() == [2]


def test_mmlu_pro_and_mmlu_meet_in_more_than_half_of_mmlu_pro() -> None:
    pro, mmlu = data.mmlu_pro().prompts, data.mmlu().prompts
    assert len(pro) - len(data.disjoint(pro, mmlu)) == 6_806  # 6,810 with the five rows that are left out as contaminated
    kept = [pro[row] for row in data.disjoint(pro, mmlu)]
    assert data.count(kept, mmlu) == 0


def test_rows_and_plans_of_a_matrix() -> None:
    pro = data.mmlu_pro()
    two = data.complete(data.rows_of(pro, np.array([3, 1])), ("gemma-7b", "Yi-34B"))
    assert two.ids == (pro.ids[3], pro.ids[1])
    assert two.rewards.tolist() == pro.rewards[[3, 1]][:, [pro.plans.index("gemma-7b"), pro.plans.index("Yi-34B")]].tolist()
