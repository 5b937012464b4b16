"""What HTTP cannot show of a replacement; the rest stands in tests/http/test_admin_config.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gateway.config.load import Loaded, load
from gateway.config.replacer import Moved, NotTakenUp, Replacer

Load = Callable[..., Loaded]


class Gateway:
    """What runs, by its file. problems: what the next reload finds wrong. told: of what comes."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.file = Path(loaded.source)
        self.problems: Sequence[str] = ()
        self.told: list[tuple[str, str]] = []
        self.replacer = Replacer(lambda: self.loaded, lambda _: (), self.reload, lambda hash_, key: self.told.append((hash_, key)))

    async def reload(self) -> Sequence[str]:
        loaded = load(self.file, {})
        assert self.told[-1][0] == loaded.hash, "it is told beforehand"
        await asyncio.sleep(0)
        if not self.problems:
            self.loaded = loaded
        return self.problems


@pytest.fixture
def gateway(loaded: Load, minimal: str) -> Gateway:
    return Gateway(loaded(minimal))


def text(gateway: Gateway, slots: int) -> str:
    return gateway.loaded.text.replace("model: smollm2", f"model: smollm2, slots: {slots}")


async def test_before_and_after(gateway: Gateway) -> None:
    first = gateway.loaded

    before, proposal = await gateway.replacer.replace(text(gateway, 3), "ops", lambda hash_: hash_ == first.hash)

    assert before is first
    assert proposal.loaded.hash == gateway.loaded.hash
    assert gateway.told == [(gateway.loaded.hash, "ops")]
    assert gateway.loaded.config.backends["local"].slots == 3


async def test_one_after_another(gateway: Gateway) -> None:
    first = gateway.loaded
    texts = [text(gateway, slots) for slots in (3, 4)]

    done = await asyncio.gather(
        *(gateway.replacer.replace(each, "ops", lambda hash_: hash_ == first.hash) for each in texts), return_exceptions=True
    )

    assert isinstance(done[1], Moved)
    assert done[1].hash == gateway.loaded.hash
    assert gateway.file.read_text() == texts[0]


async def test_a_file_that_somebody_changes_during_a_reload_that_fails_is_left_to_them(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """Its old text would undo what they did; the log says that it is not what runs."""

    async def reload() -> Sequence[str]:
        gateway.file.write_text("# mine\n")
        return ["it vanished"]

    replacer = Replacer(lambda: gateway.loaded, lambda _: (), reload, lambda *_: None)
    with pytest.raises(NotTakenUp, match="it vanished"):
        await replacer.replace(text(gateway, 3), "ops", None)

    assert gateway.file.read_text() == "# mine\n"
    assert "cannot be given its old text" in caplog.text


async def test_a_file_that_is_gone_is_not_made_anew(gateway: Gateway) -> None:
    gateway.file.unlink()
    for instead_of in (None, lambda _: True):
        with pytest.raises(Moved):
            await gateway.replacer.replace(text(gateway, 3), "ops", instead_of)
    assert not gateway.file.exists()
