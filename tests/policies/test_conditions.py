"""What can be asked of a request, and the conditions over it."""

# ruff: noqa: RUF001 (letters of other languages are meant)
# ruff: noqa: ARG005 (every truth table has both columns)

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.conditions import boolean, worlds
from policies.conditions.encoder import Signals
from policies.conditions.keywords import Keywords, folded, words
from policies.conditions.language import LANGUAGES, language
from policies.conditions.signal import Signal, problems
from policies.values.prompt import Prompt, Turn
from tests.support.encoders import Letters


def signals(**raw: Any) -> dict[str, Signal]:
    return msgspec.convert(raw, dict[str, Signal])


def measured(prompt: Prompt, **raw: Any) -> list[float]:
    encoder = Signals(signals(**raw), {"static": Letters(), "slow": Letters("ab", "slow-1", True)}.__getitem__)
    block = encoder.encode(prompt)
    assert (block.dtype, block.shape) == (np.float32, (encoder.dim,))
    assert (encoder.encode(prompt) == block).all()
    return [float(number) for number in block]


def said(*texts: str, role: str = "user") -> Prompt:
    return Prompt(tuple(Turn(role, text) for text in texts))


# Keywords


@pytest.mark.parametrize(
    ("word", "text", "there"),
    [
        ("art", "modern art.", True),
        ("art", "a party", False),
        ("art", "ART!", True),
        ("art", "art2", False),
        ("c++", "Is C++20 out?", True),
        ("c++", "abc++", False),
        (".net", "ASP.NET", True),
        ("new york", "in New\n  York.", True),
        ("new york", "a new yorker", False),
        ("new york", "renew york", False),
        ("straße", "STRASSE", True),
        ("ﬁle", "File", True),
        ("été", "e\u0301te\u0301", True),
        ("天気", "今日の天気は", True),
        ("python", "用python写", True),
        ("a.c", "abc", False),
        ("(", "f(x)", True),
        (" spaced ", "well spaced", True),
        ("art", "", False),
    ],
)
def test_a_keyword_is_found_literally_and_as_a_whole_word(word: str, text: str, there: bool) -> None:
    prepared = folded(text)

    assert Keywords([word]).found(prepared, words(prepared)) is there
    assert Keywords([word], every=True).found(prepared, words(prepared)) is there


def test_any_is_one_of_them_and_all_is_each_of_them_even_where_they_overlap() -> None:
    def found(match: str, text: str) -> float:
        return measured(said(text), x={"keywords": ["new", "new york", "c++"], "match": match})[0]

    assert (found("any", "a new day"), found("all", "a new day")) == (1.0, 0.0)
    assert (found("any", "C++ in New York"), found("all", "C++ in New York")) == (1.0, 1.0)


def test_case_matters_where_it_should() -> None:
    prompt = said("Go to the shop in IT")

    assert measured(prompt, a={"keywords": ["go"]}, b={"keywords": ["go"], "case": True}, c={"keywords": ["IT"], "case": True}) == [1, 0, 1]


@settings(deadline=None, max_examples=200)
@given(word=st.text("ab+. 天", min_size=1, max_size=4).filter(str.strip), text=st.text("ab+. 天", max_size=12))
def test_no_keyword_is_a_pattern(word: str, text: str) -> None:
    def letter(character: str) -> bool:
        return character in "ab"

    parts, there = word.split(), False
    for start in range(len(text)):
        at = start
        for index, part in enumerate(parts):
            if index:
                blanks = len(text[at:]) - len(text[at:].lstrip(" "))
                if not blanks:
                    break
                at += blanks
            if not text.startswith(part, at):
                break
            at += len(part)
        else:
            before, after = text[:start][-1:], text[at:][:1]
            there |= not (letter(parts[0][0]) and letter(before or " ")) and not (letter(parts[-1][-1]) and letter(after or " "))

    assert Keywords([word]).found(folded(text), words(folded(text))) is there


def test_every_turn_of_user_and_system_counts_and_roles_say_otherwise() -> None:
    prompt = Prompt((Turn("system", "apple"), Turn("user", "pear"), Turn("assistant", "plum"), Turn("tool", "fig"), Turn("user", "so?")))
    fruit = {name: {"keywords": [name]} for name in ("apple", "pear", "plum", "fig")}

    assert measured(prompt, **fruit) == [1, 1, 0, 0]
    assert measured(prompt, **{name: {**each, "roles": ["assistant", "tool"]} for name, each in fruit.items()}) == [0, 0, 1, 1]


