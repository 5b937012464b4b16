from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.canonical import public
from gateway.config.files import stamp
from gateway.config.load import Loaded, load, load_checked, parse
from gateway.config.problems import ConfigError, UnreadableConfigError
from gateway.config.schema import Config

Load = Callable[..., Loaded]
Write = Callable[..., Path]

ENGINE = "version: 1\nbackends:\n  a:\n    url: http://a:8000\n    models: {m: m}\n"


def key_of(loaded: Loaded) -> str | None:
    key = loaded.config.backends["a"].key
    return None if key is None else key.get_secret_value()


def test_a_file_is_loaded(loaded: Load, minimal: str, tmp_path: Path) -> None:
    got = loaded(minimal)
    assert got.config.backends["local"].model == "smollm2"
    assert got.config.server.port == 8080
    assert got.source == str(tmp_path / "config.yaml")
    assert got.files == {tmp_path / "config.yaml": stamp(tmp_path / "config.yaml")}
    assert len(got.hash) == 64


def test_a_byte_order_mark_is_no_problem(write: Write, minimal: str) -> None:
    assert load(write("c.yaml", b"\xef\xbb\xbf" + minimal.encode()), {}).hash == parse(minimal, {}).hash


def test_a_file_that_cannot_be_read(tmp_path: Path, write: Write) -> None:
    with pytest.raises(UnreadableConfigError, match=r"gone\.yaml: cannot be read: no such file or directory"):
        load(tmp_path / "gone.yaml", {})
    with pytest.raises(UnreadableConfigError, match="cannot be read: is a directory"):
        load(tmp_path, {})
    with pytest.raises(UnreadableConfigError, match="larger than 1000000 bytes"):
        load(write("big.yaml", "#" * 1_000_001), {})


def test_a_file_that_is_not_text(write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write("c.yaml", b"version: 1\n\xff"), {})
    assert [str(problem) for problem in caught.value.problems] == ["2:1: not UTF-8 text"]


@pytest.mark.parametrize("written", ["${PORT:-8080}", '"${PORT:-8080}"'])
def test_a_number_from_the_environment(written: str) -> None:
    text = f"{ENGINE}server:\n  port: {written}\n"
    assert parse(text, {}).config.server.port == 8080
    assert parse(text, {"PORT": "9090"}).config.server.port == 9090


def test_a_wrong_number_from_the_environment_is_placed_and_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(ENGINE + "server:\n  port: ${PORT}\n", {"PORT": "hush"})
    assert [str(problem) for problem in caught.value.problems] == ["7:9: server.port: should be a valid integer"]


@pytest.mark.parametrize("key", ["0123", "12e4", "true", "0x1f", "a: b", "{}", "#x"])
def test_a_key_from_the_environment_stays_the_text_it_is(key: str) -> None:
    assert key_of(parse(ENGINE + "    key: ${KEY}\n", {"KEY": key})) == key
    assert key_of(parse(ENGINE + '    key: "${KEY}"\n', {"KEY": key})) == key


def test_a_key_may_be_left_to_the_environment() -> None:
    assert key_of(parse(ENGINE + "    key: ${KEY:-}\n", {})) is None


def test_parameters_keep_the_type_they_are_written_with() -> None:
    params = "policies: {p: {type: weighted, params: {a: 1e-3, b: '2', c: true, d: '${N}', e: [x]}}}\n"
    block = "  q:\n    type: weighted\n    params:\n      f: ${N}\n"
    policies = parse(ENGINE + params.replace("}}}", "}}}") + "", {"N": "5"}).config.policies
    assert policies["p"].params == {"a": 0.001, "b": "2", "c": True, "d": "5", "e": ["x"]}
    assert parse(ENGINE + "policies:\n" + block, {"N": "5"}).config.policies["q"].params == {"f": 5}


def test_a_variable_that_is_not_set_is_named_with_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(ENGINE + "    key: ${GONE}\n    weight: ${GONE_TOO}\nserver: {secret: '${A}${GONE_THREE}'}\n", {"A": "hush"})
    problems = caught.value.problems
    assert [(p.line, p.path, p.message.split()[2]) for p in problems] == [
        (6, "backends.a.key", "GONE"),
        (7, "backends.a.weight", "GONE_TOO"),
        (8, "server.secret", "GONE_THREE"),
    ]
    assert "hush" not in str(caught.value)


