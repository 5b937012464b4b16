"""What one worker says counts for all, and for those that start later."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from gateway.config.load import Loaded, parse
from gateway.config.problems import ConfigError, Problem
from gateway.engines.packaged import EngineError
from gateway.engines.spec import EngineSpec, EngineStatus
from gateway.engines.supervisor import Supervisor
from gateway.workers.channel import Gone, Refused
from gateway.workers.child import Child
from gateway.workers.given import received
from gateway.workers.messages import Given, Kept
from gateway.workers.switchboard import Common, Switchboard

TEXT = """
version: 1
backends: {a: {url: "http://h:1", models: {m: m}}, own: {launch: llama-server, model: smollm2, models: {o: o}}}
keys: [{name: k, sha256: "0000000000000000000000000000000000000000000000000000000000000000"}]
"""
BAD = ConfigError([Problem(3, 5, "server.prot", "unknown key")], "trilemma.yaml")


class FakeChild:
    """A worker that answers as it is told. asked: what, in order; an exception as an answer is raised."""

    def __init__(self, number: int, **answers: Any) -> None:
        self.number = number
        self.answers: dict[str, Any] = {"try": [], "take": None, "note": None, "change": None, "running": {}, "states": {}} | answers
        self.asked: list[str] = []
        self.bodies: dict[str, Any] = {}
        self.told: list[tuple[str, Any]] = []
        self.signals: list[signal.Signals] = []

    async def ask(self, name: str, body: Any = None, *, within_s: float | None = None) -> Any:  # noqa: ARG002 (see Child)
        self.asked.append(name)
        self.bodies[name] = msgspec.json.decode(msgspec.json.encode(body))
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return await answer() if callable(answer) else answer

    def tell(self, name: str, body: Any = None) -> None:
        self.told.append((name, msgspec.json.decode(msgspec.json.encode(body))))

    def send(self, number: signal.Signals) -> None:
        self.signals.append(number)


class Engines:
    """The supervisor's place. wished: the names of the last set."""

    def __init__(self) -> None:
        self.wished: Sequence[EngineSpec] = ()
        self.error: EngineError | None = None

    async def apply(self, engines: Sequence[EngineSpec]) -> None:
        self.wished = engines
        if self.error is not None:
            raise self.error

    def status(self) -> dict[str, EngineStatus]:
        return {each.name: EngineStatus(engine=each.name, state="ready", port=each.port, pid=7) for each in self.wished}


class Board:
    """A switchboard over a file that the test changes. file: its text, or why it is no good."""

    def __init__(self, workers: int = 3) -> None:
        self.file: str | ConfigError = TEXT
        self.engines = Engines()
        common = Common("/state", "/folder", "run", "made up", "info", workers)
        self.board = Switchboard(self._read, self._read(), common, cast(Supervisor, self.engines))

    def _read(self) -> Loaded:
        if isinstance(self.file, ConfigError):
            raise self.file
        return parse(self.file, {})

    async def start(self, child: FakeChild) -> dict[str, Any]:
        """What it is told."""
        told: dict[str, Any] = await self.by(child, "start")
        return told

    async def by(self, child: FakeChild, name: str, body: Any = None) -> Any:
        """What a worker gets that asks this, as it goes over the wire."""
        answer = await self.board.handlers(cast(Child, child))[name](msgspec.json.decode(msgspec.json.encode(body)))
        return msgspec.json.decode(msgspec.json.encode(answer))

    async def of(self, *children: FakeChild) -> None:
        """These have started."""
        for child in children:
            await self.start(child)
        for child in children:
            child.asked.clear()


def changed(name: str) -> str:
    return TEXT.replace("models: {m: m}", f"models: {{{name}: m}}")


def models(body: Any) -> set[str]:
    """Of backend `a` in a configuration that was handed over."""
    return set(received(msgspec.convert(body, Given)).config.backends["a"].models)


# -- starting


async def test_a_worker_is_told_all_it_needs() -> None:
    board = Board()
    await board.board.apply()
    told = await board.start(FakeChild(2))
    assert {name: told[name] for name in ("state", "folder", "run", "log_level", "states")} == {
        "state": "/state",
        "folder": "/folder",
        "run": "run",
        "log_level": "info",
        "states": {},
    }
    config = received(msgspec.convert(told["given"], Given)).config
    assert config.server.secret is not None and config.server.secret.get_secret_value() == "made up"
    (engine,) = board.engines.wished
    assert config.backends["own"].port == engine.port == told["engines"]["own"]["port"]


