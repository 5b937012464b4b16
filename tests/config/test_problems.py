from __future__ import annotations

from gateway.config.problems import ConfigError, Problem, did_you_mean, dotted, shown


def test_a_problem_reads_as_file_line_column() -> None:
    problem = Problem(12, 3, "backends.gpu-a.ulr", "unknown key; did you mean `url`?")
    assert problem.text("config.yaml") == "config.yaml:12:3: backends.gpu-a.ulr: unknown key; did you mean `url`?"
    assert str(problem) == "12:3: backends.gpu-a.ulr: unknown key; did you mean `url`?"


def test_a_problem_of_the_whole_file_has_no_line() -> None:
    assert Problem(0, 0, "", "cannot be read").text("c.yaml") == "c.yaml: cannot be read"


def test_a_warning_says_so() -> None:
    assert Problem(4, 1, "keys", "odd", "warning").text("c.yaml") == "c.yaml:4:1: warning: keys: odd"


def test_an_error_holds_its_problems_by_line() -> None:
    error = ConfigError([Problem(9, 1, "b", "two"), Problem(2, 5, "a", "one")], "c.yaml")
    assert [problem.line for problem in error.problems] == [2, 9]
    assert str(error) == "c.yaml:2:5: a: one\nc.yaml:9:1: b: two"


def test_paths_are_written_as_a_reader_would() -> None:
    assert dotted(("keys", 0, "name")) == "keys[0].name"
    assert dotted(()) == ""


def test_names_from_a_file_cannot_break_lines_or_flood() -> None:
    assert shown("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert len(shown("x" * 10_000)) < 100


def test_suggestions_only_when_near() -> None:
    assert did_you_mean("prot", ["host", "port"]) == "; did you mean `port`?"
    assert did_you_mean("zzz", ["host", "port"]) == ""
