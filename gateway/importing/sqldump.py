"""Rows of a PostgreSQL text dump, as pg_dump writes it: COPY blocks, or INSERT statements with or without columns.

    rows(lines, tables) -> (table, line number, column -> text or None), one after the other

Only the tables that are asked for are taken apart. Of the others it is followed where their statements end, so that
what stands in a text, which callers may have written, is never taken for a statement.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

Row = tuple[str, int, Mapping[str, str | None]]

_TABLE = r'(?:(?P<schema>\w+|"[^"]+")\.)?"?(?P<table>\w+)"?'
_COPY = re.compile(rf"COPY {_TABLE}\s*\((?P<columns>[^)]*)\)\s+FROM stdin;\s*$", re.IGNORECASE)
_INSERT = re.compile(rf"INSERT INTO {_TABLE}\s*(?:\((?P<columns>[^)]*)\)\s*)?(?:OVERRIDING \w+ VALUE\s+)?VALUES\s*", re.IGNORECASE)
_CREATE = re.compile(rf"CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?{_TABLE}\s*\(\s*$", re.IGNORECASE)
_COLUMN = re.compile(r'\s+"?(\w+)"?\s')
_NO_COLUMNS = ("constraint", "primary", "unique", "foreign", "check", "exclude", "like")
_ESCAPES: Mapping[str, str] = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
# One value of an INSERT and what ends it: NULL, a quoted text (E'' with escapes), or anything without quotes; a cast may follow.
_VALUE = re.compile(
    r"\s*(?:(?P<null>NULL)|(?P<escaped>E?)'(?P<text>(?:[^']|'')*)'|(?P<bare>[^\s,()']+))(?:::[\w\". \[\]()]+?)?\s*(?P<end>[,)])",
    re.IGNORECASE | re.DOTALL,
)
_NEXT = re.compile(r"\s*(?:(,)\s*\(|;)")
_START = re.compile(r"\s*\(")
_LONGEST = 10_000_000


class MalformedDumpError(Exception):
    """A statement that cannot be taken apart; the text names line and table, and shows no content."""


def rows(lines: Iterable[str], tables: Collection[str]) -> Iterator[Row]:
    """The rows of `tables`, in the order of the dump. Raises MalformedDumpError."""
    numbered = enumerate(lines, 1)
    columns: dict[str, list[str]] = {}
    schemas: dict[str, str | None] = {}
    for number, line in numbered:
        statement = _COPY.match(line) or _INSERT.match(line) or _CREATE.match(line)
        if statement is None:
            continue
        table, wanted = statement["table"], statement["table"] in tables
        if wanted and schemas.setdefault(table, statement["schema"]) != statement["schema"]:
            raise MalformedDumpError(f"line {number}: {table} stands in two schemas: dump the one that LiteLLM uses (pg_dump -n SCHEMA)")
        if statement.re is _COPY:
            yield from _copied(table, _names(statement["columns"]), numbered, wanted=wanted)
        elif statement.re is _CREATE:
            if wanted:
                columns[table] = _created(numbered)
        elif not wanted:
            _passed_over(line, numbered)
        else:
            named = _names(statement["columns"]) if statement["columns"] else columns.get(table)
            if named is None:
                raise MalformedDumpError(f"line {number}: INSERT into {table} without its columns, and no CREATE TABLE before it")
            yield from _inserted(table, named, line[statement.end() :], number, numbered)


def _passed_over(line: str, numbered: Iterator[tuple[int, str]]) -> None:
    """Reads on to the end of an INSERT: a line that ends with `;` outside of a text. Within one, quotes are doubled."""
    is_open = line.count("'") % 2 == 1
    while is_open or not line.rstrip().endswith(";"):
        _, line = next(numbered, (0, "';" if is_open else ";"))
        is_open ^= line.count("'") % 2 == 1


def _copied(table: str, columns: list[str], numbered: Iterator[tuple[int, str]], *, wanted: bool) -> Iterator[Row]:
    for number, line in numbered:
        line = line.rstrip("\r\n")
        if line == "\\.":
            return
        if wanted:
            values = line.split("\t")
            if len(values) != len(columns):
                raise MalformedDumpError(f"line {number}: {len(values)} values for {len(columns)} columns of {table}")
            yield table, number, {name: None if value == "\\N" else _unescaped(value) for name, value in zip(columns, values, strict=True)}


def _created(numbered: Iterator[tuple[int, str]]) -> list[str]:
    """The columns of a CREATE TABLE, which pg_dump writes one a line."""
    found: list[str] = []
    for _, line in numbered:
        if line.lstrip().startswith(")"):
            break
        column = _COLUMN.match(line)
        if column is not None and column[1].lower() not in _NO_COLUMNS:
            found.append(column[1])
    return found


def _inserted(table: str, columns: list[str], rest: str, first: int, numbered: Iterator[tuple[int, str]]) -> Iterator[Row]:
    """The rows of one INSERT, of which `rest` stands behind VALUES; it may go on over many lines."""
    statement = _Statement(rest, f"line {first}: INSERT into {table}", numbered)
    statement.take(_START)
    while True:
        values: list[str | None] = []
        while True:
            value = statement.take(_VALUE)
            values.append(_plain(value))
            if value["end"] == ")":
                break
        if len(values) != len(columns):
            raise MalformedDumpError(f"line {first}: {len(values)} values for {len(columns)} columns of {table}")
        yield table, first, dict(zip(columns, values, strict=True))
        if statement.take(_NEXT)[1] is None:
            return


class _Statement:
    """The rest of a statement, read line by line as it is needed."""

    def __init__(self, rest: str, what: str, numbered: Iterator[tuple[int, str]]) -> None:
        self._rest = rest
        self._what = what
        self._numbered = numbered

    def take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """What comes next. Raises MalformedDumpError when it never comes."""
        while (found := pattern.match(self._rest)) is None:
            _, line = next(self._numbered, (0, None))
            if line is None or len(self._rest) > _LONGEST:
                raise MalformedDumpError(f"{self._what}: cannot be taken apart")
            self._rest += line
        self._rest = self._rest[found.end() :]
        return found


def _plain(value: re.Match[str]) -> str | None:
    if value["null"] is not None:
        return None
    if value["bare"] is not None:
        return value["bare"]
    found = value["text"].replace("''", "'")
    return _unescaped(found) if value["escaped"] else found


def _unescaped(value: str) -> str:
    """A value of COPY, or of E'': backslashes mean something."""

    def meant(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 8))
        if match[2] is not None:
            return chr(int(match[2], 16))
        return _ESCAPES.get(match[3], match[3])

    return _ESCAPE.sub(meant, value) if "\\" in value else value


def _names(columns: str) -> list[str]:
    return [name.strip().strip('"') for name in columns.split(",")]
