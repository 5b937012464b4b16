from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from gateway.config.check import check
from gateway.config.load import parse
from gateway.store.urls import FORMS
from policies.registry import Spec
from policies.values.plan import Plan
from tests.support.vectors import Vectors

BACKENDS = """\
version: 1
backends:
  a: {url: 'http://a', models: {small: s, large: l}}
  b: {url: 'http://b', models: {large: l}}
"""
PRICES = "models: {small: {price: {}}, large: {price: {}, aliases: [big]}}\n"
KEYS = f"keys: [{{name: dev, sha256: {'ab' * 32}}}]\n"


def found(text: str, backends: str = BACKENDS, models: str = PRICES, keys: str = KEYS) -> list[str]:
    """What is wrong, without lines."""
    loaded = parse(backends + models + keys + text, {})
    return [str(problem).split(": ", 1)[1] for problem in loaded.located(check(loaded.config))]


def test_nothing_is_wrong_with_a_good_configuration() -> None:
    good = """\
policies: {split: {type: weighted, params: {weights: {small: 1, large: 0}}}}
virtual_models:
  auto: {policy: split, plans: {small: {model: small}, large: {model: big}}, baseline: large}
  best: {policy: fixed, plans: {only: {model: large}}}
"""
    assert found(good) == []


# --- models, aliases


def test_a_section_for_a_model_that_nobody_serves() -> None:
    assert found("", models="models: {smal: {price: {}}, small: {price: {}}, large: {price: {}}}\n") == [
        "models.smal: no backend serves this model; did you mean `small`?"
    ]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("small: {aliases: [large]}", "models.small.aliases[0]: `large` is itself a model that a backend serves"),
        ("small: {aliases: [small]}", "models.small.aliases[0]: `small` is itself a model that a backend serves"),
        ("small: {aliases: [x]}, large: {aliases: [x]}", "models.large.aliases[0]: `x` is an alias of `small` already"),
        ("small: {aliases: [auto]}", "models.small.aliases[0]: `auto` is the name of a virtual model too"),
        (
            "small: {aliases: [x]}, x: {aliases: [y]}",
            "models.x: an alias has no section of its own (x -> small): what is said here belongs under `small`",
        ),
        (
            "small: {aliases: [x]}, x: {aliases: [y]}, y: {aliases: [z]}",
            "models.y: an alias has no section of its own (y -> x -> small): what is said here belongs under `small`",
        ),
        ("x: {aliases: [y]}, y: {aliases: [x]}", "models.x: aliases run in a circle: x -> y -> x"),
        ("x: {aliases: [x]}", "models.x: aliases run in a circle: x -> x"),
    ],
)
def test_aliases_that_lead_nowhere(models: str, message: str) -> None:
    virtual = "virtual_models: {auto: {policy: fixed, plans: {p: {model: large}}}}\n"
    assert message in found(virtual, models=f"models: {{{models}}}\n")


def test_a_circle_without_a_way_in_ends() -> None:
    """u leads into a circle that it is no part of."""
    problems = found("", models="models: {x: {aliases: [y]}, y: {aliases: [x, u]}, u: {}}\n")
    assert "models.u: aliases run in a circle: u -> y -> x -> y" in problems


def test_a_model_without_a_price_is_a_warning() -> None:
    assert found("", models="models: {small: {context: 5}}\n") == [
        "warning: backends.a.models.large: model `large` has no price: its tokens count as free",
        "warning: models.small: model `small` has no price: its tokens count as free",
    ]


# --- fallbacks

FOUR = "version: 1\nbackends:\n  e: {url: 'http://e', models: {a: a, b: b, c: c, d: d}}\n"


def of_fallbacks(models: str, virtual: str = "") -> list[str]:
    """What is wrong with four free models a to d and what is said of them."""
    return [each for each in found(virtual, backends=FOUR, models=f"models: {{{models}}}\n") if "has no price" not in each]


