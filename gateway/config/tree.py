"""YAML as a tree whose every key and value knows its line and column.

The tree is built from PyYAML's events, without recursion, so that a hostile file costs no more than its bounds:
MAX_BYTES of text, MAX_NODES nodes after aliases and merges, MAX_DEPTH levels. One document; keys are text, unique in
their mapping; no tags but `!!str`. Plain scalars follow YAML 1.2's core schema: only `true` and `false` are booleans,
`1e-3` is a number, dates and `12:30` are text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from gateway.config.problems import Loc, Problem, dotted, shown

MAX_BYTES = 1_000_000
MAX_NODES = 100_000
MAX_DEPTH = 64

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR_TAGS = ("!", "tag:yaml.org,2002:str")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_CONSTANTS: Mapping[str, bool | float | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the file; both numbers from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value as written. `plain`: without quotes, so that its text decides its type."""

    text: str
    plain: bool
    mark: Mark
    size: int = 1


@dataclass(frozen=True, slots=True)
class Items:
    """A list. `size`: nodes in it, itself included, with every alias written out."""

    nodes: tuple[Node, ...]
    mark: Mark
    size: int


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping: key -> (the key's place, the value)."""

    pairs: dict[str, tuple[Mark, Node]]
    mark: Mark
    size: int


Node = Scalar | Items | Entries


class MalformedError(Exception):
    """The text is no YAML that can be used; nothing more can be said of it than this problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.message)


def resolve(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar under YAML 1.2's core schema."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        try:
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        except ValueError:  # more digits than Python converts
            return text
    if _FLOAT.fullmatch(text):
        return float(text.replace(".", "", 1) if text.lstrip("+-").lower() in (".inf", ".nan") else text)
    return text


def compose(text: str) -> tuple[Node, list[Problem]]:
    """The tree of `text`, and what is wrong with single nodes of it. Raises MalformedError where no tree can be had."""
    encoded_size = _encoded_size(text)
    if encoded_size > MAX_BYTES:
        raise MalformedError(Problem(1, 1, "", f"the file is larger than {MAX_BYTES} bytes"))
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        line, column = _place(mark)
        if "${" in "".join(text.splitlines()[line - 1 : line]):
            message += " (within { } or [ ], a reference stands in quotes)"
        raise MalformedError(Problem(line, column, "", f"not YAML: {message}")) from None
    except yaml.reader.ReaderError as error:
        line, column = _line_of(text, error.position)
        raise MalformedError(Problem(line, column, "", "not YAML: a control character that YAML does not allow")) from None
    if builder.root is None:
        raise MalformedError(Problem(1, 1, "", "the file holds no configuration"))
    return builder.root, builder.problems


def locate(root: Node, loc: Loc, *, about_key: bool = False) -> Mark:
    """Where `loc` stands: at its value if that is a scalar or an item, else at its key; or at the section it lacks."""
    mark, node = root.mark, root
    for part in loc:
        if isinstance(node, Entries) and part in node.pairs:
            mark, node = node.pairs[str(part)]
        elif isinstance(node, Items) and isinstance(part, int) and 0 <= part < len(node.nodes):
            node = node.nodes[part]
            mark = node.mark
        else:
            return mark  # a missing key, or the name of the rule that failed
    return node.mark if isinstance(node, Scalar) and not about_key else mark


def find(root: Node, loc: Loc) -> Node | None:
    """The node at `loc`, if there is one."""
    node: Node | None = root
    for part in loc:
        if isinstance(node, Entries) and isinstance(part, str) and part in node.pairs:
            node = node.pairs[part][1]
        elif isinstance(node, Items) and isinstance(part, int) and 0 <= part < len(node.nodes):
            node = node.nodes[part]
        else:
            return None
    return node


def plain(node: Node) -> Any:
    """The node as what JSON can hold; references stand in it as they are written."""
    if isinstance(node, Scalar):
        return resolve(node.text) if node.plain else node.text
    if isinstance(node, Items):
        return [plain(each) for each in node.nodes]
    return {name: plain(each) for name, (_, each) in node.pairs.items()}


@dataclass(slots=True)
class _Frame:
    """A list or mapping being built."""

    is_mapping: bool
    mark: Mark
    anchor: str | None
    loc: Loc
    nodes: list[Node] = field(default_factory=list)
    pairs: dict[str, tuple[Mark, Node]] = field(default_factory=dict)
    key: Scalar | None = None
    merges: list[tuple[Mark, Node]] = field(default_factory=list)

    def child_loc(self) -> Loc:
        return (*self.loc, self.key.text if self.key else "") if self.is_mapping else (*self.loc, len(self.nodes))


class _Builder:
    """Turns events into the tree; `root` is there when the stream has ended."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._frames: list[_Frame] = []
        self._anchors: dict[str, Node] = {}
        self._count = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        mark = Mark(*_place(event.start_mark))
        if isinstance(event, yaml.ScalarEvent):
            self._tag(event.tag, mark)
            self._add(Scalar(event.value, bool(event.implicit[0]), mark), event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise MalformedError(Problem(mark.line, mark.column, "", f"alias `{shown(str(event.anchor))}` refers to nothing above it"))
            self._add(self._anchors[event.anchor], None)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._tag(event.tag, mark)
            loc = self._frames[-1].child_loc() if self._frames else ()
            self._frames.append(_Frame(isinstance(event, yaml.MappingStartEvent), mark, event.anchor, loc))
            if len(self._frames) > MAX_DEPTH:
                raise MalformedError(Problem(mark.line, mark.column, "", f"more than {MAX_DEPTH} levels deep"))
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self._close(self._frames.pop())
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise MalformedError(Problem(mark.line, mark.column, "", "a second document: a configuration is one document"))

    def _tag(self, tag: str | None, mark: Mark) -> None:
        if tag is not None and tag not in _STR_TAGS:
            path = dotted(self._frames[-1].child_loc()) if self._frames else ""
            self.problems.append(Problem(mark.line, mark.column, path, "tags are not allowed here"))

    def _close(self, frame: _Frame) -> None:
        if not frame.is_mapping:
            nodes = tuple(frame.nodes)
            self._add(Items(nodes, frame.mark, 1 + sum(node.size for node in nodes)), frame.anchor, counted=1)
            return
        for mark, node in frame.merges:
            for source in node.nodes if isinstance(node, Items) else (node,):
                if not isinstance(source, Entries):
                    raise MalformedError(Problem(mark.line, mark.column, dotted(frame.loc), "`<<` merges a mapping or a list of mappings"))
                for key, pair in source.pairs.items():
                    if key not in frame.pairs:
                        self._bound(pair[1].size + 1, mark)
                        frame.pairs[key] = pair
        size = 1 + sum(1 + node.size for _, node in frame.pairs.values())
        self._add(Entries(frame.pairs, frame.mark, size), frame.anchor, counted=1)

    def _add(self, node: Node, anchor: str | None, counted: int | None = None) -> None:
        self._bound(node.size if counted is None else counted, node.mark)
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._frames:
            self.root = node
            return
        frame = self._frames[-1]
        if not frame.is_mapping:
            frame.nodes.append(node)
        elif frame.key is None:
            if not isinstance(node, Scalar):
                message = "a key must be text, not a list or a mapping (a value that begins with `{` or `[` needs quotes)"
                raise MalformedError(Problem(node.mark.line, node.mark.column, dotted(frame.loc), message))
            frame.key = node
        else:
            self._pair(frame, frame.key, node)
            frame.key = None

    def _pair(self, frame: _Frame, key: Scalar, node: Node) -> None:
        if key.plain and key.text == "<<":
            frame.merges.append((key.mark, node))
        elif key.text in frame.pairs:
            first = frame.pairs[key.text][0].line
            message = f"the key stands twice: here and at line {first}"
            self.problems.append(Problem(key.mark.line, key.mark.column, dotted((*frame.loc, key.text)), message))
        else:
            frame.pairs[key.text] = (key.mark, node)

    def _bound(self, nodes: int, mark: Mark) -> None:
        self._count += nodes
        if self._count > MAX_NODES:
            message = f"more than {MAX_NODES} values, counting what aliases repeat"
            raise MalformedError(Problem(mark.line, mark.column, "", message))


def _place(mark: Any) -> tuple[int, int]:
    return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)


def _line_of(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def _encoded_size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise MalformedError(Problem(*_line_of(text, error.start), "", "not UTF-8 text")) from None
