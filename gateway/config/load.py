"""Loading a configuration: text -> tree -> expanded values -> Config, with every problem reported at its line.

    load(path)           a file, its secrets and the environment
    load_checked(path)   the same, refusing what cannot work
    parse(text)          as load, from text

All raise ConfigError (gateway/config/problems.py) with all problems at once, never anything else, and show no secret.
A Loaded configuration is complete: secrets that live in files are read, so that `backend.key` and `server.secret` hold
them, and relative paths are absolute (gateway/config/places.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr, ValidationError

from gateway.config import tree
from gateway.config.canonical import digest
from gateway.config.check import check
from gateway.config.files import Stamp, read, read_secret, reason, stamp, unreadable
from gateway.config.messages import finding
from gateway.config.places import anchored
from gateway.config.problems import ConfigError, Finding, Loc, Problem, UnreadableConfigError, dotted
from gateway.config.references import References
from gateway.config.schema import Config
from gateway.config.values import Values


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration ready for use.

    hash: SHA-256 of its secret-free form, 64 hex digits. files: every file it was read from, with the stamp from before
    the reading (None: not there). document: the file as a tree, in which findings are located. text: the file as it is
    written, so perhaps with secrets.
    """

    config: Config
    hash: str
    source: str
    files: Mapping[Path, Stamp | None] = field(repr=False, compare=False)
    document: tree.Node = field(repr=False, compare=False)
    text: str = field(default="", repr=False, compare=False)

    def located(self, findings: Iterable[Finding]) -> tuple[Problem, ...]:
        """Findings about this configuration, with their lines; sorted by line."""
        return tuple(sorted(_problem(self.document, each) for each in findings))


def load(path: Path, env: Mapping[str, str] = os.environ) -> Loaded:
    """Load the file at `path`. Raises ConfigError; UnreadableConfigError if the file itself cannot be read."""
    source, path = str(path), path.absolute()
    before = stamp(path)
    try:
        data = read(path, tree.MAX_BYTES)
    except OSError as error:
        raise UnreadableConfigError([Problem(0, 0, "", f"cannot be read: {reason(error)}")], source) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(line, 1, "", "not UTF-8 text")], source) from None
    return _parse(text, env, source, path.parent, {path: before})


def load_checked(path: Path, env: Mapping[str, str] = os.environ) -> Loaded:
    """As `load`, and what parses but cannot work (gateway/config/check.py) is a ConfigError too."""
    loaded = load(path, env)
    errors = [each for each in check(loaded.config) if each.severity == "error"]
    if errors:
        raise ConfigError(loaded.located(errors), loaded.source)
    return loaded


def parse(text: str, env: Mapping[str, str], source: str = "config", folder: Path | None = None) -> Loaded:
    """Load `text`; relative paths start at `folder` (default: the working directory). Raises ConfigError."""
    return _parse(text, env, source, folder or Path.cwd(), {})


def _parse(text: str, env: Mapping[str, str], source: str, folder: Path, files: dict[Path, Stamp | None]) -> Loaded:
    try:
        root, problems = tree.compose(text)
    except tree.MalformedError as error:
        raise ConfigError([error.problem], source) from None
    references = References(env)
    values = Values(root, references)
    config, findings = _validated(root, values)
    problems += [_problem(root, each) for each in (*values.findings, *findings)]
    if problems or config is None:
        raise ConfigError(problems, source)
    anchored_config = anchored(config, folder)
    filled, secret_files, unread = _with_secrets(anchored_config)
    if unread:  # with what else is wrong, so that one reading shows everything
        errors = (each for each in check(anchored_config) if each.severity == "error")
        raise ConfigError({_problem(root, each) for each in (*unread, *errors)}, source)
    return Loaded(filled, digest(config), source, files | references.files | secret_files, root, text)


def _validated(root: tree.Node, values: Values) -> tuple[Config | None, list[Finding]]:
    """The Config, or what is wrong. Strict: a quoted number is text, and a boolean is no number."""
    while True:
        try:
            return Config.model_validate_json(json.dumps(values.data), strict=True), []
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
        if not sum(values.reread(each["loc"]) for each in errors):
            break
    found = (finding(each, root) for each in errors)
    unanswered = [each.loc for each in values.findings]
    return None, [each for each in found if not any(_related(each.loc, loc) for loc in unanswered)]


def _related(one: Loc, other: Loc) -> bool:
    return one[: len(other)] == other or other[: len(one)] == one


def _with_secrets(config: Config) -> tuple[Config, dict[Path, Stamp | None], list[Finding]]:
    """The configuration with its secret files read, those files, and which of them could not be read."""
    files: dict[Path, Stamp | None] = {}
    unread: list[Finding] = []

    def secret(loc: Loc, path: Path | None, given: SecretStr | None) -> SecretStr | None:
        if path is None:
            return given
        files[path] = stamp(path)
        try:
            return SecretStr(read_secret(path))
        except OSError as error:
            unread.append(Finding(loc, unreadable(path, error)))
            return None

    server = config.server
    server = server.model_copy(update={"secret": secret(("server", "secret_file"), server.secret_file, server.secret)})
    backends = {
        name: each.model_copy(update={"key": secret(("backends", name, "key_file"), each.key_file, each.key)})
        for name, each in config.backends.items()
    }
    embeddings = {
        name: each.model_copy(update={"key": secret(("embeddings", name, "key_file"), each.key_file, each.key)})
        for name, each in config.embeddings.items()
    }
    learning = config.learning
    if (verifier := learning.verifier) is not None:
        key = secret(("learning", "verifier", "key_file"), verifier.key_file, verifier.key)
        learning = learning.model_copy(update={"verifier": verifier.model_copy(update={"key": key})})
    strategies = dict(config.strategies)
    for name, spec in config.strategies.items():
        if (checker := spec.verifier) is not None:
            key = secret(("strategies", name, "verifier", "key_file"), checker.key_file, checker.key)
            strategies[name] = spec.model_copy(update={"verifier": checker.model_copy(update={"key": key})})
    parts = {"server": server, "backends": backends, "embeddings": embeddings, "learning": learning, "strategies": strategies}
    return config.model_copy(update=parts), files, unread


def _problem(root: tree.Node, each: Finding) -> Problem:
    mark = tree.locate(root, each.loc, about_key=each.about_key)
    return Problem(mark.line, mark.column, dotted(each.loc), each.message, each.severity)