def test_no_phrase_reaches_from_one_turn_into_the_next() -> None:
    assert measured(said("I love new", "york is old"), x={"keywords": ["new york"]}) == [0]


# Language


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("en", "What is the capital of France, and how many people live there?"),
        ("de", "Wie viele Einwohner hat die Hauptstadt von Frankreich?"),
        ("fr", "Quelle est la capitale de l'Allemagne et combien d'habitants a-t-elle ?"),
        ("es", "¿Cuál es la capital de Alemania y cuántos habitantes tiene?"),
        ("it", "Qual è la capitale della Germania e quanti abitanti ha?"),
        ("pt", "Qual é a capital da Alemanha e quantos habitantes ela tem? Não sei."),
        ("nl", "Wat is de hoofdstad van Duitsland en hoeveel inwoners heeft het?"),
        ("sv", "Vad är huvudstaden i Tyskland och hur många bor det där?"),
        ("pl", "Jaka jest stolica Niemiec i ilu ma mieszkańców? Proszę napisz."),
        ("tr", "Almanya'nın başkenti neresidir ve nüfusu ne kadar?"),
        ("ru", "Какая столица Германии и сколько в ней жителей? Объясни, чтобы было понятно."),
        ("uk", "Яка столиця Німеччини і скільки в ній мешканців?"),
        ("el", "Ποια είναι η πρωτεύουσα της Γερμανίας;"),
        ("ar", "ما هي عاصمة ألمانيا وكم عدد سكانها؟"),
        ("fa", "پایتخت آلمان چیست و چند نفر جمعیت دارد؟"),
        ("he", "מהי בירת גרמניה וכמה תושבים יש בה?"),
        ("hi", "जर्मनी की राजधानी क्या है?"),
        ("th", "เมืองหลวงของเยอรมนีคืออะไร"),
        ("zh", "德国的首都是哪里?有多少人口?"),
        ("ja", "ドイツの首都はどこですか。人口はどれくらいですか。"),
        ("ko", "독일의 수도는 어디이고 인구는 얼마나 됩니까?"),
    ],
)
def test_languages_are_told(code: str, text: str) -> None:
    assert code in LANGUAGES
    assert language([text]) == code


@pytest.mark.parametrize("text", ["", "42 + 17 = ?", "Xyzzy plugh", "```\nfor x in the_list: is not and or\n```", "🙂"])
def test_what_is_no_language_is_none(text: str) -> None:
    assert language([text]) == ""


def test_code_and_borrowed_words_do_not_change_the_language_of_a_text() -> None:
    code = "```python\nfor item in list: if not item is None and this or that: return the_other\n```"

    assert language([f"Warum geht das nicht?\n{code}"]) == "de"
    assert language(["请解释一下 machine learning 和 deep learning 的区别"]) == "zh"


def test_all_of_the_users_turns_count_and_the_system_prompt_does_not() -> None:
    system = Turn("system", "You are a helpful assistant. Answer what the user asks, and do not be too long about it.")
    asked = (Turn("user", "Wie kann ich das Problem lösen?"), Turn("assistant", "You should try to do it."), Turn("user", "OK"))
    german = {"language": ["de", "nl"]}

    assert measured(Prompt((system, *asked)), x=german) == [1]
    assert measured(Prompt((system,)), x=german, y={"language": ["en"]}) == [0, 1]
    assert measured(Prompt((system, *asked)), x={**german, "roles": ["system"]}) == [0]


# Similarity


def test_similarity_is_the_cosine_with_the_example_that_is_most_alike() -> None:
    alike = {"similar_to": ["aab", "c"]}

    assert measured(said("aaaabb"), x=alike) == pytest.approx([1.0])
    assert measured(said("ab"), x=alike) == pytest.approx([3 / 10**0.5])
    # Every turn counts: (1, 0, 1) against (2, 1, 0) and (0, 0, 1).
    assert measured(said("a", "c"), x=alike) == pytest.approx([0.5**0.5])
    assert measured(Prompt((Turn("system", "cccc"), Turn("user", "b"))), x=alike) == pytest.approx([1 / 5**0.5])


