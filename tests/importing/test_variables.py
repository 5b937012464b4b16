from __future__ import annotations

import pytest

from gateway.importing.document import Value
from gateway.importing.report import Place, Report
from gateway.importing.variables import Variables

PLACE = Place("c.yaml", 1)


def test_references_and_literals() -> None:
    report = Report()
    variables = Variables(report)
    assert variables.key(Value(PLACE, "os.environ/OPENAI_API_KEY"), "gpt") == "${OPENAI_API_KEY}"
    assert variables.key(Value(PLACE, "sk-one"), "my model") == "${MY_MODEL_KEY}"
    assert variables.key(Value(PLACE, "sk-two"), "my model") == "${MY_MODEL_KEY_2}"
    assert variables.key(Value(PLACE, "sk-one"), "another") == "${MY_MODEL_KEY}"
    assert variables.key(Value(PLACE, "sk-three"), "4o") == "${MODEL_4O_KEY}"
    assert variables.needed == ["OPENAI_API_KEY", "MY_MODEL_KEY", "MY_MODEL_KEY_2", "MODEL_4O_KEY"]
    assert {entry.kind for entry in report.entries} == {"todo"}
    assert "sk-" not in repr(report.entries)


def test_a_variable_that_no_reference_can_name() -> None:
    report = Report()
    variables = Variables(report)
    assert variables.key(Value(PLACE, "os.environ/my-key.v2"), "x") == "${my_key_v2}"
    assert variables.key(Value(PLACE, "os.environ/1PASSWORD"), "x") == "${_1PASSWORD}"
    assert [entry.message.partition(" now")[0] for entry in report.entries] == [
        "variable my-key.v2 is called my_key_v2",
        "variable 1PASSWORD is called _1PASSWORD",
    ]


def test_a_literal_does_not_take_the_name_of_a_variable_that_is_there() -> None:
    variables = Variables(Report())
    variables.key(Value(PLACE, "os.environ/GPT_KEY"), "x")
    assert variables.key(Value(PLACE, "sk-literal"), "gpt") == "${GPT_KEY_2}"


@pytest.mark.parametrize("written", ["none", "fake-key", "EMPTY", "sk-no-key-required", "not needed", "-", "dummy"])
def test_placeholders_are_no_keys(written: str) -> None:
    report = Report()
    variables = Variables(report)
    assert variables.key(Value(PLACE, written), "gpt") is None
    assert variables.needed == []
    assert [entry.kind for entry in report.entries] == ["unneeded"]


def test_no_key() -> None:
    assert Variables(Report()).key(None, "gpt") is None
