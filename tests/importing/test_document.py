"""The configuration as it stands in its files: values, places, includes, and what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.importing.document import UnreadableError, Value, flag, load, names, number, text, variable
from gateway.importing.report import Place

Write = Callable[[str, str], Path]


def value(write: Write, written: str) -> Value | None:
    return load(write("v.yaml", f"v: {written}\n")).get("v")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("30", 30),
        ('"30"', 30),
        ("1_000", 1000),
        ("2.5e-07", 2.5e-7),
        ("-1", -1),
        ("many", None),
        (".inf", None),
        ("nan", None),
        ("", None),
        ("1e999", None),
    ],
)
def test_numbers_in_quotes_or_not(write: Write, written: str, meant: float | None) -> None:
    assert number(value(write, written)) == meant


@pytest.mark.parametrize(
    ("written", "meant"), [("true", True), ("yes", True), ("On", True), ('"false"', False), ("no", False), ("1", None), ("maybe", None)]
)
def test_flags_as_yaml_1_1_has_them(write: Write, written: str, meant: bool | None) -> None:
    assert flag(value(write, written)) is meant


def test_texts_and_lists(write: Write) -> None:
    assert text(value(write, "null")) is None
    assert text(value(write, '"null"')) == "null"
    assert text(value(write, "[a]")) is None
    assert names(value(write, "[a, null, {b: c}, d]")) == ["a", "d"]
    assert names(value(write, "alone")) == ["alone"]
    assert variable(value(write, "os.environ/MY_KEY")) == "MY_KEY"
    assert variable(value(write, "os.environ/")) is None


def test_places(write: Write) -> None:
    path = write("c.yaml", "model_list:\n  - model_name: a\n    litellm_params:\n      model: b\n")
    (entry,) = load(path).data["model_list"].items()  # type: ignore[index,call-overload]
    assert entry.place == Place(str(path), 2, 5, "model_list[0]")
    assert entry.get("litellm_params").get("model").place == Place(str(path), 4, 7, "model_list[0].litellm_params.model")
    assert "sk-" not in repr(Value(entry.place, "sk-secret"))


def test_includes_join_lists_and_replace_the_rest(write: Write, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    write("models/a.yaml", "include: [b.yaml]\nmodel_list: [{model_name: second}]\nlitellm_settings: {cache: true}\n")
    write("models/b.yaml", "include: [../config.yaml]\nmodel_list: [{model_name: third}]\n")
    main = write("config.yaml", "include: models/a.yaml\nmodel_list: [{model_name: first}]\nlitellm_settings: {drop_params: true}\n")
    root = load(main)
    assert [text(entry.get("model_name")) for entry in root.get("model_list").items()] == ["first", "second", "third"]  # type: ignore[union-attr]
    assert [key for key, _ in root.get("litellm_settings").entries()] == ["cache"]  # type: ignore[union-attr]
    assert root.get("include") is None
    assert [Path(entry.place.file).name for entry in root.get("model_list").items()] == ["config.yaml", "a.yaml", "b.yaml"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("a: [1, 2\n", "{path}:2:1: not YAML: "),
        ("a: 1\na: 2\n", "{path}:2:1: a: the key stands twice: here and at line 1"),
        ("a: !secret x\n", "{path}:1:4: a: tags are not allowed here"),
        ("- a\n", "{path}:1:1: should be a mapping"),
        ("", "{path}:1:1: the file holds no configuration"),
        ("a: 1\n---\nb: 2\n", "{path}:2:1: a second document"),
        ("include: {a: b}\n", "{path}:1: include: should be a list of files"),
        ("include: [gone.yaml]\n", "{path}:1: include: {folder}/gone.yaml: cannot be read: no such file or directory"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(write: Write, written: str, message: str) -> None:
    path = write("c.yaml", written)
    with pytest.raises(UnreadableError) as caught:
        load(path)
    assert caught.value.problems[0].startswith(message.format(path=path, folder=path.parent))


@pytest.mark.parametrize(
    "written", ["key: *sk-canary\n", "key: !sk-canary!x y\n", "%TAG !sk-canary\n---\na: b\n", "a: {sk-canary\n", "a: 'sk-canary\n"]
)
def test_messages_show_nothing_of_what_stands_there(write: Write, written: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        load(write("c.yaml", written))
    assert "canary" not in str(caught.value)


def test_not_text_not_there_and_too_large(tmp_path: Path) -> None:
    for name, content, message in [("latin.yaml", b"a: \xff\n", "not UTF-8"), ("large.yaml", b"#" * 1_000_001, "larger than")]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UnreadableError, match=message):
            load(tmp_path / name)
    with pytest.raises(UnreadableError, match="no such file"):
        load(tmp_path / "gone.yaml")
    with pytest.raises(UnreadableError, match="not a usable file name"):
        load(tmp_path / "nul\0.yaml")


def test_a_long_way_to_an_included_file(write: Write, tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    (folder / "m.yaml").write_text("model_list: [{model_name: a}]\n")
    assert len(load(write("c.yaml", f"include: [{folder.name}/m.yaml]\n")).get("model_list").items()) == 1  # type: ignore[union-attr]


def test_names_of_files_do_not_reach_a_terminal_as_commands(write: Write) -> None:
    with pytest.raises(UnreadableError) as caught:
        load(write("c.yaml", 'include: ["\\e[31m"]\n'))
    assert "\x1b" not in str(caught.value)
