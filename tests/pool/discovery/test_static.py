"""What the configuration lists is said once."""

from __future__ import annotations

from gateway.pool.discovery.endpoint import endpoint
from gateway.pool.discovery.source import Found
from gateway.pool.discovery.spec import StaticSpec
from gateway.pool.discovery.static import Static
from tests.pool.scripted import WITH_CLOCK

pytestmark = WITH_CLOCK


async def test_it_is_said_once_in_the_order_given_without_repeats() -> None:
    b, a = endpoint("http://b", 2), endpoint("http://a")
    assert [news async for news in Static(StaticSpec((b, a, b))).watch()] == [Found((b, a))]
