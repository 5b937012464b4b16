"""Databases with the schema, and a way to them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.access.link import Link
from tests.support.databases import database, decisions, migrated, place, postgres, server
from tests.support.stored import Place

__all__ = ["database", "decisions", "migrated", "place", "postgres", "server"]


@pytest.fixture
async def link(place: Place) -> AsyncIterator[Link]:
    """The way to the database, as a process has it."""
    found = Link(place.location, 10)
    yield found
    await found.close()
