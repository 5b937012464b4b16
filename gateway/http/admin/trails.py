"""What a request changed, for the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request

from gateway.access.keys import Principal
from gateway.http.request_ids import REQUEST_ID
from gateway.store.trail import Trail


def trail_of(request: Request) -> Trail:
    """The audit log."""
    trail: Trail = request.scope["state"]["trail"]
    return trail


def noted(
    request: Request,
    principal: Principal,
    action: str,
    target: str,
    *,
    before_hash: str | None = None,
    after_hash: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Notes what was done. Never waits: an entry that cannot be stored now is stored later. detail: no secret, no text."""
    full = {**(detail or {}), "request_id": request.scope[REQUEST_ID]}
    trail_of(request).add(principal.key, action, target, before_hash=before_hash, after_hash=after_hash, detail=full)