def test_retired_models_that_work() -> None:
    """Whoever names one means its successor, over several steps too."""
    virtual = "virtual_models: {auto: {policy: fixed, plans: {p: {model: old}}}}\n"
    models = "old: {replaced_by: older}, older: {replaced_by: see, aliases: [ancient]}, b: {aliases: [see]}, a: {fallbacks: [old, ancient]}"
    assert of_fallbacks(models, virtual) == []


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("old: {replaced_by: e}, d: {aliases: [large]}", "models.old.replaced_by: no backend serves `e`"),
        ("old: {replaced_by: lager}, d: {aliases: [large]}", "models.old.replaced_by: no backend serves `lager`; did you mean `large`?"),
        ("old: {replaced_by: auto}", "models.old.replaced_by: `auto` is a virtual model: a real one takes the place of another"),
        ("old: {replaced_by: old}", "models.old.replaced_by: models are replaced in a circle: old -> old"),
        ("x: {replaced_by: y}, y: {replaced_by: x}", "models.y.replaced_by: models are replaced in a circle: y -> x -> y"),
        ("old: {replaced_by: a}, b: {aliases: [old]}", "models.b.aliases[0]: `old` is itself a retired model"),
        ("b: {replaced_by: a}, a: {fallbacks: [b]}", "models.a.fallbacks[0]: fallbacks run in a circle: a -> a"),
    ],
)
def test_retired_models_that_lead_nowhere(models: str, message: str) -> None:
    virtual = "virtual_models: {auto: {policy: fixed, plans: {p: {model: d}}}}\n"
    assert message in [each.replace(" (warning)", "") for each in of_fallbacks(models, virtual)]


def test_a_retired_model_that_is_served_still() -> None:
    [only] = of_fallbacks("b: {replaced_by: a}")
    assert "`b` is retired, but backend `" in only and "it gets no calls under this name" in only


def test_fallbacks_that_work() -> None:
    """Two ways to the same model are no circle, and an alias is as good as the name."""
    assert of_fallbacks("a: {fallbacks: [b, see]}, b: {fallbacks: [c]}, c: {aliases: [see], fallbacks: [d]}") == []


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("a: {fallbacks: [other]}", "models.a.fallbacks[0]: no backend serves `other`"),
        ("a: {fallbacks: [b, lager]}, b: {aliases: [large]}", "models.a.fallbacks[1]: no backend serves `lager`; did you mean `large`?"),
        ("a: {fallbacks: [auto]}", "models.a.fallbacks[0]: `auto` is a virtual model: a fallback names a real one"),
        ("a: {fallbacks: [x]}, y: {aliases: [x]}", "models.a.fallbacks[0]: no backend serves `x`"),
    ],
)
def test_fallbacks_that_lead_nowhere(models: str, message: str) -> None:
    virtual = "virtual_models: {auto: {policy: fixed, plans: {p: {model: d}}}}\n"
    assert any(each.startswith(message) for each in of_fallbacks(models, virtual)), of_fallbacks(models, virtual)


@pytest.mark.parametrize(
    ("models", "messages"),
    [
        ("a: {fallbacks: [a]}", ["models.a.fallbacks[0]: fallbacks run in a circle: a -> a"]),
        ("a: {aliases: [me], fallbacks: [b, me]}", ["models.a.fallbacks[1]: fallbacks run in a circle: a -> a"]),
        (
            "a: {fallbacks: [b]}, b: {fallbacks: [a]}",
            [
                "models.a.fallbacks[0]: fallbacks run in a circle: a -> b -> a",
                "models.b.fallbacks[0]: fallbacks run in a circle: b -> a -> b",
            ],
        ),
        (
            "a: {fallbacks: [b]}, b: {fallbacks: [d, c]}, c: {fallbacks: [d, a]}",
            [
                "models.a.fallbacks[0]: fallbacks run in a circle: a -> b -> c -> a",
                "models.b.fallbacks[1]: fallbacks run in a circle: b -> c -> a -> b",
                "models.c.fallbacks[1]: fallbacks run in a circle: c -> a -> b -> c",
            ],
        ),
        (
            "a: {fallbacks: [b]}, b: {fallbacks: [c, c]}, c: {fallbacks: [b]}",
            [
                "models.b.fallbacks[0]: fallbacks run in a circle: b -> c -> b",
                "models.b.fallbacks[1]: fallbacks run in a circle: b -> c -> b",
                "models.c.fallbacks[0]: fallbacks run in a circle: c -> b -> c",
            ],
        ),
    ],
    ids=["itself", "itself by an alias", "two", "three", "one that only leads there"],
)
def test_fallbacks_in_a_circle(models: str, messages: list[str]) -> None:
    """The way is told from each model that is part of it."""
    assert of_fallbacks(models) == messages


