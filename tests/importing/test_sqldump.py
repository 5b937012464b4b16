"""Text dumps, as pg_dump 18 made them of one database in four ways, and such as are broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.importing.sqldump import MalformedDumpError, Row, rows
from tests.importing.conftest import DUMPS, digest

KEYS = "LiteLLM_VerificationToken"
FOUR_WAYS = ("copy.sql", "inserts.sql", "column_inserts.sql", "rows_per_insert.sql")


def read(text: str, *tables: str) -> list[Row]:
    return list(rows(text.splitlines(keepends=True), tables or (KEYS,)))


@pytest.fixture(params=FOUR_WAYS)
def dump(request: pytest.FixtureRequest) -> Iterator[str]:
    yield (DUMPS / request.param).read_text()


def test_four_ways_hold_the_same_rows(dump: str) -> None:
    found = [values for _, _, values in read(dump)]
    assert len(found) == 13
    expected = [values for _, _, values in read((DUMPS / "copy.sql").read_text())]
    booleans = {"t": "true", "f": "false"}  # COPY writes them shorter
    assert [{key: booleans.get(value or "", value) for key, value in row.items()} for row in expected] == [
        {key: booleans.get(value or "", value) for key, value in row.items()} for row in found
    ]
    assert found[0]["token"] == digest("sk-web-7f3e")
    assert found[0]["metadata"] == '{"service": "it\'s"}'
    assert found[0]["expires"] is None
    assert found[3]["models"] == "{legal,opus}"


def test_what_callers_wrote_is_never_a_statement(dump: str) -> None:
    """A row of another table holds lines that look like a COPY and an INSERT with a key of their own."""
    assert digest("sk-injected") in dump
    tokens = {values["token"] for _, _, values in read(dump)}
    assert digest("sk-injected") not in tokens
    assert digest("sk-deleted") not in tokens


def test_several_tables_and_their_lines(dump: str) -> None:
    found = read(dump, KEYS, "LiteLLM_TeamTable")
    assert [table for table, _, _ in found].count("LiteLLM_TeamTable") == 3
    lines = dump.splitlines()
    for _, line, values in found:
        assert (values["token"] if "token" in values else values["team_id"]) in "\n".join(lines[line - 1 : line + 4])  # type: ignore[operator]


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (f'COPY public."{KEYS}" (token, a) FROM stdin;\nx\\ty\\\\z\\n\t\\N\n\\.\n', [{"token": "x\ty\\z\n", "a": None}]),
        (f'COPY "{KEYS}" (token, "A b") FROM stdin;\r\nx\t\r\n\\.\r\n', [{"token": "x", "A b": ""}]),
        (f'COPY public."{KEYS}" (token) FROM stdin;\n\\x41\\102\n\\.\nCOPY x (y) FROM stdin;\nz\n\\.\n', [{"token": "AB"}]),
        (
            f"INSERT INTO public.\"{KEYS}\" (token, a) VALUES ('it''s', NULL), (E'a\\\\b\\n', 3.5);\n",
            [{"token": "it's", "a": None}, {"token": "a\\b\n", "a": "3.5"}],
        ),
        (f"INSERT INTO \"{KEYS}\" (token, a) VALUES ('{{a,''b''}}'::text[], '{{}}'::jsonb);\n", [{"token": "{a,'b'}", "a": "{}"}]),
        (f"INSERT INTO \"{KEYS}\" (token, a) VALUES ('one\ntwo; (x),\n', true);\n", [{"token": "one\ntwo; (x),\n", "a": "true"}]),
        (f"insert into \"{KEYS}\" (token) values\n  ('a'),\n  ('b')\n;\n", [{"token": "a"}, {"token": "b"}]),
        (f'CREATE TABLE "{KEYS}" (\n    token text NOT NULL,\n    "b c" text,\n    CONSTRAINT x PRIMARY KEY (token)\n);\n', []),
        ("SELECT 1;\n-- INSERT INTO nothing\n", []),
    ],
)
def test_statements(statement: str, values: list[dict[str, str | None]]) -> None:
    assert [dict(found) for _, _, found in read(statement)] == values


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (f"INSERT INTO \"{KEYS}\" VALUES ('sk-canary');\n", "line 1: INSERT into LiteLLM_VerificationToken without its columns"),
        (f"INSERT INTO \"{KEYS}\" (token) VALUES ('sk-canary', 'b');\n", "2 values for 1 columns"),
        (f'INSERT INTO "{KEYS}" (token) VALUES (\'sk-canary\n', "cannot be taken apart"),
        (f"INSERT INTO \"{KEYS}\" (token) VALUES 'sk-canary';\n", "cannot be taken apart"),
        (
            f'COPY public."{KEYS}" (token) FROM stdin;\nx\n\\.\nCOPY old."{KEYS}" (token) FROM stdin;\nsk-canary\n\\.\n',
            "line 4: LiteLLM_VerificationToken stands in two schemas",
        ),
        (f'COPY "{KEYS}" (token, a) FROM stdin;\nsk-canary\n', "line 2: 1 values for 2 columns"),
    ],
)
def test_broken_statements_show_nothing_of_theirs(statement: str, words: str) -> None:
    with pytest.raises(MalformedDumpError) as caught:
        read(statement)
    assert words in str(caught.value)
    assert "canary" not in str(caught.value)
