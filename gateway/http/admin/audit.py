"""`/admin/audit`: who changed what."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from gateway.http import schema
from gateway.http.admin import described
from gateway.http.admin.asked import limit_of, moment, place_of, query_of
from gateway.http.admin.trails import trail_of
from gateway.http.routes import caller
from gateway.store.audit import AuditEntry, AuditWanted

router = APIRouter(prefix="/admin", tags=["admin"], dependencies=[schema.KEYED])


@router.get(
    "/audit",
    operation_id="list_audit",
    summary="Who changed what through this API",
    responses=schema.documented(described.AUDIT),
    openapi_extra=dict(described.AUDIT_QUERY),
)
async def listed(request: Request) -> JSONResponse:
    """The newest first. What was changed while the database was away is told once it is back."""
    caller(request, "admin")
    query = query_of(request, "limit", "cursor", "action", "key", "since")
    wanted = AuditWanted(key_name=query.get("key"), action=query.get("action"), since=moment(query, "since"))
    entries, place, source = await trail_of(request).page(wanted, place_of(query), limit_of(query))
    following = None if place is None else str(place)
    return JSONResponse({"object": "list", "data": [_card(each) for each in entries], "next": following, "source": source})


def _card(entry: AuditEntry) -> dict[str, Any]:
    detail = dict(entry.detail or {})
    return {
        "object": "audit.entry",
        "id": entry.id,
        "created": entry.created,
        "key": entry.key_name,
        "action": entry.action,
        "target": entry.target,
        "before_hash": entry.before_hash,
        "after_hash": entry.after_hash,
        "request_id": detail.pop("request_id", None),
        "detail": detail,
    }