async def test_who_starts_later_has_the_configuration_that_runs_not_what_stands_in_the_file() -> None:
    board = Board()
    first = FakeChild(1)
    await board.of(first)
    board.file = changed("n")
    assert models((await board.start(FakeChild(2)))["given"]) == {"m"}
    assert await board.board.reload() == []
    board.file = BAD
    assert models((await board.start(FakeChild(3)))["given"]) == {"n"}


async def test_a_start_during_a_reload_waits_for_its_end() -> None:
    board, trying, go = Board(), asyncio.Event(), asyncio.Event()

    async def slow() -> list[str]:
        trying.set()
        await go.wait()
        return []

    await board.of(FakeChild(1, **{"try": slow}))
    board.file = changed("n")
    reloading = asyncio.create_task(board.board.reload())
    await trying.wait()
    starting = asyncio.create_task(board.start(FakeChild(2)))
    await asyncio.sleep(0)
    assert not starting.done()
    go.set()
    assert await reloading == []
    assert models((await starting)["given"]) == {"n"}


# -- reloading


async def test_all_take_it_up() -> None:
    board, children = Board(), [FakeChild(number) for number in (1, 2, 3)]
    await board.of(*children)
    board.file = changed("n")
    assert await board.by(children[1], "reload") == []
    assert [child.asked for child in children] == [["try", "take"]] * 3
    assert [models(child.bodies["take"]) for child in children] == [{"n"}] * 3
    assert not board.board.failed
    assert [each.name for each in board.engines.wished] == ["own"]


async def test_a_file_with_problems_is_nobody_s(caplog: pytest.LogCaptureFixture) -> None:
    board, children = Board(), [FakeChild(number) for number in (1, 2)]
    await board.of(*children)
    board.file = BAD
    problems = await board.by(children[0], "reload")
    assert problems == [str(BAD.problems[0])]
    assert [child.asked for child in children] == [["note"], ["note"]]
    assert [child.bodies["note"]["problems"] for child in children] == [problems, problems], "all show it"
    assert [child.bodies["note"]["counts"] for child in children] == [True, False], "one counts it"
    assert board.board.failed
    assert caplog.text.count("the configuration was not taken up") == 1
    board.file = TEXT
    assert await board.board.reload() == []
    assert not board.board.failed


@pytest.mark.parametrize(
    ("answers", "problems"),
    [
        ([["bad weights"], ["bad weights"]], ["bad weights"]),
        ([[], ["bad weights"]], ["worker 2: bad weights"]),
        ([[], TimeoutError()], ["worker 2: it does not answer"]),
        ([Refused("try"), []], ["worker 1: it fails, see its log"]),
    ],
)
async def test_what_one_cannot_take_up_nobody_does(answers: list[Any], problems: list[str]) -> None:
    board, children = Board(), [FakeChild(number, **{"try": answer}) for number, answer in enumerate(answers, 1)]
    await board.of(*children)
    board.file = changed("n")
    assert await board.board.reload() == problems
    assert [child.asked for child in children] == [["try", "note"], ["try", "note"]]
    assert models((await board.start(FakeChild(3)))["given"]) == {"m"}


async def test_who_has_died_holds_nobody_up() -> None:
    board, children = Board(), [FakeChild(1, **{"try": Gone("try")}), FakeChild(2, take=Gone("take")), FakeChild(3)]
    await board.of(*children)
    board.file = changed("n")
    assert await board.board.reload() == []
    assert children[2].asked == ["try", "take"]
    assert [child.signals for child in children] == [[], [], []]


@pytest.mark.parametrize("answer", [TimeoutError(), Refused("take")])
async def test_who_does_not_take_up_what_it_could_starts_again(answer: Exception) -> None:
    """All others run it already: the next one in its place will, too."""
    board, children = Board(), [FakeChild(1), FakeChild(2, take=answer)]
    await board.of(*children)
    board.file = changed("n")
    assert await board.board.reload() == []
    assert [child.signals for child in children] == [[], [signal.SIGKILL]]
    assert models((await board.start(FakeChild(2)))["given"]) == {"n"}


