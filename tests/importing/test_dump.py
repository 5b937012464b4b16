"""Where keys may come from: text dumps, CSV, JSON; and what a row's values are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.importing.document import UnreadableError
from gateway.importing.dump import Record, read
from gateway.importing.report import Place
from tests.importing.conftest import DUMPS, digest

Write = Callable[[str, str], Path]
PLACE = Place("d")


@pytest.mark.parametrize(
    "name", ["copy.sql", "inserts.sql", "column_inserts.sql", "rows_per_insert.sql", "keys.csv", "keys.json", "keys.jsonl"]
)
def test_every_form_says_the_same(name: str) -> None:
    dump = read(DUMPS / name)
    assert len(dump.keys) == 13
    by_alias = {key.text("key_alias"): key for key in dump.keys}
    web, trial, leaver, intern, embedder = (by_alias[each] for each in ("web-frontend", "trial", "leaver", "intern", "embedder"))
    assert web.text("token") == digest("sk-web-7f3e")
    assert (web.text("team_id"), web.texts("models"), web.time("expires"), web.flag("blocked")) == ("team-search", ["chat"], None, False)
    assert by_alias["contract review (legal)"].texts("models") == ["legal", "opus"]
    assert trial.time("expires") == datetime(2099, 1, 31, tzinfo=UTC)
    assert by_alias["contractor"].time("expires") == datetime(2024, 5, 1, 10, 0, 0, 500_000, tzinfo=UTC)
    assert leaver.flag("blocked")
    assert (intern.number("max_budget"), intern.number("spend"), web.number("max_budget")) == (25, 25.5, None)
    assert embedder.mapping("aliases") == {"best": "chat-large"}
    assert len({key.place for key in dump.keys}) == 13
    assert "web-frontend" not in repr(web)


def test_a_dump_of_everything_has_teams_and_models() -> None:
    dump = read(DUMPS / "copy.sql")
    assert dump.teams is not None
    assert {name: (team.texts("models"), team.flag("blocked")) for name, team in dump.teams.items()} == {
        "team-search": (["chat-small", "code"], False),
        "team-legal": ([], False),
        "team-old": ([], True),
    }
    assert len(dump.models) == 1
    assert read(DUMPS / "keys.csv").teams is None


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("{}", []),
        ('{a,"b c","d\\"e","f,g"}', ["a", "b c", 'd"e', "f,g"]),
        ("{null-ish,NULLS}", ["null-ish", "NULLS"]),
        ('["a", "b"]', ["a", "b"]),
        ([], []),
        ("", []),
        (None, []),
    ],
)
def test_arrays(value: object, texts: list[str]) -> None:
    assert Record(PLACE, {"x": value}).texts("x") == texts


@pytest.mark.parametrize(
    "value", ["{NULL}", "{a,}", "{a", '{"a}', "{{a},{b}}", "a", "['a']", '["a", 3]', '{"a": 1}', ["a", None], [{"a": 1}], [""], 7, True, {}]
)
def test_an_array_that_is_none(value: object) -> None:
    """What says what a key may use is never read as less than it is: nothing listed would mean everything."""
    with pytest.raises(ValueError, match="not a list of texts"):
        Record(PLACE, {"x": value}).texts("x")


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("2026-01-02 03:04:05.678", datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)),
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02 03:04:05+00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02 05:04:05+02:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
    ],
)
def test_times(value: str, time: datetime) -> None:
    assert Record(PLACE, {"x": value}).time("x") == time


@pytest.mark.parametrize("value", ["infinity", "soon", 1_700_000_000, True, [], "9999-12-31 23:59:59-05:00"])
def test_a_time_that_is_none(value: object) -> None:
    with pytest.raises(ValueError):
        Record(PLACE, {"x": value}).time("x")


def test_flags_numbers_and_texts() -> None:
    record = Record(PLACE, {"one": 1, "t": "t", "false": False, "huge": 10**400, "word": "x", "int": 7})
    assert [record.flag(each) for each in ("one", "t", "false", "word", "gone")] == [True, True, False, False, False]
    assert [record.number(each) for each in ("huge", "word", "false", "int", "gone")] == [None, None, None, 7, None]
    assert [record.text(each) for each in ("int", "false", "gone")] == ["7", None, None]


def test_an_answer_of_the_key_list(write: Write) -> None:
    path = write("list.json", '{"keys": [{"token": "abc", "models": ["a"]}], "total_count": 1}')
    assert [key.text("token") for key in read(path).keys] == ["abc"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n", ":1: neither a dump, nor JSON, nor CSV"),
        ("", "neither a dump"),
        ("token,a\nsk-canary\n", ":2: more or fewer values"),
        ("token,a\nsk-canary,b,c\n", ":2: more or fewer values"),
        ('token,a\n"sk-canary,b\n', "not CSV"),
        ("[1]", "entry 0: should be a JSON object with `token`"),
        ('{"token": "sk-canary"', "entry 0: should be a JSON object"),
        ('[{"tok": "sk-canary"}]', "entry 0: should be a JSON object"),
        ("PGDMP\x01\x0e", "pg_restore -f dump.sql d"),
        ("INSERT INTO \"LiteLLM_VerificationToken\" VALUES ('sk-canary');\n", "line 1: INSERT into"),
    ],
)
def test_what_cannot_be_read(write: Write, content: str, words: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(write("d", content))
    assert words in str(caught.value)
    assert "canary" not in str(caught.value)


def test_not_there_and_not_text(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"token\n\xff\n")
    for name, words in [("gone", "no such file"), ("latin", "not UTF-8"), ("nul\0", "not a usable file name")]:
        with pytest.raises(UnreadableError, match=words):
            read(tmp_path / name)