def test_fewer_attempts_than_models_are_a_warning() -> None:
    place = "leaves no call for the last of 2 fallbacks after a first failure"
    assert of_fallbacks("a: {attempts: 2, fallbacks: [b, c]}") == [f"warning: models.a.attempts: `attempts: 2` {place}"]
    assert of_fallbacks("a: {attempts: 3, fallbacks: [b, c]}") == []
    assert of_fallbacks("a: {fallbacks: [b, c, d]}") == [
        "warning: models.a: `attempts: 3` leaves no call for the last of 3 fallbacks after a first failure"
    ]


def test_a_fallback_for_embeddings_is_a_warning() -> None:
    assert of_fallbacks("a: {capabilities: [embeddings], fallbacks: [b]}") == [
        "warning: models.a.fallbacks: embeddings are never answered by another model: fallbacks count for text only"
    ]


# --- virtual models, policies


@pytest.mark.parametrize(
    ("virtual", "message"),
    [
        ("small: {policy: fixed, plans: {p: {model: large}}}", "virtual_models.small: a backend serves a model of this name"),
        (
            "v: {policy: fixed, plans: {p: {model: smal}}}",
            "virtual_models.v.plans.p.model: no backend serves `smal`; did you mean `small`?",
        ),
        (
            "v: {policy: fixed, plans: {p: {model: bigg}}}",
            "virtual_models.v.plans.p.model: no backend serves `bigg`; did you mean `big`?",
        ),
        (
            "v: {policy: fixed, plans: {p: {model: v}}}",
            "virtual_models.v.plans.p.model: `v` is a virtual model: a plan names a real one",
        ),
        (
            "v: {policy: fixed, plans: {fast: {model: small}}, baseline: fats}",
            "virtual_models.v.baseline: `fats` is no plan of this virtual model; did you mean `fast`?",
        ),
        ("v: {policy: fixd, plans: {p: {model: small}}}", "virtual_models.v.policy: there is no policy `fixd`; did you mean `fixed`?"),
        (
            "v: {policy: fixed, plans: {p: {model: small}, q: {model: large}}}",
            "virtual_models.v.plans: policy `fixed` needs exactly one plan",
        ),
    ],
)  # fmt: skip
def test_virtual_models_that_cannot_work(virtual: str, message: str) -> None:
    assert found(f"virtual_models: {{{virtual}}}\n") == [message]


PLANS = "plans: {small: {model: small}, large: {model: large}}"


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("{type: weihgted}", "weihgted"),
        ("{type: weighted, params: {weights: {smal: 1}}}", "smal"),
        ("{type: weighted, params: {weights: {small: 0, large: 0}}}", "positive"),
        ("{type: weighted, params: {weights: {small: -1, large: 1}}}", "small"),
        ("{type: weighted, params: {weights: {small: heavy}}}", "weights"),
        ("{type: weighted, params: {weigths: {small: 1}}}", "weigths"),
        ("{type: fixed, params: {plan: smal}}", "smal"),
    ],
)
def test_policies_that_cannot_work(policy: str, says: str) -> None:
    problems = found(f"policies: {{p: {policy}}}\nvirtual_models: {{v: {{policy: p, {PLANS}}}}}\n")
    assert len(problems) == 1
    assert problems[0].startswith("policies.p: for virtual model `v`: ")
    assert says in problems[0]


def test_a_policy_is_asked_once_for_each_virtual_model() -> None:
    asked: list[tuple[str, list[str], str]] = []

    def problems(name: str, specs: Mapping[str, Spec], plans: Sequence[Plan], baseline: str) -> list[str]:
        assert (specs[name].type, specs[name].params) == ("own", {"x": 1})
        asked.append((name, [plan.name for plan in plans], baseline))
        return ["cannot start"] if len(plans) == 1 else []

    text = f"""\
policies: {{p: {{type: own, params: {{x: 1}}}}}}
virtual_models:
  v: {{policy: p, {PLANS}}}
  w: {{policy: p, plans: {{only: {{model: small}}}}}}
"""
    config = parse(BACKENDS + PRICES + KEYS + text, {}).config
    messages = [each.message for each in check(config, problems) if each.severity == "error"]
    assert asked == [("p", ["small", "large"], "small"), ("p", ["only"], "only")]
    assert messages == ["for virtual model `w`: cannot start"]


def test_an_idle_policy_is_a_warning_and_an_unknown_type_an_error() -> None:
    assert found("policies: {p: {type: weighted}}\n") == ["warning: policies.p: no virtual model uses this policy"]
    problems = found("policies: {p: {type: wieghted}}\n")
    assert sorted(problem.split(":")[0] for problem in problems) == ["policies.p", "warning"]


