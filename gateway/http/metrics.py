"""`GET /metrics`: the gateway's numbers for Prometheus."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.access.keys import require
from gateway.http import schema
from gateway.http.routes import gateway_of, identified
from gateway.telemetry.telemetry import Telemetry
from gateway.wire.errors import ApiError

router = APIRouter()

_SCOPES: Final = ("metrics", "admin")


@router.get(
    "/metrics",
    tags=["health"],
    operation_id="metrics",
    summary="The gateway's numbers, for Prometheus",
    responses=schema.documented(schema.METRICS),
    response_class=Response,
    dependencies=[schema.KEYED],
)
async def metrics(request: Request) -> Response:
    """Prometheus' text format, or OpenMetrics for who accepts it. Open to keys with the scope `metrics` or `admin`; to anybody, if the
    configuration says so."""
    state = gateway_of(request).state
    settings = state.config.telemetry.metrics
    if not settings.enabled:
        raise ApiError(404, "caller_not_found", "There is no such endpoint.")
    if not settings.public:
        headers = request.scope["headers"]
        principal = identified(request)
        scope = next((each for each in _SCOPES if principal is not None and each in principal.scopes), _SCOPES[0])
        require(principal, scope, headers)
    telemetry: Telemetry = request.scope["state"]["telemetry"]
    text, content_type = await telemetry.exposed(request.headers.get("accept", ""))
    return Response(text, headers={"content-type": content_type, "cache-control": "no-store"})
