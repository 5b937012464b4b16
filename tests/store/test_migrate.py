"""`trilemma migrate`: the schema comes up once, whoever asks and however often, in either kind of database."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from gateway.store import revisions
from gateway.store.engine import engine
from gateway.store.migrate import MigrationError, main, migrate
from gateway.store.tables import metadata
from gateway.store.urls import SqliteUrl
from tests.support.postgres import Server
from tests.support.stored import Place, PostgresPlace, SqlitePlace

HEAD = "0004_strategies"
OF_0001 = (
    "id, request_id, created, tenant, key_name, requested_model, served_model, backend, policy, strategy, propensity, attempts, status, "
    "outcome, prompt_tokens, cached_tokens, completion_tokens, cost_usd, latency_s, overhead_s, events, config_hash"
)
A_ROW = (
    f"INSERT INTO decisions ({OF_0001}) VALUES "
    "('a', 'r', 1.5, 't', 'k', 'm', 'm', 'b', 'none', 'single', 1, 1, 200, 'ok', 5, 0, 7, 0.25, 0.5, 0.001, 3, 'h')"
)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A database in which nothing is; in SQLite, not even its file."""
    if request.param == "sqlite":
        yield SqlitePlace(tmp_path / "d.db")
        return
    server: Server = request.getfixturevalue("server")
    name = server.create(empty=True)
    yield PostgresPlace(server.url(name))
    server.drop(name)


def bring_to(place: Place, revision: str) -> None:
    """As an older version of Trilemma would."""
    config = Config()
    config.set_main_option("script_location", str(revisions.folder()))
    made = engine(place.location, busy_s=5, create=True)
    with made.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    made.dispose()


def differences(place: Place) -> list[object]:
    """What the database has otherwise than the tables say."""
    made = engine(place.location, busy_s=5)
    with made.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        found: list[object] = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    made.dispose()
    return found


def revise(place: Place, revision: str) -> None:
    """As if another version of Trilemma had migrated it."""
    place.execute(f"UPDATE alembic_version SET version_num = '{revision}'")


def test_an_empty_database_comes_to_what_the_tables_say(empty: Place) -> None:
    done = migrate(empty.location)
    assert (done.before, done.after) == (None, HEAD)
    assert differences(empty) == []


@pytest.mark.parametrize("revision", revisions.known()[:-1])
def test_an_older_database_comes_to_it_with_its_rows(empty: Place, revision: str) -> None:
    bring_to(empty, revision)
    empty.execute(A_ROW)
    (before,) = empty.rows()
    assert str(migrate(empty.location)) == f"from {revision} to {HEAD}"
    assert differences(empty) == []
    (after,) = empty.rows()
    assert {name: after[name] for name in before} == before
    assert {after[name] for name in after.keys() - before.keys()} == {None}


def test_what_an_older_version_writes_still_fits(empty: Place) -> None:
    """While an update rolls out, replicas of the version before go on."""
    migrate(empty.location)
    empty.execute(A_ROW)
    assert [row["id"] for row in empty.rows()] == ["a"]


def test_a_second_time_nothing_happens(place: Place) -> None:
    before = place.everything()
    assert str(migrate(place.location)) == f"at {HEAD} already"
    assert place.everything() == before


def test_alembic_and_the_gateway_agree_on_the_versions() -> None:
    """The gateway knows them by their files' names, in one line."""
    config = Config()
    config.set_main_option("script_location", str(revisions.folder()))
    script = ScriptDirectory.from_config(config)
    line = [each.revision for each in script.walk_revisions()][::-1]
    assert list(revisions.known()) == line
    assert script.get_current_head() == line[-1]
    assert all(len(revision) <= 32 for revision in line)


def test_several_at_once_take_turns(empty: Place) -> None:
    run = [sys.executable, "-P", "-m", "gateway.store.migrate", "--url", empty.url, "--json"]
    started = [subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in "abc"]
    told = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], told
    befores = [json.loads(out)["before"] for out, _ in told]
    assert sorted(befores, key=str) == [HEAD, HEAD, None], "exactly one of them did it"


