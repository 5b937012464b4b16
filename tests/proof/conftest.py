"""Databases of both kinds."""

from __future__ import annotations

from tests.support.databases import database, migrated, place, postgres, server

__all__ = ["database", "migrated", "place", "postgres", "server"]
