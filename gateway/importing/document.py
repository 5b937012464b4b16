"""A LiteLLM configuration as a tree of values that know their place, with its `include` files merged in.

    load(path) -> Value          raises UnreadableError, with every problem at its line

YAML is read as strictly as Trilemma's own (gateway/config/tree.py): one document, unique keys, no tags. Values are
read as LiteLLM reads them: `yes`, `on` and `1_000` of YAML 1.1 count, and a number may stand in quotes.
Merging follows LiteLLM's `include`: lists are joined, anything else of the included file replaces what was there.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.config import tree
from gateway.config.files import read, reason
from gateway.config.problems import Loc, Problem, dotted
from gateway.importing.report import Place

_MAX_FILES = 100
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_ENVIRONMENT = "os.environ/"


class UnreadableError(Exception):
    """The source cannot be read: `problems` says where and why, a line each, and shows no value."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclass(frozen=True, slots=True)
class Value:
    """A scalar's text, a list or a mapping. `plain`: a scalar without quotes. Its representation shows no content."""

    place: Place
    data: str | tuple[Value, ...] | Mapping[str, Value] = field(repr=False)
    plain: bool = True

    @property
    def is_null(self) -> bool:
        """Whether this stands for nothing."""
        return isinstance(self.data, str) and self.plain and self.data in ("", "~", "null", "Null", "NULL")

    @property
    def is_idle(self) -> bool:
        """Whether this is as good as not there: nothing, an empty list or mapping, or `false`."""
        return self.is_null or not self.data or flag(self) is False

    def get(self, key: str) -> Value | None:
        """The value under a key of a mapping; None when it is not there, is null, or this is no mapping."""
        found = self.data.get(key) if isinstance(self.data, Mapping) else None
        return None if found is None or found.is_null else found

    def entries(self) -> Iterator[tuple[str, Value]]:
        """The pairs of a mapping; none of anything else."""
        if isinstance(self.data, Mapping):
            yield from self.data.items()

    def items(self) -> tuple[Value, ...]:
        """The items of a list; none of anything else."""
        return self.data if isinstance(self.data, tuple) else ()


def text(value: Value | None) -> str | None:
    """The text of a scalar that is not null and not empty."""
    return value.data if value is not None and isinstance(value.data, str) and not value.is_null and value.data else None


def number(value: Value | None) -> float | None:
    """The finite number that a scalar holds, in quotes or not."""
    written = text(value)
    if written is None or len(written) > 64:
        return None
    try:
        found = float(written.replace("_", "")) if re.match(r"[-+]?[.\d]", written) else math.nan
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def flag(value: Value | None) -> bool | None:
    """The truth value of a scalar, in quotes or not."""
    written = (text(value) or "").lower()
    return True if written in _TRUE else False if written in _FALSE else None


def names(value: Value | None) -> list[str]:
    """The texts of a list; one text alone counts as a list."""
    if value is not None and isinstance(value.data, str):
        value = Value(value.place, (value,))
    return [] if value is None else [found for item in value.items() if (found := text(item)) is not None]


def variable(value: Value | None) -> str | None:
    """NAME, when the value is `os.environ/NAME`."""
    written = text(value) or ""
    return written.removeprefix(_ENVIRONMENT) if written.startswith(_ENVIRONMENT) and written != _ENVIRONMENT else None


def load(path: Path) -> Value:
    """The configuration at `path` with everything it includes. Raises UnreadableError."""
    root = _file(path, str(path))
    merged = dict(root.entries())
    waiting = _includes(root, path)
    seen = {os.path.realpath(path)}
    while waiting:
        named, place = waiting.pop(0)
        if os.path.realpath(named) in seen:
            continue
        seen.add(os.path.realpath(named))
        if len(seen) > _MAX_FILES:
            raise UnreadableError([f"{place}: more than {_MAX_FILES} files are included"])
        included = _file(named, str(named) if str(named).isprintable() else ascii(str(named)), place)
        for key, value in included.entries():
            merged[key] = _joined(merged.get(key), value)
        waiting += _includes(included, named)
    merged.pop("include", None)
    return Value(root.place, merged)


def _file(path: Path, name: str, included_at: Place | None = None) -> Value:
    asked = f"{included_at}: include: " if included_at is not None else ""
    try:
        content = read(path, tree.MAX_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise UnreadableError([f"{asked}{name}: cannot be read: {reason(error)}"]) from None
    except UnicodeDecodeError:
        raise UnreadableError([f"{asked}{name}: not UTF-8 text"]) from None
    try:
        root, problems = tree.compose(content)
    except tree.MalformedError as error:
        raise UnreadableError([_told(name, error.problem)]) from None
    if problems:
        raise UnreadableError([_told(name, problem) for problem in sorted(problems)])
    if not isinstance(root, tree.Entries):
        raise UnreadableError([f"{name}:{root.mark.line}:{root.mark.column}: should be a mapping with `model_list` and the like"])
    return _value(root, root.mark, name, ())


def _told(name: str, problem: Problem) -> str:
    """A problem without what YAML calls alias or tag: an unquoted secret that begins with `*` or `!` would read as one."""
    message = problem.message
    if message.startswith("alias "):
        message = "an alias that refers to nothing above it (a value that begins with * needs quotes)"
    elif "tag handle" in message:
        message = "not YAML: a tag (a value that begins with ! needs quotes)"
    return Problem(problem.line, problem.column, problem.path, message).text(name)


def _value(node: tree.Node, mark: tree.Mark, name: str, loc: Loc) -> Value:
    """`mark`: where a mapping's value is told to stand, which is at its key."""
    place = Place(name, mark.line, mark.column, dotted(loc))
    if isinstance(node, tree.Scalar):
        return Value(place, node.text, node.plain)
    if isinstance(node, tree.Items):
        return Value(place, tuple(_value(each, each.mark, name, (*loc, index)) for index, each in enumerate(node.nodes)))
    return Value(place, {key: _value(each, at, name, (*loc, key)) for key, (at, each) in node.pairs.items()})


def _includes(root: Value, path: Path) -> list[tuple[Path, Place]]:
    """The files that `include` names, from the folder of the file that names them."""
    found = root.get("include")
    if found is None:
        return []
    listed = found.items() if isinstance(found.data, tuple) else (found,)
    if isinstance(found.data, Mapping) or any(text(each) is None for each in listed):
        raise UnreadableError([f"{found.place}: include: should be a list of files"])
    return [(Path(os.path.normpath(path.parent / name)), each.place) for each in listed if (name := text(each)) is not None]


def _joined(base: Value | None, included: Value) -> Value:
    if base is not None and isinstance(base.data, tuple) and isinstance(included.data, tuple):
        return Value(base.place, (*base.data, *included.data))
    return included
