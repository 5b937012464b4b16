from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence

import pytest

from gateway.config.schema import Backend as Spec
from gateway.pool.backend import Backend, backend
from gateway.pool.transport import Broken, Tap, TimedOut
from gateway.serving.call import UpstreamCall
from gateway.serving.exchange import Exchange
from gateway.serving.patience import DeadlinePassed, Patience
from gateway.wire.encoding import Inflater
from gateway.wire.errors import Header
from tests.support.clock import run, timers


class Upstream:
    """An answer by script: bytes come, an exception is raised, a number is so many seconds of silence."""

    status = 200
    headers: Sequence[Header] = ()

    def __init__(self, *script: bytes | Exception | float) -> None:
        self._script = list(script)
        self.ends: list[str] = []

    def whole(self) -> bytes | None:
        return None

    async def read_some(self, tap: Tap | None = None) -> bytes:
        while self._script:
            step = self._script.pop(0)
            if isinstance(step, bytes):
                if tap is not None and tap(step):
                    continue
                return step
            if isinstance(step, Exception):
                raise step
            await asyncio.sleep(step)
        return b""

    def release(self) -> None:
        self.ends.append("released")

    def close(self) -> None:
        self.ends.append("closed")


def engine() -> Backend:
    spec = Spec.model_validate({"url": "http://127.0.0.1:1", "models": {"m": "m"}, "timeouts": {"idle_s": 10}})
    return backend("b", spec, "http://127.0.0.1:1")


def made(bears_s: float | None = None) -> Exchange:
    backend = engine()
    return Exchange(backend, UpstreamCall("b", "m", 0.0), backend.timeouts, Patience(), bears_s)


def opened(upstream: Upstream, inflate: Inflater | None = None, bears_s: float | None = None) -> Exchange:
    exchange = made(bears_s)
    exchange.opened(upstream, inflate)
    return exchange


async def everything(exchange: Exchange) -> bytes:
    parts = []
    while data := await exchange.read():
        parts.append(data)
    return b"".join(parts)


def test_a_body_read_to_its_end_frees_the_connection_for_the_next() -> None:
    async def main() -> None:
        upstream = Upstream(b"a", 5.0, b"b")
        exchange = opened(upstream)
        assert exchange.backend.in_flight == 1

        assert await everything(exchange) == b"ab"
        assert await exchange.read() == b""
        assert upstream.ends == ["released"]
        exchange.close()

        assert upstream.ends == ["released"]
        assert exchange.backend.in_flight == 0
        assert timers() == []

    run(main())


def test_closing_early_drops_the_socket_and_gives_the_slot_back_once() -> None:
    async def main() -> None:
        upstream = Upstream(b"a", b"b")
        exchange = opened(upstream)
        await exchange.read()

        exchange.close()
        exchange.close()

        assert upstream.ends == ["closed"]
        assert exchange.backend.in_flight == 0
        assert timers() == []

    run(main())


def test_an_exchange_that_never_got_an_answer_gives_its_slot_back() -> None:
    async def main() -> None:
        exchange = made()
        exchange.close()
        assert exchange.backend.in_flight == 0

    run(main())


@pytest.mark.parametrize(("bears_s", "silence"), [(None, 10.0), (3.0, 3.0), (60.0, 10.0)])
def test_silence_is_borne_as_long_as_both_ends_bear_it(bears_s: float | None, silence: float) -> None:
    async def main() -> None:
        upstream = Upstream(b"a", 1_000.0, b"b")
        exchange = opened(upstream, bears_s=bears_s)
        await exchange.read()
        with pytest.raises(TimedOut):
            await exchange.read()
        assert asyncio.get_running_loop().time() == silence
        exchange.close()
        assert upstream.ends == ["closed"]

    run(main())


def test_a_deadline_ends_the_reading() -> None:
    async def main() -> None:
        upstream = Upstream(b"a", 1_000.0)
        exchange = opened(upstream)
        exchange.patience.bound(4.0)
        await exchange.read()
        with pytest.raises(DeadlinePassed):
            await exchange.read()
        exchange.close()
        assert upstream.ends == ["closed"]

    run(main())


def test_a_broken_connection_is_told() -> None:
    async def main() -> None:
        upstream = Upstream(b"a", Broken("reset"))
        exchange = opened(upstream)
        await exchange.read()
        with pytest.raises(Broken):
            await exchange.read()
        exchange.close()
        assert upstream.ends == ["closed"]

    run(main())


def test_a_compressed_body_is_inflated_and_empty_reads_do_not_end_it() -> None:
    async def main() -> None:
        body = gzip.compress(b"data: 1\n\n" * 10)
        upstream = Upstream(*[body[i : i + 1] for i in range(len(body))])
        exchange = opened(upstream, Inflater(b"gzip"))

        assert await everything(exchange) == b"data: 1\n\n" * 10
        exchange.close()
        assert upstream.ends == ["released"]

    run(main())


@pytest.mark.parametrize("script", [(gzip.compress(b"x" * 100)[:-4],), (b"plain", b"text"), (gzip.compress(b"x"), b"more")])
def test_a_damaged_compressed_body_is_a_broken_answer(script: tuple[bytes, ...]) -> None:
    async def main() -> None:
        exchange = opened(Upstream(*script), Inflater(b"gzip"))
        with pytest.raises(Broken):
            await everything(exchange)
        exchange.close()
        assert exchange.backend.in_flight == 0

    run(main())