@pytest.mark.parametrize("prompt", [Prompt(), said(""), said("   "), said("zzz")])
def test_without_text_nothing_is_alike_and_no_word_is_there(prompt: Prompt) -> None:
    assert measured(prompt, x={"similar_to": ["a"]}, y={"keywords": ["a"]}, z={"language": ["en"]}) == [0, 0, 0]


def test_an_encoder_is_slow_where_one_that_it_asks_is() -> None:
    known = {"static": Letters(), "slow": Letters("ab", "slow-1", True)}.__getitem__

    assert not Signals(signals(x={"similar_to": ["a"]}, y={"keywords": ["a"]}), known).slow
    assert Signals(signals(x={"similar_to": ["a"], "encoder": "slow"}), known).slow


# The rest of a request


@pytest.mark.parametrize(
    ("raw", "prompt", "there"),
    [
        ({"tokens": {"above": 4000}}, Prompt(tokens=4001), True),
        ({"tokens": {"above": 4000}}, Prompt(tokens=4000), False),
        ({"tokens": {"above": 10, "below": 12}}, Prompt(tokens=11), True),
        ({"tokens": {"above": 10, "below": 12}}, Prompt(tokens=12), False),
        ({"turns": {"above": 2}}, Prompt(user_turns=3), True),
        ({"max_tokens": {"below": 100}}, Prompt(max_tokens=99), True),
        ({"max_tokens": {"below": 100}}, Prompt(), False),
        ({"tools": True}, Prompt(tools=True), True),
        ({"tools": False}, Prompt(tools=True), False),
        ({"tool_loop": True}, Prompt(tool_loop=True), True),
        ({"json_schema": True}, Prompt(json_schema=True), True),
        ({"images": True}, Prompt(images=True), True),
        ({"images": True}, Prompt(), False),
        ({"audio": True}, Prompt(audio=True), True),
        ({"logprobs": False}, Prompt(), True),
        ({"tenant": ["acme", "b"]}, Prompt(tenant="acme"), True),
        ({"tenant": ["acme"]}, Prompt(tenant="acm"), False),
        ({"tag": {"team": "search"}}, Prompt(tags={"team": "search", "x": "y"}), True),
        ({"tag": {"team": "search", "x": "z"}}, Prompt(tags={"team": "search", "x": "y"}), False),
        ({"tag": {"team": ["ads", "search"]}}, Prompt(tags={"team": "search"}), True),
        ({"tag": {"team": "search"}}, Prompt(), False),
    ],
)
def test_signals_of_shape_and_origin(raw: dict[str, Any], prompt: Prompt, there: bool) -> None:
    assert measured(prompt, x=raw) == [float(there)]


def test_the_name_tells_one_set_of_questions_from_another() -> None:
    def name(letters: Letters | None = None, **raw: Any) -> str:
        return Signals(signals(**raw), {"static": letters or Letters()}.__getitem__).name

    alike = {"similar_to": ["a"]}
    names = {
        name(x={"keywords": ["a"]}),
        name(y={"keywords": ["a"]}),
        name(x={"keywords": ["a"], "case": True}),
        name(x={"keywords": ["a"]}, y={"tools": True}),
        name(y={"tools": True}, x={"keywords": ["a"]}),
        name(x=alike),
        name(Letters(name="letters-2"), x=alike),
    }
    assert len(names) == 7
    assert all(len(each) == 14 and each.startswith("rules-") and int(each[6:], 16) >= 0 for each in names)
    # A threshold is applied to what was measured, so rows logged under another one can still be used.
    assert name(x=alike) == name(x={**alike, "above": 0.7})


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        ({}, ["`x`", "one question", "keywords"]),
        ({"tools": True, "images": True}, ["one question, not 2"]),
        ({"keywords": []}, ["nothing in `keywords`"]),
        ({"keywords": ["a", " "]}, ["blank"]),
        ({"tools": True, "case": True}, ["`case`", "nothing for `tools`"]),
        ({"keywords": ["a"], "above": 0.5}, ["`above`"]),
        ({"similar_to": ["a"], "above": 1.0}, ["cosine"]),
        ({"language": ["de-AT"]}, ["`de-AT`", "write `de`"]),
        ({"language": ["xx"]}, ["`xx`", "it can tell ar, "]),
        ({"language": ["de"], "roles": []}, ["no roles"]),
        ({"tokens": {}}, ["neither"]),
        ({"tokens": {"above": 5, "below": 6}}, ["no number"]),
        ({"turns": {"below": 0}}, ["no number"]),
        ({"tenant": [""]}, ["blank"]),
        ({"tag": {}}, ["nothing in `tag`"]),
        ({"tag": {"team": []}}, ["nothing in `tag`"]),
    ],
)
def test_signals_that_cannot_work_are_problems(raw: dict[str, Any], parts: list[str]) -> None:
    (sentence,) = problems(signals(x=raw, fine={"tools": True}))

    assert all(part in sentence for part in parts)


