from __future__ import annotations

import math
import textwrap

import pytest

from gateway.config.tree import MAX_BYTES, Entries, Items, MalformedError, Mark, Scalar, compose, find, locate, resolve


def tree(text: str) -> Entries:
    root, problems = compose(textwrap.dedent(text))
    assert problems == []
    assert isinstance(root, Entries)
    return root


def failure(text: str) -> str:
    with pytest.raises(MalformedError) as caught:
        compose(text)
    return str(caught.value.problem)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("true", True), ("False", False), ("12", 12), ("-3", -3), ("0x1f", 31),
        ("0o17", 15), ("010", 10), ("1e-3", 0.001), ("1.5", 1.5), (".5", 0.5), ("-.inf", -math.inf),
        # what YAML 1.1 would turn into booleans, base-60 numbers and dates
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("12:30", "12:30"), ("2026-01-01", "2026-01-01"), ("1_000", "1_000"),
    ],
)  # fmt: skip
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    got = resolve(text)
    assert got == value
    assert type(got) is type(value)


def test_a_number_of_more_digits_than_python_converts_stays_text() -> None:
    assert resolve("9" * 5_000) == "9" * 5_000


def test_nan_is_a_number() -> None:
    nan = resolve(".nan")
    assert isinstance(nan, float)
    assert math.isnan(nan)


def test_every_place_is_known() -> None:
    root = tree("""\
        a: 1
        b:
          - x
          - {c: "two"}
        """)
    assert locate(root, ("a",)) == Mark(1, 4)
    assert locate(root, ("a",), about_key=True) == Mark(1, 1)
    assert locate(root, ("b",)) == Mark(2, 1), "a section is where its key is"
    assert locate(root, ("b", 0)) == Mark(3, 5)
    assert locate(root, ("b", 1, "c")) == Mark(4, 9)
    assert locate(root, ("b", 1, "missing")) == Mark(4, 5), "what is missing is where its section is"
    assert locate(root, ("b", 7)) == Mark(2, 1)


def test_find_follows_keys_and_indices() -> None:
    root = tree("a: [{b: c}]")
    found = find(root, ("a", 0, "b"))
    assert isinstance(found, Scalar)
    assert found.text == "c"
    assert find(root, ("a", 1)) is None
    assert find(root, ("a", "b")) is None


def test_keys_are_text_as_written() -> None:
    assert list(tree("{1: a, true: b, null: c, 2026-01-01: d}").pairs) == ["1", "true", "null", "2026-01-01"]


def test_a_repeated_key_is_named_with_both_lines() -> None:
    root, problems = compose("a:\n  x: 1\n  y: 2\n  x: 3\n")
    assert [str(problem) for problem in problems] == ["4:3: a.x: the key stands twice: here and at line 2"]
    value = find(root, ("a", "x"))
    assert isinstance(value, Scalar)
    assert value.text == "1"


def test_aliases_and_merges() -> None:
    root = tree("""\
        base: &base {x: 1, y: 2}
        same: *base
        more: {<<: *base, y: 3}
        both: {<<: [*base, {z: 4}], x: 0}
        """)
    assert root.pairs["same"][1] is root.pairs["base"][1]

    def values(name: str) -> dict[str, str]:
        node = root.pairs[name][1]
        assert isinstance(node, Entries)
        return {key: child.text for key, (_, child) in node.pairs.items() if isinstance(child, Scalar)}

    assert values("more") == {"y": "3", "x": "1"}
    assert values("both") == {"x": "0", "y": "2", "z": "4"}


def test_a_quoted_merge_sign_is_a_key() -> None:
    assert list(tree("{'<<': 1}").pairs) == ["<<"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: the file holds no configuration"),
        ("# only a comment\n", "1:1: the file holds no configuration"),
        ("a: 1\n---\nb: 2\n", "2:1: a second document: a configuration is one document"),
        ("a: *nowhere", "1:4: alias `nowhere` refers to nothing above it"),
        ("a: &a [*a]", "1:8: alias `a` refers to nothing above it"),
        ("a:\n  {[b]: c}", "2:4: a: a key must be text, not a list or a mapping (a value that begins with `{` or `[` needs quotes)"),
        ("a:\n  <<: 3\n", "2:3: a: `<<` merges a mapping or a list of mappings"),
        ("[" * 100 + "]" * 100, "1:65: more than 64 levels deep"),
    ],
)  # fmt: skip
def test_what_is_no_configuration_at_all(text: str, message: str) -> None:
    assert failure(text) == message


@pytest.mark.parametrize(
    ("text", "place"), [("a: 1\nb: [1, 2\nc: 3\n", "3:2"), ("a:\n\t- b\n", "2:1"), ("a: b: c\n", "1:5"), ("a: \x01", "1:4")]
)
def test_broken_yaml_is_placed(text: str, place: str) -> None:
    assert failure(text).startswith(f"{place}: not YAML: ")


def test_a_reference_within_braces_is_told_to_take_quotes() -> None:
    assert failure("a: {port: ${PORT:-8080}}").endswith("a reference stands in quotes)")


def test_other_tags_are_refused_and_str_is_not() -> None:
    root, problems = compose("a: !!python/object/apply:os.system [ls]\nb: !!str 12\n")
    assert [str(problem) for problem in problems] == ["1:4: a: tags are not allowed here"]
    assert find(root, ("b",)) == Scalar("12", False, Mark(2, 4))


def test_an_alias_bomb_costs_nothing() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert "more than 100000 values, counting what aliases repeat" in failure("\n".join(lines))


def test_a_merge_bomb_costs_nothing() -> None:
    base = "{" + ", ".join(f"k{n}: 1" for n in range(1_000)) + "}"
    text = f"base: &b {base}\nlist:\n" + "- {<<: *b}\n" * 20_000
    assert "more than 100000 values, counting what aliases repeat" in failure(text)


def test_a_file_is_bounded_in_bytes() -> None:
    assert failure("a: " + "é" * (MAX_BYTES // 2)) == f"1:1: the file is larger than {MAX_BYTES} bytes"


def test_a_lone_surrogate_is_no_text() -> None:
    assert failure("ab\ncd\ud800") == "2:3: not UTF-8 text"


def test_a_list_may_be_the_root() -> None:
    root, _ = compose("- a\n- b\n")
    assert isinstance(root, Items)
    assert root.size == 3