def test_secrets_are_read_from_their_files(write: Write, tmp_path: Path) -> None:
    write("secrets/a", "from-a-file\n")
    write("secrets/own", "own-secret\n")
    learning = "learning: {verifier: {url: 'http://v', key_file: secrets/a}}\n"
    learning += "embeddings: {e: {url: 'http://e', model: m, dimensions: 2, key_file: secrets/a}}\n"
    learning += "strategies: {s: {type: best_of_n, verifier: {url: 'http://v', key_file: secrets/a}}}\n"
    path = write("config.yaml", ENGINE + "    key_file: secrets/a\nserver: {secret_file: ./secrets/own}\n" + learning)
    got = load(path, {})
    assert key_of(got) == "from-a-file"
    verifier = got.config.learning.verifier
    assert verifier is not None and verifier.key is not None and verifier.key.get_secret_value() == "from-a-file"
    checker = got.config.strategies["s"].verifier
    assert checker is not None and checker.key is not None and checker.key.get_secret_value() == "from-a-file"
    key = got.config.embeddings["e"].key
    assert key is not None and key.get_secret_value() == "from-a-file"
    assert got.config.server.secret is not None
    assert got.config.server.secret.get_secret_value() == "own-secret"
    assert set(got.files) == {path, tmp_path / "secrets/a", tmp_path / "secrets/own"}


def test_the_environment_may_name_a_secret_s_file(write: Write) -> None:
    path, secret = write("config.yaml", ENGINE + "    key: ${KEY}\n"), write("k", "from-a-file\n")
    got = load(path, {"KEY_FILE": str(secret)})
    assert key_of(got) == "from-a-file"
    assert set(got.files) == {path, secret}


def test_unreadable_secrets_are_told_with_everything_else(write: Write, tmp_path: Path) -> None:
    text = ENGINE + "    key_file: gone\nserver: {secret_file: empty}\nmodels: {mm: {}}\n"
    write("empty", "")
    with pytest.raises(ConfigError) as caught:
        load(write("config.yaml", text), {})
    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        "config.yaml:1:1: keys: there are no keys, so nobody could call: give at least one\n"
        "config.yaml:6:15: backends.a.key_file: gone cannot be read: no such file or directory\n"
        "config.yaml:7:23: server.secret_file: empty cannot be read: empty\n"
        "config.yaml:8:10: models.mm: no backend serves this model; did you mean `m`?"
    )


def test_what_cannot_work_is_refused_when_checked(write: Write, minimal: str) -> None:
    assert load_checked(write("good.yaml", minimal), {}).hash == parse(minimal, {}).hash
    path = write("bad.yaml", minimal + "virtual_models: {v: {policy: fixd, plans: {p: {model: small}}}}\n")
    load(path, {})
    with pytest.raises(ConfigError, match=r"bad\.yaml:8:30: virtual_models\.v\.policy: .*did you mean `fixed`"):
        load_checked(path, {})


def test_no_message_shows_a_secret() -> None:
    """Wherever a value stands, right or wrong, it is not repeated."""
    canary = "CANARY"
    fields: Mapping[str, list[str]] = {
        "server": ["host", "port", "workers", "secret", "secret_file", "watch", "grace_s"],
        "backends.a": ["url", "engine", "key", "weight", "forward_headers", "timeouts", "launch", "slots", "python", "args"],
        "storage": ["url"],
    }
    for section, names in fields.items():
        for name in names:
            for value in (f"'{canary}'", f"[{canary}]", f"{{{name}: {canary}}}", "${V}", "'${V}x'", "${V:-CANARY}", "http://CANARY:x@h"):
                extra = f"    {name}: {value}\n" if section == "backends.a" else f"{section}:\n  {name}: {value}\n"
                try:
                    parse(ENGINE.replace("    url: http://a:8000\n", "") + extra, {"V": f"{canary} {canary}"})
                except ConfigError as error:
                    for problem in error.problems:
                        about_a_key = "unknown key" in problem.message or canary in problem.path
                        assert about_a_key or canary not in str(problem), (section, name, value)
                    assert error.__context__ is None or error.__suppress_context__


