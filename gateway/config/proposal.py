"""A text that is to become the configuration, looked at before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from gateway.config import tree
from gateway.config.check import check
from gateway.config.load import Loaded, parse
from gateway.config.problems import ConfigError, Finding, Problem, dotted
from gateway.config.source import filled, fresh_secrets, masked


@dataclass(frozen=True, slots=True)
class Proposal:
    """loaded: what it would be. warnings: what most likely is a mistake. diff: against what runs, secrets masked; empty: the same text."""

    loaded: Loaded
    warnings: tuple[Problem, ...]
    diff: str


def proposed(text: str, before: Loaded, env: Mapping[str, str] = os.environ) -> Proposal:
    """The text, for the place where `before` was read. Raises ConfigError with all problems, new secrets in plain text among them.

    What stands masked in it is meant to be as it is in `before`.
    """
    try:
        root, _ = tree.compose(text)
        text = filled(text, root, before)
        root, _ = tree.compose(text)
    except tree.MalformedError as error:
        raise ConfigError([error.problem], before.source) from None
    problems = {_problem(root, each) for each in fresh_secrets(root, before)}
    try:
        loaded = parse(text, env, before.source, Path(before.source).absolute().parent)
    except ConfigError as error:
        raise ConfigError(problems | set(error.problems), before.source) from None
    found = loaded.located(check(loaded.config))
    problems |= {each for each in found if each.severity == "error"}
    if problems:
        raise ConfigError(problems, before.source)
    return Proposal(loaded, tuple(each for each in found if each.severity == "warning"), difference(masked(before), masked(loaded)))


def difference(one: str, other: str, names: tuple[str, str] = ("running", "proposed")) -> str:
    """A unified diff; empty when they are the same."""
    lines = unified_diff(one.splitlines(), other.splitlines(), *names, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _problem(root: tree.Node, finding: Finding) -> Problem:
    mark = tree.locate(root, finding.loc)
    return Problem(mark.line, mark.column, dotted(finding.loc), finding.message)
