"""The FastAPI surface: OpenAPI for everything, models, health, and the inference endpoints over the same core as the lane in front."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gateway import __version__
from gateway.access.access import Access
from gateway.access.keys import Principal, authenticated, require
from gateway.http import models, schema
from gateway.http.lane import handle
from gateway.serving.life import Gateway
from gateway.store.writer import Writer
from gateway.wire.errors import model_not_found

router = APIRouter()


class FromCore(Response):
    """A response that the core writes itself."""

    def __init__(self, gateway: Gateway, dry_run_of: str | None = None) -> None:
        self._gateway = gateway
        self._dry_run_of = dry_run_of
        self.background: BackgroundTask | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await handle(self._gateway, scope, receive, send, self._dry_run_of)


def gateway_of(request: Request) -> Gateway:
    """The running gateway."""
    gateway: Gateway = request.scope["state"]["gateway"]
    return gateway


def caller(request: Request, scope: str) -> Principal:
    """The authenticated caller. Raises ApiError."""
    return require(identified(request), scope, request.scope["headers"])


def identified(request: Request) -> Principal | None:
    """The caller, if its key is known. Raises ApiError 429 when its address has shown too many wrong ones."""
    gateway = gateway_of(request)
    headers = request.scope["headers"]
    principal = authenticated(gateway.state.keys, headers)
    if principal is None and request.client is not None:
        gateway.failed_keys.count(request.client.host, headers, gateway.state.config.limits.failed_keys_per_minute)
    return principal


async def _infer(request: Request) -> Response:
    return FromCore(gateway_of(request))


for _path, _summary, _model in schema.INFERENCE:
    router.add_api_route(
        _path,
        _infer,
        methods=["POST"],
        summary=_summary,
        tags=["inference"],
        operation_id=_path.removeprefix("/v1/").replace("/", "_"),
        openapi_extra=schema.body(_model),
        responses=schema.documented(schema.ANSWERS),
        response_class=Response,
        dependencies=[schema.KEYED],
    )


@router.get(
    "/v1/models",
    tags=["models"],
    operation_id="list_models",
    summary="Models this key may use",
    responses=schema.documented(schema.MODELS),
    dependencies=[schema.KEYED],
)
async def list_models(request: Request) -> JSONResponse:
    """Real models first, then aliases and virtual models."""
    return JSONResponse({"object": "list", "data": models.cards(gateway_of(request).state, caller(request, "inference"))})


@router.get(
    "/v1/models/{model:path}",
    tags=["models"],
    operation_id="get_model",
    summary="One model",
    responses=schema.documented(schema.MODEL),
    openapi_extra=dict(schema.MODEL_NAME),
    dependencies=[schema.KEYED],
)
async def get_model(request: Request) -> JSONResponse:
    """A model's card; its name may hold slashes."""
    principal = caller(request, "inference")
    model: str = request.path_params["model"]
    state = gateway_of(request).state
    if model not in state.names or not principal.may_use(model):
        raise model_not_found(model)
    return JSONResponse(models.card(state, model))


@router.get(
    "/health",
    tags=["health"],
    operation_id="health",
    summary="The process lives",
    responses=schema.documented(schema.HEALTH),
    openapi_extra=dict(schema.PUBLIC),
)
async def health() -> JSONResponse:
    """Never depends on a backend or the database."""
    return JSONResponse({"status": "ok", "version": __version__})


@router.get(
    "/ready",
    tags=["health"],
    operation_id="ready",
    summary="Every real model has a backend that answered",
    responses=schema.documented(schema.READY),
    openapi_extra=dict(schema.PUBLIC),
)
async def ready(request: Request) -> JSONResponse:
    """200 or 503 with the reasons. `degraded`: what does not work although requests are served."""
    gateway = gateway_of(request)
    waiting = [f"no backend of `{name}` has answered" for name in gateway.state.unanswered()]
    if gateway.draining:
        waiting.append("shutting down")
    # Anybody may read this, so it never holds another program's words; /admin/config does.
    writer: Writer | None = request.scope["state"]["writer"]
    degraded = []
    if writer is not None and writer.trouble is not None:
        degraded.append("storage: decisions wait, some were dropped" if writer.dropped else "storage: decisions wait")
    access: Access = request.scope["state"]["access"]
    degraded += access.troubles
    backends = gateway.state.backends.values()
    left_out = {public for backend in backends for public in backend.strangers}
    degraded += [f"another model answers where `{name}` should: a backend is left out" for name in sorted(left_out)]
    kept = {public for backend in backends for public in backend.changed.keys() - backend.strangers.keys()}
    degraded += [f"another model answers where `{name}` should: a backend goes on all the same" for name in sorted(kept)]
    body: dict[str, Any] = {"status": "ready" if not waiting else "waiting", "reasons": waiting, "degraded": degraded}
    return JSONResponse(body, 200 if not waiting else 503)