# Conditions


@pytest.mark.parametrize(
    ("raw", "true_of"),
    [
        ("a", lambda a, b: a),
        (None, lambda a, b: True),
        ({"all": ["a", "b"]}, lambda a, b: a and b),
        ({"any": ["a", "b"]}, lambda a, b: a or b),
        ({"not": "a"}, lambda a, b: not a),
        ({"any": [{"all": ["a", {"not": "b"}]}, {"all": [{"not": "a"}, "b"]}]}, lambda a, b: a != b),
        ({"all": []}, lambda a, b: True),
        ({"any": []}, lambda a, b: False),
        ({"not": {"any": ["a", {"not": {"all": ["b", "b"]}}]}}, lambda a, b: not a and b),
    ],
)
def test_conditions_are_boolean(raw: Any, true_of: Any) -> None:
    condition = boolean.parsed(raw)

    for a, b in itertools.product((0, 1), repeat=2):
        assert boolean.holds(condition, {"a": a, "b": b}, 1) == int(bool(true_of(a, b)))
    # The same over all four at once: bit 2a + b.
    table = sum(int(bool(true_of(a, b))) << (2 * a + b) for a in (0, 1) for b in (0, 1))
    assert boolean.holds(condition, {"a": 0b1100, "b": 0b1010}, 0b1111) == table


@pytest.mark.parametrize("raw", [5, ["a"], {}, {"all": "a"}, {"any": ["a"], "all": ["b"]}, {"nor": ["a"]}, {"not": None}, {"all": [None]}])
def test_what_is_no_condition_is_refused(raw: Any) -> None:
    with pytest.raises(ValueError, match="a condition is"):
        boolean.parsed(raw)


def test_conditions_have_a_depth() -> None:
    raw: Any = "a"
    for _ in range(1_000):
        raw = {"not": raw}

    with pytest.raises(ValueError, match="deeper"):
        boolean.parsed(raw)


# Which rules can never match


def found(known: dict[str, Any], *rules: Any) -> list[str]:
    numbered = [worlds.Numbered(f"rule {index}", boolean.parsed(when), index) for index, when in enumerate(rules, 1)]
    return worlds.findings(numbered, signals(**known))


KNOWN = {
    "a": {"keywords": ["a"]},
    "b": {"keywords": ["b"]},
    "c": {"keywords": ["c"]},
    "over4": {"tokens": {"above": 4000}},
    "over8": {"tokens": {"above": 8000}},
    "under4": {"tokens": {"below": 4000}},
    "from4": {"tokens": {"above": 3999}},
    "de": {"language": ["de"]},
    "fr": {"language": ["fr"]},
    "defr": {"language": ["de", "fr"]},
    "tools": {"tools": True},
    "bare": {"tools": False},
    "acme": {"tenant": ["acme"]},
    "other": {"tenant": ["other"]},
    "ads": {"tag": {"team": "ads"}},
    "web": {"tag": {"team": "web"}},
    "adslive": {"tag": {"team": "ads", "stage": "live"}},
    "near": {"similar_to": ["x"], "above": 0.8},
    "nearish": {"similar_to": ["x"], "above": 0.6},
    "brief": {"max_tokens": {"below": 100}},
    "ample": {"max_tokens": {"above": 99}},
}


