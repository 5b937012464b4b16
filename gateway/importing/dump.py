"""LiteLLM's table of keys, as it was taken out of its database: a dump by pg_dump, CSV with a header, or JSON.

    read(path) -> Dump       raises UnreadableError

A dump by pg_dump may hold all tables; those of keys, teams and models are looked at. Nothing of a row is ever shown
but what is named here: alias, team, and the place.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.config.files import read as read_file
from gateway.config.files import reason
from gateway.importing import sqldump
from gateway.importing.document import UnreadableError
from gateway.importing.report import Place

KEYS, TEAMS, MODELS = "LiteLLM_VerificationToken", "LiteLLM_TeamTable", "LiteLLM_ProxyModelTable"

_MAX_JSON_BYTES = 200_000_000
_SQL = re.compile(r"\s*(--|SET |COPY |INSERT |CREATE |BEGIN|SELECT |\\|/\*|ALTER |DROP )", re.IGNORECASE)
_ARRAY = re.compile(r'\{(?:(?:"(?:[^"\\]|\\.)*"|[^,{}"\\]+)(?:,(?!\})|(?=\})))*\}', re.DOTALL)
_ARRAY_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Record:
    """A row. Values are text as PostgreSQL writes it, or what JSON says; its representation shows none of them."""

    place: Place
    values: Mapping[str, Any] = field(repr=False)

    def text(self, column: str) -> str | None:
        """A text that is not empty; of a number, its digits."""
        value = self.values.get(column)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        return value if isinstance(value, str) and value else None

    def texts(self, column: str) -> list[str]:
        """The texts of an array: `{a,"b c"}`, or a JSON list. Raises ValueError where it is none, or holds anything else."""
        value = self.values.get(column)
        if value is None or value == "":
            return []
        if isinstance(value, str) and _ARRAY.fullmatch(value):
            found = [re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for quoted, bare in _ARRAY_ITEM.findall(value)]
            value = [None if each.upper() == "NULL" else each for each in found]
        elif isinstance(value, str):
            value = _json(value)
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            raise ValueError("not a list of texts")
        return value

    def flag(self, column: str) -> bool:
        """Whether it is true."""
        value = self.values.get(column)
        return value in (True, 1) or (isinstance(value, str) and value.lower() in ("t", "true", "1", "yes"))

    def number(self, column: str) -> float | None:
        """A number, if there is one."""
        value = self.values.get(column)
        try:
            return float(value) if isinstance(value, (int, float, str)) and value != "" and not isinstance(value, bool) else None
        except (ValueError, OverflowError):
            return None

    def time(self, column: str) -> datetime | None:
        """A time, in UTC; so it is meant where it names no zone, for Prisma stores it so. Raises ValueError where it is none."""
        value = self.values.get(column)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise ValueError("not a time that is written out")
        found = datetime.fromisoformat(re.sub(r"([+-]\d\d)$", r"\1:00", value.replace("Z", "+00:00")))
        try:
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except OverflowError:
            raise ValueError("a time beyond all years") from None

    def mapping(self, column: str) -> Mapping[str, Any]:
        """A JSON object; empty where there is none."""
        value = self.values.get(column)
        value = _json(value) if isinstance(value, str) else value
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class Dump:
    """teams: None when the dump does not have them. models: places of models that live in the database."""

    keys: Sequence[Record] = ()
    teams: Mapping[str, Record] | None = None
    models: Sequence[Place] = ()


def read(path: Path) -> Dump:
    """The dump at `path`. Raises UnreadableError."""
    try:
        with path.open("rb") as file:
            start = file.read(4_096)
        if start.startswith(b"PGDMP"):
            raise UnreadableError([f"{path}: is a dump in pg_dump's own format: `pg_restore -f dump.sql {path.name}` makes text of it"])
        head = start.decode("utf-8-sig", "replace").lstrip()
        if head.startswith(("[", "{")):
            return Dump(list(_objects(read_file(path, _MAX_JSON_BYTES).decode("utf-8-sig"), path)))
        is_sql = _SQL.match(head) is not None
        with path.open(encoding="utf-8-sig", newline="\n" if is_sql else "") as lines:
            return _tables(lines, path) if is_sql else Dump(list(_csv(lines, path)))
    except OSError as error:
        raise UnreadableError([f"{path}: cannot be read: {reason(error)}"]) from None
    except UnicodeDecodeError:
        raise UnreadableError([f"{path}: not UTF-8 text"]) from None
    except ValueError:
        raise UnreadableError([f"{path}: cannot be read: not a usable file name"]) from None


def _tables(lines: Iterable[str], path: Path) -> Dump:
    keys: list[Record] = []
    teams: dict[str, Record] = {}
    models: list[Place] = []
    has_teams = False
    try:
        for count, (table, line, values) in enumerate(sqldump.rows(lines, (KEYS, TEAMS, MODELS))):
            record = Record(Place(str(path), line, 0, f"{table}[{count}]"), values)
            if table == KEYS:
                keys.append(record)
            elif table == MODELS:
                models.append(record.place)
            else:
                has_teams = True
                teams[record.text("team_id") or ""] = record
    except sqldump.MalformedDumpError as error:
        raise UnreadableError([f"{path}: {error}"]) from None
    return Dump(keys, teams if has_teams else None, models)


def _csv(lines: Iterable[str], path: Path) -> Iterator[Record]:
    reader = csv.DictReader(lines, strict=True)
    try:
        if "token" not in (reader.fieldnames or ()):
            raise UnreadableError([f"{path}:1: neither a dump, nor JSON, nor CSV with a header that has `token`"])
        for values in reader:
            if None in values or None in values.values():
                raise UnreadableError([f"{path}:{reader.line_num}: more or fewer values than the header has columns"])
            yield Record(Place(str(path), reader.line_num, 0, KEYS), values)
    except csv.Error:
        raise UnreadableError([f"{path}:{reader.line_num}: not CSV that can be read"]) from None


def _objects(text: str, path: Path) -> Iterator[Record]:
    """A list of objects, an object with `keys`, or an object a line."""
    whole = _json(text)
    if isinstance(whole, dict):
        whole = whole["keys"] if isinstance(whole.get("keys"), list) else [whole]
    listed = whole if isinstance(whole, list) else [_json(line) for line in text.split("\n") if line.strip()]
    for index, each in enumerate(listed):
        if not isinstance(each, dict) or "token" not in each:
            raise UnreadableError([f"{path}: entry {index}: should be a JSON object with `token`"])
        yield Record(Place(str(path), 0, 0, f"{KEYS}[{index}]"), each)


def _json(text: str) -> Any:
    """What JSON says; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