async def test_engines_that_are_late_are_told_of() -> None:
    board, child = Board(), FakeChild(1)
    await board.of(child)
    board.engines.error = EngineError("the supervisor of the engines does not answer")
    board.file = changed("n")
    assert await board.board.reload() == []
    note = child.bodies["note"]
    assert not note["counts"]
    assert "is in use, but its engines are late: the supervisor" in note["problems"][0]


# -- backends


async def test_a_change_reaches_the_others_and_whoever_starts_later() -> None:
    board, one, other = Board(), FakeChild(1), FakeChild(2)
    await board.of(one, other)
    for name, state in (("a", "draining"), ("b", "disabled"), ("c", "draining"), ("c", "serving")):
        assert await board.by(one, "change", {"backend": name, "state": state, "accept": False}) == []
        assert other.bodies["change"] == {"backend": name, "state": state, "accept": False}
    await board.by(one, "change", {"backend": "a", "state": None, "accept": True})
    assert one.asked == []
    for child in (one, other):
        board.board.leave(cast(Child, child))
    assert (await board.start(FakeChild(1)))["states"] == {"a": "draining", "b": "disabled"}


async def test_who_starts_later_is_told_how_it_is_with_the_others_now() -> None:
    """A replica that went away and came back serves again; only workers see it come and go."""
    board, one, silent = Board(), FakeChild(1, states=TimeoutError()), FakeChild(2)
    await board.of(one, silent)
    await board.by(one, "change", {"backend": "a", "state": "draining", "accept": False})
    assert (await board.start(FakeChild(3)))["states"] == {}


async def test_a_change_during_a_start_is_not_lost() -> None:
    board, asked, go = Board(), asyncio.Event(), asyncio.Event()

    async def before() -> dict[str, str]:
        asked.set()
        await go.wait()
        return {}

    one, late = FakeChild(1, states=before), FakeChild(2)
    await board.of(one)
    starting = asyncio.create_task(board.start(late))
    await asked.wait()
    await board.by(one, "change", {"backend": "a", "state": "draining", "accept": False})
    go.set()
    assert (await starting)["states"] == {"a": "draining"}
    assert late.asked == ["change"]


@pytest.mark.parametrize(("answer", "unheard"), [(TimeoutError(), [2]), (Refused("x"), [2]), (Gone("x"), [])])
async def test_who_was_not_heard_is_told_of(answer: Exception, unheard: list[int]) -> None:
    board, one = Board(), FakeChild(1)
    await board.of(one, FakeChild(2, change=answer, running=answer), FakeChild(3, running={"a": 2}))
    assert await board.by(one, "change", {"backend": "a", "state": "draining", "accept": False}) == unheard
    assert await board.by(one, "running") == {"calls": {"a": 2}, "unheard": unheard}


async def test_calls_of_all_the_others_are_added_up() -> None:
    board, one = Board(), FakeChild(1, running={"a": 100})
    await board.of(one, FakeChild(2, running={"a": 2, "b": 1}), FakeChild(3, running={"a": 3}))
    assert await board.by(one, "running") == {"calls": {"a": 5, "b": 1}, "unheard": []}


# -- requests


async def test_an_answer_that_another_worker_has_kept() -> None:
    board = Board()
    kept = msgspec.json.decode(msgspec.json.encode(Kept(200, [(b"a", b"b")], b"\xff\0")))
    one, other = FakeChild(1, kept=kept), FakeChild(2)
    await board.of(one, other)
    claim = {"caller": "dev", "key": "azE=", "digest": "AAE="}
    assert await board.by(one, "claim", claim) is None
    assert await board.by(other, "claim", claim) == {"status": 200, "headers": [["YQ==", "Yg=="]], "body": "/wA=", "conflict": False}
    assert one.bodies["kept"] == claim
    board.board.leave(cast(Child, one))
    assert await board.by(other, "claim", claim) is None


async def test_what_engines_do_is_told_to_all() -> None:
    board, one, other = Board(), FakeChild(1), FakeChild(2)
    await board.of(one, other)
    await board.board.apply()
    board.board.tell_engines()
    assert [name for name, _ in one.told] == ["engines"]
    assert one.told == other.told
    assert one.told[0][1]["own"]["state"] == "ready"