@pytest.mark.parametrize(
    "rules",
    [
        ["a", "b", "c"],
        ["over8", "over4", None],
        ["under4", "over4", None],  # 4,000 itself is left
        ["brief", "ample", None],  # where the answer has no limit
        ["de", "fr", None],
        ["de", "defr"],
        [{"all": ["a", "b"]}, "a", "b"],
        ["near", "nearish", None],
        ["adslive", "ads"],
    ],
)
def test_rules_that_can_match_are_no_problem(rules: list[Any]) -> None:
    assert found(KNOWN, *rules) == []


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        (["a", {"all": ["b", {"not": "b"}]}], "rule 2 can never match: its condition contradicts itself"),
        ([{"all": ["de", "fr"]}], "rule 1 can never match: its condition contradicts itself"),
        ([{"all": ["under4", "over8"]}], "rule 1 can never match: its condition contradicts itself"),
        ([{"all": ["acme", "other"]}], "rule 1 can never match: its condition contradicts itself"),
        ([{"all": ["adslive", "web"]}], "rule 1 can never match: its condition contradicts itself"),
        ([{"any": []}], "rule 1 can never match: its condition contradicts itself"),
        (["over4", "over8"], "rule 2 can never match: whenever it would, rule 1 matches first"),
        (["nearish", "near"], "rule 2 can never match: whenever it would, rule 1 matches first"),
        (["defr", {"all": ["a", "fr"]}], "rule 2 can never match: whenever it would, rule 1 matches first"),
        (["a", {"all": ["a", "b"]}], "rule 2 can never match: whenever it would, rule 1 matches first"),
        (["de", "fr", "defr"], "rule 3 can never match: whenever it would, one of those before it matches first"),
        (["tools", "bare", "a"], "rule 3 can never match: whenever it would, one of those before it matches first"),
        (["under4", "from4", None], "rule 3 can never match: whenever it would, one of those before it matches first"),
        (["b", None, "a"], "rule 3 can never match: it comes after rule 2, which always matches"),
        ([{"any": ["a", {"not": "a"}]}, "b"], "rule 2 can never match: it comes after rule 1, which always matches"),
        (["a", "b", {"not": {"not": "a"}}], "rule 3 and rule 1 contradict each other: the same condition leads to different plans"),
        (["tools", {"not": "bare"}], "rule 2 and rule 1 contradict each other: the same condition leads to different plans"),
    ],
)
def test_rules_that_can_never_match_are_found(rules: list[Any], sentence: str) -> None:
    assert found(KNOWN, *rules) == [sentence]


def test_a_rule_that_only_repeats_another_is_found() -> None:
    rules = [worlds.Numbered(label, boolean.parsed("a"), "small") for label in ("rule 1", "rule 2")]

    assert worlds.findings(rules, signals(**KNOWN)) == ["rule 2 says again what rule 1 says"]


def test_where_there_are_too_many_signals_for_all_at_once_rules_are_compared_two_by_two() -> None:
    many = {f"k{i}": {"keywords": [f"word{i}"]} for i in range(30)}
    rules = [{"all": [f"k{i}", f"k{(i + 1) % 30}"]} for i in range(30)]

    assert found(many, *rules) == []
    assert found(many, *rules, {"all": ["k3", "k4", "k9"]}, {"all": ["k1", {"not": "k1"}]}) == [
        "rule 31 can never match: whenever it would, rule 4 matches first",
        "rule 32 can never match: its condition contradicts itself",
    ]


@st.composite
def conditions(draw: Any, depth: int = 2) -> Any:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from("abc"))
    kind = draw(st.sampled_from(["all", "any", "not"]))
    return {kind: draw(conditions(depth - 1)) if kind == "not" else draw(st.lists(conditions(depth - 1), max_size=3))}


@settings(deadline=None, max_examples=200)
@given(rules=st.lists(conditions(), min_size=1, max_size=5))
def test_a_rule_is_told_to_be_dead_exactly_if_no_request_reaches_it(rules: list[Any]) -> None:
    parsed = [boolean.parsed(rule) for rule in rules]
    reached = {
        next((index for index, each in enumerate(parsed) if boolean.holds(each, dict(zip("abc", bits, strict=True)), 1)), None)
        for bits in itertools.product((0, 1), repeat=3)
    }

    told = {int(sentence.split()[1]) - 1 for sentence in found(KNOWN, *rules)}

    assert told == set(range(len(rules))) - reached
