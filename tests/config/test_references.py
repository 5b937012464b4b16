from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.files import stamp
from gateway.config.references import References, UnansweredError, is_whole


def expand(text: str, **env: str) -> str:
    return References(env).expand(text)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${A}", "one"),
        ("x${A}y${B}z", "xoneytwoz"),
        ("${NONE:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${A:-default}", "one"),
        ("${NONE:-}", ""),
        ("${NONE:-http://h:1/p?q=$x}", "http://h:1/p?q=$x"),
        ("$${A}", "${A}"),
        ("$A $ {A} $", "$A $ {A} $"),
    ],
)
def test_references(text: str, expanded: str) -> None:
    assert expand(text, A="one", B="two", EMPTY="") == expanded


def test_an_answer_is_not_read_again() -> None:
    assert expand("${A}", A="${B}", B="two") == "${B}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${GONE}", "environment variable GONE is not set, nor is GONE_FILE; a default is written ${GONE:-default}"),
        ("${EMPTY}", "environment variable EMPTY is empty, nor is EMPTY_FILE; a default is written ${EMPTY:-default}"),
        ("${}", "`${` begins no reference"),
        ("${a-b}", "`${` begins no reference"),
        ("${1A}", "`${` begins no reference"),
        ("${A", "`${` begins no reference"),
    ],
)
def test_what_cannot_be_answered(text: str, message: str) -> None:
    with pytest.raises(UnansweredError) as caught:
        expand(text, A="one", EMPTY="")
    assert str(caught.value).startswith(message)


def test_a_file_answers_for_an_unset_variable(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from a file\n")
    references = References({"TOKEN_FILE": str(file), "EMPTY": "", "EMPTY_FILE": str(file), "SET": "set", "SET_FILE": "/none"})
    assert references.expand("${TOKEN} ${TOKEN:-default} ${EMPTY} ${SET}") == "from a file from a file from a file set"
    assert references.files == {file: stamp(file)}


def test_an_unreadable_file_is_an_error_even_with_a_default(tmp_path: Path) -> None:
    with pytest.raises(UnansweredError) as caught:
        expand("${TOKEN:-default}", TOKEN_FILE=str(tmp_path / "gone"))
    assert str(caught.value) == "environment variable TOKEN_FILE names a file that cannot be read: no such file or directory"


def test_an_answer_is_text() -> None:
    with pytest.raises(UnansweredError, match="A is not UTF-8 text"):
        expand("${A}", A="caf\udce9")


def test_whole_references() -> None:
    assert is_whole("${A}")
    assert is_whole("${A:-8080}")
    assert not is_whole("${A}${B}")
    assert not is_whole("$${A}")