def test_nobody_else_writes_between_looking_and_migrating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The revision is read under the write lock; else two would find an empty database, and one of them fail."""
    look = MigrationContext.get_current_revision
    tried: list[str] = []

    def look_and_try(context: MigrationContext) -> str | None:
        with contextlib.closing(sqlite3.connect(tmp_path / "d.db", timeout=0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                tried.append(str(error))
        return look(context)

    monkeypatch.setattr(MigrationContext, "get_current_revision", look_and_try)
    migrate(SqliteUrl(tmp_path / "d.db"))
    assert tried == ["database is locked"]


def test_all_or_nothing(empty: Place) -> None:
    """A database in which the migration fails half-way is left as it was."""
    empty.execute("CREATE TABLE audit (decisions_by_model TEXT)")
    with pytest.raises(MigrationError, match=r"is there already|already exists"):
        migrate(empty.location)
    assert empty.rows("audit") == []
    empty.execute("DROP TABLE audit")
    assert migrate(empty.location).before is None


def test_a_newer_schema_is_left_alone(place: Place) -> None:
    """An update rolls out: whoever is older must neither fail on what the newer made, nor touch it."""
    revise(place, "0999_later")
    before = place.everything()
    assert "newer than this version" in str(migrate(place.location))
    assert place.everything() == before


def test_another_program_s_database_is_refused(empty: Place) -> None:
    empty.execute("CREATE TABLE alembic_version (version_num TEXT)")
    empty.execute("INSERT INTO alembic_version VALUES ('ae1027a6acf')")
    with pytest.raises(MigrationError, match="belongs to another program"):
        migrate(empty.location)
    assert empty.rows("alembic_version") == [{"version_num": "ae1027a6acf"}]


def test_the_command(empty: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "trilemma.yaml"
    config.write_text(f'version: 1\nbackends: {{a: {{url: "http://a", models: {{m: m}}}}}}\nstorage: {{url: "{empty.url}"}}\n')
    assert main(["--config", str(config)]) == 0
    assert capsys.readouterr() == (f"from nothing to {HEAD}\n", "")
    assert main(["--url", empty.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "before": HEAD, "after": HEAD}


def test_a_url_may_come_where_nobody_else_reads_it(empty: Place) -> None:
    """A command line is for everybody to read, and a URL may hold a password."""
    run = [sys.executable, "-P", "-m", "gateway.store.migrate", "--url", "-"]
    done = subprocess.run(run, input=f"{empty.url}\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"from nothing to {HEAD}\n", "")


@pytest.mark.parametrize(
    ("url", "status", "said"),
    [
        ("sqlite:///{}/nowhere/d.db", 1, "the folder of the database is not there"),
        ("sqlite:///{}/text", 1, "file is not a database"),
        ("postgresql://user:hunter2@/trilemma?host={}", 1, "the database cannot be reached"),
        ("postgresql://user:hunter2@db", 2, "a storage URL is sqlite:///FILE"),
        ("", 2, "there is no database"),
    ],
)
def test_what_cannot_be_done_is_said(url: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("not a database, but longer than an empty file")
    assert main(["--url", url.format(tmp_path)]) == status
    told = capsys.readouterr().err
    assert said in told
    assert "hunter2" not in told
    assert main(["--url", url.format(tmp_path), "--json"]) == status
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert said in answer["error"]


def test_a_database_that_is_not_there(server: Server) -> None:
    """More is told to who starts it than to whom a gateway may tell."""
    with pytest.raises(MigrationError, match=r"^the database cannot be reached$") as refused:
        migrate(PostgresPlace(server.url("nowhere")).location)
    assert 'database "nowhere" does not exist' in refused.value.detail


def test_a_configuration_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: cannot be read" in capsys.readouterr().err