def test_loaded_is_a_value(loaded: Load, minimal: str) -> None:
    got = loaded(minimal)
    with pytest.raises(AttributeError):
        got.hash = ""  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        got.config.server.port = 1  # type: ignore[misc]


# --- arbitrary input


def loads_or_refuses(text: str, env: Mapping[str, str]) -> None:
    try:
        parse(text, env)
    except ConfigError as error:
        assert error.problems
        assert all(problem.line >= 1 and problem.column >= 1 and problem.message for problem in error.problems)


@settings(deadline=None)
@given(st.text())
def test_any_text_loads_or_is_refused(text: str) -> None:
    loads_or_refuses(text, {})


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_file_loads_or_is_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(data)
    try:
        load(path, {})
    except ConfigError as error:
        assert error.problems


EXAMPLES = tuple(path.read_text() for path in sorted((Path(__file__).parents[2] / "deploy/examples").glob("*.yaml")))
SNIPPETS = (
    "${", "${A}", "${A:-}", "$${", "}", "{", "[", "]", ": ", "- ", "&a ", "*a", "<<: ", "!!int ", "!x ", "'", '"', "|", ">", "? ", "\t",
    "\0", "---\n", "...\n", "%YAML 1.1\n", "null", "1e999", "-.inf", ".nan", "99999999999999999999", "\ud800",
    "\u2028", "\x85", '"\\0"', '"\\ud800"',
)  # fmt: skip


@settings(deadline=None)
@given(st.data())
def test_a_broken_example_loads_or_is_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(EXAMPLES))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.sampled_from([0, 0, 1, 5, 40]))
        text = text[:start] + data.draw(st.sampled_from(SNIPPETS) | st.text(max_size=5)) + text[end:]
    loads_or_refuses(text, {"A": data.draw(st.text(max_size=8)), "TRILEMMA_KEY_SHA256": "0" * 64})


SHAPES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(SNIPPETS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.data())
def test_any_value_in_any_place_loads_or_is_refused(data: st.DataObject) -> None:
    config = yaml.safe_load(data.draw(st.sampled_from(EXAMPLES)))
    node: Any = config
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = data.draw(SHAPES)
    loads_or_refuses(json.dumps(config), {"A": "x"})


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,20}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
BACKENDS = st.fixed_dictionaries(
    {"url": st.just("http://engine:8000"), "models": st.dictionaries(NAMES, TEXTS, min_size=1, max_size=3)},
    optional={
        "engine": st.sampled_from(["vllm", "llama.cpp", "openai"]),
        "key": TEXTS,
        "weight": st.floats(0.001, 1_000),
        "timeouts": st.fixed_dictionaries({}, optional={"connect_s": st.floats(0.1, 100), "idle_s": st.integers(1, 100)}),
    },
)
CONFIGS = st.fixed_dictionaries(
    {"version": st.just(1), "backends": st.dictionaries(NAMES, BACKENDS, min_size=1, max_size=3)},
    optional={
        "server": st.fixed_dictionaries({}, optional={"port": st.integers(0, 65_535), "host": TEXTS, "watch": st.booleans()}),
        "models": st.dictionaries(NAMES, st.fixed_dictionaries({"aliases": st.lists(NAMES, max_size=2)}), max_size=2),
        "keys": st.lists(st.fixed_dictionaries({"name": TEXTS, "sha256": st.from_regex(r"[0-9a-f]{64}", fullmatch=True)}), max_size=2),
    },
)


class Quoting(yaml.SafeDumper):
    """Writes every text in quotes: PyYAML's own idea of what needs them is YAML 1.1's."""


Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@settings(deadline=None)
@given(CONFIGS, st.booleans())
def test_a_configuration_survives_being_written_and_loaded(values: dict[str, Any], flow: bool) -> None:
    expected = Config.model_validate(values)
    escaped = json.loads(json.dumps(values).replace("${", "$${"))
    text = yaml.dump(escaped, Dumper=Quoting, default_flow_style=flow, sort_keys=False, allow_unicode=True)
    got = parse(text, {}).config
    assert got == expected
    assert public(got) == public(expected)