def test_the_built_in_name_is_not_given_away() -> None:
    text = f"policies: {{fixed: {{type: weighted}}}}\nvirtual_models: {{v: {{policy: fixed, {PLANS}}}}}\n"
    assert found(text) == ["policies.fixed: `fixed` is built in: give this policy another name"]


def test_a_policy_with_nothing_to_choose_from_is_a_warning() -> None:
    text = "policies: {p: {type: weighted}}\nvirtual_models: {v: {policy: p, plans: {only: {model: small}}}}\n"
    assert found(text) == ["warning: virtual_models.v.policy: a policy has nothing to choose from one plan: `fixed` would do"]


# --- keys


def key(name: str, letter: str = "a", more: str = "") -> str:
    return f"{{name: {name}, sha256: {letter * 64}{more}}}"


@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        ("[]", ["keys: there are no keys, so nobody could call: give at least one"]),
        (f"[{key('x')}, {key('x', 'b')}]", ["keys[1].name: keys[0] has this name too"]),
        (f"[{key('x')}, {key('y')}]", ["keys[1].sha256: keys[0] has this digest too"]),
        (f"[{key('x', more=', models: [smal]')}]", ["keys[0].models[0]: there is no model `smal`; did you mean `small`?"]),
        (f"[{key('x', more=', models: [big, sm*, lar*e, auto]')}]", []),
        (f"[{key('x', more=', models: [gpt-*]')}]", ["warning: keys[0].models[0]: no model matches `gpt-*`"]),
        (
            f"[{key('x', more=', scopes: []')}]",
            [
                "warning: keys: no key may ask a model anything (scope `inference`, and `models`)",
                "warning: keys[0].scopes: this key opens nothing",
            ],
        ),
        (
            f"[{key('x', more=', scopes: [admin]')}]",
            ["warning: keys: no key may ask a model anything (scope `inference`, and `models`)"],
        ),
    ],
)
def test_keys(keys: str, messages: list[str]) -> None:
    virtual = "virtual_models: {auto: {policy: fixed, plans: {p: {model: large}}}}\n"
    assert found(virtual, keys=f"keys: {keys}\n") == messages


def test_the_digest_of_an_empty_key_is_refused() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert found("", keys=f"keys: [{{name: x, sha256: {empty}}}]\n") == ["keys[0].sha256: this is the digest of an empty key"]


# --- limits


def test_limits_of_a_tenant_without_keys() -> None:
    keys = f"keys: [{{name: dev, tenant: shop, sha256: {'ab' * 32}}}]\n"
    missing = "warning: limits.tenants.shp: no key has this tenant; did you mean `shop`?"
    assert found("limits: {tenants: {shp: {rpm: 1}}}\n", keys=keys) == [missing]
    assert found("limits: {tenants: {shop: {rpm: 1}}}\n", keys=keys) == []
    assert found("limits: {tenants: {shp: {rpm: 1}}}\nstorage: {url: 'sqlite:///a.db'}\n", keys=keys) == []


# --- storage


@pytest.mark.parametrize(
    "url",
    ["", "sqlite:///decisions.db", "sqlite:////var/lib/trilemma/decisions.db", "postgresql://user:hunter2@db/trilemma"],
)
def test_storage_that_works(url: str) -> None:
    assert found(f"storage: {{url: '{url}'}}\n") == []


@pytest.mark.parametrize("url", ["postgresql://user:hunter2@db", "mysql://user:hunter2@db/trilemma", "sqlite:///:memory:", "decisions.db"])
def test_storage_that_does_not_work(url: str) -> None:
    assert found(f"storage: {{url: '{url}'}}\n") == [f"storage.url: {FORMS}"]


def test_postgresql_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.config.check.importlib.util.find_spec", lambda _name: None)
    assert found("storage: {url: 'postgresql://db/trilemma'}\n") == [
        "storage.url: PostgreSQL needs the extra `postgres`: pip install 'trilemma[postgres]'"
    ]


# --- embeddings

UNSENDABLE = "the key cannot be sent in a header: it holds spaces, line ends or letters beyond ASCII"


@pytest.mark.parametrize(
    ("of_auto", "of_the_endpoint", "messages"),
    [
        ("endpoint:emb", "", []),
        (
            "endpoint:enb",
            "",
            ["policies.p: for virtual model `auto`: the encoder `endpoint:enb`: there is no endpoint `enb`; there are: emb"],
        ),
        ("endpoint:emb", ", key: 'a b'", [f"embeddings.emb.key: {UNSENDABLE}"]),
    ],
)
def test_endpoints_are_named_and_not_called(of_auto: str, of_the_endpoint: str, messages: list[str]) -> None:
    with Vectors({}) as server:
        text = f"""
policies: {{p: {{type: linucb, params: {{features: ["{of_auto}"]}}}}}}
embeddings: {{emb: {{url: "{server.url}", model: m, dimensions: 2{of_the_endpoint}}}}}
virtual_models: {{auto: {{policy: p, plans: {{a: {{model: large}}, b: {{model: small}}}}}}}}
"""
        assert found(text) == messages
    assert server.connections == 0


# --- learning


@pytest.mark.parametrize(
    ("learning", "messages"),
    [
        ("judge: {model: big, share: 0.1}", []),
        ("judge: {model: gone}", ["learning.judge.model: no backend serves `gone`"]),
        ("judge: {model: auto}", ["learning.judge.model: `auto` is a virtual model: a judge is a real one"]),
        ("verifier: {url: 'http://v', key: 'a b'}", [f"learning.verifier.key: {UNSENDABLE}"]),
    ],
)
def test_who_judges(learning: str, messages: list[str]) -> None:
    auto = "virtual_models: {auto: {policy: fixed, plans: {p: {model: large}}}}\n"
    assert found(f"{auto}storage: {{url: 'sqlite:///d.db'}}\nlearning: {{{learning}}}\n") == messages


def test_judging_without_a_database_is_a_warning() -> None:
    text = "learning: {signals: [schema], verifier: {url: 'http://v'}, judge: {model: large}}\n"
    nothing = "has no effect without a database (`storage.url`)"
    assert found(text) == [f"warning: learning.{key}: {nothing}" for key in ("signals", "verifier")]


# --- who scores a strategy's candidates


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        ("params: {select: reward}, roles: {reward: large}, scoring: classify", []),
        ("params: {select: verifier}, verifier: {url: 'http://v'}", []),
        ("params: {select: reward}", ["strategies.s: `roles` has to name a model that scores answers: `reward`"]),
        ("params: {select: verifier}", ["strategies.s: `verifier` has to say where answers are sent"]),
        ("params: {select: verifier}, verifier: {url: 'http://v', key: 'a b'}", [f"strategies.s.verifier.key: {UNSENDABLE}"]),
        (
            "verifier: {url: 'http://v'}, scoring: pooling, roles: {reward: large}",
            [
                "warning: strategies.s.verifier: `best_of_n`, as it is set here, has no answers scored by it",
                "warning: strategies.s.scoring: `best_of_n`, as it is set here, has no answers scored by a `reward`",
                "warning: strategies.s.roles.reward: `best_of_n`, as it is set here, asks no `reward`",
            ],
        ),
        ("params: {stop: hazard}", ["strategies.s: best_of_n: `stop: hazard` needs `select: verifier`"]),
    ],
)
def test_who_scores_candidates(spec: str, messages: list[str]) -> None:
    auto = "virtual_models: {auto: {policy: fixed, plans: {p: {model: large, strategy: s}}}}\n"
    assert found(f"{auto}strategies: {{s: {{type: best_of_n, {spec}}}}}\n") == messages


@pytest.mark.parametrize(("engine", "warned"), [("openai", True), ("vllm", False), ("llama.cpp", False)])
@pytest.mark.parametrize("by", ["text", "engine"])
def test_an_engine_that_cannot_bound_thoughts_is_named(engine: str, warned: bool, by: str) -> None:
    backends = f"version: 1\nbackends:\n  a: {{url: 'http://a', engine: {engine}, models: {{small: s}}}}\n"
    text = f"""\
strategies: {{forced: {{type: budget_forcing, params: {{by: {by}}}}}}}
virtual_models:
  auto: {{policy: fixed, plans: {{one: {{model: small, strategy: forced}}}}}}
"""
    warning = "virtual_models.auto.plans.one.strategy: engines of the kind of `a` cannot bound thoughts: its answers are plain ones"
    assert found(text, backends, "models: {small: {price: {}}}\n") == ([f"warning: {warning}"] if warned else [])
